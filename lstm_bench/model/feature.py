"""What a feature adds to the core: the doors that a folder in `features/` may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Feature:
    """What a feature adds. Each value is `module:name` in its folder, loaded when it is needed.

    The core never imports a feature: it asks `lstm_bench.features` what stands behind a door.
    """

    #: Commands, each with the sentence that `lstm-bench --help` says of it.
    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    #: Functions of the Python API.
    api: Mapping[str, str] = field(default_factory=dict)
    #: Further doors, by name; each is described where the core calls it.
    doors: Mapping[str, str] = field(default_factory=dict)
