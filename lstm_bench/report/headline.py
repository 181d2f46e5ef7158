"""B against A in one sentence: one rule for the page, `report` and `compare`.

Where one axis explains most of the spread over shapes, the sentence goes along that axis: a mean
over all shapes would hide that each side wins somewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lstm_bench.analysis.comparison import (
    MOST_GROUPS,
    Comparison,
    Group,
    clear,
    doublings,
)
from lstm_bench.analysis.intervals import FEWEST_SHAPES
from lstm_bench.model.units import counted, factor, listed

AXES = ("hidden", "batch", "timesteps")
MOST = 0.5  # the share of the variance of log ratios that an axis must explain
SIDES = ("faster", "slower")
EITHER = "faster or slower by shape"
MOST_PARTS = 3  # of an axis in one sentence
STRONGLY = 1.5  # by how much the ratio must change along an axis to be worth a word


class Part(NamedTuple):
    """Neighbouring sizes of an axis on the same side, and what holds over them together."""

    groups: list[Group]
    word: str  # faster, slower, or why neither

    def turned(self) -> Part:
        """The same of A against B."""
        first, *rest = self.word.split(" ", 1)
        mirrored = {"faster": "slower", "slower": "faster"}
        word = self.word if self.word == EITHER else " ".join([mirrored.get(first, first), *rest])
        return Part([group.turned() for group in self.groups], word)


Told = tuple[str, list[Part]]  # an axis, and its parts in order


def headline(of: Comparison, told: Told | None = None) -> str:
    """`pytorch is 2.4x slower than deepbench`, or what else the numbers say; no full stop.

    Where a side lacks shapes it says over how many. `told` is what `by_axis` says, where it has
    been asked already.
    """
    return _sentence(of, of.group(), told or by_axis(of)) + covered(of)


def covered(of: Comparison) -> str:
    """`, at the 24 of 32 shapes that both have`; empty where both have all."""
    common = len(of.shapes)
    if common == of.planned:
        return ""
    return f", at the {common} of {counted(of.planned, 'shape')} that both have"


def _sentence(of: Comparison, whole: Group, told: Told) -> str:
    a, b = of.a, of.b
    if "work" in of.differs:
        time = f"{b} takes {factor(whole.ratio.value)} the time of {a}"
        return f"{time}, but they do not do the same work"
    axis, parts = told
    if len(parts) > 1:
        return f"Against {a}, {b} is {told_by(axis, parts)}"
    if clear(whole, floor_of(of)):
        ends = f": {ends_by(axis, parts[0].groups)}" if parts else ""
        return f"{b} is {versus(whole.ratio.value)} than {a}{ends}"
    return _unclear(of, whole)


def _unclear(of: Comparison, whole: Group) -> str:
    """What can be said where neither an axis nor the mean over all shapes tells."""
    a, b, words = of.a, of.b, whole.verdicts
    shapes = counted(whole.shapes, "shape")
    if words["faster"] and words["slower"]:
        return f"It depends on the shape: {b} is {both_ways(of, whole)} than {a}"
    for word, other in (("faster", "slower"), ("slower", "faster")):
        if words[word] == whole.shapes:
            return f"{b} is {word} than {a} at all {shapes}, by how much on the whole is not clear"
        if words[word]:
            return f"{b} is {word} than {a} at {words[word]} of {shapes}, {other} at none"
    floor, ratio = floor_of(of), whole.ratio
    within = 1 / (1 + floor) <= ratio.value <= 1 + floor
    apart = within and (ratio.low > 1 or ratio.high < 1)
    if not apart or not words["same"]:
        return f"No clear difference between {b} and {a}"
    if not words["unsure"]:
        return f"No difference beyond the noise floor between {b} and {a}"
    same = f"{b} and {a} are within noise at {words['same']} of {shapes}"
    return f"{same}, at {words['unsure']} it is not clear"


def floor_of(of: Comparison) -> float:
    """The noise floor that statistics over several shapes must be beyond."""
    return float(np.median(of.shapes["floor"]))


def versus(ratio: float) -> str:
    """`2.4x slower`."""
    return f"{factor(ratio)} slower" if ratio > 1 else f"{factor(1 / ratio)} faster"


def both_ways(of: Comparison, whole: Group) -> str:
    """`faster at 15 and slower at 16 of 38 shapes (1.5x faster to 2.1x slower)`."""
    words, ratios = whole.verdicts, of.shapes["ratio"]
    ends = f"{factor(1 / ratios.min())} faster to {factor(ratios.max())} slower"
    shapes = counted(whole.shapes, "shape")
    return f"faster at {words['faster']} and slower at {words['slower']} of {shapes} ({ends})"


def by_axis(of: Comparison) -> Told:
    """The axis that explains most of the spread, and its parts; none: no axis says it well."""
    axis = explaining(of)
    if not axis:
        return "", []
    groups, floor = of.along(axis), floor_of(of)

    def side(group: Group) -> int:
        log = np.log(group.ratio.value)
        return int(np.sign(log)) if abs(log) > np.log1p(floor) else 0

    parts = []
    for _, neighbours in itertools.groupby(groups, side):
        part = list(neighbours)
        whole = part[0]
        if len(part) > 1:  # the sizes by themselves may be too few to tell what all of them tell
            whole = of.group(axis, (part[0].at[0], part[-1].at[1]))
        parts.append(Part(part, _word(whole, floor)))
    ratios = [group.ratio.value for group in groups]
    called = any(part.word in SIDES for part in parts)
    flat = len(parts) == 1 and max(ratios) < STRONGLY * min(ratios)
    return (axis, parts) if called and not flat and len(parts) <= MOST_PARTS else ("", [])


def told_by(axis: str, parts: Sequence[Part]) -> str:
    """`3.0x faster at hidden 128 and 1.09x to 1.17x slower from hidden 256 up`."""
    told = []
    for part in parts:
        ends = part.groups[0].at[0], part.groups[-1].at[1]
        place = place_of(axis, *ends, part is parts[0], part is parts[-1])
        ratios = [max(group.ratio.value, 1 / group.ratio.value) for group in part.groups]
        by = " to ".join(dict.fromkeys((factor(min(ratios)), factor(max(ratios)))))
        told.append(f"{by} {part.word} {place}" if part.word in SIDES else f"{part.word} {place}")
    return listed(told)


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


def ends_by(axis: str, groups: Sequence[Group]) -> str:
    """`3.6x at timesteps 10, 1.10x at timesteps 1000`: the first and the last size."""
    ends = ((max(g.ratio.value, 1 / g.ratio.value), g) for g in (groups[0], groups[-1]))
    return ", ".join(f"{factor(value)} at {axis} {group.label}" for value, group in ends)


def explaining(of: Comparison) -> str:
    """The axis that explains most of the spread of the log ratios; empty if none does.

    Explained is what the groups of an axis differ by beyond what as many groups of such shapes
    would by chance (the adjusted R squared of an analysis of variance).
    """
    logs, best, most = np.log(of.shapes["ratio"].to_numpy()), "", MOST
    for axis in AXES:
        sizes = of.shapes[axis].to_numpy()
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


def _word(group: Group, floor: float) -> str:
    if clear(group, floor):
        return "slower" if group.ratio.value > 1 else "faster"
    called = [word for word in SIDES if group.verdicts[word]]
    if len(called) > 1:
        return EITHER
    return f"{called[0]} at some shapes" if called else "within noise"
