"""`torch.profiler`: operators on the host and activities on the GPU."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, record_function

from lstm_bench.model.profile import Activity, Profile, Window
from lstm_bench.worker.operators import CALL, WAIT, Seen, repeat, table
from lstm_bench.worker.session import Session

SOURCE = "torch.profiler"
#: The time between the operators of a call, and behind the last of them on a GPU.
_OUTSIDE = {CALL: "Python", WAIT: "wait"}
_COPIES = {"HtoD": "host to device", "DtoH": "device to host", "DtoD": "device to device"}


def operators(session: Session, calls: int, cuda: bool) -> Profile:
    """The host's operators; kernels are not looked at, so CUPTI stays free for others."""
    profiler = _profiled(session, calls, cuda, [ProfilerActivity.CPU], memory=True)
    return _table(profiler.events(), calls)


def activities(session: Session, calls: int) -> tuple[list[Activity], list[Window]]:
    """The GPU's activities, through the CUPTI that PyTorch brings along."""
    kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    profiler = _profiled(session, calls, True, kinds, memory=False)
    return from_kineto(profiler.profiler.kineto_results.events(), calls)


def _profiled(session: Session, calls: int, cuda: bool, kinds: list[Any], memory: bool) -> Any:
    def call() -> None:
        with record_function(CALL):
            session.call()
            if cuda:
                with record_function(WAIT):
                    session.wait()

    session.wait()
    with torch.profiler.profile(activities=kinds, profile_memory=memory) as profiler:
        repeat(call, calls)
    return profiler


def _table(events: Iterable[Any], calls: int) -> Profile:
    """The operator table of events that know their parents; times are in microseconds."""
    on_host = [e for e in events if e.device_type == DeviceType.CPU and not e.is_async]
    windows = [e.time_range for e in on_host if e.name == CALL][-calls:]
    starts = [window.start for window in windows]
    seen = []
    for event in on_host:
        call = bisect.bisect_right(starts, event.time_range.start) - 1
        if call < 0 or event.time_range.start > windows[call].end or event.name == "[memory]":
            continue
        parent = event.cpu_parent
        while parent is not None and parent.name != event.name:
            parent = parent.cpu_parent
        # A negative size is memory that the operator gave back.
        size = max(event.self_cpu_memory_usage, 0) + max(event.self_device_memory_usage, 0)
        name = _OUTSIDE.get(event.name, event.name)
        own_ns = max(event.self_cpu_time_total, 0.0) * 1e3
        total_ns = 0.0 if parent else event.cpu_time_total * 1e3
        seen.append(Seen(call, name, own_ns, total_ns, size))
    return table(SOURCE, seen, [1e3 * (window.end - window.start) for window in windows])


def from_kineto(events: Iterable[Any], calls: int) -> tuple[list[Activity], list[Window]]:
    """The GPU's events and the launches among all events, and when each call ran."""
    activities: list[Activity] = []
    windows: list[Window] = []
    for event in events:
        start, end = event.start_ns(), event.start_ns() + event.duration_ns()
        if event.name() == CALL and event.device_type() == DeviceType.CPU:
            windows.append((start, end))
            continue
        kind, name = _kind(event)
        if kind:
            size = _bytes(event) if kind != "kernel" else 0
            activities.append(Activity(kind, name, start, end, size, event.correlation_id()))
    windows = sorted(windows)[-calls:]
    return [a for a in activities if windows and a.start_ns >= windows[0][0]], windows


def _kind(event: Any) -> tuple[str, str]:
    """The kind and the name of an activity; no kind: this is none."""
    name = event.name()
    if event.device_type() == DeviceType.CPU:
        launches = re.match(r"cu(da)?(Graph)?Launch", name) and "HostFunc" not in name
        return ("launch", name) if launches else ("", "")
    if name.startswith("Memcpy"):
        return "copy", next((long for short, long in _COPIES.items() if short in name), "copy")
    if name.startswith("Memset"):
        return "fill", "memset"
    # The GPU's row of a trace also holds the ranges of the host, and waits.
    other = event.is_user_annotation() or name in (CALL, WAIT) or name.endswith(" Sync")
    return ("", "") if other else ("kernel", name)


def _bytes(event: Any) -> int:
    """The size of a copy, where this PyTorch records it."""
    size = re.search(r'"bytes": ?(\d+)', getattr(event, "metadata_json", str)())
    return int(size[1]) if size else 0
