"""The features beside the core: a folder each, whose `FEATURE` says what it adds.

Without its folder a feature is gone, and the core works on.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

from lstm_bench.model.feature import Feature


@functools.cache
def features() -> dict[str, Feature]:
    """Every feature that is there, by its folder's name."""
    names = sorted(folder.name for folder in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").FEATURE for name in names}


def commands() -> dict[str, tuple[str, str]]:
    """The place of each command, and its help."""
    return {
        name: (f"features.{folder}.{where}", what)
        for folder, feature in features().items()
        for name, (where, what) in feature.commands.items()
    }


def api(name: str) -> Any:
    """A function of the Python API; None if no feature has it."""
    for folder, feature in features().items():
        if name in feature.api:
            return _loaded(folder, feature.api[name])
    return None


def behind(door: str) -> Iterator[Any]:
    """Each feature's part behind a door, in the order of their names."""
    for folder, feature in features().items():
        if door in feature.doors:
            yield _loaded(folder, feature.doors[door])


def _loaded(folder: str, where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(f"{__name__}.{folder}.{module}"), name)
