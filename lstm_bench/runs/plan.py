"""The plan of a run: its cells, their order, its settings."""

from __future__ import annotations

import functools
import heapq
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from lstm_bench.model.shape_filter import holds
from lstm_bench.model.types import (
    Cell,
    Implementation,
    LstmBenchError,
    Sampling,
    Settings,
    Shape,
    to_json,
)
from lstm_bench.runs.estimate import Estimate

MAX_CELLS = 1_000_000
TWIN = "#2"  # behind the name of a worker: the other process of its A/A pairs


@dataclass(frozen=True)
class Workload:
    """The LSTM layers of a real model."""

    name: str
    shape: Shape
    source: str  # the public file that the shape was read from
    step_s: float = 0.0  # seconds of signal in a timestep; 0: it has no length


@dataclass(frozen=True)
class Plan:
    """A grid file made explicit; the manifest keeps it, and `--resume` reads it from there."""

    name: str
    shapes: tuple[Shape, ...]
    implementations: tuple[Implementation, ...]
    settings: Settings
    sampling: Sampling
    passes: int = 1
    controls: int = 2
    controls_shuffled: bool = False  # dealt to the shapes at random; in older runs in their order
    profile: bool = False  # after its rounds, each cell's calls are taken apart
    energy: bool = False  # and its energy is measured
    energy_where: tuple[str, ...] = ()  # at the shapes that hold to all of these
    environments: Mapping[str, str] = field(default_factory=dict)
    bases: Mapping[str, str] = field(default_factory=dict)  # of rows in two versions: new -> base
    absent: tuple[str, ...] = ()  # frameworks that were not there, so that no control is theirs
    shard: tuple[int, int] | None = None  # only the shapes of part 3 of 8
    workloads: tuple[Workload, ...] = ()  # names of shapes
    left_out: tuple[str, ...] = ()  # workloads that this kind of device does not run
    all_threads: bool = False  # the grid asks for all: on each node of a cluster, its own

    def wants_profile(self, cell: Cell) -> bool:
        """Return whether this cell is to be profiled; a control's calls are the same."""
        return self.profile and cell.copy == 1

    def wants_energy(self, cell: Cell) -> bool:
        """Return whether the energy of this cell is to be measured: it takes a GPU, and a while."""
        device = self.row(cell.implementation).settings_in(self.settings).device
        asked = all(holds(condition, cell.shape, "energy") for condition in self.energy_where)
        return self.energy and device == "cuda" and asked

    def row(self, name: str) -> Implementation:
        return next(r for r in self.implementations if r.name == name)

    def worker(self, cell: Cell) -> str:
        """The process that a cell runs in: the second of an A/A pair has another than the first.

        Two processes of the same code may differ for as long as they live; so do two runs.
        """
        return self.row(cell.implementation).worker + (TWIN if cell.copy % 2 == 0 else "")

    def own_shapes(self) -> list[Shape]:
        """The shapes of its shard, or all.

        The longest shape goes to the part that has least to do so far, and so on down: all parts
        take about as long. Shapes that take as long as each other are shuffled, so that no part
        has an end of an axis. The same plan is always divided alike.
        """
        if self.shard is None:
            return list(self.shapes)
        number, parts = self.shard
        estimate = Estimate(self)
        rows = [row.name for row in self.implementations]
        costs = {s: estimate.shape_s([Cell(name, s) for name in rows]) for s in self.shapes}
        loads = [(0.0, part) for part in range(1, parts + 1)]
        mine = set()
        shuffled = list(self.shapes)
        random.Random(f"{self.settings.seed} shards").shuffle(shuffled)
        for shape in sorted(shuffled, key=costs.__getitem__, reverse=True):
            load, part = heapq.heappop(loads)
            heapq.heappush(loads, (load + costs[shape], part))
            if part == number:
                mine.add(shape)
        return [shape for shape in self.shapes if shape in mine]

    def ordered_shapes(self, pass_number: int) -> list[Shape]:
        """Shuffled, so that a machine that slows down over an hour does not bend one axis."""
        shapes = self.own_shapes()
        random.Random(f"{self.settings.seed} {pass_number}").shuffle(shapes)
        return shapes

    def cells(self, shape: Shape, pass_number: int) -> list[Cell]:
        """All cells of a shape: every implementation, then its A/A controls.

        Implementations take turns at being measured twice, over the shapes in random order: so a
        whole grid has controls of every one of them and of every duration. In the grid's own order
        six implementations, two controls and three timesteps would go in step, and each have
        controls at one of the timesteps alone. Copies 1 and 2, 3 and 4, ... are pairs: one that
        would have no twin is not made.
        """
        cells = [Cell(r.name, shape, pass_number) for r in self.implementations]
        for name, more in self.controls_at(shape).items():
            cells += [Cell(name, shape, pass_number, n) for n in range(2, more + 2)]
        return cells

    def controls_at(self, shape: Shape) -> Counter[str]:
        """Count the A/A controls of each implementation at a shape; see `cells`."""
        rows = self._runnable
        first = self._places[shape] * self.controls
        turns = range(first, first + self.controls) if rows else ()
        counts = Counter(rows[turn % len(rows)] for turn in turns)
        # with the first an even number, so that each has its twin
        return Counter({name: more - (more + 1) % 2 for name, more in counts.items()})

    @functools.cached_property
    def _runnable(self) -> list[str]:
        """The implementations that can have controls here."""
        return [
            row.name
            for row in self.implementations
            if row.settings_in(self.settings).device in row.devices and row.home not in self.absent
        ]

    @property
    def controls_made(self) -> int:
        """At each shape."""
        return self.controls_at(self.shapes[0]).total() if self.shapes else 0

    @property
    def size(self) -> int:
        """The number of cells."""
        each = len(self.implementations) + self.controls_made
        return len(self.own_shapes()) * self.passes * each

    @functools.cached_property
    def _places(self) -> dict[Shape, int]:
        shapes = list(self.shapes)
        if self.controls_shuffled:
            random.Random(f"{self.settings.seed} controls").shuffle(shapes)
        return {shape: place for place, shape in enumerate(shapes)}

    def all_cells(self) -> list[Cell]:
        return [
            cell
            for number in range(1, self.passes + 1)
            for shape in self.ordered_shapes(number)
            for cell in self.cells(shape, number)
        ]

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @staticmethod
    def from_json(data: Mapping[str, Any], where: str) -> Plan:
        """The plan of a manifest; `where` is the run that it came from."""
        sampling = data.get("sampling") if isinstance(data, Mapping) else None
        if isinstance(sampling, Mapping):  # one load was all, before there could be more
            data = {**data, "sampling": {"loads": 1, **sampling}}
        try:
            plan = msgspec.convert(data, Plan)
        except (msgspec.ValidationError, RecursionError) as error:
            raise LstmBenchError(
                f"{where}/manifest.json: the plan cannot be read ({error}); start a new run"
            ) from None
        plan.check_size(f"{where}/manifest.json")
        return plan

    def check_size(self, where: str) -> None:
        """Refuse what nobody could measure, before every cell of it is made."""
        cells = len(self.shapes) * (len(self.implementations) + self.controls) * self.passes
        if cells > MAX_CELLS:
            raise LstmBenchError(f"{where}: {cells:,} cells, expected at most {MAX_CELLS:,}")

    def same_work(self, other: Plan) -> bool:
        """Return whether both plan the same work, perhaps with other interpreters or frameworks."""
        names = ("environments", "bases", "absent", "all_threads", "controls_shuffled")
        return self == replace(other, **{name: getattr(self, name) for name in names})
