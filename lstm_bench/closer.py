"""A closer look at a cell that has been timed: its energy, and what its calls are made of.

Its times are taken and stand, whatever happens here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from lstm_bench.measurement import Measurement
from lstm_bench.model import Cell
from lstm_bench.plan import Plan
from lstm_bench.replies import Loaded, Profiled
from lstm_bench.supervisor import WorkerFailed
from lstm_bench.watch import Watch
from lstm_bench.workers import Workers


@dataclass(frozen=True)
class Look:
    """How closely a profiled pass looks."""

    operators: bool = False  # at what the host does, by the framework's own profiler
    told: Callable[[Profiled], None] | None = None  # is given what was found
    trace: bool = False  # also all that happened, and when


class CloserLook:
    """What a plan wants to know besides times, cell by cell."""

    def __init__(
        self,
        plan: Plan,
        workers: Workers,
        watch: Watch,
        look: Look,
        stop: Callable[[], bool],
        doing: Callable[[str, Measurement], AbstractContextManager[None]],
    ):
        """`doing` tells the observer what is done to which cell, and counts the time."""
        self.plan, self.workers, self.watch = plan, workers, watch
        self.look, self.stop, self.doing = look, stop, doing
        self._took_down: dict[str, str] = {}  # workers that this has ended, and how

    def wanted(self, cell: Cell) -> bool:
        return self.plan.wants_profile(cell) or self.plan.wants_energy(cell)

    def at(self, one: Measurement) -> bool:
        """Look at a cell; false if it was stopped before it was done."""
        for wanted, what, without, look in (
            (self.plan.wants_energy(one.cell), "energy", "no energy", self._energy),
            (self.plan.wants_profile(one.cell), "profiling", "not profiled", self._profile),
        ):
            if not wanted:
                continue
            if self.stop():
                return False
            failed = self._took_down.get(one.worker.name)
            if failed or not self.workers.alive(one.worker):
                one.warn(f"{without}: {failed or 'the worker was gone'}")
                continue
            try:
                with self.doing(what, one):
                    look(one)
            except WorkerFailed as error:
                if error.status == "interrupted":
                    return False
                one.warn(f"{without}: {error.reason}")
                if error.status in ("timeout", "crashed"):  # and would again, at every shape
                    name = one.cell.implementation
                    self._took_down[one.worker.name] = f"{what} of {name} took the worker down"
        return True

    def _energy(self, one: Measurement) -> None:
        """Joules per call, while the cell's calls run back to back."""
        limit = self.plan.sampling.timeout_s

        def run_load(seconds: float) -> Loaded:
            reply: Loaded = self.workers.ask(
                one.worker, "load", limit, key=one.cell.key, seconds=seconds
            )
            return reply

        one.energy = self.watch.energy(run_load)

    def _profile(self, one: Measurement) -> None:
        """What a call is made of."""
        reply: Profiled = self.workers.ask(
            one.worker,
            "profile",
            self.plan.sampling.timeout_s,
            key=one.cell.key,
            trace=self.look.trace,
            operators=self.look.operators,
        )
        one.profile = reply.profile
        if self.look.told:
            self.look.told(reply)
        if one.profile.problem:
            one.warn(f"not profiled: {one.profile.problem}")
