"""Joules per call: what a load draws over an idle GPU, by its energy counter, and its pace.

The counter moves about ten times a second, and the time after a load up to its next move is idle
time. So a worker calls without a pause while the counter is polled, and only moves (ticks) that lie
inside the load count. What is kept is what was measured; joules are derived from it wherever they
are read. `study/notes/energy-repeats.md` says how well that repeats.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import msgspec

from lstm_bench.driver.gpu import Gauge
from lstm_bench.driver.protocol import LONGEST_NS
from lstm_bench.model.types import LEAD_S, WINDOW_S, Energy
from lstm_bench.model.units import counted

IDLE_S = 1.0
FEWEST_TICKS = 3
POLL_S = 0.002  # between two reads, each of which takes some 4 ms
MISSES = 5  # reads without an answer until the counter is given up
PATIENCE_S = 2.0  # for the last read
BLUR_S = 0.03  # reads further apart than this do not tell when the counter moved


class Loaded(msgspec.Struct):
    """A worker's reply to `load`: what it did without a pause."""

    calls: int
    seconds: float

    def __post_init__(self) -> None:
        if not (0 < self.calls < LONGEST_NS and 0 < self.seconds < LONGEST_NS):
            raise ValueError("a load without calls")


REPLIES = {"load": Loaded}


def counter_j(gauge: Gauge) -> float | None:
    """The energy counter, in some 4 ms; it moves about ten times a second."""
    energy_mj = gauge.ask("energy", "nvmlDeviceGetTotalEnergyConsumption")
    return None if energy_mj is None else energy_mj / 1000


@dataclass(frozen=True)
class Tick:
    """The counter moved: about when, and to what."""

    at_s: float
    energy_j: float


class Ticks:
    """Polls the counter in a thread, while it is entered, and keeps the ticks."""

    def __init__(self, gauge: Gauge, now: Callable[[], float] = time.monotonic):
        self.gauge, self.now = gauge, now
        self.ticks: list[Tick] = []
        self.lost = False  # the counter does not answer, several times in a row
        self._missed = 0
        self._energy_j: float | None = None
        self._read_at_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="energy", daemon=True)

    def __enter__(self) -> Ticks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():  # the next to ask would wait as long
            self.lost = True
            self.gauge.give_up()

    def read(self) -> None:
        """Read once. A tick happened between two reads: in the middle, as far as we know."""
        before = self.now()
        energy = counter_j(self.gauge)
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
            self.read()


Watching = Callable[[Gauge], AbstractContextManager[Ticks]]


def measure(
    gauge: Gauge,
    run_load: Callable[[float], Loaded],
    idle_w: float | None = None,
    window_s: float = WINDOW_S,
    watching: Watching = Ticks,
) -> Energy:
    """Power and pace of a load; `run_load` runs it for so many seconds and returns when it ends.

    What `run_load` raises is the caller's. Where there is no counter no load is run.
    """
    if counter_j(gauge) is None:
        return Energy(problem=gauge.reason or "the energy counter does not answer")
    with watching(gauge) as watch:
        asked = watch.now()
        load = run_load(window_s + LEAD_S)
        answered = watch.now()
    if watch.lost:
        return Energy(problem=gauge.reason or "the energy counter stopped answering")
    start = max(asked, answered - load.seconds)
    return of_load(inside(watch.ticks, start, answered), load, idle_w)


def idle_power(
    gauge: Gauge,
    seconds: float = IDLE_S,
    sleep: Callable[[float], None] = time.sleep,
    watching: Watching = Ticks,
) -> float | None:
    """Power of the GPU while nothing runs on it; None if unknown.

    To be read while the workers are alive: a CUDA context alone keeps the clocks up.
    """
    if counter_j(gauge) is None:
        return None
    with watching(gauge) as watch:
        start = watch.now()
        sleep(seconds)
        end = watch.now()
    ticks = inside(watch.ticks, start, end)
    return None if watch.lost or problem_of(ticks) else power(ticks)


def inside(ticks: Sequence[Tick], start_s: float, end_s: float) -> list[Tick]:
    """The ticks that count: within the load, less the first, whose energy may date from before."""
    return [tick for tick in ticks if start_s <= tick.at_s <= end_s][1:]


def problem_of(ticks: Sequence[Tick]) -> str:
    """Why no power comes of these ticks; empty if it does."""
    if len(ticks) < FEWEST_TICKS:
        moved = counted(len(ticks), "time")
        return f"too short to measure: the energy counter moved {moved} in the load"
    if any(b.energy_j <= a.energy_j for a, b in itertools.pairwise(ticks)):
        return "the energy counter went backwards"
    return ""


def power(ticks: Sequence[Tick]) -> float:
    """Watts, as the line through the ticks.

    The energies are exact and the times are not, so time is fitted against energy by least squares.
    With three ticks that is the ends over the time between them; with more it uses what lies
    between, and repeats better than the ends (`experiments/energy_simulation.py`).
    """
    energy = [tick.energy_j for tick in ticks]
    slope, _ = statistics.linear_regression(energy, [tick.at_s for tick in ticks])
    return 1 / slope


def of_load(ticks: Sequence[Tick], load: Loaded, idle_w: float | None) -> Energy:
    """The energy of a load, by the ticks inside it."""
    problem = problem_of(ticks)
    return Energy(
        power_w=None if problem else power(ticks),
        idle_w=idle_w,
        window_s=ticks[-1].at_s - ticks[0].at_s if ticks else 0.0,
        ticks=len(ticks),
        calls=load.calls,
        call_s=load.seconds / load.calls,
        problem=problem,
    )


def together(loads: Sequence[Energy]) -> Energy | None:
    """Several loads of one cell as one: all energy over all time, all time over all calls.

    What the GPU draws when idle is the mean of what was held for each. A load without a power
    counts only if none has one.
    """
    known = [load for load in loads if load.power_w is not None and load.call_s is not None]
    if len(known) < 2:
        return known[0] if known else loads[0] if loads else None
    calls = sum(load.calls for load in known)
    load_w = [load.power_w or 0.0 for load in known]
    load_call_s = [load.call_s or 0.0 for load in known]
    seconds = [load.calls * call_s for load, call_s in zip(known, load_call_s, strict=True)]
    joules = sum(power_w * took_s for power_w, took_s in zip(load_w, seconds, strict=True))
    idle = [load.idle_w for load in known if load.idle_w is not None]
    return Energy(
        power_w=joules / sum(seconds),
        idle_w=statistics.fmean(idle) if idle else None,
        window_s=sum(load.window_s for load in known),
        ticks=sum(load.ticks for load in known),
        calls=calls,
        call_s=sum(seconds) / calls,
        load_w=load_w,
        load_call_s=load_call_s,
    )
