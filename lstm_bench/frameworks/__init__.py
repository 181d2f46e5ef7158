"""The table of implementations: each framework's folder has its rows and its session.

`rows.py` is all that is known of a framework, and everybody may read it; `session.py` runs the
rows, and only a worker imports it.
To add a variant, add a row; to add a framework, add a folder. `lstm-bench list`, the grid's name
check and the worker follow.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lstm_bench.model.errors import LstmBenchError
from lstm_bench.model.framework import Framework
from lstm_bench.model.suggest import guess, nearest
from lstm_bench.model.types import Implementation

#: Of the table.
_FIRST = ("deepbench", "persistent", "pytorch", "lstm_kernels", "libtorch", "tensorflow", "jax")
_NAMES = sorted(folder.name for folder in pkgutil.iter_modules(__path__) if folder.ispkg)
_FOLDERS = [
    importlib.import_module(f"{__name__}.{name}.rows") for name in dict.fromkeys([*_FIRST, *_NAMES])
]

FRAMEWORKS: dict[str, Framework] = {f.name: f for folder in _FOLDERS for f in folder.FRAMEWORKS}
IMPLEMENTATIONS: dict[str, Implementation] = {
    row.name: row for folder in _FOLDERS for row in folder.ROWS
}

#: The names of today for rows of stored runs and old grids; the old names go in 0.2.
RENAMED = {"pytorch-persistent": "lstm-kernels", "pytorch-tf32-persistent": "lstm-kernels-tf32"}

#: The rows of the paper, in its order; what a grid without `implementations:` runs.
PAPER = (
    *("deepbench", "pytorch", "pytorch-amp"),
    *(f"tf-mode{mode}{half}" for half in ("", "-amp") for mode in range(3)),
)

#: The names that another version of a framework may have, such as 2.12.0+cpu.
VERSION = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}"
NEW_VERSIONS, BASE_VERSIONS = ("new",), ("old", "base", "other")  # what names say of the sides
_NAME = re.compile(rf"(?P<plain>.+?)(~(?P<version>{VERSION}))?(@(?P<threads>[1-9]\d{{0,3}}))?")


def find(
    name: str, where: str, fakes: Mapping[str, Mapping[str, Any]] | None = None
) -> Implementation:
    """The row called `name`; `fakes` adds rows that a grid file scripts.

    `pytorch@1` is the row `pytorch` on the CPU with one thread, wherever the run is. `pytorch~old`
    is the same row in another version of PyTorch, `pytorch~old@1` both.
    """
    fakes = fakes or {}
    if name in fakes:
        script = dict(fakes[name])
        process = script.pop("process", "")
        base = IMPLEMENTATIONS["fake"]
        framework = f"fake-{process}" if process else "fake"
        precision = script.pop("precision", base.precision)
        return replace(base, name=name, framework=framework, precision=precision, options=script)
    parts = _NAME.fullmatch(name)
    if parts and (now := RENAMED.get(parts["plain"])):
        name = name.replace(parts["plain"], now, 1)
        parts = _NAME.fullmatch(name)
    if name in IMPLEMENTATIONS:
        return IMPLEMENTATIONS[name]
    if parts and parts["plain"] in (*fakes, *IMPLEMENTATIONS):
        row = find(parts["plain"], where, fakes)
        threads, version = int(parts["threads"] or 0), parts["version"] or ""
        return replace(row, name=name, threads=threads, version=version)
    raise LstmBenchError(
        f"{where}: no implementation is called {name!r}{nearest(name, [*IMPLEMENTATIONS, *fakes])}"
        " (`lstm-bench list` shows all)"
    )


def in_version(row: Implementation, version: str) -> str:
    """The name of the same row in another version of its framework."""
    threads = f"@{row.threads}" if row.threads else ""
    return f"{row.name.removesuffix(threads)}~{version}{threads}"


def versions_of(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The rows that run each plain row: `{"pytorch": {"": "pytorch", "old": "pytorch~old"}}`."""
    rows: dict[str, dict[str, str]] = {}
    for name in names:
        if parts := _NAME.fullmatch(name):
            threads = f"@{parts['threads']}" if parts["threads"] else ""
            rows.setdefault(parts["plain"] + threads, {})[parts["version"] or ""] = name
    return rows


def bases(names: Iterable[str]) -> dict[str, str]:
    """The base of each new row, where the names of versions say which is which."""
    clear = {}
    for rows in versions_of(names).values():
        new, old = (
            [row for version, row in rows.items() if version.lower() in side]
            for side in (NEW_VERSIONS, BASE_VERSIONS)
        )
        if "" in rows and old and not new and len(old) == 1:
            clear[rows[""]] = old[0]
        if "" in rows and new and not old:
            clear |= dict.fromkeys(new, rows[""])
    return clear


def known(framework: str) -> Framework:
    """Return what is known of a framework: nothing if a run names one that is gone."""
    name = "fake" if framework.startswith("fake-") else framework
    return FRAMEWORKS.get(name) or Framework(name, (), (), "")


def snippet(row: Implementation, device: str = "cpu", training: bool = False) -> str:
    """The code of a row on a device; empty for one that no program can use, such as `fake`.

    Nor has a training step any: it is a part of a loop that is the user's own.

    The precision of a row with AMP may be the one that a run recorded, as `amp-bf16`.
    """
    framework = known(row.framework)
    code = framework.code(row, device) if framework.code and not training else ""
    threads = f"{framework.threads_code.format(row.threads)}\n" if row.threads else ""
    return code and threads + code


def framework_of(implementation: Implementation) -> Framework:
    """Return what an implementation needs, under the name of what has an interpreter."""
    if not known(implementation.framework).install:
        raise LstmBenchError(
            f"{implementation.name}: FRAMEWORKS in lstm_bench/frameworks has no"
            f" {implementation.framework!r}{guess(implementation.framework, FRAMEWORKS)}"
        )
    return replace(known(implementation.framework), name=implementation.home)
