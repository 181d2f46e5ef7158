"""`lstm-bench compare`: two implementations, one in two runs, or whole runs of machines."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstm_bench.commands import options
from lstm_bench.model.errors import LstmBenchError
from lstm_bench.model.units import counted

if TYPE_CHECKING:
    from lstm_bench.analysis.machines import Machines
    from lstm_bench.analysis.results import Run
    from lstm_bench.model.types import Shape
    from lstm_bench.report.document import Document

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
    help="A run's name or folder; twice: A from the first, B from the second. Default: the newest.",
)
@options.results
@options.metric
@options.where
@options.shape("Only this shape; repeatable.")
@click.option(
    "--across",
    multiple=True,
    type=click.Choice(ACROSS),
    help="Compare although the two differ in this; repeatable.",
)
@click.option(
    "-i",
    "--implementation",
    metavar="A",
    help="Of whole runs: this one, in place of each run's fastest.",
)
@click.option(
    "--accuracy",
    type=click.Choice(["fp32", "tf32", "half", "int8", "any"]),  # choice.CLASSES, and any
    help="Of whole runs: the fastest that is so accurate or better.  [default: fp32]",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="RUN=N",
    help="Of whole runs: what the machine costs an hour; once for each.",
)
@click.option(
    "--figures",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Of whole runs: draw who wins where there, as SVG and PNG.",
)
@options.writing
def compare(
    a: str,
    b: str,
    more: Sequence[str],
    run_names: Sequence[str],
    results: Path,
    metric: str,
    conditions: Sequence[str],
    shape: Sequence[Shape],
    across: Sequence[str],
    implementation: str | None,
    accuracy: str | None,
    prices: Sequence[str],
    figures: Path | None,
    form: str | None,
    output: str | None,
) -> None:
    """Hold B against A: overall, by hidden size, batch and timesteps, and where each wins.

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
    called faster or slower only if it is beyond the run's noise floor. Two things that did not do
    the same work on the same device in the same precision are compared only if --across says so;
    whole runs may be of any device and driver, and what else differs is said first.
    """
    from lstm_bench.model.shape_filter import one_of

    conditions = [*conditions, *one_of(shape)]
    if not run_names and _are_runs(results, (a, b, *more)):
        if implementation and accuracy:
            raise click.UsageError("-i names a row, --accuracy chooses one; give either")
        from lstm_bench.report import machines_report

        how = (metric, accuracy or "fp32", implementation, conditions, across)
        found = _machines((a, b, *more), results, how)
        document = machines_report.document(found, dict(map(_price, prices)))
        if figures:
            _draw(found, figures)
        return options.write(document, form, output)
    if more:
        raise click.UsageError(
            f"found {2 + len(more)} names, expected two implementations, or runs in {results}"
        )
    whole = {"-i": implementation, "--accuracy": accuracy, "--price": prices, "--figures": figures}
    if given := [flag for flag, value in whole.items() if value]:
        raise click.UsageError(f"{given[0]} goes with whole runs: `lstm-bench compare RUN RUN`")
    if len(run_names) > 2:
        raise click.UsageError("--run: at most two, the first for A, the second for B")
    loaded = [options.load(results, name) for name in run_names] or [options.load(results, None)]
    for run in loaded:
        options.check_shapes(run, shape)
    options.write(_pair(a, b, loaded, run_names, metric, conditions, across), form, output)


def _pair(
    a: str,
    b: str,
    loaded: Sequence[Run],
    run_names: Sequence[str],
    metric: str,
    conditions: Sequence[str],
    across: Sequence[str],
) -> Document:
    """Two rows of a run, or a row of one run and a row of another."""
    from lstm_bench.analysis import comparison
    from lstm_bench.model.shape_filter import chosen
    from lstm_bench.report import pair_report

    cells = [chosen(run.cells, conditions, run.name) for run in loaded]
    two = len({(run.folder.resolve(), run.part) for run in loaded if run.folder}) == 2
    loaded = loaded if two else loaded[:1]  # the same run twice is one
    if a == b and not two and a in loaded[0].implementations:
        raise LstmBenchError(_itself(a, loaded[0], run_names))
    other = cells[1] if two else None
    floors = [run.floors(metric) for run in loaded]
    found = comparison.compare(cells[0], a, b, metric, other, tuple(across), floors)
    if two:
        names = _told_apart([run.name for run in loaded], run_names)
        found = dataclasses.replace(found, a=f"{a}@{names[0]}", b=f"{b}@{names[1]}")
    if found.shapes.empty:
        lost = found.left_out.items()
        why = "; ".join(f"{reason} at {counted(count, 'shape')}" for reason, count in lost)
        why = f": {why}" if why else ""
        raise LstmBenchError(
            f"{found.a} and {found.b} have no shape at which both have a time{why};"
            " `lstm-bench report` has the reasons"
        )
    changed = _changed((a, b), loaded) if two or "~" in a + b else {}
    alike = set.intersection(*(set(run.implementations) for run in loaded)) - {a, b}
    alike = {name for name in alike if two and not _changed((name, name), loaded)}
    drift = comparison.drift(cells[0], cells[-1], alike, metric)
    return pair_report.document(found, loaded, changed, drift)


def _are_runs(results: Path, names: Sequence[str]) -> bool:
    """Whether runs are named; what is a row of ours as well is taken for the row."""
    from lstm_bench.frameworks import IMPLEMENTATIONS
    from lstm_bench.runs.run_folders import is_run, split_part

    runs = (split_part(results, name)[0] or "" for name in names)
    return any(is_run(results, name) and name not in IMPLEMENTATIONS for name in runs)


def _machines(
    names: Sequence[str],
    results: Path,
    how: tuple[str, str, str | None, Sequence[str], Sequence[str]],
) -> Machines:
    """Whole runs; `how` is what `machines` takes after them."""
    from lstm_bench.analysis.machines import machines

    loaded = [options.load(results, name) for name in names]
    if len({(run.folder.resolve(), run.part) for run in loaded if run.folder}) < len(names):
        raise LstmBenchError(f"found a run twice in {', '.join(names)}; expected different runs")
    labels = _told_apart([run.name for run in loaded], names)
    return machines(dict(zip(labels, loaded, strict=True)), *how)


def _draw(found: Machines, folder: Path) -> None:
    from lstm_bench.report import figures, machines_figure

    try:
        paths = figures.saved({"machines": machines_figure.drawn(found)}, folder)
    except OSError as error:
        raise options.cannot_write(folder, error) from None
    for path in paths:
        click.echo(f"wrote {path}", err=True)


def _price(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        raise LstmBenchError(f"--price: found {text!r}, expected RUN=2.50, an hour") from None


def _changed(names: Sequence[str], runs: Sequence[Run]) -> dict[str, tuple[str, str]]:
    """What both sides ran with, in another version each."""
    from lstm_bench.analysis.results import versions

    a, b = map(versions, (runs[0], runs[-1]), names)
    return {what: (a[what], b[what]) for what in a if what in b and a[what] != b[what]}


def _itself(name: str, run: Run, given: Sequence[str]) -> str:
    """Why a row is not held against itself in one run, and what can be asked instead."""
    rows = run.cells.drop_duplicates("implementation").set_index("implementation")
    like = rows[["precision", "computes", "device", "threads"]].astype(str)
    others = [other for other in run.implementations if other != name]
    others.sort(key=lambda other: not like.loc[other].equals(like.loc[name]))  # no --across
    pair = ""
    if others:
        flags = ["--run", given[0]] if given else []
        pair = f"two rows, `{shlex.join(['lstm-bench', 'compare', name, others[0], *flags])}`, or "
    return (
        f"found {name} twice in one run, {run.name}; expected {pair}one row in two runs,"
        f" `lstm-bench compare {name} {name} --run A --run B`"
    )


def _told_apart(names: Sequence[str], given: Sequence[str]) -> Sequence[str]:
    """Names of runs: their own, or as they were given if some of those are the same."""
    return given if len(set(names)) < len(names) else names
