"""Measures a plan: prepares every implementation of a shape, then times them in rounds.

for each pass, with fresh workers
    for each shape, in shuffled order, or within a budget from the cheapest on
        prepare:    build, first call, check, warm up; what fails is recorded at once
        rounds:     one block per implementation, in shuffled order, until there is enough
        check:      the last answer is checked again
        follow-ups: what features measure of a cell, after the last round of the last of them
        release:    the cell is let go and its record written
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Iterable

from lstm_bench import features
from lstm_bench.driver import convergence, machine
from lstm_bench.driver.cell import Builder, Measurement, record_of
from lstm_bench.driver.context import Context, Outcome
from lstm_bench.driver.follow_ups import FollowUps
from lstm_bench.driver.worker_pool import WorkerFailed
from lstm_bench.model.profile import Profile
from lstm_bench.model.types import (
    FEWEST_ROUNDS,
    RETRYABLE,
    UNFINISHED,
    Block,
    Cell,
    Record,
    Sampling,
    Shape,
    to_json,
)
from lstm_bench.model.units import counted
from lstm_bench.runs import budget
from lstm_bench.runs.estimate import Estimate, by_shape, possible
from lstm_bench.runs.plan import Plan

CORES_TO_IMPORT = 4  # for each worker that starts beside others, so that import times stay true
MAX_REPEATS = 3  # of a disturbed block


def run(context: Context, cells: list[Cell]) -> Outcome:
    """Measure `cells`, which are some or all of the plan's."""
    outcome, observer, deadline = context.outcome, context.observer, context.deadline
    left = by_shape(cells)
    able = {at: possible(context.plan, group, context.missing) for at, group in left.items()}
    with Runner(context) as runner:
        estimate = runner.estimate
        expected_s = estimate.run_s([cell for group in able.values() for cell in group])
        observer.started(cells, min(expected_s, deadline - context.started))
        while left and not context.over():
            at, until = next(iter(left)), math.inf
            if deadline < math.inf:
                spare_s, groups = deadline - time.monotonic(), {at: able[at] for at in left}
                ration = budget.ration(estimate, groups, spare_s, runner.pass_number)
                if ration.too_long and len(left) == len(able):
                    observer.warn(f"budget: {budget.in_words(ration.too_long)}")
                if not ration.shares:
                    break
                at, share_s = next(iter(ration.shares.items()))
                until = time.monotonic() + share_s
            runner.measure(*at, left.pop(at), until)
            ahead = [cell for later in left for cell in able[later]]
            ahead_s = estimate.run_s(ahead, runner.pass_number)
            observer.expect(max(0.0, min(ahead_s, deadline - time.monotonic())))
        outcome.note = runner.note
    outcome.wall_s = time.monotonic() - context.started
    outcome.left = len(cells) - outcome.finished - runner.skipped
    stopped = context.stop()
    outcome.interrupted = stopped and outcome.left > 0
    unmeasured = outcome.left + runner.skipped > 0
    outcome.out_of_budget = deadline < math.inf and not stopped and unmeasured
    return outcome


class Runner:
    """Measures one shape of a run after another, with workers that stay; leaving it ends them."""

    def __init__(self, context: Context):
        self.context, self.plan, self.workers = context, context.plan, context.workers
        self.builder = Builder(context)
        self.follow_ups = FollowUps(context, self.builder)
        self.estimate = Estimate(self.plan)
        self.pass_number: int | None = None
        self.skipped = 0  # A/A controls that the budget left out
        self.group, self.deadline = "", math.inf  # of the shape at hand
        #: Replaces older times of a shape, once all of it is measured.
        self.newer: list[tuple[Record, list[Block], Profile | None]] = []

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    @property
    def note(self) -> str:
        """The readings that NVML lacks, and how to get them."""
        return self.context.watch.gauge.reason if self.plan.settings.device == "cuda" else ""

    def measure(
        self, pass_number: int, shape: Shape, cells: list[Cell], deadline: float = math.inf
    ) -> None:
        """Measure all cells of one shape in turns, as thoroughly as the deadline allows."""
        if pass_number != self.pass_number:
            self.begin_pass(pass_number, cells)
        outcome, plan = self.context.outcome, self.plan
        self.group = f"{shape.label} {_now():%Y%m%dT%H%M%S.%f}"
        self.deadline, finished_before = deadline, outcome.finished
        sampling = self.builder.sampling = plan.sampling
        if deadline < math.inf:
            able = [cell for cell in cells if self.can_run(cell)]
            way = budget.fullest(self.estimate, able, deadline - time.monotonic())
            self.builder.sampling, left_out = way.sampling, len(cells) - len(way.cells(cells))
            outcome.single += left_out > 0
            self.skipped += left_out
            cells = way.cells(cells)
        live = self.prepare_all(cells)
        whole = not self.context.over()  # then every cell was prepared, or cannot be
        if deadline < math.inf:
            calls_s, left_s = [m.call_s for m in live], deadline - time.monotonic()
            kinds = 2 if plan.settings.device == "cuda" else 1
            round_s = left_s / (way.rounds or way.sampling.rounds)
            sampling = budget.hurried(sampling, calls_s, round_s, kinds)
        waiting = self.rounds(live, sampling)
        whole &= all(len(m.used) >= FEWEST_ROUNDS for m in live)
        for measurement in live:  # there was no time for more
            rounds = counted(len(measurement.used), "round")
            if whole:
                measurement.warn(f"hurried: there was time for {rounds}")
                waiting += self.close(measurement)
            else:
                measurement.cut_short = f"stopped after {rounds}"
                self.finish(measurement)
        self.follow_ups.measure(waiting)
        for measurement in waiting:
            self.finish(measurement)
        if outcome.finished - finished_before == len(cells):
            for record, blocks, profile in self.newer:
                self.context.sink.append(record, blocks, profile)
        else:  # some of the older times stay, and these could not be compared with them
            outcome.finished -= len(self.newer)
        self.newer.clear()

    def begin_pass(self, number: int, cells: list[Cell]) -> None:
        """End the workers; a pass has fresh ones, which import their frameworks side by side."""
        self.workers.end()
        names = dict.fromkeys(self.plan.worker(cell) for cell in cells if self.can_run(cell))
        self.workers.begin(list(names)[: machine.threads() // CORES_TO_IMPORT])
        self.pass_number = number

    def prepare_all(self, cells: list[Cell]) -> list[Measurement]:
        """Prepare the cells that can be timed; what they cost corrects the estimate."""
        live: list[Measurement] = []
        spent_s = self.context.outcome.spent_s
        for cell in cells:
            if self.context.over():
                break
            before_s = spent_s.get("preparing", 0.0)
            if prepared := self.prepare(cell):
                twins = (m for m in live if m.cell.implementation == cell.implementation)
                prepared.twin = next(twins, None)
                live.append(prepared)
                took_s = spent_s["preparing"] - before_s
                self.estimate.learn(cell, prepared.call_s, took_s, self.builder.sampling)
        return live

    def rounds(self, live: list[Measurement], sampling: Sampling) -> list[Measurement]:
        """Time blocks in turns until each cell has enough; those stay in `live` that have not.

        Returns the cells that wait for a follow-up.
        """
        waiting: list[Measurement] = []
        round_s = 0.0
        for number in range(1, sampling.max_rounds + 1):
            begun = time.monotonic()
            late = number > FEWEST_ROUNDS and begun + round_s / 2 > self.deadline
            if self.context.over() or not live or late:
                break
            for measurement in self.ordered(live):
                if self.context.over():
                    break
                with self.context.doing("rounds", measurement.cell, f"round {number} "):
                    timed = self.measure_round(measurement, number, sampling)
                if not timed:
                    live.remove(measurement)
                elif self.enough(measurement):
                    live.remove(measurement)
                    waiting += self.close(measurement)
            round_s = time.monotonic() - begun
        return waiting

    def close(self, measurement: Measurement) -> list[Measurement]:
        """Check a cell that has its rounds, and record it, unless it waits for a follow-up."""
        self.check(measurement)
        if self.follow_ups.wanted(measurement.cell):  # not while another is timed
            return [measurement]
        self.finish(measurement)
        return []

    def can_run(self, cell: Cell) -> bool:
        """Return whether this run is on a device for this cell."""
        row = self.plan.row(cell.implementation)
        return row.settings_in(self.plan.settings).device in row.devices

    def prepare(self, cell: Cell) -> Measurement | None:
        """Build, check and warm one cell; a cell that cannot be timed is recorded instead."""
        row = self.plan.row(cell.implementation)
        if not self.can_run(cell):
            device = row.settings_in(self.plan.settings).device
            reason = f"runs on {' or '.join(row.devices)} only, this run is on {device}"
            self.record(cell, "unsupported", reason)
            return None
        if row.worker in self.workers.refused:
            self.record(cell, *self.workers.refused[row.worker])
            return None
        try:
            live = self.builder.build(cell)
        except WorkerFailed as failed:
            if failed.status != "interrupted":  # then nothing was measured, and it stays to be done
                self.record(cell, failed.status, failed.reason)
            return None
        live.reply.memory |= self.context.watch.memory(live.worker)
        if not live.reply.check.passed:
            self.record(cell, "wrong", live.reply.check.reason, live)
            return None
        return live

    def ordered(self, live: list[Measurement]) -> list[Measurement]:
        """Shuffled, but calls of like length together, those of a decade that begins anywhere.

        Differences between these are small, and the host's pace moves within a tenth of a second:
        one call of a slow row may take longer than a block of each of the others.
        """
        order, begin = list(live), self.context.rng.random()
        self.context.rng.shuffle(order)
        return sorted(order, key=lambda m: math.floor(math.log10(m.call_s + 1e-9) + begin))

    def measure_round(self, measurement: Measurement, number: int, sampling: Sampling) -> bool:
        """Time one block that counts; false if the cell is lost."""
        try:
            if not self.workers.alive(measurement.worker):
                self.builder.build_anew(measurement)
                if measurement.blocks:
                    measurement.warn(
                        "two processes: the worker was restarted while this cell was timed"
                    )
            for _ in range(1 + MAX_REPEATS):
                block, slow = self.measure_block(measurement, number, sampling)
                spent = measurement.spent_s > sampling.cell_s
                late = time.monotonic() > self.deadline
                if not block.disturbed or spent or late or self.context.over():
                    break
        except WorkerFailed as failed:
            self.record(measurement.cell, failed.status, failed.reason, measurement)
            self.release(measurement)
            return False
        measurement.use(block)
        if block.disturbed:
            measurement.warn(slow or "disturbed: another process took the cores during a block")
        return True

    def measure_block(
        self, measurement: Measurement, number: int, sampling: Sampling
    ) -> tuple[Block, str]:
        """Time one block, and say why the GPU was slow if it was."""
        watch, call_s = self.context.watch, measurement.call_s
        watch.start(measurement.worker)
        asked = time.monotonic()
        more = {"round_number": number, "sampling": to_json(sampling), "call_s": call_s}
        try:
            block: Block = self.context.ask(measurement, "measure", **more).block
        finally:
            samples = watch.stop()
        slow = measurement.note_gpu(block, samples)
        block.disturbed = bool(slow) or convergence.disturbed(block, measurement.blocks)
        measurement.blocks.append(block)
        measurement.spent_s += block.wall_s
        # the clock of a fake is virtual: no more passed than here
        self.context.outcome.timed_s += min(block.wall_s, time.monotonic() - asked)
        return block, slow

    def enough(self, measurement: Measurement) -> bool:
        """Return whether a cell has converged, or has used up what it may cost."""
        sampling, rounds = self.plan.sampling, len(measurement.used)
        if convergence.converged(measurement.latencies, sampling):
            return True
        if measurement.spent_s >= sampling.cell_s:
            if rounds < sampling.max_rounds:
                took = f"{measurement.spent_s:.3g} s"
                measurement.warn(f"capped: {counted(rounds, 'round')} in {took}")
            return True
        return rounds >= sampling.max_rounds

    def check(self, measurement: Measurement) -> None:
        """Compare the last timed answer with the reference, before anything else is called."""
        if not self.workers.alive(measurement.worker):
            measurement.warn(
                "not checked again: the worker was gone before its last answer was read"
            )
            return
        try:
            with self.context.doing("checking", measurement.cell):
                measurement.reply.check = self.context.ask(measurement, "check").check
        except WorkerFailed as failed:
            measurement.warn(f"not checked again: {failed.reason}")

    def release(self, measurement: Measurement) -> None:
        """Have the worker forget a cell."""
        if self.workers.alive(measurement.worker):
            try:
                self.context.ask(measurement, "release")
            except WorkerFailed as failed:
                measurement.warn(f"not released: {failed.reason}")

    def finish(self, measurement: Measurement) -> None:
        """Let the cell go and write it down."""
        if measurement.cut_short and not measurement.used:
            return
        status, reason = "ok", ""
        if not measurement.reply.check.passed:
            status, reason = "wrong", "after timing: " + measurement.reply.check.reason
        elif measurement.cut_short:
            status, reason = "interrupted", measurement.cut_short
        self.release(measurement)
        on_cpu = measurement.worker.settings.device == "cpu"
        if on_cpu and (cores := convergence.crowded(measurement.used, machine.threads())):
            measurement.warn(
                f"disturbed: other processes used {cores:.1f} cores while this was measured"
            )
        converged = convergence.converged(measurement.latencies, self.plan.sampling)
        if status == "ok" and not converged:
            measurement.warn("not converged: the interval of the median is wider than was asked")
        self.record(measurement.cell, status, reason, measurement)

    def record(
        self, cell: Cell, status: str, reason: str, measurement: Measurement | None = None
    ) -> None:
        """Write a cell down, but where it has a time let nothing but a time replace it."""
        hello = self.workers.hellos.get(self.plan.worker(cell))
        record = record_of(self.plan, cell, hello, status, reason, self.group, measurement)
        blocks = measurement.blocks if measurement else []
        profile = measurement.profile if measurement else None
        if record.key not in self.context.finished:
            self.context.sink.append(record, blocks, profile)
        elif status == "ok":
            self.newer.append((record, blocks, profile))
        if status != "interrupted":
            self.context.outcome.finished += 1
        self.context.observer.finished(record)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def pending(plan: Plan, records: Iterable[Record], retry_failed: bool) -> list[Cell]:
    """The cells of a plan that still have to be measured.

    A shape that was cut short is measured again whole: only what was measured in turns can be
    compared. With `retry_failed` so is one that lost what a follow-up should have measured.
    """
    records = list(records)
    again = (*UNFINISHED, *(RETRYABLE if retry_failed else ()))
    known = {record.key: record.status for record in records}
    lost: set[tuple[int, Shape]] = set()
    if retry_failed:
        lost = lost.union(*(kind.lost(records) for kind in features.behind("follow_up")))
    left = []
    for at, group in by_shape(plan.all_cells()).items():
        statuses = [known.get(cell.key, "interrupted") for cell in group]
        wanted = (*again, "ok") if "interrupted" in statuses or at in lost else again
        left += [cell for cell, status in zip(group, statuses, strict=True) if status in wanted]
    return left
