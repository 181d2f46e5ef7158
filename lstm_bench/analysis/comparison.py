"""Two implementations held against each other, shape by shape and over all shapes.

    MPE = mean over shapes of (t_A - t_B) / t_A        negative: B is slower
    ratio = geometric mean over shapes of t_B / t_A    above 1: B is slower

Pure functions on data frames as `results.load` gives them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from lstm_bench.analysis import noise
from lstm_bench.analysis.intervals import FEWEST_SHAPES, over_rounds, over_shapes
from lstm_bench.analysis.noise import METRICS, Floors, Numbers, by_round
from lstm_bench.analysis.summary import join_passes
from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.suggest import guess
from lstm_bench.model.types import LstmBenchError

#: The facts that both sides must have in common, and their names in a table.
COMPARABLE = {
    "device": "device_name",
    "driver": "driver",
    "threads": "threads",
    "precision": "precision",
    "work": "computes",
    "state": "state",
    "inputs": "inputs",
}

MOST_GROUPS = 16  # of an axis in a table
WORDS = ("faster", "same", "unsure", "slower")


@dataclass(frozen=True)
class Statistic:
    """A number and its 95% interval."""

    value: float
    low: float
    high: float


NOTHING = Statistic(np.nan, np.nan, np.nan)


@dataclass(frozen=True)
class Group:
    """Some of the shapes of a comparison, and what holds over them."""

    by: str  # "all", or an axis
    at: tuple[int, int]  # from and to on it
    shapes: int
    mpe: Statistic
    ratio: Statistic
    verdicts: dict[str, int]  # of B against A

    @property
    def label(self) -> str:
        low, high = self.at
        return "all" if self.by == "all" else f"{low}" if low == high else f"{low} to {high}"


@dataclass(frozen=True)
class Comparison:
    """B against A: one row per shape that both have measured, and what was left out."""

    a: str
    b: str
    metric: str
    #: columns of SHAPE, a_s, b_s, ratio, floor, verdict
    shapes: pd.DataFrame
    a_rounds: Numbers
    b_rounds: Numbers
    left_out: dict[str, int]  # reason -> shapes
    planned: int  # shapes that either side has, with a time or without
    differs: tuple[str, ...]  # fields of COMPARABLE in which the two differ
    in_turns: bool
    noise: Sequence[Floors]  # of each run

    def part(self, rows: npt.NDArray[np.bool_]) -> Comparison:
        """Some of the shapes."""
        rounds = {name: getattr(self, name)[rows] for name in ("a_rounds", "b_rounds")}
        shapes = self.shapes[rows]
        return dataclasses.replace(self, shapes=shapes, planned=len(shapes), **rounds)

    def group(self, by: str = "all", at: tuple[int, int] = (0, 0)) -> Group:
        """The statistics over all shapes, or over those with `at` on the axis `by`."""
        rows: npt.NDArray[np.bool_] = np.ones(len(self.shapes), dtype=bool)
        if by != "all":
            rows = (self._columns[by] >= at[0]) & (self._columns[by] <= at[1])
        counts = Counter(self._columns["verdict"][rows])
        words = {word: counts[word] for word in WORDS}
        return Group(by, at, int(rows.sum()), *self._intervals(rows), words)

    @property
    def apart(self) -> int:
        """Shapes without a common round: the two were measured, but not in turns."""
        return int(np.isnan(noise.log_ratios(self.a_rounds, self.b_rounds)).all(axis=1).sum())

    def along(self, axis: str) -> list[Group]:
        """One group for every value of an axis; of very many values, one for every doubling."""
        if axis not in self._along:
            values = sorted(map(int, self.shapes[axis].unique()))
            self._along[axis] = [self.group(axis, at) for at in doublings(values, MOST_GROUPS)]
        return self._along[axis]

    def _intervals(self, rows: npt.NDArray[np.bool_]) -> tuple[Statistic, Statistic]:
        """MPE and geometric mean ratio over these shapes."""
        logs = np.log(self._columns["ratio"][rows])
        if not len(logs):
            return NOTHING, NOTHING
        errors = 1 - np.exp(logs)
        if len(logs) >= FEWEST_SHAPES:
            (low, high), ends = over_shapes(errors), over_shapes(logs)
        else:
            lots, scale = self._lots[rows], np.sqrt(np.exp(2 * logs).mean())
            floor = np.log1p(self._columns["floor"][rows]).mean() / len(logs) ** 0.5
            low, high = over_rounds(errors, 1 - np.exp(lots), floor * scale)
            ends = over_rounds(logs, lots, floor)
        if high > 1.0:  # no time at all: no truth, and the mean ratio is no less than the geometric
            high = 1.0 - float(np.exp(ends[0]))
        ratio = Statistic(*map(float, np.exp([logs.mean(), *ends])))
        return Statistic(float(errors.mean()), low, high), ratio

    @functools.cached_property
    def _along(self) -> dict[str, list[Group]]:
        return {}

    @functools.cached_property
    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        return {name: self.shapes[name].to_numpy() for name in self.shapes}

    @functools.cached_property
    def _lots(self) -> Numbers:
        """The logarithm of B / A at every shape, in lots of neighbouring rounds."""
        return noise.in_lots(noise.log_ratios(self.a_rounds, self.b_rounds))


def clear(group: Group, floor: float) -> bool:
    """True if B differs from A beyond the noise, over these shapes together.

    Few shapes, each with few rounds, have an interval that is too narrow to be believed: there
    every single one must be called.
    """
    if group.shapes < FEWEST_SHAPES:
        return group.shapes > 0 and group.shapes in (
            group.verdicts["slower"],
            group.verdicts["faster"],
        )
    return group.ratio.low > 1 + floor or group.ratio.high < 1 / (1 + floor)


def doublings(values: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Every value by itself; if there are more than `most`, all between two powers of two."""
    if len(values) <= most:
        return [(value, value) for value in values]
    parts = (list(part) for _, part in itertools.groupby(values, key=int.bit_length))
    return [(part[0], part[-1]) for part in parts]


def compare(
    cells: pd.DataFrame,
    a: str,
    b: str,
    metric: str = "latency",
    other: pd.DataFrame | None = None,
    across: tuple[str, ...] | None = (),
    floors: Sequence[Floors] = (),
) -> Comparison:
    """Pair A and B by shape; B comes from `other` where that is given.

    `across` names the fields of COMPARABLE in which they may differ; None allows any. `floors`
    are the noise floors of the runs, where `cells` are only a part of theirs.
    """
    sides = side_of(cells, a, metric), side_of(cells if other is None else other, b, metric)
    wholes = [cells] if other is None else [cells, other]
    floors = floors or [noise.floors(noise.controls(whole, metric)) for whole in wholes]
    return paired(*sides, across, floors, in_turns=other is None)


@dataclass(frozen=True)
class Side:
    """One implementation, ready for a comparison: made once, held against many others."""

    name: str
    metric: str
    cells: pd.DataFrame
    known: dict[str, list[object]]  # its values of COMPARABLE
    place: dict[tuple[int, ...], int]  # shape and pass -> row of what follows
    seconds: Numbers
    rounds: Numbers
    group: list[object]
    rows: list[str]  # the implementations: of a machine at its best, that of each shape


def side_of(cells: pd.DataFrame, name: str, metric: str = "latency") -> Side:
    """The cells of one implementation, controls apart, ready to be compared."""
    value, rounds = METRICS[metric]
    columns = [*SHAPE, "pass_number", "group", "status", "device", value, rounds]
    row = "row" if "row" in cells else "implementation"  # a machine's row changes with the shape
    mine = (cells["implementation"] == name) & (cells["copy"] == 1)
    side = cells.loc[mine, [*columns, *COMPARABLE.values(), row]].rename(columns={row: "row"})
    if side.empty:
        known = sorted(set(cells["implementation"]))
        measure = f"; measure it: `lstm-bench grid GRID -i {name}`"
        raise LstmBenchError(
            f"{name!r} is not in the run; it has: {', '.join(known) or 'nothing'}"
            f"{measure if name in IMPLEMENTATIONS else guess(name, known)}"
        )
    if metric != "latency" and side[value].isna().all():
        raise LstmBenchError(f"{name}: the run has no {metric} times; choose another --metric")
    ok = side[(side["status"] == "ok") & side[value].notna()]
    keys = zip(*(ok[key].tolist() for key in (*SHAPE, "pass_number")), strict=True)
    place = {key: row for row, key in enumerate(keys)}
    times = ok[value].to_numpy(dtype=float), by_round(list(ok[rounds]))
    values = {what: _values(side, what) for what in COMPARABLE}
    return Side(name, metric, side, values, place, *times, list(ok["group"]), list(ok["row"]))


def paired(
    a: Side,
    b: Side,
    across: tuple[str, ...] | None,
    floors: Sequence[Floors],
    in_turns: bool = True,
) -> Comparison:
    """B against A; `in_turns`: both are of one run."""
    known = a.known, b.known
    differs = tuple(what for what in COMPARABLE if _unlike(what, known[0][what], known[1][what]))
    if across is not None:
        _refuse(a.name, b.name, known, [what for what in differs if what not in _implied(across)])
    both = [key for key in a.place if key in b.place]
    rows = [np.array([side.place[key] for key in both], dtype=np.intp) for side in (a, b)]
    first, second = a.rounds[rows[0]], b.rounds[rows[1]]
    if not in_turns:
        first, second = _evened(first, second)
    else:  # cells of a resumed run may be hours apart: those have no common round
        apart = [a.group[i] != b.group[j] for i, j in zip(*rows, strict=True)]
        first[apart] = second[apart] = np.nan
    sizes = sorted({key[:-1] for key in both})
    number = {shape: n for n, shape in enumerate(sizes)}
    shape_of = np.array([number[key[:-1]] for key in both], dtype=np.intp)
    passes = a.seconds[rows[0]][:, None], b.seconds[rows[1]][:, None]
    a_s, b_s = map(noise.row_median, join_passes(shape_of, len(sizes), *passes))
    first, second = join_passes(shape_of, len(sizes), first, second)
    _, any_pass = np.unique(shape_of, return_index=True)  # a pass of each shape
    rows_a, rows_b = (
        [side.rows[n] for n in at[any_pass]] for side, at in zip((a, b), rows, strict=True)
    )
    floor = np.maximum(
        noise.floor_at(floors[0], a_s, rows_a), noise.floor_at(floors[-1], b_s, rows_b)
    )
    columns: dict[str, Any] = dict(pd.DataFrame(sizes, columns=SHAPE))
    columns |= {"a_s": a_s, "b_s": b_s, "ratio": b_s / a_s, "floor": floor}
    columns["verdict"] = noise.verdicts(first, second, columns["ratio"], floor)
    shapes = pd.DataFrame(columns)
    names = (a.name, b.name)
    if not in_turns:
        names = f"{a.name} in the first run", f"{b.name} in the second run"
    left, planned = _left_out((a.cells, b.cells), names, a.metric, shapes)
    return Comparison(
        a.name, b.name, a.metric, shapes, first, second, left, planned, differs, in_turns, floors
    )


def drift(
    first: pd.DataFrame, second: pd.DataFrame, names: Collection[str], metric: str
) -> list[float]:
    """How many times longer each of these rows takes in the second run, if it ran alike there."""
    ratios = []
    for name in names:
        try:
            ratios.append(compare(first, name, name, metric, second).group().ratio.value)
        except LstmBenchError:
            continue
    return sorted(ratio for ratio in ratios if np.isfinite(ratio))


def _evened(first: Numbers, second: Numbers) -> tuple[Numbers, Numbers]:
    """As many rounds of one run as of the other: neighbours are joined in the longer one.

    They were not measured in turns, so that any round of one may stand beside any of the other.
    """
    sides = [np.full((len(first), min(first.shape[1], second.shape[1])), np.nan) for _ in range(2)]
    for row, rounds in enumerate(zip(first, second, strict=True)):
        known = [own[np.isfinite(own)] for own in rounds]
        count = min(map(len, known))
        for side, own in zip(sides, known, strict=True):
            if len(own) > count:
                own = [np.median(part) for part in np.array_split(own, count or 1)[:count]]
            side[row, :count] = own
    return sides[0], sides[1]


def _unlike(what: str, first: list[object], second: list[object]) -> bool:
    """True if two sides differ in a field; inputs are a matter between GPUs."""
    return first != second and (what != "inputs" or bool(first and second))


def _implied(across: tuple[str, ...]) -> set[str]:
    """Another device has another driver and other threads."""
    return {*across, *(("driver", "threads") if "device" in across else ())}


def _refuse(a: str, b: str, known: Sequence[dict[str, list[object]]], fields: list[str]) -> None:
    """Name every field in which the two differ, and the flags that allow it."""
    if not fields:
        return
    differences = []
    for what in fields:
        sides = (", ".join(map(str, of[what])) or "none" for of in known)
        differences.append(f"{what} ({' and '.join(sides)})")
    wanted = [w for w in fields if "device" not in fields or w not in ("driver", "threads")]
    flags = " ".join(f"--across {what}" for what in wanted)
    raise LstmBenchError(
        f"{a} and {b} differ in {', '.join(differences)}; to compare them all the same, add {flags}"
    )


def _values(side: pd.DataFrame, what: str) -> list[object]:
    """The values of one side in a field; threads matter on a CPU, the driver on a GPU."""
    column = side[COMPARABLE[what]]
    if what == "threads":
        column = column[side["device"] == "cpu"]
    return sorted(column.dropna().unique())


def _left_out(
    sides: tuple[pd.DataFrame, pd.DataFrame],
    names: tuple[str, str],
    metric: str,
    shapes: pd.DataFrame,
) -> tuple[dict[str, int], int]:
    """Why shapes that either side planned are not among the pairs, and how many were planned."""
    if all(len(s) == len(shapes) for s in sides):
        return {}, len(shapes)
    counted = set(map(tuple, shapes[SHAPE].to_numpy()))
    reasons: Counter[str] = Counter()
    for name, side in zip(names, sides, strict=True):
        without = (side["status"] == "ok") & side[METRICS[metric][0]].isna()
        status = side["status"].mask(without, f"without {metric}")
        failed = side.assign(status=status)[status != "ok"].drop_duplicates(SHAPE)
        for *shape, why in failed[[*SHAPE, "status"]].itertuples(index=False, name=None):
            reasons[f"{name} {why}"] += tuple(shape) not in counted
    here, there = (set(map(tuple, side[SHAPE].to_numpy())) for side in sides)
    for name, missing in zip(names, (there - here, here - there), strict=True):
        reasons[f"{name} not measured"] += len(missing)
    return {reason: count for reason, count in reasons.items() if count}, len(here | there)
