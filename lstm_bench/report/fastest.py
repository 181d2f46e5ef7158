"""The fastest rows that a user can deploy, with the C++ reference beside them.

Rows of the framework `deepbench` are C++ over cuDNN or our kernels: no Python program can use them,
so they show what is possible and win nothing, unless a run has nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench.analysis import summary
from lstm_bench.analysis.comparison import Comparison, Side, clear, paired, side_of
from lstm_bench.analysis.results import Run, references
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import LstmBenchError
from lstm_bench.model.units import at_some, clipped, counted, error, factor, seconds
from lstm_bench.report.document import Column, Row, Table, number, text
from lstm_bench.report.headline import AXES, explaining, floor_of

MOST_GROUPS = 4  # groups of an axis: the report is one screen


def contests(
    run: Run, cells: pd.DataFrame, metric: str = "latency", timed: summary.Times | None = None
) -> pd.DataFrame:
    """The winners among what can be deployed, shape by shape and by class of accuracy.

    `reference` and `reference_s` are the fastest C++ row there, if the run has one. Those of all
    cells are asked for by every part of a page: a run keeps them. `timed` are the times of `cells`,
    where they are there already.
    """
    if cells is not run.cells:
        return _contests(run, cells, metric, timed)
    kept: dict[str, pd.DataFrame] = run.__dict__.setdefault("_contests", {})
    if metric not in kept:
        kept[metric] = _contests(run, cells, metric, timed)
    return kept[metric].copy()


def _contests(
    run: Run, cells: pd.DataFrame, metric: str, timed: summary.Times | None
) -> pd.DataFrame:
    ours, floors = cells["implementation"].isin(references(run, cells)), run.floors(metric)
    if not ours.any():
        won = summary.contests(timed or summary.times(cells, metric), floors, metric)
        return won.assign(reference=None, reference_s=np.nan)
    won = summary.contests(summary.times(cells, metric, ~ours), floors, metric)
    theirs = summary.times(cells, metric, ours)
    every = {**summary.classes(theirs), summary.ANY: theirs.names}
    best = summary.contests(theirs, floors, metric, every)
    best = best.rename(columns={"fastest": "reference", "fastest_s": "reference_s"})
    keys = [*SHAPE, "accuracy"]
    return won.merge(best[[*keys, "reference", "reference_s"]], "left", keys)


def by_group(
    run: Run,
    cells: pd.DataFrame,
    timed: summary.Times,
    won: pd.DataFrame,
    metric: str = "latency",
) -> list[dict[str, Any]]:
    """The leader of each class of accuracy, by group of sizes of the axis that explains most.

    `has` is how many of the group's `shapes` the fastest can run, `wins` at how many of these it
    is the fastest beyond the noise, by `won`, what `contests` has of these cells. `ratio` is how
    many times slower the next is, `reference_ratio` how many times slower the fastest is than the
    C++ reference: geometric means over so many shapes, None where there is nothing to compare.
    """
    compared = Compared(run, cells, metric)
    classes = {key: contestants(run, timed, names) for key, names in summary.classes(timed).items()}
    if sum(bool(ours) for ours, _ in classes.values()) < 3:  # one class, and any: the same
        classes.pop(summary.ANY, None)
    classes = {key: both for key, both in classes.items() if both[0] and sum(map(len, both)) > 1}
    if not classes:
        return []
    everywhere = np.ones(len(timed.shapes), dtype=bool)
    ours, theirs = next(iter(classes.values()))
    first = ranked(timed, ours, everywhere)
    against = compared([*ranked(timed, theirs, everywhere), *first[1:]][0], first[0])
    axis, ranges = groups_of(timed.shapes, explaining(against) if against else "")
    rows = []
    for accuracy, (ours, theirs) in classes.items():
        for at in ranges:
            inside = timed.shapes[axis].between(*at).to_numpy() if axis else everywhere
            if not (leading := ranked(timed, ours, inside)):
                continue
            fastest, then = leading[0], next(iter(leading[1:]), None)
            reference = next(iter(ranked(timed, theirs, inside)), None)
            ratio, sure, both = compared.ratio(fastest, then, axis, at)
            behind, known, beside = compared.ratio(reference, fastest, axis, at)
            own = timed.seconds[inside, timed.names.index(fastest)]
            mine = won["accuracy"] == accuracy
            mine &= won[axis].between(*at) if axis else True
            rows.append(
                {
                    "axis": axis or "all",
                    "at": size_label(at),
                    "shapes": int(inside.sum()),
                    "has": int(np.isfinite(own).sum()),
                    "accuracy": accuracy,
                    "fastest": fastest,
                    "wins": firsts(won[mine])[fastest],
                    "fastest_s": float(np.nanmedian(own)),
                    "error": _error(timed, fastest, inside),
                    "next": then,
                    "ratio": ratio,
                    "ratio_shapes": both,
                    "beyond_noise": sure,
                    "reference": reference,
                    "reference_ratio": behind,
                    "reference_ratio_shapes": beside,
                    "reference_beyond_noise": known,
                }
            )
    return rows


def firsts(won: pd.DataFrame) -> Counter[str]:
    """At how many shapes each is the fastest beyond the noise, or has nothing beside it."""
    sure = won["verdict"].isin(("slower", "alone"))
    return Counter(name for own in won.loc[sure, "shared"] for name in own)


def table(rows: Sequence[Row], metric: str, references: bool) -> Table:
    """Per group of shapes and class of accuracy: the fastest, the next, the C++ reference."""
    axis = str(rows[0]["axis"])

    def time(row: Row) -> str:
        return at_some(seconds(row["fastest_s"]), row["has"], row["shapes"])

    columns = [
        number("shapes" if axis == "all" else axis, "shapes" if axis == "all" else "at"),
        text("accuracy", "accuracy"),
        text("fastest", "fastest", short_name),
        Column("wins", lambda row: f"{row['wins']} of {row['has']}", right=True),
        Column(metric, time, right=True),
        number("error", "error", error),
    ]
    if any(row["next"] for row in rows):
        columns += [text("next", "next", short_name), Column("slower", _by("ratio"), right=True)]
    if any(row["reference"] for row in rows):

        def faster(row: Row) -> str:
            by = _by("reference_ratio")(row)
            return by if by == "-" else f"{short_name(row['reference'])} {by}"

        columns += [Column("faster in C++", faster)]
    which = "fastest that you can deploy" if references else "fastest"
    title = which + ("" if axis == "all" else f", by {axis}")
    return Table("groups", rows, columns, title, keys=2)


def short_name(name: str | None) -> str:
    return clipped(name or "-", 25)


def _by(key: str) -> Callable[[Row], str]:
    """Shows a ratio beyond the noise, and its number of shapes if not all of the group."""

    def shown(row: Row) -> str:
        if row[key] is None:
            return "-"
        name = key.removesuffix("ratio")
        by = factor(row[key]) if row[f"{name}beyond_noise"] else "same"
        return at_some(by, row[f"{key}_shapes"], row["shapes"])

    return shown


def coverage_lines(
    cells: pd.DataFrame,
    groups: Sequence[Row],
    won: pd.DataFrame,
    metric: str = "latency",
) -> list[str]:
    """Lines on the shapes that rows of the first table cannot run, and on winners not in it."""
    lost = summary.lacking(cells, metric)
    named = {group[side] for group in groups for side in ("fastest", "next", "reference")}
    lines = []
    for name, wins in firsts(won[won["accuracy"] != summary.ANY]).items():
        if name in lost and name not in named:
            lines.append(f"{name} is the fastest at {counted(wins, 'shape')}; it {lost[name]}")
    lines += ["; ".join(f"{name} {lost[name]}" for name in lost if name in named)]
    return [line for line in lines if line]


class Compared:
    """The comparisons of some cells of a run, each made once."""

    def __init__(self, run: Run, cells: pd.DataFrame, metric: str):
        self.run, self.cells, self.metric = run, cells, metric
        self._sides: dict[str, Side] = {}
        self._made: dict[tuple[str, str], Comparison | None] = {}

    def __call__(self, a: str, b: str) -> Comparison | None:
        """B against A; None if they have no shape in common."""
        if (a, b) not in self._made:
            try:
                floors = [self.run.floors(self.metric)]
                compared = paired(self._side(a), self._side(b), across=None, floors=floors)
            except LstmBenchError:
                compared = None
            self._made[a, b] = compared if compared and len(compared.shapes) else None
        return self._made[a, b]

    def _side(self, name: str) -> Side:
        if name not in self._sides:
            self._sides[name] = side_of(self.cells, name, self.metric)
        return self._sides[name]

    def ratio(
        self, a: str | None, b: str | None, axis: str = "", at: tuple[int, int] = (0, 0)
    ) -> tuple[float | None, bool, int]:
        """How many times slower B is than A in a group, if beyond the noise, at how many shapes."""
        pair = self(a, b) if a and b else None
        if not pair or not (group := pair.group(axis or "all", at)).shapes:
            return None, False, 0
        return group.ratio.value, clear(group, floor_of(pair)), group.shapes


def _error(timed: summary.Times, name: str, inside: Any) -> float:
    """The largest of a row at these shapes."""
    mine = (timed.cells["implementation"] == name).to_numpy() & inside[timed.shape_of]
    return float(timed.cells.loc[mine, "max_abs_error"].max())


def contestants(
    run: Run, timed: summary.Times, names: Collection[str]
) -> tuple[list[str], list[str]]:
    """The rows among these that do the same work: deployable ones, and references."""
    facts = timed.cells.drop_duplicates("implementation").set_index("implementation")
    equal = [name for name in names if facts["computes"][name] == "lstm"]
    ours = references(run, timed.cells)
    return [n for n in equal if n not in ours], [n for n in equal if n in ours]


def ranked(timed: summary.Times, names: Collection[str], inside: Any) -> list[str]:
    """These rows, fastest first, by the geometric mean over these shapes.

    A row that lacks some of them stands before the first row that is slower where both have a
    time, and last if it has less than half of the shapes.
    """
    logs = {name: np.log(timed.seconds[inside, timed.names.index(name)]) for name in names}
    there = {name: int(np.isfinite(own).sum()) for name, own in logs.items()}
    known = [name for name in names if there[name]]
    ordered: list[str] = []
    for name in sorted(known, key=lambda name: (-there[name], np.nanmean(logs[name]))):
        ahead = [logs[name] - logs[other] for other in ordered]
        beats = [np.isfinite(by).any() and np.nanmean(by) < 0 for by in ahead]
        few = 2 * there[name] < len(logs[name])
        ordered.insert(beats.index(True) if any(beats) and not few else len(ordered), name)
    return ordered


def base_of(run: Run, names: Iterable[str]) -> str:
    """The row that most users run: PyTorch as it comes, else another framework, else any."""
    framework = {row.name: row.framework for row in run.plan.implementations}

    def rank(name: str) -> tuple[bool, ...]:
        ours = framework.get(name) == "pytorch"
        return not ours, name not in run.defaults, name != "pytorch"

    return min(names, key=rank)


def groups_of(shapes: pd.DataFrame, axis: str = "") -> tuple[str, Sequence[tuple[int, int]]]:
    """An axis, else the first of several sizes, and its sizes in few groups."""
    several = [name for name in ("batch", *AXES) if shapes[name].nunique() > 1]
    axis = axis or next(iter(several), "")
    if not axis:
        return "", [(0, 0)]
    sizes = np.unique(shapes[axis])
    parts = np.array_split(sizes, min(MOST_GROUPS, len(sizes)))
    return axis, [(int(part[0]), int(part[-1])) for part in parts]


def size_label(at: tuple[int, int], to: str = " to ") -> str:
    """`16`, `1 to 64`: sizes of an axis."""
    return to.join(map(str, dict.fromkeys(at)))
