"""Judges blocks: which were disturbed, whether there are enough, how many samples stick out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from lstm_bench.model.median import median_interval
from lstm_bench.model.types import Block, Sampling

SWITCHES_PER_S = 50.0  # most workers are pushed off a core a few times a second
MORE_SWITCHES = 3.0  # than usual for the cell: TensorFlow's own threads push each other
LOST_CPU = 0.85  # least share of the cores that the cell's best block had


def disturbed(this: Block, before: Sequence[Block]) -> bool:
    """Return whether another process took the cores: more switches, and less CPU time.

    Either alone is harmless: the evidence is that both happen together.
    """
    known = [b for b in before if b.wall_s > 0]
    if this.wall_s <= 0 or this.switches < 2 or not known:
        return False
    usual = statistics.median(b.switches / b.wall_s for b in known)
    many = this.switches / this.wall_s > max(SWITCHES_PER_S, MORE_SWITCHES * usual)
    best = max(b.cpu_s / b.wall_s for b in known)
    return many and this.cpu_s / this.wall_s < LOST_CPU * best


OTHERS = 0.25  # cores that the rest of the machine may use before it matters


def crowded(blocks: Sequence[Block], cores: int) -> float:
    """The cores that other processes used, if that left too few; 0 if there were enough.

    Sees what `disturbed` cannot: a neighbour that was there from the first block to the last.
    """
    wall = sum(b.wall_s for b in blocks)
    if wall <= 0:
        return 0.0
    others, own = sum(b.others_s for b in blocks) / wall, sum(b.cpu_s for b in blocks) / wall
    return others if others > OTHERS and others + own > cores - OTHERS else 0.0


def converged(round_medians: Sequence[float], sampling: Sampling) -> bool:
    """Return whether the median's interval is as narrow as was asked."""
    if len(round_medians) < sampling.rounds:
        return False
    low, high = median_interval(round_medians)
    return (high - low) / 2 <= sampling.converged * statistics.median(round_medians)


def outliers(samples: Sequence[int]) -> int:
    """Samples beyond three interquartile ranges: counted, never dropped."""
    if len(samples) < 8:
        return 0
    low, _, high = statistics.quantiles(samples, n=4)
    reach = 3 * (high - low)
    return sum(s < low - reach or s > high + reach for s in samples)
