"""What a machine can do at best: constants that are measured on it, and kept by its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    matrix_flops: Mapping[str, float] = field(default_factory=dict)  # of matrix units: by class
    levels: tuple[Level, ...] = ()  # the nearest first

    def to_json(self) -> dict[str, Any]:
        """As a manifest keeps them."""
        return {
            **{name: value for name, value in vars(self).items() if name != "levels"},
            "exchange_s": {str(cores): s for cores, s in self.exchange_s.items()},
            "levels": [vars(level) for level in self.levels],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Limits:
        """What `to_json` gave."""
        return cls(
            **{
                **data,
                "exchange_s": {int(cores): s for cores, s in data["exchange_s"].items()},
                "levels": tuple(Level(**level) for level in data["levels"]),
            }
        )
