"""How far processes of the same code lie apart, and what their differences let anyone conclude.

A process can be faster or slower than another for as long as it lives: by where its memory lies, or
because its allocator gives memory back at every call and has to ask for it again. Its rounds agree
with each other, and show nothing of it. What shows it is other processes: the other half of an A/A
pair, and other passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lstm_bench.analysis.noise import FEWEST_PAIRS, METRICS, Numbers, by_round, row_median
from lstm_bench.model.shape import SHAPE

Sizes = tuple[int, ...]
UNKNOWN = float(np.log(2))  # where no two processes were compared: at least that
FURTHER = 1.5  # than the furthest two seen: how far others may lie apart, at another shape


@dataclass(frozen=True)
class Sample:
    """The times of a cell in each process, as logarithms; `in_turns`: the new over the base's.

    Of two runs also the mean of each pass: processes of one pass share its time.
    """

    base: Numbers
    new: Numbers
    base_passes: Numbers
    new_passes: Numbers
    in_turns: bool = False

    @property
    def count(self) -> int:
        """Processes of the side that has fewer."""
        return len(self.new) if self.in_turns else min(len(self.base), len(self.new))

    @property
    def separate(self) -> bool:
        """Return whether all processes of the new side are slower, or all are faster."""
        new, base = self.new, np.zeros(1) if self.in_turns else self.base
        return bool(new.min() > base.max() or new.max() < base.min())

    @property
    def _sides(self) -> list[Numbers]:
        return [self.new] if self.in_turns else [self.new_passes, self.base_passes]

    @property
    def freedom(self) -> float:
        return float(sum(len(side) - 1 for side in self._sides))

    @property
    def error(self) -> float:
        """Standard error of the difference, by how far the values of a side lie apart."""
        if self.freedom < 1:
            return np.inf
        squares = sum(float(((side - side.mean()) ** 2).sum()) for side in self._sides)
        return float((squares / self.freedom * sum(1 / len(side) for side in self._sides)) ** 0.5)

    @property
    def differences(self) -> list[float]:
        """Between a process and the next of the same side."""
        if self.in_turns:  # of ratios, each of two processes
            return list(np.abs(np.diff(self.new)) / 2**0.5)
        return [*np.abs(np.diff(self.base)), *np.abs(np.diff(self.new))]


def sampled(cells: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One cell for every process, shape and pass; without controls that share a process."""
    ok = cells[(cells["status"] == "ok") & cells[METRICS[metric][0]].notna()]
    ok = ok[(ok["copy"] == 1) | (ok["process"] > 0)].sort_values(["pass_number", "copy"])
    return ok.drop_duplicates(["implementation", *SHAPE, "pass_number", "process"])


def of_runs(
    base: pd.DataFrame, new: pd.DataFrame, metric: str, shapes: Sequence[Sizes]
) -> list[Sample]:
    """At each shape: the row in one run and in another."""
    keys, known = [*SHAPE, "pass_number"], []
    for side in (base, new):
        own = sampled(side, metric)
        levels = own[keys].assign(level=np.log(own[METRICS[metric][0]].to_numpy(dtype=float)))
        passes = levels.groupby(keys, as_index=False)["level"].mean()
        known += [_by_shape(part, part["level"].to_numpy()) for part in (levels, passes)]
    a, a_passes, b, b_passes = ([side.get(at, np.empty(0)) for at in shapes] for side in known)
    return list(map(Sample, a, b, a_passes, b_passes))


def in_turns(
    base: pd.DataFrame, new: pd.DataFrame, metric: str, shapes: Sequence[Sizes]
) -> list[Sample]:
    """At each shape: two rows of one run, process by process as they took turns."""
    rounds = METRICS[metric][1]
    keys = [*SHAPE, "pass_number", "group", "place"]
    sides = []
    for side in (base, new):
        own = sampled(side, metric)
        place = own.groupby([*SHAPE, "pass_number"]).cumcount()
        sides.append(own.assign(place=place)[[*keys, rounds]])
    both = sides[0].merge(sides[1], on=keys, suffixes=("", "_new")).sort_values(keys)
    ratios = _between(both[rounds], both[rounds + "_new"])
    known, nothing = _by_shape(both, ratios), np.empty(0)
    return [
        Sample(nothing, known.get(at, nothing), nothing, nothing, in_turns=True) for at in shapes
    ]


def twins(cells: pd.DataFrame, metric: str) -> list[float]:
    """How far the processes of each A/A pair lie apart, as they took turns."""
    own = sampled(cells, metric)
    keys, rounds = ["implementation", *SHAPE, "pass_number", "group"], METRICS[metric][1]
    first, second = own[own["copy"] == 1], own[own["copy"] == 2]
    both = first.merge(second, on=keys, suffixes=("", "_new"))
    return list(np.abs(_between(both[rounds], both[rounds + "_new"])))


def disagree(passes: Numbers) -> bool:
    """Return whether passes of a side lie more than twice apart: something disturbed them."""
    return len(passes) > 1 and float(np.ptp(passes)) > UNKNOWN


def explained(pairs: Iterable[float], chance: float) -> float:
    """The factor by which a process is seldom slower than another, if they are as these pairs.

    Half as much again as the furthest of them, or what Student's distribution allows.
    """
    from scipy.special import stdtrit  # here, as loading it takes a while

    known = np.array([gap for gap in pairs if np.isfinite(gap)])
    furthest = FURTHER * float(known.max(initial=0.0))
    if len(known) < FEWEST_PAIRS:
        return max(UNKNOWN, furthest)
    spread = float((known**2).mean() ** 0.5)
    return max(furthest, float(stdtrit(len(known), 1 - chance)) * spread)


def by_luck(pairs: Sequence[float], least: float, count: int) -> float:
    """How likely a cell is called different where each process tosses a coin to be slow or fast.

    `count` processes on either side, all of the new ones slow and all of the base's fast. A share
    q of the `pairs` lies apart by more than `least`: with a coin of p, q / 2p(1-p) of the cells
    toss one, and (p(1-p))^count of these come out so. That is the most if p is a half.
    """
    known = np.array([gap for gap in pairs if np.isfinite(gap)])
    share = (float((known > least).sum()) + 1) / (len(known) + 1)  # the next may be the first
    return float(min(1.0, 2 * share) * 0.25**count)


def _by_shape(cells: pd.DataFrame, values: Numbers) -> dict[Sizes, Numbers]:
    groups: dict[Sizes, list[float]] = {}
    for at, value in zip(cells[SHAPE].itertuples(False, None), values, strict=True):
        if not np.isnan(value):
            groups.setdefault(at, []).append(value)
    return {at: np.array(own) for at, own in groups.items()}


def _between(first: pd.Series, second: pd.Series) -> Numbers:
    """The logarithm of second over first: the median of the rounds that they took in turns."""
    sides = by_round(list(first)), by_round(list(second))
    width = min(side.shape[1] for side in sides)
    with np.errstate(divide="ignore", invalid="ignore"):
        return row_median(np.log(sides[1][:, :width] / sides[0][:, :width]))
