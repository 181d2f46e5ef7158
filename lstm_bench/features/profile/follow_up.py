"""Profiles of the cells of a run: one pass of each after its rounds."""

from __future__ import annotations

from collections.abc import Callable

from lstm_bench.driver.cell import Measurement
from lstm_bench.driver.context import Context
from lstm_bench.driver.follow_ups import FollowUp
from lstm_bench.features.profile.summary import CUPTI, Profiled
from lstm_bench.model.types import Cell

REPLIES = {"profile": Profiled}


class ProfileFollowUp(FollowUp):
    """Takes the calls of a cell apart."""

    activity, mark = "profiling", "not profiled"

    def __init__(
        self,
        context: Context,
        receive: Callable[[Profiled], None] = lambda reply: None,
        trace: bool = False,
        operators: bool = False,
        depth: bool = False,
    ):
        """`receive` is called with each reply.

        `trace` asks for all that happened and when, `operators` for the host's operators, `depth`
        for the functions between the call and the library.
        """
        super().__init__(context)
        self.receive = receive
        self.options = {"trace": trace, "operators": operators, "depth": depth}

    def wants(self, cell: Cell) -> bool:
        return self.context.plan.wants_profile(cell)

    def measure(self, measurement: Measurement) -> bool:
        reply: Profiled = self.context.ask(measurement, "profile", **self.options)
        measurement.profile = reply.profile
        self.receive(reply)
        if reply.profile.problem:
            self.miss(measurement, reply.profile.problem)
        return not reply.profile.problem

    def finish(self, measurement: Measurement) -> None:
        """End a process that must not be timed again.

        CUPTI is detached after a profile; a framework's own profiler stays, and slows every launch.
        """
        worker, profile = measurement.worker, measurement.profile
        by_framework = profile is not None and profile.source != CUPTI
        if by_framework and worker.settings.device == "cuda" and self.context.workers.alive(worker):
            self.context.workers.drop(worker)
