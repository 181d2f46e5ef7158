"""Runs that nobody measured, for tests that know what must come out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from lstm_bench.analysis import results
from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.runs.store import Errors, Peaks, Row, Sizes

MACHINE = {"cpu": "Test CPU", "gpus": []}


def row(
    name: str,
    latency: float | None,
    hidden: int = 8,
    batch: int = 1,
    timesteps: int = 1,
    rounds: list[float] | None = None,
    **more: Any,
) -> Row:
    """A cell; a latency of None is a failed one."""
    values: dict[str, Any] = {"pass_number": 1, "copy": 1, "device": "cpu", "precision": "fp32"}
    values |= {"status": "ok" if latency is not None else "crashed"}
    if latency is not None:
        values |= {"latency_s": latency, "throughput_s": latency, "first_call_s": 1.0}
        values |= {"round_latency_s": rounds or [latency] * 10, "check": Errors(1e-7, 1e-5)}
        values |= {"round_throughput_s": rounds or [latency] * 10}
    values |= {"memory": msgspec.convert(more.pop("memory", {}), Peaks)}
    return Row(name, Sizes(hidden, batch, timesteps, hidden), **{**values, **more})


def cells(*rows: Row) -> Any:
    return results.frame(rows, MACHINE)


def manifest(rows: tuple[Row, ...]) -> dict[str, Any]:
    names = list(dict.fromkeys(r.implementation for r in rows))
    shapes = list(dict.fromkeys(tuple(msgspec.structs.astuple(r.shape)) for r in rows))
    fields = ("hidden", "batch", "timesteps", "input_size")
    plan = {
        "name": "made-up",
        "shapes": [dict(zip(fields, s, strict=True)) for s in shapes],
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


def run(*rows: Row) -> results.Run:
    return results.Run("made-up", manifest(rows), cells(*rows))


def written(folder: Path, *rows: Row) -> Path:
    """The same on disk, as `lstm-bench grid` would have left it."""
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest(rows)))
    lines = b"".join(msgspec.json.encode(r) + b"\n" for r in rows)
    (folder / "records.jsonl").write_bytes(lines)
    return folder


#: What a user gets without any setting.
DEFAULTS = {"pytorch": ["cpu"], "pytorch-tf32": ["cuda"]}


def stored(
    folder: Path,
    *rows: Row,
    device: str = "cpu",
    gpu: str = "",
    started: str = "2026-01-01",
    versions: dict[str, str] | None = None,
    **frameworks: str,
) -> Path:
    """A run on disk whose rows are of these frameworks, else of PyTorch, on a CPU or this GPU."""
    written(folder, *rows)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["started_at"] = started
    manifest["plan"]["settings"]["device"] = device
    manifest["machine"] = {**MACHINE, "gpus": [{"name": gpu, "driver": "1"}] if gpu else []}
    for planned in manifest["plan"]["implementations"]:
        name = planned["name"]
        planned["framework"] = frameworks.get(name.partition("@")[0], "pytorch")
        precision = next(r.precision for r in rows if r.implementation == name)
        planned |= {"precision": precision, "default_on": DEFAULTS.get(name, [])}
        if name in IMPLEMENTATIONS:
            planned["options"] = dict(IMPLEMENTATIONS[name].options)
    path.write_text(json.dumps(manifest))
    records = folder / "records.jsonl"
    lines = [json.loads(line) | {"versions": versions or {}} for line in records.open()]
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
