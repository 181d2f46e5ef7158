"""The time that no implementation can be below: docs/explanation/limits.md derives it.

A call is launched once. Its products have to be computed and its bytes moved, and its timesteps
come one after another: between two of them every core of a team has to hear of every other. A team
is as many cores as share a copy of the recurrent weights; teams work on different sequences. What
team is best for a shape is not known beforehand: the limit is that of the best.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lstm_bench.analysis.noise import METRICS
from lstm_bench.model.limits import Limits
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import ACCURACY, Shape

COLUMNS = 8  # sequences that a matrix unit takes at least: fewer cost as much
WIDE = 24  # sequences from which it multiplies faster than it has to fetch weights for fewer
WEIGHT_BYTES = {"fp32": 4, "tf32": 2, "half": 2, "int8": 1}  # least width for the class
VALUE_BYTES = {"fp32": 4, "tf32": 4, "half": 2, "int8": 4}  # of inputs and outputs
SUM_BYTES = 4
#: How many products of which class make one of another on matrix units, as far as they are known.
PRODUCTS: dict[str, dict[str, int]] = {
    "fp32": {"tf32": 3, "half": 3},
    "tf32": {"tf32": 1, "half": 1},
    "half": {"half": 1},
    "int8": {},
}


PARTS = ("launch", "barrier", "bandwidth", "arithmetic")


@dataclass(frozen=True)
class Limit:
    """The least time of a call, and what each part of the machine would take for it alone."""

    seconds: float
    launch_s: float
    barrier_s: float
    bandwidth_s: float
    arithmetic_s: float

    @property
    def binds(self) -> str:
        """The part that takes most of it."""
        return max(PARTS, key=lambda part: float(getattr(self, f"{part}_s")))


def limit_of(
    limits: Limits,
    shape: Shape,
    accuracy: str,
    computes: str = "lstm",
    metric: str = "latency",
) -> Limit:
    """The limit of a shape in an accuracy class.

    A layer of a stack can begin when the one below has put out a step, but in both directions only
    when that has ended. Sequences that end before the others need no arithmetic from there on.
    """
    launch_s = {"latency": limits.call_s, "throughput": limits.queued_s, "device": 0.0}[metric]
    used = sum(shape.each_length) / (shape.batch * shape.timesteps)
    layers = []
    for width in shape.widths:
        alone = Shape(shape.hidden, shape.batch, shape.timesteps, width)
        whole = _of_layer(limits, alone, accuracy, computes)
        chain = (
            whole if used == 1 else _of_layer(limits, replace(alone, batch=1), accuracy, computes)
        )
        products_s = shape.directions * used * whole.arithmetic_s
        layers.append(
            replace(chain, seconds=max(chain.seconds, products_s), arithmetic_s=products_s)
        )
    joined = sum if shape.directions == 2 else max
    arithmetic_s = sum(layer.arithmetic_s for layer in layers)
    return Limit(
        launch_s + max(joined(layer.seconds for layer in layers), arithmetic_s),
        launch_s,
        joined(layer.barrier_s for layer in layers),
        joined(layer.bandwidth_s for layer in layers),
        arithmetic_s,
    )


def _of_layer(limits: Limits, shape: Shape, accuracy: str, computes: str) -> Limit:
    """The limit of one layer in one direction, without its launch."""
    work = _Work(limits, shape, accuracy, computes)
    ways = itertools.product(work.teams(), work.rates or {"": math.inf})
    return min((work.by(team, unit, 0.0) for team, unit in ways), key=lambda limit: limit.seconds)


def distances(cells: pd.DataFrame, limits: Limits | None, metric: str = "latency") -> pd.DataFrame:
    """How far each cell on the measured device is from the limit of its shape, one row each.

    `over` is its time over that limit; of several passes the median counts.
    """
    value = METRICS[metric][0]
    good = (cells["status"] == "ok") & (cells["copy"] == 1) & cells[value].notna()
    good &= cells["precision"].isin(list(ACCURACY))
    good &= cells["device"] == (limits.device if limits else "")
    good &= ~cells["training"]  # the limit is that of a forward pass
    keys = ["implementation", *SHAPE, "precision", "computes"]
    medians = cells[good].groupby(keys, sort=False, as_index=False)[value].median()
    medians["accuracy"] = medians["precision"].map(ACCURACY)
    what = [*SHAPE, "accuracy", "computes"]
    known = []
    for key in medians[what].drop_duplicates().itertuples(index=False, name=None):
        assert limits  # else no cell is left
        *sizes, accuracy, computes = key
        limit = limit_of(limits, Shape.from_row(sizes), accuracy, computes, metric)
        known.append((*key, limit.binds, *dataclasses.astuple(limit)))
    times = dict.fromkeys(["limit_s", *(f"{part}_s" for part in PARTS)], float)
    table = pd.DataFrame(known, columns=[*what, "binds", *times])
    table = table.astype({**medians[what].dtypes, "binds": object, **times})
    medians = medians.merge(table, on=what)
    return medians.assign(over=medians[value] / medians["limit_s"])


def means(far: pd.DataFrame) -> dict[str, float]:
    """The geometric mean of each row over its shapes."""
    logs = np.log(far["over"]).groupby(far["implementation"])
    return {str(name): float(np.exp(mean)) for name, mean in logs.mean().items()}


@dataclass(frozen=True)
class _Team:
    cores: int
    count: int  # of teams
    sequences: int  # the most in one team


@dataclass(frozen=True)
class _Work:
    """The work of a call."""

    limits: Limits
    shape: Shape
    accuracy: str
    computes: str

    def teams(self) -> Iterator[_Team]:
        batch = self.shape.batch
        for cores in self.limits.exchange_s:
            count = min(self.limits.cores // cores, batch)
            yield _Team(cores, count, -(-batch // count))

    def by(self, team: _Team, unit: str, launch_s: float) -> Limit:
        """The least time with these teams, and recurrent products by this kind of unit."""
        limits, steps = self.limits, self.shape.timesteps
        cell_s = limits.cell_s.get(self.accuracy, min(limits.cell_s.values(), default=0.0))
        barrier_s = limits.exchange_s[team.cores] + cell_s
        # While h of some sequences travels others are computed: a step takes as long as the chain
        # of the fewest that can be taken at a time, or as the work for all.
        few_s, all_s = (self._products_s(n, team, unit) for n in (1, team.sequences))
        filled_s = self._filled_s(team)
        chain_s = filled_s + steps * (barrier_s + few_s)
        arithmetic_s = filled_s + steps * all_s + self._input_s()
        moved_s = filled_s + steps * max(self._heard_s(team), self._read_again_s(team))
        bandwidth_s = max(moved_s, self._once_s())
        longest = max(chain_s, arithmetic_s, bandwidth_s)
        arithmetic_s -= filled_s
        return Limit(launch_s + longest, launch_s, steps * barrier_s, bandwidth_s, arithmetic_s)

    # --- arithmetic

    @functools.cached_property
    def rates(self) -> dict[str, float]:
        """FLOP/s of the whole machine in this class by kind of unit, as far as it is known."""
        limits, products = self.limits, PRODUCTS[self.accuracy]
        wide = [limits.matrix_flops.get(unit, 0.0) / n for unit, n in products.items()]
        rates = {
            "wide": max(wide, default=0.0),
            "narrow": limits.narrow_flops / products.get("half", math.inf),
            "vector": limits.vector_flops if self.accuracy == "fp32" or any(wide) else 0.0,
        }
        return {unit: rate for unit, rate in rates.items() if rate}

    def _products_s(self, sequences: int, team: _Team, unit: str) -> float:
        """The recurrent products of a step for so many sequences of a team."""
        flops = 8 * self.shape.hidden**2 * self.limits.cores / team.cores
        if unit != "vector":
            sequences = -(-sequences // COLUMNS) * COLUMNS
        if unit == "wide" and self.limits.narrow_flops:
            sequences = max(sequences, WIDE)
        return sequences * flops / self.rates.get(unit, math.inf)

    def _input_s(self) -> float:
        """The input products of all timesteps, by the whole machine."""
        if self.computes != "lstm":
            return 0.0
        s = self.shape
        flops = 8 * s.batch * s.timesteps * s.hidden * s.input_size
        return flops / max(self.rates.values(), default=math.inf)

    # --- bytes

    @property
    def _recurrent(self) -> float:
        return 4 * self.shape.hidden**2 * WEIGHT_BYTES[self.accuracy]

    def _held(self, team: _Team) -> float:
        """The bytes of recurrent weights that a team keeps for the whole call."""
        local = sum(level.bytes for level in self.limits.levels if level.local)
        return min(self._recurrent, local * team.cores / self.limits.cores)

    def _read_s(self, size: float) -> float:
        """The time to read so many bytes: what a level can't hold comes from those behind it."""
        longest = 0.0
        for level in self.limits.levels:
            if not level.local:
                longest = max(longest, size / level.bytes_per_s)
                size = max(0.0, size - level.bytes)
        return longest

    def _once_s(self) -> float:
        """Weights, inputs and outputs, from where they lie between two calls."""
        s, width = self.shape, self.shape.input_size if self.computes == "lstm" else 0
        weights = self._recurrent + 4 * s.hidden * width * WEIGHT_BYTES[self.accuracy]
        values = s.timesteps * s.batch * (s.input_size + s.hidden)
        return self._read_s(weights + values * VALUE_BYTES[self.accuracy])

    def _read_again_s(self, team: _Team) -> float:
        """The recurrent weights that are not kept, in every step and by every team."""
        return team.count * self._read_s(self._recurrent - self._held(team))

    def _filled_s(self, team: _Team) -> float:
        """The recurrent weights that are kept, into the cores of all teams."""
        return team.count * self._held(team) / (self.limits.taken_in or math.inf)

    def _heard_s(self, team: _Team) -> float:
        """The h of a step, into all cores that need it.

        Cores that share columns of the weights need less of h, and hear of sums instead.
        """
        if team.cores == 1:
            return 0.0
        each = min(
            WEIGHT_BYTES[self.accuracy] / columns + 4 * SUM_BYTES * (columns - 1) / team.cores
            for columns in range(1, math.isqrt(team.cores) + 1)
        )
        heard = team.count * team.cores * team.sequences * self.shape.hidden * each
        return heard / (self.limits.taken_in or math.inf)
