"""Where finished cells go: a `Store` on disk is one such place, `Kept` another."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lstm_bench.model.profile import Profile
from lstm_bench.model.types import Block, Record


class Sink(Protocol):
    """Takes finished cells, each with its blocks and what a profiled pass found."""

    @property
    def logs(self) -> Path: ...
    def append(
        self, record: Record, blocks: list[Block], profile: Profile | None = None
    ) -> None: ...


@dataclass
class Kept:
    """Records in memory; the workers' logs go to a folder that is not kept."""

    logs: Path
    records: list[Record] = field(default_factory=list)

    def append(self, record: Record, blocks: list[Block], profile: Profile | None = None) -> None:
        self.records.append(record)
