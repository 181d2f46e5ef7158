"""One cell: built in a worker, measured, and the record that comes of it."""

from __future__ import annotations

import datetime
import statistics
from dataclasses import dataclass, field

from lstm_bench.driver import convergence
from lstm_bench.driver.context import Context
from lstm_bench.driver.gpu import slowed, summary
from lstm_bench.driver.protocol import Hello, Prepared
from lstm_bench.driver.worker_pool import WorkerFailed, WorkerProcess
from lstm_bench.model.median import median_interval
from lstm_bench.model.profile import Profile
from lstm_bench.model.types import CARRIED_CALLS, Block, Cell, Energy, Record, Telemetry, to_json
from lstm_bench.runs.plan import TWIN, Plan


@dataclass
class Measurement:
    """A prepared cell, its worker, and what was measured so far."""

    cell: Cell
    reply: Prepared  # the worker's
    worker: WorkerProcess
    twin: Measurement | None = None  # for an A/A control: the cell whose blocks it takes
    blocks: list[Block] = field(default_factory=list)
    used: list[Block] = field(default_factory=list)  # the one block of each round that counts
    latencies: list[float] = field(default_factory=list)  # their medians, in seconds
    spent_s: float = 0.0
    not_held: str = ""  # why no worker holds it any more, if none can
    cut_short: str = ""  # why it is not whole
    profile: Profile | None = None
    energy: Energy | None = None
    gpu: list[Telemetry] = field(default_factory=list)  # read while it was timed
    warnings: list[str] = field(default_factory=list)

    @property
    def call_s(self) -> float:
        """The time of a call at the end of its warm-up; a control's is its twin's.

        Blocks are made by it: two that are to show the noise alone must have the same ones.
        """
        warm_up = (self.twin or self).reply.warm_up
        return warm_up.call_s if warm_up else 0.0

    def use(self, block: Block) -> None:
        """Let this block count for its round."""
        self.used.append(block)
        self.latencies.append(statistics.median(block.latency_ns) / 1e9)

    def note_gpu(self, block: Block, samples: list[Telemetry]) -> str:
        """Keep NVML's readings during a block; the reason if the GPU ran slower than usual."""
        now = summary(samples)
        block.sm_mhz, block.power_w = now.sm_mhz, now.power_w
        block.temperature_c = now.temperature_c
        slow = slowed(now, self.gpu)
        self.gpu += samples
        return slow

    def note_warm_up(self, reply: Prepared) -> None:
        if reply.check.passed and not (reply.warm_up and reply.warm_up.settled):
            self.warn("not warm: the time per call was still moving at the end of the warm-up")

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


def record_of(
    plan: Plan,
    cell: Cell,
    hello: Hello | None,
    status: str,
    reason: str = "",
    group: str = "",
    measurement: Measurement | None = None,
) -> Record:
    """The record of a cell; `hello` is its worker's, and only some statuses carry times."""
    row = plan.row(cell.implementation)
    settings = row.settings_in(plan.settings)
    record = Record(
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
        import_s=hello.import_s if hello else None,
        memory={"import": hello.import_bytes} if hello and hello.import_bytes else {},
        group=group,
        finished_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )
    if measurement:
        reply = measurement.reply
        record.process, record.warnings = measurement.worker.number, measurement.warnings
        record.check, record.path, record.precision = reply.check, reply.path, reply.precision
        record.memory |= reply.memory
        record.first_call_s, record.build_s = reply.first_call_s, reply.build_s
        if status in ("ok", "interrupted") and measurement.used:
            _add_times(record, measurement)
    return record


def _add_times(record: Record, measurement: Measurement) -> None:
    used, latencies = measurement.used, measurement.latencies
    throughputs = [b.queued_ns / b.queued_calls / 1e9 for b in used]
    samples = [s for b in used for s in b.latency_ns]
    wall = sum(b.wall_s for b in used) or 1e-9
    record.latency_s = statistics.median(latencies)
    record.latency_interval_s = list(median_interval(latencies))
    record.throughput_s = statistics.median(throughputs)
    record.round_latency_s, record.round_throughput_s = latencies, throughputs
    record.rounds, record.calls = len(used), len(samples)
    record.outliers = convergence.outliers(samples)
    record.timed_s = measurement.spent_s
    if all(b.forward_ns for b in used):
        record.forward_s = statistics.median(b.forward_ns for b in used) / 1e9
        record.backward_s = statistics.median(b.backward_ns for b in used) / 1e9
    record.cpu_over_wall = sum(b.cpu_s for b in used) / wall
    record.switches_per_s = sum(b.switches for b in used) / wall
    record.others_over_wall = sum(b.others_s for b in used) / wall
    record.gpu = summary(measurement.gpu) if measurement.gpu else None
    record.energy = measurement.energy
    if measurement.profile and not measurement.profile.problem:
        record.device_s = measurement.profile.busy_s
        record.round_device_s = measurement.profile.call_busy_s


REFERENCE_RATE = 2e9  # operations a second: a slow machine's, to say how long is too long


class Builder:
    """Has cells built by their workers."""

    def __init__(self, context: Context):
        self.context, self.plan, self.workers = context, context.plan, context.workers
        self.sampling = self.plan.sampling  # of the shape at hand

    def build(self, cell: Cell) -> Measurement:
        """Build a cell; its check says whether it may be timed."""
        worker = self._worker(cell)
        measurement = Measurement(cell, self._ask(worker, cell), worker)
        measurement.note_warm_up(measurement.reply)
        return measurement

    def build_anew(self, measurement: Measurement) -> None:
        """Build a cell again that is being timed; a neighbour perhaps took its worker down."""
        measurement.worker = self._worker(measurement.cell)
        reply = self._ask(measurement.worker, measurement.cell)
        if not reply.check.passed:
            measurement.reply.check = reply.check
            raise WorkerFailed("wrong", reply.check.reason)
        measurement.note_warm_up(reply)

    def build_alike(self, measurement: Measurement) -> None:
        """Build a cell again that has its times; nothing but its worker may change."""
        measurement.worker = self._worker(measurement.cell)
        reply = self._ask(measurement.worker, measurement.cell)
        if not reply.check.passed:
            raise WorkerFailed("wrong", f"built again: {reply.check.reason}")
        if reply.path != measurement.reply.path:
            raise WorkerFailed("unsupported", f"built again, it took another way: {reply.path}")

    def _worker(self, cell: Cell) -> WorkerProcess:
        """The worker of a cell, started if it is not there."""
        with self.context.doing("starting", cell):
            return self.workers.get(self.plan.worker(cell))

    def _ask(self, worker: WorkerProcess, cell: Cell) -> Prepared:
        """Pose the problem first: its reference may take longer than any call is allowed to."""
        row, limit = self.plan.row(cell.implementation), self.plan.sampling.timeout_s
        name = row.name + (TWIN if cell.copy % 2 == 0 else "")  # a fake's noise is made from it
        shape = to_json(cell.shape)
        calls = CARRIED_CALLS if self.plan.settings.state == "carried" else 1
        patience = limit + calls * cell.shape.flops / REFERENCE_RATE
        file = self.workers.references.file(row.computes, cell.shape)
        with self.context.doing("posing", cell):
            self.workers.ask(
                worker, "pose", patience, shape=shape, computes=row.computes, references=file
            )
        with self.context.doing("preparing", cell):
            reply: Prepared = self.workers.ask(
                worker,
                "prepare",
                limit,
                key=cell.key,
                implementation={**to_json(row), "name": name},
                shape=shape,
                sampling=to_json(self.sampling),
            )
        return reply
