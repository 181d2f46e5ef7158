"""The worker processes of a run: started when needed, asked, forgotten when they die."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from lstm_bench import supervisor
from lstm_bench.model.registry import framework_of
from lstm_bench.model.types import Shape
from lstm_bench.replies import Failure, Hello
from lstm_bench.runs.plan import Plan
from lstm_bench.supervisor import WorkerFailed, WorkerProcess

START_TIMEOUT_S = 180.0  # importing a framework from a cold disk
MAX_STARTS = 2  # of a worker that dies before it can say hello


class Shelf:
    """Where references lie, by kind of work, and of which shape they are; see `reference_cache`."""

    def __init__(self, kinds: set[str]):
        self.fds = {kind: os.memfd_create("lstm-bench-reference") for kind in sorted(kinds)}
        self._filled: dict[str, Shape] = {}

    def place(self, kind: str, shape: Shape) -> dict[str, Any]:
        """What a worker is told: where, and whether it is already there."""
        filled = self._filled.get(kind) == shape
        if not filled:
            self._filled.pop(kind, None)  # what is laid down next may be cut short
        return {"shelf": self.fds[kind], "filled": filled}

    def filled(self, kind: str, shape: Shape) -> None:
        self._filled[kind] = shape

    def close(self) -> None:
        for fd in self.fds.values():
            os.close(fd)
        self.fds = {}


class Workers:
    """At most one process of each name; see `Implementation.worker`."""

    start: ClassVar[type[WorkerProcess]] = WorkerProcess  # tests have one without a process

    def __init__(self, plan: Plan, logs: Path, stop: Callable[[], bool]):
        self.plan, self.logs, self.stop = plan, logs, stop
        self.shelf = Shelf({row.computes for row in plan.implementations})
        self.hellos: dict[str, Hello] = {}  # what each said of itself
        self.refused: dict[str, tuple[str, str]] = {}  # those that cannot run here, and why
        self._alive: dict[str, WorkerProcess] = {}
        self._failed_starts: Counter[str] = Counter()
        self._started = 0

    def get(self, name: str) -> WorkerProcess:
        """The worker of this name, started and greeted if it is not there."""
        if name in self.refused:
            raise WorkerFailed(*self.refused[name])
        if name not in self._alive:
            row = next(r for r in self.plan.implementations if r.worker == name)
            settings = row.settings_in(self.plan.settings)
            python = supervisor.interpreter(row.framework, self.plan.environments)
            self._started += 1
            log = self.logs / f"{framework_of(row).name}-{self._started}.log"
            try:
                shared = list(self.shelf.fds.values())
                worker = self.start(name, row.module, python, settings, log, shared)
                self._alive[name] = worker
                hello = self.ask(worker, "hello", START_TIMEOUT_S)
            except WorkerFailed as failed:
                if name in self._alive:
                    self.drop(self._alive[name])
                if failed.status == "interrupted":
                    raise
                self._failed_starts[name] += 1
                if failed.status == "unsupported" or self._failed_starts[name] >= MAX_STARTS:
                    self.refused[name] = (failed.status, failed.reason)
                raise
            self._failed_starts[name] = 0
            self.hellos[name] = hello
        return self._alive[name]

    def alive(self, worker: WorkerProcess) -> bool:
        """Whether this very process is still there, and not a new one of its name."""
        return self._alive.get(worker.name) is worker

    def ask(self, worker: WorkerProcess, verb: str, timeout_s: float, **arguments: Any) -> Any:
        """Ask; a worker that dies is forgotten, and the next cell starts a new one."""
        # a block is waited for even when stopping: it is short, and it counts
        give_up = (lambda: False) if verb == "measure" else self.stop
        try:
            reply = worker.ask(verb, timeout_s, give_up, **arguments)
        except WorkerFailed:
            self.drop(worker)
            raise
        if isinstance(reply, Failure):
            if reply.status == "crashed" and worker.settings.device == "cuda":
                self.drop(worker)  # an error may have taken the CUDA context with it
            raise WorkerFailed(reply.status, reply.reason)
        return reply

    def drop(self, worker: WorkerProcess) -> None:
        """End one now."""
        worker.kill()
        if self.alive(worker):
            del self._alive[worker.name]

    def end(self) -> None:
        """Let all of them go; the next `get` starts a fresh one."""
        for worker in list(self._alive.values()):
            worker.close()
        self._alive.clear()

    def close(self) -> None:
        self.end()
        self.shelf.close()
