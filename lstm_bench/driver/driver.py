"""Walks the plan: prepares every implementation of a shape, then measures them in rounds.

for each pass, with fresh workers
    for each shape, in shuffled order
        prepare:  build, first call, check, warm up; what fails is recorded at once
                  where several builds are asked for, all cells again, in shuffled order
        rounds:   one block per implementation, in shuffled order, until there is enough
        look:     if the plan says so, after the last round of the last of them: energy in turns,
                  then profiles; of cells that lost theirs in an earlier leg, that alone
        release:  the last answer is checked again, then the record is written
"""

from __future__ import annotations

import contextlib
import datetime
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lstm_bench.driver import convergence, machine
from lstm_bench.driver.cell import (
    Builder,
    Measurement,
    blank_record,
    fill,
    lost,
    not_seen,
    seen_again,
)
from lstm_bench.driver.follow_ups import CloserLook, Look
from lstm_bench.driver.gpu import Watch
from lstm_bench.driver.worker_pool import WorkerFailed, Workers
from lstm_bench.model.profile import Profile
from lstm_bench.model.types import (
    RETRYABLE,
    UNFINISHED,
    Block,
    Cell,
    Record,
    Shape,
    to_json,
    unlike_idle_w,
)
from lstm_bench.model.units import counted
from lstm_bench.runs.plan import Plan, guess_cell_s, guess_looks_s, guess_s, possible
from lstm_bench.runs.store import Sink

MAX_REPEATS = 3  # of a disturbed block
FEWEST_ROUNDS = 3  # that a budget leaves to a cell


class Observer(Protocol):
    """Is told what happens; the progress display is one."""

    def started(self, cells: int, seconds: float) -> None: ...
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
    finished: int = 0  # cells, those that only got another look apart
    left: int = 0  # cells that were planned and not reached
    note: str = ""  # what NVML did not tell, and how to get it


def run(
    plan: Plan,
    cells: list[Cell],
    sink: Sink,
    observer: Observer,
    stop: Callable[[], bool] = lambda: False,
    budget_s: float | None = None,
    missing: Mapping[str, str] | None = None,
    look: Look | None = None,
    finished: Collection[str] = (),
    again: Sequence[Record] = (),
) -> Outcome:
    """Measure `cells`, which are some or all of the plan's.

    `missing` names the frameworks that are not installed, with the reason for their cells.
    `look` says what else a profiled pass shall show. `finished` are the keys of cells that have a
    time: nothing less may take its place. Those of `again` only get another closer look.
    """
    missing = missing or {}
    walk = _Walk(plan, sink, observer, stop, look or Look(), finished)
    for row in plan.implementations:
        if row.framework in missing:
            walk.workers.refused[row.worker] = ("missing", missing[row.framework])
    started = time.monotonic()
    deadline = started + budget_s if budget_s else None
    groups = by_shape(cells)
    here = possible(plan, cells, missing)
    weights = dict.fromkeys(groups, 0.0)
    for cell in here:
        weights[cell.pass_number, cell.shape] += guess_cell_s(plan, cell)
    again = [r for r in again if possible(plan, [r.cell], missing)]
    left_weight = sum(weights.values()) + guess_looks_s(len(again))
    guessed_s = guess_s(plan, here) + guess_looks_s(len(again))
    observer.started(len(cells) + len(again), min(guessed_s, budget_s or math.inf))
    outcome = Outcome()
    current_pass = None
    try:
        for (pass_number, shape), group in groups.items():
            if pass_number != current_pass:
                walk.workers.end()
                current_pass = pass_number
            share = None
            if deadline is not None:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    outcome.out_of_budget = True
                    break
                part = weights[pass_number, shape] / max(left_weight, 1e-9)
                share = time.monotonic() + left_s * min(part, 1.0)
            walk.measure_shape(shape, group, share)
            left_weight -= weights[pass_number, shape]
            if stop():
                break
        by_key = {record.key: record for record in again}
        for looks in by_shape(record.cell for record in again).values():
            outcome.out_of_budget |= deadline is not None and time.monotonic() >= deadline
            if stop() or outcome.out_of_budget:
                break
            walk.look_again([by_key[cell.key] for cell in looks])
    finally:
        walk.workers.close()
        outcome.note = walk.watch.reason if plan.settings.device == "cuda" else ""
        walk.watch.close()
    outcome.wall_s, outcome.timed_s = time.monotonic() - started, walk.timed_s
    outcome.spent_s = dict(walk.spent_s)
    outcome.finished = walk.finished
    outcome.left = len(cells) - walk.finished + len(again) - walk.looked_at
    outcome.interrupted = stop() and outcome.left > 0
    return outcome


class _Walk:
    """Measures one shape of a run after another."""

    def __init__(
        self,
        plan: Plan,
        sink: Sink,
        observer: Observer,
        stop: Callable[[], bool],
        look: Look,
        finished_before: Collection[str],
    ):
        self.finished_before = finished_before
        self.plan, self.sink, self.observer, self.stop = plan, sink, observer, stop
        self.rng = random.Random(plan.settings.seed)
        self.workers = Workers(plan, sink.logs, stop)
        self.watch = Watch(plan.settings.device)
        self.finished = self.looked_at = 0
        self.timed_s = 0.0
        self.builder = Builder(plan, self.workers, self.doing)
        self.closer = CloserLook(
            plan, self.workers, self.builder, self.watch, look, stop, self.doing, self.rng
        )
        self.spent_s: defaultdict[str, float] = defaultdict(float)
        self.inside_s = 0.0  # what was done within what is being done, and is counted by itself

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
        for cell in cells:
            if self.stop():
                break
            if prepared := self.prepare(cell, group):
                same = (one for one in live if one.cell.implementation == cell.implementation)
                prepared.twin = next(same, None)
                live.append(prepared)
        for built in range(1, self.plan.sampling.builds):
            for one in self.rng.sample(live, len(live)):  # each time at other places in memory
                if self.stop() or one.builds < built:
                    continue
                if deadline is not None and time.monotonic() >= deadline:
                    one.warn(f"fewer builds: {built} are what --budget left")
                elif not self.build_again(one, group):
                    live.remove(one)
        for number in range(1, self.plan.sampling.max_rounds + self.plan.sampling.builds):
            if self.stop() or not live:
                break
            for one in self.ordered(live):
                if self.stop():
                    break
                with self.doing("rounds", one, f"round {number} "):
                    measured = self.measure_round(one, number, group)
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

    def look_again(self, records: list[Record]) -> None:
        """Profiles and energy of cells of one shape; they have their times, which stay.

        Energy is that of all of them or of none: the GPU may be another one by now. Those that have
        lost nothing are here for that.
        """
        dark = any("energy" in lost(record) or not lost(record) for record in records)
        all_lack = frozenset({"energy"} if dark else ())
        before: dict[str, Record] = {}
        built = []
        for record in records:
            if self.stop():
                break
            try:
                one = self.builder.build_as_recorded(record)
            except WorkerFailed as failed:
                if failed.status != "interrupted":
                    self.replace(not_seen(record, lost(record) | all_lack, failed.reason))
                continue
            one.lacks = lost(record) | all_lack
            before[record.key] = record
            built.append(one)
        seen = []
        for one, whole in self.closer.at(built):
            self.builder.let_go(one)
            seen += [one] if whole else []
        if dark and len(seen) < len(built):
            return
        for one in seen:
            self.replace(seen_again(before[one.cell.key], one), one.profile)

    def prepare(self, cell: Cell, group: str) -> Measurement | None:
        """Build, check and warm one cell; a cell that cannot be timed is recorded instead."""
        row = self.plan.row(cell.implementation)
        device = row.settings_in(self.plan.settings).device
        if device not in row.devices:
            needs = " or ".join(row.devices)
            reason = f"runs on {needs} only, this run is on {device}"
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

    def build_again(self, one: Measurement, group: str) -> bool:
        """One more build of a cell; false if the cell is lost with it."""
        try:
            self.builder.build_another(one)
        except WorkerFailed as failed:
            if failed.status != "interrupted":
                self.record(self.filled(one, group, failed.status, failed.reason), [])
            self.builder.let_go(one)
            return False
        return True

    def ordered(self, live: list[Measurement]) -> list[Measurement]:
        """Shuffled, but calls of like length together, those of a decade that begins anywhere.

        Differences between these are small, and the host's pace moves within a tenth of a second:
        one call of a slow row may take longer than a block of each of the others.
        """
        order, begin = list(live), self.rng.random()
        self.rng.shuffle(order)
        return sorted(order, key=lambda one: math.floor(math.log10(one.call_s + 1e-9) + begin))

    def measure_round(self, one: Measurement, number: int, group: str) -> bool:
        """One block that counts; false if the cell is lost."""
        sampling, key = self.plan.sampling, one.keys[(number - 1) % one.builds]
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
                        key=key,
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
        """Whether a cell has converged, or has used up what it may cost; all builds alike."""
        sampling, rounds = self.plan.sampling, len(one.used)
        if rounds % one.builds:
            return False
        if convergence.converged(one.latencies, sampling, one.builds):
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
        """Hold the last timed answers against the reference, before anything else is called."""
        if not self.workers.alive(one.worker):
            one.warn("not checked again: the worker was gone before the last answer was looked at")
            return
        try:
            with self.doing("checking", one):
                limit = self.plan.sampling.timeout_s
                checks = [
                    self.workers.ask(one.worker, "check", limit, key=k).check for k in one.keys
                ]
        except WorkerFailed as failed:
            one.warn(f"not checked again: {failed.reason}")
        else:
            one.reply.check = max(checks, key=lambda c: (not c.passed, c.max_abs_error))

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
        ways = Counter(one.paths.values())
        if len(ways) > 1:
            told = ", ".join(f"{path} in {counted(n, 'build')}" for path, n in ways.most_common())
            one.warn(f"several ways: {told}")
        if one.worker.settings.device == "cpu" and (
            cores := convergence.crowded(one.used, machine.threads())
        ):
            one.warn(f"disturbed: other processes used {cores:.1f} cores while this was measured")
        if status == "ok" and not convergence.converged(
            one.latencies, self.plan.sampling, one.builds
        ):
            one.warn("not converged: the interval of the median is wider than was asked")
        self.record(self.filled(one, group, status, reason), one.blocks, one.profile)

    # records

    def blank(self, cell: Cell, status: str, reason: str, group: str) -> Record:
        hello = self.workers.hellos.get(self.plan.row(cell.implementation).worker)
        return blank_record(self.plan, cell, hello, status, reason, group)

    def filled(self, one: Measurement, group: str, status: str, reason: str) -> Record:
        return fill(self.blank(one.cell, status, reason, group), one)

    def record(self, record: Record, blocks: list[Block], profile: Profile | None = None) -> None:
        if record.status == "ok" or record.key not in self.finished_before:
            self.sink.append(record, blocks, profile)
        if record.status != "interrupted":
            self.finished += 1
        self.observer.finished(record)

    def replace(self, record: Record, profile: Profile | None = None) -> None:
        """Write down what another look has found, in place of a record with the same times."""
        self.sink.append(record, [], profile)
        self.looked_at += 1
        self.observer.finished(record)


def _name(cell: Cell) -> str:
    return cell.implementation + (" (control)" if cell.copy > 1 else "")


def pending(plan: Plan, records: Iterable[Record], retry_failed: bool) -> list[Cell]:
    """The cells of a plan that still have to be measured.

    A shape that was cut short is measured again whole: only what was measured in turns can be
    compared.
    """
    again = (*UNFINISHED, *(RETRYABLE if retry_failed else ()))
    known = {record.key: record.status for record in records}
    left = []
    for group in by_shape(plan.all_cells()).values():
        statuses = [known.get(cell.key, "interrupted") for cell in group]
        wanted = (*again, "ok") if "interrupted" in statuses else again
        left += [cell for cell, status in zip(group, statuses, strict=True) if status in wanted]
    return left


def unseen(plan: Plan, records: Iterable[Record], left: Iterable[Cell]) -> list[Record]:
    """Cells of the plan that have their times, and whose profile or energy was lost.

    Energy is looked for at a shape as a whole: only what was measured on one GPU can be compared.
    So it is where some rows of a shape have it from another.
    """
    keys = {cell.key for cell in plan.all_cells()} - {cell.key for cell in left}
    timed = [r for r in records if r.status == "ok" and r.key in keys]
    dark = {(r.pass_number, r.shape) for r in timed if "energy" in lost(r)}
    dark |= unlike_idle_w(timed).keys()
    return [r for r in timed if lost(r) or (r.pass_number, r.shape) in dark]


def by_shape(cells: Iterable[Cell]) -> dict[tuple[int, Shape], list[Cell]]:
    """Cells that are measured in turns, in the order in which their shapes come."""
    groups: dict[tuple[int, Shape], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.pass_number, cell.shape), []).append(cell)
    return groups
