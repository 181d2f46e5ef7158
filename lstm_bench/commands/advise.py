"""`lstm-bench advise`: what to run at a shape."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstm_bench.commands import options
from lstm_bench.model.errors import DONE, FAILED, LstmBenchError

if TYPE_CHECKING:
    from lstm_bench.analysis.results import Run
    from lstm_bench.model.types import Shape

ACCURACY = ("fp32", "tf32", "half", "int8", "any")  # the classes of model/types.py, and any


@click.command()
@click.argument("shape", metavar="H,B,T[,I]")
@click.option(
    "--now",
    metavar="ROW",
    help="What runs now, such as pytorch; default: what the run's framework does by itself.",
)
@click.option(
    "--accuracy",
    type=click.Choice(ACCURACY),
    help="No coarser than this; default: than what runs now.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="Peak memory at most this, as 2GiB: of the GPU, in a run of a CPU of the host.",
)
@click.option(
    "--run",
    "run_name",
    metavar="RUN",
    help="A run's name or folder; default: the newest of this device that has the shape.",
)
@options.results
@click.option(
    "--measure", is_flag=True, help="Measure a shape that the run lacks: the rows that could win."
)
@options.writing
def advise(
    shape: str,
    now: str | None,
    accuracy: str | None,
    memory: str | None,
    run_name: str | None,
    results: Path,
    measure: bool,
    form: str | None,
    output: str | None,
) -> None:
    """Say what to run at a shape: the fastest row that can be deployed, its gain, cost and code.

    \b
      lstm-bench advise 512,1,25
      lstm-bench advise 512,1,25 --now pytorch-tf32 --accuracy half
      lstm-bench advise 512,1,25 --memory 2GiB --run h200-ladder
      lstm-bench advise 320,4,60 --measure

    A shape that was not measured gets times from the nearest that were, and is said to; one outside
    of the measured sizes gets none. The C++ references cannot be deployed and are never advised.
    """
    from lstm_bench.analysis import kinds
    from lstm_bench.analysis import results as runs
    from lstm_bench.model.shape_filter import parsed
    from lstm_bench.model.units import read_size
    from lstm_bench.report import advice
    from lstm_bench.runs import run_folders

    asked = parsed(shape, "advise")
    limit = read_size(memory) if memory else None
    if memory and limit is None:
        raise LstmBenchError(f"--memory: found {memory!r}, expected a size, as 2GiB or 500MiB")
    options.check_folder(output)
    device = options.device_for(None)
    run_name, part = run_folders.split_part(results, run_name)
    run = kinds.chosen(runs.load(run_folders.for_shape(results, run_name, asked, device)), part)
    names: list[str] = []
    try:
        found = advice.of(run, asked, now, accuracy, limit)
        if not found.measured:
            names, now, accuracy = advice.to_measure(found), found.now, found.accuracy
    except LstmBenchError:
        if not measure or not advice.is_outside(run, asked):
            raise
        names = advice.deployable(run)
    if measure and names:
        run = _measured(run, asked, names, results)
        found = advice.of(run, asked, now, accuracy, limit)
    options.write(advice.document(found), form, output)


def _measured(run: Run, shape: Shape, names: list[str], results: Path) -> Run:
    """A new run of these rows at a shape."""
    from lstm_bench.analysis import results as runs
    from lstm_bench.commands.grid import grid
    from lstm_bench.report import advice
    from lstm_bench.runs import run_folders

    name = run_folders.new_run_name(results, f"advise-{shape.label.replace(',', '-')}")
    flags = ["--run", name, "--results", str(results), "--skip-missing"]
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what is asked for is the advice
            grid.main([*advice.measuring(run, shape, names), *flags], standalone_mode=False)
    except SystemExit as ended:
        if ended.code not in (DONE, FAILED):
            sys.exit(ended.code)
    return runs.load(run_folders.find_run(results, name))
