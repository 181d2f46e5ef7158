"""Energy per call in two runs of one grid: how well it repeats."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lstm_bench import energy_cells
from lstm_bench.energy_cells import NET_KNOWN, Drawn, fine_net
from lstm_bench.study import legs
from lstm_bench.study.headroom import algorithm
from lstm_bench.study.section import code, table, text
from lstm_bench.study.subject import Runs, Subject
from lstm_bench.units import counted, listed, percent, seconds

AGREE = 0.05  # two runs of a cell should
FIGURE, RANGE, NET = "gross, a figure", "gross, a range", "net"

Changes = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Twice:
    """The cells that have an energy in two runs."""

    first: Subject
    second: Subject
    cells: Sequence[tuple[Drawn, Drawn]]
    others: int  # left out: they ran another algorithm

    @property
    def names(self) -> list[str]:
        return [code(side.run.name) for side in (self.first, self.second)]

    @property
    def figures(self) -> Twice:
        """Those that have a figure in both runs."""
        return self._only(True)

    @property
    def ranges(self) -> Twice:
        """Those that are an estimate in one or both, of which a range is told."""
        return self._only(False)

    def _only(self, known: bool) -> Twice:
        found = [(a, b) for a, b in self.cells if (a.known and b.known) == known]
        return Twice(self.first, self.second, found, 0)

    @property
    def gross(self) -> Changes:
        return np.array([b.gross_j / a.gross_j - 1 for a, b in self.cells])

    @property
    def net(self) -> Changes:
        """Where it is no estimate by the counter; it does not depend on the host's pace."""
        both = [(fine_net(a.energy), fine_net(b.energy)) for a, b in self.cells]
        return np.array([b / a - 1 for a, b in both if a and b])

    @property
    def slow(self) -> str:
        """In how many of the cells whose gross energy differs the time per call does so too."""
        both = [(a.record.throughput_s, b.record.throughput_s) for a, b in self.cells]
        times = np.array([b / a - 1 if a and b else np.nan for a, b in both])
        too = np.abs(times)[np.abs(self.gross) > AGREE] > AGREE
        return f"{too.sum()} of {too.size}"

    @property
    def overlap(self) -> str:
        """In how many of the cells with a range the two ranges have something in common."""
        ranges = [(a.range_j, b.range_j) for a, b in self.ranges.cells]
        common = sum(max(a[0], b[0]) <= min(a[1], b[1]) for a, b in ranges)
        return f"{common} of {len(ranges)}"

    @property
    def board(self) -> str:
        """Whether the two had one GPU, as far as they tell."""
        one, other = legs.boards(self.first), legs.boards(self.second)
        if None in one | other:
            return "not told"
        if one & other:
            return "the same" if len(one | other) == 1 else "several"
        return "another"

    @property
    def idle(self) -> str:
        """Nothing where one side does not say."""
        sides = [
            [one.energy.idle_w for one in side if one.energy.idle_w]
            for side in zip(*self.cells, strict=True)
        ]
        middles = ", ".join(f"{statistics.median(side):.0f}" for side in sides if side)
        return f"{middles} W" if all(sides) else "-"


def body(runs: Runs) -> list[str]:
    """Runs of the small grid two by two, as they were made, and each two against the next two.

    Then the main run and its repeats.
    """
    again = [(runs.paper, other) for other in runs.repeats if runs.paper]
    starts, ends = runs.energy[::2], runs.energy[1::2]
    wanted = [*zip(starts, ends, strict=False), *itertools.pairwise(starts), *again]
    found = [two for one, other in wanted if (two := _twice(one, other)).cells]
    if not found:
        return []
    within, ordered = percent(AGREE, 0), "in the order of the table"
    return [
        "### How well it repeats",
        table(
            ["runs", "GPU", "idle", "energy", "cells", f"agree to {within}", "median", "most"],
            [row for two in found for row in _rows(two)],
            left=4,
        ),
        text(
            f"Two runs of a cell on one GPU should agree to {within}; GPUs of one kind need not."
            " Idle: power, in the median of either run. A figure: cells that have one in both runs;"
            " a range: the others, where two runs need not agree; net: cells in which the counter"
            f" resolves it to {percent(NET_KNOWN, 0)} in both runs. Median: of how much more the"
            " second run has; most: how far a cell is apart.",
            f"The two ranges overlap in {listed(two.overlap for two in found)} cells, {ordered};"
            f" where gross energy differs by more than {within}, the time per call does so too in"
            f" {listed(two.slow for two in found)}.",
            *map(_others, found),
            *map(_farthest, found),
        ),
    ]


def _twice(first: Subject, second: Subject) -> Twice:
    sides = [
        {(one.record.implementation, one.record.shape): one for one in energy_cells.drawn(own)}
        for own in (energy_cells.firsts(first.records), energy_cells.firsts(second.records))
    ]
    both = [(one, sides[1][key]) for key, one in sides[0].items() if key in sides[1]]
    alike = [two for two in both if len({algorithm(one.record.path) for one in two}) == 1]
    return Twice(first, second, alike, len(both) - len(alike))


def _rows(two: Twice) -> list[list[str]]:
    kinds = {FIGURE: two.figures.gross, RANGE: two.ranges.gross, NET: two.net}
    found = [(kind, changes) for kind, changes in kinds.items() if changes.size]
    heads = [[", ".join(two.names), two.board, two.idle], *[["", "", ""]] * (len(found) - 1)]
    return [
        [
            *head,
            kind,
            str(changes.size),
            str((np.abs(changes) <= AGREE).sum()),
            percent(float(np.median(changes))),
            percent(float(np.abs(changes).max())),
        ]
        for head, (kind, changes) in zip(heads, found, strict=True)
    ]


def _others(two: Twice) -> str:
    if not two.others:
        return ""
    left = counted(two.others, "cell")
    return f"Left out of {listed(two.names)}: {left} that ran another algorithm."


def _farthest(two: Twice) -> str:
    """The cell that differs most though both have a figure, and in which way."""
    figures = two.figures
    if not figures.cells or np.abs(figures.gross).max() <= AGREE:
        return ""
    a, b = figures.cells[int(np.abs(figures.gross).argmax())]
    return (
        f"The figures of {listed(two.names)} that are furthest apart:"
        f" {code(a.record.implementation)} at {a.record.shape.label}"
        f" ({a.energy.power_w:.0f} W and {b.energy.power_w:.0f} W,"
        f" {seconds(a.record.throughput_s)} and {seconds(b.record.throughput_s)} a call)."
    )
