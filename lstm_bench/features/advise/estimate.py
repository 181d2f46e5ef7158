"""Times at shapes that were not measured, from the measured shapes around them, and the choice.

All in logarithms: one plane over the sizes, which all rows of a run share, and each row's distance
from it at the nearest shapes. Who is faster than whom comes from these shapes alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench.analysis.choice import TIE, settled
from lstm_bench.analysis.noise import Numbers, percentile_95
from lstm_bench.analysis.summary import Codes, Times
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import Shape

NEAREST = 4  # shapes that have a say
POWER = 4  # a weight fades by this power of the distance
#: The weight of a doubling of each size; the order of rows hardly changes along a sequence.
DOUBLING = {"hidden": 1.0, "batch": 1.0, "timesteps": 0.5, "input over hidden": 1.0}
CLOSE = 0.05  # over the best: as good as the best
MOST_LEFT_OUT = 200  # shapes that are left out in turn


def outside(shapes: pd.DataFrame, shape: Shape) -> str:
    """Name the size of a shape that lies beyond all measured ones; empty if none does."""
    sizes, asked = _sizes(shapes), _sizes(_frame(shape)).iloc[0]
    for axis in sizes:
        low, high = sizes[axis].min(), sizes[axis].max()
        if not low <= asked[axis] <= high:
            measured = f"{low:g}" if low == high else f"{low:g} to {high:g}"
            return f"{axis} {asked[axis]:g} (measured: {measured})"
    return ""


def near(shapes: pd.DataFrame, shape: Shape) -> tuple[Codes, Numbers]:
    """The places of the nearest measured shapes, and what each counts; of a measured one itself."""
    distance = _distances(shapes, shape)
    places = np.argsort(distance, kind="stable")[:NEAREST]
    if distance[places[0]] == 0:
        return places[:1], np.ones(1)
    counts = distance[places] ** -POWER
    return places, counts / counts.sum()


def seconds_at(times: Times, shape: Shape) -> Numbers:
    """Every row's time at a shape; NaN for one that has none at one of the nearest shapes."""
    places, counts = near(times.shapes, shape)
    slope, rest = plane(times)
    at = np.log2(_sizes(_frame(shape)).to_numpy()[0])
    return np.asarray(np.exp(counts @ rest[places] + at @ slope))


def plane(times: Times) -> tuple[Numbers, Numbers]:
    """How times grow with a doubling of each size, and what is left of them at each shape."""
    logs = np.log(times.seconds)
    slope = slope_of(times.shapes, logs)
    return slope, logs - (np.log2(_sizes(times.shapes).to_numpy()) @ slope)[:, None]


@dataclass(frozen=True)
class HeldOut:
    """The worth of advice at measured shapes, each left out in turn."""

    shapes: int
    best: int  # at how many the advised row was the fastest
    close: int  # within 5% of it
    loss: float  # how much slower it was where it was not the fastest, mean
    off: float  # by how much estimated times were wrong, median
    margin: float  # by which the true best looked slower than the advised row, 95th percentile
    spread: float = math.inf  # by which factors over what runs now were wrong, 95th percentile


def left_out(times: Times) -> Numbers:
    """Every row's time at each shape from all the others, as in `times.seconds`.

    NaN where nothing can be said, and at most shapes of a very large run, where some will do.
    """
    guesses = np.full(times.seconds.shape, np.nan)
    for place in range(0, len(times.shapes), 1 + len(times.shapes) // MOST_LEFT_OUT):
        others = np.arange(len(times.shapes)) != place
        rest = replace(times, shapes=times.shapes[others], seconds=times.seconds[others])
        if others.any():
            guesses[place] = seconds_at(rest, Shape.from_row(times.shapes.loc[place, SHAPE]))
    return guesses


def hold_out(times: Times, guesses: Numbers, names: Collection[str], now: str) -> HeldOut:
    """Advise one of these rows at every shape, by the times that `left_out` gave it."""
    mine = [place for place, name in enumerate(times.names) if name in names]
    losses, margins, off = [], [], []
    wrong = np.log(guesses / times.seconds)
    factors = np.abs(wrong - wrong[:, [times.names.index(now)]])
    factors = factors[:, [place for place in mine if times.names[place] != now]]
    factors = factors[np.isfinite(factors)]
    for true, guess in zip(times.seconds[:, mine], guesses[:, mine], strict=True):
        if np.isnan(guess).all() or np.isnan(true).all():
            continue
        advised, best = np.nanargmin(guess), np.nanargmin(true)
        losses.append(true[advised] / true[best] - 1)
        margins.append(guess[best] / guess[advised] - 1)
        off.append(np.abs(np.log(guess / true)))
    loss = np.array(losses)
    known = np.isfinite(margins)
    return HeldOut(
        len(loss),
        int((loss == 0).sum()),
        int((loss <= CLOSE).sum()),
        float(loss[loss > 0].mean()) if (loss > 0).any() else math.nan,
        float(np.expm1(np.nanmedian(off))) if np.isfinite(off).any() else math.nan,
        percentile_95(np.array(margins)[known]) if known.any() else math.inf,
        float(np.expm1(percentile_95(factors))),
    )


@dataclass(frozen=True)
class Choice:
    """The row to run of some, and how it stands to what runs now."""

    row: Mapping[str, Any]
    state: str  # keep, faster, slower, tie; unclear: it may be `candidate`
    ties: Sequence[Mapping[str, Any]]  # as fast as the candidate, as far as can be known
    candidate: Mapping[str, Any]

    @property
    def decided(self) -> bool:
        return self.state != "unclear"


def choose(
    rows: Sequence[Mapping[str, Any]], now: str, margin: Callable[[str, str], float]
) -> Choice:
    """The fastest of these rows, by the rule of `settled`.

    A row that is much faster than what runs now but not surely so decides nothing: then the fastest
    that surely is stands in.
    """
    pick, *ties = settled(rows, now, margin)
    state = {"now": "keep", "faster": "faster", "slower": "slower"}.get(pick["verdict"], "tie")
    if state == "tie" and max(pick["speedup"], 1 / pick["speedup"]) > 1 + min(
        TIE, margin(pick["implementation"], now)
    ):
        surely = (row for row in rows if row["verdict"] in ("faster", "now"))
        return Choice(next(surely, pick), "unclear", ties, pick)
    return Choice(pick, state, ties, pick)


def _frame(shape: Shape) -> pd.DataFrame:
    return pd.DataFrame([astuple(shape)], columns=SHAPE)


def _sizes(shapes: pd.DataFrame) -> pd.DataFrame:
    """The sizes that a time depends on."""
    sizes = shapes[SHAPE[:3]].astype(float)
    return sizes.assign(**{"input over hidden": shapes["input_size"] / shapes["hidden"]})


def _distances(shapes: pd.DataFrame, shape: Shape) -> Numbers:
    counts = np.array([DOUBLING[axis] for axis in _sizes(shapes)])
    over = np.log2(_sizes(shapes).to_numpy() / _sizes(_frame(shape)).to_numpy())
    return np.asarray(np.sqrt(((counts * over) ** 2).sum(axis=1)))


def slope_of(shapes: pd.DataFrame, logs: Numbers) -> Numbers:
    """How times grow with a doubling of each size: least squares over all rows together."""
    there = np.isfinite(logs)
    shape, row = np.nonzero(there)
    sizes = np.log2(_sizes(shapes).to_numpy())[shape]
    count = np.maximum(there.sum(axis=0), 1)[row]

    def centred(values: Numbers) -> Numbers:
        sums = np.zeros(logs.shape[1])
        np.add.at(sums, row, values)
        return np.asarray(values - sums[row] / count)

    columns = np.column_stack([centred(column) for column in sizes.T])
    return np.asarray(np.linalg.lstsq(columns, centred(logs[there]), rcond=None)[0])
