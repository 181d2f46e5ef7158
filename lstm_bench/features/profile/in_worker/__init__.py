"""The worker's profiled pass: which profiler is used where.

on a GPU   CUPTI; without it the framework's own profiler, and the profile says so
on a CPU   the framework's own profiler, or the phases that the baseline knows of itself
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lstm_bench.features.profile.in_worker import cupti
from lstm_bench.features.profile.summary import Profiled, summary
from lstm_bench.model.demangle import readable
from lstm_bench.model.profile import Profile
from lstm_bench.model.types import to_json
from lstm_bench.model.units import clipped
from lstm_bench.worker import timing
from lstm_bench.worker.session import Session

if TYPE_CHECKING:
    from lstm_bench.worker.worker import Worker

PASS_S = 0.05  # how long the profiled calls may take, but for FEWEST of them
FEWEST, MOST = 2, 10
ONCE_S = 0.1  # a call that takes so long is made once
EARLY, EARLY_S = 4, 0.02  # calls to be thrown away: so many at most, and for so long


def calls_for(call_s: float) -> int:
    """Besides the one that tells of the launches."""
    if call_s > ONCE_S:
        return 1
    return max(FEWEST, min(MOST, int(PASS_S / max(call_s, 1e-9))))


def early_for(call_s: float) -> int:
    """Calls to be thrown away: on an H200 it takes four until a watched one has its pace."""
    return min(EARLY, int(EARLY_S / max(call_s, 1e-9)))


def profile(session: Session, call_s: float, device: str) -> Profiled:
    """Take one call of the session apart; a profiler that fails is a profile with a problem."""
    calls = calls_for(call_s)
    try:
        if device == "cpu":
            operators = session.operators(calls)
            return Profiled(
                operators or _nothing(device, "no profiler: this one has none of its own")
            )
        try:
            return Profiled(*cupti.collect(session.call, session.wait, calls, early_for(call_s)))
        except cupti.Absent as absent:
            return _by_framework(session, calls, str(absent))
    except Exception as error:  # the times of this cell are taken and must not be lost
        text = str(error).strip().splitlines() or [""]
        return Profiled(_nothing(device, f"the profiler failed: {type(error).__name__}: {text[0]}"))


def _by_framework(session: Session, calls: int, reason: str) -> Profiled:
    traced = session.activities(calls)
    if traced is None:
        return Profiled(_nothing("cuda", reason))
    profile = summary(*traced, session.profiler, readable=readable)
    profile.instead = reason
    return Profiled(profile, *traced)


def _nothing(device: str, problem: str) -> Profile:
    return Profile(source="none", device=device, calls=0, problem=clipped(problem, 300))


def answer(worker: Worker, key: str, trace: bool, operators: bool, depth: bool) -> dict[str, Any]:
    """Profile one prepared session; with `trace` say also when things happened."""
    held = worker.prepared[key]
    with timing.no_collection():  # a hundred thousand records would have it look at all there is
        traced = profile(held.session, held.call_s, "cpu" if operators else worker.settings.device)
        if depth:
            traced.profile.depth = held.session.depth()
    return to_json(traced) if trace else {"profile": to_json(traced.profile)}


REQUESTS = {"profile": answer}
