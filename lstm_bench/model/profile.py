"""What a profiled pass says about one cell, and how that is made of what happened.

A profiler hands over activities: kernels, copies and fills on the device, launches on the host,
each with its start and its end. `summary` cuts them into calls and adds them up. Imports the
standard library only: it runs in a worker.
"""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

CUPTI = "CUPTI"  # as the source of a profile
ON_DEVICE = ("kernel", "copy", "fill")


class Activity(NamedTuple):
    """One thing that a profiler saw; the clock may start anywhere, but is one for all."""

    kind: str  # "kernel", "copy", "fill" on the device; "launch" on the host
    name: str
    start_ns: int
    end_ns: int
    size: int = 0  # bytes that were moved or filled
    correlation: int = 0  # ties what a launch starts on the device to it
    config: tuple[int, ...] = ()  # of a kernel, by CUPTI: grid, block (three each), registers


@dataclass
class Launch:
    """A way in which a kernel is launched, and what a call of the layer spends in it."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int  # of each thread
    count: float
    seconds: float


@dataclass
class Part:
    """All activities or operators of one name; figures are per call of the layer."""

    name: str  # as a person writes it
    kind: str  # "kernel", "copy", "fill"; "operator" or "phase" on a CPU
    count: float
    seconds: float  # its own, without what it calls
    raw: str = ""  # as the profiler gave it, where that is not the name
    total_s: float | None = None  # operators: with what they call
    size: int | None = None  # bytes moved; of operators: allocated
    launches: list[Launch] = field(default_factory=list)  # of a kernel, where CUPTI saw it


class Frame(NamedTuple):
    """One function on the way from the caller's call into the library."""

    level: str  # "Python", "binding", "C++ API", "TorchScript", "dispatcher", "ATen", "library"
    name: str


@dataclass
class CallDepth:
    """The way of calls into the library, outermost frame first; the last is the library's."""

    frames: list[Frame] = field(default_factory=list)
    stacks: int = 0  # that went this way
    of: int = 0  # that had reached a library
    problem: str = ""  # why there are no frames


@dataclass
class Profile:
    """A profiled pass of one cell; times are seconds per call, medians over the profiled calls.

    Profiling slows the host: `busy_s` is the device's own and holds, `span_s` and `wall_s` are
    those of the profiled calls.
    """

    source: str  # CUPTI, "torch.profiler", "TensorFlow's profiler", "baseline", ...
    device: str
    calls: int
    problem: str = ""  # why this must not be taken for the truth; empty: it may
    instead: str = ""  # why it is this source and not CUPTI, on a GPU
    busy_s: float | None = None  # something ran on the device: the union of all intervals
    call_busy_s: list[float] = field(default_factory=list)  # of each profiled call
    kernel_s: float | None = None  # a kernel ran; the rest of `busy_s` is copies and fills
    span_s: float | None = None  # from the first start to the last end
    wall_s: float | None = None  # what the caller waited
    kernels: float = 0.0
    launches: float = 0.0
    launch_s: float = 0.0  # on the host, inside the calls that launch
    watched_s: float | None = None  # what the caller waited when launches were recorded
    moved_bytes: float = 0.0  # by copies and fills
    parts: list[Part] = field(default_factory=list)  # the most expensive first
    depth: CallDepth | None = None  # where it was asked for, of rows that know

    @property
    def gap_s(self) -> float | None:
        """The device waited for the next launch, in the middle of a call."""
        if self.span_s is None or self.busy_s is None:
            return None
        return self.span_s - self.busy_s


Window = tuple[int, int]  # start and end of a call, on the activities' clock


def summary(
    activities: Iterable[Activity],
    windows: Sequence[Window],
    source: str,
    lost: int = 0,
    readable: Callable[[str], str] = str,
    watched: int | None = None,
) -> Profile:
    """What the calls of `windows`, one after another, did; `lost` records make it doubtful.

    `readable` makes a raw name one that a person writes. `watched` is how many of the last calls
    had their launches recorded, all if None; the device's times are of those before.
    """
    activities = list(activities)
    calls: list[list[Activity]] = [[] for _ in windows]
    starts, strays = [start for start, _ in windows], 0
    launched = {a.correlation: a.start_ns for a in activities if a.kind == "launch"}
    for one in activities:
        # by the host's clock where it is known: the device's is a little off
        at = launched.get(one.correlation, one.start_ns)
        place = bisect.bisect_right(starts, at) - 1
        if place >= 0 and at <= windows[place][1]:
            calls[place].append(one)
        elif one.kind in ON_DEVICE:
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
    found: dict[tuple[str, str], list[Activity]] = {}
    for one in every:
        if one.kind in ON_DEVICE:
            found.setdefault((one.kind, one.name), []).append(one)
    parts = []
    for (kind, raw), group in found.items():
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
    found: dict[tuple[int, ...], list[int]] = {}
    for one in kernels:
        if one.config:
            found.setdefault(one.config, []).append(one.end_ns - one.start_ns)
    launches = [
        Launch((x, y, z), (a, b, c), registers, len(times) / calls, sum(times) / calls / 1e9)
        for (x, y, z, a, b, c, registers), times in found.items()
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
