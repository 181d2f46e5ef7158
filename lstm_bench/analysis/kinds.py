"""A run that was measured on unlike devices, taken apart: each kind of device by itself.

Shapes of one kind are compared, and have a noise floor of their own; shapes of two are not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lstm_bench.analysis.results import Run, load
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import LstmBenchError, Shape, from_json
from lstm_bench.model.units import counted
from lstm_bench.runs import nodes, run_folders
from lstm_bench.runs.nodes import Kind, Node


def load_part(results: str | Path, name: str | Path) -> Run:
    """A run on one kind of device, or that part of a mixed one: `mixed@H200`."""
    run, part = run_folders.split_part(Path(results), str(name))
    return chosen(load(run_folders.find_run(Path(results), run)), part)


def parts(run: Run) -> list[Run]:
    """The run of each kind of device that a run has cells of, the largest first."""
    known = nodes.read(run.folder) if run.folder else {}
    own = nodes.kind_of(run.manifest["machine"], run.plan.settings)
    kinds = {name: nodes.kind_of_node(node, run.plan) for name, node in known.items()}
    named = list(run.cells["node"].unique())
    if len({kinds.get(name, own) for name in named}) < 2:
        return [run]
    members: dict[Kind, list[str]] = {}
    for name in named:
        members.setdefault(kinds.get(name, own), []).append(name)
    runs = [
        _part(run, kind, names, next((known[n] for n in names if n in known), None))
        for kind, names in members.items()
    ]
    return sorted(runs, key=lambda part: -len(part.cells))


def _part(run: Run, kind: Kind, names: Sequence[str], node: Node | None) -> Run:
    cells = run.cells[run.cells["node"].isin(names)].reset_index(drop=True)
    there = set(cells[SHAPE].drop_duplicates().itertuples(index=False, name=None))
    plan = run.manifest["plan"]
    shapes = [s for s in plan["shapes"] if dataclasses.astuple(from_json(Shape, s)) in there]
    settings = {**plan["settings"], "device": kind.device}
    if kind.threads:
        settings["threads"] = kind.threads
    manifest: dict[str, Any] = {
        **run.manifest,
        "plan": {**plan, "shapes": shapes, "settings": settings},
    }
    if node is not None:
        limits = node.limits.to_json() if node.limits else None
        manifest |= {"machine": node.machine, "interpreters": node.interpreters, "limits": limits}
    name = f"{run.name}@{kind.name}"
    return dataclasses.replace(run, name=name, manifest=manifest, cells=cells, part=kind.label)


def chosen(run: Run, part: str) -> Run:
    """The one part of a run whose kind of device has this in its name; without it, all there is."""
    every = parts(run)
    fitting = [own for own in every if part.lower() in (own.part or own.name).lower()]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(f"'{run.name}@{own.part}'" if own.part else run.name for own in every)
    raise LstmBenchError(
        f"{run.name}{part and '@'}{part}: {counted(len(fitting), 'part')} of the run fit; kinds of"
        f" device are not compared with each other, choose one: {names}"
    )


def no_part(run: Run, what: str) -> None:
    """Refuse what would read the whole folder of a mixed run."""
    if run.part:
        raise LstmBenchError(
            f"{what} of a run on unlike devices is not to be had; measure each kind in a run of its"
            " own with `lstm-bench grid --ray --per-device`"
        )
