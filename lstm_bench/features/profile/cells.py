"""The profiled cells of a run: where the time of their calls went, and what profiling did to it.

The latency is that of the timed rounds, when nobody watched; all else is of the profiled pass.
"""

from __future__ import annotations

import functools
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench.analysis.noise import plausible
from lstm_bench.analysis.results import Run
from lstm_bench.features.profile.families import FAMILIES, families
from lstm_bench.model.profile import Launch, Part, Profile
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import Record, Shape
from lstm_bench.runs import store

LONG_S = 200e-6  # a shorter call is not held against its profiled twin: a launch weighs too much
DIFFERS = 0.1  # of the latency
LAUNCH = ("grid", "block", "registers")


#: The orders of parts; `self` is a part's own time, `total` includes the parts that it calls.
SORTS: dict[str, Callable[[Part], Any]] = {
    "self": lambda part: -part.seconds,
    "total": lambda part: -(part.seconds if part.total_s is None else part.total_s),
    "calls": lambda part: -part.count,
    "memory": lambda part: -(part.size or 0),
    "name": lambda part: part.name.lower(),
}


@dataclass(frozen=True)
class Split:
    """One profiled cell; times are seconds per call."""

    record: Record
    profile: Profile

    @property
    def name(self) -> str:
        return self.record.implementation

    @property
    def shape(self) -> Shape:
        return self.record.shape

    @property
    def latency_s(self) -> float:
        return _number(self.record.latency_s)

    @property
    def of_host(self) -> bool:
        """Operators or phases, and no device that was watched."""
        return self.profile.busy_s is None

    @property
    def busy_s(self) -> float:
        return _number(self.profile.busy_s)

    @property
    def gap_s(self) -> float:
        return _number(self.profile.gap_s)

    @property
    def stretched(self) -> bool:
        """Busy for longer than the whole call takes: kernels of a graph are taken apart."""
        return self.busy_s > self.latency_s

    @property
    def host_s(self) -> float:
        """The caller waited and the device did nothing: no time at all, where busy is stretched."""
        return max(self.latency_s - self.busy_s, 0.0)

    @property
    def around_s(self) -> float:
        """Time of the profiled call before the device began and after it was done."""
        return _number(self.profile.wall_s) - _number(self.profile.span_s)

    @property
    def unexplained_s(self) -> float:
        """The rest of the latency; below zero: what profiling adds to a call."""
        return self.latency_s - _number(self.profile.wall_s)

    @property
    def active(self) -> float:
        """Share of the latency in which a kernel ran."""
        return min(_number(self.profile.kernel_s) / self.latency_s, 1.0)

    @property
    def moving(self) -> float:
        """Share of the latency in which nothing but copies and fills ran."""
        return min(self.busy_s / self.latency_s, 1.0) - self.active

    @property
    def idle(self) -> float:
        return 1 - self.active - self.moving

    @property
    def launching(self) -> float:
        """Share that the host spent inside calls that launch, in the call that records them.

        Recording stretches both, so that it bounds nothing in a timed call. Of a graph it is not
        known: the profiler looks at every kernel while it is launched, which takes longer.
        """
        if self.profile.launches < self.profile.kernels:
            return math.nan
        return self.profile.launch_s / _number(self.profile.watched_s or self.profile.wall_s)

    @property
    def slowed(self) -> float:
        """How much longer the profiled calls took; negative: less long."""
        return _number(self.profile.wall_s) / self.latency_s - 1

    @functools.cached_property
    def families(self) -> list[str]:
        """The family of each part."""
        return families(self.profile.parts, self.shape.timesteps)

    @functools.cached_property
    def by_family(self) -> dict[str, float]:
        """Seconds of each family that is there, in the order of families."""
        total = dict.fromkeys(FAMILIES, 0.0)
        for part, family in zip(self.profile.parts, self.families, strict=True):
            total[family] += part.seconds
        return {family: seconds for family, seconds in total.items() if family in self.families}

    @property
    def in_one(self) -> bool:
        """True if one kernel holds the whole recurrence."""
        return "persistent" in self.by_family

    @property
    def parts_s(self) -> float:
        """All parts together: what overlaps counts more than once."""
        return math.fsum(part.seconds for part in self.profile.parts)


@dataclass(frozen=True)
class Splits:
    """Profiles that can be trusted, in the run's order, and why the rest cannot."""

    good: list[Split] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    of_timed: int = 0  # profiles, good or not, of cells that have a time

    @property
    def on_device(self) -> list[Split]:
        return [split for split in self.good if not split.of_host]

    @property
    def on_host(self) -> list[Split]:
        return [split for split in self.good if split.of_host]


def read(run: Run, shapes: Collection[Shape] | None = None) -> Splits:
    """The profiled cells of a run, controls apart; `shapes` chooses among them."""
    profiles = [
        (record, profile)
        for record, profile in (store.read_profiles(run.folder) if run.folder else [])
        if record.copy == 1 and (shapes is None or record.shape in shapes)
    ]
    splits = Splits(of_timed=sum(record.status == "ok" for record, _ in profiles))
    for record, profile in profiles:
        problem = profile.problem or _missing(record, profile)
        if problem:
            splits.left_out[_kind(problem)] += 1
        else:
            splits.good.append(Split(record, profile))
    order = {name: place for place, name in enumerate(run.implementations)}
    splits.good.sort(key=lambda split: (order.get(split.name, len(order)), split.shape))
    return splits


def _missing(record: Record, profile: Profile) -> str:
    """Names what a profile lacks to be shown, if anything."""
    if record.status != "ok" or not plausible(np.array(_number(record.latency_s))):
        return "the cell has no time"
    times = (profile.busy_s, profile.kernel_s, profile.span_s, profile.wall_s)
    if profile.device != "cpu" and any(time is None or time < 0 for time in times):
        return "the profile has no times"
    if profile.wall_s is not None and profile.wall_s <= 0:
        return "the profiled call has no time"
    if not profile.parts or any(part.seconds < 0 for part in profile.parts):
        return "the profile has no parts"
    return ""


def _kind(problem: str) -> str:
    """A problem without its own figures: the same thing reads the same in all cells."""
    return re.sub(r"\d+", "some", re.sub(r"\s*\(\d[\d, ]*\)", "", problem))


def shared(splits: Sequence[Split]) -> tuple[list[Split], int]:
    """The cells of shapes that all rows have, and how many shapes; all cells and 0 if none is."""
    shapes: dict[str, set[Shape]] = {}
    for split in splits:
        shapes.setdefault(split.name, set()).add(split.shape)
    common = set.intersection(*shapes.values()) if shapes else set()
    return [split for split in splits if split.shape in common or not common], len(common)


def middle(splits: Sequence[Split]) -> Shape:
    """The shape in the middle of those that the most rows have, by the work that it takes."""
    rows = Counter(shape for _, shape in {(split.name, split.shape) for split in splits})
    most = max(rows.values())
    shapes = sorted((s for s, n in rows.items() if n == most), key=lambda s: (s.flops, s))
    return shapes[len(shapes) // 2]


def at(splits: Sequence[Split], shape: Shape) -> list[Split]:
    """The last pass of every row at a shape."""
    return list({split.name: split for split in splits if split.shape == shape}.values())


def examples(splits: Sequence[Split]) -> list[Split]:
    """One cell of every row: at the middle shape, or else at the middle of its own."""
    shape = middle(splits)
    rows = by_name(splits).values()
    return [(at(own, shape) or at(own, middle(own)))[-1] for own in rows]


def by_name(splits: Sequence[Split]) -> dict[str, list[Split]]:
    rows: dict[str, list[Split]] = {}
    for split in splits:
        rows.setdefault(split.name, []).append(split)
    return rows


def family_shares(splits: Sequence[Split]) -> dict[str, float]:
    """The mean share of each family in all parts: shares of one row add up to one."""
    shares = dict.fromkeys(FAMILIES, 0.0)
    for split in splits:
        for family, seconds in split.by_family.items():
            shares[family] += seconds / (split.parts_s or 1.0) / len(splits)
    return shares


def device_rows(cells: Sequence[Split]) -> list[dict[str, Any]]:
    """One row per implementation: medians of times and counts, means of shares."""
    times = ("latency_s", "busy_s", "gap_s", "around_s", "unexplained_s", "host_s")
    return [
        {
            "implementation": name,
            "cells": len(own),
            **{key: _median(getattr(s, key) for s in own) for key in times},
            "kernels": statistics.median(s.profile.kernels for s in own),
            "launches": statistics.median(s.profile.launches for s in own),
            **{
                key: statistics.fmean(getattr(s, key) for s in own)
                for key in ("active", "moving", "idle", "launching")
            },
        }
        for name, own in by_name(cells).items()
    ]


def host_rows(cells: Sequence[Split]) -> list[dict[str, Any]]:
    """One row per implementation, medians."""
    return [
        {
            "implementation": name,
            "cells": len(own),
            "source": own[0].profile.source,
            "latency_s": _median(s.latency_s for s in own),
            "wall_s": _median(s.profile.wall_s for s in own),
            "parts_s": _median(s.parts_s for s in own),
            "calls": _median(sum(p.count for p in s.profile.parts) for s in own),
            "bytes": _median(_memory(s) for s in own),
        }
        for name, own in by_name(cells).items()
    ]


def family_rows(cells: Sequence[Split]) -> list[dict[str, Any]]:
    return [{"implementation": name, **family_shares(own)} for name, own in by_name(cells).items()]


def part_rows(split: Split, sort: str = "self", by_launch: bool = False) -> list[dict[str, Any]]:
    """Every part of a cell, with its share of what all of them took.

    `by_launch`: a row for each grid and block of a kernel; None where CUPTI did not see them.
    """
    whole = split.parts_s or 1.0
    lines = [
        (line, family, launch)
        for part, family in zip(split.profile.parts, split.families, strict=True)
        for line, launch in (_by_launch(part) if by_launch else [(part, None)])
    ]
    return [
        {
            "implementation": split.name,
            "shape": split.shape.label,
            "name": part.name,
            "kind": part.kind,
            "family": family,
            "count": part.count,
            "self_s": part.seconds,
            "total_s": part.total_s,
            "share": part.seconds / whole,
            "bytes": part.size,
            **{key: getattr(launch, key, None) for key in LAUNCH if by_launch},
        }
        for part, family, launch in sorted(lines, key=lambda line: SORTS[sort](line[0]))
    ]


def _by_launch(part: Part) -> list[tuple[Part, Launch | None]]:
    """A kernel as if each way of launching it were another."""
    ways: list[tuple[Part, Launch | None]] = [
        (replace(part, count=launch.count, seconds=launch.seconds), launch)
        for launch in part.launches
    ]
    return ways or [(part, None)]


def _memory(split: Split) -> float | None:
    sizes = [part.size for part in split.profile.parts if part.size is not None]
    return sum(sizes) if sizes else None


def _median(values: Any) -> float | None:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return statistics.median(known) if known else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value


COLUMNS = ("name", "raw_name", "kind", "family", "count", "seconds", "total_s", "bytes")


def profiles(folder: Path) -> pd.DataFrame:
    """One row per part of a profiled cell, but for profiles that have a problem."""
    rows = []
    for record, profile in store.read_profiles(folder):
        cell = (record.implementation, *astuple(record.shape), record.pass_number, record.copy)
        for part, family in zip(
            profile.parts, families(profile.parts, record.shape.timesteps), strict=True
        ):
            values = (part.raw or part.name, part.kind, family, part.count, part.seconds)
            if not profile.problem:
                rows.append((*cell, profile.source, part.name, *values, part.total_s, part.size))
    first = ("implementation", *SHAPE, "pass_number", "copy", "source")
    return pd.DataFrame(rows, columns=[*first, *COLUMNS])
