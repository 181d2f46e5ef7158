"""Where the time of calls goes, as sections of the page."""

from __future__ import annotations

import math

from lstm_bench.analysis.results import Run
from lstm_bench.features.profile import cells as profiled_cells
from lstm_bench.features.profile import report as kernel_report
from lstm_bench.features.profile.cells import Split
from lstm_bench.model.units import clipped, over
from lstm_bench.report.page import Section

MOST = 5  # parts of each row

Cells = list[list[str | float | None]]


def sections(run: Run) -> list[Section]:
    """What the run's profiles say; nothing if it has none that can be trusted."""
    found = profiled_cells.read(run)
    result = []
    doubts = _sentences(
        *kernel_report.source_lines(found.on_device),
        *kernel_report.stretched_lines(found.on_device),
        *kernel_report.without_lines(run, found, None),
        *kernel_report.left_out_lines(found),
    )
    if found.on_device:
        result += [_where(found.on_device, doubts), _parts(found.on_device, "Kernels")]
    if found.on_host:
        result += [_operators(found.on_host, doubts), _parts(found.on_host, "Operators")]
    return result


def _sentences(*lines: str) -> str:
    return " ".join(f"{line[0].upper()}{line[1:]}." for line in lines)


def _where(splits: list[Split], doubts: str) -> Section:
    cells, common = profiled_cells.shared(splits)
    rows: Cells = []
    for row in profiled_cells.device_rows(cells):
        times = (_us(row[key]) for key in ("busy_s", "host_s", "latency_s"))
        counts = (row["kernels"], row["launches"])
        shares = (_percent(row[key]) for key in ("active", "moving", "idle"))
        rows.append([row["implementation"], *times, *counts, *shares])
    columns = ["implementation", "busy (us)", "host (us)", "latency (us)"]
    columns += ["kernels", "launches", "active (%)", "moving (%)", "idle (%)"]
    checked = _sentences(*kernel_report.check_lines(splits))
    note = (
        "Busy: the GPU works. Host: the caller waits while the GPU is idle. Active, moving, idle:"
        " share of the latency in which a kernel ran, only copies or fills ran, nothing ran."
        f" Medians of times and means of shares over {over(common)}. {checked} {doubts}"
    )
    return Section(title="Where the time goes", note=note.strip(), columns=columns, rows=rows)


def _operators(splits: list[Split], doubts: str) -> Section:
    cells, common = profiled_cells.shared(splits)
    rows: Cells = []
    for row in profiled_cells.host_rows(cells):
        times = (_us(row[key]) for key in ("latency_s", "wall_s", "parts_s"))
        memory = None if row["bytes"] is None else round(row["bytes"] / 2**20, 3)
        rows.append([row["implementation"], row["source"], *times, row["calls"], memory])
    columns = ["implementation", "by", "latency (us)", "profiled (us)", "in parts (us)", "calls"]
    columns.append("memory (MiB)")
    checked = _sentences(*kernel_report.check_lines(splits))
    note = (
        f"Medians over {over(common)}. In parts: the own time of all operators or"
        f" phases, over all threads. {checked} {doubts}"
    )
    title = "Where the time goes, on the CPU"
    return Section(title=title, note=note.strip(), columns=columns, rows=rows)


def _parts(splits: list[Split], title: str) -> Section:
    """The most expensive parts of every row at one shape."""
    rows: Cells = []
    for one in profiled_cells.examples(splits):
        for row in profiled_cells.part_rows(one)[:MOST]:
            name = clipped(kernel_report.short_name(row["name"]), kernel_report.NAME)
            times = (_us(row["self_s"]), _percent(row["share"]))
            rows.append([one.name, one.shape.label, row["family"], row["count"], *times, name])
    columns = ["implementation", "shape", "family", "count", "time (us)", "share (%)", "name"]
    note = (
        f"The {MOST} longest of each implementation, per call, at a shape of middle size. Share: of"
        " the time of all parts."
    )
    return Section(title=title, note=note, columns=columns, rows=rows)


def _us(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(f"{1e6 * value:.4g}")


def _percent(value: float) -> float | None:
    return None if math.isnan(value) else round(100 * value, 1)
