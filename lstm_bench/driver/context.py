"""One run: what it was asked for, what its parts share, and how it ends."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from lstm_bench import features
from lstm_bench.driver.gpu import Watch
from lstm_bench.driver.worker_pool import Workers
from lstm_bench.model.types import Cell, Record
from lstm_bench.runs import budget
from lstm_bench.runs.plan import Plan
from lstm_bench.runs.store import Sink

if TYPE_CHECKING:
    from lstm_bench.driver.cell import Measurement
    from lstm_bench.driver.follow_ups import FollowUp


MakeFollowUp: TypeAlias = "Callable[[Context], FollowUp]"


class Observer(Protocol):
    """Hears what happens; the progress display is one."""

    def started(self, cells: list[Cell], seconds: float) -> None: ...
    def doing(self, text: str) -> None: ...
    def finished(self, record: Record) -> None: ...
    def expect(self, seconds: float) -> None: ...
    def warn(self, text: str) -> None: ...


@dataclass
class Outcome:
    """The end of a run."""

    interrupted: bool = False
    out_of_budget: bool = False
    wall_s: float = 0.0
    timed_s: float = 0.0  # the part inside timed calls, without those for energy
    spent_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # by activity
    finished: int = 0  # cells
    left: int = 0  # cells that were planned and not reached
    single: int = 0  # shapes whose A/A controls the budget left out
    note: str = ""  # what NVML did not show, and how to get it
    places: int = 1  # where shapes were measured at once
    stopped: str = ""  # why a cluster could not go on


class Context:
    """A run's plan, where its records go, who watches it, and its workers."""

    def __init__(
        self,
        plan: Plan,
        sink: Sink,
        observer: Observer,
        stop: Callable[[], bool] = lambda: False,
        budget_s: float | None = None,
        missing: Mapping[str, str] | None = None,
        finished: Collection[str] = (),
        follow_ups: Iterable[MakeFollowUp] | None = None,
    ):
        """`missing` names the frameworks that are not installed, with the reason for their cells.

        `finished` are the keys of cells that have a time: nothing but a time may replace it.
        `follow_ups` is by default what the features have behind the door `follow_up`.
        """
        self.plan, self.sink, self.observer, self.stop = plan, sink, observer, stop
        self.missing, self.finished = missing or {}, finished
        self.follow_ups = features.behind("follow_up") if follow_ups is None else follow_ups
        self.started = time.monotonic()
        self.deadline = math.inf if budget_s is None else self.started + budget_s
        self._latest = self.deadline + budget.LATE * (budget_s or 0.0)
        self.outcome = Outcome()
        self.rng = random.Random(plan.settings.seed)
        self.workers = Workers(plan, sink.logs, self.over)
        for row in plan.implementations:
            if row.home in self.missing:
                self.workers.refused[row.worker] = ("missing", self.missing[row.home])
        self.watch = Watch(plan.settings.device)
        self._nested_s = 0.0  # spent by what goes on within an activity, and counted by itself

    def over(self) -> bool:
        """Return whether the run was stopped or its budget is overdrawn: nothing more may begin."""
        return self.stop() or time.monotonic() > self._latest

    @contextlib.contextmanager
    def doing(self, activity: str, cell: Cell, detail: str = "") -> Iterator[None]:
        """Show the observer what is done to which cell, and count the time."""
        control = " (control)" if cell.copy > 1 else ""
        text = f"{cell.shape.label}  {detail or activity} {cell.implementation}{control}"
        self.observer.doing(text)
        start, around = time.monotonic(), self._nested_s
        self._nested_s = 0.0
        try:
            yield
        finally:
            took = time.monotonic() - start
            self.outcome.spent_s[activity] += took - self._nested_s
            self._nested_s = around + took

    def ask(self, measurement: Measurement, verb: str, **arguments: Any) -> Any:
        """Ask the worker that holds a cell."""
        timeout_s, key = self.plan.sampling.timeout_s, measurement.cell.key
        return self.workers.ask(measurement.worker, verb, timeout_s, key=key, **arguments)

    def close(self) -> None:
        self.workers.close()
        self.watch.close()
