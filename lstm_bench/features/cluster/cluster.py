"""A grid over many nodes: which shape goes where, and what becomes of those that are lost.

The engine (`ray_cluster`) knows the nodes and carries shapes there and back; what comes back is
on disk before the next shape is given out. A run folder is written here and nowhere else.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from lstm_bench.driver.cell import record_of
from lstm_bench.driver.context import Observer, Outcome
from lstm_bench.features.cluster.node import NodeShare, ShapeResult
from lstm_bench.model.types import Cell, Record, Shape
from lstm_bench.model.units import counted, listed, span
from lstm_bench.runs.estimate import Estimate
from lstm_bench.runs.nodes import Kind
from lstm_bench.runs.plan import Plan
from lstm_bench.runs.store import Finished, Store

MAX_LOSSES = 3  # losses of one shape, after which its cells have failed
MAX_LOST_SHAPES = 3  # consecutive losses of different shapes, after which a node gets no more
SLOW = 10.0  # times slower than its peers: then a node is named
LEAST_S = 1.0  # a shorter shape says nothing about its node
REFRESH_S = 5.0  # after which the nodes that are there are asked for again
POLL_S = 0.2


@dataclass(frozen=True)
class Place:
    """A place to measure one shape at a time: a node of CPUs, or one GPU of a node."""

    node_id: str  # the engine's
    share: NodeShare
    kind: Kind
    threads: int  # that its rows may use
    cpus: float  # that the engine keeps for it


class Engine(Protocol):
    """Carries shapes to places and their cells back."""

    def there(self) -> Collection[Place]:
        """The places whose node is alive."""

    def send(self, place: Place, plan: Plan, shape: Job, budget_s: float | None) -> None: ...
    def came(self, timeout_s: float) -> list[tuple[Place, ShapeResult | str]]:
        """The shapes that came back since, or why they were lost."""


@dataclass
class Target:
    """A run to fill, and the kind of device that it is for; None: whichever is free."""

    plan: Plan
    sink: Store
    kind: Kind | None = None


@dataclass
class Job:
    """The cells of one shape that are still to be measured, all passes of it."""

    target: Target
    shape: Shape
    cells: list[Cell]
    guess_s: float
    kind: Kind | None = None  # where the rest of the shape was measured
    finished: Collection[str] = ()  # keys of its cells that have a time
    losses: list[str] = field(default_factory=list)
    avoid: set[Place] = field(default_factory=set)


def jobs(
    target: Target,
    cells: Sequence[Cell],
    finished: Collection[str] = (),
    kinds: Mapping[Shape, Kind] | None = None,
) -> list[Job]:
    """One for each shape; `kinds` says where some cells of a shape were measured already."""
    estimate, known, made = Estimate(target.plan), {*finished}, []
    groups: defaultdict[Shape, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[cell.shape].append(cell)
    for shape, own in groups.items():
        kind = target.kind or (kinds or {}).get(shape)
        timed = known.intersection(cell.key for cell in own)
        made.append(Job(target, shape, own, estimate.shape_s(own), kind, timed))
    return made


def plan_at(plan: Plan, place: Place) -> Plan:
    """The rows and settings of a plan for a place, with all of its own threads."""
    settings = replace(plan.settings, device=place.kind.device)
    if plan.all_threads:
        settings = replace(settings, threads=place.threads)
    return replace(plan, shapes=(), settings=settings)


class Dispatch:
    """Measures shapes wherever there is room."""

    def __init__(
        self,
        engine: Engine,
        work: Sequence[Job],
        observer: Observer,
        stop: Callable[[], bool] = lambda: False,
        budget_s: float | None = None,
    ):
        self.engine, self.observer, self.stop = engine, observer, stop
        self.begun = time.monotonic()
        self.deadline = None if budget_s is None else self.begun + budget_s
        #: The longest first: what is left at the end is short.
        self.waiting = sorted(work, key=lambda job: -job.guess_s)
        self.flying: dict[Place, tuple[Job, float]] = {}
        self.there: list[Place] = []
        self.refreshed = -REFRESH_S
        self.lost_at: defaultdict[Place, set[Shape]] = defaultdict(set)  # since one came back
        self.given_up: set[Place] = set()
        self.gone: set[str] = set()  # nodes
        self.paces = Paces()
        self.cells = sum(len(job.cells) for job in work)
        self.outcome = Outcome()
        self.spent: Counter[str] = Counter()

    def run(self) -> Outcome:
        self.refresh()
        places = max(1, len(self.there))
        guess = sum(job.guess_s for job in self.waiting) / places
        self.observer.started([c for job in self.waiting for c in job.cells], guess)
        while (self.waiting or self.flying) and not self.stop():
            if time.monotonic() - self.refreshed > REFRESH_S:
                self.refresh()
            self.give_out()
            if self.out_of_time() and not self.flying:
                self.outcome.out_of_budget = bool(self.waiting)
                break
            if self.waiting and not self.flying:
                self.outcome.stopped = self.stranded()
                break
            self.take_in(self.engine.came(POLL_S))
        self.outcome.wall_s = time.monotonic() - self.begun
        self.outcome.spent_s = dict(self.spent)
        self.outcome.left = self.cells - self.outcome.finished
        self.outcome.interrupted = self.stop() and self.outcome.left > 0
        self.outcome.places = places
        return self.outcome

    def out_of_time(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def refresh(self) -> None:
        """Ask which places are there now, and name the nodes that are gone."""
        now = self.engine.there()
        nodes = {place.share.node for place in now}
        for node in sorted({place.share.node for place in self.there} - nodes - self.gone):
            self.gone.add(node)
            self.observer.warn(f"node {node} is lost; its shapes go to others")
        self.there = [place for place in now if place not in self.given_up]
        self.refreshed = time.monotonic()
        for line in self.paces.slow(self.flying):
            self.observer.warn(line)
        self.announce()

    def announce(self) -> None:
        nodes, busy = ({place.share.node for place in some} for some in (self.there, self.flying))
        shapes = counted(len(self.waiting), "shape")
        lost = f", {len(self.gone)} lost" if self.gone else ""
        self.observer.doing(
            f"{counted(len(nodes), 'node')} ({len(busy)} measuring{lost}), {shapes} waiting"
        )

    def give_out(self) -> None:
        """One shape to every free place."""
        if self.out_of_time():
            return
        sent = False
        for place in self.there:
            if place in self.flying or not (job := self.next_for(place)):
                continue
            now = time.monotonic()
            left = None if self.deadline is None else self.deadline - now
            plan = plan_at(job.target.plan, place)
            self.engine.send(place, plan, job, left)
            self.flying[place] = (job, now)
            sent = True
        if sent:
            self.announce()

    def next_for(self, place: Place) -> Job | None:
        """The longest shape that may be measured there; one that was lost there goes elsewhere."""
        for number, job in enumerate(self.waiting):
            if job.kind not in (None, place.kind):
                continue
            others = (p for p in self.there if job.kind in (None, p.kind) and p not in job.avoid)
            if place in job.avoid and any(others):
                continue
            return self.waiting.pop(number)
        return None

    def take_in(self, came: Sequence[tuple[Place, ShapeResult | str]]) -> None:
        """Keep what came back: it is on disk before anything else is done."""
        done: list[tuple[Job, ShapeResult]] = []
        for place, result in came:
            job, since = self.flying.pop(place)
            if isinstance(result, str):
                self.lose(place, job, result)
                continue
            self.lost_at.pop(place, None)
            self.paces.note(place, time.monotonic() - since, job.guess_s)
            done.append((job, result))
        by_sink: defaultdict[Store, list[Finished]] = defaultdict(list)
        for job, result in done:
            by_sink[job.target.sink] += result.cells
        for sink, cells in by_sink.items():
            sink.append_all(cells)
        for _, result in done:
            self.outcome.timed_s += result.timed_s
            self.outcome.note = result.note or self.outcome.note
            self.spent.update(result.spent_s)
            for warning in result.warnings:
                node = result.cells[0][0].node if result.cells else "a node"
                self.observer.warn(f"{node}: {warning}")
            self.show(record for record, _, _ in result.cells)
        if done:
            ahead = sum(job.guess_s for job in self.waiting)
            ahead += sum(job.guess_s / 2 for job, _ in self.flying.values())
            self.observer.expect(self.paces.usual() * ahead / max(1, len(self.there)))

    def show(self, records: Iterable[Record]) -> None:
        for record in records:
            self.outcome.finished += record.status != "interrupted"
            self.observer.finished(record)

    def lose(self, place: Place, job: Job, reason: str) -> None:
        """Measure it elsewhere; a shape that was lost too often has failed."""
        node = place.share.node
        job.losses.append(f"{node}: {reason}")
        job.avoid.add(place)
        self.lost_at[place].add(job.shape)
        self.refresh()
        if len(self.lost_at[place]) >= MAX_LOST_SHAPES and place in self.there:
            self.given_up.add(place)
            self.there.remove(place)
            many = counted(MAX_LOST_SHAPES, "shape")
            self.observer.warn(f"node {node} gets no more: {many} in a row were lost there")
        if len(job.losses) < MAX_LOSSES:
            again = f"attempt {len(job.losses)} of {MAX_LOSSES}"
            self.observer.warn(f"{job.shape.label} was lost on {node} ({again}): {reason}")
            self.waiting.insert(0, job)
            return
        why = f"lost {len(job.losses)} times: {listed(job.losses)}"
        group = f"{job.shape.label} lost"
        cells = [cell for cell in job.cells if cell.key not in job.finished]
        failed = [record_of(job.target.plan, c, None, "crashed", why, group) for c in cells]
        job.target.sink.append_all((record, [], None) for record in failed)
        self.show(failed)

    def stranded(self) -> str:
        """Why nothing goes on."""
        left = counted(len(self.waiting), "shape")
        if not self.there:
            return f"no node is left that can measure, and {left} are waiting"
        kinds = sorted({job.kind.label for job in self.waiting if job.kind})
        return f"no node of {listed(kinds)} is left, and {left} must be measured there"


class Paces:
    """How long shapes take on each node, of what was guessed; the slow are named once."""

    def __init__(self) -> None:
        self.seen: defaultdict[Place, list[float]] = defaultdict(list)
        self.named: set[Place] = set()

    def note(self, place: Place, took_s: float, guess_s: float) -> None:
        self.seen[place].append(took_s / max(guess_s, LEAST_S))

    def usual(self) -> float:
        """The median over all shapes that came back."""
        return statistics.median(pace for paces in self.seen.values() for pace in paces)

    def slow(self, flying: Mapping[Place, tuple[Job, float]]) -> list[str]:
        """A line for each node that is far behind its peers, by what it returned or has not."""
        now, lines = time.monotonic(), []
        known = {place: statistics.median(paces) for place, paces in self.seen.items()}
        for place, (job, since) in flying.items():
            others = [
                pace
                for other, pace in known.items()
                if other.kind == place.kind and other.share.node != place.share.node
            ]
            if place in self.named or not others:
                continue
            usual = statistics.median(others)
            pace = max(known.get(place, 0.0), (now - since) / max(job.guess_s, LEAST_S))
            if pace > SLOW * usual and now - since > LEAST_S:
                self.named.add(place)
                lines.append(
                    f"node {place.share.node} is {pace / usual:.0f} times slower than its peers"
                    f" ({job.shape.label} for {span(now - since)}): look at it"
                )
        return lines
