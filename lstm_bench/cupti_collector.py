"""Kernels, copies, fills and launches through CUPTI, whichever framework started them.

NVIDIA's `cupti-python` runs in the worker. It is attached for one pass and detached after it, so
that no call is timed while anybody listens.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

from lstm_bench.demangle import readable
from lstm_bench.profile import Activity, Profile, Window, summary

REMEDY = "pip install cupti-python, into the interpreter of the framework"
_BUFFER = 32 << 20  # bytes; one holds some hundred thousand records
_COPIES = {1: "host to device", 2: "device to host", 8: "device to device", 10: "peer to peer"}


class Absent(Exception):
    """CUPTI cannot be used here; the message says why and what would help."""


def library() -> Any:
    """NVIDIA's module, or `Absent`."""
    try:
        from cupti import cupti
    except ImportError as error:
        raise Absent(f"no CUPTI ({error}): {REMEDY}") from None
    except Exception as error:  # a library of another CUDA version fails in its own way
        raise Absent(f"CUPTI cannot be loaded: {type(error).__name__}: {error}") from None
    return cupti


def collect(
    call: Callable[[], None], wait: Callable[[], None], calls: int, discard: int = 1
) -> tuple[Profile, list[Activity], list[Window]]:
    """Profile `calls` calls, after some that are thrown away: the first one is instrumented."""
    cupti = library()
    try:
        records, windows, lost = _listen(cupti, call, wait, calls + discard)
    except cupti.cuptiError as error:
        raise Absent(f"CUPTI failed: {error}") from None
    windows = windows[discard:]
    activities = [a for a in records if a.start_ns >= windows[0][0]]
    names = {a.name: readable(a.name) for a in activities if a.kind == "kernel"}
    return summary(activities, windows, "CUPTI", lost, names), activities, windows


def _listen(
    cupti: Any, call: Callable[[], None], wait: Callable[[], None], calls: int
) -> tuple[list[Activity], list[Window], int]:
    """All records of `calls` calls, when each call began and ended, and how many were lost."""
    kinds = cupti.ActivityKind
    on_device = (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)
    launches = {
        **_launches(cupti.runtime_api_trace_cbid, int(kinds.RUNTIME)),
        **_launches(cupti.driver_api_trace_cbid, int(kinds.DRIVER)),
    }
    records: list[Activity] = []
    unreadable = 0

    def completed(batch: Any) -> None:
        """No exception may leave this, and no record may outlive it."""
        nonlocal unreadable
        for record in batch:
            try:
                one = _activity(record, kinds, launches)
            except Exception:
                unreadable += 1
            else:
                if one:
                    records.append(one)

    cupti.activity_register_callbacks(lambda: (_BUFFER, 0), completed)
    windows: list[Window] = []
    try:
        for kind in (*on_device, kinds.RUNTIME):
            cupti.activity_enable(int(kind))
        for kind, number in launches:
            if kind == int(kinds.DRIVER):  # of the runtime's calls none comes alone
                cupti.activity_enable_driver_api(number, 1)
        for _ in range(calls):
            wait()
            start = cupti.get_timestamp()
            call()
            wait()
            windows.append((start, cupti.get_timestamp()))
        cupti.activity_flush_all(1)
        lost = ctypes.c_size_t()
        cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(lost))
    finally:
        cupti.finalize()
    return _outermost(records), windows, lost.value + unreadable


def _launches(numbers: Any, kind: int) -> dict[tuple[int, int], str]:
    """The calls that start work on the device, of the hundreds that there are."""
    found = {}
    for number in numbers:
        match = re.search(r"cu[a-z]*(?:Graph)?Launch[A-Za-z]*", number.name)
        if match and "HostFunc" not in match[0]:
            found[kind, int(number)] = match[0]
    return found


def _outermost(records: list[Activity]) -> list[Activity]:
    """A launch of the runtime may launch through the driver: both have one number, and are one."""
    longest: dict[int, Activity] = {}
    for one in records:
        if one.kind == "launch":
            other = longest.setdefault(one.correlation, one)
            if one.end_ns - one.start_ns > other.end_ns - other.start_ns:
                longest[one.correlation] = one
    return [r for r in records if r.kind != "launch" or longest[r.correlation] is r]


def _activity(record: Any, kinds: Any, launches: dict[tuple[int, int], str]) -> Activity | None:
    kind = int(record.kind)
    name, what, size = "", "", 0
    if kind in (int(kinds.CONCURRENT_KERNEL), int(kinds.KERNEL)):
        what, name = "kernel", record.name
    elif kind == int(kinds.MEMCPY):
        what, name, size = "copy", _COPIES.get(int(record.copy_kind), "copy"), int(record.bytes)
    elif kind == int(kinds.MEMSET):
        what, name, size = "fill", "memset", int(record.bytes)
    elif (kind, int(record.cbid)) in launches:
        what, name = "launch", launches[kind, int(record.cbid)]
    else:
        return None
    return Activity(
        what, name, int(record.start), int(record.end), size, int(record.correlation_id)
    )
