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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from lstm_bench import noise
from lstm_bench.analysis import join_passes
from lstm_bench.model import LstmBenchError
from lstm_bench.noise import METRICS, SHAPE, Noise, Numbers, by_round
from lstm_bench.registry import nearest

#: What both sides must have in common, and what a table calls it.
COMPARABLE = {
    "device": "device_name",
    "driver": "driver",
    "threads": "threads",
    "precision": "precision",
    "work": "computes",
}

RESAMPLES = 2000  # fewer on a grid of more than a thousand shapes, where they differ less
FEWEST_RESAMPLES, MOST_RESAMPLES = 300, 20_000
FEW_DRAWS = 240_000  # of all shapes together: the fewer these are, the more a single draw matters
DRAWS = 2_000_000  # of a shape, in all resamples together
POOL = (10, 50)  # redrawn medians of each shape to draw from: at least, at most
FEWEST_SHAPES = 4  # below, an interval speaks of just these shapes: only rounds are redrawn
#: Student's t at 97.5% for so few shapes: resampling them breaks down when two or three differ.
STUDENT = {4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262, 11: 2.228}
SEED = 20210
MOST_GROUPS = 16  # of an axis in a table
WORDS = ("faster", "same", "unsure", "slower")


@dataclass(frozen=True)
class Statistic:
    """A number and its 95% interval."""

    value: float
    low: float
    high: float


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
    differs: tuple[str, ...]  # fields of COMPARABLE in which the two differ
    in_turns: bool
    noise: Sequence[Sequence[Noise]]  # of each run

    def part(self, rows: npt.NDArray[np.bool_]) -> Comparison:
        """Some of the shapes."""
        first, second = self.a_rounds[rows], self.b_rounds[rows]
        return dataclasses.replace(self, shapes=self.shapes[rows], a_rounds=first, b_rounds=second)

    def group(self, by: str = "all", at: tuple[int, int] = (0, 0)) -> Group:
        """The statistics over all shapes, or over those with `at` on the axis `by`."""
        rows: npt.NDArray[np.bool_] = np.ones(len(self.shapes), dtype=bool)
        if by != "all":
            rows = (self._columns[by] >= at[0]) & (self._columns[by] <= at[1])
        mpe, ratio = self._intervals(rows)
        counts = Counter(self._columns["verdict"][rows])
        words = {word: counts[word] for word in WORDS}
        return Group(by, at, int(rows.sum()), mpe, ratio, words)

    @property
    def apart(self) -> int:
        """Shapes without a common round: the two were measured, but not in turns."""
        return int(np.isnan(noise.log_ratios(self.a_rounds, self.b_rounds)).all(axis=1).sum())

    def along(self, axis: str) -> list[Group]:
        """One group for every value of an axis; of very many values, one for every doubling."""
        values = sorted(map(int, self.shapes[axis].unique()))
        return [self.group(axis, at) for at in doublings(values, MOST_GROUPS)]

    def _intervals(self, rows: npt.NDArray[np.bool_]) -> tuple[Statistic, Statistic]:
        sides = self.a_rounds[rows], self.b_rounds[rows]
        times = self._columns["a_s"][rows], self._columns["b_s"][rows]
        if rows.sum() < FEWEST_SHAPES:
            return over_rounds(*sides, times, self._columns["floor"][rows])
        pools = self._redrawn[0][rows], self._redrawn[1][rows]
        return over_shapes(times, pools, self._resamples(int(rows.sum())))

    @functools.cached_property
    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        return {name: self.shapes[name].to_numpy() for name in self.shapes}

    def _resamples(self, shapes: int) -> int:
        usual = int(np.clip(DRAWS // len(self.shapes), FEWEST_RESAMPLES, RESAMPLES))
        return max(usual, min(MOST_RESAMPLES, FEW_DRAWS // shapes))

    @functools.cached_property
    def _redrawn(self) -> tuple[Numbers, Numbers]:
        """Medians over redrawn rounds, a few for every shape: all groups draw from them."""
        times = self._columns["a_s"], self._columns["b_s"]
        draws = int(np.clip(DRAWS // (20 * len(self.shapes)), *POOL))
        return redrawn(self.a_rounds, self.b_rounds, times, draws)


def clear(group: Group, floor: float) -> bool:
    """Whether B differs from A beyond the noise, over these shapes together.

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
    floors: Sequence[Sequence[Noise]] = (),
) -> Comparison:
    """Pair A and B by shape; B comes from `other` where that is given.

    `across` names the fields of COMPARABLE in which they may differ; None allows any. `floors`
    are the noise floors of the runs, where `cells` are only a part of theirs.
    """
    value, rounds = METRICS[metric]
    sides = (_side(cells, a, metric), _side(cells if other is None else other, b, metric))
    known = [{what: _values(side, what) for what in COMPARABLE} for side in sides]
    differs = tuple(what for what in COMPARABLE if known[0][what] != known[1][what])
    if across is not None:
        _refuse(a, b, known, [what for what in differs if what not in _implied(across)])
    ok = [s[(s["status"] == "ok") & s[value].notna()] for s in sides]
    columns = [*SHAPE, "pass_number", "group", value, rounds]
    both = ok[0][columns].merge(ok[1][columns], on=[*SHAPE, "pass_number"], suffixes=("_a", "_b"))
    in_turns = other is None
    first, second = by_round(list(both[rounds + "_a"])), by_round(list(both[rounds + "_b"]))
    if not in_turns:
        first, second = _evened(first, second)
    else:  # cells of a resumed run may be hours apart: those have no common round
        apart = (both["group_a"] != both["group_b"]).to_numpy()
        first[apart] = second[apart] = np.nan
    groups = both.groupby(SHAPE, sort=True)
    shapes = groups[[value + "_a", value + "_b"]].median().reset_index()
    shapes.columns = pd.Index([*SHAPE, "a_s", "b_s"])
    first, second = join_passes(groups.ngroup().to_numpy(), len(shapes), first, second)
    wholes = [cells] if other is None else [cells, other]
    floors = floors or [noise.floors(noise.controls(whole, metric)) for whole in wholes]
    sides_s = (floors[0], shapes["a_s"]), (floors[-1], shapes["b_s"])
    floor = np.maximum(*(noise.floor_at(own, times) for own, times in sides_s))
    shapes["ratio"] = shapes["b_s"] / shapes["a_s"]
    shapes["floor"] = floor
    shapes["verdict"] = noise.verdicts(first, second, floor)
    if not in_turns:  # no round belongs to another: nothing but the medians can be the same
        beyond = np.abs(np.log(shapes["ratio"])) > np.log1p(floor)
        shapes.loc[beyond & (shapes["verdict"] == "same"), "verdict"] = "unsure"
    names = (a, b) if other is None else (f"{a} in the first run", f"{b} in the second run")
    left = _left_out(sides, names, metric, shapes)
    return Comparison(a, b, metric, shapes, first, second, left, differs, in_turns, floors)


def _evened(first: Numbers, second: Numbers) -> tuple[Numbers, Numbers]:
    """As many rounds of one run as of the other: of the one that has more, neighbours are joined.

    They were not measured in turns, so that any round of one may stand beside any of the other.
    """
    sides = [np.full((len(first), min(first.shape[1], second.shape[1])), np.nan) for _ in range(2)]
    for row, rounds in enumerate(zip(first, second, strict=True)):
        known = [own[np.isfinite(own)] for own in rounds]
        count = min(map(len, known))
        for side, own in zip(sides, known, strict=True):
            side[row, :count] = [
                np.median(part) for part in np.array_split(own, count or 1)[:count]
            ]
    return sides[0], sides[1]


def _implied(across: tuple[str, ...]) -> set[str]:
    """Another device has another driver and other threads."""
    return {*across, *(("driver", "threads") if "device" in across else ())}


def _refuse(a: str, b: str, known: Sequence[dict[str, list[object]]], fields: list[str]) -> None:
    """Name every field in which the two differ, and the flags that allow it."""
    if not fields:
        return
    told = []
    for what in fields:
        sides = (", ".join(map(str, of[what])) or "none" for of in known)
        told.append(f"{what} ({' and '.join(sides)})")
    wanted = [w for w in fields if "device" not in fields or w not in ("driver", "threads")]
    flags = " ".join(f"--across {what}" for what in wanted)
    raise LstmBenchError(
        f"{a} and {b} differ in {', '.join(told)}; to compare them all the same, add {flags}"
    )


def _side(cells: pd.DataFrame, name: str, metric: str) -> pd.DataFrame:
    """The cells of one implementation, controls apart."""
    value, rounds = METRICS[metric]
    columns = [*SHAPE, "pass_number", "group", "status", "device", value, rounds]
    mine = (cells["implementation"] == name) & (cells["copy"] == 1)
    side = cells.loc[mine, [*columns, *COMPARABLE.values()]]
    if side.empty:
        known = sorted(set(cells["implementation"]))
        near = nearest(name, known) if known else ""
        raise LstmBenchError(
            f"{name!r} is not in the run{near if 'did you' in near else ''};"
            f" it has: {', '.join(known) or 'nothing'}"
        )
    if metric != "latency" and side[value].isna().all():
        raise LstmBenchError(f"{name}: the run has no {metric} times; choose another --metric")
    return side


def _values(side: pd.DataFrame, what: str) -> list[object]:
    """What one side has in a field; threads matter on a CPU, the driver on a GPU."""
    column = side[COMPARABLE[what]]
    if what == "threads":
        column = column[side["device"] == "cpu"]
    return sorted(column.dropna().unique())


def _left_out(
    sides: tuple[pd.DataFrame, pd.DataFrame],
    names: tuple[str, str],
    metric: str,
    shapes: pd.DataFrame,
) -> dict[str, int]:
    """Why shapes that either side planned are not among the pairs."""
    if all(len(s) == len(shapes) for s in sides):
        return {}
    counted = set(map(tuple, shapes[SHAPE].to_numpy()))
    reasons: Counter[str] = Counter()
    for name, side in zip(names, sides, strict=True):
        without = (side["status"] == "ok") & side[METRICS[metric][0]].isna()
        status = side["status"].mask(without, f"without {metric}")
        failed = side.assign(status=status)[status != "ok"].drop_duplicates(SHAPE)
        for *shape, why in failed[[*SHAPE, "status"]].itertuples(index=False, name=None):
            reasons[f"{name} {why}"] += tuple(shape) not in counted
    for name, mine, theirs in ((names[0], *sides), (names[1], *reversed(sides))):
        here, there = (set(map(tuple, s[SHAPE].to_numpy())) for s in (mine, theirs))
        reasons[f"{name} not measured"] += len(there - here)
    return {reason: count for reason, count in reasons.items() if count}


def over_rounds(
    first: Numbers, second: Numbers, times: tuple[Numbers, Numbers], floor: Numbers
) -> tuple[Statistic, Statistic]:
    """MPE and geometric mean ratio of just these shapes: rounds are redrawn (seeded).

    What differs from process to process no number of rounds shows; the A/A controls do. So no
    interval is narrower than what lies between two measurements of the same thing.
    """
    if not len(times[0]):
        nothing = Statistic(np.nan, np.nan, np.nan)
        return nothing, nothing
    pools = _both(*redrawn(first, second, times, RESAMPLES))
    between = float(np.log1p(floor).mean() / len(floor) ** 0.5)  # of the mean logarithm
    least = between * float(np.sqrt(((times[1] / times[0]) ** 2).mean())), between
    ends = []
    for values, pool, half in zip(_both(*times), pools, least, strict=True):
        low, high = np.quantile(pool.mean(axis=0), (0.025, 0.975))
        center = values.mean()
        ends.append((min(low, center - half), max(high, center + half)))
    return _statistics(times, ends)


def over_shapes(
    times: tuple[Numbers, Numbers], pools: tuple[Numbers, Numbers], resamples: int = RESAMPLES
) -> tuple[Statistic, Statistic]:
    """MPE and geometric mean ratio, with intervals by bootstrap over shapes and rounds (seeded).

    Each resample draws shapes, and for each of them one of its redrawn medians. The interval is
    the studentised one: a mean over a dozen shapes comes out too sure of itself by plain
    percentiles. Four to eleven shapes get Student's interval.
    """
    values = _both(*times)
    if len(times[0]) in STUDENT:
        return _statistics(times, [student_interval(v) for v in values])
    return _statistics(times, _studentised(values, _both(*pools), resamples))


def _statistics(
    times: tuple[Numbers, Numbers], ends: Sequence[Sequence[float]]
) -> tuple[Statistic, Statistic]:
    (value, low, high), ratio = ((v.mean(), *e) for v, e in zip(_both(*times), ends, strict=True))
    if high > 1.0:  # B takes no time: no truth, and the mean ratio is no less than the geometric
        high = 1.0 - np.exp(ratio[1])
    return Statistic(*map(float, (value, low, high))), Statistic(*map(float, np.exp(ratio)))


def _both(a: Numbers, b: Numbers) -> tuple[Numbers, Numbers]:
    """What is averaged over shapes: the percentage error, and the logarithm of the ratio."""
    return (a - b) / a, np.log(b / a)


def redrawn(
    first: Numbers, second: Numbers, times: tuple[Numbers, Numbers], draws: int
) -> tuple[Numbers, Numbers]:
    """For every shape `draws` medians over redrawn rounds; a single round stands as it is.

    The two sides keep their rounds together, as these were measured in turns. Neighbouring rounds
    are drawn together too, as many as `noise.lot_size` says: they are not independent.
    """
    rng = np.random.default_rng(SEED)
    shared = np.isfinite(first) & np.isfinite(second)
    rounds = shared.sum(axis=1)
    pools = [np.repeat(side[:, None], draws, axis=1) for side in times]
    for n in np.unique(rounds[rounds > 1]):
        rows = np.flatnonzero(rounds == n)
        sides = [side[rows][shared[rows]].reshape(len(rows), n) for side in (first, second)]
        step = max(1, DRAWS // (draws * n))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            pick = neighbours(rng, int(n), (len(rows[part]), draws))
            for pool, side in zip(pools, sides, strict=True):
                chosen = np.take_along_axis(side[part, None, :], pick, axis=2)
                middle = np.median(side[part], axis=1)[:, None]
                pool[rows[part]] *= np.median(chosen, axis=2) / middle  # around the cell's figure
    return pools[0], pools[1]


def neighbours(
    rng: np.random.Generator, n: int, of: tuple[int, ...]
) -> npt.NDArray[np.integer[Any]]:
    """Places of n values drawn from n, in lots of neighbours; the last one's is the first."""
    size = noise.lot_size(n)
    starts = rng.integers(0, n, (*of, -(-n // size)))
    drawn = (starts[..., None] + np.arange(size)) % n
    return drawn.reshape(*of, -1)[..., :n]


def student_interval(values: Numbers) -> tuple[float, float]:
    """Student's 95% interval of the mean of four values or more."""
    half = student(len(values)) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean() - half), float(values.mean() + half)


def student(count: int) -> float:
    """Student's t at 97.5%: from the table, beyond it by an expansion that is exact to 0.001."""
    if count in STUDENT:
        return STUDENT[count]
    z, free = 1.959964, count - 1
    return z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)


def _studentised(
    values: tuple[Numbers, Numbers],
    pools: tuple[Numbers, Numbers],
    resamples: int,
) -> list[tuple[float, float]]:
    """The ends of the interval of each mean: quantiles of t, times the error of the mean."""
    count, tiny = len(values[0]), np.finfo(float).tiny
    rng, weights = np.random.default_rng(SEED), np.full(count, 1 / count)
    scaled: list[list[Numbers]] = [[], []]
    step = max(1, DRAWS // count)
    for start in range(0, resamples, step):
        size = (min(step, resamples - start), count)
        pick = rng.integers(0, pools[0].size, size)  # a shape and one of its redrawn medians
        for mine, of, pool in zip(scaled, values, pools, strict=True):
            sample = np.take((pool - of.mean()).ravel(), pick)
            middle = sample @ weights
            squares = np.einsum("ij,ij->i", sample, sample) - count * middle**2
            mine.append(middle / np.sqrt(np.maximum(squares / (count - 1), tiny)))
    ends = []
    for mine, of in zip(scaled, values, strict=True):
        low, high = np.quantile(np.concatenate(mine), (0.025, 0.975))
        error = of.std(ddof=1)
        ends.append((of.mean() - high * error, of.mean() - low * error))
    return ends
