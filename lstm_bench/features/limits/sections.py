"""How far from the limit each row is, as a section of the page."""

from __future__ import annotations

from lstm_bench.analysis.results import Run
from lstm_bench.features.limits import distance as limits
from lstm_bench.features.limits import report as limits_report
from lstm_bench.model.units import factor
from lstm_bench.report.page import Section


def sections(run: Run) -> list[Section]:
    """Where each row stands, shape by shape, as a section of the page."""
    rows: list[list[str | float | None]] = []
    for one in limits_report.standings(limits.distances(run.cells, run.limits)):
        parts = (1e6 * one[f"{part}_s"] for part in limits.PARTS)
        stand = ", ".join(f"{name} {factor(over)}" for name, over in one["rows"].items())
        rows.append([limits_report.label(one), one["accuracy"], 1e6 * one["limit_s"], one["binds"]])
        rows[-1] += [*parts, stand]
    if not rows:
        return []
    columns = ["shape", "class", "limit (us)", "binds", *(f"{p} (us)" for p in limits.PARTS)]
    note = (
        "The least time that a call can take with this machine's launches, exchanges between cores,"
        " bandwidths and rates, which were measured when the run started; what takes most of it;"
        " what each part would take alone; and how many times the limit each row takes."
    )
    title = "Distance to the limit"
    return [Section(title=title, note=note, columns=[*columns, "rows, times the limit"], rows=rows)]
