"""Walks the plan: prepares every implementation of a shape, then measures them in rounds.

for each pass, with fresh workers
    for each shape, in shuffled order
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
from lstm_bench.runs.plan import Plan, guess_cell_s, guess_s, possible
from lstm_bench.runs.store import Sink

CORES_TO_IMPORT = 4  # for each worker that starts beside others, so that import times stay true
MAX_REPEATS = 3  # of a disturbed block
FEWEST_ROUNDS = 8  # that a budget leaves to a cell: its blocks become shorter first


class Observer(Protocol):
    """Is told what happens; the progress display is one."""

    def started(self, cells: list[Cell], seconds: float) -> None: ...
    def doing(self, text: str) -> None: ...
    def finished(self, record: Record) -> None: ...


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
    deadline = started + budget_s if budget_s else None
    groups = by_shape(cells)
    here = possible(plan, cells, missing)
    weights = dict.fromkeys(groups, 0.0)
    for cell in here:
        weights[cell.pass_number, cell.shape] += guess_cell_s(plan, cell)
    left_weight = sum(weights.values())
    observer.started(cells, min(guess_s(plan, here), budget_s or math.inf))
    outcome = Outcome()
    with Walk(plan, sink, observer, stop, missing, look, finished) as walk:
        for at, group in groups.items():
            share = None
            if deadline is not None:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    outcome.out_of_budget = True
                    break
                part = weights[at] / max(left_weight, 1e-9)
                share = time.monotonic() + left_s * min(part, 1.0)
            walk.measure(*at, group, share)
            left_weight -= weights[at]
            if stop():
                break
        outcome.note = walk.note
    outcome.wall_s, outcome.timed_s = time.monotonic() - started, walk.timed_s
    outcome.spent_s = dict(walk.spent_s)
    outcome.finished = walk.finished
    outcome.left = len(cells) - walk.finished
    outcome.interrupted = stop() and outcome.left > 0
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
        """All cells of one shape, interleaved."""
        group = f"{shape.label} {datetime.datetime.now(datetime.timezone.utc):%Y%m%dT%H%M%S.%f}"
        live: list[Measurement] = []
        timed: list[Measurement] = []  # all rounds done, nothing recorded yet
        done_before = self.finished
        for cell in cells:
            if self.stop():
                break
            if prepared := self.prepare(cell, group):
                same = (one for one in live if one.cell.implementation == cell.implementation)
                prepared.twin = next(same, None)
                live.append(prepared)
        sampling = self.plan.sampling
        if deadline is not None:
            calls_s, left_s = [one.call_s for one in live], deadline - time.monotonic()
            kinds = 2 if self.plan.settings.device == "cuda" else 1
            sampling = convergence.hurried(sampling, calls_s, left_s / FEWEST_ROUNDS, kinds)
        for number in range(1, sampling.max_rounds + 1):
            if self.stop() or not live:
                break
            for one in self.ordered(live):
                if self.stop():
                    break
                with self.doing("rounds", one, f"round {number} "):
                    measured = self.measure_round(one, number, group, sampling)
                if not measured:
                    live.remove(one)
                elif self.enough(one, deadline):
                    live.remove(one)
                    self.check(one)
                    if self.closer.wanted(one.cell):  # not while another is timed
                        timed.append(one)
                    else:
                        self.finish(one, group)
        for one in live:  # cut short, all of them
            self.finish(one, group, f"stopped after {counted(len(one.used), 'round')}")
        for one, whole in self.closer.at(timed):
            self.finish(one, group, "" if whole else "stopped before all was measured")
        if self.finished - done_before == len(cells):
            for record, blocks, profile in self.newer:
                self.sink.append(record, blocks, profile)
        else:  # some of the older times stay, and these could not be compared with them
            self.finished -= len(self.newer)
        self.newer.clear()

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
                self.timed_s += block.wall_s
                if not block.disturbed or one.spent_s > sampling.cell_s or self.stop():
                    break
        except WorkerFailed as failed:
            self.record(self.filled(one, group, failed.status, failed.reason), one.blocks)
            self.builder.let_go(one)
            return False
        one.use(block)
        if block.disturbed:
            one.warn(slow or "disturbed: another process took the cores during a block")
        return True

    def enough(self, one: Measurement, deadline: float | None) -> bool:
        """Whether a cell has converged, or has used up what it may cost."""
        sampling, rounds = self.plan.sampling, len(one.used)
        if convergence.converged(one.latencies, sampling):
            return True
        if one.spent_s >= sampling.cell_s:
            if rounds < sampling.max_rounds:
                one.warn(f"capped: {counted(rounds, 'round')} in {one.spent_s:.3g} s")
            return True
        if deadline is not None and rounds >= FEWEST_ROUNDS and time.monotonic() >= deadline:
            if rounds < sampling.max_rounds:
                one.warn(f"hurried: {rounds} rounds are what --budget left")
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


def by_shape(cells: Iterable[Cell]) -> dict[tuple[int, Shape], list[Cell]]:
    """Cells that are measured in turns, in the order in which their shapes come."""
    groups: dict[tuple[int, Shape], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.pass_number, cell.shape), []).append(cell)
    return groups
