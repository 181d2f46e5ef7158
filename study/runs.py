"""The shipped runs, and the questions of the study to them."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pandas as pd

from lstm_bench.analysis import noise, results, summary
from lstm_bench.analysis.comparison import Comparison, Group, clear, compare
from lstm_bench.features.profile import cells as profiled_cells
from lstm_bench.features.profile.cells import Split
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import Record, Shape
from lstm_bench.runs import store

ROOT = Path(__file__).resolve().parent.parent
MAIN, REPEAT = "h200-paper", "h200-repeat"  # the same grid twice, the second with fewer rounds
LADDER = "h200-ladder"  # every way to run the layer
FEW_ROWS = "h200-budget"  # seven of them, in 200 s
KERNEL = "h200-kernel"  # our kernels beside the best of cuDNN
MANY = "h200-warpgroups"  # the same since there are kernels for many sequences, at fewer shapes
DEEPBENCH = "h200-deepbench"  # both, and the frameworks, at DeepBench's shapes
BEST, BEST_HALF = "deepbench-best", "deepbench-fp16-best"
CPU_LAYER = "cpu-layer"  # our layer on a CPU, as it is called from Python
PLAIN = "pytorch-tf32"  # what a user of PyTorch gets without touching a setting
GPU_BOUND = 0.9  # of its latency that the GPU is busy


def shipped() -> list[str]:
    """The runs that Git keeps. Your own lie beside them, and are no part of the study."""
    return sorted(re.findall(r"(?m)^!/results/(.+)/$", (ROOT / ".gitignore").read_text()))


class Stale(Exception):
    """A sentence of the study rests on something that the runs no longer show."""


class Study:
    """A run, with what is computed from it once."""

    def __init__(self, name: str):
        self.name = name
        self.run = results.load(ROOT / "results" / name)
        self.cells = self.run.cells[self.run.cells["copy"] == 1]

    @functools.cache  # noqa: B019 - a handful of runs, alive as long as the program
    def against(self, a: str, b: str) -> Comparison:
        """The latency of B against that of A, shape by shape."""
        return compare(self.cells, a, b, across=None, floors=[self.run.noise])

    @functools.cached_property
    def times(self) -> pd.DataFrame:
        """Median latency in seconds: a row per shape, a column per implementation."""
        times = summary.times(self.cells)
        index = pd.MultiIndex.from_frame(times.shapes[SHAPE])
        names = pd.Index(times.names, name="implementation")
        return pd.DataFrame(times.seconds, index=index, columns=names)

    @functools.cached_property
    def splits(self) -> list[Split]:
        """The profiled cells."""
        return profiled_cells.read(self.run).on_device

    def profiled(self, name: str) -> dict[Shape, Split]:
        return {split.shape: split for split in self.splits if split.name == name}

    def stepwise(self, name: str) -> set[Shape]:
        """The shapes at which a row runs the recurrence step by step, not in one kernel."""
        return {shape for shape, split in self.profiled(name).items() if not split.in_one}

    @functools.cached_property
    def records(self) -> list[Record]:
        """All cells with a time, controls included."""
        records = store.read_records(self.run.folder) if self.run.folder else {}
        return [record for record in records.values() if record.status == "ok"]

    def verdicts(self, names: Collection[str]) -> pd.DataFrame:
        """All pairs of these implementations, at every shape."""
        result = [
            self.against(a, b).shapes[[*SHAPE, "verdict"]].assign(a=a, b=b)
            for a, b in itertools.combinations(names, 2)
        ]
        return pd.concat(result, ignore_index=True)


@functools.cache
def load(name: str) -> Study:
    return Study(name)


def shapes_of(pair: Comparison) -> list[Shape]:
    return [Shape.from_row(row) for row in pair.shapes[SHAPE].to_numpy()]


def only(pair: Comparison, chosen: Callable[[Shape], bool]) -> Comparison:
    """The comparison at some of its shapes."""
    return pair.part(np.array([chosen(shape) for shape in shapes_of(pair)]))


def at(pair: Comparison, **sizes: int) -> Comparison:
    """The comparison at `batch=1` and the like."""
    return only(pair, lambda shape: all(getattr(shape, axis) == n for axis, n in sizes.items()))


def floor_of(pair: Comparison) -> float:
    """The noise floor that a mean over these shapes must be beyond."""
    return float(pair.shapes["floor"].median())


def is_clear(pair: Comparison, group: Group | None = None) -> bool:
    """True if B differs from A beyond the noise, over all of these shapes together."""
    return clear(group or pair.group(), floor_of(pair))


def repeated() -> pd.DataFrame:
    """Each cell of the main run and of its repeat: by how much the latter's latency differs."""
    first, second = (load(name).times.stack().rename(name) for name in (MAIN, REPEAT))
    both = pd.concat([first, second], axis=1, join="inner").reset_index()
    busy = {(split.name, split.shape): 1 - split.idle for split in load(MAIN).splits}
    keys = zip(both["implementation"], both[SHAPE].itertuples(index=False), strict=True)
    share = np.array([busy[name, Shape.from_row(shape)] for name, shape in keys])
    change = np.abs(both[REPEAT] / both[MAIN] - 1)
    names = both["implementation"].tolist()
    floor = noise.floor_at(load(MAIN).run.noise, both[MAIN], names)
    return both.assign(change=change, gpu_bound=share >= GPU_BOUND, inside=change <= floor)
