"""Makes a profile of the activities that a profiler saw.

A profiler hands over activities: kernels, copies and fills on the device, launches on the host,
each with its start and its end. `summary` cuts them into calls and adds them up.
"""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lstm_bench.model.profile import Activity, Launch, Part, Profile, Window

CUPTI = "CUPTI"  # as the source of a profile
ON_DEVICE = ("kernel", "copy", "fill")


@dataclass
class Profiled:
    """A worker's reply to `profile`: where the profiler saw it, all that happened in time too."""

    profile: Profile
    activities: list[Activity] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)


def summary(
    activities: Iterable[Activity],
    windows: Sequence[Window],
    source: str,
    lost: int = 0,
    readable: Callable[[str], str] = str,
    watched: int | None = None,
) -> Profile:
    """Sum up the calls of `windows`, one after another; `lost` records make it doubtful.

    `readable` makes a raw name one that a person writes. `watched` is how many of the last calls
    had their launches recorded, all if None; the device's times are of those before.
    """
    activities = list(activities)
    calls: list[list[Activity]] = [[] for _ in windows]
    starts, strays = [start for start, _ in windows], 0
    launched = {a.correlation: a.start_ns for a in activities if a.kind == "launch"}
    for activity in activities:
        # by the host's clock where it is known: the device's is a little off
        at = launched.get(activity.correlation, activity.start_ns)
        place = bisect.bisect_right(starts, at) - 1
        if place >= 0 and at <= windows[place][1]:
            calls[place].append(activity)
        elif activity.kind in ON_DEVICE:
            strays += 1
    heard = len(calls) if watched is None else watched
    calm = len(calls) - heard or len(calls)  # calls whose times are the device's own
    busy, kernel, span = [], [], []
    for call in calls[:calm]:
        intervals = [(a.start_ns, a.end_ns) for a in call if a.kind in ON_DEVICE]
        busy.append(_union(intervals))
        kernel.append(_union([(a.start_ns, a.end_ns) for a in call if a.kind == "kernel"]))
        span.append(
            max((e for _, e in intervals), default=0) - min((s for s, _ in intervals), default=0)
        )
    every = [a for call in calls[:calm] for a in call]
    launches = [a for call in calls for a in call if a.kind == "launch"]
    return Profile(
        source=source,
        device="cuda",
        calls=calm,
        problem=_problem(calls, lost, strays),
        busy_s=_median_s(busy),
        call_busy_s=[ns / 1e9 for ns in busy],
        kernel_s=_median_s(kernel),
        span_s=_median_s(span),
        wall_s=_median_s([b - a for a, b in windows[:calm]]),
        kernels=sum(a.kind == "kernel" for a in every) / max(calm, 1),
        launches=len(launches) / max(heard, 1),
        watched_s=_median_s([b - a for a, b in windows[-heard:]]),
        launch_s=sum(a.end_ns - a.start_ns for a in launches) / max(heard, 1) / 1e9,
        moved_bytes=sum(a.size for a in every if a.kind in ("copy", "fill")) / max(calm, 1),
        parts=_parts(every, max(calm, 1), readable),
    )


def _problem(calls: Sequence[Sequence[Activity]], lost: int, strays: int) -> str:
    """Why the records cannot be the whole truth, if they cannot."""
    if lost:
        return f"the profiler lost {lost} record{'s' * (lost > 1)}"
    counts = [sum(a.kind == "kernel" for a in call) for call in calls]
    if not sum(counts):
        return "the profiler saw no kernel"
    if len(set(counts)) > 1:
        shown = ", ".join(map(str, counts))
        return f"the kernels per call are no whole number ({shown}): records were lost"
    if strays:
        return f"{strays} record{'s' * (strays > 1)} outside of the profiled calls"
    started = {a.correlation for call in calls for a in call if a.kind in ON_DEVICE}
    idle = sum(a.correlation not in started for call in calls for a in call if a.kind == "launch")
    if idle:
        return f"{idle} launch{'es' * (idle > 1)} without a kernel: records were lost"
    return ""


def _parts(every: Sequence[Activity], calls: int, readable: Callable[[str], str]) -> list[Part]:
    groups: dict[tuple[str, str], list[Activity]] = {}
    for activity in every:
        if activity.kind in ON_DEVICE:
            groups.setdefault((activity.kind, activity.name), []).append(activity)
    parts = []
    for (kind, raw), group in groups.items():
        name = readable(raw) if kind == "kernel" else raw
        parts.append(
            Part(
                name=name,
                kind=kind,
                count=len(group) / calls,
                seconds=sum(a.end_ns - a.start_ns for a in group) / calls / 1e9,
                raw=raw if raw != name else "",
                size=sum(a.size for a in group) // calls if kind != "kernel" else None,
                launches=_launches(group, calls),
            )
        )
    return sorted(parts, key=lambda part: -part.seconds)


def _launches(kernels: Sequence[Activity], calls: int) -> list[Launch]:
    """The launches of one kernel by grid, block and registers, the most expensive first."""
    durations: dict[tuple[int, ...], list[int]] = {}
    for kernel in kernels:
        if kernel.config:
            durations.setdefault(kernel.config, []).append(kernel.end_ns - kernel.start_ns)
    launches = [
        Launch((x, y, z), (a, b, c), registers, len(times) / calls, sum(times) / calls / 1e9)
        for (x, y, z, a, b, c, registers), times in durations.items()
    ]
    return sorted(launches, key=lambda launch: -launch.seconds)


def _union(intervals: Sequence[tuple[int, int]]) -> int:
    """Nanoseconds that at least one of the intervals covers."""
    covered, reached = 0, 0
    for start, end in sorted(intervals):
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def _median_s(nanoseconds: Sequence[int]) -> float | None:
    return statistics.median(nanoseconds) / 1e9 if nanoseconds else None
