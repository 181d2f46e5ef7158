"""A run as the sections ask it: pairs of rows, profiled cells, records; and the runs there are."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from lstm_bench import results, split, store
from lstm_bench.comparison import Comparison
from lstm_bench.model import LstmBenchError, Record, Shape
from lstm_bench.noise import SHAPE
from lstm_bench.results import Run
from lstm_bench.split import Split
from lstm_bench.units import wrapped
from lstm_bench.words import Pair, Pairs

#: What makes each run, for the line that stands where it is missing.
COMMANDS = {
    "h200-paper": "lstm-bench grid grids/paper.yaml --run h200-paper --profile",
    "h200-deepbench": "lstm-bench grid grids/deepbench.yaml --run h200-deepbench",
    "h200-noise": "lstm-bench grid grids/noise.yaml --run h200-noise",
    "cpu-default": "lstm-bench grid grids/default.yaml --run cpu-default --profile",
    "h200-repeat": "lstm-bench grid grids/paper.yaml --run h200-repeat --profile",
}

TITLES = {"deepbench": "C++ baseline", "pytorch": "PyTorch", "tensorflow": "TensorFlow"}

GPU, HOST = "GPU-bound", "host-bound"
GPU_BOUND = 0.9  # of the latency that the GPU is busy


@dataclass(frozen=True)
class Subject:
    """One run; what is worked out of it is worked out once."""

    run: Run

    @functools.cached_property
    def pairs(self) -> Pairs:
        return Pairs(self.run)

    def pair(self, a: str, b: str) -> Pair | None:
        """B against A over all shapes that both have; None if there is none."""
        return self.pairs(a, b)

    @functools.cached_property
    def splits(self) -> list[Split]:
        """The profiled cells on the device that can be trusted."""
        return split.read(self.run).on_device

    def stepwise(self, name: str) -> set[Shape]:
        """Where a row runs the recurrence step by step and not in one kernel, by its profile."""
        return {one.shape for one in self.splits if one.name == name and not one.in_one}

    def profiled(self, *names: str) -> list[Split]:
        """The profiled cells of these rows at the shapes that all of them have; none if none."""
        own = [one for one in self.splits if one.name in names]
        if {one.name for one in own} != set(names):
            return []
        cells, common = split.shared(own)
        return cells if common else []

    def bottlenecks(self, cells: pd.DataFrame) -> dict[str, npt.NDArray[np.bool_]]:
        """Which cells wait for the GPU and which for the host, as far as they are profiled."""
        busy = {(one.name, *dataclasses.astuple(one.shape)): 1 - one.idle for one in self.splits}
        keys = cells[["implementation", *SHAPE]].itertuples(index=False, name=None)
        share = np.array([busy.get(key, np.nan) for key in keys])
        return {GPU: share >= GPU_BOUND, HOST: share < GPU_BOUND}

    @functools.cached_property
    def all_records(self) -> list[Record]:
        """All cells, whether they have a time or not, controls among them."""
        return list(store.read_records(self.run.folder).values()) if self.run.folder else []

    @functools.cached_property
    def records(self) -> list[Record]:
        """All cells with a time, controls among them."""
        return [record for record in self.all_records if record.status == "ok"]

    @property
    def sampled(self) -> str:
        """How much was measured of a cell at most."""
        sampling = self.run.plan.sampling
        return f"{sampling.max_rounds} rounds of {sampling.block_s * 1e3:g} ms"

    @property
    def shapes(self) -> pd.DataFrame:
        """The shapes that were measured."""
        return self.run.cells[SHAPE].drop_duplicates()


@dataclass(frozen=True)
class Runs:
    """The runs that the study is made of; None where one is not there."""

    paper: Subject | None = None
    deepbench: Subject | None = None
    cpu: Subject | None = None
    noise: Subject | None = None
    repeats: tuple[Subject, ...] = ()  # of the paper's grid
    energy: tuple[Subject, ...] = ()  # of a small grid, one after the other


def read(folder: Path) -> Runs:
    """The runs in a results folder that the study knows by name."""

    def one(name: str) -> Subject | None:
        try:
            run = results.load(folder / name)
        except LstmBenchError:
            return None
        return Subject(run) if len(run.cells) else None

    def all_of(pattern: str) -> tuple[Subject, ...]:
        names = sorted(path.name for path in folder.glob(pattern))
        return tuple(found for name in names if (found := one(name)))

    return Runs(
        paper=one("h200-paper"),
        deepbench=one("h200-deepbench"),
        cpu=one("cpu-default"),
        noise=one("h200-noise"),
        repeats=all_of("h200-repeat*"),
        energy=all_of("h200-energy-*"),
    )


def missing(name: str) -> str:
    """The line that stands where a run would be needed."""
    return wrapped(f"The run `{name}` is not here; `{COMMANDS[name]}` makes it.")


def not_in(run: Run, what: str) -> str:
    """The same where the run is there, but not this of it: a profile, energy."""
    flag = {"profiles": "--profile", "energy": "--energy"}[what]
    command = COMMANDS.get(run.name, "lstm-bench grid GRID").split(" --profile")[0]
    return wrapped(
        f"The run `{run.name}` has no {what} of these rows; `{command} {flag}` measures them."
    )


def tf32(run: Run, other: str) -> str:
    """What single precision was, which all that another gains is held against."""
    if run.plan.settings.device != "cuda":
        return ""
    if run.plan.settings.tf32:
        return "TF32 is on: products in fp32 are rounded to it."
    return (
        "TF32 is off here, while PyTorch and TensorFlow turn it on by default: how much of what"
        f" {other} gains it would give fp32 was not measured."
    )


def shapes_of(of: Comparison) -> list[Shape]:
    """The shapes of a comparison, in its order."""
    return [Shape(*map(int, row)) for row in of.shapes[SHAPE].to_numpy()]
