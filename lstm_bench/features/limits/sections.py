"""How far from the limit each row is, for the page."""

from __future__ import annotations

from dataclasses import replace

from lstm_bench.analysis.results import Run
from lstm_bench.features.limits import distance
from lstm_bench.features.limits import report as limits_report
from lstm_bench.model.units import factor, seconds
from lstm_bench.report.document import Column, Document, Row, number

NOTE = (
    "The least time that a call can take with this machine's launches, exchanges between cores,"
    " bandwidths and rates, which were measured when the run started; what takes most of it; the"
    " row that is nearest; what each part would take alone; and how many times the limit each row"
    " takes."
)


def document(run: Run) -> Document:
    """Where each row stands, shape by shape; nothing without limits."""
    table = limits_report.by_shape(distance.distances(run.cells, run.limits), 0)
    if not table.rows:
        return Document()
    parts = [number(part, f"{part}_s", seconds) for part in distance.PARTS]
    columns = [*table.columns, *parts, Column("rows, times the limit", _stand)]
    title = "distance to the limit"
    return Document([run.name, replace(table, title=title, columns=columns, most=None), NOTE])


def _stand(row: Row) -> str:
    return ", ".join(f"{name} {factor(over)}" for name, over in row["rows"].items())
