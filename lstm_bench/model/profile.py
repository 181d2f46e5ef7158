"""The parts of an implementation's calls, by a profiled pass of one cell.

Imports the standard library only: it is known in a worker too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


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
    stacks: int = 0  # samples that went this way
    of: int = 0  # samples that reached a library
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
    depth: CallDepth | None = None  # if asked for, and if the row knows it

    @property
    def gap_s(self) -> float | None:
        """The device waited for the next launch, in the middle of a call."""
        if self.span_s is None or self.busy_s is None:
            return None
        return self.span_s - self.busy_s


Window = tuple[int, int]  # start and end of a call, on the activities' clock
