"""`lstm-bench compare`: two implementations, one in two runs, or whole runs of machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from lstm_bench.commands import options
from lstm_bench.model.errors import LstmBenchError
from lstm_bench.model.units import counted

if TYPE_CHECKING:
    from lstm_bench.analysis.results import Run
    from lstm_bench.report.document import Document

WHOLE = ("accuracy", "price", "figures")  # options of whole runs
ACROSS = ("device", "driver", "threads", "precision", "work", "state", "inputs")


@click.command()
@click.argument("a")
@click.argument("b")
@click.argument("more", nargs=-1, metavar="[RUN]...")
@click.option(
    "--run",
    "run_names",
    multiple=True,
    metavar="RUN",
    help="A run's name or folder; twice: A of the first, B of the second. Default: the newest.",
)
@options.results
@options.metric
@options.where
@options.shape("Only this shape; repeatable.")
@options.across(*ACROSS)
@click.option(
    "-i",
    "--implementation",
    metavar="A",
    help="For whole runs: compare this row, not the fastest of each run.",
)
@click.option(
    "--accuracy",
    type=click.Choice(["fp32", "tf32", "half", "int8", "any"]),  # choice.CLASSES, and any
    help="For whole runs: the coarsest accuracy that may win.  [default: fp32]",
)
@click.option(
    "--price",
    multiple=True,
    metavar="RUN=N",
    help="For whole runs: the price of a machine per hour; once for each.",
)
@options.figures("For whole runs: draw which machine wins where, as SVG and PNG.")
@options.writing
def compare(a: str, b: str, more: Sequence[str], **given: Any) -> None:
    """Compare B with A: overall, by hidden size, batch and timesteps, and where each wins.

    A and B are two implementations of a run, or two or more runs, each with its fastest
    implementation that can be deployed: which machine is faster from which size on.

    \b
      lstm-bench compare pytorch deepbench
      lstm-bench compare pytorch pytorch-amp --across precision
      lstm-bench compare pytorch deepbench --where 'batch>=16' --metric throughput
      lstm-bench compare pytorch deepbench --shape 512,16,25
      lstm-bench compare pytorch pytorch --run monday --run friday
      lstm-bench compare pytorch pytorch~other            after `grid --against`
      lstm-bench compare my-gpu my-cpu                    whole runs: which machine wins where
      lstm-bench compare my-gpu my-cpu -i pytorch --price my-gpu=3.20 --price my-cpu=0.08

    MPE is the mean over shapes of (A - B) / A: negative means that B is slower. A difference is
    called faster or slower only if it is beyond the run's noise floor. A and B must have done the
    same work on the same device in the same precision, unless --across names what may differ. Whole
    runs may be of any device and driver; the first lines say what else differs.
    """
    from lstm_bench.model.shape_filter import one_of

    asked = SimpleNamespace(**given)
    asked.conditions = [*asked.conditions, *one_of(asked.shape)]
    if not asked.run_names and _are_runs(asked.results, (a, b, *more)):
        document = _machines((a, b, *more), asked)
    elif more:
        raise click.UsageError(
            f"found {2 + len(more)} names, expected two implementations, or runs in {asked.results}"
        )
    else:
        document = _pair(a, b, asked)
    options.write(document, asked.form, asked.output)


def _pair(a: str, b: str, asked: SimpleNamespace) -> Document:
    """Two rows of a run, or a row of one run and a row of another."""
    from lstm_bench.analysis import comparison
    from lstm_bench.model.shape_filter import chosen
    from lstm_bench.report import pair_report

    for name, flag in (("implementation", "-i"), *((n, f"--{n}") for n in WHOLE)):
        if getattr(asked, name):
            raise click.UsageError(f"{flag} goes with whole runs: `lstm-bench compare RUN RUN`")
    if len(asked.run_names) > 2:
        raise click.UsageError("--run: at most two, the first for A, the second for B")
    loaded = [options.load(asked.results, name) for name in asked.run_names or [None]]
    for run in loaded:
        options.check_shapes(run, asked.shape)
    cells = [chosen(run.cells, asked.conditions, run.name) for run in loaded]
    two = len({(run.folder.resolve(), run.part) for run in loaded if run.folder}) == 2
    loaded = loaded if two else loaded[:1]  # the same run twice is one
    if a == b and not two and a in loaded[0].implementations:
        raise LstmBenchError(
            f"found {a} twice in one run, {loaded[0].name}; expected two rows, or one row in two"
            f" runs: `lstm-bench compare {a} {a} --run A --run B`"
        )
    other = cells[1] if two else None
    floors = [run.floors(asked.metric) for run in loaded]
    both = comparison.compare(cells[0], a, b, asked.metric, other, tuple(asked.across), floors)
    if two:
        names = _distinct([run.name for run in loaded], asked.run_names)
        both = dataclasses.replace(both, a=f"{a}@{names[0]}", b=f"{b}@{names[1]}")
    if both.shapes.empty:
        lost = both.left_out.items()
        why = "; ".join(f"{reason} at {counted(count, 'shape')}" for reason, count in lost)
        why = f": {why}" if why else ""
        raise LstmBenchError(
            f"{both.a} and {both.b} have no shape at which both have a time{why};"
            " `lstm-bench report` has the reasons"
        )
    changed = _changed((a, b), loaded) if two or "~" in a + b else {}
    alike = set.intersection(*(set(run.implementations) for run in loaded)) - {a, b}
    alike = {name for name in alike if two and not _changed((name, name), loaded)}
    drift = comparison.drift(cells[0], cells[-1], alike, asked.metric)
    return pair_report.document(both, loaded, changed, drift)


def _are_runs(results: Path, names: Sequence[str]) -> bool:
    """Return whether runs are named; a name that is also a row's is taken for the row."""
    from lstm_bench.frameworks import IMPLEMENTATIONS
    from lstm_bench.runs.run_folders import is_run, split_part

    runs = (split_part(results, name)[0] or "" for name in names)
    return any(is_run(results, name) and name not in IMPLEMENTATIONS for name in runs)


def _machines(names: Sequence[str], asked: SimpleNamespace) -> Document:
    """Whole runs, as a report and as figures."""
    from lstm_bench.analysis.machines import machines
    from lstm_bench.report import machines_report

    if asked.implementation and asked.accuracy:
        raise click.UsageError("-i names a row, --accuracy chooses one; give either")
    loaded = [options.load(asked.results, name) for name in names]
    if len({(run.folder.resolve(), run.part) for run in loaded if run.folder}) < len(names):
        raise LstmBenchError(f"found a run twice in {', '.join(names)}; expected different runs")
    compared = machines(
        dict(zip(_distinct([run.name for run in loaded], names), loaded, strict=True)),
        asked.metric,
        asked.accuracy or "fp32",
        asked.implementation,
        asked.conditions,
        asked.across,
    )
    document = machines_report.document(compared, dict(map(_price, asked.price)))
    if folder := asked.figures:
        from lstm_bench.report import figures, machines_figure

        drawn = {"machines": machines_figure.drawn(compared)}
        options.write_figures(folder, lambda: figures.saved(drawn, folder))
    return document


def _price(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        raise LstmBenchError(f"--price: found {text!r}, expected RUN=2.50, an hour") from None


def _changed(names: Sequence[str], runs: Sequence[Run]) -> dict[str, tuple[str, str]]:
    """Return what both sides ran with, in another version each."""
    from lstm_bench.analysis.results import versions

    a, b = map(versions, (runs[0], runs[-1]), names)
    return {what: (a[what], b[what]) for what in a if what in b and a[what] != b[what]}


def _distinct(names: Sequence[str], given: Sequence[str]) -> Sequence[str]:
    """Names of runs: their own, or as they were given if some of those are the same."""
    return given if len(set(names)) < len(names) else names
