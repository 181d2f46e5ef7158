"""MPE and geometric mean ratio over shapes, each with its 95% interval.

Pure functions on arrays: a row per shape, and of rounds a column per round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_bench import noise
from lstm_bench.noise import Numbers

RESAMPLES = 2000  # fewer on a grid of more than a thousand shapes, where they differ less
FEWEST_RESAMPLES, MOST_RESAMPLES = 300, 20_000
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


def resamples(shapes: int, chosen: int) -> int:
    """How many for a group of the shapes of a comparison."""
    usual = int(np.clip(DRAWS // shapes, FEWEST_RESAMPLES, RESAMPLES))
    return max(usual, min(MOST_RESAMPLES, FEW_DRAWS // chosen))


def pool_size(shapes: int) -> int:
    """How many redrawn medians of each shape its groups draw from."""
    return int(np.clip(DRAWS // (20 * shapes), *POOL))


def over_rounds(
    first: Numbers, second: Numbers, times: tuple[Numbers, Numbers], floor: Numbers
) -> tuple[Statistic, Statistic]:
    """MPE and geometric mean ratio of just these shapes: rounds are redrawn (seeded).

    What differs from process to process no number of rounds shows; the A/A controls do. So no
    interval is narrower than what lies between two measurements of the same thing.
    """
    if not len(times[0]):
        nothing = Statistic(np.nan, np.nan, np.nan)
        return nothing, nothing
    pools = _both(*redrawn(first, second, times, RESAMPLES))
    between = float(np.log1p(floor).mean() / len(floor) ** 0.5)  # of the mean logarithm
    least = between * float(np.sqrt(((times[1] / times[0]) ** 2).mean())), between
    ends = []
    for values, pool, half in zip(_both(*times), pools, least, strict=True):
        low, high = np.quantile(pool.mean(axis=0), (0.025, 0.975))
        center = values.mean()
        ends.append((min(low, center - half), max(high, center + half)))
    return _statistics(times, ends)


def over_shapes(
    times: tuple[Numbers, Numbers], pools: tuple[Numbers, Numbers], resamples: int = RESAMPLES
) -> tuple[Statistic, Statistic]:
    """MPE and geometric mean ratio, with intervals by bootstrap over shapes and rounds (seeded).

    Each resample draws shapes, and for each of them one of its redrawn medians. The interval is
    the studentised one: a mean over a dozen shapes comes out too sure of itself by plain
    percentiles. Four to eleven shapes get Student's interval.
    """
    values = _both(*times)
    if len(times[0]) in STUDENT:
        return _statistics(times, [student_interval(v) for v in values])
    return _statistics(times, _studentised(values, _both(*pools), resamples))


def _statistics(
    times: tuple[Numbers, Numbers], ends: Sequence[Sequence[float]]
) -> tuple[Statistic, Statistic]:
    (value, low, high), ratio = ((v.mean(), *e) for v, e in zip(_both(*times), ends, strict=True))
    if high > 1.0:  # B takes no time: no truth, and the mean ratio is no less than the geometric
        high = 1.0 - np.exp(ratio[1])
    return Statistic(*map(float, (value, low, high))), Statistic(*map(float, np.exp(ratio)))


def _both(a: Numbers, b: Numbers) -> tuple[Numbers, Numbers]:
    """What is averaged over shapes: the percentage error, and the logarithm of the ratio."""
    return (a - b) / a, np.log(b / a)


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
                chosen = np.take_along_axis(side[part, None, :], pick, axis=2)
                middle = np.median(side[part], axis=1)[:, None]
                pool[rows[part]] *= np.median(chosen, axis=2) / middle  # around the cell's figure
    return pools[0], pools[1]


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


def _studentised(
    values: tuple[Numbers, Numbers],
    pools: tuple[Numbers, Numbers],
    resamples: int,
) -> list[tuple[float, float]]:
    """The ends of the interval of each mean: quantiles of t, times the error of the mean.

    Where a few shapes stand out, resamples without any of them have next to no spread and a t
    beyond all measure; a mean lies between the least and the most of what is averaged.
    """
    count, tiny = len(values[0]), np.finfo(float).tiny
    rng, weights = np.random.default_rng(SEED), np.full(count, 1 / count)
    scaled: list[list[Numbers]] = [[], []]
    step = max(1, DRAWS // count)
    for start in range(0, resamples, step):
        size = (min(step, resamples - start), count)
        pick = rng.integers(0, pools[0].size, size)  # a shape and one of its redrawn medians
        for mine, of, pool in zip(scaled, values, pools, strict=True):
            sample = np.take((pool - of.mean()).ravel(), pick)
            middle = sample @ weights
            squares = np.einsum("ij,ij->i", sample, sample) - count * middle**2
            mine.append(middle / np.sqrt(np.maximum(squares / (count - 1), tiny)))
    ends = []
    for mine, of in zip(scaled, values, strict=True):
        low, high = np.quantile(np.concatenate(mine), (0.025, 0.975))
        error = of.std(ddof=1)
        low, high = np.clip(of.mean() - np.array([high, low]) * error, of.min(), of.max())
        ends.append((float(low), float(high)))
    return ends
