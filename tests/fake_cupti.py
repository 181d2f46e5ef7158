"""A stand-in for NVIDIA's `cupti.cupti`, as it behaved on an H200.

Records arrive in one batch when they are flushed, out of order, with mangled names; only what was
enabled is recorded; after `finalize` nothing is registered. A test plays the part of the GPU with
`Gpu.launch`, `Gpu.copy` and so on, and of the trouble with `lose`, `hide` and `refuse`.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
import types


class cuptiError(Exception):  # NVIDIA's spelling
    pass


class ActivityKind(enum.IntEnum):
    MEMCPY = 1
    MEMSET = 2
    KERNEL = 3
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10


class runtime_api_trace_cbid(enum.IntEnum):  # NVIDIA's spelling
    cudaGetDevice_v3020 = 17
    cudaLaunchHostFunc_v10000 = 290
    cudaLaunchKernel_v7000 = 211
    _runtime_api_trace_cbid__cudaLaunchKernel_v13000 = 489
    cudaGraphLaunch_v10000 = 311


class driver_api_trace_cbid(enum.IntEnum):  # NVIDIA's spelling
    cuStreamGetCaptureInfo_v3 = 719
    cuLaunchKernelEx = 652


class Record(types.SimpleNamespace):
    """An activity record: each kind has the attributes that it has, and no others."""


class Gpu:
    """The module's state, a clock, and a device that does as it is told."""

    def __init__(self) -> None:
        self.now = 1_794_728_222_000_000_000
        self.callbacks = None
        self.enabled: set[object] = set()
        self.records: list[Record] = []
        self.numbers = itertools.count(363_294)
        self.asked: set[str] = set()
        self.attached = False
        self.finalized = 0
        self.lose: int = 0  # drop so many records, and say so
        self.hide = lambda record: False  # drop records without a word
        self.refuse = ""  # an error that enabling ends with

    def module(self) -> types.ModuleType:
        found = types.ModuleType("cupti.cupti")
        for name, value in {**globals(), **{n: getattr(self, n) for n in dir(self)}}.items():
            if not name.startswith("_"):
                setattr(found, name, value)
        return found

    # what the collector calls

    def get_timestamp(self) -> int:
        self.now += 300
        return self.now

    def activity_register_callbacks(self, requested, completed) -> None:
        size, records = requested()
        assert size > 0
        assert records == 0
        self.callbacks, self.attached = completed, True

    def activity_enable(self, kind: int) -> None:
        if self.refuse:
            raise cuptiError(self.refuse)
        assert self.attached
        self.enabled.add(ActivityKind(kind))

    def activity_enable_driver_api(self, number: int, on: int) -> None:
        assert on == 1
        self.enabled.add(driver_api_trace_cbid(number))
        self.asked.add(driver_api_trace_cbid(number).name)

    def activity_flush_all(self, flag: int) -> None:
        assert flag == 1
        batch = [r for r in reversed(self.records) if not self.hide(r)]
        self.callbacks(batch[self.lose :])
        self.records.clear()

    def activity_get_num_dropped_records(self, context: int, stream: int, address: int) -> None:
        ctypes.c_size_t.from_address(address).value = self.lose

    def finalize(self) -> None:
        self.enabled.clear()
        self.callbacks, self.attached = None, False
        self.finalized += 1

    # what the device does

    def host(self, number, ns: int, correlation: int) -> None:
        start, self.now = self.now, self.now + ns
        runtime = type(number) is runtime_api_trace_cbid
        kind = ActivityKind.RUNTIME if runtime else ActivityKind.DRIVER
        if kind in self.enabled or number in self.enabled:
            self._seen(kind, start, self.now, correlation, cbid=int(number))

    def launch(self, name: str, ns: int, gap_ns: int = 2000, driver: bool = False) -> None:
        """One kernel, from the call on the host to its end."""
        correlation = next(self.numbers)
        self.host(runtime_api_trace_cbid.cudaGetDevice_v3020, 400, next(self.numbers))
        number = driver_api_trace_cbid.cuLaunchKernelEx
        runtime = runtime_api_trace_cbid.cudaLaunchKernel_v7000
        self.host(number if driver else runtime, 1500, correlation)
        self.kernel(name, ns, gap_ns, correlation)

    def kernel(self, name: str, ns: int, gap_ns: int, correlation: int) -> None:
        start = self.now + gap_ns
        self.now = start + ns
        if ActivityKind.CONCURRENT_KERNEL in self.enabled:
            kind = ActivityKind.CONCURRENT_KERNEL
            self._seen(kind, start, self.now, correlation, name=name)

    def replay(self, kernels: list[tuple[str, int]]) -> None:
        """A CUDA graph: one launch, many kernels that all bear its number."""
        correlation = next(self.numbers)
        self.host(runtime_api_trace_cbid.cudaGraphLaunch_v10000, 8000, correlation)
        for name, ns in kernels:
            self.kernel(name, ns, 500, correlation)

    def copy(self, size: int, ns: int, kind: int = 8) -> None:
        start, self.now = self.now, self.now + ns
        if ActivityKind.MEMCPY in self.enabled:
            number = next(self.numbers)
            self._seen(ActivityKind.MEMCPY, start, self.now, number, bytes=size, copy_kind=kind)

    def fill(self, size: int, ns: int) -> None:
        start, self.now = self.now, self.now + ns
        if ActivityKind.MEMSET in self.enabled:
            number = next(self.numbers)
            self._seen(ActivityKind.MEMSET, start, self.now, number, bytes=size, value=0)

    def _seen(self, kind, start: int, end: int, correlation: int, **more) -> None:
        self.records.append(
            Record(kind=int(kind), start=start, end=end, correlation_id=correlation, **more)
        )
