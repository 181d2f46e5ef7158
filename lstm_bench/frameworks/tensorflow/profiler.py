"""TensorFlow's profiler: operators on the host and activities on the GPU.

It writes an XSpace: planes (the host, each GPU) of lines (threads, streams) of events.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from lstm_bench.model.profile import Activity, Profile, Window
from lstm_bench.worker.operators import CALL, WAIT, Seen, repeat, table
from lstm_bench.worker.session import Session

SOURCE = "TensorFlow's profiler"
#: How much of the host is recorded: our own ranges alone, or every operator, however small.
_RANGES, _ALL_OPERATORS = 1, 3
_RUN, _EXECUTOR = "KernelAndDeviceFunc::Run", "ExecutorState::Process"
_ALLOCATION = "MemoryAllocation"
_ONEDNN = re.compile(r"^_Mkl(?:Native)?(\w+)$")  # how TensorFlow calls oneDNN's operators
_COPIES = {"H2D": "host to device", "D2H": "device to host", "D2D": "device to device"}


def operators(session: Session, calls: int, cuda: bool) -> Profile:
    """The host's operators; kernels are not looked at, so CUPTI stays free for others."""
    return operators_in(_profiled(session, calls, cuda, _ALL_OPERATORS, 0), calls)


def activities(session: Session, calls: int) -> tuple[list[Activity], list[Window]]:
    """The GPU's activities, through the CUPTI that TensorFlow brings along."""
    return activities_in(_profiled(session, calls, True, _RANGES, 1), calls)


class _Level:
    """A number without a truth value: TensorFlow 2.21 takes a plain one for a bool and drops it."""

    def __init__(self, value: int):
        self.value = value

    def __index__(self) -> int:
        return self.value


def _profiled(session: Session, calls: int, cuda: bool, host: int, device: int) -> Any:
    """The XSpace of some calls; its file is gone when this returns."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    profiler = tf.profiler.experimental

    def call() -> None:
        with profiler.Trace(CALL):
            session.call()
            if cuda:
                with profiler.Trace(WAIT):
                    session.wait()

    session.wait()
    levels = (_Level(level) for level in (host, 0, device, 0))  # 0: no Python functions, no delay
    with tempfile.TemporaryDirectory(prefix="lstm-bench-") as folder:
        profiler.start(folder, profiler.ProfilerOptions(*levels))
        try:
            repeat(call, calls)
        except BaseException:
            profiler.stop(save=False)
            raise
        profiler.stop()
        space = xplane_pb2.XSpace()
        for file in Path(folder).rglob("*.xplane.pb"):
            space.MergeFromString(file.read_bytes())
        return space


@dataclass
class _Event:
    """One event of a line; picoseconds."""

    name: str
    operator: str  # its type, if it is one
    start: int
    end: int
    plane: Any
    raw: Any
    inside: int = 0  # time of the operators that it calls
    nested: bool = False  # inside of an operator of its type
    size: int | None = None

    def stats(self) -> dict[str, Any]:
        """The further facts of the event, by name."""
        stats, known = {}, self.plane.stat_metadata
        for stat in self.raw.stats:
            value = getattr(stat, stat.WhichOneof("value") or "str_value")
            if stat.WhichOneof("value") == "ref_value":  # texts are kept once, in the plane
                value = known[value].name
            stats[known[stat.metadata_id].name] = value
        return stats


def _lines(space: Any, plane_name: str) -> Iterator[tuple[str, list[_Event]]]:
    """The name and the events of each line of some planes, outer events before inner ones."""
    for plane in space.planes:
        if not plane.name.startswith(plane_name):
            continue
        names = {}
        for number, about in plane.event_metadata.items():
            is_operator = about.display_name and about.name.endswith(":" + about.display_name)
            operator = _ONEDNN.sub(r"\1 (oneDNN)", about.display_name) if is_operator else ""
            names[number] = (about.name, operator)
        for line in plane.lines:
            events = []
            for raw in line.events:
                start = line.timestamp_ns * 1000 + raw.offset_ps
                end = start + raw.duration_ps
                events.append(_Event(*names[raw.metadata_id], start, end, plane, raw))
            yield line.name, sorted(events, key=lambda event: (event.start, -event.end))


def _windows(lines: Iterable[Iterable[_Event]], calls: int) -> list[Window]:
    """When each of the profiled calls ran."""
    return sorted((e.start, e.end) for line in lines for e in line if e.name == CALL)[-calls:]


def operators_in(space: Any, calls: int) -> Profile:
    """The table of an XSpace: operators by type, what the executor does between them, Python."""
    lines = [events for _, events in _lines(space, "/host:CPU")]
    windows = _windows(lines, calls)
    seen: list[Seen] = []
    for call, (start, end) in enumerate(windows):
        threads = [[e for e in events if start <= e.start <= end] for events in lines]
        for events in threads:
            seen += _operators(call, events)
        seen += _around(call, threads, (start, end))
    walls_ns = [(end - start) / 1e3 for start, end in windows]
    busy = sum(any(event.operator for event in events) for events in lines)
    return table(SOURCE, seen, walls_ns, max(busy, 1))


def _around(call: int, threads: Sequence[Sequence[_Event]], whole: Window) -> Iterator[Seen]:
    """The time outside operators: the executor between two of them, and Python around the graph."""
    caller = next(events for events in threads if any(e.name == CALL for e in events))
    away = [(e.start, e.end) for e in caller if e.name in (_RUN, WAIT)]
    python = whole[1] - whole[0] - _covered(away, whole)
    graph = next(((e.start, e.end) for e in caller if e.name == _RUN), whole)
    executor = 0
    for events in threads:
        work = [(e.start, e.end) for e in events if e.operator]
        every = [(e.start, e.end) for e in events if e.operator or e.name == _EXECUTOR]
        executor += _covered(every, graph) - _covered(work, graph)
    yield Seen(call, "Python", python / 1e3, python / 1e3, None)
    yield Seen(call, "executor", executor / 1e3, executor / 1e3, None)


def _operators(call: int, events: Iterable[_Event]) -> Iterator[Seen]:
    """The operators of one thread; those that an operator calls lie inside of it."""
    kept: list[_Event] = []
    opened: list[_Event] = []
    for event in events:
        while opened and opened[-1].end <= event.start:
            opened.pop()
        if opened and event.name == _ALLOCATION:
            size = int(event.stats().get("allocation_bytes", 0))
            opened[-1].size = (opened[-1].size or 0) + size
        if event.operator or event.name == WAIT:
            if opened:
                opened[-1].inside += event.end - event.start
            event.nested = any(outer.operator == event.operator for outer in opened)
            opened.append(event)
            kept.append(event)
    for event in kept:
        total = event.end - event.start
        own = max(total - event.inside, 0)
        total_ns = 0.0 if event.nested else total / 1e3
        yield Seen(call, event.operator or "wait", own / 1e3, total_ns, event.size)


def _covered(intervals: Iterable[Window], within: Window) -> int:
    """The part of `within` that sorted intervals cover."""
    covered, reached = 0, within[0]
    for start, end in intervals:
        end = min(end, within[1])
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def activities_in(space: Any, calls: int) -> tuple[list[Activity], list[Window]]:
    """The GPU's kernels, copies and fills, and the host's launches of them."""
    host = [events for _, events in _lines(space, "/host:")]
    streams = [e for name, e in _lines(space, "/device:GPU:0") if name.startswith("Stream")]
    streamed = [_activity(event) for events in streams for event in events]
    on_device = [activity for activity in streamed if activity]
    kernels = {a.correlation for a in on_device if a.kind == "kernel"}
    launches: dict[int, Activity] = {}
    for event in (event for events in host for event in events):
        tie = int(event.stats().get("correlation_id", 0))
        launching = re.match(r"cu(da)?(Graph)?Launch", event.name) and "HostFunc" not in event.name
        if tie and (launching or tie in kernels):  # the outermost comes first
            launch = Activity("launch", event.name, *_nanoseconds(event), 0, tie)
            launches.setdefault(tie, launch)
    windows = [(start // 1000, end // 1000) for start, end in _windows(host, calls)]
    every = [*launches.values(), *on_device]
    return [a for a in every if windows and a.start_ns >= windows[0][0]], windows


def _activity(event: _Event) -> Activity | None:
    """The activity of an event on a stream; None if it is neither kernel, copy nor fill."""
    stats = event.stats()
    details = {key for key in stats if key.endswith("_details")}
    details_text = stats.get("memcpy_details") or stats.get("memset_details") or ""
    size = re.search(r"\b(?:size|num_bytes):(\d+)", str(details_text))
    if "memcpy_details" in details or event.name.startswith("Memcpy"):
        kind = "copy"
        name = next((long for short, long in _COPIES.items() if short in event.name), "copy")
    elif "memset_details" in details or event.name.startswith("Memset"):
        kind, name = "fill", "memset"
    elif "kernel_details" in details or not details:
        kind, name = "kernel", event.name
    else:
        return None
    tie = int(stats.get("correlation_id", 0))
    return Activity(kind, name, *_nanoseconds(event), int(size[1]) if size else 0, tie)


def _nanoseconds(event: _Event) -> tuple[int, int]:
    return event.start // 1000, event.end // 1000
