"""How far from the limit each row is, as a table of the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lstm_bench.analysis.results import Run
from lstm_bench.features.limits import distance
from lstm_bench.features.limits import report as limits_report
from lstm_bench.model.units import factor, seconds
from lstm_bench.report.document import Column, Row, Table, number

NOTE = (
    "The least time that a call can take with this machine's launches, exchanges between cores,"
    " bandwidths and rates, which were measured when the run started; what takes most of it; the"
    " row that is nearest; what each part would take alone; and how many times the limit each row"
    " takes."
)


def sections(run: Run) -> Iterator[tuple[Table, str]]:
    """Where each row stands, shape by shape, with a note; nothing without limits."""
    table = limits_report.by_shape(distance.distances(run.cells, run.limits), 0)
    if table.rows:
        parts = [number(part, f"{part}_s", seconds) for part in distance.PARTS]
        columns = [*table.columns, *parts, Column("rows, times the limit", _stand)]
        yield replace(table, title="Distance to the limit", columns=columns), NOTE


def _stand(row: Row) -> str:
    return ", ".join(f"{name} {factor(over)}" for name, over in row["rows"].items())
