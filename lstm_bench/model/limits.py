"""The limits of a machine: constants that are measured on it, and stored with its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Level:
    """A level of the memory, of all cores together."""

    name: str
    bytes: float  # its capacity; 0: unlimited
    bytes_per_s: float  # 0: faster than the arithmetic
    local: bool = False  # each core has its own part, which is empty when a call starts


@dataclass(frozen=True)
class Limits:
    """The constants; `study/notes/limits.md` says how each is measured.

    A core is a multiprocessor of a GPU, or one of the threads that a run uses of a CPU.
    """

    device: str
    cores: int
    call_s: float  # the shortest call that a caller can wait for
    queued_s: float  # the shortest of many queued calls
    exchange_s: Mapping[int, float]  # by number of cores: the time until each has news of all
    cell_s: Mapping[str, float]  # by accuracy class: from h to the next h in one core
    taken_in: float  # bytes per second that all cores together get from each other; 0: unknown
    vector_flops: float  # per second, fp32
    narrow_flops: float = 0.0  # matrix units with few sequences, half precision; 0: unknown
    matrix_flops: Mapping[str, float] = field(default_factory=dict)  # by class, many sequences
    levels: tuple[Level, ...] = ()  # the nearest first

    def __post_init__(self) -> None:
        """Refuse impossible values: a manifest may come from anywhere."""
        rates = [self.vector_flops, *self.matrix_flops.values()]
        rates += [level.bytes_per_s for level in self.levels if not level.local]
        rest = [self.call_s, self.queued_s, self.taken_in, self.narrow_flops]
        rest += [*self.exchange_s.values(), *self.cell_s.values()]
        rest += [level.bytes for level in self.levels]
        if not all(0 < rate < math.inf for rate in rates):
            raise ValueError("expected rates above zero")
        if not all(0 <= value < math.inf for value in rest):
            raise ValueError("expected finite numbers from zero on")
        if not 1 <= min(self.exchange_s, default=0) <= max(self.exchange_s) <= self.cores:
            raise ValueError("expected exchanges between some of the cores")

    def better(self, other: Limits | None) -> Limits:
        """Take the better of each constant: disturbances only make them worse."""
        if other is None or (other.device, other.cores) != (self.device, self.cores):
            return self
        rates = {level.name: level.bytes_per_s for level in other.levels}
        levels = (
            replace(level, bytes_per_s=max(level.bytes_per_s, rates.get(level.name, 0.0)))
            for level in self.levels
        )
        return replace(
            self,
            exchange_s={n: min(s, other.exchange_s.get(n, s)) for n, s in self.exchange_s.items()},
            vector_flops=max(self.vector_flops, other.vector_flops),
            levels=tuple(levels),
        )

    def to_json(self) -> dict[str, Any]:
        """The form in a manifest."""
        return {
            **{name: value for name, value in vars(self).items() if name != "levels"},
            "exchange_s": {str(cores): s for cores, s in self.exchange_s.items()},
            "levels": [vars(level) for level in self.levels],
        }
