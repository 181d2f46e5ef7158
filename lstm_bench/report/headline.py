"""B against A in one sentence: one rule for the page, `report` and `compare`.

Where one axis explains most of the spread over shapes, the sentence goes along that axis: a mean
over all shapes would hide that each side wins somewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstm_bench.analysis.comparison import MOST_GROUPS, Comparison, Group, clear, doublings
from lstm_bench.analysis.intervals import FEWEST_SHAPES
from lstm_bench.model.units import counted, factor, listed

AXES = ("hidden", "batch", "timesteps")
MOST = 0.5  # the share of the variance of log ratios that an axis must explain
SIDES = ("faster", "slower")
MOST_PARTS = 3  # of an axis in one sentence
STRONGLY = 1.5  # a change of the ratio along an axis that is worth a word


@dataclass(frozen=True)
class Range:
    """Neighbouring sizes of an axis on the same side, and what holds over them together."""

    groups: list[Group]
    whole: Group
    floor: float

    @property
    def word(self) -> str:
        """Faster, slower, or why neither."""
        if clear(self.whole, self.floor):
            return "slower" if self.whole.ratio.value > 1 else "faster"
        called = [word for word in SIDES if self.whole.verdicts[word]]
        if len(called) > 1:
            return "faster or slower by shape"
        return f"{called[0]} at some shapes" if called else "within noise"


ByAxis = tuple[str, list[Range]]  # an axis, and its parts in order; empty: no axis says it well


def headline(pair: Comparison) -> str:
    """`pytorch is 2.4x slower than deepbench`, or what else the numbers say; no full stop.

    Where a side lacks shapes it says over how many.
    """
    common, sentence = len(pair.shapes), _sentence(pair)
    if common == pair.planned:
        return sentence
    return f"{sentence}, at the {common} of {counted(pair.planned, 'shape')} that both have"


def _sentence(pair: Comparison) -> str:
    a, b, whole = pair.a, pair.b, pair.group()
    ratio, words = whole.ratio.value, whole.verdicts
    if "work" in pair.differs:
        return f"{b} takes {factor(ratio)} the time of {a}, but they do not do the same work"
    axis, parts = by_axis(pair)
    if len(parts) > 1:
        return f"Against {a}, {b} is {describe_by_axis(axis, parts)}"
    if clear(whole, floor_of(pair)):
        ends = f": {_ends(axis, parts[0].groups)}" if parts else ""
        return f"{b} is {factor(_apart(whole))} {SIDES[ratio > 1]} than {a}{ends}"
    if not (words["faster"] or words["slower"]):
        return f"No clear difference between {b} and {a}"
    counts = f"faster at {words['faster']} and slower at {words['slower']}"
    return f"It depends on the shape: {b} is {counts} of {counted(whole.shapes, 'shape')} than {a}"


def floor_of(pair: Comparison) -> float:
    """The noise floor that statistics over several shapes must be beyond."""
    return float(np.median(pair.shapes["floor"]))


def _apart(group: Group) -> float:
    """The ratio, whoever is faster."""
    return max(group.ratio.value, 1 / group.ratio.value)


def by_axis(pair: Comparison) -> ByAxis:
    """The axis that explains most of the spread, and its parts; none: no axis says it well."""
    axis = explaining(pair)
    if not axis:
        return "", []
    groups, floor = pair.along(axis), floor_of(pair)

    def side(group: Group) -> int:
        return int(np.sign(group.ratio.value - 1)) if _apart(group) > 1 + floor else 0

    parts = []
    for _, neighbours in itertools.groupby(groups, side):
        part = list(neighbours)
        whole = part[0]
        if len(part) > 1:  # the sizes by themselves may be too few to tell what all of them tell
            whole = pair.group(axis, (part[0].at[0], part[-1].at[1]))
        parts.append(Range(part, whole, floor))
    ratios = [group.ratio.value for group in groups]
    called = any(part.word in SIDES for part in parts)
    flat = len(parts) == 1 and max(ratios) < STRONGLY * min(ratios)
    return (axis, parts) if called and not flat and len(parts) <= MOST_PARTS else ("", [])


def describe_by_axis(axis: str, parts: Sequence[Range]) -> str:
    """`3.0x faster at hidden 128 and 1.09x to 1.17x slower from hidden 256 up`."""
    texts = []
    for part in parts:
        ends = part.groups[0].at[0], part.groups[-1].at[1]
        place = place_of(axis, *ends, part is parts[0], part is parts[-1])
        ratios = sorted(map(_apart, part.groups))
        by = " to ".join(dict.fromkeys((factor(ratios[0]), factor(ratios[-1]))))
        texts.append(f"{by} {part.word} {place}" if part.word in SIDES else f"{part.word} {place}")
    return listed(texts)


def place_of(axis: str, low: int, high: int, first: bool, last: bool) -> str:
    """`at hidden 128`, `from hidden 256 up`: some of the sizes of an axis, maybe its first or last.

    Empty where these are all.
    """
    if first and last:
        return ""
    if low == high:
        return f"at {axis} {low}"
    if first:
        return f"up to {axis} {high}"
    return f"from {axis} {low} up" if last else f"at {axis} {low} to {high}"


def _ends(axis: str, groups: Sequence[Group]) -> str:
    """`3.6x at timesteps 10, 1.10x at timesteps 1000`: the first and the last size."""
    ends = (groups[0], groups[-1])
    return ", ".join(f"{factor(_apart(group))} at {axis} {group.label}" for group in ends)


def explaining(pair: Comparison) -> str:
    """The axis that explains most of the spread of the log ratios; empty if none does.

    Explained is what the groups of an axis differ by beyond what as many groups of such shapes
    would by chance (the adjusted R squared of an analysis of variance).
    """
    logs, best, most = np.log(pair.shapes["ratio"].to_numpy()), "", MOST
    for axis in AXES:
        sizes = pair.shapes[axis].to_numpy()
        ranges = doublings(sorted(map(int, np.unique(sizes))), MOST_GROUPS)
        count, groups = len(logs), len(ranges)
        if groups < 2 or count < FEWEST_SHAPES * groups or not logs.var():
            continue
        inside = [logs[(sizes >= low) & (sizes <= high)] for low, high in ranges]
        within = sum(float(((part - part.mean()) ** 2).sum()) for part in inside) / (count - groups)
        share = 1 - within / float(logs.var(ddof=1))
        if share > most:
            best, most = axis, share
    return best
