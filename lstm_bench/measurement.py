"""One cell while it is being measured, and the record that comes of it."""

from __future__ import annotations

import dataclasses
import datetime
import statistics
from dataclasses import dataclass, field

from lstm_bench import convergence, energy
from lstm_bench.model.median import median_interval
from lstm_bench.model.profile import Profile
from lstm_bench.model.types import Block, Cell, Energy, Record
from lstm_bench.replies import Hello, Prepared
from lstm_bench.runs.plan import Plan
from lstm_bench.supervisor import WorkerProcess
from lstm_bench.telemetry import Sample, slowed, summary

WITHOUT = {"energy": "no energy", "profiling": "not profiled"}  # marks of what looks did not find


@dataclass
class Measurement:
    """A prepared cell, its worker, and what was measured so far."""

    cell: Cell
    reply: Prepared  # the worker's
    worker: WorkerProcess
    builds: int = 1  # how many times the worker holds it; rounds take them in turns
    twin: Measurement | None = None  # of an A/A control: the cell whose blocks it takes
    blocks: list[Block] = field(default_factory=list)
    used: list[Block] = field(default_factory=list)  # the one block of each round that counts
    latencies: list[float] = field(default_factory=list)  # their medians, in seconds
    spent_s: float = 0.0
    lacks: frozenset[str] = frozenset(WITHOUT)  # what a closer look may still find
    not_held: str = ""  # why no worker holds it any more, if none can
    profile: Profile | None = None
    loads: list[Energy] = field(default_factory=list)
    failed_loads: list[str] = field(default_factory=list)  # why, of each
    gpu: list[Sample] = field(default_factory=list)  # read while it was timed
    warnings: list[str] = field(default_factory=list)
    paths: dict[str, str] = field(default_factory=dict)  # which way each build took

    @property
    def keys(self) -> list[str]:
        """By what names the worker knows its builds, the first by the cell's own."""
        return [self.cell.key, *(f"{self.cell.key}~{n}" for n in range(2, self.builds + 1))]

    @property
    def call_s(self) -> float:
        """What a call took at the end of its warm-up; a control's is its twin's.

        Blocks are made by it: two that are to show the noise alone must have the same ones.
        """
        warm_up = (self.twin or self).reply.warm_up
        return warm_up.call_s if warm_up else 0.0

    def use(self, block: Block) -> None:
        """Let this block count for its round."""
        self.used.append(block)
        self.latencies.append(statistics.median(block.latency_ns) / 1e9)

    def throughputs(self) -> list[float]:
        return [b.queued_ns / b.queued_calls / 1e9 for b in self.used]

    def note_gpu(self, block: Block, samples: list[Sample]) -> str:
        """Keep what NVML said during a block; the reason if the GPU ran slower than usual."""
        now = summary(samples)
        block.sm_mhz, block.power_w, block.temperature_c = (
            now.sm_mhz,
            now.power_w,
            now.temperature_c,
        )
        slow = slowed(now, [reading for _, reading in self.gpu])
        self.gpu += samples
        return slow

    def miss(self, what: str, reason: str) -> None:
        """A look found nothing; of loads there may be others."""
        if what == "energy":
            self.failed_loads.append(reason)
        else:
            self.warn(f"{WITHOUT[what]}: {reason}")

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


def blank_record(
    plan: Plan, cell: Cell, hello: Hello | None, status: str, reason: str, group: str
) -> Record:
    """A record of a cell that was not timed; `hello` is what its worker said of itself."""
    row = plan.row(cell.implementation)
    settings = row.settings_in(plan.settings)
    return Record(
        implementation=cell.implementation,
        shape=cell.shape,
        pass_number=cell.pass_number,
        copy=cell.copy,
        status=status,
        reason=reason,
        framework=row.framework,
        computes=row.computes,
        precision=row.precision_on(plan.settings),
        device=settings.device,
        threads=hello.threads if hello else settings.threads,
        tf32=(hello.tf32 if hello else settings.tf32) and settings.device == "cuda",
        versions=hello.versions if hello else {},
        group=group,
        finished_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )


def fill(record: Record, one: Measurement) -> Record:
    """Add all that was learnt; only `ok` and `interrupted` carry times."""
    reply = one.reply
    record.check, record.path, record.memory = reply.check, reply.path, reply.memory
    record.precision = reply.precision
    record.first_call_s, record.build_s = reply.first_call_s, reply.build_s
    record.warnings = one.warnings
    if record.status not in ("ok", "interrupted") or not one.used:
        return record
    latencies, throughputs = one.latencies, one.throughputs()
    samples = [s for b in one.used for s in b.latency_ns]
    wall = sum(b.wall_s for b in one.used) or 1e-9
    record.latency_s = statistics.median(latencies)
    record.latency_interval_s = list(median_interval(latencies))
    record.throughput_s = statistics.median(throughputs)
    record.round_latency_s, record.round_throughput_s = latencies, throughputs
    record.rounds, record.builds, record.calls = len(one.used), one.builds, len(samples)
    record.outliers = convergence.outliers(samples)
    record.timed_s = one.spent_s
    record.cpu_over_wall = sum(b.cpu_s for b in one.used) / wall
    record.switches_per_s = sum(b.switches for b in one.used) / wall
    record.gpu = summary(one.gpu) if one.gpu else None
    record.others_over_wall = sum(b.others_s for b in one.used) / wall
    _add_looks(record, one)
    return record


def lost(record: Record) -> frozenset[str]:
    """What looks at a cell should have found and did not, by the marks of its record."""
    marks = {text.partition(":")[0] for text in record.warnings}
    return frozenset(what for what, mark in WITHOUT.items() if mark in marks)


def seen_again(record: Record, one: Measurement) -> Record:
    """A record with what another look has found; its times are those that it had."""
    found = not_seen(record)
    if "energy" in one.lacks:
        found.energy = None
    found.warnings += one.warnings
    _add_looks(found, one)
    if (
        one.loads
        and all(load.power_w is None for load in one.loads)
        and "energy" not in lost(found)
    ):
        found.warnings.append(f"{WITHOUT['energy']}: {one.loads[0].problem}")
    return found


def not_seen(record: Record, what: frozenset[str] = frozenset(), reason: str = "") -> Record:
    """A record whose marks of what looks did not find are these and no others."""
    marks = WITHOUT.values()
    kept = [text for text in record.warnings if text.partition(":")[0] not in marks]
    now = [f"{WITHOUT[one]}: {reason}" for one in sorted(what)]
    energy = None if "energy" in what else record.energy
    return dataclasses.replace(record, warnings=[*kept, *now], energy=energy)


def _add_looks(record: Record, one: Measurement) -> None:
    """What was found besides times."""
    if one.loads:
        record.energy = energy.together(one.loads)
    if one.profile and not one.profile.problem:
        record.device_s = one.profile.busy_s
        record.round_device_s = one.profile.call_busy_s
