"""Runs that nobody measured, in memory and on disk, for tests that know what must come out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lstm_bench.analysis import results
from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.profile import Part, Profile
from lstm_bench.model.types import Check, Record, Shape, dumps, to_json

MACHINE: dict[str, Any] = {"cpu": "Test CPU", "gpus": []}
GPU = {"cpu": "Some CPU", "gpus": [{"name": "Some GPU", "driver": "1"}]}

#: The rows that a user gets without any setting, with the devices where.
DEFAULTS = {"pytorch": ["cpu"], "pytorch-tf32": ["cuda"]}

SHAPE = (64, 1, 10)
KERNELS = [
    Part("gemmSN_TN_kernel<float, 128>", "kernel", 10.0, 120e-6),
    Part("elemWiseRNNcell<float>", "kernel", 10.0, 60e-6),
    Part("sm80_xmma_gemm_f32f32", "kernel", 1.0, 20e-6),
]
OPERATORS = [
    Part("aten::addmm", "operator", 11.0, 300e-6, total_s=310e-6, size=4096),
    Part("aten::sigmoid_", "operator", 30.0, 50e-6, total_s=50e-6, size=0),
    Part("aten::lstm", "operator", 1.0, 50e-6, total_s=420e-6, size=8192),
]


def row(
    name: str,
    latency: float | None,
    hidden: int = 8,
    batch: int = 1,
    timesteps: int = 1,
    rounds: list[float] | None = None,
    **more: Any,
) -> Record:
    """A cell on a CPU; a latency of None is a failed one."""
    values: dict[str, Any] = {"pass_number": 1, "copy": 1, "device": "cpu", "precision": "fp32"}
    values |= {"status": "ok" if latency is not None else "crashed"}
    if latency is not None:
        values |= {"latency_s": latency, "throughput_s": latency, "first_call_s": 1.0}
        values |= {
            "round_latency_s": rounds or [latency] * 10,
            "check": Check(1e-7, 1e-7, 1e-5, True),
        }
        values |= {"round_throughput_s": rounds or [latency] * 10}
    return Record(name, Shape(hidden, batch, timesteps, hidden), **{**values, **more})


def cell(name: str, shape: tuple[int, ...] = SHAPE, latency: float = 1e-3, **more: Any) -> Record:
    """A cell on a GPU with a time, but without rounds."""
    sizes = Shape(*shape, *shape[:1] * (4 - len(shape)))
    known: dict[str, Any] = {"precision": "fp32", "device": "cuda", "latency_s": latency}
    values = {"pass_number": 1, "copy": 1, "status": "ok", "path": "cuDNN 9", "group": "g"}
    return Record(name, sizes, **{**values, **known, **more})


def cells(*rows: Record) -> Any:
    return results.frame(rows, MACHINE)


def manifest(rows: Iterable[Record]) -> dict[str, Any]:
    """The manifest of a run on a CPU whose rows are all of the fake framework."""
    names = dict.fromkeys(r.implementation for r in rows)
    shapes = dict.fromkeys(r.shape for r in rows)
    plan = {
        "name": "made-up",
        "shapes": [to_json(shape) for shape in shapes],
        "implementations": [
            {"name": n, "framework": "fake", "precision": "fp32", "module": "fake"} for n in names
        ],
        "settings": {"device": "cpu", "threads": 2, "seed": 1},
        "sampling": {},
        "passes": 1,
        "controls": 0,
        "environments": {},
    }
    return {"plan": plan, "machine": MACHINE, "started_at": "2026-01-01T00:00:00", "format": 1}


def run(*rows: Record) -> results.Run:
    return results.Run("made-up", manifest(rows), cells(*rows))


def _write(folder: Path, manifest: dict[str, Any], lines: Iterable[Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "records.jsonl").write_text("".join(f"{dumps(line)}\n" for line in lines))
    return folder


def written(folder: Path, *rows: Record) -> Path:
    """The same on disk, as `lstm-bench grid` would have left it."""
    return _write(folder, manifest(rows), map(to_json, rows))


def stored(
    folder: Path,
    *rows: Record,
    device: str = "cpu",
    gpu: str = "",
    started: str = "2026-01-01",
    versions: dict[str, str] | None = None,
    **frameworks: str,
) -> Path:
    """A run on disk whose rows are of these frameworks, else of PyTorch, on a CPU or this GPU."""
    known = manifest(rows) | {"started_at": started}
    known["plan"]["settings"]["device"] = device
    known["machine"] = {**MACHINE, "gpus": [{"name": gpu, "driver": "1"}] if gpu else []}
    for planned in known["plan"]["implementations"]:
        name = planned["name"]
        planned["framework"] = frameworks.get(name.partition("@")[0], "pytorch")
        precision = next(r.precision for r in rows if r.implementation == name)
        planned |= {"precision": precision, "default_on": DEFAULTS.get(name, [])}
        if name in IMPLEMENTATIONS:
            planned["options"] = dict(IMPLEMENTATIONS[name].options)
    lines = (to_json(r) | {"versions": versions or {}} for r in rows)
    return _write(folder, known, lines)


def profile(
    busy: float = 200e-6, wall: float = 1e-3, parts: list[Part] = KERNELS, **more: Any
) -> Profile:
    """The profile of a cell on a GPU: all busy time in kernels, 51 launches that take 1 us each."""
    values: dict[str, Any] = {
        "busy_s": busy,
        "kernel_s": busy,
        "span_s": 0.9 * wall,
        "wall_s": wall,
        "kernels": 51.0,
        "launches": 51.0,
        "launch_s": 51e-6,
    }
    return Profile("CUPTI", "cuda", 5, parts=list(parts), **{**values, **more})


def operators(parts: list[Part] = OPERATORS, wall: float | None = 1e-3, **more: Any) -> Profile:
    """The profile of a cell on a CPU."""
    return Profile("torch.profiler", "cpu", 5, wall_s=wall, parts=list(parts), **more)


def profiled(
    folder: Path, *cells: tuple[Record, Profile | None], device: str = "cuda"
) -> results.Run:
    """Write a run as `lstm-bench grid --profile` leaves it, and read it."""
    known = manifest([record for record, _ in cells]) | {"machine": GPU}
    known["plan"]["settings"]["device"] = device
    for planned in known["plan"]["implementations"]:
        if planned["name"] in IMPLEMENTATIONS:
            planned["framework"] = IMPLEMENTATIONS[planned["name"]].framework
    _write(folder, known, (to_json(record) for record, _ in cells))
    lines = [
        dumps({"key": record.key, "group": record.group, "profile": to_json(profile)})
        for record, profile in cells
        if profile
    ]
    if lines:
        (folder / "profiles.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return results.load(folder)


def boxes(figure):
    """The places of all texts that can be seen."""
    seen = [*figure.texts, *(text for each in figure.legends for text in each.get_texts())]
    for ax in figure.axes:
        seen += [*ax.texts, ax.xaxis.label, ax.yaxis.label, ax._left_title]
        for axis in (ax.xaxis, ax.yaxis):
            low, high = axis.get_view_interval()
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            seen += [tick.label1 for tick in ticks]
    return [text.get_window_extent().padded(-0.5) for text in seen if text.get_text()]


def no_text_meets_another(figure):
    """Nor does a text leave the figure, or a legend meet what is drawn."""
    figure.draw_without_rendering()
    edges = np.array([box.extents for box in boxes(figure)])
    assert (edges[:, :2] >= 0).all()
    assert (edges[:, 2:] <= figure.bbox.size).all()
    apart = (edges[:, None, :2] >= edges[None, :, 2:]).any(axis=2)
    assert (apart | apart.T | np.eye(len(edges), dtype=bool)).all()
    for legend in figure.legends:
        assert not any(legend.get_window_extent().overlaps(ax.bbox) for ax in figure.axes)
