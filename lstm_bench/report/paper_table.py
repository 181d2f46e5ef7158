"""The paper's table of mean percentage errors, with its own figures beside a run's."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import astuple
from typing import Any

from lstm_bench.analysis.comparison import NOTHING, Statistic, compare
from lstm_bench.analysis.noise import Floors
from lstm_bench.analysis.results import Run
from lstm_bench.model.shape_filter import chosen
from lstm_bench.model.types import LstmBenchError
from lstm_bench.model.units import times
from lstm_bench.report.document import Column, Document, Row, Table, number, paragraph, text
from lstm_bench.report.run_report import about, noise_line

#: Table 2 of the paper, in its order: A, B, MPE (on a TITAN V, in 2021).
PAPER = (
    ("tf-mode0", "tf-mode1", -1.822121106),
    ("tf-mode0", "tf-mode2", -1.244951865),
    ("tf-mode1", "tf-mode2", -0.1308454709),
    ("tf-mode0", "tf-mode0-amp", -0.1455642638),
    ("deepbench", "tf-mode0", -17.75424073),
    ("deepbench", "pytorch", -0.53045191),
    ("pytorch", "pytorch-amp", -0.6300867506),
    ("deepbench", "pytorch-amp", -1.304903692),
)

#: The rows that the paper's DeepBench ran, by their names here.
AS_PUBLISHED = {"deepbench": "deepbench-skip"}

MPE = "MPE [95% interval]"
SIGNS = (
    "MPE: mean over the shapes of (A - B) / A, negative if B is slower; B / A: geometric mean,"
    " above 1x if B is slower"
)
MARKS = {"precision": "^", "work": "*"}  # for rows with unequal sides


def document(
    run: Run,
    pairs: Iterable[tuple[str, str]] = (),
    metric: str = "latency",
    conditions: Sequence[str] = (),
) -> Document:
    """The paper's pairs, then any others; over all shapes, or some."""
    known = paper_pairs(run.implementations) + [(a, b, math.nan) for a, b in pairs]
    floors = [run.floors(metric)]
    part = dataclasses.replace(run, cells=chosen(run.cells, conditions))
    rows = [_row(part, a, b, paper, metric, floors) for a, b, paper in known]
    table = Table(
        "mpe",
        rows,
        (
            text("A", "a"),
            Column("B", lambda row: row["b"] + "".join(MARKS.get(d, "") for d in row["unequal"])),
            Column("paper", lambda row: f"{row['paper']:.2f}".replace("nan", ""), right=True),
            Column(MPE, lambda row: interval(row, "mpe"), right=True),
            Column("B / A [95% interval]", lambda row: interval(row, "ratio", times), right=True),
            number("shapes", "shapes"),
        ),
        keys=2,
    )
    notes = [
        f"By {metric}. {SIGNS}; paper: its MPE on a TITAN V in 2021, over shapes that it does not"
        " list; its DeepBench skips the input projection: here that is `deepbench-skip`, not"
        " `deepbench`."
    ]
    unequal = {what for row in rows for what in row["unequal"]}
    notes += ["^ the two differ in precision"] * ("precision" in unequal)
    notes += ["* the two do not do the same work"] * ("work" in unequal)
    notes += [
        f"{row['a']}, {row['b']}: left out: {row['left_out']}" for row in rows if row["left_out"]
    ]
    result = about(run, part.cells, conditions)
    result.facts["metric"] = metric
    result.add(noise_line(run.floors(metric), metric), table, paragraph(*notes))
    return result


def paper_pairs(names: Collection[str]) -> list[tuple[str, str, float]]:
    """The paper's pairs and values.

    Where a run has what the paper's DeepBench ran, the value stands beside that, and the same work
    follows without one.
    """
    pairs = []
    for a, b, value in PAPER:
        if AS_PUBLISHED.get(a) in names:
            pairs += [(AS_PUBLISHED[a], b, value), (a, b, math.nan)]
        else:
            pairs.append((a, b, value))
    return pairs


def _row(
    run: Run, a: str, b: str, paper: float, metric: str, floors: Sequence[Floors]
) -> dict[str, Any]:
    row: dict[str, Any] = {"a": a, "b": b, "paper": paper}
    try:
        compared = compare(run.cells, a, b, metric, across=None, floors=floors)
    except LstmBenchError as error:
        gone = [name for name in (a, b) if name not in run.implementations]
        why = f"not in the run: {', '.join(gone)}" if gone else str(error)
        row |= statistics(NOTHING, NOTHING)
        return {**row, "shapes": 0, "unequal": [], "left_out": why}
    group = compared.group()
    return {
        **row,
        **statistics(group.mpe, group.ratio),
        "shapes": group.shapes,
        "unequal": list(compared.differs),
        "left_out": "; ".join(f"{why} at {count}" for why, count in compared.left_out.items()),
    }


def statistics(mpe: Statistic, ratio: Statistic) -> dict[str, float]:
    """Both with their intervals, as columns."""
    names = [f"{name}{end}" for name in ("mpe", "ratio") for end in ("", "_low", "_high")]
    return dict(zip(names, astuple(mpe) + astuple(ratio), strict=True))


def interval(row: Row, key: str, show: Callable[[float], str] = "{:.2f}".format) -> str:
    """A number with the interval behind it."""
    if math.isnan(row[key]):
        return "-"
    low, high = (show(row[f"{key}_{end}"]).rstrip("x") for end in ("low", "high"))
    return f"{show(row[key])} [{low}, {high}]"
