"""Small plans of fakes and runs of them, workers that misbehave, and what a run leaves."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from conftest import FAKE_GRID
from in_process import InProcess

from lstm_bench.driver import driver
from lstm_bench.driver.context import Context, Outcome
from lstm_bench.driver.worker_pool import WorkerFailed, Workers
from lstm_bench.model.profile import Profile
from lstm_bench.model.types import Block, Cell, Check, Record
from lstm_bench.runs import grid
from lstm_bench.runs.plan import Plan
from lstm_bench.runs.store import MemoryStore


class Quiet:
    """An observer that remembers the texts that it was shown."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def started(self, cells: list[Cell], seconds: float) -> None: ...

    def doing(self, text: str) -> None:
        self.texts.append(text)

    def finished(self, record: Record) -> None: ...

    def expect(self, seconds: float) -> None: ...

    def warn(self, text: str) -> None:
        self.texts.append(text)


class Raw(MemoryStore):
    """A sink that gives blocks and profiles by the keys of their cells."""

    @property
    def blocks(self) -> dict[str, list[Block]]:
        return {record.key: blocks for record, blocks, _ in self.cells}

    @property
    def profiles(self) -> dict[str, Profile | None]:
        return {record.key: profile for record, _, profile in self.cells}

    def row(self, name: str, hidden: int = 3) -> Record:
        """The record of an implementation, not of its controls."""
        (record,) = (
            r
            for r in self.records
            if (r.implementation, r.shape.hidden, r.copy) == (name, hidden, 1)
        )
        return record


def plan_of(device: str = "cpu", **changes: Any) -> Plan:
    """A plan of fakes: the small grid with some keys changed, `sampling` in part."""
    changes["sampling"] = {**FAKE_GRID["sampling"], **changes.get("sampling", {})}
    changes.setdefault("implementations", list(changes.get("fake", {"fake": {}})))
    data = {**FAKE_GRID, **changes, "device": device}
    return grid.plan(data, Path("g.yaml"), device=device, threads=2)


def measure(
    plan: Plan,
    logs: Path,
    observer: Quiet | None = None,
    stop: Callable[[], bool] = lambda: False,
    cells: Iterable[Cell] | None = None,
    **more: Any,
) -> tuple[Outcome, Raw]:
    """Run a plan, or some of its cells."""
    sink = Raw(logs)
    context = Context(plan, sink, observer or Quiet(), stop, **more)
    return driver.run(context, plan.all_cells() if cells is None else list(cells)), sink


def marks(record: Record) -> list[str]:
    """The kinds of a record's warnings."""
    return [text.partition(":")[0] for text in record.warnings]


# workers that die, or answer otherwise


def asked_as(monkeypatch, answer):
    """Have `answer(go, worker, verb, fields)` answer all requests; `go` asks the worker."""
    ask = Workers.ask

    def asking(self, worker, verb, *limit, **fields):
        return answer(lambda: ask(self, worker, verb, *limit, **fields), worker, verb, fields)

    monkeypatch.setattr(Workers, "ask", asking)


def noted(monkeypatch, wanted):
    """The keys of the cells that workers are asked this for, or their names, as it happens."""
    asked = []

    def answer(go, worker, verb, fields):
        if verb == wanted:
            asked.append(fields.get("key", worker.name))
        return go()

    asked_as(monkeypatch, answer)
    return asked


def shoot(worker):
    """Kill it, as the system does when memory is short."""
    if isinstance(worker, InProcess):
        worker.kill()
    else:
        os.kill(worker.pid, signal.SIGKILL)


def kill_when(monkeypatch, fatal, *numbers):
    """Kill the worker when it is asked this for the first, the third, ... time."""
    requests = itertools.count(1)

    def answer(go, worker, verb, fields):
        if verb == fatal and next(requests) in numbers:
            shoot(worker)
        return go()

    asked_as(monkeypatch, answer)


def changed(monkeypatch, wanted, change):
    """Have this done to the replies to a verb."""

    def answer(go, worker, verb, fields):
        reply = go()
        if verb == wanted:
            change(reply)
        return reply

    asked_as(monkeypatch, answer)


def wrong(reply):
    reply.check = Check(0.0, 0.0, 1e-5, False, "output is off")


def cold(reply):
    reply.warm_up = replace(reply.warm_up, settled=False)


def elsewhere(reply):
    reply.path = "another"


def refused(reply):
    raise WorkerFailed("oom", "no room")


# processes and files of a run


def status_of(pid: int) -> list[str]:
    """State, parent, process group, session; nothing for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def handled(pid: int) -> int:
    """The signals for which a process has a handler, a bit each; 0 for one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(lines.partition("SigCgt:")[2].split()[0], 16)


def everybody() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def children(pid: int) -> list[int]:
    return [child for child in everybody() if status_of(child)[1:2] == [str(pid)]]


def gone(pids: Iterable[int]) -> bool:
    """True if all of these, and all that they started, are gone within a few seconds."""
    led = {str(pid) for pid in pids}
    for _ in range(250):
        living = (status for status in map(status_of, everybody()) if status and status[0] != "Z")
        if led.isdisjoint(status[2] for status in living):
            return True
        time.sleep(0.02)
    return False


def whole_lines(run: Path) -> list[bytes]:
    """The records of a run that are written to their end."""
    path = run / "records.jsonl"
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1].splitlines()


def statuses(run: Path) -> dict[tuple[object, ...], str]:
    """How every cell ended; its last record counts."""
    return {
        (r["implementation"], *r["shape"].values(), r["copy"], r["pass_number"]): r["status"]
        for r in map(json.loads, whole_lines(run))
    }


def wait_for_records(run: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a run that was started has its first record."""
    while not whole_lines(run):
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)
