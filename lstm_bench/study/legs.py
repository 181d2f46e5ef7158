"""When a run's shapes were measured: one that was resumed has legs, whose hosts may differ."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from lstm_bench import store
from lstm_bench.model import Record, Shape
from lstm_bench.noise import SHAPE
from lstm_bench.study.section import code
from lstm_bench.study.subject import Subject
from lstm_bench.units import listed

STAMP = "%Y%m%dT%H%M%S.%f"  # how the name of a group ends
BREAK_S = 600.0  # a longer pause between two shapes begins a new leg


@dataclass(frozen=True)
class Span:
    """Cells of a shape that were measured together: from the start to the last, by the clock."""

    shape: Shape
    start_s: float
    end_s: float
    cells: int


def spans(records: Iterable[Record]) -> list[Span]:
    """In their order; none of a run that does not say."""
    groups: dict[tuple[str, Shape], list[str]] = {}
    for record in records:
        groups.setdefault((record.group, record.shape), []).append(record.finished_at)
    try:
        found = [
            Span(shape, _seconds(name.split()[-1], STAMP), _seconds(max(ends)), len(ends))
            for (name, shape), ends in groups.items()
        ]
    except (ValueError, IndexError):
        return []
    return sorted(found, key=lambda span: span.start_s)


def _seconds(when: str, form: str = "") -> float:
    parsed = datetime.datetime
    stamp = parsed.strptime(when, form) if form else parsed.fromisoformat(when)
    return stamp.replace(tzinfo=datetime.timezone.utc).timestamp()


def boards(one: Subject) -> set[str | None]:
    """The GPUs that a run was measured on, by their UUIDs; None is one that it does not tell."""
    legs = store.read_legs(one.run.folder) if one.run.folder else []
    later = [leg.machine for leg in legs if leg.machine or len(legs) > 1]
    machines = [one.run.manifest["machine"], *later]  # a first leg that was killed wrote no line
    return {(machine.get("gpus") or [{}])[0].get("uuid") for machine in machines}


def wall_s(records: Iterable[Record]) -> float:
    """Seconds that the shapes took; breaks between them are out."""
    return sum(max(0.0, span.end_s - span.start_s) for span in spans(records))


def of_shapes(one: Subject) -> dict[Shape, int]:
    """The leg of each shape that has a time, from 1: that of most of its cells."""
    cells: dict[Shape, Counter[int]] = {}
    leg, end_s = 1, math.inf
    for span in spans(one.all_records):
        leg += span.start_s - end_s > BREAK_S
        end_s = span.end_s
        cells.setdefault(span.shape, Counter())[leg] += span.cells
    timed = {record.shape for record in one.records if record.copy == 1}
    return {shape: own.most_common(1)[0][0] for shape, own in cells.items() if shape in timed}


def sizes(one: Subject) -> list[int]:
    """How many shapes each leg has."""
    found = Counter(of_shapes(one).values())
    return [found[leg] for leg in sorted(found)]


@dataclass(frozen=True)
class Part:
    """The shapes that two runs measured in the same two legs."""

    name: str
    brief: str
    shapes: frozenset[tuple[int, ...]]

    def of(self, cells: pd.DataFrame) -> npt.NDArray[np.bool_]:
        keys = cells[SHAPE].itertuples(index=False, name=None)
        return np.fromiter((key in self.shapes for key in keys), dtype=bool, count=len(cells))


def parts(first: Subject, second: Subject) -> list[Part]:
    """Two runs leg by leg; nothing where all that they share was measured in one."""
    sides = [of_shapes(first), of_shapes(second)]
    both = sorted({(sides[0][s], sides[1][s]) for s in sides[0].keys() & sides[1].keys()})
    if len(both) < 2:
        return []
    several = [side for side in (0, 1) if len({pair[side] for pair in both}) > 1]
    names = [code(one.run.name) for one in (first, second)]
    found = []
    for pair in both:
        shapes = {s for s in sides[0] if (sides[0][s], sides[1].get(s)) == pair}
        found.append(
            Part(
                listed(f"{names[side]}, leg {pair[side]}" for side in several),
                "leg " + "/".join(str(pair[side]) for side in several),
                frozenset((s.hidden, s.batch, s.timesteps, s.input_size) for s in shapes),
            )
        )
    return found


def told(*runs: Subject) -> str:
    """Which of these runs have legs, and how many shapes each; nothing where none has."""
    lines = []
    for one in runs:
        found = sizes(one)
        if len(found) > 1:
            counts = listed(map(str, found))
            lines.append(
                f"{code(one.run.name)} has {len(found)} legs, with a break between them, of"
                f" {counts} shapes."
            )
    return " ".join(lines)
