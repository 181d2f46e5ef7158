"""The energy of a run's cells: gross, net, and how well either is known."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from lstm_bench.analysis import noise
from lstm_bench.analysis.intervals import student
from lstm_bench.analysis.results import Run
from lstm_bench.model.feature import AddedColumn
from lstm_bench.model.types import FEWEST_ROUNDS, SAME_ENERGY, Energy, Record, Shape, unlike_idle_w
from lstm_bench.model.units import in_units
from lstm_bench.runs import store

OFTEN = 1.96  # standard deviations that 95 of 100 differences stay within
LOAD_SPREAD = 0.03  # spread of net energy with one load (study/notes/energy-repeats.md)


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
        """True if another run on this GPU is expected to find the same gross energy.

        Idle power is drawn for the time per call. Where that is the host's, a run is taken to be
        off in it by as much as a round, and two by the root of two of that: no number of rounds
        mends it. Net energy is off by what its loads are apart; of a single one that is assumed.
        """
        rounds, energy = self.record.round_throughput_s, self.energy
        if len(rounds) < FEWEST_ROUNDS:
            return False
        middle = statistics.median(rounds)
        spread_s = noise.MAD * statistics.median(abs(time - middle) for time in rounds)
        idle_w = energy.power_w if energy.idle_w is None else energy.idle_w
        idle_j = OFTEN * (idle_w or 0.0) * spread_s
        open_j = math.sqrt(2) * math.hypot(idle_j, _net_error_j(energy))
        return open_j <= SAME_ENERGY * self.gross_j

    @property
    def net_spread(self) -> float:
        """Half the 95% interval of net energy, as a share of it: by its loads and by the counter.

        Without end where the GPU draws no more than idle, or idle power is not known.
        """
        net_j, by_counter = self.energy.net_j, self.energy.net_uncertainty
        if not net_j or math.isinf(by_counter):
            return math.inf
        return max(by_counter, _net_error_j(self.energy) / net_j)


def _net_error_j(energy: Energy) -> float:
    """Half the 95% interval of net energy by its loads; of all energy without an idle power."""
    nets = energy.load_j
    if len(nets) < 2:
        whole_j = (energy.power_w or 0.0) * (energy.call_s or 0.0)
        return OFTEN * LOAD_SPREAD * abs(whole_j if energy.net_j is None else energy.net_j)
    return student(len(nets)) * statistics.stdev(nets) / math.sqrt(len(nets))


def drawn(records: Iterable[Record]) -> list[Drawn]:
    """The cells of which there is an energy."""
    return [Drawn(r, r.energy, r.gross_j) for r in records if r.energy and r.gross_j]


def shared_shapes(records: Iterable[Record]) -> set[Shape]:
    """The shapes at which all rows that have any energy have one, at the same idle power."""
    shapes: dict[str, set[Shape]] = {}
    records = list(records)
    for cell in drawn(records):
        shapes.setdefault(cell.record.implementation, set()).add(cell.record.shape)
    apart = {shape for _, shape in unlike_idle_w(records)}
    return set.intersection(*shapes.values()) - apart if shapes else set()


def pairs(records: Iterable[Record]) -> list[tuple[Drawn, Drawn]]:
    """All A/A pairs that have an energy, but for estimates."""
    known = {cell.record.cell: cell for cell in drawn(records) if cell.known}
    twins = (
        (known.get(dataclasses.replace(cell, copy=cell.copy - 1)), second)
        for cell, second in known.items()
        if cell.copy % 2 == 0
    )
    return [(first, second) for first, second in twins if first]


def joules(value: float | None) -> str:
    """An amount of energy with three digits and its unit."""
    if value is None or math.isnan(value):
        return "-"
    return in_units(value, {"kJ": 1e-3, "J": 1, "mJ": 1e3, "uJ": 1e6, "nJ": 1e9}) or "0 J"


def of_machine(run: Run, *_: object) -> AddedColumn:
    """The gross energy of a call, the median over passes, beside the times of a machine."""
    energies: dict[tuple[object, ...], list[float]] = {}
    records = store.read_records(run.folder).values() if run.folder and run.plan.energy else ()
    for cell in drawn(firsts(records)):
        key = (cell.record.implementation, *dataclasses.astuple(cell.record.shape))
        energies.setdefault(key, []).append(cell.gross_j)
    values = {key: statistics.median(own) for key, own in energies.items()}
    note = "per call, of the GPU alone, without its host"
    return AddedColumn("energy_j", "energy", joules, note, values)
