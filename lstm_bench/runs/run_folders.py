"""The runs of a results folder: what a new one is called, and which one is meant."""

from __future__ import annotations

import datetime
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from lstm_bench.model.suggest import guess
from lstm_bench.model.types import LstmBenchError, Shape
from lstm_bench.runs import store

START = "start one with `lstm-bench grid grids/default.yaml`, or name another folder with --results"

SHIPPED = Path(__file__).resolve().parent.parent.parent / "results"


def new_run_name(results: Path, grid: str) -> str:
    """The grid and the time; a number too where another run began in the same second."""
    name = f"{grid}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    names = (name, *(f"{name}-{number}" for number in range(2, 100)))
    return next((free for free in names if not (results / free).exists()), name)


def newest(results: Path) -> list[Path]:
    """The readable runs in a results folder, newest first by their own word.

    Not by the file's date: a checkout gives reference runs the date of the checkout.
    """
    runs = []
    for path in results.glob("*/manifest.json"):
        try:
            started = str(store.read_manifest(path.parent).get("started_at", ""))
        except LstmBenchError:
            continue
        runs.append((started, path.parent))
    return [folder for _, folder in sorted(runs, reverse=True)]


def is_run(results: Path, name: str) -> bool:
    """Return whether there is a run of that name, or at that path."""
    folders = (results / name, Path(name))
    return any(os.path.isfile(folder / "manifest.json") for folder in folders)  # any text


def split_part(results: Path, name: str | None) -> tuple[str | None, str]:
    """`mixed@H200`: a run, and the kind of device that is meant of those it was measured on."""
    if name is None or is_run(results, name):
        return name, ""
    run, _, part = name.partition("@")
    return (run, part) if is_run(results, run) else (name, "")


def find_run(results: str | Path, name: str | Path | None) -> Path:
    """The run called `name`, by name or by path, or the newest one."""
    results, name = Path(results), str(name or "")
    if name:
        for folder in (results / name, Path(name)):
            if (folder / "manifest.json").exists():
                return folder
        if Path(name).is_dir():
            raise LstmBenchError(f"{name}: holds no run, expected a folder with a manifest.json")
        known = [path.name for path in newest(results)]
        if not known:
            raise LstmBenchError(f"no run {name!r} in {results}, nor any other; {START}")
        hint = guess(name, known) or f"; the newest there: {', '.join(known[:5])}"
        raise LstmBenchError(f"no run {name!r} in {results}{hint}")
    for folder in newest(results):
        return folder
    raise LstmBenchError(f"no run in {results}; {START}")


def runs_of(results: Path, grid: str) -> list[Path]:
    """The runs of the grid of that name, newest first."""
    return [run for run in newest(results) if store.read_manifest(run)["plan"].get("name") == grid]


def name_of(folder: Path) -> str:
    """A run's name, also where it was found as `.`."""
    return folder.name or folder.resolve().name


def elsewhere(folder: Path) -> list[str]:
    """The flag that finds a run where it is, if it is not where runs usually are."""
    if folder.parent == Path("results"):
        return []
    return ["--results", str(folder.parent if folder.name else folder.resolve().parent)]


def resume_command(folder: Path, pythons: Mapping[str, str], *flags: str) -> str:
    """Return the command that goes on with a run."""
    words = ["lstm-bench", "grid", "--resume", name_of(folder), *elsewhere(folder)]
    for name, path in pythons.items():
        words += ["--python", f"{name}={path}"]
    return shlex.join([*words, *flags])


def with_shape(folder: Path, shape: Shape) -> list[Path]:
    """The runs beside this one whose plan has that shape, newest first."""
    sizes = asdict(shape)
    plans = ((run, store.read_manifest(run)["plan"]) for run in _beside(folder))
    return [run for run, plan in plans if sizes in plan.get("shapes", ())]


def _beside(folder: Path) -> list[Path]:
    """All runs of the results folder that this one is in."""
    return newest(folder.parent if folder.name else folder.resolve().parent)
