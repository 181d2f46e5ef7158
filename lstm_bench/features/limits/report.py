"""The limits of a machine, and how far from them each row is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from lstm_bench.analysis.results import Run
from lstm_bench.features.limits import distance as analysis
from lstm_bench.model.feature import AddedColumn
from lstm_bench.model.limits import Limits
from lstm_bench.model.shape import SHAPE, Shape
from lstm_bench.model.units import factor, in_units, seconds, size
from lstm_bench.report.document import Column, Document, Table, number, text
from lstm_bench.report.run_report import MOST_SHAPES, shape_label

NOTE = (
    "time over what no implementation of its class of accuracy can be below on this"
    " machine, geometric mean"
)
PARTS = (
    "limit: the least time by the machine's constants; binds: what takes most of it (launch;"
    " barrier: exchanges between timesteps; bandwidth; arithmetic); nearest: the row with the"
    " lowest time"
)
RATES = {"T": 1e-12, "G": 1e-9, "M": 1e-6}


def document(limits: Limits) -> Document:
    """All constants, each with its unit."""
    rows = [{"what": what, "value": value} for what, value in _rows(limits)]
    table = Table("constants", rows, (text("constant", "what"), number("value", "value")))
    return Document([table], {"limits": limits.to_json()})


def _rows(limits: Limits) -> Iterator[tuple[str, str]]:
    gpu = limits.device == "cuda"
    core = "multiprocessor" if gpu else "thread"
    yield f"{core}s", str(limits.cores)
    yield "shortest call", seconds(limits.call_s)
    yield "shortest call of many queued", seconds(limits.queued_s)
    for cores, exchange_s in limits.exchange_s.items():
        if cores > 1 or gpu:
            yield f"exchange between {cores} {core}{'s' * (cores > 1)}", seconds(exchange_s)
    for name, cell_s in limits.cell_s.items():
        yield f"chain of a cell, {name}", seconds(cell_s)
    if limits.taken_in:
        yield f"bytes into all {core}s", rate(limits.taken_in, "B/s")
    yield "multiply-adds, fp32", rate(limits.vector_flops, "FLOP/s")
    if limits.narrow_flops:
        yield "matrix products, half, 8 columns", rate(limits.narrow_flops, "FLOP/s")
    for name, flops in limits.matrix_flops.items():
        yield f"matrix products, {name}", rate(flops, "FLOP/s")
    for level in limits.levels:
        holds = f" ({size(level.bytes)})" if level.bytes else ""
        if level.bytes_per_s:
            yield f"{level.name}{holds}", rate(level.bytes_per_s, "B/s")
        else:
            yield f"{level.name}{holds}", "-"


def rate(value: float, unit: str) -> str:
    """A rate with three digits: 4.31 TB/s."""
    return in_units(value, {f"{prefix}{unit}": factor for prefix, factor in RATES.items()}) or "-"


# --- distances


def in_summary(run: Run, cells: pd.DataFrame, metric: str) -> AddedColumn:
    """How many times the limit each row takes, beside its time; details for `report --all`."""
    far = analysis.distances(cells, run.limits, metric)
    facts: dict[str, Any] = {}
    details: Sequence[str | Table] = ()
    if run.limits and len(far):
        facts = {"limits": run.limits.to_json()}
        details = by_shape(far, MOST_SHAPES), PARTS
    means = analysis.means(far)
    return AddedColumn("over_limit", "over limit", distance, NOTE, means, facts, details)


def distance(over: float | None) -> str:
    """A time over its limit."""
    return "-" if over is None else factor(over)


def on_page(run: Run) -> Document:
    """The distance of each row to the limits, shape by shape; nothing without limits."""
    table = by_shape(analysis.distances(run.cells, run.limits), None)
    if not table.rows:
        return Document()
    parts = [number(part, f"{part}_s", seconds) for part in analysis.PARTS]
    columns = [*table.columns, *parts, text("rows, times the limit", "rows", _stand)]
    title = "distance to the limit"
    return Document([run.name, dataclasses.replace(table, title=title, columns=columns), PARTS])


def _stand(rows: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {factor(over)}" for name, over in rows.items())


def by_shape(far: pd.DataFrame, most: int | None) -> Table:
    """Per shape and class of accuracy: its limit, what binds, and the rows, the nearest first."""
    rows = []
    keys = ["limit_s", "binds", *(f"{part}_s" for part in analysis.PARTS), "over"]
    whole = far[far["computes"] == "lstm"].sort_values("over")
    for (accuracy, *sizes), part in whole.groupby(["accuracy", *SHAPE], sort=True):
        row = vars(Shape.from_row(sizes)) | {"accuracy": accuracy}
        row |= part.iloc[0][keys].to_dict() | {"nearest": part["implementation"].iloc[0]}
        rows.append(row | {"rows": dict(zip(part["implementation"], part["over"], strict=True))})
    columns = (
        Column("shape", shape_label, right=True),
        text("accuracy", "accuracy"),
        number("limit", "limit_s", seconds),
        text("binds", "binds"),
        text("nearest", "nearest"),
        number("over limit", "over", distance),
    )
    return Table("shape_limits", rows, columns, "the limit of each shape", most=most)
