"""Calls back to back for a given time: the load under which power is read."""

from __future__ import annotations

from dataclasses import dataclass

from lstm_bench.timing import Clock, Timed


@dataclass(frozen=True)
class Load:
    """What a worker did without a pause."""

    calls: int
    seconds: float

    def __post_init__(self) -> None:
        if self.calls < 1 or not 0 < self.seconds < 1e9:
            raise ValueError("a load without calls")


CHUNK_S = 0.02  # queued at a time: the wait at its end costs one launch in so many calls


def back_to_back(session: Timed, seconds: float, call_s: float, clock: Clock) -> Load:
    """Queue calls for at least `seconds`; `call_s` is about what one takes."""
    chunk = max(1, int(min(CHUNK_S, seconds) / max(call_s, 1e-6)))
    start, calls, passed = clock.now_ns(), 0, 0.0
    while not calls or passed < seconds:
        session.time_queued(chunk, clock)
        calls += chunk
        passed = (clock.now_ns() - start) / 1e9
    return Load(calls, passed)
