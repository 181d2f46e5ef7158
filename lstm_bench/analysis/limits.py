"""The time that no implementation can be below: docs/explanation/limits.md derives it.

A call is launched once. Its products have to be computed and its bytes moved, and its timesteps
come one after another: between two of them every core of a team has to hear of every other. A team
is as many cores as share a copy of the recurrent weights; teams work on different sequences. What
team is best for a shape is not known beforehand: the floor is that of the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from lstm_bench.model.limits import Limits
from lstm_bench.model.types import Shape

COLUMNS = 8  # sequences that a matrix unit takes at least: fewer cost as much
WEIGHT_BYTES = {"fp32": 4, "tf32": 2, "half": 2, "int8": 1}  # of what a class has to tell apart
VALUE_BYTES = {"fp32": 4, "tf32": 4, "half": 2, "int8": 4}  # of inputs and outputs
SUM_BYTES = 4
#: What a product of a class costs on matrix units of another: fp32 from three products of halves.
PRODUCTS = {
    "fp32": {"tf32": 3, "half": 3},
    "tf32": {"tf32": 1, "half": 1},
    "half": {"half": 1},
    "int8": {},
}


@dataclass(frozen=True)
class Floor:
    """The least time of a call, and what each part of the machine would take for it alone."""

    seconds: float
    launch_s: float
    barrier_s: float
    bandwidth_s: float
    arithmetic_s: float

    @property
    def binds(self) -> str:
        """What takes most of it."""
        parts = ("launch", "barrier", "bandwidth", "arithmetic")
        return max(parts, key=lambda part: float(getattr(self, f"{part}_s")))


def floor(
    limits: Limits,
    shape: Shape,
    accuracy: str,
    computes: str = "lstm",
    metric: str = "latency",
) -> Floor:
    """The floor of a shape in an accuracy class."""
    work = _Work(limits, shape, accuracy, computes)
    launch_s = {"latency": limits.call_s, "throughput": limits.queued_s, "device": 0.0}[metric]
    return min((work.by(team, launch_s) for team in work.teams()), key=lambda one: one.seconds)


@dataclass(frozen=True)
class _Team:
    cores: int
    count: int  # of teams
    sequences: int  # of the one that has most


@dataclass(frozen=True)
class _Work:
    """What a call has to do."""

    limits: Limits
    shape: Shape
    accuracy: str
    computes: str

    def teams(self) -> Iterator[_Team]:
        batch = self.shape.batch
        for cores in self.limits.exchange_s:
            count = max(1, min(self.limits.cores // cores, batch))
            yield _Team(cores, count, -(-batch // count))

    def by(self, team: _Team, launch_s: float) -> Floor:
        steps, total = self.shape.timesteps, self.limits.cores
        share = team.cores / total  # of the machine that a team is
        cell_s = self.limits.cell_s.get(self.accuracy, min(self.limits.cell_s.values(), default=0))
        barrier_s = self.limits.exchange_s[team.cores] + cell_s
        # While the h of some sequences travels others are computed: a step takes as long as the
        # chain of the fewest that can be taken at a time, or as the work for all.
        chain_s = barrier_s + self._products_s(1) / share
        busy_s = self._products_s(team.sequences) / share
        arithmetic_s = max(steps * chain_s - steps * barrier_s, steps * busy_s + self._input_s())
        moved_s = self._filled_s(team) + steps * max(self._heard_s(team), self._read_again_s(team))
        bandwidth_s = max(moved_s, self._once_s())
        filled_s = self._filled_s(team)
        seconds = max(filled_s + steps * chain_s, filled_s + arithmetic_s, bandwidth_s)
        return Floor(launch_s + seconds, launch_s, steps * barrier_s, bandwidth_s, arithmetic_s)

    # --- arithmetic

    def _rates(self) -> dict[str, float]:
        """FLOP/s of the whole machine in this class, by kind of unit; none if it is not known."""
        rates = {
            unit: self.limits.matrix_flops[unit] / products
            for unit, products in PRODUCTS[self.accuracy].items()
            if unit in self.limits.matrix_flops
        }
        found = {"matrix": max(rates.values())} if rates else {}
        if self.accuracy == "fp32" or rates:
            found["vector"] = self.limits.vector_flops
        return found

    def _products_s(self, sequences: int) -> float:
        """The recurrent products of a step for so many sequences, by the whole machine."""
        flops = 8 * self.shape.hidden**2
        padded = {"matrix": -(-sequences // COLUMNS) * COLUMNS, "vector": sequences}
        return min(
            (padded[unit] * flops / rate for unit, rate in self._rates().items()), default=0.0
        )

    def _input_s(self) -> float:
        """The input products of all timesteps."""
        if self.computes != "lstm" or not self._rates():
            return 0.0
        shape = self.shape
        flops = 8 * shape.batch * shape.timesteps * shape.hidden * shape.input_size
        return flops / max(self._rates().values())

    # --- bytes

    @property
    def _recurrent(self) -> int:
        return 4 * self.shape.hidden**2 * WEIGHT_BYTES[self.accuracy]

    def _once_s(self) -> float:
        """Weights, inputs and outputs, from where they lie between two calls."""
        shape, weights, values = self.shape, self._recurrent, shape_values(self.shape)
        if self.computes == "lstm":
            weights += 4 * shape.hidden * shape.input_size * WEIGHT_BYTES[self.accuracy]
        return self._through(weights + values * VALUE_BYTES[self.accuracy], 0, 1)

    def _read_again_s(self, team: _Team) -> float:
        """The recurrent weights in every step, from the nearest level that can hold them."""
        local = sum(level.bytes for level in self.limits.levels if level.local)
        held = local * team.cores / self.limits.cores
        return (
            self._through(max(0.0, self._recurrent - held), 0, team.count)
            if local
            else (self._through(self._recurrent, 0, team.count))
        )

    def _through(self, size: float, held: float, times: int) -> float:
        """The time to read so many bytes: what a level can't hold comes from those behind it."""
        longest = 0.0
        for level in self.limits.levels:
            if level.local:
                continue
            longest = max(longest, times * max(0.0, size - held) / level.bytes_per_s)
            held += level.bytes
        return longest

    def _filled_s(self, team: _Team) -> float:
        """The recurrent weights into the cores of all teams, where they are gone between calls."""
        local = sum(level.bytes for level in self.limits.levels if level.local)
        held = min(self._recurrent, local * team.cores / self.limits.cores)
        return team.count * held / self.limits.taken_in if local and self.limits.taken_in else 0.0

    def _heard_s(self, team: _Team) -> float:
        """The h of a step, into all cores that need it.

        Cores that share columns of the weights need less of h and hear of sums instead.
        """
        if team.cores == 1 or not self.limits.taken_in:
            return 0.0
        h = WEIGHT_BYTES[self.accuracy]
        bytes_per_unit = min(
            h / columns + 4 * SUM_BYTES * (columns - 1) / team.cores
            for columns in range(1, math.isqrt(team.cores) + 1)
        )
        taken = team.cores * team.sequences * self.shape.hidden * bytes_per_unit
        return team.count * taken / self.limits.taken_in


def shape_values(shape: Shape) -> int:
    """How many inputs and outputs a call has."""
    return shape.timesteps * shape.batch * (shape.input_size + shape.hidden)
