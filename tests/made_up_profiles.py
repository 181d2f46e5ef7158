"""Profiled runs that nobody measured, on disk as `lstm-bench grid --profile` leaves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lstm_bench.analysis import results
from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.profile import Part, Profile
from lstm_bench.model.types import Record, Shape, dumps, to_json

SHAPE = (64, 1, 10)
GPU = {"cpu": "Some CPU", "gpus": [{"name": "Some GPU", "driver": "1"}]}
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


def cell(name: str, shape: tuple[int, ...] = SHAPE, latency: float = 1e-3, **more: Any) -> Record:
    """A record with a time."""
    sizes = Shape(*shape, *shape[:1] * (4 - len(shape)))
    known: dict[str, Any] = {"precision": "fp32", "device": "cuda", "latency_s": latency}
    values = {"pass_number": 1, "copy": 1, "status": "ok", "path": "cuDNN 9", "group": "g"}
    return Record(name, sizes, **{**values, **known, **more})


def profile(
    busy: float = 200e-6, wall: float = 1e-3, parts: list[Part] = KERNELS, **more: Any
) -> Profile:
    """Of a GPU: all busy time in kernels, 51 launches that take 1 us each."""
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
    """Of a CPU."""
    return Profile("torch.profiler", "cpu", 5, wall_s=wall, parts=list(parts), **more)


def _framework(name: str) -> str:
    return IMPLEMENTATIONS[name].framework if name in IMPLEMENTATIONS else "fake"


def run_of(
    folder: Path, *cells: tuple[Record, Profile | None], device: str = "cuda"
) -> results.Run:
    """Write a run and read it."""
    names = list(dict.fromkeys(record.implementation for record, _ in cells))
    shapes = list(dict.fromkeys(record.shape for record, _ in cells))
    plan = {
        "name": "made-up",
        "shapes": [to_json(shape) for shape in shapes],
        "implementations": [
            {"name": n, "framework": _framework(n), "precision": "fp32", "module": "fake"}
            for n in names
        ],
        "settings": {"device": device, "threads": 2, "seed": 1},
        "sampling": {},
        "passes": 1,
        "controls": 0,
        "environments": {},
    }
    manifest = {"plan": plan, "machine": GPU, "started_at": "2026-01-01T00:00:00", "format": 1}
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    lines = [dumps(to_json(record)) for record, _ in cells]
    (folder / "records.jsonl").write_text("".join(line + "\n" for line in lines))
    lines = [
        dumps({"key": record.key, "group": record.group, "profile": to_json(found)})
        for record, found in cells
        if found
    ]
    if lines:
        (folder / "profiles.jsonl").write_text("".join(line + "\n" for line in lines))
    return results.load(folder)
