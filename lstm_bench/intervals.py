"""MPE and geometric mean ratio over shapes, each with its 95% interval.

Pure functions on arrays: a row per shape, and of rounds a column per round.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_bench import noise
from lstm_bench.noise import Numbers

RESAMPLES = 2000  # fewer on a grid of more than a thousand shapes, where they differ less
FEWEST_RESAMPLES, MOST_RESAMPLES = 300, 5000
FEW_DRAWS = 240_000  # of all shapes together: the fewer these are, the more a single draw matters
DRAWS = 2_000_000  # of a shape, in all resamples together
POOL = (10, 50)  # redrawn medians of each shape to draw from: at least, at most
FEWEST_SHAPES = 4  # below, an interval speaks of just these shapes: only rounds are redrawn
FEW = {2: 12.706, 3: 4.303}  # Student's t at 97.5%, of fewer values than shapes are resampled from
#: The same for so few shapes: resampling them breaks down when two or three differ.
STUDENT = {4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262, 11: 2.228}
SEED = 20210


@dataclass(frozen=True)
class Statistic:
    """A number and its 95% interval."""

    value: float
    low: float
    high: float


NOTHING = Statistic(np.nan, np.nan, np.nan)

#: Of B against A: MPE, geometric mean ratio, and the MPE of A against B.
Three = tuple[Statistic, Statistic, Statistic]


def resamples(shapes: int, chosen: int) -> int:
    """How many for a group of the shapes of a comparison."""
    usual = int(np.clip(DRAWS // shapes, FEWEST_RESAMPLES, RESAMPLES))
    return max(usual, min(MOST_RESAMPLES, FEW_DRAWS // chosen))


def pool_size(shapes: int) -> int:
    """How many redrawn medians of each shape its groups draw from."""
    return int(np.clip(DRAWS // (20 * shapes), *POOL))


def over_rounds(
    first: Numbers, second: Numbers, times: tuple[Numbers, Numbers], floor: Numbers
) -> Three:
    """The statistics of just these shapes: rounds are redrawn (seeded).

    What differs from process to process no number of rounds shows; the A/A controls do. So no
    interval is narrower than what lies between two measurements of the same thing.
    """
    if not len(times[0]):
        return NOTHING, NOTHING, NOTHING
    pools = _averaged(*redrawn(first, second, times, RESAMPLES))
    between = float(np.log1p(floor).mean() / len(floor) ** 0.5)  # of the mean logarithm
    ratio = times[1] / times[0]
    scales = (float(np.sqrt((each**2).mean())) for each in (ratio, np.ones(1), 1 / ratio))
    ends = []
    for values, pool, scale in zip(_averaged(*times), pools, scales, strict=True):
        half = between * scale
        low, high = np.quantile(pool.mean(axis=0), (0.025, 0.975))
        center = values.mean()
        ends.append((min(low, center - half), max(high, center + half)))
    return _statistics(times, ends)


def over_shapes(
    times: tuple[Numbers, Numbers], pools: tuple[Numbers, Numbers], resamples: int = RESAMPLES
) -> Three:
    """The statistics, with intervals by bootstrap over shapes and rounds (seeded).

    Each resample draws shapes, and for each of them one of its redrawn medians. The interval is
    the studentised one: a mean over a dozen shapes comes out too sure of itself by plain
    percentiles. Four to eleven shapes get Student's interval.
    """
    values = _averaged(*times)
    if len(times[0]) in STUDENT:
        return _statistics(times, [student_interval(v) for v in values])
    pools_of = zip(values, _averaged(*pools), strict=True)
    return _statistics(times, [_studentised(v, pool, resamples) for v, pool in pools_of])


def _statistics(times: tuple[Numbers, Numbers], ends: Sequence[tuple[float, float]]) -> Three:
    mpe, log, back = ((v.mean(), *e) for v, e in zip(_averaged(*times), ends, strict=True))

    def error(value: float, low: float, high: float, least: float) -> Statistic:
        if high > 1.0:  # no time at all: no truth, and the mean ratio is no less than the geometric
            high = 1.0 - np.exp(least)
        return Statistic(*map(float, (value, low, high)))

    return error(*mpe, log[1]), Statistic(*map(float, np.exp(log))), error(*back, -log[2])


def _averaged(a: Numbers, b: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """What is averaged over shapes: errors of B and of A, between them the log of the ratio."""
    return (a - b) / a, np.log(b / a), (b - a) / b


def redrawn(
    first: Numbers, second: Numbers, times: tuple[Numbers, Numbers], draws: int
) -> tuple[Numbers, Numbers]:
    """For every shape `draws` medians over redrawn rounds; a single round stands as it is.

    The two sides keep their rounds together, as these were measured in turns. Neighbouring rounds
    are drawn together too, as many as `noise.lot_size` says: they are not independent.
    """
    rng = np.random.default_rng(SEED)
    shared = np.isfinite(first) & np.isfinite(second)
    rounds = shared.sum(axis=1)
    pools = [np.repeat(side[:, None], draws, axis=1) for side in times]
    for n in np.unique(rounds[rounds > 1]):
        rows = np.flatnonzero(rounds == n)
        sides = [side[rows][shared[rows]].reshape(len(rows), n) for side in (first, second)]
        step = max(1, DRAWS // (draws * n))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            pick = neighbours(rng, int(n), (len(rows[part]), draws))
            for pool, side in zip(pools, sides, strict=True):
                chosen = side[part][np.arange(len(pick))[:, None, None], pick]
                middle = median(side[part])[:, None]
                pool[rows[part]] *= median(chosen) / middle  # around the cell's figure
    return pools[0], pools[1]


def median(values: Numbers) -> Numbers:
    """Along the last axis; NumPy's own takes several times as long for a few values."""
    ordered, count = np.sort(values, axis=-1), values.shape[-1]
    return np.asarray((ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2)


def neighbours(
    rng: np.random.Generator, n: int, of: tuple[int, ...]
) -> npt.NDArray[np.integer[Any]]:
    """Places of n values drawn from n, in lots of neighbours; the last one's is the first."""
    size = noise.lot_size(n)
    starts = rng.integers(0, n, (*of, -(-n // size)))
    drawn = (starts[..., None] + np.arange(size)) % n
    return drawn.reshape(*of, -1)[..., :n]


def student_interval(values: Numbers) -> tuple[float, float]:
    """Student's 95% interval of the mean of four values or more."""
    half = student(len(values)) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean() - half), float(values.mean() + half)


def student(count: int) -> float:
    """Student's t at 97.5%: from the table, beyond it by an expansion that is exact to 0.002."""
    if count in FEW or count in STUDENT:
        return (FEW | STUDENT)[count]
    z, free = 1.959964, count - 1
    return z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)


def _studentised(values: Numbers, pool: Numbers, resamples: int) -> tuple[float, float]:
    """The ends of the interval of a mean: quantiles of t, times the error of the mean.

    Where a few shapes stand out, resamples without any of them have next to no spread and a t
    beyond all measure; a mean lies between the least and the most of what is averaged.
    """
    count, tiny = len(values), np.finfo(float).tiny
    apart = (pool - values.mean()).ravel()
    scaled = []
    for pick in _picks(apart.size, count, resamples):
        sample = np.take(apart, pick)
        middle = sample.sum(axis=0) / count
        squares = np.einsum("ij,ij->j", sample, sample) - count * middle**2
        scaled.append(middle / np.sqrt(np.maximum(squares / (count - 1), tiny)))
    low, high = _tails(np.concatenate(scaled))
    ends = values.mean() - np.array([high, low]) * values.std(ddof=1)
    low, high = np.clip(ends, values.min(), values.max())
    return float(low), float(high)


def _tails(values: Numbers) -> tuple[float, float]:
    """The quantiles at 2.5% and 97.5%; NumPy's own takes half as long again."""
    places = [share * (len(values) - 1) for share in (0.025, 0.975)]
    below = [int(place) for place in places]
    ordered = np.partition(values, [rank for low in below for rank in (low, low + 1)])
    low, high = (
        float(ordered[rank] + (place - rank) * (ordered[rank + 1] - ordered[rank]))
        for place, rank in zip(places, below, strict=True)
    )
    return low, high


@functools.lru_cache(maxsize=8)
def _picks(pool: int, count: int, resamples: int) -> list[npt.NDArray[np.integer[Any]]]:
    """Which redrawn medians each resample draws, a column per resample, in parts.

    The same for all groups of a size, and drawing them takes as long as all that follows.
    """
    rng, step = np.random.default_rng(SEED), max(1, DRAWS // count)
    sizes = (min(step, resamples - start) for start in range(0, resamples, step))
    return [np.ascontiguousarray(rng.integers(0, pool, (size, count)).T) for size in sizes]
