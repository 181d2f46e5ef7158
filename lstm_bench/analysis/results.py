"""A run as a data frame: what `report`, `compare`, the page and the Python API start from."""

from __future__ import annotations

import functools
import typing
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from lstm_bench.analysis import noise
from lstm_bench.analysis.noise import METRICS, SHAPE, Floors
from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.limits import Limits
from lstm_bench.model.types import Check, Implementation, Record, Settings, Shape, to_json
from lstm_bench.runs import store
from lstm_bench.runs.plan import Plan

REFERENCES = ("deepbench", "persistent")  # the frameworks of the C++ rows
#: What becomes a column of its own: each type of a field, and as which type it is read.
_TYPES: dict[Any, Any] = {
    **{kind: kind for kind in (str, bool, float, float | None, list[str], list[float])},
    int: store.Count,
}
#: What becomes several columns.
_PARTS = {
    "shape": store.struct_of(Shape, dict.fromkeys(SHAPE, store.Size)),
    "check": Check | None,
    "memory": dict[str, store.Count],
}
_FIELDS = {n: k for n, k in typing.get_type_hints(Record).items() if k in _TYPES or n in _PARTS}
_values = attrgetter(*_FIELDS)
_NUMBERS = {int: int, bool: bool, float: float, float | None: float}  # NaN stands for None
_TIMES = [n for n, kind in _FIELDS.items() if n.endswith("_s") and kind in (float, float | None)]
_TIMES.remove("switches_per_s")
_NO_CHECK = Check(None, None, float("nan"), False)


def frame(
    records: Iterable[Record],
    machine: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
) -> pd.DataFrame:
    """One row per cell, controls included (`copy` above 1); the last record of a cell wins.

    The columns are the fields of a record that are texts, numbers or lists of them, its shape, its
    check and its memory; then what follows from these, and what cells of a run have in common.
    """
    return _completed([_columns(list(records), {})], machine or {}, settings or Settings())


def _columns(records: Sequence[Record], known: dict[Any, Any]) -> dict[str, Any]:
    """Arrays of the values of records; `known` has the texts so far, of which each is kept once."""
    columns: dict[str, Any] = {}
    fields = zip(*map(_values, records), strict=True) if records else [()] * len(_FIELDS)
    for (name, kind), values in zip(_FIELDS.items(), fields, strict=True):
        if kind in _NUMBERS:
            columns[name] = np.array(values, dtype=_NUMBERS[kind])
        elif kind is str:
            columns[name] = _objects(map(known.setdefault, values, values))
        elif kind == list[str]:
            columns[name] = _objects(known.setdefault(tuple(texts), texts) for texts in values)
        elif kind == list[float]:
            wanted = (times if isinstance(times, list) else () for times in values)
            columns[name] = _objects(array("d", times) if times else _NO_ROUNDS for times in wanted)
        elif name == "shape":
            for axis in SHAPE:
                columns[axis] = np.array([getattr(shape, axis) for shape in values], dtype=int)
        elif name == "check":
            for part in ("max_abs_error", "tolerance"):
                errors = [getattr(check or _NO_CHECK, part) for check in values]
                columns[part] = np.array(errors, dtype=float)
        elif name == "memory":
            for part in ("host peak", "device peak", "import"):
                peaks = [memory.get(part) for memory in values]
                columns[part.replace(" ", "_")] = np.array(peaks, dtype=float)
    return columns


_NO_ROUNDS = array("d")


def _objects(values: Iterable[Any]) -> Any:
    """Texts and lists as they are: NumPy need not guess what they might be."""
    return np.fromiter(values, dtype=object)


def _completed(
    pieces: list[dict[str, Any]], machine: Mapping[str, Any], settings: Settings
) -> pd.DataFrame:
    """The cells of these pieces, with what follows from their values, the machine and settings."""
    columns = {name: np.concatenate([piece.pop(name) for piece in pieces]) for name in [*pieces[0]]}
    cells = pd.DataFrame(columns, copy=False)
    for name in _TIMES:
        cells.loc[~noise.plausible(cells[name]), name] = np.nan
    cells["step_s"] = cells["latency_s"] / cells["timesteps"]
    cells["sequences_per_s"] = cells["batch"] / cells["throughput_s"]
    inputs = cells["input_size"].where(cells["computes"] == "lstm", 0)
    products = 8.0 * cells["timesteps"] * cells["hidden"] * (cells["hidden"] + inputs)
    cells["tflops"] = cells["sequences_per_s"] * products / 1e12
    cells["host_peak"] += cells.pop("import").fillna(0)
    on_gpu = cells["device"] == "cuda"
    gpu = (machine.get("gpus") or [{}])[0]
    for name, there, here in (
        ("device_name", gpu.get("name"), machine.get("cpu")),
        ("driver", gpu.get("driver"), None),
    ):
        missing = cells[name] == ""
        cells.loc[missing & on_gpu, name] = there
        cells.loc[missing & ~on_gpu, name] = here
    cells["state"] = settings.state
    cells["inputs"] = pd.Series(settings.inputs, cells.index, object).where(on_gpu, None)
    again = cells.duplicated(["implementation", *SHAPE, "pass_number", "copy"], keep="last")
    return cells[~again].reset_index(drop=True) if again.any() else cells


@dataclass(frozen=True)
class Run:
    """A run on disk, as far as it goes: it may be interrupted, or going on right now."""

    name: str
    manifest: Mapping[str, Any]
    cells: pd.DataFrame
    damaged: int = 0  # lines that could not be read
    folder: Path | None = None
    part: str = ""  # of a mixed run: the kind of device that these cells are from
    #: What each implementation ran with, of all its cells.
    versions: Mapping[str, dict[str, str]] = field(default_factory=dict)

    @functools.cached_property
    def plan(self) -> Plan:
        return Plan.from_json(self.manifest["plan"], self.name)

    @property
    def implementations(self) -> list[str]:
        """In the plan's order, as far as there is anything of them; then what it does not name."""
        present = dict.fromkeys(self.cells["implementation"].unique())
        planned = [row.name for row in self.plan.implementations if row.name in present]
        return [*planned, *(name for name in present if name not in planned)]

    @functools.cached_property
    def defaults(self) -> set[str]:
        """The rows that a user gets who touches no setting of their framework.

        Runs of before this was recorded have it of today's registry.
        """
        device = self.plan.settings.device
        planned = [row for row in self.plan.implementations if not row.threads]
        found = {row.name: row.default_on for row in map(_today, planned)}
        return {name for name in self.implementations if device in found.get(name, ())}

    @functools.cached_property
    def shapes(self) -> int:
        """How many shapes have any time."""
        timed = self.cells[(self.cells["status"] == "ok") & (self.cells["copy"] == 1)]
        return len(timed[SHAPE].drop_duplicates())

    @functools.cached_property
    def left(self) -> int:
        """How many planned cells are still to be measured: never begun, or cut short.

        What is left of a mixed run may be measured on any of its kinds of device.
        """
        if self.part:
            return 0
        plan, cells = self.plan, self.cells
        whole = (cells["status"] != "interrupted") & (cells["pass_number"] <= plan.passes)
        whole &= cells["implementation"].isin([row.name for row in plan.implementations])
        own = {(s.hidden, s.batch, s.timesteps, s.input_size): s for s in plan.own_shapes()}
        counts = cells.loc[whole, SHAPE].groupby(SHAPE, sort=False).size()
        done = sum(count for shape, count in counts.items() if shape in own)
        controls = cells.loc[whole & (cells["copy"] > 1), ["implementation", *SHAPE, "copy"]]
        for name, *at, copy in controls.itertuples(index=False, name=None):
            shape = own.get(tuple(at))  # of which a plan has some at each shape
            done -= shape is not None and plan.controls_at(shape)[name] < copy - 1
        return int(plan.size - done)

    @functools.cached_property
    def limits(self) -> Limits | None:
        """What the machine could do at best, if the run measured it: the best of all times."""
        found = store.limits_of(self.manifest)
        if found and self.folder:
            cpu = self.manifest["machine"].get("cpu")
            for leg in store.read_legs(self.folder):
                if leg.machine.get("cpu") == cpu:  # legs that were merged may be of others
                    found = found.better(leg.limits)
        return found

    @property
    def noise(self) -> Floors:
        """The noise floor of latency."""
        return self.floors("latency")

    def floors(self, metric: str) -> Floors:
        """The noise floor of a metric over the whole run, worked out once."""
        if metric not in self._floors:
            self._floors[metric] = noise.floors(noise.controls(self.cells, metric))
        return self._floors[metric]

    @functools.cached_property
    def _floors(self) -> dict[str, Floors]:
        return {}


def references(run: Run, cells: pd.DataFrame | None = None) -> set[str]:
    """The C++ rows of a run, or of these cells of it; none where there is nothing else."""
    there = set((run.cells if cells is None else cells)["implementation"].unique())
    found = {row.name for row in run.plan.implementations if row.framework in REFERENCES} & there
    return found if there - found else set()


def _today(row: Implementation) -> Implementation:
    return row if row.default_on else IMPLEMENTATIONS.get(row.name, row)


def load(folder: Path, metrics: Collection[str] = tuple(METRICS)) -> Run:
    """Read a run, with the rounds of these metrics only: they are the most of it."""
    manifest = store.read_manifest(folder)
    plan = Plan.from_json(manifest["plan"], str(folder))  # says what is wrong, if anything is
    types = {name: _PARTS.get(name) or _TYPES[kind] for name, kind in _FIELDS.items()}
    for metric in METRICS.keys() - metrics:
        types[METRICS[metric][1]] = msgspec.Raw  # passed over
    known: dict[Any, Any] = {}
    pieces = [_columns([], known)]
    damaged = 0
    versions: dict[str, dict[str, str]] = {}
    kind = store.struct_of(Record, types | {"versions": dict[str, str]})
    for lines in store.read_pieces(folder, kind):
        records = [record for record in lines if record]
        damaged += len(lines) - len(records)
        pieces.append(_columns(records, known))
        for record in records:
            versions.setdefault(record.implementation, {}).update(record.versions)
    cells = _completed(pieces, manifest["machine"], plan.settings)
    return Run(folder.resolve().name, manifest, cells, damaged, folder, "", versions)


def versions(run: Run, implementation: str) -> dict[str, str]:
    """What an implementation ran with: Python, its framework and libraries, a GPU's driver."""
    mine = run.cells[run.cells["implementation"] == implementation]
    drivers = mine["driver"].dropna()
    found = dict(run.versions.get(implementation, {}))
    homes = {row.name: row.home for row in run.plan.implementations}
    known = run.manifest.get("interpreters", {}).get(homes.get(implementation), {})
    found |= {"python": str(known["python"])} if known.get("python") else {}
    return {**found, **({} if drivers.empty else {"driver": str(drivers.iloc[-1])})}


def samples(folder: Path) -> pd.DataFrame:
    """One row per raw sample: `metric` is latency (one call) or throughput (a block, per call)."""
    names = ["implementation", *SHAPE, "pass_number", "copy", "round", "disturbed"]
    columns: dict[str, list[Any]] = {name: [] for name in [*names, "metric", "seconds"]}
    for record, blocks in store.read_blocks(folder):
        known = {**to_json(record.shape), **to_json(record)}
        for block in blocks:
            seconds = [ns / 1e9 for ns in block.latency_ns]
            metrics = ["latency"] * len(seconds)
            if block.queued_calls:
                seconds.append(block.queued_ns / 1e9 / block.queued_calls)
                metrics.append("throughput")
            for name in names[:-2]:
                columns[name] += [known[name]] * len(seconds)
            columns["round"] += [block.round] * len(seconds)
            columns["disturbed"] += [block.disturbed] * len(seconds)
            columns["metric"] += metrics
            columns["seconds"] += seconds
    return pd.DataFrame(columns)
