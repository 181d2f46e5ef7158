"""Where the time of calls goes, as tables of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lstm_bench.analysis.results import Run
from lstm_bench.features.profile import cells as profiled_cells
from lstm_bench.features.profile import report as kernel_report
from lstm_bench.features.profile.cells import Split
from lstm_bench.model.units import clipped, over, percent, seconds, size
from lstm_bench.report.document import Column, Row, Table, number, text

MOST = 5  # parts of each row
COUNT = "{:.4g}".format


def sections(run: Run) -> Iterator[tuple[Table, str]]:
    """What the run's profiles say, as far as they can be trusted: tables, each with a note."""
    found = profiled_cells.read(run)
    doubts = (
        *kernel_report.source_lines(found.on_device),
        *kernel_report.stretched_lines(found.on_device),
        *kernel_report.without_lines(run, found, None),
        *kernel_report.left_out_lines(found),
    )
    if found.on_device:
        yield _where(found.on_device, doubts)
        yield _parts(found.on_device, "Kernels")
    if found.on_host:
        yield _operators(found.on_host, doubts)
        yield _parts(found.on_host, "Operators")


def _sentences(*lines: str) -> str:
    return " ".join(f"{line[0].upper()}{line[1:]}." for line in lines)


def _where(splits: list[Split], doubts: Sequence[str]) -> tuple[Table, str]:
    cells, common = profiled_cells.shared(splits)
    times = {"busy": "busy_s", "host": "host_s", "latency": "latency_s"}
    columns = [
        text("implementation", "implementation"),
        *(number(head, key, seconds) for head, key in times.items()),
        *(number(key, key, COUNT) for key in ("kernels", "launches")),
        *(number(key, key, percent) for key in ("active", "moving", "idle")),
    ]
    note = _sentences(
        "busy: the GPU works",
        "host: the caller waits while the GPU is idle",
        "active, moving, idle: share of the latency in which a kernel ran, only copies or fills"
        " ran, nothing ran",
        f"medians of times and means of shares over {over(common)}",
        *kernel_report.check_lines(splits),
        *doubts,
    )
    rows = profiled_cells.device_rows(cells)
    return Table("where", rows, columns, "Where the time goes"), note


def _operators(splits: list[Split], doubts: Sequence[str]) -> tuple[Table, str]:
    cells, common = profiled_cells.shared(splits)
    times = {"latency": "latency_s", "profiled": "wall_s", "in parts": "parts_s"}
    columns = [
        text("implementation", "implementation"),
        text("by", "source"),
        *(number(head, key, seconds) for head, key in times.items()),
        number("calls", "calls", COUNT),
        number("memory", "bytes", size),
    ]
    note = _sentences(
        f"medians over {over(common)}",
        "in parts: the own time of all operators or phases, over all threads",
        *kernel_report.check_lines(splits),
        *doubts,
    )
    title = "Where the time goes, on the CPU"
    return Table("operators", profiled_cells.host_rows(cells), columns, title), note


def _parts(splits: list[Split], title: str) -> tuple[Table, str]:
    """The most expensive parts of every row at one shape."""
    rows = [
        {**row, "implementation": split.name, "shape": split.shape.label}
        for split in profiled_cells.examples(splits)
        for row in profiled_cells.part_rows(split)[:MOST]
    ]

    def name(row: Row) -> str:
        return clipped(kernel_report.short_name(row["name"]), kernel_report.NAME)

    columns = [
        *(text(key, key) for key in ("implementation", "shape", "family")),
        number("count", "count", COUNT),
        number("time", "self_s", seconds),
        number("share", "share", percent),
        Column("name", name),
    ]
    note = (
        f"The {MOST} longest of each implementation, per call, at a shape of middle size. Share: of"
        " the time of all parts."
    )
    return Table("parts", rows, columns, title), note
