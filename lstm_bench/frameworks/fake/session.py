"""No framework at all: plays the script that `fake_script` describes."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lstm_bench.model.fake_script import SCRIPT, WRONG_ANSWERS
from lstm_bench.model.profile import Activity, Part, Profile, Window
from lstm_bench.model.types import CARRIED_CALLS, Implementation, Settings, Unsupported
from lstm_bench.worker import problem as problems
from lstm_bench.worker.problem import Answer, Problem, Weights
from lstm_bench.worker.session import Session
from lstm_bench.worker.timing import ProcessClock

TRAINS = True
OPTIONS = frozenset(SCRIPT)
#: The parts that a profile finds in a call, and their beginning and end in hundredths of it.
PARTS = {"gemm": (10, 60), "lstm_cell": (65, 85), "copy": (90, 100)}

_built = 0


class VirtualClock:
    """Time that passes only when a fake call says so."""

    def __init__(self, cpu: float):
        self.ns, self.switched, self.cpu = 0, 0, cpu

    def now_ns(self) -> int:
        return self.ns

    def cpu_s(self) -> float:
        return self.ns / 1e9 * self.cpu

    def switches(self) -> int:
        return self.switched

    def others_s(self) -> float:
        return 0.0


def describe(settings: Settings) -> dict[str, Any]:
    time.sleep(float(os.environ.get("LSTM_BENCH_FAKE_START_S", 0)))  # a slow import
    return {"versions": {"numpy": np.__version__}, "threads": 1, "tf32": False}


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    global _built
    _built += 1
    script = {**SCRIPT, **row.options}
    if script["hidden"] not in (None, problem.shape.hidden):
        script["fault"] = None
    if "#" not in row.name:  # no A/A control's
        script["copy_offset"] = 0.0
    rng = random.Random(f"{row.name} {_built} {settings.seed}")
    session = FakeSession(problem, script, rng, CARRIED_CALLS if settings.state == "carried" else 1)
    session.strike("build")
    time.sleep(script["build_s"])
    return session


class FakeSession(Session):
    """Answers from the reference, spends scripted time, commits scripted faults."""

    profiler = "fake"
    carries = True

    def __init__(
        self, problem: Problem, script: dict[str, Any], rng: random.Random, followed: int = 1
    ):
        """`followed` is the number of calls that the check follows; see `restart`."""
        self.problem, self.script, self.rng = problem, script, rng
        self.followed, self.calls_since = followed, 0
        self.path, self.memory = "scripted", {"inputs": problem.x.nbytes}
        self.clock = None if script["real"] else VirtualClock(script["cpu"])
        self.products_per_s = 0.0 if self.clock else _products_per_s()
        self.calls = self.blocks = 0
        self.scale = 1 + script["copy_offset"]
        self.scale *= float(os.environ.get("LSTM_BENCH_FAKE_SCALE", 1))  # a slower version
        wrong = script["fault"] if script["fault"] in WRONG_ANSWERS else None
        self.answer = _answer(problems.repeated(problem, followed), wrong)

    def call(self) -> None:
        self.calls += 1
        self.calls_since += 1
        script = self.script
        seconds = script["call_s"] * self.scale * (1 + script["drift"] * self.calls)
        if script["noise"]:
            seconds *= max(0.1, self.rng.gauss(1, script["noise"]))
        if self.calls == 1:
            self.strike("first-call")
            seconds = script["first_call_s"] or seconds
        if self.clock:
            self.clock.ns += int(seconds * 1e9)
            self.clock.switched += script["switches"]
        else:
            _multiply(round(seconds * self.products_per_s))

    def time_each(self, calls: int, clock: Any) -> list[int]:
        if calls > 1:
            self.blocks += 1
            if self.blocks > self.script["after"]:
                self.strike("measure")
        return super().time_each(calls, clock)

    def operators(self, calls: int) -> Profile | None:
        windows = self._profiled(calls)
        if windows is None:
            return None
        wall_s = statistics.median(end - start for start, end in windows) / 1e9
        profile = Profile(self.profiler, "cpu", calls, wall_s=wall_s)
        for name, (start, end) in PARTS.items():
            part_s = (end - start) / 100 * wall_s
            profile.parts.append(Part(name, "operator", 1.0, part_s, total_s=part_s, size=0))
        if self.script["profile"] == "lost":
            profile.parts.pop()
            profile.problem = "scripted: records were lost"
        return profile

    def activities(self, calls: int) -> tuple[list[Activity], list[Window]] | None:
        """Three launches and three kernels a call; it takes no GPU."""
        windows = self._profiled(calls)
        if windows is None:
            return None
        activities: list[Activity] = []
        for opened, closed in windows:
            hundredth = (closed - opened) / 100
            for number, (name, (start, end)) in enumerate(PARTS.items()):
                tie = len(activities) + 1
                launched = opened + int((1 + 3 * number) * hundredth)
                activities.append(Activity("launch", "launch", launched, launched + 1000, 0, tie))
                start_ns, end_ns = opened + int(start * hundredth), opened + int(end * hundredth)
                activities.append(Activity("kernel", name, start_ns, end_ns, 0, tie))
        if self.script["profile"] == "lost":
            activities.pop()
        return activities, windows

    def _profiled(self, calls: int) -> list[Window] | None:
        """Make some calls and return when each ran, unless the script says otherwise."""
        if self.script["profile"] == "none":
            return None
        if self.script["profile"] == "crash":
            raise RuntimeError("scripted: the profiler broke")
        if self.script["profile"] == "hang":
            time.sleep(3600)
        if self.script["profile"] == "die":
            ctypes.string_at(0)
        if self.script["profile"] == "spoil":
            self.answer = (np.full_like(self.answer[0], np.nan), *self.answer[1:])
        now = (self.clock or ProcessClock()).now_ns
        windows = []
        for _ in range(calls):
            start = now()
            self.call()
            windows.append((start, now()))
        return windows

    def outputs(self) -> Answer:
        """The outputs of the last call; the answer holds all that the check follows."""
        if self.followed == 1:
            return self.answer
        output, h, c = self.answer
        steps = self.problem.shape.timesteps
        start = (self.calls_since - 1) % self.followed * steps
        return output[start : start + steps], h, c

    def restart(self) -> None:
        self.calls_since = 0

    def close(self) -> None:
        self.strike("release")

    def strike(self, when: str) -> None:
        """Commit the scripted fault if its time has come."""
        fault = self.script["fault"]
        if fault is None or fault in WRONG_ANSWERS or when != self.script["when"]:
            return
        print(f"fake: about to commit {fault}", flush=True)
        if fault == "segfault":
            ctypes.string_at(0)
        elif fault == "exit":
            os._exit(7)
        elif fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault in ("hang", "stubborn-hang"):
            if fault == "stubborn-hang":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
        elif fault == "oom":
            raise MemoryError("scripted: out of memory")
        elif fault == "unsupported":
            raise Unsupported("scripted: this shape is refused")
        elif fault in ("garbage", "close-pipe", "out-of-order", "no-proper-reply", "huge-reply"):
            _break_pipe(fault)
        elif fault == "eat-memory":
            _eat_memory()
        elif fault == "chatter":  # harmless: whatever a framework prints must not matter
            os.write(1, b"\x00\xff\x1b[31m{}\n" * 1000)
            os.write(2, b'{"id": 1, "status": "ok"}\n' * 1000)
        else:
            raise RuntimeError("scripted: something broke")


def _answer(problem: Problem, wrong: str | None) -> Answer:
    """The right answer in single precision, or the one that a typical mistake would give."""
    *below, last = problem.weights
    if wrong == "swap-gates":  # i and f

        def swapped(w: Any) -> Any:
            i, f, g, o = np.split(w, 4)
            return np.concatenate([f, i, g, o])

        last = Weights(*map(swapped, vars(last).values()))
    elif wrong == "drop-bias":
        last = replace(last, b_hh=np.zeros_like(last.b_hh))
    elif wrong == "transpose":
        last = replace(last, w_hh=np.concatenate([b.T for b in np.split(last.w_hh, 4)]))
    problem = replace(problem, weights=(*below, last))
    output, *others = (v.astype(np.float32) for v in problems.reference(problem))
    if wrong in ("nan", "infinite"):
        output[-1, -1, -1] = np.nan if wrong == "nan" else np.inf
    if wrong == "wrong-shape":
        output = output[:-1]
    return output, *others


def _products_per_s() -> float:
    """Measure how much work a second holds: a fixed amount of it shows noise as a kernel does."""
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < 0.01:
        _multiply(50)
        done += 50
    return done / (time.perf_counter() - start)


def _multiply(products: int) -> None:
    matrix = np.eye(16)
    for _ in range(products):
        matrix = matrix @ matrix


def _break_pipe(how: str) -> None:
    """Write to, or close, the reply pipe behind the worker's back."""
    fd = int(sys.argv[-1])
    if how == "close-pipe":
        os.close(fd)
        time.sleep(3600)
    elif how == "huge-reply":
        while True:  # the driver hangs up long before memory ends
            os.write(fd, b"x" * (1 << 20))
    answers = {
        "garbage": b"this is not a reply\n",
        "out-of-order": b'{"id": 0, "block": {}}\n',
        "no-proper-reply": b"".join(b'{"id": %d}\n' % n for n in range(1, 100)),
    }
    os.write(fd, answers[how])


def _eat_memory() -> None:
    """Allocate until there is no more, under a limit of half a gigabyte over what is used."""
    import resource

    pages = Path("/proc/self/statm").read_text().split()[0]
    used = int(pages) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20), -1))
    try:
        eaten = []
        while True:
            eaten.append(np.ones(16 << 20, dtype=np.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
