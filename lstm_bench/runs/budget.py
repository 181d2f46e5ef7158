"""Divides a budget among shapes: all get their fewest rounds before any gets more.

Shapes are measured in the order of their cost, the cheapest first. Where time is short, the dearest
give up first: long blocks, then the second measurement of A/A controls, the warm-up, and rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lstm_bench.model.types import FEWEST_ROUNDS, Cell, Sampling, Shape
from lstm_bench.model.units import counted, listed, span
from lstm_bench.runs.estimate import Estimate

Group = tuple[int, Shape]  # the cells of a shape in one pass

SHORTEST_S, FEWEST_CALLS = 0.0025, 1  # of a block
ROUND_S = 0.008  # a cell's round without its block: untimed calls, questions, answers
LATE = 0.05  # share of the budget by which a shape that has begun may exceed it


@dataclass(frozen=True)
class Way:
    """A degree of thoroughness; `rounds` None: until it has converged."""

    sampling: Sampling
    rounds: int | None = None
    controls: bool = True

    def cells(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells that are measured this way."""
        return [cell for cell in cells if self.controls or cell.copy == 1]

    def seconds(self, estimate: Estimate, cells: Sequence[Cell]) -> float:
        """Estimate the time of these cells of one shape."""
        return estimate.shape_s(self.cells(cells), self.sampling, self.rounds)


def ways(sampling: Sampling) -> list[Way]:
    """List the ways from all that the grid asks for to the least that gives a verdict."""
    short = replace(sampling, block_s=min(SHORTEST_S, sampling.block_s), block_calls=FEWEST_CALLS)
    cold = replace(short, warmup_s=0.0, warmup_calls=1, warmup_cap_s=1e-3)
    return [
        Way(sampling),
        Way(short, sampling.rounds),
        Way(short, sampling.rounds, controls=False),
        Way(cold, sampling.rounds, controls=False),
        Way(cold, min(FEWEST_ROUNDS, sampling.rounds), controls=False),
    ]


def fullest(estimate: Estimate, cells: Sequence[Cell], seconds: float) -> Way:
    """The way to measure a shape that fits, or the briefest."""
    known = ways(estimate.plan.sampling)
    return next((way for way in known if way.seconds(estimate, cells) <= seconds), known[-1])


@dataclass(frozen=True)
class Ration:
    """The shapes that fit into a time, with the seconds that each may take; and the others."""

    shares: Mapping[Group, float]
    too_long: Mapping[Group, float]  # what each would need at least


def ration(
    estimate: Estimate,
    groups: Mapping[Group, list[Cell]],
    seconds: float,
    begun: int | None = None,
) -> Ration:
    """Divide a time among shapes; the workers of the pass that has begun are there."""
    known = ways(estimate.plan.sampling)
    costs = {at: [way.seconds(estimate, cells) for way in known] for at, cells in groups.items()}
    by_shape: dict[Shape, float] = {}
    for at in groups:
        by_shape[at[1]] = by_shape.get(at[1], 0.0) + costs[at][-1]
    cells = [cell for group in groups.values() for cell in group]
    seconds -= estimate.start_s(cell for cell in cells if cell.pass_number != begun)
    left, fitting = seconds, set()
    for shape in sorted(by_shape, key=by_shape.__getitem__):
        if by_shape[shape] <= left * (1 + LATE):
            fitting.add(shape)
            left -= by_shape[shape]
    here = sorted((at for at in groups if at[1] in fitting), key=lambda at: (at[0], costs[at][0]))
    at_way = dict.fromkeys(here, 0)
    total = sum(costs[at][0] for at in here)
    for number in range(1, len(known)):
        for at in sorted(here, key=lambda at: -costs[at][0]):
            if total <= seconds:
                break
            total += costs[at][number] - costs[at][at_way[at]]
            at_way[at] = number
    spare = max(0.0, seconds - total)
    wants = {at: costs[at][0] - costs[at][at_way[at]] for at in here}
    if not sum(wants.values()):
        wants = {at: costs[at][0] for at in here}
    every = sum(wants.values()) or 1.0
    shares = {at: costs[at][at_way[at]] + spare * wants[at] / every for at in here}
    return Ration(shares, {at: costs[at][-1] for at in groups if at[1] not in fitting})


def in_words(left_out: Mapping[Group, float]) -> str:
    """Name the shapes that a budget is too short for, and the time that they need."""
    by_shape = {shape: seconds for (_, shape), seconds in left_out.items()}
    labels = listed([shape.label for shape in by_shape])
    need = " to ".join(dict.fromkeys(map(span, (min(by_shape.values()), max(by_shape.values())))))
    return f"too short for {counted(len(by_shape), 'shape')}, {need} at least: {labels}"


def hurried(
    sampling: Sampling, calls_s: Sequence[float], round_s: float, kinds: int = 1
) -> Sampling:
    """Shorten blocks until a round of all cells fits into `round_s`, if that can be.

    `kinds` is 2 where a block has queued calls too.
    """

    def needed(blocks: Sampling) -> float:
        each = (max(blocks.block_s, blocks.block_calls * call) for call in calls_s)
        return sum(ROUND_S + kinds * seconds for seconds in each)

    fewest = min(FEWEST_CALLS, sampling.block_calls)
    while needed(sampling) > round_s and sampling.block_s > SHORTEST_S:
        sampling = replace(
            sampling,
            block_s=max(SHORTEST_S, sampling.block_s / 2),
            block_calls=max(fewest, sampling.block_calls // 2),
        )
    return sampling
