"""What happened in the profiled calls, in the trace event format that Perfetto and Chrome open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lstm_bench.model.demangle import readable
from lstm_bench.model.profile import Activity, Window

PROCESS = 1
TRACKS = {"call": "calls", "launch": "host", "kernel": "kernels", "copy": "copies", "fill": "fills"}


def chrome(activities: Iterable[Activity], windows: Sequence[Window], title: str) -> dict[str, Any]:
    """A trace: the calls, the host's launches, and what ran on the device, an arrow to each launch.

    Times are microseconds from the start of the first call. What overlaps on a track goes to a
    further one of the same name; of a graph, the arrow goes to its first kernel.
    """
    seen = sorted(activities, key=lambda one: (one.start_ns, -one.end_ns))
    calls = [Activity("call", f"call {n}", *window) for n, window in enumerate(windows, 1)]
    zero = next((one.start_ns for one in [*calls, *seen]), 0)
    events: list[dict[str, Any]] = [_named("process_name", 0, title)]
    places: dict[int, tuple[int, Activity]] = {}  # of launches, by correlation
    reached: set[int] = set()
    thread = 0
    for kind, track in TRACKS.items():
        of_kind = [one for one in (calls if kind == "call" else seen) if one.kind == kind]
        for number, lane in enumerate(lanes(of_kind), 1):
            thread += 1
            events.append(_named("thread_name", thread, track + (f" {number}" * (number > 1))))
            order = {"name": "thread_sort_index", "ph": "M", "pid": PROCESS, "tid": thread}
            events.append({**order, "args": {"sort_index": thread}})
            for one in lane:
                events.append(_slice(one, thread, zero))
                if kind == "launch":
                    places[one.correlation] = (thread, one)
                elif one.correlation in places and one.correlation not in reached:
                    reached.add(one.correlation)
                    events += _arrow(*places[one.correlation], thread, one, zero)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"title": title}}


def lanes(activities: Sequence[Activity]) -> list[list[Activity]]:
    """Activities in the order of their starts, so that none overlaps another of its lane."""
    found: list[list[Activity]] = []
    for one in activities:
        free = next((lane for lane in found if lane[-1].end_ns <= one.start_ns), None)
        if free is None:
            found.append(free := [])
        free.append(one)
    return found


def _slice(one: Activity, thread: int, zero: int) -> dict[str, Any]:
    """One bar."""
    args: dict[str, Any] = {"correlation": one.correlation} if one.correlation else {}
    if one.size:
        args["bytes"] = one.size
    name = readable(one.name)
    if name != one.name:
        args["raw"] = one.name
    event = {"name": name, "cat": one.kind, "ph": "X", "pid": PROCESS, "tid": thread}
    return {
        **event,
        "ts": _us(one.start_ns, zero),
        "dur": _us(one.end_ns, one.start_ns),
        "args": args,
    }


def _arrow(
    start_thread: int, launch: Activity, end_thread: int, started: Activity, zero: int
) -> list[dict[str, Any]]:
    """From a launch to what it started."""
    flow = {"name": "launch", "cat": "launch", "id": launch.correlation, "pid": PROCESS}
    return [
        {**flow, "ph": "s", "tid": start_thread, "ts": _us(launch.start_ns, zero)},
        {**flow, "ph": "f", "bp": "e", "tid": end_thread, "ts": _us(started.start_ns, zero)},
    ]


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": PROCESS, "tid": thread, "args": {"name": name}}


def _us(end_ns: int, start_ns: int) -> float:
    return (end_ns - start_ns) / 1000
