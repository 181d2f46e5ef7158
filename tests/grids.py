"""Whole grids that nobody measured: rows of the registry on a GPU, by how long each takes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lstm_bench import frameworks as registry
from lstm_bench.analysis import results
from lstm_bench.features.page import page
from lstm_bench.model.types import Check, Implementation, Record, Sampling, Settings, Shape
from lstm_bench.runs.plan import Plan

GPU = {"cpu": "A CPU", "gpus": [{"name": "A GPU", "driver": "1.2", "memory_bytes": 2**30}]}
PRECISIONS = {"amp": "amp-fp16", "fp16": "fp16", "fp32": "fp32"}
GRID = [(h, b, t) for h in (8, 16) for b in (1, 64) for t in (10, 20)]
Sizes = tuple[int, int, int]


def planned(name: str) -> Implementation:
    """A row of the registry, on as many threads as its name says; else a fake."""
    if name.partition("@")[0] in registry.IMPLEMENTATIONS:
        return registry.find(name, "here")
    return Implementation(name, "fake", "fp32", "fake", note=name)


def cell(
    name: str,
    seconds: float | None = None,
    shape: Sizes = (8, 1, 10),
    copy: int = 1,
    rounds: int = 10,
    **more: Any,
) -> Record:
    """A line of a run, `ok` if it has a time; rounds go up and down by a tenth of a percent."""
    hidden, batch, timesteps = shape
    row = planned(name)
    known: dict[str, Any] = {"precision": PRECISIONS[row.precision], "computes": row.computes}
    known |= {"device": "cuda", "group": str(shape)}
    if seconds is not None:
        spread = 1 + 0.001 * np.cos(np.arange(rounds) * 2.0 + len(name) + copy)
        known |= {
            "latency_s": seconds,
            "throughput_s": seconds * 0.9,
            "first_call_s": 0.1,
            "rounds": rounds,
            "round_latency_s": list(seconds * spread),
            "round_throughput_s": list(0.9 * seconds * spread),
            "check": Check(2e-6, 2e-6, 5e-5, True),
        }
    status = more.pop("status", "ok")
    sizes = Shape(hidden, batch, timesteps, hidden)
    return Record(name, sizes, 1, copy, status, **{**known, **more})


def run_of(
    rows: Iterable[Record],
    name: str = "a-run",
    machine: Mapping[str, Any] = GPU,
    shapes: Iterable[tuple[int, int, int, int]] | None = None,
    damaged: int = 0,
    **settings: Any,
) -> results.Run:
    """A run of these lines, planned as they came out."""
    rows = list(rows)
    sizes = {(r.shape.hidden, r.shape.batch, r.shape.timesteps, r.shape.input_size) for r in rows}
    plan = Plan(
        "grid",
        tuple(Shape(*s) for s in shapes or sorted(sizes)),
        tuple(planned(n) for n in dict.fromkeys(row.implementation for row in rows)),
        Settings(**{"device": "cuda", **settings}),
        Sampling(),
    )
    manifest = {"plan": plan.to_json(), "machine": machine, "started_at": "2026-11-15T01:02:03"}
    return results.Run(name, manifest, results.frame(rows, machine), damaged)


def grid(
    times: Mapping[str, float | Callable[[Sizes], float]],
    floor: float = 0.01,
    shapes: Iterable[Sizes] = GRID,
) -> list[Record]:
    """Every implementation at every shape, and A/A pairs that differ by about `floor`."""
    rows = []
    for place, shape in enumerate(shapes):
        scale = 0.002 * shape[0] * shape[2]
        for name, factor in times.items():
            seconds = scale * (factor(shape) if callable(factor) else factor)
            rows.append(cell(name, seconds, shape))
            if name == next(iter(times)):
                off = floor * (1 if place % 2 else -1)
                rows.append(cell(name, seconds * (1 + off), shape, copy=2))
    return rows


@functools.cache
def shipped_page(name: str) -> tuple[results.Run, str]:
    """One of the project's own runs, and its page."""
    run = results.load(Path(__file__).parents[1] / "results" / name)
    return run, page.html(run)
