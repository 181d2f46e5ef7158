"""95% intervals of a mean over shapes, all of them Student's.

Four shapes or more are a sample of shapes: what their rounds vary by is in their medians already.
Fewer say nothing of other shapes. Their interval is of just these, and the sample is their rounds.
"""

from __future__ import annotations

import functools

import numpy as np

from lstm_bench.analysis.noise import Numbers

FEWEST_SHAPES = 4


@functools.cache
def student(count: int) -> float:
    """How many standard errors the mean of so many values may be off, at 95%."""
    from scipy.special import stdtrit  # here, as loading it takes a while

    return float(stdtrit(count - 1, 0.975))


def over_shapes(values: Numbers) -> tuple[float, float]:
    """The interval of the mean of one value per shape."""
    half = student(len(values)) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean() - half), float(values.mean() + half)


def over_rounds(values: Numbers, lots: Numbers, least: float) -> tuple[float, float]:
    """The interval of the mean of few values; `lots` has what each was in lots of rounds, or NaN.

    Rounds do not show how processes differ, A/A controls do: no half of it is below `least`.
    """
    counts = np.isfinite(lots).sum(axis=1)
    lots, known = lots[counts > 1], counts[counts > 1]
    half = least
    if len(known):
        error = np.sqrt((np.nanvar(lots, axis=1, ddof=1) / known).sum()) / len(values)
        half = max(least, student(int((known - 1).sum()) + 1) * error)
    return float(values.mean() - half), float(values.mean() + half)
