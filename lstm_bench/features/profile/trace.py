"""The profiled calls in the trace event format that Perfetto and Chrome open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lstm_bench.model.demangle import readable
from lstm_bench.model.profile import Activity, Window

TRACKS = {"call": "calls", "launch": "host", "kernel": "kernels", "copy": "copies", "fill": "fills"}


def chrome(activities: Iterable[Activity], windows: Sequence[Window], title: str) -> dict[str, Any]:
    """A trace: the calls, the host's launches, and what ran on the device, an arrow to each launch.

    Times are microseconds from the start of the first call. What overlaps on a track goes to a
    further one of the same name; of a graph, the arrow goes to its first kernel.
    """
    seen = sorted(activities, key=lambda activity: (activity.start_ns, -activity.end_ns))
    calls = [Activity("call", f"call {n}", *window) for n, window in enumerate(windows, 1)]
    zero = next((activity.start_ns for activity in [*calls, *seen]), 0)
    events: list[dict[str, Any]] = []

    def add(phase: str, name: str, thread: int, **more: Any) -> None:
        events.append({"name": name, "ph": phase, "pid": 1, "tid": thread, **more})

    def arrow(phase: str, launch: Activity, thread: int, at: Activity, **more: str) -> None:
        flow = {"cat": "launch", "id": launch.correlation, "ts": (at.start_ns - zero) / 1000}
        add(phase, "launch", thread, **flow, **more)

    add("M", "process_name", 0, args={"name": title})
    places: dict[int, tuple[int, Activity]] = {}  # of launches without an arrow, by correlation
    thread = 0
    for kind, track in TRACKS.items():
        own = [activity for activity in [*calls, *seen] if activity.kind == kind]
        for number, lane in enumerate(lanes(own), 1):
            thread += 1
            label = track + (f" {number}" * (number > 1))
            add("M", "thread_name", thread, args={"name": label})
            add("M", "thread_sort_index", thread, args={"sort_index": thread})
            for activity in lane:
                add("X", readable(activity.name), thread, **_bar(activity, zero))
                if kind == "launch":
                    places[activity.correlation] = (thread, activity)
                elif started := places.pop(activity.correlation, None):
                    arrow("s", started[1], *started)
                    arrow("f", started[1], thread, activity, bp="e")
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"title": title}}


def _bar(activity: Activity, zero: int) -> dict[str, Any]:
    args: dict[str, Any] = {"correlation": activity.correlation, "bytes": activity.size}
    args = {key: value for key, value in args.items() if value}
    if readable(activity.name) != activity.name:
        args["raw"] = activity.name
    start, length = activity.start_ns - zero, activity.end_ns - activity.start_ns
    return {"cat": activity.kind, "ts": start / 1000, "dur": length / 1000, "args": args}


def lanes(activities: Sequence[Activity]) -> list[list[Activity]]:
    """Activities in the order of their starts, so that none overlaps another of its lane."""
    result: list[list[Activity]] = []
    for activity in activities:
        free = next((lane for lane in result if lane[-1].end_ns <= activity.start_ns), None)
        if free is None:
            result.append(free := [])
        free.append(activity)
    return result
