"""When a run's shapes were measured: one that was resumed has legs, whose hosts may differ."""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from lstm_bench.model import Record, Shape
from lstm_bench.noise import SHAPE
from lstm_bench.study.section import code
from lstm_bench.study.subject import Subject
from lstm_bench.units import listed

BREAK_S = 600.0  # a longer pause between two shapes begins a new leg


@dataclass(frozen=True)
class Span:
    """A shape from its start to its last record, in seconds of the clock."""

    shape: Shape
    start_s: float
    end_s: float


def spans(records: Iterable[Record]) -> list[Span]:
    """In their order; none of a run that does not say."""
    ends: dict[tuple[str, Shape], str] = {}
    for record in records:
        group = (record.group, record.shape)
        ends[group] = max(ends.get(group, ""), record.finished_at)
    try:
        found = [
            Span(shape, _seconds(name.split()[-1], "%Y%m%dT%H%M%S.%f"), _seconds(end))
            for (name, shape), end in ends.items()
        ]
    except (ValueError, IndexError):
        return []
    return sorted(found, key=lambda span: span.start_s)


def _seconds(when: str, form: str | None = None) -> float:
    parsed = datetime.datetime
    stamp = parsed.strptime(when, form) if form else parsed.fromisoformat(when)
    return stamp.replace(tzinfo=datetime.timezone.utc).timestamp()


def wall_s(records: Iterable[Record]) -> float:
    """Seconds that the shapes took; breaks between them are out."""
    return sum(max(0.0, span.end_s - span.start_s) for span in spans(records))


def of_shapes(one: Subject) -> dict[Shape, int]:
    """Each shape's leg, from 1; of one that was measured in several the last."""
    found, leg = {}, 1
    own = [record for record in one.records if record.copy == 1]
    for before, span in itertools.pairwise([None, *spans(own)]):
        assert span is not None
        leg += before is not None and span.start_s - before.end_s > BREAK_S
        found[span.shape] = leg
    return found


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


def told(first: Subject, second: Subject) -> str:
    """Which of two runs has legs, and how many shapes each; nothing where neither has."""
    lines = []
    for one in (first, second):
        shapes = Counter(of_shapes(one).values())
        if len(shapes) > 1:
            counts = listed(str(shapes[leg]) for leg in sorted(shapes))
            lines.append(
                f"{code(one.run.name)} was stopped and resumed: it has {len(shapes)} legs, of"
                f" {counts} shapes."
            )
    return " ".join(lines)
