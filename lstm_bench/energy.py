"""Joules per call: power inside a load, by the GPU's energy counter, times the seconds per call.

The counter moves about ten times a second, and the time after a load up to its next move is idle
time. So a worker calls without a pause while the counter is polled, and only moves (ticks) that lie
inside the load count. `docs/energy.md` says how well that repeats.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

WINDOW_S = 0.5  # of ticks that count
LEAD_S = 0.2  # before it: up to a tick until the first one, and that one is dropped
IDLE_S = 1.0
FEWEST_TICKS = 3
TICK_JITTER_S = 0.02  # a tick comes this much early or late
POLL_S = 0.002  # between two reads, each of which takes some 4 ms
MISSES = 5  # reads without an answer until the counter is given up
PATIENCE_S = 2.0  # for the last read
BLUR_S = 0.03  # reads further apart than this do not tell when the counter moved


class Counter(Protocol):
    """What is read; a `telemetry.Gauge` is one."""

    @property
    def reason(self) -> str: ...
    def energy_j(self) -> float | None: ...


class Load(Protocol):
    """What a worker did without a pause; `replies.Loaded` is one."""

    @property
    def calls(self) -> int: ...
    @property
    def seconds(self) -> float: ...


@dataclass(frozen=True)
class Tick:
    """The counter moved: about when, and to what."""

    at_s: float
    energy_j: float


@dataclass
class Energy:
    """What one call takes; None where it could not be measured, and `problem` says why."""

    gross_j: float | None = None
    net_j: float | None = None  # less what the idle GPU would have drawn in that time
    power_w: float | None = None
    idle_w: float | None = None
    window_s: float = 0.0  # from the first tick that counts to the last
    ticks: int = 0
    calls: int = 0
    call_s: float | None = None  # in the same load
    problem: str = ""


class Watch:
    """Polls the counter in a thread, while it is entered, and keeps the ticks."""

    def __init__(self, counter: Counter, now: Callable[[], float] = time.monotonic):
        self.counter, self.now = counter, now
        self.ticks: list[Tick] = []
        self.lost = False  # the counter does not answer, several times in a row
        self._missed = 0
        self._energy_j: float | None = None
        self._read_at_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="energy", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        self.lost = self.lost or self._thread.is_alive()

    def look(self) -> None:
        """Read once. A tick happened between two reads: in the middle, as far as we know."""
        before = self.now()
        energy = self.counter.energy_j()
        at = (before + self.now()) / 2
        if energy is None:
            self._missed += 1
            self.lost = self._missed >= MISSES
            return
        self._missed = 0
        known, gap = self._energy_j is not None, at - self._read_at_s
        if known and energy != self._energy_j and gap <= BLUR_S:
            self.ticks.append(Tick(at - gap / 2, energy))
        self._energy_j, self._read_at_s = energy, at

    def _run(self) -> None:
        while not self.lost and not self._stop.wait(POLL_S):
            self.look()


Watching = Callable[[Counter], AbstractContextManager[Watch]]


def measure(
    counter: Counter,
    run_load: Callable[[float], Load],
    idle_w: float | None = None,
    window_s: float = WINDOW_S,
    now: Callable[[], float] = time.monotonic,
    watching: Watching = Watch,
) -> Energy:
    """Energy per call of a load; `run_load` runs it for so many seconds and returns when it ends.

    What `run_load` raises is the caller's. Where there is no counter no load is run.
    """
    if counter.energy_j() is None:
        return Energy(problem=counter.reason or "the energy counter does not answer")
    with watching(counter) as watch:
        asked = now()
        load = run_load(window_s + LEAD_S)
        answered = now()
    if watch.lost:
        return Energy(problem=counter.reason or "the energy counter stopped answering")
    start = max(asked, answered - load.seconds)
    return per_call(inside(watch.ticks, start, answered), load, idle_w)


def idle_power(
    counter: Counter,
    seconds: float = IDLE_S,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
    watching: Watching = Watch,
) -> float | None:
    """What the GPU draws while nothing runs on it; None if that cannot be told.

    To be read while the workers are alive: a CUDA context alone keeps the clocks up.
    """
    if counter.energy_j() is None:
        return None
    with watching(counter) as watch:
        start = now()
        sleep(seconds)
        end = now()
    ticks = inside(watch.ticks, start, end)
    return None if watch.lost or problem_of(ticks) else power(ticks)


def inside(ticks: Sequence[Tick], start_s: float, end_s: float) -> list[Tick]:
    """The ticks that count: within the load, less the first, whose energy may date from before."""
    return [tick for tick in ticks if start_s <= tick.at_s <= end_s][1:]


def problem_of(ticks: Sequence[Tick]) -> str:
    """Why no power comes of these ticks; empty if it does."""
    if len(ticks) < FEWEST_TICKS:
        return f"too short to measure: the energy counter moved {len(ticks)} times in the load"
    if any(b.energy_j <= a.energy_j for a, b in itertools.pairwise(ticks)):
        return "the energy counter went backwards"
    return ""


def power(ticks: Sequence[Tick]) -> float:
    """Watts, as the line through the ticks.

    The energies are exact and the times are not, so time is fitted against energy by least squares.
    With three ticks that is the ends over the time between them; with more it uses what lies
    between, and repeats better than the ends (`benchmarks/energy_simulation.py`).
    """
    energy = [tick.energy_j for tick in ticks]
    slope, _ = statistics.linear_regression(energy, [tick.at_s for tick in ticks])
    return 1 / slope


def per_call(ticks: Sequence[Tick], load: Load, idle_w: float | None) -> Energy:
    """Energy per call by the ticks inside a load."""
    call_s = load.seconds / load.calls
    found = Energy(
        idle_w=idle_w,
        window_s=ticks[-1].at_s - ticks[0].at_s if ticks else 0.0,
        ticks=len(ticks),
        calls=load.calls,
        call_s=call_s,
        problem=problem_of(ticks),
    )
    if found.problem:
        return found
    found.power_w = power(ticks)
    found.gross_j = found.power_w * call_s
    if idle_w is None:
        found.problem = "no net energy: idle power is not known"
        return found
    net_w, resolved_w = found.power_w - idle_w, found.power_w * TICK_JITTER_S / found.window_s
    if net_w <= resolved_w:
        found.problem = (
            f"too short to measure: {net_w:.0f} W over idle, less than the {resolved_w:.0f} W that"
            f" {found.window_s:.1f} s resolve"
        )
        return found
    found.net_j = net_w * call_s
    return found
