"""Latency against memory, one point per implementation: what each level of abstraction costs."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from lstm_bench.analysis.results import Run
from lstm_bench.model.types import LstmBenchError
from lstm_bench.model.units import counted, over, seconds, size
from lstm_bench.report import ladder
from lstm_bench.report.colours import style_of
from lstm_bench.report.figures import about, elided, line_page, log_axis, marks, page_end, styled
from lstm_bench.report.run_report import DEFAULT, DEFAULT_NOTE

SMALLEST = 2**16  # bytes: less cannot be told from nothing
WHERE = {"device_peak": "on the GPU", "host_peak": "on the host"}


@styled()
def drawn(run: Run) -> Figure | None:
    """A point for each row; None for a run without memory peaks of two implementations."""
    try:
        rungs = ladder.ladder_of(run, run.cells)
    except LstmBenchError:
        return None
    key = next((k for k in WHERE if any(row[k] > 0 for row in rungs.rows)), "host_peak")
    rows = [row for row in rungs.rows if not math.isnan(row[key])]
    if len(rows) < 2:
        return None
    notes = f"Memory: the most that build and first call added {WHERE[key]}."
    if without := [row["implementation"] for row in rungs.rows if row not in rows]:
        notes += f" Not known of {', '.join(without)}."
    if any(row["default"] for row in rows):
        notes += f" {DEFAULT_NOTE}."
    under = [about(run), f"Latency: median over {over(rungs.shapes)}; memory: the most at any."]
    title = f"Latency and memory: {counted(len(rows), 'implementation')}"
    ax, place = line_page(len(rows), title, under, notes)
    entries = []
    for row in reversed(rows):  # as they stand, the slowest above
        name = row["implementation"]
        at = max(row[key], SMALLEST), row["latency_s"]
        (point,) = ax.plot(*at, linestyle="none", **marks(style_of(name)))
        label = elided(name, 28) + DEFAULT * row["default"]
        entries.append((point, f"{label}, {row['accuracy']}"))
    log_axis(ax.xaxis, [max(row[key], SMALLEST) for row in rows], size, base=2)
    log_axis(ax.yaxis, [row["latency_s"] for row in rows], seconds)
    ax.set(xlabel=f"peak memory {WHERE[key]}", ylabel="latency of one call")
    return page_end(ax, entries, place)
