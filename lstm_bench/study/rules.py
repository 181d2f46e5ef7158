"""How the study comes to its words: "holds", "does not hold", "depends", "cannot be told".

A claim holds if the whole 95% interval lies on its side, beyond the noise floor of the run. It does
not hold if the whole interval lies off that side. Otherwise the run cannot tell, unless the mean is
not clear because many single shapes go one way and many the other: then it depends on the shape.
Fewer than four shapes have no interval that can be believed: there every single verdict must agree.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from lstm_bench.analysis import relative
from lstm_bench.comparison import Comparison, Group
from lstm_bench.intervals import FEWEST_SHAPES, Statistic, student_interval
from lstm_bench.noise import SHAPE
from lstm_bench.words import Pair

HOLDS, HOLDS_NOT, UNKNOWN = "holds", "does not hold", "cannot be told"
DEPENDS = "depends on the shape"


def is_slower(group: Group, floor: float) -> str:
    """Whether B is slower than A over these shapes."""
    return _beyond(group, "slower", group.ratio.low > 1 + floor, group.ratio.high < 1 + floor)


def is_faster(group: Group, floor: float) -> str:
    limit = 1 / (1 + floor)
    return _beyond(group, "faster", group.ratio.high < limit, group.ratio.low > limit)


def _beyond(group: Group, word: str, inside: bool, outside: bool) -> str:
    if group.shapes < FEWEST_SHAPES:
        told, open_ = group.verdicts[word], group.verdicts["unsure"]
        inside = 0 < group.shapes == told
        outside = group.shapes - told - open_ > 0
    return HOLDS if inside else HOLDS_NOT if outside else UNKNOWN


def both_ways(group: Group) -> bool:
    """Whether B is called faster at a tenth of the shapes or more, and slower at as many."""
    words = group.verdicts
    return group.shapes > 0 and 10 * min(words["faster"], words["slower"]) >= group.shapes


def both(*words: str) -> str:
    """A claim of several parts: all must hold, and one that does not breaks it."""
    for word in (HOLDS_NOT, DEPENDS):
        if word in words:
            return word
    return HOLDS if words and set(words) == {HOLDS} else UNKNOWN


class Trend(NamedTuple):
    """How B / A changes from the smallest to the largest size of an axis, all other sizes equal."""

    low: int
    high: int
    at_low: float  # geometric means of B / A over the shapes that have a twin at the other end
    at_high: float
    group: Group
    floor: float

    @property
    def falls(self) -> str:
        """Whether B gains on A along the axis."""
        return self._judged(is_faster)

    @property
    def rises(self) -> str:
        """Whether B loses to A along the axis."""
        return self._judged(is_slower)

    def _judged(self, rule: Callable[[Group, float], str]) -> str:
        return UNKNOWN if self.group.shapes < FEWEST_SHAPES else rule(self.group, self.floor)


def trend(pair: Pair, axis: str) -> Trend | None:
    """None where no two shapes differ in nothing but this size."""
    of = pair.of
    shapes = relative(of.shapes.reset_index(drop=True))
    low, high = int(shapes[axis].min()), int(shapes[axis].max())
    rest = [name for name in SHAPE if name != axis]
    ends = [shapes.loc[shapes[axis] == at, rest].reset_index() for at in (low, high)]
    twins = ends[0].merge(ends[1], on=rest, suffixes=("_low", "_high"))
    if low == high or twins.empty:
        return None
    rows = [twins[name].to_numpy() for name in ("index_low", "index_high")]
    ratios = [of.shapes["ratio"].to_numpy()[own] for own in rows]
    floor = np.max([of.shapes["floor"].to_numpy()[own] for own in rows], axis=0)
    rounds = [of.b_rounds[own] / of.a_rounds[own] for own in rows]
    sides = {"a_s": ratios[0], "b_s": ratios[1], "ratio": ratios[1] / ratios[0], "floor": floor}
    table = pd.DataFrame({**dict.fromkeys(SHAPE, 0), **sides, "verdict": "unsure"})
    names = f"{axis} {low}", f"{axis} {high}"
    made = Comparison(*names, of.metric, table, rounds[0], rounds[1], {}, (), False, of.noise)
    at_low, at_high = (float(np.exp(np.log(own).mean())) for own in ratios)
    return Trend(low, high, at_low, at_high, made.group(), float(np.median(floor)))


def mean(values: Sequence[float]) -> Statistic:
    """A mean over shapes with Student's 95% interval, which knows no end if there are too few."""
    center = statistics.fmean(values)
    if len(values) < FEWEST_SHAPES:
        return Statistic(center, float("-inf"), float("inf"))
    return Statistic(center, *student_interval(np.asarray(values)))


def is_over(of: Statistic, limit: float) -> str:
    return HOLDS if of.low > limit else HOLDS_NOT if of.high < limit else UNKNOWN


def promised(inside: int, of: int, share: float) -> str:
    """Whether so many of so many can be what a promise of `share` gives, by Wilson's interval."""
    if not of:
        return UNKNOWN
    z, p = 1.959964, inside / of
    middle = (p + z**2 / (2 * of)) / (1 + z**2 / of)
    half = z * (p * (1 - p) / of + z**2 / (4 * of**2)) ** 0.5 / (1 + z**2 / of)
    return HOLDS if middle + half >= share else HOLDS_NOT
