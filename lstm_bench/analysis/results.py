"""A run as a data frame: what `report`, `compare`, the page and the Python API start from."""

from __future__ import annotations

import functools
import gc
import typing
from array import array
from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from lstm_bench.analysis import noise
from lstm_bench.analysis.noise import METRICS, Floors
from lstm_bench.frameworks import FRAMEWORKS, IMPLEMENTATIONS
from lstm_bench.model.limits import Limits
from lstm_bench.model.shape import FULL, SHAPE
from lstm_bench.model.types import Check, Implementation, Record, Settings, Shape
from lstm_bench.runs import store
from lstm_bench.runs.plan import Plan

REFERENCES = tuple(f.name for f in FRAMEWORKS.values() if f.reference)  # of the C++ rows
#: The fields that become a column each: the type of a field, and the type it is read as.
_TYPES: dict[Any, Any] = {
    **{kind: kind for kind in (str, bool, float, float | None, list[str], list[float])},
    int: store.Count,
}
_ERRORS = ("max_abs_error", "tolerance")
#: The fields that become several columns, or are used for a whole run.
_PARTS = {
    "shape": store.struct_of(
        Shape, {**dict.fromkeys(SHAPE, store.Size), "lengths": store.Lengths, "training": bool}
    ),
    "check": store.struct_of(Check, dict.fromkeys(_ERRORS, float | None)) | None,
    "memory": dict[str, store.Count],
    "versions": dict[str, str],
}
_FIELDS = {n: k for n, k in typing.get_type_hints(Record).items() if k in _TYPES or n in _PARTS}
_NUMBERS = {int: int, bool: bool, float: float, float | None: float}  # NaN stands for None
_TIMES = [n for n, kind in _FIELDS.items() if n.endswith("_s") and kind in (float, float | None)]
_TIMES.remove("switches_per_s")
MOST_DRAWN = 1 << 16  # sequences: no grid has more
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
    values = map(attrgetter(*_FIELDS), records)
    return _completed([_columns(values, {})], machine or {}, settings or Settings())


def _columns(records: Iterable[tuple[Any, ...]], known: dict[Any, Any]) -> dict[str, Any]:
    """Arrays of the fields of records; `known` has the texts so far, of which each is kept once."""
    columns: dict[str, Any] = {}
    fields = list(zip(*records, strict=True)) or [()] * len(_FIELDS)
    for (name, kind), values in zip(_FIELDS.items(), fields, strict=True):
        if kind in _NUMBERS:
            columns[name] = np.array(values, dtype=_NUMBERS[kind])
        elif kind is str:
            columns[name] = _objects(map(known.setdefault, values, values))
        elif kind == list[str]:
            columns[name] = _objects(known.setdefault(tuple(texts), texts) for texts in values)
        elif kind == list[float]:
            lists = (times if isinstance(times, list) else [] for times in values)
            columns[name] = _objects(array("d", times) if times else _NO_ROUNDS for times in lists)
        elif name == "shape":
            for axis in SHAPE:
                sizes = [getattr(shape, axis) for shape in values]
                kind = {"training": bool}.get(axis, int)
                text = axis == "lengths"
                columns[axis] = _objects(sizes) if text else np.array(sizes, dtype=kind)
        elif name == "check":
            for part in _ERRORS:
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
    for name in _TIMES:
        columns[name][~noise.plausible(columns[name])] = np.nan
    cells = pd.DataFrame(columns, copy=False)
    cells["step_s"] = cells["latency_s"] / cells["timesteps"]
    cells["sequences_per_s"] = cells["batch"] / cells["throughput_s"]
    products = 8.0 * cells["directions"] * cells["hidden"] * _columns_of_products(cells)
    products *= _steps(cells) * np.where(cells["training"], 3, 1)
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
    """A run on disk; it may be interrupted, or going on right now."""

    name: str
    manifest: Mapping[str, Any]
    cells: pd.DataFrame
    damaged: int = 0  # lines that cannot be read
    folder: Path | None = None
    part: str = ""  # in a mixed run: the kind of device of these cells
    #: The versions of framework and libraries by implementation, as its cells last had them.
    versions: Mapping[str, dict[str, str]] = field(default_factory=dict)

    @functools.cached_property
    def plan(self) -> Plan:
        return Plan.from_json(self.manifest["plan"], self.name)

    @property
    def implementations(self) -> list[str]:
        """The rows with cells, in the plan's order; then those that the plan does not name."""
        present = dict.fromkeys(self.cells["implementation"].unique())
        planned = [row.name for row in self.plan.implementations if row.name in present]
        return [*planned, *(name for name in present if name not in planned)]

    @functools.cached_property
    def defaults(self) -> set[str]:
        """The rows that are their framework's default on the run's device.

        Older runs did not record it: today's registry says it.
        """
        device = self.plan.settings.device
        planned = [row for row in self.plan.implementations if not row.threads]
        defaults = {row.name: row.default_on for row in map(_today, planned)}
        return {name for name in self.implementations if device in defaults.get(name, ())}

    @functools.cached_property
    def shapes(self) -> int:
        """The number of shapes with a time."""
        timed = self.cells[(self.cells["status"] == "ok") & (self.cells["copy"] == 1)]
        return len(timed[SHAPE].drop_duplicates())

    @functools.cached_property
    def left(self) -> int:
        """The number of planned cells that were never begun, or cut short.

        None of a part: the rest of a mixed run may be measured on any of its kinds of device.
        """
        if self.part:
            return 0
        plan, cells = self.plan, self.cells
        whole = (cells["status"] != "interrupted") & (cells["pass_number"] <= plan.passes)
        whole &= cells["implementation"].isin([row.name for row in plan.implementations])
        own = {astuple(s): s for s in plan.own_shapes()}
        counts = cells.loc[whole, SHAPE].groupby(SHAPE, sort=False).size()
        done = sum(count for shape, count in counts.items() if shape in own)
        controls = cells.loc[whole & (cells["copy"] > 1), ["implementation", *SHAPE, "copy"]]
        for name, *at, copy in controls.itertuples(index=False, name=None):
            shape = own.get(tuple(at))  # a plan has some at each shape
            done -= shape is not None and plan.controls_at(shape)[name] < copy - 1
        return int(plan.size - done)

    @functools.cached_property
    def limits(self) -> Limits | None:
        """The limits of the machine, if the run measured them: the best of all sessions."""
        limits = store.limits_of(self.manifest)
        if limits and self.folder:
            cpu = self.manifest["machine"].get("cpu")
            for leg in store.read_legs(self.folder):
                if leg.machine.get("cpu") == cpu:  # merged legs may be of other machines
                    limits = limits.better(leg.limits)
        return limits

    @property
    def noise(self) -> Floors:
        """The noise floor of latency."""
        return self.floors("latency")

    def floors(self, metric: str) -> Floors:
        """The noise floor of a metric over the whole run."""
        if metric not in self._floors:
            self._floors[metric] = noise.floors(noise.controls(self.cells, metric))
        return self._floors[metric]

    @functools.cached_property
    def _floors(self) -> dict[str, Floors]:
        return {}


def references(run: Run, cells: pd.DataFrame | None = None) -> set[str]:
    """The C++ rows of a run, or of these cells of it; none where there are no others."""
    names = set((run.cells if cells is None else cells)["implementation"].unique())
    rows = {row.name for row in run.plan.implementations if row.framework in REFERENCES} & names
    return rows if names - rows else set()


def _today(row: Implementation) -> Implementation:
    return row if row.default_on else IMPLEMENTATIONS.get(row.name, row)


def load(folder: Path, metrics: Collection[str] = tuple(METRICS)) -> Run:
    """Read a run, with the rounds of these metrics only: they are most of it."""
    manifest = store.read_manifest(folder)
    plan = Plan.from_json(manifest["plan"], str(folder))  # raises, if anything is wrong
    types = {name: _PARTS.get(name) or _TYPES[kind] for name, kind in _FIELDS.items()}
    for metric in METRICS.keys() - metrics:
        types[METRICS[metric][1]] = msgspec.Raw  # passed over
    collects = gc.isenabled()
    gc.disable()  # nothing here is garbage, and looking for it takes half as long as the rest
    try:
        cells, damaged, versions = _read(folder, store.struct_of(Record, types))
        cells = _completed(cells, manifest["machine"], plan.settings)
    finally:
        if collects:
            gc.enable()
    return Run(folder.resolve().name, manifest, cells, damaged, folder, "", versions)


def _columns_of_products(cells: pd.DataFrame) -> Any:
    """The columns of all input and recurrent products of a direction."""
    layers, hidden = cells["layers"], cells["hidden"]
    first = cells["input_size"].where(cells["computes"] != "lstm-skip-input", 0)
    return layers * hidden + first + (layers - 1) * cells["directions"] * hidden


def _steps(cells: pd.DataFrame) -> Any:
    """The timesteps of a sequence in the mean: a shorter one is not computed to the end."""
    steps = cells["timesteps"].astype(float)
    for place, sizes in cells.loc[cells["lengths"] != FULL, SHAPE].iterrows():
        shape = Shape.from_row(sizes)
        if shape.batch <= MOST_DRAWN:
            steps[place] = sum(shape.each_length) / shape.batch
    return steps


def _read(folder: Path, kind: Any) -> tuple[Any, int, dict[str, dict[str, str]]]:
    """The columns of a run, piece by piece; the lines that cannot be read; all versions."""
    known: dict[Any, Any] = {}
    pieces = [_columns([], known)]
    damaged = 0
    versions: dict[str, dict[str, str]] = {}
    for lines in store.read_pieces(folder / "records.jsonl", kind):
        records = [record for record in lines if record]
        damaged += len(lines) - len(records)
        pieces.append(_columns(map(msgspec.structs.astuple, records), known))
        for record in records:
            versions.setdefault(record.implementation, {}).update(record.versions)
    return pieces, damaged, versions


def versions(run: Run, implementation: str) -> dict[str, str]:
    """The versions of Python, an implementation's framework and libraries, and a GPU's driver."""
    known = dict(run.versions.get(implementation, {}))
    homes = {row.name: row.home for row in run.plan.implementations}
    interpreter = run.manifest.get("interpreters", {}).get(homes.get(implementation), {})
    if interpreter.get("python"):
        known["python"] = str(interpreter["python"])
    drivers = run.cells.loc[run.cells["implementation"] == implementation, "driver"].dropna()
    if not drivers.empty:
        known["driver"] = str(drivers.iloc[-1])
    return known


def samples(folder: Path) -> pd.DataFrame:
    """One row per raw sample: `metric` is latency (one call) or throughput (a block, per call)."""
    names = ["implementation", *SHAPE, "pass_number", "copy", "round", "disturbed"]
    rows: list[tuple[Any, ...]] = []
    for record, blocks in store.read_blocks(folder):
        cell = record.implementation, *astuple(record.shape), record.pass_number, record.copy
        for block in blocks:
            at = *cell, block.round, block.disturbed
            rows += [(*at, "latency", ns / 1e9) for ns in block.latency_ns]
            if block.queued_calls:
                rows.append((*at, "throughput", block.queued_ns / 1e9 / block.queued_calls))
    return pd.DataFrame(rows, columns=[*names, "metric", "seconds"])
