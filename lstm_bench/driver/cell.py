"""One cell: built in a worker, measured, and the record that comes of it."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from lstm_bench.driver import convergence
from lstm_bench.driver.gpu import Sample, slowed, summary
from lstm_bench.driver.protocol import Hello, Prepared
from lstm_bench.driver.worker_pool import WorkerFailed, WorkerProcess, Workers
from lstm_bench.features.energy import measure as energy
from lstm_bench.model.median import median_interval
from lstm_bench.model.profile import Profile
from lstm_bench.model.types import CARRIED_CALLS, Block, Cell, Energy, Record, to_json
from lstm_bench.runs.plan import TWIN, Plan

LOST = {"energy": "no energy", "profiling": "not profiled"}  # the mark of what was not found


@dataclass
class Measurement:
    """A prepared cell, its worker, and what was measured so far."""

    cell: Cell
    reply: Prepared  # the worker's
    worker: WorkerProcess
    twin: Measurement | None = None  # of an A/A control: the cell whose blocks it takes
    blocks: list[Block] = field(default_factory=list)
    used: list[Block] = field(default_factory=list)  # the one block of each round that counts
    latencies: list[float] = field(default_factory=list)  # their medians, in seconds
    spent_s: float = 0.0
    not_held: str = ""  # why no worker holds it any more, if none can
    profile: Profile | None = None
    loads: list[Energy] = field(default_factory=list)
    failed_loads: list[str] = field(default_factory=list)  # why, of each
    gpu: list[Sample] = field(default_factory=list)  # read while it was timed
    warnings: list[str] = field(default_factory=list)

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
        """Energy or a profile was not found; of loads there may be others."""
        if what == "energy":
            self.failed_loads.append(reason)
        else:
            self.warn(f"{LOST[what]}: {reason}")

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
        import_s=hello.import_s if hello else None,
        memory={"import": hello.import_bytes} if hello and hello.import_bytes else {},
        group=group,
        finished_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )


def fill(record: Record, one: Measurement) -> Record:
    """Add all that was learnt; only `ok` and `interrupted` carry times."""
    reply = one.reply
    record.process = one.worker.number
    record.check, record.path, record.memory = reply.check, reply.path, record.memory | reply.memory
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
    record.rounds, record.calls = len(one.used), len(samples)
    record.outliers = convergence.outliers(samples)
    record.timed_s = one.spent_s
    record.cpu_over_wall = sum(b.cpu_s for b in one.used) / wall
    record.switches_per_s = sum(b.switches for b in one.used) / wall
    record.gpu = summary(one.gpu) if one.gpu else None
    record.others_over_wall = sum(b.others_s for b in one.used) / wall
    record.energy = energy.together(one.loads)
    if one.profile and not one.profile.problem:
        record.device_s = one.profile.busy_s
        record.round_device_s = one.profile.call_busy_s
    return record


def lost(record: Record) -> bool:
    """Whether a cell has its times, and not the profile or the energy that it should have."""
    marks = {text.partition(":")[0] for text in record.warnings}
    return record.status == "ok" and not marks.isdisjoint(LOST.values())


REFERENCE_RATE = 2e9  # operations a second: a slow machine's, to say how long is too long


class Builder:
    """What a plan's cells need before they can be timed."""

    def __init__(
        self,
        plan: Plan,
        workers: Workers,
        doing: Callable[[str, Measurement | Cell, str], AbstractContextManager[None]],
    ):
        """`doing` tells the observer what is done to which cell, and counts the time."""
        self.plan, self.workers, self.doing = plan, workers, doing
        self.sampling = plan.sampling  # of the shape at hand

    def build(self, cell: Cell) -> Measurement:
        """Build a cell; its check tells whether it may be timed."""
        worker = self._worker(cell)
        one = Measurement(cell, self._ask(worker, cell), worker)
        _note_warm_up(one, one.reply)
        return one

    def build_anew(self, one: Measurement) -> None:
        """The worker is gone, by a neighbour perhaps; this cell goes on in a new one."""
        one.worker = self._worker(one.cell)
        reply = self._ask(one.worker, one.cell)
        if not reply.check.passed:
            one.reply.check = reply.check
            raise WorkerFailed("wrong", reply.check.reason)
        _note_warm_up(one, reply)

    def build_alike(self, one: Measurement) -> None:
        """A cell that has its times, as it was, in a new worker; nothing but the worker changes."""
        one.worker = self._worker(one.cell)
        reply = self._ask(one.worker, one.cell)
        if not reply.check.passed:
            raise WorkerFailed("wrong", f"built again: {reply.check.reason}")
        if reply.path != one.reply.path:
            raise WorkerFailed("unsupported", f"built again, it took another way: {reply.path}")

    def let_go(self, one: Measurement) -> str:
        """Have the worker forget a cell; returns what went wrong, if anything did."""
        if self.workers.alive(one.worker):
            try:
                limit = self.plan.sampling.timeout_s
                self.workers.ask(one.worker, "release", limit, key=one.cell.key)
            except WorkerFailed as failed:
                return failed.reason
        return ""

    def _worker(self, cell: Cell) -> WorkerProcess:
        """The worker of a cell, started if it is not there."""
        with self.doing("starting", cell, ""):
            return self.workers.get(self.plan.worker(cell))

    def _ask(self, worker: WorkerProcess, cell: Cell) -> Prepared:
        """The problem first: its reference may take longer than any call is allowed to."""
        row, limit = self.plan.row(cell.implementation), self.plan.sampling.timeout_s
        name = row.name + (TWIN if cell.copy % 2 == 0 else "")  # a fake's noise is made from it
        shape = to_json(cell.shape)
        calls = CARRIED_CALLS if self.plan.settings.state == "carried" else 1
        patience = limit + calls * cell.shape.flops / REFERENCE_RATE
        place = self.workers.references.place(row.computes, cell.shape)
        with self.doing("posing", cell, ""):
            self.workers.ask(worker, "pose", patience, shape=shape, computes=row.computes, **place)
            self.workers.references.filled(row.computes, cell.shape)
        with self.doing("preparing", cell, ""):
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


def _note_warm_up(one: Measurement, reply: Prepared) -> None:
    if reply.check.passed and not (reply.warm_up and reply.warm_up.settled):
        one.warn("not warm: the time per call was still moving at the end of the warm-up")
