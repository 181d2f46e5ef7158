"""Whether a second run gives the ratios that the page speaks of most."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from lstm_bench.study.headroom import AGAINST
from lstm_bench.study.section import code, table, text
from lstm_bench.study.subject import Subject
from lstm_bench.units import percent, times

#: The second row over the first.
HEADLINES = (
    *AGAINST,
    *itertools.product(("deepbench-skip", "deepbench"), ("pytorch", "tf-mode0")),
    *(("pytorch", "tf-mode0"), ("pytorch", "pytorch-half"), ("pytorch", "pytorch-amp")),
    *(("pytorch-half", "pytorch-amp"), ("tf-mode0", "tf-mode0-amp"), ("tf-mode1", "tf-mode2")),
)


class Headline(NamedTuple):
    """How many times as long as `a` row `b` takes, by one run and by the other."""

    a: str
    b: str
    batch: int | None  # at this one only
    shapes: int
    first: float
    second: float

    @property
    def change(self) -> float:
        return self.second / self.first - 1

    @property
    def name(self) -> str:
        at = "" if self.batch is None else f", batch {self.batch}"
        return f"{code(self.b)} / {code(self.a)}{at}"


def headlines(pairs: pd.DataFrame) -> list[Headline]:
    """Geometric means over the shapes of both runs; `pairs` as `verdicts.both` makes them.

    What frameworks leave on the table is told at the smallest batch too, where it is most.
    """
    least = int(pairs["batch"].min()) if pairs["batch"].nunique() > 1 else None
    wanted: list[tuple[str, str, int | None]] = [(a, b, None) for a, b in HEADLINES]
    wanted += [(a, b, least) for a, b in AGAINST if least is not None]
    found = []
    for a, b, batch in wanted:
        here = pairs if batch is None else pairs[pairs["batch"] == batch]
        for names, sign in (((a, b), 1), ((b, a), -1)):  # each pair is there one way round
            own = here[(here["a"] == names[0]) & (here["b"] == names[1])]
            if len(own):
                logs = np.log(own[["ratio_1", "ratio_2"]].to_numpy(dtype=float))
                found.append(Headline(a, b, batch, len(own), *np.exp(sign * logs.mean(axis=0))))
    return found


def told(
    first: Subject, second: Subject, found: Sequence[Headline], legs: Mapping[str, list[Headline]]
) -> list[str]:
    """`legs`: the same of the shapes of one leg, where a run has several."""
    if not found:
        return []
    names = [code(run.run.name) for run in (first, second)]
    return [
        text(
            f"The ratios that this page speaks of most {_apart(found)}, at the shapes of both"
            f"{_by_leg(legs)}."
        ),
        table(
            ["latency", "shapes", *names, "change", *legs],
            [[*_row(one), *(_change(one, own) for own in legs.values())] for one in found],
        ),
    ]


def _row(one: Headline) -> list[str]:
    return [one.name, str(one.shapes), *_both(one), percent(one.change)]


def _change(one: Headline, leg: Sequence[Headline]) -> str:
    """The same ratio's change in one leg."""
    found = [own.change for own in leg if own.name == one.name]
    return percent(found[0]) if found else "-"


def short(found: Sequence[Headline], legs: Mapping[str, list[Headline]]) -> str:
    if not found:
        return ""
    return f"The ratios that this page speaks of most {_apart(found)}{_by_leg(legs)}."


def _by_leg(legs: Mapping[str, list[Headline]]) -> str:
    """Over all shapes one leg may hide what another does."""
    most = max((abs(one.change) for own in legs.values() for one in own), default=None)
    return "" if most is None else f", and in one leg by up to {percent(most)}"


def _apart(found: Sequence[Headline]) -> str:
    most = max(found, key=lambda one: abs(math.log(one.second / one.first)))
    middle = float(np.median([abs(one.change) for one in found]))
    first, second = _both(most)
    return (
        f"differ by {percent(middle)} in the median and {percent(abs(most.change))} at most"
        f" ({most.name}: {first} here, {second} there)"
    )


def _both(one: Headline) -> tuple[str, str]:
    return times(one.first), times(one.second)
