"""What a machine can do at best: constants that are measured on it, and kept by its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Level:
    """A level of the memory, of all cores together."""

    name: str
    bytes: float  # that it can hold; 0: all that there is
    bytes_per_s: float  # 0: as fast as it can be computed with
    local: bool = False  # each core has its own part, which is empty when a call starts


@dataclass(frozen=True)
class Limits:
    """The constants; `docs/explanation/limits.md` says how each is measured.

    A core is a multiprocessor of a GPU, or one of the threads that a run uses of a CPU.
    """

    device: str
    cores: int
    call_s: float  # the shortest call that a caller can wait for
    queued_s: float  # the same, of many that are queued
    exchange_s: Mapping[int, float]  # every core of so many hears of every other
    cell_s: Mapping[str, float]  # from h to the next, in one core: by accuracy class
    taken_in: float  # bytes per second that all cores together get from each other; 0: not known
    vector_flops: float  # per second, fp32
    narrow_flops: float = 0.0  # of matrix units with few sequences, half; 0: not known
    matrix_flops: Mapping[str, float] = field(default_factory=dict)  # with many: by class
    levels: tuple[Level, ...] = ()  # the nearest first

    def __post_init__(self) -> None:
        """A manifest may come from anybody."""
        rates = [self.vector_flops, *self.matrix_flops.values()]
        rates += [level.bytes_per_s for level in self.levels if not level.local]
        rest = [self.call_s, self.queued_s, self.taken_in, self.narrow_flops]
        rest += [*self.exchange_s.values(), *self.cell_s.values()]
        rest += [level.bytes for level in self.levels]
        if not all(0 < rate < math.inf for rate in rates):
            raise ValueError("expected rates above zero")
        if not all(0 <= one < math.inf for one in rest):
            raise ValueError("expected finite numbers from zero on")
        if not 1 <= min(self.exchange_s, default=0) <= max(self.exchange_s) <= self.cores:
            raise ValueError("expected exchanges between some of the cores")

    def better(self, other: Limits | None) -> Limits:
        """The better of each constant: what disturbs can only make them worse."""
        if other is None or (other.device, other.cores) != (self.device, self.cores):
            return self
        rates = {level.name: level.bytes_per_s for level in other.levels}
        levels = (
            replace(one, bytes_per_s=max(one.bytes_per_s, rates.get(one.name, 0.0)))
            for one in self.levels
        )
        return replace(
            self,
            exchange_s={n: min(s, other.exchange_s.get(n, s)) for n, s in self.exchange_s.items()},
            vector_flops=max(self.vector_flops, other.vector_flops),
            levels=tuple(levels),
        )

    def to_json(self) -> dict[str, Any]:
        """As a manifest keeps them."""
        return {
            **{name: value for name, value in vars(self).items() if name != "levels"},
            "exchange_s": {str(cores): s for cores, s in self.exchange_s.items()},
            "levels": [vars(level) for level in self.levels],
        }
