"""The interval of a median."""

from __future__ import annotations

import functools
from collections.abc import Sequence


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """A 95% interval of the median by order statistics: no shape of the noise is assumed.

    Below six values no pair of them covers 95%; the full range (94% at five) has to serve.
    """
    ordered, rank = sorted(values), _outer_rank(len(values))
    return ordered[rank], ordered[-1 - rank]


@functools.lru_cache
def _outer_rank(n: int) -> int:
    """Count the values of n to leave out on either side, in whole numbers: n may be large."""
    rank, ways, below = 0, 1, 1
    most = 2**n // 40  # 2.5% of the ways to fall on either side of the median
    while rank + 1 < n // 2:
        ways = ways * (n - rank) // (rank + 1)
        below += ways
        if below > most:
            break
        rank += 1
    return rank
