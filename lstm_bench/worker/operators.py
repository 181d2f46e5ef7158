"""The operator table of a profiled pass, whichever profiler saw it."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lstm_bench.model.profile import Part, Profile

#: The names of the ranges around a call and around the wait for it in a trace.
CALL, WAIT = "lstm-bench call", "lstm-bench wait"
LEAST, MOST = 0.5, 1.1  # share of a call's time that operators may account for


@dataclass(frozen=True)
class Seen:
    """One run of an operator in one of the profiled calls."""

    call: int
    name: str
    own_ns: float  # without the operators that it calls
    total_ns: float  # with them; nothing inside of another run of the same operator
    size: int | None  # bytes that it allocated


def repeat(call: Callable[[], None], calls: int) -> list[int]:
    """Make the calls after one that does not count, and return the nanoseconds of each.

    A single call takes so long that it does not show how slow a profiler is at first.
    """
    walls_ns = []
    for _ in range(calls + (calls > 1)):
        start = time.perf_counter_ns()
        call()
        walls_ns.append(time.perf_counter_ns() - start)
    return walls_ns[-calls:]


def table(
    source: str, seen: Sequence[Seen], walls_ns: Sequence[float], threads: int = 1
) -> Profile:
    """The call of median length as a table: its parts are of one call, so they add up.

    `threads` run operators at the same time.
    """
    profile = Profile(source, "cpu", len(walls_ns))
    if not walls_ns:
        profile.problem = "the profiler saw none of the calls"
        return profile
    wall_ns = statistics.median_low(walls_ns)  # the less disturbed one of two
    middle = walls_ns.index(wall_ns)
    parts: dict[str, Part] = {}
    for run in seen:
        if run.call == middle:
            part = parts.setdefault(run.name, Part(run.name, "operator", 0, 0.0, total_s=0.0))
            part.count += 1
            part.seconds += run.own_ns / 1e9
            part.total_s = (part.total_s or 0.0) + run.total_ns / 1e9
            if run.size is not None:
                part.size = (part.size or 0) + run.size
    profile.wall_s = wall_ns / 1e9
    profile.parts = sorted(parts.values(), key=lambda part: -part.seconds)
    profile.problem = _problem(seen, len(walls_ns), profile, threads)
    return profile


def _problem(seen: Sequence[Seen], calls: int, profile: Profile, threads: int) -> str:
    """Say why the table cannot be the whole truth, if it cannot."""
    counts = [Counter(run.name for run in seen if run.call == call) for call in range(calls)]
    for name in sorted({run.name for run in seen}):
        of_calls = [count[name] for count in counts]
        if len(set(of_calls)) > 1:
            shown = ", ".join(map(str, of_calls))
            return f"{name} did not run equally often in every call ({shown}): events were lost"
    wall_s = profile.wall_s or 0.0
    own_s = sum(part.seconds for part in profile.parts)
    if not LEAST * wall_s <= own_s <= MOST * wall_s * threads:
        return f"the operators account for {own_s:.2g} s of a call of {wall_s:.2g} s"
    return ""
