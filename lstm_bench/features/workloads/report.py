"""The document of `lstm-bench report --workloads`, and its table as a section of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench.analysis import summary
from lstm_bench.analysis.results import Run
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.shape_filter import chosen
from lstm_bench.model.types import LstmBenchError
from lstm_bench.model.units import clean, error, factor, listed, percent, seconds, short, size
from lstm_bench.report import run_report
from lstm_bench.report.document import Document, Table, number, paragraph, text
from lstm_bench.report.fastest import base_of
from lstm_bench.runs import store
from lstm_bench.runs.plan import Workload

NOTE = (
    "latency: the median; seq/s: sequences per second when calls are queued; real time: seconds of"
    " signal per second of latency, where a timestep has a length; active: share of the latency in"
    " which the GPU runs a kernel, of profiled cells"
)


def document(run: Run, conditions: Sequence[str] = (), everything: bool = False) -> Document:
    """The base and the fastest row of each accuracy class, at each workload; or every row."""
    workloads = run.plan.workloads
    if not workloads:
        raise LstmBenchError(
            f"{run.name} has no workloads; measure some with `lstm-bench grid workloads`, or name"
            " shapes in a grid of your own (`workloads:`, see docs/reference/grid-file.md)"
        )
    cells = chosen(run.cells, conditions)
    base = base_of(run, list(dict.fromkeys(cells["implementation"])))
    active = _active(run)
    rows = [row for each in workloads for row in _rows(cells, each, base, active, everything)]
    result = run_report.about(run, cells, conditions)
    columns = [
        text("workload", "workload"),
        run_report.names(run),
        text("class", "accuracy"),
        number("latency", "latency_s", seconds),
        number(f"vs {clean(base)}", "ratio", factor),
        number("seq/s", "sequences_per_s", short),
        number("real time", "real_time", factor, True),
        number("GPU mem", "device_peak", size, True),
        number("active", "active", percent, True),
        number("error", "max_abs_error", error),
    ]
    result.add(Table("workloads", rows, columns))
    result.add(
        paragraph(NOTE, *run_report.mark_notes(run, [row["implementation"] for row in rows]))
    )
    result.add(Table("shapes", [*map(_described, workloads)], _SHAPES))
    if run.plan.left_out:
        out = listed(run.plan.left_out)
        result.add(paragraph(f"not used on a {run.plan.settings.device}: {out}"))
    return result


def on_page(run: Run) -> Document:
    """The report of workloads, empty if the run has none."""
    return document(run) if run.plan.workloads else Document()


_SHAPES = [text("workload", "workload"), text("shape", "shape"), text("read from", "source")]


def _described(workload: Workload) -> dict[str, Any]:
    shape = workload.shape.label
    return {"workload": workload.name, "shape": shape, "source": workload.source}


def _rows(
    cells: pd.DataFrame,
    workload: Workload,
    base: str,
    active: dict[tuple[Any, ...], float],
    everything: bool,
) -> Iterator[dict[str, Any]]:
    """The rows of a workload, the fastest first."""
    sizes = astuple(workload.shape)
    here = cells[(cells[SHAPE] == list(sizes)).all(axis=1)]
    good = here[(here["status"] == "ok") & (here["copy"] == 1) & here["latency_s"].notna()]
    numbers = ["latency_s", "sequences_per_s", "device_peak", "max_abs_error"]
    medians = good.groupby(["implementation", "precision"], sort=False)[numbers].median()
    medians = medians.reset_index().sort_values("latency_s", kind="stable")
    latency = dict(zip(medians["implementation"], medians["latency_s"], strict=True))
    base_s = latency.get(base, np.nan)
    signal_s = workload.step_s * sum(workload.shape.each_length)
    seen: set[str] = set()
    for row in medians.to_dict("records"):
        name, accuracy = str(row["implementation"]), summary.accuracy(str(row["precision"]))
        if everything or name == base or accuracy not in seen:
            seen.add(accuracy)
            yield {
                **{str(key): value for key, value in row.items()},
                "workload": workload.name,
                "shape": workload.shape.label,
                "accuracy": accuracy,
                "ratio": row["latency_s"] / base_s,
                "real_time": signal_s / row["latency_s"] if signal_s else None,
                "active": active.get((name, *sizes)),
            }


def _active(run: Run) -> dict[tuple[Any, ...], float]:
    """The share of the latency in which the GPU was busy, by implementation and shape."""
    profiles = store.read_profiles(run.folder) if run.folder else []
    return {
        (record.implementation, *astuple(record.shape)): profile.busy_s / record.latency_s
        for record, profile in profiles
        if profile.busy_s and record.latency_s
    }
