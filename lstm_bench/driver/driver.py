"""Walks the plan: prepares every implementation of a shape, then measures them in rounds.

for each pass, with fresh workers
    for each shape, in shuffled order, or within a budget from the cheapest on
        prepare:  build, first call, check, warm up; what fails is recorded at once
        rounds:   one block per implementation, in shuffled order, until there is enough
        look:     if the plan says so, after the last round of the last of them: energy in turns,
                  then profiles
        release:  the last answer is checked again, then the record is written
"""

from __future__ import annotations

import contextlib
import datetime
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lstm_bench.driver import convergence, machine
from lstm_bench.driver.cell import Builder, Measurement, blank_record, fill, lost
from lstm_bench.driver.follow_ups import FollowUps, ProfileOptions
from lstm_bench.driver.gpu import Watch
from lstm_bench.driver.worker_pool import WorkerFailed, Workers
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
    unlike_idle_w,
)
from lstm_bench.model.units import counted
from lstm_bench.runs import budget
from lstm_bench.runs.estimate import Estimate, possible
from lstm_bench.runs.plan import Plan, by_shape
from lstm_bench.runs.store import Sink

CORES_TO_IMPORT = 4  # for each worker that starts beside others, so that import times stay true
MAX_REPEATS = 3  # of a disturbed block


class Observer(Protocol):
    """Is told what happens; the progress display is one."""

    def started(self, cells: list[Cell], seconds: float) -> None: ...
    def doing(self, text: str) -> None: ...
    def finished(self, record: Record) -> None: ...
    def expect(self, seconds: float) -> None: ...
    def warn(self, text: str) -> None: ...


@dataclass
class Outcome:
    """How a walk ended."""

    interrupted: bool = False
    out_of_budget: bool = False
    wall_s: float = 0.0
    timed_s: float = 0.0  # of it inside timed calls, which energy's are not
    spent_s: dict[str, float] = field(default_factory=dict)  # the whole, by what was done
    finished: int = 0  # cells
    left: int = 0  # cells that were planned and not reached
    single: int = 0  # shapes whose A/A controls the budget left out
    note: str = ""  # what NVML did not tell, and how to get it
    places: int = 1  # where shapes were measured at once
    stopped: str = ""  # why a cluster could not go on


def run(
    plan: Plan,
    cells: list[Cell],
    sink: Sink,
    observer: Observer,
    stop: Callable[[], bool] = lambda: False,
    budget_s: float | None = None,
    missing: Mapping[str, str] | None = None,
    look: ProfileOptions | None = None,
    finished: Collection[str] = (),
) -> Outcome:
    """Measure `cells`, which are some or all of the plan's.

    `missing` names the frameworks that are not installed, with the reason for their cells.
    `look` says what else a profiled pass shall show. `finished` are the keys of cells that have a
    time: nothing less may take its place.
    """
    missing = missing or {}
    started = time.monotonic()
    deadline = started + budget_s if budget_s is not None else None
    outcome = Outcome()

    def over() -> bool:
        late = deadline is not None and time.monotonic() > deadline + budget.LATE * (budget_s or 0)
        return stop() or late

    with Walk(plan, sink, observer, over, missing, look, finished) as walk:
        left = by_shape(cells)
        estimate = walk.estimate
        here = {at: possible(plan, group, missing) for at, group in left.items()}
        expected = estimate.run_s([cell for group in here.values() for cell in group])
        observer.started(cells, min(expected, budget_s or math.inf))
        while left and not over():
            at, until = next(iter(left)), None
            if deadline is not None:
                spare = deadline - time.monotonic()
                share = budget.ration(estimate, {a: here[a] for a in left}, spare, walk.pass_number)
                if share.too_long and len(left) == len(here):
                    observer.warn(f"budget: {budget.in_words(share.too_long)}")
                if not share.shares:
                    break
                at = next(iter(share.shares))
                until = time.monotonic() + share.shares[at]
            walk.measure(*at, left.pop(at), until)
            ahead = estimate.run_s([c for later in left for c in here[later]], walk.pass_number)
            spare = math.inf if deadline is None else deadline - time.monotonic()
            observer.expect(max(0.0, min(ahead, spare)))
        outcome.note = walk.note
    outcome.wall_s, outcome.timed_s = time.monotonic() - started, walk.timed_s
    outcome.spent_s = dict(walk.spent_s)
    outcome.finished = walk.finished
    outcome.single = walk.single
    outcome.left = len(cells) - walk.finished - walk.skipped
    outcome.interrupted = stop() and outcome.left > 0
    outcome.out_of_budget = budget_s is not None and not stop() and outcome.left + walk.skipped > 0
    return outcome


class Walk:
    """Measures one shape of a run after another, with workers that stay; leaving it ends them."""

    def __init__(
        self,
        plan: Plan,
        sink: Sink,
        observer: Observer,
        stop: Callable[[], bool] = lambda: False,
        missing: Mapping[str, str] | None = None,
        look: ProfileOptions | None = None,
        finished_before: Collection[str] = (),
    ):
        self.finished_before = finished_before
        #: What shall replace older times of a shape, once all of it is measured.
        self.newer: list[tuple[Record, list[Block], Profile | None]] = []
        self.plan, self.sink, self.observer, self.stop = plan, sink, observer, stop
        self.rng = random.Random(plan.settings.seed)
        self.workers = Workers(plan, sink.logs, stop)
        for row in plan.implementations:
            if missing and row.home in missing:
                self.workers.refused[row.worker] = ("missing", missing[row.home])
        self.watch = Watch(plan.settings.device)
        self.pass_number: int | None = None
        self.finished = 0
        self.timed_s = 0.0
        self.builder = Builder(plan, self.workers, self.doing)
        self.estimate = Estimate(plan)
        self.until = math.inf  # when the rounds of the shape at hand are to end
        self.single = 0  # shapes that were measured without their A/A controls
        self.skipped = 0  # cells of these controls
        self.closer = FollowUps(
            plan,
            self.workers,
            self.builder,
            self.watch,
            look or ProfileOptions(),
            stop,
            self.doing,
            self.rng,
        )
        self.spent_s: defaultdict[str, float] = defaultdict(float)
        self.inside_s = 0.0  # what was done within what is being done, and is counted by itself

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *_: object) -> None:
        self.workers.close()
        self.watch.close()

    @property
    def note(self) -> str:
        """What NVML did not tell, and how to get it."""
        return self.watch.reason if self.plan.settings.device == "cuda" else ""

    def measure(
        self, pass_number: int, shape: Shape, cells: list[Cell], deadline: float | None
    ) -> None:
        """All cells of one shape in one pass; a pass has fresh workers."""
        if pass_number != self.pass_number:
            self.workers.end()
            names = dict.fromkeys(self.plan.worker(cell) for cell in cells if self.can_run(cell))
            self.workers.begin(list(names)[: machine.threads() // CORES_TO_IMPORT])
            self.pass_number = pass_number
        self.measure_shape(shape, cells, deadline)

    @contextlib.contextmanager
    def doing(self, what: str, one: Measurement | Cell, more: str = "") -> Iterator[None]:
        """Tell the observer what is done to which cell, and count the time."""
        cell = one if isinstance(one, Cell) else one.cell
        self.observer.doing(f"{cell.shape.label}  {more or what} {_name(cell)}")
        start, around = time.monotonic(), self.inside_s
        self.inside_s = 0.0
        try:
            yield
        finally:
            took = time.monotonic() - start
            self.spent_s[what] += took - self.inside_s
            self.inside_s = around + took

    def measure_shape(self, shape: Shape, cells: list[Cell], deadline: float | None) -> None:
        """All cells of one shape, interleaved; with a deadline as thoroughly as it allows."""
        group = f"{shape.label} {datetime.datetime.now(datetime.timezone.utc):%Y%m%dT%H%M%S.%f}"
        done_before = self.finished
        sampling = self.builder.sampling = self.plan.sampling
        self.until = deadline or math.inf
        if deadline is not None:
            able = [cell for cell in cells if self.can_run(cell)]
            way = budget.fullest(self.estimate, able, deadline - time.monotonic())
            sampling = self.builder.sampling = way.sampling
            self.single += len(way.cells(cells)) < len(cells)
            self.skipped += len(cells) - len(way.cells(cells))
            cells = way.cells(cells)
        live = self.prepare_all(cells, group)
        whole = not self.stop()  # then every cell was prepared, or cannot be
        if deadline is not None:
            calls_s, left_s = [one.call_s for one in live], deadline - time.monotonic()
            kinds = 2 if self.plan.settings.device == "cuda" else 1
            rounds = way.rounds or sampling.rounds
            sampling = budget.hurried(self.plan.sampling, calls_s, left_s / rounds, kinds)
        wanted = self.rounds(live, group, sampling)
        whole &= all(len(one.used) >= FEWEST_ROUNDS for one in live)
        for one in live:  # there was no time for more
            many = counted(len(one.used), "round")
            if not whole:
                self.finish(one, group, f"stopped after {many}")
                continue
            one.warn(f"hurried: there was time for {many}")
            wanted += self.close(one, group)
        for one, complete in self.closer.at(wanted):
            self.finish(one, group, "" if complete else "stopped before all was measured")
        if self.finished - done_before == len(cells):
            for record, blocks, profile in self.newer:
                self.sink.append(record, blocks, profile)
        else:  # some of the older times stay, and these could not be compared with them
            self.finished -= len(self.newer)
        self.newer.clear()

    def prepare_all(self, cells: list[Cell], group: str) -> list[Measurement]:
        """The cells that can be timed; what they cost corrects the estimate."""
        live: list[Measurement] = []
        for cell in cells:
            if self.stop():
                break
            before = self.spent_s.get("preparing", 0.0)
            if prepared := self.prepare(cell, group):
                same = (one for one in live if one.cell.implementation == cell.implementation)
                prepared.twin = next(same, None)
                live.append(prepared)
                took = self.spent_s["preparing"] - before
                self.estimate.learn(cell, prepared.call_s, took, self.builder.sampling)
        return live

    def rounds(self, live: list[Measurement], group: str, sampling: Sampling) -> list[Measurement]:
        """Blocks in turns until each cell has enough; those stay in `live` that have not.

        Returns the cells that are to be profiled, or whose energy is to be measured.
        """
        wanted: list[Measurement] = []
        round_s = 0.0
        for number in range(1, sampling.max_rounds + 1):
            begun = time.monotonic()
            no_more = number > FEWEST_ROUNDS and begun + round_s / 2 > self.until
            if self.stop() or not live or no_more:
                break
            for one in self.ordered(live):
                if self.stop():
                    break
                with self.doing("rounds", one, f"round {number} "):
                    measured = self.measure_round(one, number, group, sampling)
                if not measured:
                    live.remove(one)
                elif self.enough(one):
                    live.remove(one)
                    wanted += self.close(one, group)
            round_s = time.monotonic() - begun
        return wanted

    def close(self, one: Measurement, group: str) -> list[Measurement]:
        """Check a cell that has its rounds, and record it, unless it waits to be looked into."""
        self.check(one)
        if self.closer.wanted(one.cell):  # not while another is timed
            return [one]
        self.finish(one, group)
        return []

    def can_run(self, cell: Cell) -> bool:
        """Whether this run is on a device for this cell."""
        row = self.plan.row(cell.implementation)
        return row.settings_in(self.plan.settings).device in row.devices

    def prepare(self, cell: Cell, group: str) -> Measurement | None:
        """Build, check and warm one cell; a cell that cannot be timed is recorded instead."""
        row = self.plan.row(cell.implementation)
        if not self.can_run(cell):
            device = row.settings_in(self.plan.settings).device
            reason = f"runs on {' or '.join(row.devices)} only, this run is on {device}"
            self.record(self.blank(cell, "unsupported", reason, group), [])
            return None
        if row.worker in self.workers.refused:
            self.record(self.blank(cell, *self.workers.refused[row.worker], group), [])
            return None
        try:
            live = self.builder.build(cell)
        except WorkerFailed as failed:
            if failed.status != "interrupted":  # then nothing was measured, and it stays to be done
                self.record(self.blank(cell, failed.status, failed.reason, group), [])
            return None
        live.reply.memory |= self.watch.memory(live.worker)
        if not live.reply.check.passed:
            self.record(self.filled(live, group, "wrong", live.reply.check.reason), [])
            return None
        return live

    def ordered(self, live: list[Measurement]) -> list[Measurement]:
        """Shuffled, but calls of like length together, those of a decade that begins anywhere.

        Differences between these are small, and the host's pace moves within a tenth of a second:
        one call of a slow row may take longer than a block of each of the others.
        """
        order, begin = list(live), self.rng.random()
        self.rng.shuffle(order)
        return sorted(order, key=lambda one: math.floor(math.log10(one.call_s + 1e-9) + begin))

    def measure_round(self, one: Measurement, number: int, group: str, sampling: Sampling) -> bool:
        """One block that counts; false if the cell is lost."""
        try:
            if not self.workers.alive(one.worker):
                self.builder.build_anew(one)
                if one.blocks:
                    one.warn("two processes: the worker was restarted while this cell was timed")
            for _ in range(1 + MAX_REPEATS):
                self.watch.start(one.worker)
                asked = time.monotonic()
                try:
                    reply = self.workers.ask(
                        one.worker,
                        "measure",
                        sampling.timeout_s,
                        key=one.cell.key,
                        round_number=number,
                        sampling=to_json(sampling),
                        call_s=one.call_s,
                    )
                finally:
                    samples = self.watch.stop()
                block: Block = reply.block
                slow = one.note_gpu(block, samples)
                block.disturbed = bool(slow) or convergence.disturbed(block, one.blocks)
                one.blocks.append(block)
                one.spent_s += block.wall_s
                # the clock of a fake is virtual: no more passed than here
                self.timed_s += min(block.wall_s, time.monotonic() - asked)
                over = one.spent_s > sampling.cell_s or time.monotonic() > self.until
                if not block.disturbed or over or self.stop():
                    break
        except WorkerFailed as failed:
            self.record(self.filled(one, group, failed.status, failed.reason), one.blocks)
            self.builder.let_go(one)
            return False
        one.use(block)
        if block.disturbed:
            one.warn(slow or "disturbed: another process took the cores during a block")
        return True

    def enough(self, one: Measurement) -> bool:
        """Whether a cell has converged, or has used up what it may cost."""
        sampling, rounds = self.plan.sampling, len(one.used)
        if convergence.converged(one.latencies, sampling):
            return True
        if one.spent_s >= sampling.cell_s:
            if rounds < sampling.max_rounds:
                one.warn(f"capped: {counted(rounds, 'round')} in {one.spent_s:.3g} s")
            return True
        return rounds >= sampling.max_rounds

    def check(self, one: Measurement) -> None:
        """Compare the last timed answer with the reference, before anything else is called."""
        if not self.workers.alive(one.worker):
            one.warn("not checked again: the worker was gone before the last answer was looked at")
            return
        try:
            with self.doing("checking", one):
                limit = self.plan.sampling.timeout_s
                reply = self.workers.ask(one.worker, "check", limit, key=one.cell.key)
        except WorkerFailed as failed:
            one.warn(f"not checked again: {failed.reason}")
        else:
            one.reply.check = reply.check

    def finish(self, one: Measurement, group: str, cut_short: str = "") -> None:
        """Let the cell go and write it down; `cut_short` says why it is not whole."""
        status, reason = "ok", ""
        if cut_short and not one.used:
            return
        if not one.reply.check.passed:
            status, reason = "wrong", "after timing: " + one.reply.check.reason
        elif cut_short:
            status, reason = "interrupted", cut_short
        if problem := self.builder.let_go(one):
            one.warn(f"not released: {problem}")
        if one.worker.settings.device == "cpu" and (
            cores := convergence.crowded(one.used, machine.threads())
        ):
            one.warn(f"disturbed: other processes used {cores:.1f} cores while this was measured")
        if status == "ok" and not convergence.converged(one.latencies, self.plan.sampling):
            one.warn("not converged: the interval of the median is wider than was asked")
        self.record(self.filled(one, group, status, reason), one.blocks, one.profile)

    # records

    def blank(self, cell: Cell, status: str, reason: str, group: str) -> Record:
        hello = self.workers.hellos.get(self.plan.worker(cell))
        return blank_record(self.plan, cell, hello, status, reason, group)

    def filled(self, one: Measurement, group: str, status: str, reason: str) -> Record:
        return fill(self.blank(one.cell, status, reason, group), one)

    def record(self, record: Record, blocks: list[Block], profile: Profile | None = None) -> None:
        if record.key not in self.finished_before:
            self.sink.append(record, blocks, profile)
        elif record.status == "ok":
            self.newer.append((record, blocks, profile))
        if record.status != "interrupted":
            self.finished += 1
        self.observer.finished(record)


def _name(cell: Cell) -> str:
    return cell.implementation + (" (control)" if cell.copy > 1 else "")


def pending(plan: Plan, records: Iterable[Record], retry_failed: bool) -> list[Cell]:
    """The cells of a plan that still have to be measured.

    A shape that was cut short is measured again whole: only what was measured in turns can be
    compared. With `retry_failed` so is one where a profile or energy was lost, or where energy is
    from two GPUs.
    """
    records = list(records)
    again = (*UNFINISHED, *(RETRYABLE if retry_failed else ()))
    known = {record.key: record.status for record in records}
    whole = {(r.pass_number, r.shape) for r in records if lost(r)} | unlike_idle_w(records).keys()
    left = []
    for shape, group in by_shape(plan.all_cells()).items():
        statuses = [known.get(cell.key, "interrupted") for cell in group]
        cut_short = "interrupted" in statuses or (retry_failed and shape in whole)
        wanted = (*again, "ok") if cut_short else again
        left += [cell for cell, status in zip(group, statuses, strict=True) if status in wanted]
    return left
