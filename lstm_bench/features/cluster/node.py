"""A node of a cluster: it is examined, then measures one shape after another."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lstm_bench.driver import driver, machine, machine_lock, preflight, worker_pool
from lstm_bench.driver.context import Context
from lstm_bench.frameworks import framework_of
from lstm_bench.model.types import Cell, LstmBenchError, Record
from lstm_bench.runs import nodes
from lstm_bench.runs.estimate import by_shape
from lstm_bench.runs.plan import Plan
from lstm_bench.runs.store import Finished, MemoryStore


@dataclass
class Examined:
    """A node, and what is wrong with it."""

    machine: dict[str, Any]
    python: str = ""
    interpreters: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # frameworks, with the reason
    faults: list[str] = field(default_factory=list)


def examine(plan: Plan) -> Examined:
    """This machine, and every interpreter that the plan needs on it."""
    if not os.environ.get("CUDA_VISIBLE_DEVICES", "-"):  # a task that asks for no GPU sees none
        del os.environ["CUDA_VISIBLE_DEVICES"]
    here = Examined(machine.fingerprint(), sys.executable)
    rows = {framework_of(row).name: row for row in plan.implementations}
    for name, row in rows.items():
        alone = replace(plan, implementations=(row,))
        try:
            worker_pool.interpreter(name, plan.environments)
            here.interpreters |= preflight.interpreters(alone)
            here.missing |= preflight.missing(alone, skip=True)
        except LstmBenchError as error:
            here.faults.append(str(error))
    return here


@dataclass(frozen=True)
class NodeShare:
    """The part of a node that one agent measures on: all of it, or one of its GPUs."""

    node: str
    number: int = 0
    count: int = 1

    def cores(self, there: Collection[int]) -> set[int]:
        """Its cores, which no other agent of the node has."""
        ordered = sorted(there)
        each = max(1, len(ordered) // self.count)
        return set(ordered[self.number * each :][:each]) or set(ordered)


@dataclass
class ShapeResult:
    """The cells of a shape, and what they took."""

    cells: list[Finished]
    wall_s: float
    timed_s: float
    spent_s: dict[str, float]
    warnings: list[str] = field(default_factory=list)
    note: str = ""


class Agent:
    """Measures on a share of a node; its workers stay from shape to shape."""

    def __init__(self, plan: Plan, share: NodeShare, missing: Mapping[str, str]):
        if share.count > 1:
            os.sched_setaffinity(0, share.cores(os.sched_getaffinity(0)))
        self.plan, self.share = plan, share
        self._open = contextlib.ExitStack()
        logs = self._open.enter_context(tempfile.TemporaryDirectory(prefix="lstm-bench-"))
        self._kept = MemoryStore(Path(logs))
        self._warnings: list[str] = []
        if share.number == 0:  # the others of the node are no strangers
            token = machine_lock.announced(plan.settings.device)
            self._warnings = self._open.enter_context(token)
        self._warnings += _niceness()
        self._machine = {"cpu": machine.cpu_model(), "gpus": machine.gpus()}
        self._context = Context(plan, self._kept, _Silent(), missing=missing)
        self._runner = self._open.enter_context(driver.Runner(self._context))

    def around_run(self) -> tuple[dict[str, Any], list[str]]:
        """Let features measure this machine before a run; the facts, and what they could not."""
        return preflight.around_run(self.plan)

    def measure(
        self, cells: list[Cell], finished: Collection[str], budget_s: float | None
    ) -> ShapeResult:
        """Measure all cells of one shape, pass by pass; see `Context` for `finished`."""
        outcome = self._context.outcome
        started, timed_s, spent = time.monotonic(), outcome.timed_s, dict(outcome.spent_s)
        self._kept.cells.clear()
        self._context.finished = finished
        deadline = math.inf if budget_s is None else started + budget_s
        for (number, shape), group in by_shape(cells).items():
            self._runner.measure(number, shape, group, deadline)
        warnings, self._warnings = self._warnings, []
        for record in self._kept.records:
            nodes.sign(record, self.share.node, self._machine)
        return ShapeResult(
            list(self._kept.cells),
            time.monotonic() - started,
            outcome.timed_s - timed_s,
            {activity: s - spent.get(activity, 0.0) for activity, s in outcome.spent_s.items()},
            warnings,
            self._runner.note,
        )

    def close(self) -> None:
        self._open.close()


def _niceness() -> list[str]:
    """Measure at the priority of any program; Ray starts its processes below that."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    if own <= 0:
        return []
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    except OSError:
        return [f"measures at niceness {own}; start its Ray with RAY_worker_niceness=0"]
    return []


class _Silent:
    """Nobody watches a node: the driver's side shows what returns."""

    def started(self, cells: list[Cell], seconds: float) -> None: ...
    def doing(self, text: str) -> None: ...
    def finished(self, record: Record) -> None: ...
    def expect(self, seconds: float) -> None: ...
    def warn(self, text: str) -> None: ...
