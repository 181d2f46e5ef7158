"""Measurements by features of cells that have been timed, such as energy and profiles.

Their times are taken and stand, whatever happens here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

from lstm_bench.driver.cell import Builder, Measurement
from lstm_bench.driver.context import Context
from lstm_bench.driver.worker_pool import WorkerFailed
from lstm_bench.model.types import Cell, Record, Shape

CRASHES = 2  # consecutive crashes of one implementation; then it is left alone until a resume


class FollowUp:
    """One kind of follow-up in one run; a feature has a subclass behind the door `follow_up`."""

    activity: ClassVar[str]  # its name for the observer and in the account of time
    mark: ClassVar[str]  # begins the warning of a cell that should have it and has not
    turns = 1  # how often each cell of a shape is measured, in turns

    def __init__(self, context: Context):
        self.context = context

    @classmethod
    def lost(cls, records: Iterable[Record]) -> set[tuple[int, Shape]]:
        """Passes and shapes at which a timed cell lacks what it should have."""
        return {
            (record.pass_number, record.shape)
            for record in records
            if record.status == "ok"
            and any(text.partition(":")[0] == cls.mark for text in record.warnings)
        }

    def wants(self, cell: Cell) -> bool:
        """Return whether the plan asks for it at this cell."""
        raise NotImplementedError

    def measure(self, measurement: Measurement) -> bool:
        """Measure a cell and note the result in its measurement; false if there is none."""
        raise NotImplementedError

    def miss(self, measurement: Measurement, reason: str) -> None:
        """Note that a turn failed."""
        measurement.warn(f"{self.mark}: {reason}")

    def finish(self, measurement: Measurement) -> None:
        """Do what is left to do after the last turn."""


class FollowUps:
    """Takes the cells of a shape through the follow-ups that the plan asks for."""

    def __init__(self, context: Context, builder: Builder):
        self.context, self.builder = context, builder
        self.kinds = [make(context) for make in context.follow_ups]
        self._crashes: Counter[tuple[str, str]] = Counter()  # consecutive, by kind and row

    def wanted(self, cell: Cell) -> bool:
        return any(kind.wants(cell) for kind in self.kinds)

    def measure(self, cells: Sequence[Measurement]) -> None:
        """Measure every kind at every cell that wants it.

        One turn of each cell in shuffled order, then the next: what the host and the GPU's
        temperature do meanwhile is everybody's.
        """
        for kind in self.kinds:
            wanted = [m for m in cells if kind.wants(m.cell)]
            for _ in range(kind.turns):
                for measurement in self.context.rng.sample(wanted, len(wanted)):
                    if not self._measure(kind, measurement):
                        measurement.cut_short = "stopped before all was measured"
            for measurement in wanted:
                kind.finish(measurement)

    def _measure(self, kind: FollowUp, measurement: Measurement) -> bool:
        """Take one turn at a cell; false if it was stopped before it was done.

        A worker that dies of it costs its neighbours nothing: they are built again in a new one. So
        is the cell itself, once. A row that hangs, or dies of that too, is left alone from then on.
        """
        name, workers = measurement.cell.implementation, self.context.workers
        row, died = (kind.activity, name), ""
        while not self.context.over():
            if measurement.not_held or self._crashes[row] >= CRASHES:
                before = f"{kind.activity} of {name} took the worker down before"
                kind.miss(measurement, measurement.not_held or died or before)
                return True
            try:
                self._hold(measurement)
                with self.context.doing(kind.activity, measurement.cell):
                    has_result = kind.measure(measurement)
            except WorkerFailed as error:
                if error.status == "interrupted":
                    return False
                if workers.alive(measurement.worker):
                    kind.miss(measurement, error.reason)
                    return True
                self._crashes[row] += CRASHES if error.status == "timeout" else 1
                died = error.reason
            else:
                self._crashes[row] = 0
                if died and has_result:
                    measurement.warn(f"second try: {kind.activity} took the worker down: {died}")
                return True
        return False

    def _hold(self, measurement: Measurement) -> None:
        """See that a worker holds the cell; what cannot be built again is not tried twice."""
        workers = self.context.workers
        if workers.alive(measurement.worker):
            return
        try:
            self.builder.build_alike(measurement)
        except WorkerFailed as failed:
            if workers.alive(measurement.worker):
                measurement.not_held = failed.reason
            raise
