"""The command line: the only file that prints and exits."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lstm_bench import __version__
from lstm_bench.model import LstmBenchError

if TYPE_CHECKING:
    from lstm_bench.model import Record
    from lstm_bench.plan import Plan

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
QUIET = 0.02  # the noise floor of a machine that is fit to measure on
FAILURES = {"wrong", "oom", "timeout", "crashed"}


class _Group(click.Group):
    """Tells every mistake in one or two lines with exit code 2, for every command."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except LstmBenchError as error:
            code = _complain(str(error), BAD_INPUT)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "lstm-bench"
            code = _complain(f"{error.format_message()}\ntry `{command} --help`", BAD_INPUT)
        except (click.Abort, KeyboardInterrupt):
            code = INTERRUPTED
        except OSError as error:  # the output's: what a run writes is told where it happens
            code = _complain(f"cannot write the output: {error.strerror or error}", FAILED)
        sys.exit(code if isinstance(code, int) else DONE)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from lstm_bench.registry import nearest

            near = nearest(args[0], self.list_commands(ctx))
            raise click.UsageError(f"{error.message.rstrip('.')}{near}", ctx) from None


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="lstm-bench")
def main() -> None:
    """How long does one LSTM layer take, and what does your framework add?

    Every implementation of a shape gets the same weights and inputs, is checked against a float64
    reference, and is timed in turns with all others; differences stand beside the run's noise.

    \b
      lstm-bench list                      what can run here, and what the rest would need
      lstm-bench grid grids/default.yaml   measure a grid of shapes
      lstm-bench report                    the newest run as a table
      lstm-bench doctor                    this machine and its noise
    """


_results = click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    help="The folder that holds the runs.",
)
_python = click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="FRAMEWORK=PATH",
    help="The interpreter that holds a framework, such as tensorflow=.venv-tf/bin/python.",
)
_device = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    help="Where to run; auto takes the GPU if there is one.",
)


@main.command()
@click.argument("grid_file", metavar="[GRID]", required=False, type=click.Path(path_type=Path))
@click.option("--run", "run_name", metavar="NAME", help="Name the run; default: grid and time.")
@_results
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Go on with a run (the newest one, or of GRID the newest) where it stopped.",
)
@click.option("--retry-failed", is_flag=True, help="With --resume: crashed cells once more.")
@click.option("-i", "--implementations", metavar="A,B", help="Only these, instead of the file's.")
@_device
@click.option("--threads", type=click.IntRange(1, 4096), help="CPU threads; default: all cores.")
@_python
@click.option("--skip-missing", is_flag=True, help="Go without frameworks that are not installed.")
@click.option("--fast", is_flag=True, help="5 rounds instead of 10.")
@click.option("--rigorous", is_flag=True, help="30 rounds.")
@click.option("--deepbench", is_flag=True, help="Queue 100 calls for throughput, as DeepBench.")
@click.option("--budget", metavar="TIME", help="Stop in time: 90s, 10m, 2h.")
@click.option("--dry-run", is_flag=True, help="Print the plan and an estimate; run nothing.")
def grid(
    grid_file: Path | None,
    run_name: str | None,
    results: Path,
    resume: str | None,
    retry_failed: bool,
    implementations: str | None,
    device: str | None,
    threads: int | None,
    pythons: Sequence[str],
    skip_missing: bool,
    fast: bool,
    rigorous: bool,
    deepbench: bool,
    budget: str | None,
    dry_run: bool,
) -> None:
    """Measure every implementation at every shape of a grid file.

    \b
      lstm-bench grid grids/smoke.yaml --dry-run        what would run, and how long
      lstm-bench grid grids/default.yaml --budget 3m    as much as fits
      lstm-bench grid grids/paper.yaml -i pytorch,pytorch-amp
      lstm-bench grid --resume                          after Ctrl-C, a crash or a power cut

    Results go to results/<run>/ in the current folder. Exit code: 0 done or out of budget, 1 some
    cells failed or none could run, 2 wrong usage, 130 interrupted.
    """
    from lstm_bench import grid as grids
    from lstm_bench import machine, preflight, store
    from lstm_bench.plan import Plan

    if fast and rigorous:
        raise click.UsageError("--fast and --rigorous exclude each other")
    if resume and resume.endswith((".yaml", ".yml")) and grid_file is None:
        grid_file, resume = Path(resume), ""  # `--resume GRID`: the word was meant as the grid
    if grid_file is None and resume is None:
        raise click.UsageError("expected a grid file, such as grids/default.yaml, or --resume")
    if retry_failed and resume is None:
        raise click.UsageError("--retry-failed goes with --resume")
    budget_s = _duration(budget) if budget else None
    environments = preflight.environments(pythons)
    plan = None
    if grid_file is not None:
        data = grids.read(grid_file)
        data.update({k: v for k, v in (("device", device), ("threads", threads)) if v})
        names = None if implementations is None else _split(implementations)
        plan = grids.plan(
            data,
            grid_file,
            device=machine.default_device(),
            threads=machine.threads(),
            implementations=names,
            environments=environments,
            sampling=_sampling_flags(fast, rigorous, deepbench),
        )
    if resume is None:
        assert plan is not None
        name = store.new_run_name(plan.name) if run_name is None else run_name
        folder = results / preflight.run_name(name)
        if (folder / "manifest.json").exists():
            raise LstmBenchError(f"{folder} holds a run; --resume {folder.name} goes on with it")
        records: list[Record] = []
    else:
        changes = (implementations, device, threads, fast, rigorous, deepbench)
        if run_name or (any(changes) and plan is None):
            raise click.UsageError("--resume takes the run's own plan; it cannot be changed")
        folder = store.find_run(results, resume or None, plan.name if plan else None)
        manifest = store.read_manifest(folder)
        stored = Plan.from_json(manifest["plan"], str(folder))
        if plan and not plan.same_work(stored):
            raise LstmBenchError(
                f"{folder} was started with another plan than {grid_file} is now;"
                f" go on with `lstm-bench grid --resume {folder.name}`, or leave --resume out"
            )
        plan = replace(stored, environments={**stored.environments, **environments})
        records = list(store.read_records(folder).values())
        preflight.same_circumstances(manifest, plan, folder)
    missing = preflight.missing(plan, skip_missing or dry_run)
    if dry_run:
        from lstm_bench import driver, render

        click.echo(render.plan_text(plan, driver.pending(plan, records, retry_failed), missing))
        return
    preflight.device(plan)
    _run(plan, folder, records, missing, retry_failed, budget_s, new=resume is None)


def _run(
    plan: Plan,
    folder: Path,
    records: list[Record],
    missing: dict[str, str],
    retry_failed: bool,
    budget_s: float | None,
    new: bool,
) -> NoReturn:
    """Measure, show, say what to type next, and exit."""
    import datetime

    from lstm_bench import driver, machine, preflight, render, store
    from lstm_bench.stop import Stop

    cells = driver.pending(plan, records, retry_failed)
    elsewhere = "" if folder.parent == Path("results") else f" --results {folder.parent}"
    again = f"lstm-bench grid --resume {folder.name}{elsewhere}"
    stop = Stop(_tell)
    try:
        if new:
            manifest = {
                "plan": plan.to_json(),
                "machine": machine.fingerprint(),
                "interpreters": preflight.interpreters(plan),
                "started_at": datetime.datetime.now(datetime.timezone.utc).isoformat(),
            }
            opened = store.Store.create(folder, manifest)
        else:
            opened = store.Store(folder)
        with opened as sink, stop, _progress() as progress:
            outcome = driver.run(plan, cells, sink, progress, stop, budget_s, missing)
    except OSError as error:
        remedy = f"what was finished is kept. Mend it, then `{again}`"
        if not (folder / "manifest.json").exists():
            remedy = "nothing was run; choose another folder with --results"
        raise LstmBenchError(f"{folder}: {error.strerror or error}; {remedy}") from None
    manifest, records = store.read(folder)
    click.echo(render.run_text(folder.name, manifest, records))
    share = outcome.timed_s / outcome.wall_s if outcome.wall_s else 0.0
    inside = render.percent(share, 0)
    click.echo(f"\n{render.span(outcome.wall_s)} in all, {inside} of it inside timed calls")
    if outcome.interrupted or outcome.out_of_budget:
        why = "Interrupted" if outcome.interrupted else "The budget is used up"
        click.echo(f"\n{why}: {outcome.left} of {len(cells)} cells are left. Go on: {again}")
    else:
        click.echo(f"\nNext: lstm-bench report --run {folder.name}{elsewhere}")
    if outcome.interrupted:
        sys.exit(stop.exit_code)
    statuses = {r.status for r in records}
    sys.exit(DONE if "ok" in statuses and not statuses & FAILURES else FAILED)


@main.command()
@click.option("--run", "run_name", metavar="RUN", help="A run's name or folder; default: newest.")
@_results
def report(run_name: str | None, results: Path) -> None:
    """Show a run: the machine, its noise, every implementation, what failed and why.

    \b
      lstm-bench report                 the newest run
      lstm-bench report --run NAME      that one
    """
    from lstm_bench import render, store

    folder = store.find_run(results, run_name)
    manifest, records = store.read(folder)
    click.echo(render.run_text(folder.name, manifest, records))
    if records:
        click.echo("\n" + render.fastest_text(records))


@main.command("list")
@_python
@_device
def list_(pythons: Sequence[str], device: str | None) -> None:
    """Show all implementations: which can run here, and what the others would need."""
    from lstm_bench import doctor, preflight, registry
    from lstm_bench.render import table, wrapped

    where = _where(device)
    found = doctor.survey(preflight.environments(pythons), where)
    rows = doctor.availability(registry.IMPLEMENTATIONS.values(), found, where)
    shown = [
        {"implementation": a.row.name, "precision": a.row.precision, "what it is": a.row.note}
        for a in rows
        if a.runs
    ]
    click.echo(f"These run here, on {where}:\n\n{table(shown)}")
    rest = [a for a in rows if not a.runs]
    if rest:
        click.echo("\nThese do not:\n")
        for a in rest:
            click.echo(wrapped(f"  {a.row.name:<26}{a.detail}", 28))


@main.command("doctor")
@_python
@_device
@click.option("--no-noise", is_flag=True, help="Leave out the A/A run, which takes half a minute.")
def doctor_(pythons: Sequence[str], device: str | None, no_noise: bool) -> None:
    """Examine this machine: what it has, what is in the way, how noisy it is.

    The noise is measured, not guessed: one implementation runs many times under two names. 95% of
    the differences between the two should be under 2% for calls over 1 ms.
    """
    from lstm_bench import analysis, doctor, machine, preflight, registry, render
    from lstm_bench.model import Settings
    from lstm_bench.stop import Stop

    environments = preflight.environments(pythons)
    where = _where(device)
    what = machine.fingerprint()
    click.echo(f"machine      {what['cpu']}, {what['architecture']}, {what['system']}")
    click.echo(f"threads      {what['threads']}, load {what['load']}")
    click.echo(f"memory       {what['memory_bytes'] / 2**30:.0f} GiB")
    click.echo(f"governor     {what['governor'] or 'not shown by this kernel'}")
    for variable, value in what["environment"].items():
        click.echo(f"{variable}={value}")
    for gpu in what["gpus"]:
        click.echo(f"gpu          {gpu['name']}, driver {gpu['driver']}")
    if not what["gpus"]:
        click.echo("gpu          none that NVML shows; everything runs on the CPU")
    found = doctor.survey(environments, where)
    for name, answer in found.items():
        versions = ", ".join(f"{k} {v}" for k, v in answer["versions"].items())
        lacks = f"no {', '.join(answer['missing'])}" if answer["missing"] else versions
        click.echo(f"{name:<12} {lacks}  ({answer['interpreter']})")
    lines = doctor.advice(found)
    click.echo("\n" + "\n".join(f"! {line}" for line in lines) if lines else "\nnothing in the way")
    if no_noise:
        return
    rows = doctor.availability(registry.IMPLEMENTATIONS.values(), found, where)
    settings = Settings(device=where, threads=machine.threads())
    plan = doctor.noise_plan(rows, settings, environments)
    name = plan.implementations[0].name
    click.echo(f"\nnoise: {name} against itself, {settings.threads} threads")
    stop = Stop(_tell)
    with stop, _progress(quiet=True) as progress:
        records = doctor.measure_noise(plan, progress, stop)
    if stop.count:
        sys.exit(stop.exit_code)
    cells = analysis.frame(records)
    pairs = analysis.control_pairs(cells)
    floors = analysis.noise(pairs)
    click.echo("\n".join("  " + line for line in render.noise_lines(floors)))
    long = floors[-1]
    if long.floor is not None:
        word = "quiet enough" if long.floor < QUIET else "noisy: close what else runs here"
        click.echo(f"  calls over 1 ms: {word} (expected under {render.percent(QUIET, 0)})")
    for line in render.warning_lines(records):
        click.echo(f"!{line}")
    failed = [r for r in records if r.status != "ok"]
    if failed:
        click.echo(f"  ! {len(failed)} cells failed: {failed[0].status}: {failed[0].reason}")
        sys.exit(FAILED)


# what the commands share


def _complain(text: str, code: int) -> int:
    try:
        click.echo(f"lstm-bench: {text}", err=True)
    except OSError:
        pass
    return code


def _tell(text: str) -> None:
    click.echo(f"\n{text}", err=True)


def _progress(quiet: bool = False) -> Any:
    """A live bar where the output is a terminal, plain lines elsewhere."""
    from lstm_bench.progress import LiveProgress, PlainProgress

    if sys.stdout.isatty():
        from rich.console import Console

        return LiveProgress(Console())
    return PlainProgress((lambda _: None) if quiet else click.echo)


def _where(device: str | None) -> str:
    from lstm_bench import machine

    return machine.default_device() if device in (None, "auto") else str(device)


def _duration(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)", text.strip())
    if not match or float(match[1]) <= 0:
        raise LstmBenchError(f"--budget: found {text!r}, expected a time such as 90s, 10m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600}[match[2]]


def _sampling_flags(fast: bool, rigorous: bool, deepbench: bool) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    if fast:
        flags.update(rounds=5, max_rounds=10)
    if rigorous:
        flags.update(rounds=30, max_rounds=30)
    if deepbench:
        flags.update(queued_calls=100)
    return flags


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]
