"""The types that the driver and its workers share, and their JSON form.

This file needs the standard library only: a worker runs under any interpreter that has its
framework. Times are in seconds, with the unit in the field's name; raw samples are in whole
nanoseconds.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lstm_bench.model.errors import LstmBenchError as LstmBenchError
from lstm_bench.model.errors import Stopped as Stopped
from lstm_bench.model.errors import Unsupported as Unsupported
from lstm_bench.model.shape import Shape as Shape

T = TypeVar("T")

#: `--resume` measures these again: cells that were cut short, or whose framework was missing.
#: All other statuses are final: ok, unsupported, wrong, oom, timeout, crashed.
UNFINISHED = ("interrupted", "missing")
#: Failures that another attempt may cure; `--retry-failed` measures them again.
RETRYABLE = ("oom", "timeout", "crashed")

#: The largest |output - reference| that each precision may have, relative to the reference where
#: that exceeds one.
TOLERANCES = {
    "fp32": 5e-5,
    "tf32": 1e-2,
    "fp16": 1e-2,
    "amp-fp16": 1e-2,
    "bf16": 6e-2,
    "amp-bf16": 6e-2,
    "int8": 1e-1,
}

#: The accuracy class of each precision: rows of one class may be compared.
ACCURACY = {
    "fp32": "fp32",
    "tf32": "tf32",
    "fp16": "half",
    "amp-fp16": "half",
    "bf16": "half",
    "amp-bf16": "half",
    "amp": "half",
    "int8": "int8",
}


#: Where x comes from in a call and y goes to: see `inputs` in docs/explanation/method.md.
INPUTS = ("device", "pinned", "pageable")

#: Calls that the check follows when state is carried.
CARRIED_CALLS = 16

#: A cell with fewer has no verdict; a budget or an interruption leaves at least so many.
FEWEST_ROUNDS = 3

UNSEEN_GPU = "a GPU that NVML does not show"


@dataclass(frozen=True)
class Implementation:
    """One way to run the layer: a row of the registry."""

    name: str
    framework: str
    precision: str  # a key of TOLERANCES, or "amp"; `precision_on` says what it means in a run
    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    computes: str = "lstm"  # or "lstm-skip-input", which has a reference of its own
    devices: tuple[str, ...] = ("cpu", "cuda")
    note: str = ""
    threads: int = 0  # this row runs on the CPU with so many; 0: as the run says
    default_on: tuple[str, ...] = ()  # devices where this is the framework's default
    version: str = ""  # another version of the framework by this name, in its own interpreter

    @property
    def home(self) -> str:
        """The name of its interpreter: the framework, or another version as `pytorch~other`."""
        return f"{self.framework}~{self.version}" if self.version else self.framework

    @property
    def original(self) -> str:
        """The name of the same row in the framework's first version."""
        return self.name.replace(f"~{self.version}", "", 1) if self.version else self.name

    @property
    def worker(self) -> str:
        """The name of its process: threads and TF32 are settings of a whole process."""
        name = self.home + ("+tf32" if self.precision == "tf32" else "")
        return f"{name}@{self.threads}" if self.threads else name

    def settings_in(self, run: Settings) -> Settings:
        """The settings of this row in a run."""
        if self.precision == "tf32":
            run = dataclasses.replace(run, tf32=True)
        if self.threads:
            run = dataclasses.replace(run, device="cpu", threads=self.threads)
        if run.device == "cpu" and run.inputs != "device":  # x is in the memory of its device
            run = dataclasses.replace(run, inputs="device")
        return run

    def precision_on(self, run: Settings) -> str:
        """The precision of this row under a run's settings."""
        settings = self.settings_in(run)
        if self.precision == "amp" and settings.amp == "auto":
            return "amp-fp16" if settings.device == "cuda" else "amp"  # on a CPU a call decides
        if self.precision == "amp":
            return f"amp-{settings.amp}"
        if self.precision == "fp32" and settings.tf32 and settings.device == "cuda":
            return "tf32"
        return self.precision


@dataclass(frozen=True)
class Sampling:
    """The extent of measuring; `docs/explanation/method.md` gives the reasons."""

    rounds: int = 10
    max_rounds: int = 30
    block_s: float = 0.02
    block_calls: int = 5
    warmup_s: float = 0.05
    warmup_calls: int = 5
    warmup_cap_s: float = 5.0
    converged: float = 0.01
    cell_s: float = 30.0
    timeout_s: float = 120.0
    queued_calls: int | None = None
    loads: int = 4  # a single one has no spread


@dataclass(frozen=True)
class Settings:
    """The settings that all implementations of a run obey."""

    device: str = "cpu"
    threads: int = 1
    tf32: bool = False
    amp: str = "auto"  # or "fp16", "bf16": what AMP casts to
    seed: int = 1
    state: str = "fixed"  # or "carried": each call starts from the last state of the call before
    inputs: str = "device"  # one of INPUTS

    @property
    def notes(self) -> list[str]:
        """Settings of the calls that are not at their default, for readers."""
        notes = ["state carried from call to call"] if self.state == "carried" else []
        if self.device != "cpu" and self.inputs != "device":
            notes.append(f"x and y in {self.inputs} host memory")
        return notes


@dataclass(frozen=True)
class Cell:
    """One implementation at one shape in one pass.

    `copy` above 1 is an A/A control: the same implementation built again, in another process.
    """

    implementation: str
    shape: Shape
    pass_number: int = 1
    copy: int = 1

    @property
    def key(self) -> str:
        copy = f"#{self.copy}" if self.copy > 1 else ""
        return f"{self.implementation}{copy}/{self.shape.key}/p{self.pass_number}"


@dataclass(frozen=True)
class Check:
    """One output compared with the float64 reference."""

    max_abs_error: float | None  # None: not finite
    max_rel_error: float | None
    tolerance: float
    passed: bool
    reason: str = ""


@dataclass(frozen=True)
class WarmUp:
    """The end of a warm-up; `call_s` is the time of a call at its end."""

    calls: int
    seconds: float
    settled: bool
    call_s: float


@dataclass
class Block:
    """The calls of an implementation in one round, and what else the machine did meanwhile."""

    round: int
    latency_ns: list[int]
    queued_ns: int
    queued_calls: int
    cpu_s: float
    wall_s: float
    switches: int
    others_s: float = 0.0  # CPU time of all other processes meanwhile
    forward_ns: int = 0  # of the passes of one training step; 0: not timed apart
    backward_ns: int = 0
    disturbed: bool = False
    sm_mhz: float | None = None  # on a GPU, by NVML
    power_w: float | None = None
    temperature_c: int | None = None


@dataclass
class Telemetry:
    """A summary of a GPU's readings."""

    readings: int = 0
    sm_mhz: float | None = None  # median
    lowest_sm_mhz: int | None = None
    memory_mhz: float | None = None  # median
    temperature_c: int | None = None  # highest
    power_w: float | None = None  # mean
    utilisation: float | None = None  # mean
    memory_used_bytes: int | None = None  # highest
    throttled: list[str] = field(default_factory=list)  # every reason


WINDOW_S = 0.5  # the part of a load for energy whose ticks count
LEAD_S = 0.2  # before it, at most a tick passes, which does not count
TICK_JITTER_S = 0.02  # the energy counter moves (ticks) this much early or late


@dataclass
class Energy:
    """The energy of a load; without `power_w` nothing is known, and `problem` says why."""

    power_w: float | None = None
    idle_w: float | None = None
    window_s: float = 0.0  # from the first to the last tick that counts
    ticks: int = 0
    calls: int = 0
    call_s: float | None = None
    problem: str = ""
    load_w: list[float] = field(default_factory=list)  # of each load, where there were several
    load_call_s: list[float] = field(default_factory=list)

    @property
    def net_j(self) -> float | None:
        """The energy of a call above that of an idle GPU."""
        if self.power_w is None or self.idle_w is None or self.call_s is None:
            return None
        return (self.power_w - self.idle_w) * self.call_s

    def gross_j(self, time_s: float) -> float | None:
        """The energy of a call that takes so long, idle power included."""
        if self.power_w is None:
            return None
        net = self.net_j
        if self.idle_w is None or net is None:
            return self.power_w * time_s
        return net + self.idle_w * time_s

    @property
    def load_j(self) -> list[float]:
        """The net energy of each load, gross if idle power is not known."""
        both = zip(self.load_w, self.load_call_s, strict=False)
        return [(power_w - (self.idle_w or 0.0)) * call_s for power_w, call_s in both]

    @property
    def net_uncertainty(self) -> float:
        """The uncertainty of the power over idle that the window leaves, as a share of it.

        Each load has its own first and last tick: their jitters are independent.
        """
        if self.power_w is None or self.idle_w is None:
            return math.inf
        net_w = self.power_w - self.idle_w
        if net_w <= 0 or self.window_s <= 0:
            return math.inf
        jitter_s = TICK_JITTER_S * math.sqrt(max(1, len(self.load_w)))
        return self.power_w * jitter_s / self.window_s / net_w


@dataclass
class Record:
    """All that is known of a cell, except its raw samples.

    This is the one description of a record: its JSON is a line of `records.jsonl`, and its texts,
    numbers and lists are the columns of a frame. `docs/reference/records.md` says what they mean.
    """

    implementation: str
    shape: Shape
    pass_number: int
    copy: int
    status: str
    reason: str = ""
    framework: str = ""
    computes: str = "lstm"
    precision: str = ""
    device: str = ""
    threads: int = 0
    tf32: bool = False
    path: str = ""
    latency_s: float | None = None
    latency_interval_s: list[float] | None = None
    throughput_s: float | None = None
    device_s: float | None = None
    forward_s: float | None = None  # of a training step whose passes can be timed apart
    backward_s: float | None = None
    first_call_s: float | None = None
    build_s: float | None = None
    import_s: float | None = None  # in a new process
    rounds: int = 0
    calls: int = 0
    round_latency_s: list[float] = field(default_factory=list)
    round_throughput_s: list[float] = field(default_factory=list)
    round_device_s: list[float] = field(default_factory=list)
    cpu_over_wall: float | None = None
    switches_per_s: float | None = None
    others_over_wall: float | None = None
    outliers: int = 0
    timed_s: float = 0.0
    check: Check | None = None
    memory: dict[str, int] = field(default_factory=dict)
    gpu: Telemetry | None = None  # while it was timed
    energy: Energy | None = None
    versions: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    group: str = ""  # the cells of a group were measured interleaved
    process: int = 0  # the number of its worker, from 1 in each session; 0: not known
    finished_at: str = ""
    node: str = ""  # of a cluster or of a shard's job; empty: the run's own machine
    device_name: str = ""  # the GPU or the processor of that node
    driver: str = ""  # of that GPU

    @property
    def cell(self) -> Cell:
        return Cell(self.implementation, self.shape, self.pass_number, self.copy)

    @property
    def key(self) -> str:
        return self.cell.key

    @property
    def gross_j(self) -> float | None:
        """The energy of a call at the pace at which the cell was timed, idle power included."""
        if not self.energy or not self.throughput_s:
            return None
        gross = self.energy.gross_j(self.throughput_s)
        return gross if gross and gross > 0 else None


def kinds(warnings: Sequence[str]) -> list[str]:
    """The kinds of a cell's warnings that a reader may act on, each once.

    "not converged" is not among them: the interval beside the time says more.
    """
    every = dict.fromkeys(warning.split(":")[0] for warning in warnings)
    return [kind for kind in every if kind != "not converged"]


def kinds_of(warnings: Iterable[Sequence[str]]) -> list[tuple[str, int]]:
    """The number of cells with each kind of warning, the most frequent first."""
    counts: Counter[str] = Counter()
    for same, cells in Counter(map(tuple, warnings)).items():  # most have the same
        for kind in kinds(same):
            counts[kind] += cells
    return counts.most_common()


SAME_ENERGY = 0.05  # two measurements on a GPU may differ by so much


def unlike_idle_w(records: Iterable[Record]) -> dict[tuple[int, Shape], tuple[float, float]]:
    """The least and the largest idle power at each shape where they differ too much.

    The GPU was another one, or much warmer: energy cannot be compared there.
    """
    idle: dict[tuple[int, Shape], list[float]] = {}
    for record in records:
        if record.gross_j and record.energy and record.energy.idle_w:
            watts = idle.setdefault((record.pass_number, record.shape), [])
            watts.append(record.energy.idle_w)
    ends = {at: (min(watts), max(watts)) for at, watts in idle.items()}
    return {at: (low, high) for at, (low, high) in ends.items() if high / low > 1 + SAME_ENERGY}


def to_json(value: Any) -> dict[str, Any]:
    """Turn a dataclass into plain JSON types."""
    return dataclasses.asdict(value)


def dumps(value: Any) -> str:
    """Write one line of strict JSON; a number that is not finite becomes null."""
    return json.dumps(plain(value), separators=(",", ":"), allow_nan=False)


def plain(value: Any) -> Any:
    """Replace what JSON does not have: NumPy types, and numbers that are not finite."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def from_json(kind: type[T], data: Mapping[str, Any]) -> T:
    """Build a flat dataclass from parsed JSON; keys that this version does not know are ignored."""
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    pairs = ((name, value) for name, value in data.items() if name in known)
    return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in pairs})
