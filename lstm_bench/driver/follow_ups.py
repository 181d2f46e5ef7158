"""A closer look at a cell that has been timed: its energy, and what its calls are made of.

Its times are taken and stand, whatever happens here.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from lstm_bench.driver.cell import Builder, Measurement
from lstm_bench.driver.gpu import Watch
from lstm_bench.driver.protocol import Loaded, Profiled
from lstm_bench.driver.worker_pool import WorkerFailed, Workers
from lstm_bench.model.profile import CUPTI
from lstm_bench.model.types import Cell
from lstm_bench.runs.plan import Plan

CRASHES = 2  # of a row in a row; then it is not tried again until a resume


@dataclass(frozen=True)
class ProfileOptions:
    """What a profiled pass records."""

    operators: bool = False  # at what the host does, by the framework's own profiler
    told: Callable[[Profiled], None] | None = None  # is given what was found
    trace: bool = False  # also all that happened, and when
    depth: bool = False  # also which functions lie between the call and the library


class FollowUps:
    """What a plan wants to know besides times, cell by cell."""

    def __init__(
        self,
        plan: Plan,
        workers: Workers,
        builder: Builder,
        watch: Watch,
        look: ProfileOptions,
        stop: Callable[[], bool],
        doing: Callable[[str, Measurement], AbstractContextManager[None]],
        rng: random.Random,
    ):
        """`doing` tells the observer what is done to which cell, and counts the time."""
        self.plan, self.workers, self.builder, self.watch = plan, workers, builder, watch
        self.look, self.stop, self.doing, self.rng = look, stop, doing, rng
        self._crashes: Counter[tuple[str, str]] = Counter()  # in a row: of a look at a row

    def wanted(self, cell: Cell) -> bool:
        return self.plan.wants_profile(cell) or self.plan.wants_energy(cell)

    def at(self, cells: Sequence[Measurement]) -> Iterator[tuple[Measurement, bool]]:
        """Look at the cells of a shape; false if a cell was stopped before it was done.

        One load of each for its energy, in shuffled order, then the next: what the host and the
        GPU's temperature do meanwhile is everybody's.
        """
        loaded = [c for c in cells if self.plan.wants_energy(c.cell)]
        whole = {one.cell.key: True for one in cells}
        for _ in range(self.plan.sampling.loads):
            for one in self.rng.sample(loaded, len(loaded)):
                whole[one.cell.key] &= self._looked(one, "energy", self._load)
        for one in loaded:
            _note_energy(one)
        for one in cells:
            if self.plan.wants_profile(one.cell):
                whole[one.cell.key] &= self._looked(one, "profiling", self._profile)
            yield one, whole[one.cell.key]
        for one in filter(_slowed, cells):
            if self.workers.alive(one.worker):
                self.workers.drop(one.worker)

    def _looked(self, one: Measurement, what: str, look: Callable[[Measurement], bool]) -> bool:
        """One look at a cell; false if it was stopped before it was done.

        A worker that dies of it costs its neighbours nothing: they are built again in a new one. So
        is the cell itself, once. A row that hangs, or dies of that too, is left alone from then on.
        """
        row, died = (what, one.cell.implementation), ""
        while not self.stop():
            if one.not_held or self._crashes[row] >= CRASHES:
                before = f"{what} of {one.cell.implementation} took the worker down before"
                one.miss(what, one.not_held or died or before)
                return True
            try:
                self._hold(one)
                with self.doing(what, one):
                    found = look(one)
            except WorkerFailed as error:
                if error.status == "interrupted":
                    return False
                if self.workers.alive(one.worker):
                    one.miss(what, error.reason)
                    return True
                self._crashes[row] += CRASHES if error.status == "timeout" else 1
                died = error.reason
            else:
                self._crashes[row] = 0
                if died and found:
                    one.warn(f"second try: {what} took the worker down: {died}")
                return True
        return False

    def _hold(self, one: Measurement) -> None:
        """See that a worker holds the cell; what cannot be built again is not tried twice."""
        if self.workers.alive(one.worker):
            return
        try:
            self.builder.build_alike(one)
        except WorkerFailed as failed:
            if self.workers.alive(one.worker):
                one.not_held = failed.reason
            raise

    def _load(self, one: Measurement) -> bool:
        """Power, while calls of the cell run back to back; whether there is any."""
        limit, key = self.plan.sampling.timeout_s, one.cell.key

        def run_load(seconds: float) -> Loaded:
            reply: Loaded = self.workers.ask(one.worker, "load", limit, key=key, seconds=seconds)
            return reply

        one.loads.append(self.watch.energy(run_load))
        return one.loads[-1].power_w is not None

    def _profile(self, one: Measurement) -> bool:
        """What a call is made of; whether that is known."""
        reply: Profiled = self.workers.ask(
            one.worker,
            "profile",
            self.plan.sampling.timeout_s,
            key=one.cell.key,
            trace=self.look.trace,
            operators=self.look.operators,
            depth=self.look.depth,
        )
        one.profile = reply.profile
        if self.look.told:
            self.look.told(reply)
        if one.profile.problem:
            one.miss("profiling", one.profile.problem)
        return not one.profile.problem


def _slowed(one: Measurement) -> bool:
    """Whether its process must not be timed again.

    CUPTI is detached after a profile; a framework's own profiler stays, and slows every launch.
    """
    by_framework = one.profile is not None and one.profile.source != CUPTI
    return by_framework and one.worker.settings.device == "cuda"


def _note_energy(one: Measurement) -> None:
    """Loads that failed, or some that have a power while others do not."""
    blind = [load.problem for load in one.loads if load.power_w is None]
    without = [*one.failed_loads, *blind]
    loads = len(one.loads) + len(one.failed_loads)
    if 0 < len(without) < loads:
        one.warn(f"fewer loads: {len(without)} of {loads} have no power: {without[0]}")
    elif one.failed_loads:
        one.warn(f"no energy: {without[0]}")
