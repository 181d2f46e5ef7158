"""When a cell is warm, how long a block is; the loops that time it.

Pure decisions and short loops; the clock is passed in, so that a test needs no time at all.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import resource
import statistics
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from lstm_bench.model.types import Block, Sampling, WarmUp

if TYPE_CHECKING:
    from lstm_bench.worker.session import Session


class Clock(Protocol):
    """The readings that a block needs."""

    def now_ns(self) -> int: ...
    def cpu_s(self) -> float: ...
    def switches(self) -> int: ...
    def others_s(self) -> float: ...


class ProcessClock:
    """This process's own clocks: monotonic time, CPU time of all threads, involuntary switches."""

    now_ns = staticmethod(time.perf_counter_ns)
    cpu_s = staticmethod(time.process_time)

    @staticmethod
    def switches() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw

    @staticmethod
    def others_s() -> float:
        """CPU time that others have used of this process's cores; it is counted in hundredths."""
        try:
            own = {f"cpu{core}" for core in os.sched_getaffinity(0)}
            with open("/proc/stat") as file:
                busy = sum(_busy(line) for line in file if line.split(" ", 1)[0] in own)
        except (OSError, ValueError, AttributeError):
            return 0.0
        return busy / os.sysconf("SC_CLK_TCK") - time.process_time()


def _busy(line: str) -> int:
    """The time that a core neither idled nor waited, of its line in /proc/stat."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, line.split()[1:9])
    return user + nice + system + irq + softirq + steal


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python from looking for garbage, which takes its time at any moment."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


SETTLED = 0.02  # two half-windows whose medians agree within this are one steady state


def warm_up(session: Session, sampling: Sampling, clock: Clock) -> WarmUp:
    """Call until the time per call is steady, or until the cap.

    The very first call is no guide: it may be all tracing and compilation. One more is always
    made; if that fills the cap by itself, it has warmed what there is to warm.
    """
    start = clock.now_ns()
    samples = session.time_each(1, clock)
    judge_at = sampling.warmup_calls
    while True:
        seconds = (clock.now_ns() - start) / 1e9
        window = samples[len(samples) // 2 :]  # early calls are forgotten
        if len(samples) >= judge_at and len(window) > 1 and seconds >= sampling.warmup_s:
            judge_at = len(samples) * 11 // 10 + 1  # medians of all samples take long
            half = max(1, len(window) // 2)
            early, late = statistics.median(window[:half]), statistics.median(window[half:])
            if abs(late - early) <= SETTLED * early:
                return WarmUp(len(samples), seconds, True, late / 1e9)
        if seconds >= sampling.warmup_cap_s:
            return WarmUp(len(samples), seconds, False, statistics.median(window) / 1e9)
        samples += session.time_each(1, clock)


def calls_per_block(call_s: float, sampling: Sampling, kinds: int = 1) -> int:
    """At least `block_s` and `block_calls`, but no more than a round's share of the cell's cap.

    Nor more than a worker is waited for. `kinds` is 2 where a block has queued calls too.
    """
    wanted = max(sampling.block_calls, math.ceil(sampling.block_s / max(call_s, 1e-9)))
    share_s = min(sampling.cell_s / sampling.rounds / kinds, _patience_s(sampling))
    return max(1, min(wanted, int(share_s / max(call_s, 1e-9))))


def _patience_s(sampling: Sampling) -> float:
    """The time for one kind of calls: a request has those before a block, its own, its queue."""
    return sampling.timeout_s / 3


def block(
    session: Session,
    sampling: Sampling,
    clock: Clock,
    round_number: int,
    call_s: float,
    asynchronous: bool,
) -> Block:
    """One block of latency samples and, where calls can be queued, one of queued calls.

    Where a call returns only when it is done, queueing does not exist: the same calls, end to
    end, are the throughput. Nor does it where a block is one call: waiting for a queue of one is
    what latency is. One more training step has its passes timed apart, where that can be.
    """
    queues = asynchronous or sampling.queued_calls is not None
    calls = calls_per_block(call_s, sampling, kinds=2 if queues else 1)
    affordable = max(1, int(min(sampling.cell_s, _patience_s(sampling)) / max(call_s, 1e-9)))
    queue = min(sampling.queued_calls or calls, affordable) if queues else 1
    settle(session, clock, call_s, calls, sampling.block_s)
    others, switches = clock.others_s(), clock.switches()  # reading these takes CPU time itself
    cpu, start = clock.cpu_s(), clock.now_ns()
    latency = session.time_each(calls, clock)
    queued_calls, queued_ns = calls, clock.now_ns() - start
    if queue > 1:
        queued_calls, queued_ns = queue, session.time_queued(queue, clock)
    timed = Block(
        round=round_number,
        latency_ns=latency,
        queued_ns=queued_ns,
        queued_calls=queued_calls,
        cpu_s=clock.cpu_s() - cpu,
        wall_s=(clock.now_ns() - start) / 1e9,
        switches=clock.switches() - switches,
        others_s=clock.others_s() - others,
    )
    if session.two_passes:
        ((timed.forward_ns, timed.backward_ns),) = session.time_passes(1, clock)
    return timed


SETTLE_S, SLOW_S = 0.005, 0.05


def settle(session: Session, clock: Clock, call_s: float, calls: int, block_s: float) -> None:
    """Untimed calls before a block: other workers had the caches, and an idle core slows down.

    One call, or as many as fill a few milliseconds, but no more than a block; none where a block is
    a single slow call, of which some tenths of a millisecond more are 1%.
    """
    if calls > 1 or call_s <= SLOW_S:
        enough = int(min(SETTLE_S, block_s) / max(call_s, 1e-9))
        session.time_each(max(1, min(calls, enough)), clock)
