"""The noise between two measurements of the same thing, and verdicts that respect it.

A/A controls are the same implementation under two names; what separates them is noise. Their 95th
percentile is the run's noise floor, by duration class, and a difference must be beyond it. An
implementation with enough controls has a floor of its own: one may be restless, as its processes
differ, beside others that are not.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt
import pandas as pd

from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import FEWEST_ROUNDS

Numbers = npt.NDArray[np.float64]

#: The metrics that can be compared: the cell's value, and its value in every round.
METRICS = {
    "latency": ("latency_s", "round_latency_s"),
    "throughput": ("throughput_s", "round_throughput_s"),
    "device": ("device_s", "round_device_s"),
}

#: Duration classes, each with a noise floor of its own: a fixed cost of the clock or of a context
#: switch weighs more on a short call.
CLASSES = (("< 100 us", 1e-4), ("< 1 ms", 1e-3), (">= 1 ms", math.inf))

FEWEST_PAIRS = 5  # below, a class has no noise floor that it can call its own
OWN_PAIRS = 10  # below, an implementation has none, and takes that of its class
DEFAULT_FLOOR = 0.05  # at least, where a whole run has fewer pairs than that
LOTS = 8  # into which neighbouring rounds are joined before they are tested, if they are many
MAD = 1.4826  # a normal distribution's standard deviation in median deviations
FALSE_DISCOVERIES = 0.05  # the share of wrong ones among all differences that are called


def plausible(seconds: Numbers) -> npt.NDArray[np.bool_]:
    """True where a number can be a call's time at all: a run folder may say anything."""
    return np.asarray((seconds > 1e-10) & (seconds < 1e7))


@dataclass(frozen=True)
class Noise:
    """The noise floor of one duration class."""

    name: str
    pairs: int
    floor: float | None  # of |A - A'| / A, 95th percentile; none without pairs
    called_different: int  # pairs that the verdict, with the floor of all other pairs, calls so


@dataclass(frozen=True)
class Floors:
    """The noise floors of a run by duration class; `own` has those of single implementations."""

    classes: tuple[Noise, ...]
    own: Mapping[str, tuple[Noise, ...]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Noise]:
        return iter(self.classes)

    @property
    def others(self) -> int:
        """How many pairs are of implementations without a floor of their own."""
        own = sum(duration.pairs for classes in self.own.values() for duration in classes)
        return sum(duration.pairs for duration in self) - own


@dataclass(frozen=True)
class Controls:
    """A/A pairs: what was measured twice, and both sides round by round."""

    name: npt.NDArray[np.str_]  # the implementation
    time_s: Numbers  # of the first side
    difference: Numbers  # (A' - A) / A, the median over the rounds
    ratio: Numbers  # A' / A, of the two medians
    first: Numbers  # one row per pair, one column per round, NaN where there is none
    second: Numbers

    def __len__(self) -> int:
        return len(self.time_s)

    def only(self, places: npt.NDArray[np.intp]) -> Controls:
        """Some of the pairs."""
        return Controls(*(getattr(self, column.name)[places] for column in fields(self)))


def by_round(lists: Sequence[Sequence[float]]) -> Numbers:
    """Lists of times as the rows of one array; NaN where there is none."""
    lengths = np.fromiter(map(len, lists), dtype=np.intp, count=len(lists))
    result = np.full((len(lists), int(lengths.max(initial=0))), np.nan)
    if lengths.sum():
        flat = _flat(lists)
        flat[~plausible(flat)] = np.nan
        result[np.arange(result.shape[1]) < lengths[:, None]] = flat
    return result


def _flat(lists: Sequence[Sequence[float]]) -> Numbers:
    """All of them behind each other."""
    if all(type(times) is array for times in lists):
        return np.frombuffer(bytearray().join(lists))  # type: ignore[arg-type]
    return np.fromiter(itertools.chain.from_iterable(lists), dtype=float)


def controls(cells: pd.DataFrame, metric: str = "latency") -> Controls:
    """Copies 1 and 2, 3 and 4, ... of an implementation at one shape in one pass.

    Both must be of one group: else they were not measured in turns. Their difference is the one
    that the rounds of a verdict show, their median: a machine that goes slower for a while slows
    both sides of a round.
    """
    value, rounds = METRICS[metric]
    keys = ["implementation", *SHAPE, "pass_number", "group"]
    ok = cells.loc[(cells["status"] == "ok") & cells[value].notna(), [*keys, "copy", value, rounds]]
    even = ok[ok["copy"] % 2 == 0]
    before = even.assign(copy=even["copy"] - 1)
    keys.append("copy")
    number = ok.groupby(["implementation", *SHAPE], sort=False).ngroup()
    ok = ok[number.isin(number[even.index])]  # those with a control
    both = before.merge(ok, on=keys, suffixes=("_2", "")).sort_values(keys)
    first, second = by_round(list(both[rounds])), by_round(list(both[rounds + "_2"]))
    width = min(first.shape[1], second.shape[1])
    first, second = first[:, :width], second[:, :width]
    times = both[value].to_numpy(dtype=float)
    in_turns = log_ratios(first, second)
    enough = np.isfinite(in_turns).sum(axis=1) >= FEWEST_ROUNDS
    ratio = both[value + "_2"].to_numpy(dtype=float) / times
    difference = np.where(enough, np.expm1(row_median(in_turns)), ratio - 1)
    names = both["implementation"].to_numpy(dtype=str)
    return Controls(names, times, difference, ratio, first, second)


def between_passes(cells: pd.DataFrame, metric: str = "latency") -> Numbers:
    """How far each later pass of a cell, in processes of its own, is from its first."""
    value = METRICS[metric][0]
    if not (cells["pass_number"] > 1).any():
        return np.empty(0)
    own = cells[(cells["status"] == "ok") & (cells["copy"] == 1) & cells[value].notna()]
    own = own.sort_values("pass_number", kind="stable")
    first = own.groupby(["implementation", *SHAPE])[[value, "pass_number"]].transform("first")
    apart = np.abs(own[value] / first[value] - 1)[own["pass_number"] != first["pass_number"]]
    return np.asarray(apart.to_numpy(dtype=float))


def log_ratios(first: Numbers, second: Numbers) -> Numbers:
    """Round by round, how much longer the second took; NaN where a side has no such round."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(second / first)
    ratios[~np.isfinite(ratios)] = np.nan
    return np.asarray(ratios)


def floors(pairs: Controls) -> Floors:
    """The noise floors by duration class; implementations with enough pairs have theirs."""
    judged = _judged(pairs)
    names, count = np.unique(pairs.name, return_counts=True)
    own = {}
    for name in names[count >= OWN_PAIRS] if len(names) > 1 else ():
        mine = np.flatnonzero(pairs.name == name)
        part = pairs.only(mine)
        judged[mine] = _judged(part)
        own[str(name)] = _classes(part, judged[mine])
    return Floors(_classes(pairs, judged), own)


def _classes(pairs: Controls, judged: npt.NDArray[np.bool_]) -> tuple[Noise, ...]:
    """The noise floor of each duration class by these pairs."""
    size = np.abs(pairs.difference)
    return tuple(
        Noise(
            name, len(own), percentile_95(size[own]) if len(own) else None, int(judged[own].sum())
        )
        for (name, _), own in zip(CLASSES, _by_class(pairs.time_s), strict=True)
    )


def _by_class(time_s: Numbers) -> list[npt.NDArray[np.intp]]:
    """The places of these times, by duration class."""
    number = _class_of(time_s)
    return [np.flatnonzero(number == place) for place in range(len(CLASSES))]


def _class_of(time_s: npt.ArrayLike) -> npt.NDArray[np.intp]:
    limits = [upper for _, upper in CLASSES[:-1]]
    return np.searchsorted(limits, np.asarray(time_s, dtype=float), side="right")


def _judged(pairs: Controls) -> npt.NDArray[np.bool_]:
    """The pairs that are called different, each by the others of its class; where few, by all."""
    size, different = np.abs(pairs.difference), np.zeros(len(pairs), dtype=bool)
    for members in _by_class(pairs.time_s):
        if not len(members):
            continue
        judges = members if len(members) > FEWEST_PAIRS else np.arange(len(pairs))
        others = _without_each(size[judges], np.searchsorted(judges, members))
        if len(pairs) < FEWEST_PAIRS:  # as `floor_at` has it
            others = np.maximum(others, DEFAULT_FLOOR)
        sides = pairs.first[members], pairs.second[members]
        words = verdicts(*sides, pairs.ratio[members], others)
        different[members] = np.isin(words, ("faster", "slower"))
    return different


def _without_each(values: Numbers, places: npt.NDArray[np.intp]) -> Numbers:
    """The 95th percentile of `values` without the one at each of `places`."""
    if len(values) < 2:
        return np.full(len(places), math.inf)
    order = np.argsort(values)
    rank = np.empty(len(values), dtype=np.intp)
    rank[order] = np.arange(len(values))
    ordered = values[order]
    position = min(max(0.95 * len(values) - 1, 0.0), len(values) - 2)
    low = int(position)
    high = min(low + 1, len(values) - 2)
    gone = rank[places]

    def at(place: int) -> Numbers:
        return np.asarray(ordered[np.where(gone <= place, place + 1, place)])

    return at(low) + (position - low) * (at(high) - at(low))


def percentile_95(values: Numbers) -> float:
    """The 95th percentile by Weibull's positions, which lean to no side."""
    return float(np.percentile(values, 95, method="weibull")) if len(values) else math.inf


def floor_at(floors: Floors, seconds: npt.ArrayLike, names: Sequence[str] = ()) -> Numbers:
    """The noise floor for calls of these lengths, by implementations of these names.

    One that has a floor of its own is held to that.
    """
    place = _class_of(seconds)
    floor = np.asarray(applied(floors))[place]
    if len(names):
        given = np.array(names, dtype=object)
        for name, classes in floors.own.items():
            floor = np.where(given == name, np.asarray(applied(classes))[place], floor)
    return floor


def applied(classes: Iterable[Noise]) -> list[float]:
    """The floor that is used in each duration class: one with few pairs borrows the widest.

    A run with hardly any control does not know its noise: nothing below 5% is called there.
    """
    known = list(classes)
    widest = max((n.floor for n in known if n.floor is not None), default=0.0)
    if sum(n.pairs for n in known) < FEWEST_PAIRS:
        widest = max(widest, DEFAULT_FLOOR)
    return [n.floor if n.floor is not None and n.pairs >= FEWEST_PAIRS else widest for n in known]


def verdicts(
    first: Numbers, second: Numbers, ratio: Numbers, floor: Numbers
) -> npt.NDArray[np.str_]:
    """Calls the second faster, slower, same or unsure against the first, row by row.

    `ratio` is of the two medians, each over all of its rounds, which a reader sees. One side may
    have more rounds than the other, or its pace change: a verdict that the ratio does not bear out
    is unsure.
    """
    by_rounds = round_verdicts(first, second, floor)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_medians = _word(np.log(ratio), np.log1p(floor))
    return np.where(by_rounds == by_medians, by_rounds, "unsure")


def _word(log_ratio: Numbers, beyond: Numbers) -> npt.NDArray[np.str_]:
    """The word for a ratio, without asking whether it is chance."""
    with np.errstate(invalid="ignore"):
        sides = np.where(log_ratio > 0, "slower", "faster")
        return np.where(np.abs(log_ratio) > beyond, sides, "same")


def round_verdicts(first: Numbers, second: Numbers, floor: Numbers) -> npt.NDArray[np.str_]:
    """The verdict of the rounds that both sides have, each of the one held against the other's.

    A difference is called if the rounds speak against "no larger than the noise floor". The test
    sees lots of neighbouring rounds: a worker keeps its pace for a while. Rows are judged together,
    so that of all the differences called in a whole grid at most one in twenty is expected to be
    chance (Benjamini and Hochberg).
    """
    ratios = log_ratios(first, second)
    beyond = np.log1p(floor)
    middle = row_median(ratios)
    enough = np.isfinite(ratios).sum(axis=1) >= FEWEST_ROUNDS
    further = np.sign(middle)[enough, None] * in_lots(ratios[enough]) - beyond[enough, None]
    word = _word(middle, beyond)
    sure = word == "same"
    sure[enough] |= _discoveries(_chance(further))
    return np.where(enough & sure, word, "unsure")


def in_lots(values: Numbers) -> Numbers:
    """Each row's values, neighbours joined by their median: eight lots from 16 values on.

    Where calls wait for the host, a worker is faster or slower for some rounds: neighbours tell
    less than rounds far apart, and tests that take them for independent are too sure. NaN is left
    out, and stands behind the last lot.
    """
    missing = np.isnan(values)
    packed = np.take_along_axis(values, np.argsort(missing, axis=1, kind="stable"), axis=1)
    known, which = np.unique((~missing).sum(axis=1), return_inverse=True)
    edges = np.zeros((len(known), 2 * LOTS), dtype=int)  # those behind the last lot are alike
    for row, n in enumerate(map(int, known)):
        lots = n if n < 2 * LOTS else LOTS
        edges[row] = n
        edges[row, : lots + 1] = np.linspace(0, n, lots + 1).astype(int)
    starts, stops = edges[which, :-1, None], edges[which, 1:, None]
    places = starts + np.arange(int((stops - starts).max(initial=1)))
    places = np.where(places < stops, places, values.shape[1])  # where there is nothing
    packed = np.pad(packed, ((0, 0), (0, 1)), constant_values=np.nan)
    gathered = packed[np.arange(len(values))[:, None, None], places]
    return row_median(gathered.reshape(-1, gathered.shape[2])).reshape(gathered.shape[:2])


def row_median(values: Numbers) -> Numbers:
    """The median of each row's finite values; NaN for a row without any."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    ordered = np.sort(values, axis=1)  # NaN goes last
    count = np.isfinite(values).sum(axis=1)
    rows = np.arange(len(values))
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    high = np.minimum(high, values.shape[1] - 1)
    return np.where(count > 0, (ordered[rows, low] + ordered[rows, high]) / 2, np.nan)


def _chance(beyond: Numbers) -> Numbers:
    """Row by row, how likely values around zero are to lie as far above it as these do.

    By Yuen's test: Student's, of the values without the fifth that is furthest out on either side.
    It tells a clear case from few rounds, and a round that went wrong does not mislead it.
    """
    from scipy.special import stdtr  # here, as loading it takes a while

    ordered = np.sort(beyond, axis=1)  # NaN goes last
    place, count = np.arange(ordered.shape[1]), (~np.isnan(ordered)).sum(axis=1)[:, None]
    cut = count // 5
    kept, there = count - 2 * cut, place < count
    inner = np.take_along_axis(ordered, np.clip(place, cut, count - cut - 1), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # a floor without end, rounds all alike
        mean = np.where((place >= cut) & (place < count - cut), ordered, 0.0).sum(axis=1)
        mean /= kept[:, 0]
        spread = np.std(inner, axis=1, ddof=1, where=there, keepdims=True)
        t = mean / (spread * np.sqrt(count) / kept)[:, 0]
        t = np.where(spread[:, 0] > 0, t, np.sign(mean) * np.inf)
    return np.asarray(stdtr(kept[:, 0] - 1, np.where(np.isnan(t), np.inf, -t)))


def _discoveries(p: Numbers) -> npt.NDArray[np.bool_]:
    """The chances that are discoveries (as scipy.stats has it, which is slow to load)."""
    ordered = np.sort(p)
    limits = FALSE_DISCOVERIES * np.arange(1, len(p) + 1) / max(len(p), 1)
    passed = ordered[ordered <= limits]
    return np.asarray(p <= passed.max(initial=-1.0))
