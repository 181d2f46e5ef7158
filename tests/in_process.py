"""A worker without a process: the same requests and replies, and no start to wait for."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lstm_bench.driver import doctor, worker_pool
from lstm_bench.driver.worker_pool import WorkerFailed, parsed_reply
from lstm_bench.model.types import Settings, dumps
from lstm_bench.worker.worker import Worker, serve


class InProcess:
    """Stands in for a `WorkerProcess` whose start, death, patience and log are no matter."""

    pid = 1 << 30  # nobody's
    hello = None
    number = 0

    def __init__(
        self,
        name: str,
        module: str,
        python: str,
        settings: Settings,
        log: Path,
        shared: Sequence[int] = (),
    ):
        self.name, self.settings, self.log = name, settings, log
        self._worker = Worker(module, settings)
        self._numbers = itertools.count(1)
        self._dead = False

    def ask(
        self, verb: str, timeout_s: float, give_up: Callable[[], bool], **arguments: Any
    ) -> Any:
        if self._dead:
            raise WorkerFailed("crashed", "worker killed by SIGKILL (out of memory?)")
        number, written = next(self._numbers), io.StringIO()
        serve(self._worker, [dumps({"id": number, "do": verb, **arguments})], written)
        return parsed_reply(written.getvalue().encode(), verb, number)

    def kill(self) -> None:
        self._dead = True

    close = kill


def start_no_process() -> None:
    """Have this process answer for all workers and interpreters until it ends."""
    everything = {"python": "3", "missing": [], "versions": {}}
    for holder, name, answer in (
        (worker_pool.Workers, "start", InProcess),
        (worker_pool, "probe", lambda python, framework: everything),
        (doctor, "refusal", lambda python, folder, device: ""),
        (doctor, "clashes", lambda python: []),
    ):
        setattr(holder, name, answer)
