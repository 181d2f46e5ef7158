"""What the tool knows of a framework beside its rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Framework:
    """What an implementation needs in the interpreter of its worker."""

    name: str
    requires: tuple[str, ...]  # importable modules
    distributions: tuple[str, ...]  # whose versions are worth recording
    install: str  # the one command that would make it run
