"""Kernels, copies, fills and launches through NVIDIA's CUPTI, whichever framework started them.

libcupti comes with CUDA builds of PyTorch and with `tensorflow[and-cuda]`. It is attached for one
pass and detached after it, so that no call is timed while anybody listens. Records stay in CUPTI's
own layout until the pass is over: a call may launch fifty thousand kernels, and an object for each
record would take longer than the call.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lstm_bench.features.profile.summary import CUPTI, summary
from lstm_bench.model.demangle import readable
from lstm_bench.model.profile import Activity, Profile, Window
from lstm_bench.worker import loaded_libraries

REMEDY = "pip install nvidia-cuda-cupti, of the framework's CUDA, beside the framework"
_BUFFER = 16 << 20  # bytes: about a hundred thousand records

_MEMCPY, _MEMSET, _DRIVER, _RUNTIME, _KERNEL = 1, 2, 4, 5, 10  # kernels, concurrent or not
_ON_DEVICE, _ON_HOST = (_KERNEL, _MEMCPY, _MEMSET), (_DRIVER, _RUNTIME)
_MAX_LIMIT_REACHED = 12  # no record is left
_DOMAIN = {_DRIVER: 1, _RUNTIME: 2}  # of callback names
_COPIES = {1: "host to device", 2: "device to host", 8: "device to device", 10: "peer to peer"}

#: The fields that are read, by their place in the records of CUPTI 12 and 13.
_KIND = struct.Struct("<I")
_TIMES = struct.Struct("<16xQQ")  # start and end of a kernel, a copy, a fill
#: Registers, grid and block, correlation, address of the name.
_KERNEL_REST = struct.Struct("<6xH44x6i16xI8xQ")
_COPY_REST = struct.Struct("<4xB3xQ28xI")  # kind of copy, bytes, correlation
_FILL_REST = struct.Struct("<8xQ28xI")  # bytes, correlation
_CALL = struct.Struct("<4xIQQ8xI")  # callback id, start, end, correlation

_Requested = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_Completed = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


_detached: list[Any] = []  # a callback that comes late must still find its function
_last: list[Any] = []  # and one who writes late his buffer, until the next pass


class Absent(Exception):
    """CUPTI cannot be used here; the message says why and what would help."""


def collect(
    call: Callable[[], None], wait: Callable[[], None], calls: int, discard: int
) -> tuple[Profile, list[Activity], list[Window]]:
    """Profile `calls` calls, after some that are thrown away: the first one is instrumented.

    One more tells of the launches. Recording these slows the host more than all the rest, so the
    device's times are not taken from it.
    """
    listener = Listener(library())
    try:
        windows = listener.hear(call, wait, calls, discard)
        activities = [a for a in listener.activities() if _inside(a, windows)]
        lost = listener.lost()
    finally:
        listener.leave()
    return summary(activities, windows, CUPTI, lost, readable, watched=1), activities, windows


def _inside(activity: Activity, windows: list[Window]) -> bool:
    """True for a call that counts: those before the first or the last were thrown away."""
    thrown_away = windows[-2][1] < activity.start_ns < windows[-1][0]
    return activity.start_ns >= windows[0][0] and not thrown_away


class Listener:
    """One attachment to CUPTI. It keeps its buffers: names in them point into CUPTI."""

    def __init__(self, functions: Any):
        self._cupti = functions
        self._buffers: list[mmap.mmap] = []
        self._filled: list[tuple[int, int]] = []  # address and length, in the order they came
        self._launches: dict[tuple[int, int], str] = {}
        self._names: dict[int, str] = {}
        self._unreadable = 0
        self._callbacks = (_Requested(self._requested), _Completed(self._completed))

    def hear(
        self, call: Callable[[], None], wait: Callable[[], None], calls: int, discard: int
    ) -> list[Window]:
        """Make the calls one by one while CUPTI records, and one with its launches.

        Gives when each began and ended, but for the first ones of either kind.
        """
        windows = []
        self._do("cuptiActivityRegisterCallbacks", *self._callbacks)
        for kinds, times in ((_ON_DEVICE, calls), (_ON_HOST, 1)):
            for kind in kinds:
                self._do("cuptiActivityEnable", kind)
            for number in range(discard + times):
                wait()
                start = self._now()
                call()
                wait()
                if number >= discard:
                    windows.append((start, self._now()))
        self._do("cuptiActivityFlushAll", 1)
        return windows

    def activities(self) -> list[Activity]:
        """All records; of a launch by the runtime through the driver, the outer one."""
        activities = list(self._parsed())
        longest: dict[int, Activity] = {}
        for activity in activities:
            if activity.kind == "launch":
                other = longest.setdefault(activity.correlation, activity)
                if activity.end_ns - activity.start_ns > other.end_ns - other.start_ns:
                    longest[activity.correlation] = activity
        return [a for a in activities if a.kind != "launch" or longest[a.correlation] is a]

    def lost(self) -> int:
        """Records that CUPTI had no room for, or that could not be read."""
        number = ctypes.c_size_t()
        self._do("cuptiActivityGetNumDroppedRecords", None, 0, ctypes.byref(number))
        return number.value + self._unreadable

    def leave(self) -> None:
        """Detach; whatever went wrong before, nothing listens after this."""
        self._cupti.cuptiFinalize()
        _detached.append(self._callbacks)
        _last[:] = self._buffers

    def _requested(self, buffer: Any, size: Any, records: Any) -> None:
        room = mmap.mmap(-1, _BUFFER)  # aligned, and nobody waits while it is filled with zeros
        address = ctypes.addressof(ctypes.c_char.from_buffer(room))
        self._buffers.append(room)
        buffer[0], size[0], records[0] = address, _BUFFER, 0

    def _completed(self, _context: Any, _stream: int, buffer: int, _size: int, valid: int) -> None:
        self._filled.append((buffer, valid))

    def _parsed(self) -> Iterator[Activity]:
        sizes: dict[int, int] = {}  # of the records of each kind, which differ between versions
        for address, valid in self._filled:
            view = memoryview((ctypes.c_char * valid).from_address(address)).cast("B")
            place: int | None = 0 if valid else None
            while place is not None:
                (kind,) = _KIND.unpack_from(view, place)
                if activity := self._activity(kind, view, place):
                    yield activity
                if kind in sizes:
                    place += sizes[kind]
                    place = place if place < valid else None
                else:
                    after = self._after(address, valid, place)
                    if after is not None:
                        sizes[kind] = after - place
                    place = after

    def _after(self, address: int, valid: int, place: int) -> int | None:
        """The place where the next record begins, by CUPTI's word; None at the end."""
        record = ctypes.c_void_p(address + place)
        code = self._cupti.cuptiActivityGetNextRecord(
            ctypes.c_void_p(address), ctypes.c_size_t(valid), ctypes.byref(record)
        )
        self._unreadable += code not in (0, _MAX_LIMIT_REACHED)
        return record.value - address if code == 0 and record.value else None

    def _activity(self, kind: int, view: memoryview, place: int) -> Activity | None:
        if kind in _DOMAIN:
            number, start, end, correlation = _CALL.unpack_from(view, place)
            name = self._launch(kind, number)
            return Activity("launch", name, start, end, 0, correlation) if name else None
        if kind not in _ON_DEVICE:
            return None
        start, end = _TIMES.unpack_from(view, place)
        if kind == _MEMCPY:
            how, size, correlation = _COPY_REST.unpack_from(view, place)
            return Activity("copy", _COPIES.get(how, "copy"), start, end, size, correlation)
        if kind == _MEMSET:
            size, correlation = _FILL_REST.unpack_from(view, place)
            return Activity("fill", "memset", start, end, size, correlation)
        registers, *sizes, correlation, address = _KERNEL_REST.unpack_from(view, place)
        config = (*sizes, registers)
        return Activity("kernel", self._text(address), start, end, 0, correlation, config)

    def _launch(self, kind: int, number: int) -> str:
        """The name of a call if it starts work on the device; of the hundreds few do."""
        if (kind, number) not in self._launches:
            called = ctypes.c_char_p()
            self._cupti.cuptiGetCallbackName(_DOMAIN[kind], number, ctypes.byref(called))
            match = re.match(r"cu[a-z]*(?:Graph)?Launch[A-Za-z]*", (called.value or b"").decode())
            name = match[0] if match and "HostFunc" not in match[0] else ""
            self._launches[kind, number] = name
        return self._launches[kind, number]

    def _text(self, address: int) -> str:
        """A name by its address; CUPTI keeps one copy of each."""
        if address not in self._names:
            raw = ctypes.string_at(address) if address else b""
            self._names[address] = raw.decode(errors="replace")
        return self._names[address]

    def _now(self) -> int:
        time = ctypes.c_uint64()
        self._do("cuptiGetTimestamp", ctypes.byref(time))
        return time.value

    def _do(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cupti, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cupti.cuptiGetResultString(code, ctypes.byref(text))
            raise Absent(f"CUPTI failed: {name}: {(text.value or b'').decode() or code}")


def library() -> Any:
    """libcupti, opened; or `Absent`."""
    path = find()
    try:
        functions = ctypes.CDLL(path)
        functions.cuptiActivityRegisterCallbacks.argtypes = [_Requested, _Completed]
    except (OSError, AttributeError) as error:
        raise Absent(f"no CUPTI ({error}): {REMEDY}") from None
    return functions


def find() -> str:
    """The libcupti that is loaded already, else the newest of the packages, else the system's."""
    if here := loaded_libraries.path("libcupti.so"):
        return here
    patterns = ("nvidia/cu*/lib/libcupti.so.*", "nvidia/cuda_cupti/lib/libcupti.so.*")
    packaged = [str(p) for folder in sys.path for g in patterns for p in Path(folder).glob(g)]
    system = Path("/usr/local/cuda").glob("**/libcupti.so.[0-9]*")
    return max(packaged, key=_version, default="") or str(next(system, "libcupti.so"))


def _version(path: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", path.rpartition(".so")[2])]
