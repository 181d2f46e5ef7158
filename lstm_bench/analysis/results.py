"""A run as a data frame: what `report`, `compare`, the page and the Python API start from."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from lstm_bench.analysis import noise
from lstm_bench.analysis.noise import METRICS, SHAPE, Floors
from lstm_bench.frameworks import FRAMEWORKS, IMPLEMENTATIONS
from lstm_bench.model.limits import Limits
from lstm_bench.model.types import Implementation, Record, Settings, to_json
from lstm_bench.runs import store
from lstm_bench.runs.plan import Plan
from lstm_bench.runs.store import Row

MOST_READERS, LONG_PART = 4, 64 << 20  # processes that read a run, and bytes that are worth one
REFERENCES = tuple(f.name for f in FRAMEWORKS.values() if f.reference)  # of the C++ rows
_TIMES = ("latency_s", "throughput_s", "device_s", "first_call_s", "build_s", "import_s", "timed_s")
_TEXTS = (
    *("implementation", "status", "reason", "precision", "computes", "path", "device", "group"),
    *("node", "device_name", "driver"),
)
_ROUNDS = ("round_latency_s", "round_throughput_s", "round_device_s")
_NUMBERS = {
    "pass_number": int,
    "copy": int,
    "threads": int,
    "tf32": bool,
    "rounds": int,
    "process": int,
}
#: The columns of a frame, in their order; `device_name` and `driver` come last.
_ORDER = (
    *("implementation", *SHAPE, "status", "reason", *_TIMES, "max_abs_error", "tolerance"),
    *("step_s", "sequences_per_s", "tflops", "host_peak", "device_peak", "pass_number", "copy"),
    *(
        "precision",
        "computes",
        "path",
        "device",
        "threads",
        "tf32",
        "rounds",
        *_ROUNDS,
        "warnings",
        "group",
        "process",
    ),
    "node",
)


def frame(
    rows: Iterable[Row], machine: Mapping[str, Any], settings: Settings | None = None
) -> pd.DataFrame:
    """One row per cell, controls included (`copy` above 1); of lines of one cell the last counts.

    Columns: implementation, hidden, batch, timesteps, input_size, status, reason, latency_s,
    throughput_s, device_s, sequences_per_s, tflops, max_abs_error, host_peak, and what the cell ran
    on and with.
    """
    return _completed(_joined_columns([list(rows)]), machine, settings or Settings())


def _joined_columns(pieces: Iterable[Sequence[Row]]) -> dict[str, Any]:
    """The columns of rows that come some at a time: what is parsed takes far more room."""
    known: dict[Any, Any] = {}
    return _concatenated([_columns(rows, known) for rows in pieces] or [_columns([], known)])


def _concatenated(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One after another; `parts` is empty afterwards, for there is no room for both."""
    columns = {}
    for name in list(parts[0]):
        columns[name] = np.concatenate([part.pop(name) for part in parts])
    parts.clear()
    return columns


def _read_in_parts(rows: store.RowPieces) -> dict[str, Any]:
    """The columns of a long file, which several processes read: parsing is half of a report."""
    parts = rows.parts(min(MOST_READERS, len(os.sched_getaffinity(0))), LONG_PART)
    if len(parts) == 1:
        return _joined_columns(rows)
    columns = []
    with ProcessPoolExecutor(len(parts), multiprocessing.get_context("fork")) as pool:
        for packed, damaged in pool.map(_read_part, parts):
            rows.damaged += damaged
            for name in _ROUNDS:
                packed[name] = _unpacked_rounds(*packed[name])
            columns.append(packed)
    return _concatenated(columns)


def _read_part(rows: store.RowPieces) -> tuple[dict[str, Any], int]:
    """In a process of its own: the rounds leave it as one array, not as a million."""
    gc.disable()
    columns = _joined_columns(rows)
    for name in _ROUNDS:
        lengths = np.fromiter(map(len, columns[name]), dtype=np.int64, count=len(columns[name]))
        columns[name] = b"".join(columns[name]), lengths
    return columns, rows.damaged


def _unpacked_rounds(packed: bytes, lengths: Any) -> Any:
    if not packed:
        return _no_rounds(len(lengths))
    ends = (np.cumsum(lengths) * _NO_ROUNDS.itemsize).tolist()
    spans = zip([0, *ends], ends)  # noqa: B905 - the last has no next
    rounds = (array("d", packed[a:b]) if a < b else _NO_ROUNDS for a, b in spans)
    return _objects(rounds, len(ends))


def _completed(
    columns: dict[str, Any], machine: Mapping[str, Any], settings: Settings
) -> pd.DataFrame:
    """With what the machine and the settings of the run say of each cell."""
    length = len(columns["status"])
    gpu = (machine.get("gpus") or [{}])[0]
    on_gpu = columns["device"] == "cuda"
    places = {}
    for name, there, here in (
        ("device_name", gpu.get("name"), machine.get("cpu")),
        ("driver", gpu.get("driver"), None),
    ):
        places[name] = np.full(length, here, dtype=object)
        places[name][on_gpu] = there
        own = columns[name] != ""
        places[name][own] = columns[name][own]
    ordered = {name: columns.pop(name) for name in _ORDER}
    ordered["state"] = np.full(length, settings.state, dtype=object)
    ordered["inputs"] = np.full(length, None, dtype=object)  # a CPU copies nothing
    ordered["inputs"][on_gpu] = settings.inputs
    result = pd.DataFrame({**ordered, **places}, copy=False)
    again = _measured_again(result)
    return result[~again].reset_index(drop=True) if again.any() else result


def _measured_again(cells: pd.DataFrame) -> Any:
    """Whether a later line is of the same cell."""
    names, _ = pd.factorize(cells["implementation"])
    keys = {"name": names, **{key: cells[key] for key in (*SHAPE, "pass_number", "copy")}}
    return pd.DataFrame(keys, copy=False).duplicated(keep="last")


def _columns(rows: Sequence[Row], known: dict[Any, Any]) -> dict[str, Any]:
    """These rows as columns; `known` has the texts so far, of which each is kept once."""
    fields = (type(rows[0]) if rows else Row).__struct_fields__
    raw = dict(zip(fields, _transposed(rows), strict=True)) if rows else dict.fromkeys(fields, ())
    sizes = _transposed(raw["shape"]) if rows else [()] * len(SHAPE)
    columns: dict[str, Any] = {}
    for name in _TEXTS:
        columns[name] = _alike(raw[name], lambda text: known.setdefault(text, text))
        if columns[name] is None:
            columns[name] = _objects(map(known.setdefault, raw[name], raw[name]), len(rows))
    columns |= {n: np.array(v, dtype=int) for n, v in zip(SHAPE, sizes, strict=True)}
    for name in _TIMES:
        columns[name] = _floats(raw[name])
        columns[name][~noise.plausible(columns[name])] = np.nan
    checks = [check or _NO_CHECK for check in raw["check"]]
    columns["max_abs_error"] = _floats([check.max_abs_error for check in checks])
    columns["tolerance"] = _floats([check.tolerance for check in checks])
    columns["step_s"] = columns["latency_s"] / np.maximum(columns["timesteps"], 1)
    columns["sequences_per_s"] = columns["batch"] / columns["throughput_s"]
    inputs = np.where(columns["computes"] == "lstm", columns["input_size"], 0)
    products = 8.0 * columns["timesteps"] * columns["hidden"] * (columns["hidden"] + inputs)
    columns["tflops"] = columns["sequences_per_s"] * products / 1e12
    columns["host_peak"] = _floats([memory.host_peak for memory in raw["memory"]])
    columns["device_peak"] = _floats([memory.device_peak for memory in raw["memory"]])
    if not np.isnan(columns["host_peak"]).all():
        columns["host_peak"] += [memory.imported for memory in raw["memory"]]
    for name, kind in _NUMBERS.items():
        column = _alike(raw[name], dtype=kind)
        columns[name] = np.array(raw[name], dtype=kind) if column is None else column
    for name in _ROUNDS:
        if rows and isinstance(raw[name][0], msgspec.Raw):  # not wanted
            columns[name] = _no_rounds(len(rows))
            continue
        packed = (array("d", times) if times else _NO_ROUNDS for times in raw[name])
        columns[name] = _objects(packed, len(rows))
    columns["warnings"] = _alike(raw["warnings"], lambda told: known.setdefault(tuple(told), told))
    if columns["warnings"] is None:
        marks = (known.setdefault(tuple(told), told) for told in raw["warnings"])
        columns["warnings"] = _objects(marks, len(rows))
    return columns


def _alike(
    values: Sequence[Any], kept: Callable[[Any], Any] = lambda value: value, dtype: Any = object
) -> Any:
    """The column of values that are all the same, as in most columns they are; None: they differ.

    `kept` gives the one of its kind that is used for all of them.
    """
    if values and values.count(values[0]) < len(values):
        return None
    column = np.empty(len(values), dtype=dtype)
    if values:
        column.fill(kept(values[0]))
    return column


_NO_ROUNDS = array("d")
_NO_CHECK = store.Errors()


def _no_rounds(count: int) -> Any:
    column = np.empty(count, dtype=object)
    column.fill(_NO_ROUNDS)
    return column


def _floats(values: Sequence[float | None]) -> Any:
    """None becomes NaN."""
    if values.count(None) == len(values):  # as most have no device time
        return np.full(len(values), np.nan)
    return np.array(values, dtype=float)


def _objects(values: Iterable[Any], count: int) -> Any:
    """Text and lists as they are: NumPy need not guess what they might be."""
    return np.fromiter(values, dtype=object, count=count)


def frame_of(records: Iterable[Record]) -> pd.DataFrame:
    """The same from records in memory."""
    return frame([msgspec.convert(to_json(r), Row) for r in records], {})


def _transposed(structs: Iterable[msgspec.Struct]) -> Iterable[tuple[Any, ...]]:
    return zip(*map(msgspec.structs.astuple, structs), strict=True)


@dataclass(frozen=True)
class Run:
    """A run on disk, as far as it goes: it may be interrupted, or going on right now."""

    name: str
    manifest: Mapping[str, Any]
    cells: pd.DataFrame
    damaged: int = 0  # lines that could not be read
    folder: Path | None = None
    part: str = ""  # of a mixed run: the kind of device that these cells are from

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

    @functools.cached_property
    def versions(self) -> dict[str, dict[str, str]]:
        """What each implementation ran with."""
        return store.read_versions(self.folder) if self.folder else {}

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
    tracking = gc.isenabled()
    gc.disable()  # nothing here is garbage, and looking for it takes as long as the rest
    try:
        rows = store.RowPieces(folder, [METRICS[metric][1] for metric in metrics])
        cells = _completed(_read_in_parts(rows), manifest["machine"], plan.settings)
    finally:
        if tracking:
            gc.enable()
    return Run(folder.resolve().name, manifest, cells, rows.damaged, folder)


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
