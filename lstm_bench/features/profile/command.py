"""`lstm-bench profile`: one implementation at one shape, taken apart."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstm_bench.commands import options
from lstm_bench.model.types import LstmBenchError, Settings, Shape, Stopped

if TYPE_CHECKING:
    from lstm_bench.analysis.results import Run
    from lstm_bench.driver.context import Context
    from lstm_bench.features.profile.summary import Profiled
    from lstm_bench.model.profile import Profile
    from lstm_bench.model.types import Record
    from lstm_bench.report.document import Document

SORTS = ("self", "total", "calls", "memory", "name")  # cells.SORTS, without its imports


@click.command(help="Where the time of profiled calls goes: device, launches, kernels, operators.")
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    help="With --kernels: the order of kernels and operators.  [default: self]",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    help="With --kernels: lines to show for each row; JSON has all.  [default: 5]",
)
def kernels(
    run: Run, conditions: Sequence[str], everything: bool, sort: str | None, top: int | None
) -> Document:
    from lstm_bench.features.profile import report

    return report.document(run, top or 5, sort or "self", conditions, everything)


@click.command()
@click.argument("implementation")
@options.shape("Hidden, batch, timesteps[, input size].", required=True)
@options.of_pass("Profile this; default: what the shape's name says, else inference.")
@options.device
@options.threads
@options.python
@click.option(
    "--operators", is_flag=True, help="Show the host's operators, by the framework's profiler."
)
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="self",
    show_default=True,
    help="The order of kernels and operators.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    default=15,
    show_default=True,
    help="Lines to show; CSV and JSON have all.",
)
@options.file("--trace", "On a GPU: write all events as a Chrome trace, for ui.perfetto.dev.")
@options.file("--figure", "On a GPU: draw one call over time.")
@options.writing
def profile(
    implementation: str,
    shape: Shape,
    device: str | None,
    threads: int | None,
    pythons: Sequence[str],
    operators: bool,
    sort: str,
    top: int,
    trace: Path | None,
    figure: Path | None,
    form: str | None,
    output: str | None,
    **given: str | None,
) -> None:
    """Take the calls of one implementation at one shape apart.

    \b
      lstm-bench profile pytorch --shape 512,16,25
      lstm-bench profile pytorch-amp --shape 512,16,25 --trace amp.json
      lstm-bench profile tf-mode2 --shape 512,16,25 --operators --sort total

    The cell is checked and timed as in a grid, then profiled apart from that: on a GPU its kernels,
    copies and launches through CUPTI, on a CPU its operators. PyTorch and LibTorch also show the
    functions between the call and the library. Nothing is kept but what you ask for.
    """
    from lstm_bench import frameworks as registry
    from lstm_bench.features.profile import report as kernel_report
    from lstm_bench.model.shape import for_passes
    from lstm_bench.model.units import counted

    if name := given["pass"]:
        (shape,) = for_passes([shape], [name])
    row = registry.find(implementation, "IMPLEMENTATION")
    if row.threads and (device == "cuda" or threads):
        raise click.UsageError(
            f"{row.name} is on the CPU with {counted(row.threads, 'thread')} whatever --device and"
            f" --threads say; leave them out, or profile {row.name.rpartition('@')[0]}"
        )
    own = row.settings_in(Settings(device=options.device_for(device))).device
    _early(trace, figure, own, operators)
    timeline = bool(trace or figure)
    record, reply = _measured(implementation, shape, device, threads, pythons, operators, timeline)
    options.write(kernel_report.cell_document(record, reply.profile, sort, top), form, output)
    if reply.profile.problem or not reply.profile.parts:
        raise Stopped(_nothing(record, reply.profile, own, operators))
    if timeline and not reply.activities:
        raise Stopped("no timeline: the profiler gave no times")
    title = f"{record.implementation} at {record.shape.label}"
    if trace:
        from lstm_bench.features.profile import trace as traces

        content = traces.chrome(reply.activities, reply.windows, title)
        options.write_file(trace, json.dumps(content))
    if figure:
        from lstm_bench.features.profile import figures as profile_figures

        try:
            profile_figures.timeline(
                reply.activities, reply.windows, figure, record.shape.timesteps, title
            )
        except OSError as error:
            raise options.cannot_write(figure, error) from None
        click.echo(f"wrote {figure}", err=True)


def _nothing(record: Record, profile: Profile, device: str, operators: bool) -> str:
    """Why there is nothing to show, and what can be had instead."""
    why = profile.problem or f"{profile.source} saw nothing"
    same = ["--shape", record.shape.label, "--device", device]
    words, instead = ["grid", "-i", record.implementation, *same], "times"
    if device == "cuda" and not operators:
        words, instead = ["profile", record.implementation, *same, "--operators"], "operators"
    command = shlex.join(["lstm-bench", *words])
    return f"{record.implementation} has no profile here: {why}\nfor its {instead}: `{command}`"


def _early(trace: Path | None, figure: Path | None, device: str, operators: bool) -> None:
    """Refuse what cannot be, before anything is measured."""
    if (trace or figure) and (device == "cpu" or operators):
        what = "--operators" if operators else "a CPU"
        raise LstmBenchError(
            f"--trace, --figure: found {what}, expected a profile of a GPU, which tells times;"
            " operators have none, use --sort and --top"
        )
    if figure and figure.suffix not in (".svg", ".png", ".pdf"):
        raise LstmBenchError(f"--figure: found {figure}, expected a name in .svg, .png or .pdf")


def _measured(
    implementation: str,
    shape: Shape,
    device: str | None,
    threads: int | None,
    pythons: Sequence[str],
    operators: bool,
    timeline: bool = False,
) -> tuple[Record, Profiled]:
    """Run the one cell; nothing of it stays on disk."""
    from lstm_bench.commands.run import run
    from lstm_bench.driver import preflight
    from lstm_bench.features.profile.follow_up import ProfileFollowUp
    from lstm_bench.runs.choice import RunOptions

    data = {
        "name": "profile",
        "device": options.device_for(device),
        "threads": threads or "all",
        "controls": 0,
        "profile": True,
        "sampling": {"rounds": 5, "max_rounds": 5},
    }
    asked = RunOptions(
        grid=data,
        file=Path("--shape"),
        shapes=[shape],
        implementations=[implementation],
        environments=preflight.environments(pythons),
        results=None,
        quiet=True,
    )
    seen: list[Profiled] = []

    def follow_up(context: Context) -> ProfileFollowUp:
        return ProfileFollowUp(context, seen.append, timeline, operators, depth=True)

    session = run(asked, [follow_up])
    if session.interrupted and not seen:
        sys.exit(session.code)
    if not session.records or not seen:
        reasons = [text for record in session.records for text in (record.reason, *record.warnings)]
        why = "; ".join(filter(None, reasons))
        raise Stopped(f"{implementation} at {shape.label} could not be profiled: {why}")
    return session.records[0], seen[0]
