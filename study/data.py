"""All shipped runs as one table: results/cells.csv.gz, and what its columns mean: results/cells.md.

One line per cell, A/A controls included, so that others can plot and cite what was measured without
this program. `make study` writes both; a test holds them to the runs.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lstm_bench.analysis import noise, results
from lstm_bench.analysis.results import Run
from lstm_bench.features.limits.distance import limit_of
from lstm_bench.model.types import ACCURACY, Record
from lstm_bench.runs import store
from study.runs import ROOT, shipped

TABLE, DICTIONARY = "results/cells.csv.gz", "results/cells.md"
MULTIPLE = ";"  # between the parts of a field that has several

HEAD = """# All cells as one table

`cells.csv.gz` has every cell of the runs in this folder, A/A controls included, one line each.
`make study` writes it, and this page, from the runs; raw samples and profiles are in the runs alone
([format](../docs/reference/records.md)).

    import pandas
    cells = pandas.read_csv("results/cells.csv.gz")
    times = cells[(cells.status == "ok") & (cells["copy"] == 1)]

Times are in seconds, sizes in bytes, energies in joules; an empty field is not known, or does not
apply. Compare times within a run: between runs the host, the GPU and versions differ. A difference
below `noise_floor` means nothing.

"""


class Cell(NamedTuple):
    """A record, and its run."""

    run: Run
    record: Record


def _check(cell: Cell, name: str) -> Any:
    return getattr(cell.record.check, name) if cell.record.check else None


def _machine(cell: Cell, gpu: str, cpu: str | None) -> Any:
    machine = cell.run.manifest["machine"]
    if cell.record.device == "cuda":
        return (machine.get("gpus") or [{}])[0].get(gpu)
    return machine.get(cpu) if cpu else None


def _interval(cell: Cell, end: int) -> float | None:
    interval = cell.record.latency_interval_s
    return interval[end] if interval else None


def _floor(cell: Cell) -> float | None:
    """The noise floor at the length of the cell's latency."""
    latency, floors = cell.record.latency_s, cell.run.noise
    if latency is None or not any(floor.pairs for floor in floors):
        return None
    return float(noise.floor_at(floors, [latency], [cell.record.implementation])[0])


def _limit(cell: Cell) -> float | None:
    record, limits = cell.record, cell.run.limits
    if limits is None or record.latency_s is None or limits.device != record.device:
        return None
    if record.precision not in ACCURACY:
        return None
    return limit_of(limits, record.shape, ACCURACY[record.precision], record.computes).seconds


#: Name and meaning; and how it is made, if it is not the record's field of this name.
COLUMNS: tuple[tuple[str, str] | tuple[str, str, Callable[[Cell], Any]], ...] = (
    ("run", "folder of the run", lambda cell: cell.run.name),
    (
        "machine",
        "GPU, or processor where the cell ran on the CPU",
        lambda cell: cell.record.device_name or _machine(cell, "name", "cpu"),
    ),
    ("driver", "of the GPU", lambda cell: cell.record.driver or _machine(cell, "driver", None)),
    ("implementation", "as `lstm-bench list` names it"),
    ("framework", "what it runs in"),
    ("computes", "`lstm`, or `lstm-skip-input`: without the input product"),
    ("precision", "as asked and obeyed"),
    (
        "accuracy",
        "class of accuracy; times are comparable within one",
        lambda cell: ACCURACY.get(cell.record.precision),
    ),
    ("hidden", "hidden size", lambda cell: cell.record.shape.hidden),
    ("batch", "sequences at a time", lambda cell: cell.record.shape.batch),
    ("timesteps", "steps of each sequence", lambda cell: cell.record.shape.timesteps),
    ("input_size", "size of an input", lambda cell: cell.record.shape.input_size),
    ("pass", "which pass over the grid", lambda cell: cell.record.pass_number),
    ("copy", "1, or more for an A/A control of the same implementation"),
    ("status", "`ok`, or why there is no time"),
    ("reason", "more on that"),
    ("latency_s", "how long a caller waits for a call, median of rounds"),
    ("latency_low_s", "low end of its 95% interval", lambda cell: _interval(cell, 0)),
    ("latency_high_s", "high end", lambda cell: _interval(cell, 1)),
    ("throughput_s", "time per call of many that are queued"),
    ("device_s", "time in which the device works for a call"),
    ("limit_s", "what no implementation of that accuracy can be below", _limit),
    ("noise_floor", "share by which latencies of this length must differ to mean anything", _floor),
    ("first_call_s", "the first call"),
    ("build_s", "building the layer, with compilation"),
    ("import_s", "importing the framework in a new process"),
    ("rounds", "rounds that were timed"),
    ("calls", "calls that were timed"),
    (
        "max_abs_error",
        "largest difference from float64",
        lambda cell: _check(cell, "max_abs_error"),
    ),
    ("tolerance", "what it may be", lambda cell: _check(cell, "tolerance")),
    ("host_peak", "most memory of the host", lambda cell: cell.record.memory.get("host peak")),
    ("device_peak", "most memory of the GPU", lambda cell: cell.record.memory.get("device peak")),
    ("energy_j", "all that the GPU draws for a call", lambda cell: cell.record.gross_j),
    ("threads", "of the CPU"),
    ("tf32", "whether TF32 was allowed"),
    ("path", "the code that ran"),
    (
        "versions",
        f"of the framework and its libraries, `{MULTIPLE}` between them",
        lambda cell: MULTIPLE.join(f"{k} {v}" for k, v in sorted(cell.record.versions.items())),
    ),
    (
        "warnings",
        "what limits trust in the cell",
        lambda cell: MULTIPLE.join(cell.record.warnings),
    ),
    ("finished_at", "UTC"),
)


def cells() -> Iterator[Cell]:
    for name in shipped():
        folder = ROOT / "results" / name
        run = results.load(folder)
        records = store.read_records(folder)
        yield from (Cell(run, records[key]) for key in sorted(records))


def table() -> str:
    """All cells as CSV, in a fixed order."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for name, *_ in COLUMNS])
    for cell in cells():
        values = (make[0](cell) if make else getattr(cell.record, n) for n, _, *make in COLUMNS)
        writer.writerow(map(_shown, values))
    return text.getvalue()


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def packed(text: str) -> bytes:
    """Compress to the same bytes on any day."""
    return gzip.compress(text.encode(), mtime=0)


def dictionary() -> str:
    lines = [f"| `{name}` | {meaning} |" for name, meaning, *_ in COLUMNS]
    return HEAD + "\n".join(["| column | meaning |", "| --- | --- |", *lines]) + "\n"
