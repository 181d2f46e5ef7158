"""One cell: built in a worker, measured, and the record that comes of it."""

from __future__ import annotations

import dataclasses
import datetime
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from lstm_bench.driver import convergence, energy
from lstm_bench.driver.gpu import Sample, slowed, summary
from lstm_bench.driver.protocol import Hello, Prepared
from lstm_bench.driver.worker_pool import WorkerFailed, WorkerProcess, Workers
from lstm_bench.model.median import median_interval
from lstm_bench.model.profile import Profile
from lstm_bench.model.types import Block, Cell, Energy, Record, to_json
from lstm_bench.runs.plan import Plan

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

    def build(self, cell: Cell) -> Measurement:
        """The first build of a cell; its check tells whether it may be timed."""
        worker = self._worker(cell)
        one = Measurement(cell, self._ask(worker, cell, cell.key), worker)
        _note(one, cell.key, one.reply)
        return one

    def build_another(self, one: Measurement) -> None:
        """One more build beside those that there are, which will do where memory is short."""
        if not self.workers.alive(one.worker):
            self.build_anew(one)
        one.builds += 1
        which = f"build {one.builds} of {self.plan.sampling.builds}"
        try:
            self._hold(one, one.keys[-1])
        except WorkerFailed as failed:
            if failed.status != "oom":
                raise WorkerFailed(failed.status, f"{which}: {failed.reason}") from None
            one.builds -= 1
            one.warn(f"fewer builds: {which} failed: {failed.reason}")

    def build_anew(self, one: Measurement) -> None:
        """The worker is gone, by a neighbour perhaps; this cell goes on in a new one."""
        one.worker = self._worker(one.cell)
        for key in one.keys:
            self._hold(one, key)

    def build_alike(self, one: Measurement) -> None:
        """A cell that has its times, as it was, in a new worker; nothing but the worker changes."""
        one.worker = self._worker(one.cell)
        for key in one.keys:
            _see_alike(self._ask(one.worker, one.cell, key), one.paths[key])

    def build_as_recorded(self, record: Record) -> Measurement:
        """The cell of a record as it was timed, to be looked at."""
        one = self.build(record.cell)
        _see_alike(one.reply, record.path)
        while one.builds < record.builds:
            before = one.builds
            self.build_another(one)
            if one.builds == before:  # there is no room for more
                break
        one.warnings.clear()  # they would be of its times
        return one

    def let_go(self, one: Measurement) -> str:
        """All builds of a cell; returns what went wrong, if anything did."""
        problem = ""
        for key in one.keys:
            if self.workers.alive(one.worker):
                try:
                    limit = self.plan.sampling.timeout_s
                    self.workers.ask(one.worker, "release", limit, key=key)
                except WorkerFailed as failed:
                    problem = problem or failed.reason
        return problem

    def _worker(self, cell: Cell) -> WorkerProcess:
        """The worker of a cell, started if it is not there."""
        with self.doing("starting", cell, ""):
            return self.workers.get(self.plan.row(cell.implementation).worker)

    def _hold(self, one: Measurement, key: str) -> None:
        """Have a cell that is known to be right built under this name."""
        reply = self._ask(one.worker, one.cell, key)
        if not reply.check.passed:
            one.reply.check = reply.check
            raise WorkerFailed("wrong", reply.check.reason)
        _note(one, key, reply)

    def _ask(self, worker: WorkerProcess, cell: Cell, key: str) -> Prepared:
        """The problem first: its reference may take longer than any call is allowed to."""
        row, limit = self.plan.row(cell.implementation), self.plan.sampling.timeout_s
        shape = to_json(cell.shape)
        patience = limit + cell.shape.flops / REFERENCE_RATE
        place = self.workers.shelf.place(row.computes, cell.shape)
        with self.doing("posing", cell, ""):
            self.workers.ask(worker, "pose", patience, shape=shape, computes=row.computes, **place)
            self.workers.shelf.filled(row.computes, cell.shape)
        build = key.partition("~")[2]
        with self.doing("preparing", cell, f"build {build} of" if build else ""):
            reply: Prepared = self.workers.ask(
                worker,
                "prepare",
                limit,
                key=key,
                implementation=to_json(row),
                shape=shape,
                sampling=to_json(self.plan.sampling),
            )
        return reply


def _see_alike(reply: Prepared, path: str) -> None:
    """Fail if what was built again is not what was timed."""
    if not reply.check.passed:
        raise WorkerFailed("wrong", f"built again: {reply.check.reason}")
    if reply.path != path:
        raise WorkerFailed("unsupported", f"built again, it took another way: {reply.path}")


def _note(one: Measurement, key: str, reply: Prepared) -> None:
    """Which way a build took, and whether it was warm in the end."""
    one.paths[key] = reply.path
    if reply.check.passed and not (reply.warm_up and reply.warm_up.settled):
        one.warn("not warm: the time per call was still moving at the end of the warm-up")
