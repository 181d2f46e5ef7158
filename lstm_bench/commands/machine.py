"""`lstm-bench list` and `lstm-bench doctor`: what this machine has, and how noisy it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from lstm_bench import features
from lstm_bench.commands import options
from lstm_bench.model.errors import FAILED
from lstm_bench.model.types import UNSEEN_GPU, kinds_of
from lstm_bench.model.units import WIDTH, counted, wrapped

if TYPE_CHECKING:
    from lstm_bench.runs.plan import Plan


@click.command("list")
@options.python
@options.device
def list_(pythons: Sequence[str], device: str | None) -> None:
    """Show all implementations: which can run here, and what the others would need."""
    from lstm_bench import frameworks as registry
    from lstm_bench.driver import doctor, preflight
    from lstm_bench.report.document import Table, text
    from lstm_bench.report.run_report import DEFAULT, DEFAULT_NOTE

    where = options.device_for(device)
    answers = doctor.survey(preflight.environments(pythons), where)
    rows = doctor.availability(registry.IMPLEMENTATIONS.values(), answers, where)
    shown = [
        {
            "name": row.name + DEFAULT * (where in row.default_on),
            "precision": row.precision,
            "note": row.note,
        }
        for row, lack in rows
        if not lack
    ]
    columns = (text("implementation", "name"), text("precision", "precision"))
    table = Table("runs", shown, (*columns, text("what it is", "note")))
    drawn = table.drawn(width=options.terminal_width()) if shown else "(nothing)"
    click.echo(f"These run here, on {where}:\n\n{drawn}")
    if any(where in row.default_on for row, lack in rows if not lack):
        click.echo(f"\n{DEFAULT_NOTE}")
    lacking: dict[str, list[str]] = {}
    for row, lack in rows:
        if lack:
            lacking.setdefault(lack, []).append(row.name)
    if lacking:
        click.echo("\nThese do not:\n")
    for lack, names in lacking.items():
        _say(f"  {lack}:", 4)
        _say(f"      {', '.join(names)}", 6)


@click.command("doctor")
@options.python
@options.device
@click.option("--no-noise", is_flag=True, help="Leave out the A/A run, which takes about a minute.")
@options.of_features("doctor")
def doctor_(**given: Any) -> None:
    """Examine this machine: what it has, what is in the way, how noisy it is.

    The noise is measured, not guessed: one implementation runs many times under two names. 95% of
    the differences between the two should be under 2% for calls over 1 ms.

    \b
      lstm-bench doctor                                 all of that, in about a minute
      lstm-bench doctor --limits                        launches, exchanges, bandwidths, rates
      lstm-bench doctor --limits --output limits.json   the same as a run keeps it
    """
    # door `doctor`: `options.Added`, whose `run` has all that was typed; true: that was all
    if any(more.run(given) for more in features.behind("doctor")):
        return
    from lstm_bench import frameworks as registry
    from lstm_bench.driver import doctor, machine, preflight
    from lstm_bench.model.types import Settings

    environments = preflight.environments(given["pythons"])
    where = options.device_for(given["device"])
    what = machine.fingerprint()
    _fact("machine", f"{what['cpu']}, {what['architecture']}, {what['system']}")
    _fact("threads", f"{what['threads']}, load {what['load']}")
    _fact("memory", f"{what['memory_bytes'] / 2**30:.0f} GiB")
    _fact("governor", what["governor"] or "not shown by this kernel")
    for variable, value in what["environment"].items():
        click.echo(f"{variable}={value}")
    for gpu in what["gpus"]:
        _fact("gpu", f"{gpu['name']}, driver {gpu['driver']}")
    if not what["gpus"]:
        unseen = f"{UNSEEN_GPU}: clocks, power and energy will be missing"
        none = "none that the driver shows; everything runs on the CPU"
        _fact("gpu", unseen if machine.has_gpu() else none)
    here = doctor.survey(environments, where)
    for name, answer in here.items():
        versions = ", ".join(f"{k} {v}" for k, v in answer["versions"].items())
        lacks = f"no {', '.join(answer['missing'])}" if answer["missing"] else versions
        _fact(name, f"{lacks}  ({answer['interpreter']})")
    lines = doctor.advice(here)
    if where == "cuda" and not machine.has_gpu():
        lines.insert(0, "the driver shows no GPU here: nothing runs with --device cuda")
    click.echo("" if lines else "\nnothing in the way")
    for line in lines:
        _say(f"! {line}", 2)
    if not given["no_noise"]:
        rows = doctor.availability(registry.IMPLEMENTATIONS.values(), here, where)
        settings = Settings(device=where, threads=machine.threads())
        _noise(doctor.noise_plan(rows, settings, environments))


def _noise(plan: Plan) -> None:
    """Measure one implementation against itself, and say how far it lies apart."""
    from lstm_bench.analysis import noise, results
    from lstm_bench.commands.run import run
    from lstm_bench.driver import doctor
    from lstm_bench.report import run_report
    from lstm_bench.runs.choice import RunOptions

    name = plan.implementations[0].name
    click.echo(f"\nnoise: {name} against itself, {counted(plan.settings.threads, 'thread')}")
    session = run(RunOptions(ready=plan, results=None, quiet=True))
    if session.interrupted:
        sys.exit(session.code)
    records = session.records
    floors = noise.floors(noise.controls(results.frame(records)))
    click.echo("\n".join(run_report.noise_lines(floors)))
    if (verdict := doctor.verdict(records, floors.classes[-1].floor)) is not None:
        click.echo(f"  calls over 1 ms: {verdict}")
    for line in run_report.warning_lines(kinds_of([r.warnings for r in records]), len(records)):
        _say(f"!{line}", 6)
    if failed := [r for r in records if r.status != "ok"]:
        first = f"{failed[0].status}: {failed[0].reason}"
        click.echo(f"  ! {counted(len(failed), 'cell')} failed: {first}")
        sys.exit(FAILED)


def _fact(name: str, what: str) -> None:
    _say(f"{name:<12} {what}", 13)


def _say(text: str, indent: int) -> None:
    """A line, folded to the terminal."""
    click.echo(wrapped(text, indent, min(options.terminal_width(), WIDTH)))
