"""`lstm-bench advise`: what to run at a shape."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstm_bench.commands import options
from lstm_bench.model.errors import LstmBenchError

if TYPE_CHECKING:
    from lstm_bench.model.types import Shape

ACCURACY = ("fp32", "tf32", "half", "int8", "any")  # the classes of model/types.py, and any


@click.command()
@click.argument("shape", metavar="H,B,T[,I]")
@options.of_pass("Advise for this; default: what the shape's name says, else inference.")
@click.option(
    "--device",
    metavar="NAME",
    help="The device to advise for, such as h200 or cpu; default: cpu or cuda, as here.",
)
@click.option(
    "--now",
    metavar="ROW",
    help="The row that you run now; default: PyTorch without any setting, pytorch-tf32 on a GPU.",
)
@click.option(
    "--accuracy",
    type=click.Choice(ACCURACY),
    help="The coarsest accuracy allowed; default: that of the row that you run now.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="The most peak memory allowed, such as 2GiB: of the GPU; of the host in a run on a CPU.",
)
@click.option("--without", multiple=True, metavar="ROW", help="Leave out this row; repeatable.")
@click.option("--code", metavar="ROW", help="Print the code of this row, not of the advised one.")
@click.option(
    "--run", "run_name", metavar="RUN", help="Advise from this run; default: all of the device."
)
@options.results
@click.option(
    "--measure",
    is_flag=True,
    help="Measure the rows that could win here, where the answer is open.",
)
@options.writing
def advise(
    shape: str,
    device: str | None,
    now: str | None,
    accuracy: str | None,
    memory: str | None,
    without: Sequence[str],
    code: str | None,
    run_name: str | None,
    results: Path,
    measure: bool,
    form: str | None,
    output: str | None,
    **given: str | None,
) -> None:
    """Say what to run at a shape: the fastest row that can be deployed, its gain, cost and code.

    \b
      lstm-bench advise 512,1,25
      lstm-bench advise 320,4,60 --device h200
      lstm-bench advise 512,1,25 --now pytorch --accuracy half --without pytorch-amp
      lstm-bench advise 512,1,25 --memory 2GiB --run h200-ladder
      lstm-bench advise 320,4,60 --measure
      lstm-bench advise 256,16,100 --pass training

    A shape that was not measured gets estimates from the nearest ones, marked as such; a shape
    outside of the measured sizes gets none. The C++ references cannot be deployed and are never
    advised.
    """
    from lstm_bench.driver import machine
    from lstm_bench.features.advise import advice, sources
    from lstm_bench.features.advise import report as advise_report
    from lstm_bench.model.shape import for_passes
    from lstm_bench.model.units import read_size
    from lstm_bench.runs import grid

    asked = grid.named(
        shape, "advise", device if device in ("cpu", "cuda") else machine.kind().device
    )
    if name := given["pass"]:
        (asked,) = for_passes([asked], [name])
    limit = read_size(memory) if memory else None
    if memory and limit is None:
        raise LstmBenchError(f"--memory: found {memory!r}, expected a size, as 2GiB or 500MiB")
    options.check_folder(output)
    here = machine.kind()
    names: Sequence[str] = ()
    wanted = device or here.device
    try:
        search = sources.search(results, asked, here, device, now, run_name)
        answer = advice.advise(search, accuracy, limit, without)
        if not answer.source.measured or not answer.decided:
            names, accuracy = advice.to_measure(answer), answer.accuracy
            now = now or (answer.source.now if answer.source.now in names else None)
        wanted = device or answer.source.run.plan.settings.device
    except sources.NoAnswer as error:
        if not measure:
            raise
        names = error.rows
    if measure and names:
        if not sources.fits(here, wanted):
            raise LstmBenchError(
                f"--measure measures here, on {here.brief}, and this is about {wanted}; type the"
                " same on such a machine"
            )
        folder = _measured(here.device, asked, names, results)
        search = sources.search(folder.parent, asked, here, None, now, folder.name)
        answer = advice.advise(search, accuracy, limit, without)
    options.write(advise_report.document(answer, code), form, output)


def _measured(device: str, shape: Shape, names: Sequence[str], results: Path) -> Path:
    """A new run of these rows at a shape."""
    from lstm_bench.commands.run import run
    from lstm_bench.runs import grid as grids
    from lstm_bench.runs import run_folders
    from lstm_bench.runs.choice import RunOptions

    file, data = grids.at_shapes([shape])
    options = RunOptions(
        grid={**data, "device": device},
        file=file,
        shapes=[shape],
        implementations=names,
        results=results,
        name=run_folders.new_run_name(results, f"advise-{shape.slug}"),
        skip_missing=True,
    )
    with contextlib.redirect_stdout(sys.stderr):  # what is asked for is the advice
        session = run(options)
    if session.interrupted:
        sys.exit(session.code)
    return session.folder
