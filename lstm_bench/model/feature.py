"""The doors to the core that a folder in `features/` may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Feature:
    """The things that a feature adds, each as `module:name` in its folder, loaded when needed.

    The core never imports a feature: it asks `lstm_bench.features` what stands behind a door.
    """

    #: Commands, each with the sentence that `lstm-bench --help` says of it.
    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    #: Functions of the Python API.
    api: Mapping[str, str] = field(default_factory=dict)
    #: Further doors, by name; each is described where the core calls it.
    doors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AddedColumn:
    """A column that a feature adds to a table of the core.

    Behind `column-summary` and `column-machines` a function makes it of (run, cells, metric).
    """

    key: str  # in the data
    heading: str
    show: Callable[[Any], str]  # also of None, or NaN: a row without a number
    note: str  # what the column is, for a reader
    #: By implementation; among machines by implementation, hidden, batch, timesteps, input size.
    values: Mapping[Any, float]
    facts: Mapping[str, Any] = field(default_factory=dict)  # more for JSON
    details: Sequence[Any] = ()  # texts and tables that `report --all` draws
