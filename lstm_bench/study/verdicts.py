"""Whether a second run calls the same rows faster and slower: what a reader acts on."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import pandas as pd

from lstm_bench.comparison import compare
from lstm_bench.model import Shape
from lstm_bench.noise import SHAPE, Numbers
from lstm_bench.study.section import code, table, text
from lstm_bench.study.subject import Subject
from lstm_bench.trust import measured
from lstm_bench.units import counted, listed, percent, times

#: By how many times two rows differ in the first run, for the lines of the table.
SIZES = (1.0, 1.1, 1.25, 2.0, math.inf)
CLOSE = 1.25  # most pairs differ by far more, and those are easy
CALLED = ("faster", "slower")
MOST_NAMED = 8  # of those that turned round


def both(first: Subject, second: Subject) -> pd.DataFrame:
    """Every row against every other at the shapes of both runs: what each run says of it."""
    found = [_all(first), _all(second)]
    return found[0].merge(found[1], on=["a", "b", *SHAPE], suffixes=("_1", "_2"))


def _all(one: Subject) -> pd.DataFrame:
    cells = one.run.cells[one.run.cells["copy"] == 1]
    names = sorted(set(measured(cells)["implementation"]))
    columns = [*SHAPE, "ratio", "verdict"]
    made = [
        compare(cells, a, b, across=None, floors=[one.run.noise]).shapes[columns].assign(a=a, b=b)
        for a, b in itertools.combinations(names, 2)
    ]
    return (
        pd.concat(made, ignore_index=True) if made else pd.DataFrame(columns=["a", "b", *columns])
    )


class Counts(NamedTuple):
    """What two runs say of some pairs of rows."""

    pairs: int
    called: int  # one of the two faster, by the first run
    again: int  # of these, by the second too
    turned: int  # by the second the other one
    only_second: int
    same: int  # by the first
    parted: int  # of these, called by the second

    @property
    def neither(self) -> int:
        """Called by the first run, and not by the second."""
        return self.called - self.again - self.turned


def counts(pairs: pd.DataFrame) -> Counts:
    first, second = pairs["verdict_1"], pairs["verdict_2"]
    called, too, same = first.isin(CALLED), second.isin(CALLED), first == "same"
    alike, turned = called & (first == second), called & too & (first != second)
    groups = (called, alike, turned, too & ~called, same, same & too)
    return Counts(len(pairs), *(int(group.sum()) for group in groups))


def told(first: Subject, second: Subject, pairs: pd.DataFrame) -> list[str]:
    """The answer, and how it goes with the size of the difference."""
    all_ = counts(pairs)
    if not all_.called:
        return []
    one, other = code(first.run.name), code(second.run.name)
    turned = f"{counted(all_.turned, 'verdict')} turned round in {other}{_named(pairs)}."
    return [
        text(
            turned if all_.turned else "No verdict turned round.",
            f"Of {all_.pairs:,} times that two rows meet at one shape {one} calls one of them"
            f" faster {all_.called:,} times. {other} does so again {all_.again:,} times,"
            f" {percent(all_.again / all_.called)}{_close(pairs)}; {counted(all_.neither, 'time')}"
            f" it calls neither. It calls {counted(all_.only_second, 'pair')} that {one} does not,"
            f" {all_.parted} of the {all_.same} that it calls `same`. Every row meets every other,"
            " so these counts are not of independent things.",
        ),
        table(
            ["they differ by", "pairs", "called", "again", "neither", "turned", "only there"],
            rows(pairs),
        ),
    ]


def short(pairs: pd.DataFrame) -> str:
    found = counts(pairs)
    if not found.called:
        return ""
    return (
        f"Of {found.called:,} verdicts on two rows at one shape it gives"
        f" {percent(found.again / found.called)} again{_close(pairs)}, and"
        f" {found.turned or 'none'} the other way round."
    )


def _close(pairs: pd.DataFrame) -> str:
    """The same for the pairs that are not easy."""
    near = counts(pairs[_sizes(pairs) < CLOSE])
    return f" ({near.again} of {near.called} below {times(CLOSE)})" if near.called else ""


def _sizes(pairs: pd.DataFrame) -> Numbers:
    """How many times longer the slower one of each pair takes in the first run."""
    size: Numbers = np.exp(np.abs(np.log(pairs["ratio_1"].to_numpy(dtype=float))))
    return size


def rows(pairs: pd.DataFrame) -> list[list[str]]:
    size, found = _sizes(pairs), []
    for low, high in itertools.pairwise(SIZES):
        part = counts(pairs[(size >= low) & (size < high)])
        name = f"{times(low)} or more" if math.isinf(high) else f"{times(low)} to {times(high)}"
        shown = (part.pairs, part.called, part.again, part.neither, part.turned, part.only_second)
        found.append([name, *(f"{count:,}" for count in shown)])
    return found


def _named(pairs: pd.DataFrame) -> str:
    """Which turned round, where that is few."""
    calls = pairs["verdict_1"].isin(CALLED) & pairs["verdict_2"].isin(CALLED)
    turned = pairs[calls & (pairs["verdict_1"] != pairs["verdict_2"])]
    if not 0 < len(turned) <= MOST_NAMED:
        return ""
    names = [
        f"{code(row.b)} over {code(row.a)}"
        f" at {Shape(row.hidden, row.batch, row.timesteps, row.input_size).label}"
        f" ({times(row.ratio_1)} here, {times(row.ratio_2)} there)"
        for row in turned.itertuples(index=False)
    ]
    return f": {listed(names)}"
