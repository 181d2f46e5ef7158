"""The types that the driver and its workers share, and their JSON form.

Needs the standard library only: a worker runs under whatever interpreter holds its framework.
Times are seconds, with the unit in the field's name; raw samples are whole nanoseconds, as the
clock gives them.
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

T = TypeVar("T")

#: What `--resume` measures again: cells that were cut short, and those whose framework was not
#: installed. All other statuses are final: ok, unsupported, wrong, oom, timeout, crashed.
UNFINISHED = ("interrupted", "missing")
#: Failures that another attempt may cure; `--retry-failed` measures them again.
RETRYABLE = ("oom", "timeout", "crashed")

#: The largest |output - reference| that each precision may show, per unit of the reference's
#: magnitude where that exceeds one. Part of the method, not of an implementation.
TOLERANCES = {
    "fp32": 5e-5,
    "tf32": 1e-2,
    "fp16": 1e-2,
    "amp-fp16": 1e-2,
    "bf16": 6e-2,
    "amp-bf16": 6e-2,
    "int8": 1e-1,
}

#: What each precision promises of the answer: rows of one class may be held against each other.
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

#: With carried state the check follows the layer over so many calls.
CARRIED_CALLS = 16

#: Below, a cell has no verdict: the least that a budget or an interruption leaves.
FEWEST_ROUNDS = 3

UNSEEN_GPU = "a GPU that NVML does not show"


@dataclass(frozen=True, order=True)
class Shape:
    """The size of one LSTM call."""

    hidden: int
    batch: int
    timesteps: int
    input_size: int

    @property
    def label(self) -> str:
        base = f"{self.hidden},{self.batch},{self.timesteps}"
        return base if self.input_size == self.hidden else f"{base},{self.input_size}"

    @property
    def flops(self) -> int:
        """Multiplications and additions of the matrix products; the cell's own are left out."""
        return 8 * self.batch * self.timesteps * self.hidden * (self.hidden + self.input_size)


@dataclass(frozen=True)
class Implementation:
    """One way of running the layer: a row of the registry."""

    name: str
    framework: str
    precision: str  # a key of TOLERANCES, or "amp"; what it means on a device: see `precision_on`
    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    computes: str = "lstm"  # or "lstm-skip-input", which has a reference of its own
    devices: tuple[str, ...] = ("cpu", "cuda")
    note: str = ""
    threads: int = 0  # on the CPU with so many, wherever the run is; 0: as the run
    default_on: tuple[str, ...] = ()  # devices where a user of the framework gets this unasked
    version: str = ""  # another version of the framework by this name, in its own interpreter

    @property
    def home(self) -> str:
        """What has an interpreter: the framework, or another version of it as `pytorch~other`."""
        return f"{self.framework}~{self.version}" if self.version else self.framework

    @property
    def original(self) -> str:
        """The name of the same row in the framework's first version."""
        return self.name.replace(f"~{self.version}", "", 1) if self.version else self.name

    @property
    def worker(self) -> str:
        """The process that it runs in: threads and TF32 are a matter of the whole process."""
        name = self.home + ("+tf32" if self.precision == "tf32" else "")
        return f"{name}@{self.threads}" if self.threads else name

    def settings_in(self, run: Settings) -> Settings:
        """What holds for this row in a run."""
        if self.precision == "tf32":
            run = dataclasses.replace(run, tf32=True)
        if self.threads:
            run = dataclasses.replace(run, device="cpu", threads=self.threads)
        if run.device == "cpu" and run.inputs != "device":  # x is in the memory of its device
            run = dataclasses.replace(run, inputs="device")
        return run

    def precision_on(self, run: Settings) -> str:
        """The arithmetic that the run's settings ask of this row."""
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
    """How much is measured; `docs/explanation/method.md` gives the reasons."""

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
    loads: int = 4  # of one, nobody knows how far the next would be


@dataclass(frozen=True)
class Settings:
    """What every implementation of a run must obey."""

    device: str = "cpu"
    threads: int = 1
    tf32: bool = False
    amp: str = "auto"  # or "fp16", "bf16": what AMP casts to
    seed: int = 1
    state: str = "fixed"  # or "carried": each call starts from the states the last one left
    inputs: str = "device"  # one of INPUTS

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the calls; nothing if all is at its default."""
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
        s = self.shape
        copy = f"#{self.copy}" if self.copy > 1 else ""
        return (
            f"{self.implementation}{copy}"
            f"/h{s.hidden}-b{s.batch}-t{s.timesteps}-i{s.input_size}/p{self.pass_number}"
        )


@dataclass(frozen=True)
class Check:
    """One output held against the float64 reference."""

    max_abs_error: float | None  # none: not a finite number
    max_rel_error: float | None
    tolerance: float
    passed: bool
    reason: str = ""


@dataclass(frozen=True)
class WarmUp:
    """How the warm-up ended; `call_s` is what one call took at its end."""

    calls: int
    seconds: float
    settled: bool
    call_s: float


@dataclass
class Block:
    """The calls of one implementation in one round, and what the operating system did meanwhile."""

    round: int
    latency_ns: list[int]
    queued_ns: int
    queued_calls: int
    cpu_s: float
    wall_s: float
    switches: int
    others_s: float = 0.0  # CPU time of all other processes meanwhile
    disturbed: bool = False
    sm_mhz: float | None = None  # on a GPU, by NVML
    power_w: float | None = None
    temperature_c: int | None = None


@dataclass
class Telemetry:
    """Some readings in short, as a record keeps them."""

    readings: int = 0
    sm_mhz: float | None = None  # median
    lowest_sm_mhz: int | None = None
    memory_mhz: float | None = None  # median
    temperature_c: int | None = None  # highest
    power_w: float | None = None  # mean
    utilisation: float | None = None  # mean
    memory_used_bytes: int | None = None  # highest
    throttled: list[str] = field(default_factory=list)  # for every reason seen


WINDOW_S = 0.5  # of a load for energy: of ticks that count
LEAD_S = 0.2  # before it: up to a tick until the first one, and that one is dropped
TICK_JITTER_S = 0.02  # a move of the energy counter (a tick) comes this much early or late


@dataclass
class Energy:
    """What was measured of a load; without `power_w` nothing is known, and `problem` says why."""

    power_w: float | None = None
    idle_w: float | None = None
    window_s: float = 0.0  # from the first tick that counts to the last
    ticks: int = 0
    calls: int = 0
    call_s: float | None = None
    problem: str = ""
    load_w: list[float] = field(default_factory=list)  # of each load, where there were several
    load_call_s: list[float] = field(default_factory=list)

    @property
    def net_j(self) -> float | None:
        """What a call takes over an idle GPU: its work, however slowly the host asked for it."""
        if self.power_w is None or self.idle_w is None or self.call_s is None:
            return None
        return (self.power_w - self.idle_w) * self.call_s

    def gross_j(self, time_s: float) -> float | None:
        """All that the GPU draws for a call, where one takes so long: its work, and idle power."""
        if self.power_w is None:
            return None
        net = self.net_j
        if self.idle_w is None or net is None:
            return self.power_w * time_s
        return net + self.idle_w * time_s

    @property
    def load_j(self) -> list[float]:
        """Net energy by each load alone, gross if idle power is not known; empty if one is all."""
        both = zip(self.load_w, self.load_call_s, strict=False)
        return [(power_w - (self.idle_w or 0.0)) * call_s for power_w, call_s in both]

    @property
    def net_uncertainty(self) -> float:
        """What the window leaves open of the power over idle, as a share of it.

        Each of several loads has its own first and last tick: their jitter adds up as chance does.
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
    """Everything that is known of one cell, less its raw samples."""

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
    first_call_s: float | None = None
    build_s: float | None = None
    import_s: float | None = None  # of its framework, in a new process
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
    group: str = ""  # cells of one group were measured interleaved
    process: int = 0  # the worker that it ran in, counted from 1 in each session; 0: not known
    finished_at: str = ""
    node: str = ""  # of a cluster, or of a shard's job; empty: the run's own machine
    device_name: str = ""  # the GPU or the processor of that node
    driver: str = ""  # of its GPU

    @property
    def cell(self) -> Cell:
        return Cell(self.implementation, self.shape, self.pass_number, self.copy)

    @property
    def key(self) -> str:
        return self.cell.key

    @property
    def gross_j(self) -> float | None:
        """All that the GPU draws for a call, at the pace at which the cell was timed."""
        if not self.energy or not self.throughput_s:
            return None
        gross = self.energy.gross_j(self.throughput_s)
        return gross if gross and gross > 0 else None


def kinds(warnings: Sequence[str]) -> list[str]:
    """The kinds of a cell's warnings that a reader may act on, each once.

    That it missed the precision its grid asked for says little: the interval stands beside it.
    """
    found = dict.fromkeys(warning.split(":")[0] for warning in warnings)
    return [kind for kind in found if kind != "not converged"]


def kinds_of(warnings: Iterable[Sequence[str]]) -> list[tuple[str, int]]:
    """How many cells each kind of warning concerns, the most frequent first."""
    counts: Counter[str] = Counter()
    for same, cells in Counter(map(tuple, warnings)).items():  # most have the same
        for kind in kinds(same):
            counts[kind] += cells
    return counts.most_common()


SAME_ENERGY = 0.05  # what two measurements of energy or power may differ by on one GPU


def unlike_idle_w(records: Iterable[Record]) -> dict[tuple[int, Shape], tuple[float, float]]:
    """Where idle power was another for some rows of a shape, by more than energy may be off by.

    The GPU was another one, or much warmer: energy does not compare there. The least and the most.
    """
    idle: dict[tuple[int, Shape], list[float]] = {}
    for one in records:
        if one.gross_j and one.energy and one.energy.idle_w:
            idle.setdefault((one.pass_number, one.shape), []).append(one.energy.idle_w)
    ends = {where: (min(watts), max(watts)) for where, watts in idle.items()}
    return {at: (low, high) for at, (low, high) in ends.items() if high / low > 1 + SAME_ENERGY}


def to_json(value: Any) -> dict[str, Any]:
    """A dataclass as plain JSON types."""
    return dataclasses.asdict(value)


def dumps(value: Any) -> str:
    """One line of strict JSON; a number that is not finite becomes null."""
    return json.dumps(plain(value), separators=(",", ":"), allow_nan=False)


def plain(value: Any) -> Any:
    """As JSON holds it: no NumPy types; a number that is not finite becomes null."""
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
    """Build `kind` from parsed JSON; keys that this version does not know are left aside."""
    known = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in known:
            continue
        nested = _NESTED.get(name)
        values[name] = from_json(nested, value) if nested and isinstance(value, dict) else value
    for name in ("devices", "default_on"):
        if isinstance(values.get(name), list):
            values[name] = tuple(values[name])
    return kind(**values)


_NESTED: dict[str, type] = {"shape": Shape, "check": Check, "gpu": Telemetry, "energy": Energy}
