"""Energy of the cells of a run: several loads of each after its rounds."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable

from lstm_bench.driver.cell import Measurement
from lstm_bench.driver.context import Context
from lstm_bench.driver.follow_ups import FollowUp
from lstm_bench.features.energy import measure as energy
from lstm_bench.model.types import Cell, Energy, Record, Shape, unlike_idle_w

IDLE_HOLDS_S = 60.0  # how long a reading of the GPU's idle power is good for


class EnergyFollowUp(FollowUp):
    """Measures power while calls of a cell run back to back."""

    activity, mark = "energy", "no energy"

    def __init__(self, context: Context):
        super().__init__(context)
        self.turns = context.plan.sampling.loads
        self._loads: defaultdict[str, list[Energy]] = defaultdict(list)  # of each cell, by its key
        self._failed: defaultdict[str, list[str]] = defaultdict(list)  # why loads of it failed
        self._idle_w: float | None = None
        self._idle_at_s = -math.inf

    @classmethod
    def lost(cls, records: Iterable[Record]) -> set[tuple[int, Shape]]:
        """Also shapes whose energy is from two GPUs: those cannot be compared."""
        records = list(records)
        return super().lost(records) | unlike_idle_w(records).keys()

    def wants(self, cell: Cell) -> bool:
        return self.context.plan.wants_energy(cell)

    def measure(self, measurement: Measurement) -> bool:
        def run_load(seconds: float) -> energy.Loaded:
            reply: energy.Loaded = self.context.ask(measurement, "load", seconds=seconds)
            return reply

        gauge = self.context.watch.gauge
        if time.monotonic() - self._idle_at_s > IDLE_HOLDS_S:  # it moves with the temperature
            self._idle_w, self._idle_at_s = energy.idle_power(gauge), time.monotonic()
        loads = self._loads[measurement.cell.key]
        loads.append(energy.measure(gauge, run_load, self._idle_w))
        measurement.energy = energy.together(loads)
        return loads[-1].power_w is not None

    def miss(self, measurement: Measurement, reason: str) -> None:
        self._failed[measurement.cell.key].append(reason)

    def finish(self, measurement: Measurement) -> None:
        """Warn of loads that failed, or of some that have no power while others have one."""
        key = measurement.cell.key
        loads, failed = self._loads.pop(key, []), self._failed.pop(key, [])
        without = [*failed, *(load.problem for load in loads if load.power_w is None)]
        total = len(loads) + len(failed)
        if 0 < len(without) < total:
            measurement.warn(f"fewer loads: {len(without)} of {total} have no power: {without[0]}")
        elif failed:
            measurement.warn(f"{self.mark}: {without[0]}")
