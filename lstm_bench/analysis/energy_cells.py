"""What a run knows of the energy of its cells: figures, estimates and ranges, A/A pairs."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lstm_bench.analysis import noise
from lstm_bench.analysis.intervals import student
from lstm_bench.model.types import SAME_ENERGY, Energy, Record, Shape, unlike_idle_w

KNOWN = SAME_ENERGY  # what two runs shall agree to; where they need not, it is an estimate
OFTEN = 1.96  # standard deviations that 95 of 100 differences stay within
NET_KNOWN = 0.1  # of net energy may be open; where more is, it is an estimate
LOAD_SPREAD = 0.03  # of net energy, where there is one load (study/notes/energy-repeats.md)


def firsts(records: Iterable[Record]) -> list[Record]:
    """All but the controls."""
    return [r for r in records if r.copy == 1]


@dataclass(frozen=True)
class Drawn:
    """A cell whose energy was measured."""

    record: Record
    energy: Energy
    gross_j: float  # all that the GPU draws for a call, at the pace at which the cell was timed

    @property
    def known(self) -> bool:
        """Whether another run on this GPU is expected to find the same gross energy.

        Idle power is drawn for the time per call. Where that is the host's, a run is taken to be
        off in it by as much as a round, and two by the root of two of that: no number of rounds
        mends it. Net energy is off by what its loads are apart; of a single one that is assumed.
        """
        rounds, energy = self.record.round_throughput_s, self.energy
        if len(rounds) < noise.FEWEST_ROUNDS:
            return False
        middle = statistics.median(rounds)
        spread_s = noise.MAD * statistics.median(abs(one - middle) for one in rounds)
        idle_w = energy.power_w if energy.idle_w is None else energy.idle_w
        idle_j = OFTEN * (idle_w or 0.0) * spread_s
        return math.sqrt(2) * math.hypot(idle_j, _net_error_j(energy)) <= KNOWN * self.gross_j

    @property
    def range_j(self) -> tuple[float, float]:
        """Gross energy by the lowest and by the highest that rounds and loads have shown."""
        record, energy, ends = self.record, self.energy, (min, max)
        times_s = [record.throughput_s, energy.call_s]
        paces_s = present([*record.round_throughput_s, *energy.load_call_s, *times_s])
        nets = present([*energy.load_j, energy.net_j])
        if energy.idle_w is None or not nets:
            powers_w = present([*energy.load_w, energy.power_w])
            lowest, highest = (end(powers_w) * end(paces_s) for end in ends)
        else:
            lowest, highest = (end(nets) + energy.idle_w * end(paces_s) for end in ends)
        if len(energy.load_w) < 2:
            lowest, highest = lowest - _net_error_j(energy), highest + _net_error_j(energy)
        return lowest, highest


def _net_error_j(energy: Energy) -> float:
    """Half the 95% interval of net energy by its loads; of all energy without an idle power."""
    nets = energy.load_j
    if len(nets) < 2:
        whole_j = (energy.power_w or 0.0) * (energy.call_s or 0.0)
        return OFTEN * LOAD_SPREAD * abs(whole_j if energy.net_j is None else energy.net_j)
    return student(len(nets)) * statistics.stdev(nets) / math.sqrt(len(nets))


def drawn(records: Iterable[Record]) -> list[Drawn]:
    """The cells of which there is an energy."""
    found = []
    for record in records:
        if record.energy and record.gross_j:
            found.append(Drawn(record, record.energy, record.gross_j))
    return found


def shared_shapes(records: Iterable[Record]) -> set[Shape]:
    """The shapes at which all rows that have any energy have one, at the same idle power."""
    found: dict[str, set[Shape]] = {}
    records = list(records)
    for one in drawn(records):
        found.setdefault(one.record.implementation, set()).add(one.record.shape)
    apart = {shape for _, shape in unlike_idle_w(records)}
    return set.intersection(*found.values()) - apart if found else set()


def fine_net(energy: Energy) -> float | None:
    """Net energy, where the counter resolves it well."""
    return energy.net_j if energy.net_uncertainty <= NET_KNOWN else None


def net_known(energy: Energy) -> bool:
    """Whether net energy is more than an estimate: by the counter, and by several loads."""
    net_j = fine_net(energy)
    several = len(energy.load_w) > 1
    return net_j is not None and several and _net_error_j(energy) <= NET_KNOWN * net_j


@dataclass(frozen=True)
class Pair:
    """A cell and its A/A control: how far apart they are, as a share of the first."""

    gross: float
    net: float | None  # where the load resolves both well enough
    known: bool  # the gross energy of both


def pairs(records: Sequence[Record]) -> list[Pair]:
    """All A/A pairs that have an energy."""
    cells = drawn(records)
    by_cell = {one.record.cell: one for one in cells}
    found = []
    for second in cells:
        copy = second.record.copy
        twin = by_cell.get(dataclasses.replace(second.record.cell, copy=copy - 1))
        if copy % 2 == 0 and twin:
            nets = present(fine_net(one.energy) for one in (twin, second))
            found.append(
                Pair(
                    gross=_apart(twin.gross_j, second.gross_j),
                    net=_apart(*nets) if len(nets) == 2 else None,
                    known=twin.known and second.known,
                )
            )
    return found


def _apart(first: float, second: float) -> float:
    return abs(second / first - 1)


def present(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]
