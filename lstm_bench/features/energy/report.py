"""Energy per call, clocks, temperature and memory of a run.

The document of `lstm-bench report --energy`, and its table as a section of the page.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from lstm_bench.analysis.results import Run
from lstm_bench.features.energy.cells import Drawn, drawn, firsts, joules, pairs, shared_shapes
from lstm_bench.model.shape_filter import chosen, shapes_of
from lstm_bench.model.types import SAME_ENERGY, LstmBenchError, Record, unlike_idle_w
from lstm_bench.model.units import counted, over, percent, size
from lstm_bench.report.document import Column, Document, Row, Table, number, paragraph
from lstm_bench.report.run_report import MEMORY_NOTE, about, mark_notes, names
from lstm_bench.runs import store

ESTIMATE = "~"  # before two digits: most cells are estimates

_ENERGY = (
    "energy per call, the median over {shapes}; gross: net, and idle power for the time per call;"
    " ~ if two runs on one GPU need not agree to {known} in most cells; net: what the GPU draws"
    " over idle while calls run back to back, - if that is not resolved; +-: half its 95% interval;"
    " power, idle: while calls run, and without; columns are medians of their own and need not add"
    " up; "
)
_CLOCK = (
    "SM MHz, mem MHz: median clocks while the cells were timed, of SM the lowest too if it was"
    " lower; util: share of the time with a kernel by NVML, pauses between blocks included; temp:"
    " the highest; "
)


def document(run: Run, conditions: Sequence[str] = ()) -> Document:
    """Energy, the GPU's state and memory, row by row; `conditions` choose shapes."""
    cells, everywhere = chosen(run.cells, conditions), measured(run)
    result = about(run, cells, conditions)
    shapes = shapes_of(cells)
    records = [r for r in everywhere if r.shape in shapes]
    own = firsts(records)
    rows = table_rows(own, run.implementations)
    legs = store.read_legs(run.folder) if run.folder else []
    notes = list(dict.fromkeys(leg.note for leg in legs if leg.note))
    if not any(row["gross_j"] or row["clock_mhz"] or row["host_peak"] for row in rows):
        raise LstmBenchError(
            f"{run.name} has neither energy nor clocks nor memory peaks"
            f"{''.join(f' ({note})' for note in notes)};"
            " measure them with `lstm-bench grid GRID --energy` on a machine with an NVIDIA GPU"
        )
    result.add(Table("energy", rows, [names(run), *COLUMNS]))
    common = len(shared_shapes(own))
    energy = "no energy, which takes an NVIDIA GPU and `lstm-bench grid GRID --energy`; "
    if elsewhere := {cell.record.shape for cell in drawn(everywhere)}:
        energy = f"no energy here; the run has it at {counted(len(elsewhere), 'other shape')}; "
    if any(row["cells"] for row in rows):
        energy = _ENERGY.format(shapes=over(common), known=percent(SAME_ENERGY, 0))
    clock = _CLOCK if any(row["clock_mhz"] for row in rows) else ""
    result.add(paragraph(energy + clock + MEMORY_NOTE))
    result.add(paragraph(*mark_notes(run, (row["implementation"] for row in rows))))
    result.add(paragraph(*doubts(own), repeats(pairs(records))))
    result.add(*(f"! {note}" for note in notes))
    result.add(paragraph(*problem_lines(own), title="without energy"))
    result.add(paragraph(*throttled(own), title="throttled"))
    return result


def on_page(run: Run) -> Document:
    """The report of energy, empty if the run has none."""
    return document(run) if drawn(measured(run)) else Document()


def measured(run: Run) -> list[Record]:
    """All cells with a time, controls among them."""
    records = store.read_records(run.folder).values() if run.folder else []
    return [r for r in records if r.status == "ok"]


def table_rows(records: Sequence[Record], order: Sequence[str]) -> list[dict[str, Any]]:
    """One row per implementation; what nothing is known of is None.

    Of energy where all rows have one; if that is nowhere, each row's own, which do not compare.
    """
    shapes = shared_shapes(records) or {cell.record.shape for cell in drawn(records)}
    rows = []
    for name in order:
        own = [r for r in records if r.implementation == name]
        cells = [cell for cell in drawn(own) if cell.record.shape in shapes]
        energies = [cell.energy for cell in cells]
        net_spread = _median(cell.net_spread for cell in cells)
        resolved = net_spread is not None and net_spread < 1
        states = [r.gpu for r in own if r.gpu]
        rows.append(
            {
                "implementation": name,
                "gross_j": _median(cell.gross_j for cell in cells),
                "net_j": _median(e.net_j for e in energies) if resolved else None,
                "net_spread": net_spread if resolved else None,
                "cells": len(cells),
                "estimates": sum(not cell.known for cell in cells),
                "power_w": _median(e.power_w for e in energies),
                "idle_w": _median(e.idle_w for e in energies),
                "clock_mhz": _median(s.sm_mhz for s in states),
                "lowest_mhz": min(_present(s.lowest_sm_mhz for s in states), default=None),
                "memory_mhz": _median(s.memory_mhz for s in states),
                "utilisation": _median(s.utilisation for s in states),
                "temperature_c": max(_present(s.temperature_c for s in states), default=None),
                "device_peak": max((r.memory.get("device peak", 0) for r in own), default=0),
                "host_peak": max(map(_host_memory, own), default=0),
            }
        )
    return rows


def _host_memory(record: Record) -> int:
    """The peak on the host as `results` counts it."""
    peak = record.memory.get("host peak")
    return 0 if peak is None else peak + record.memory.get("import", 0)


def doubts(records: Iterable[Record]) -> list[str]:
    """How many cells are estimates, and of how many net energy is not known."""
    cells = drawn(records)
    total = counted(len(cells), "cell")
    without_idle = sum(cell.energy.idle_w is None for cell in cells)
    reasons = (
        (
            sum(not cell.known for cell in cells),
            "gross is an estimate, which two runs on one GPU need not agree on to"
            f" {percent(SAME_ENERGY, 0)}",
        ),
        (
            sum(cell.net_spread >= 1 for cell in cells) - without_idle,
            "the GPU draws less over idle than the loads resolve: net is not known there",
        ),
        (without_idle, "idle power is not known: gross is power times the time per call there"),
    )
    lines = [f"in {count} of {total} {words}" for count, words in reasons if count]
    if apart := unlike_idle_w(cell.record for cell in cells):
        low, high = (statistics.median(ends) for ends in zip(*apart.values(), strict=True))
        lines.append(
            f"at {counted(len(apart), 'shape')} the GPU was another for some rows, or much warmer"
            f" ({low:.0f} W and {high:.0f} W idle): rows are not compared there"
        )
    return lines


def repeats(both: Sequence[tuple[Drawn, Drawn]]) -> str:
    """How far apart A/A pairs are, in gross and in net energy."""
    gross = [(first.gross_j, second.gross_j) for first, second in both]
    nets = [(first.energy.net_j, second.energy.net_j) for first, second in both]
    differences = []
    for what, sides in (("gross", gross), ("net", nets)):
        if apart := [abs(b / a - 1) for a, b in sides if a and b]:
            middle, most = percent(statistics.median(apart)), percent(max(apart))
            differences.append(f"{what} differs by {middle} in the median and {most} at most")
    pairs = counted(len(both), "A/A pair")
    return f"of {pairs} without an estimate, {', '.join(differences)}" if differences else ""


def problem_lines(records: Iterable[Record]) -> list[str]:
    """Why cells have no energy: each reason once, with how many it concerns."""
    reasons = Counter(
        r.energy.problem.split(":")[0] for r in records if r.energy and r.energy.power_w is None
    )
    return [f"  {counted(count, 'cell')}: {reason}" for reason, count in reasons.most_common()]


def throttled(records: Iterable[Record]) -> list[str]:
    """Reasons that any reading has, each with how many cells it concerns."""
    states = [r.gpu for r in records if r.gpu]
    reasons = Counter(reason for state in states for reason in state.throttled)
    cells = counted(len(states), "cell")
    return [f"  {n} of {cells} in some reading: {reason}" for reason, n in reasons.most_common()]


def gross_text(row: Row) -> str:
    """A row's gross energy; if most of its cells are estimates, marked and to two digits."""
    if 2 * row["estimates"] <= row["cells"]:
        return joules(row["gross_j"])
    return ESTIMATE + joules(float(f"{row['gross_j']:.1e}"))


def _clock_text(row: Row) -> str:
    usual, lowest = row["clock_mhz"], row["lowest_mhz"]
    if usual is None:
        return "-"
    return f"{usual:.0f}" + (f"/{lowest:.0f}" if lowest is not None and lowest < usual else "")


COLUMNS = (
    Column("gross", gross_text, right=True, key="gross_j", sparse=True),
    number("net", "net_j", joules, sparse=True),
    number("+-", "net_spread", "{:.0%}".format, sparse=True),
    number("power", "power_w", "{:.0f} W".format, sparse=True),
    number("idle", "idle_w", "{:.0f} W".format, sparse=True),
    Column("SM MHz", _clock_text, right=True, key="clock_mhz", sparse=True),
    number("mem MHz", "memory_mhz", "{:.0f}".format, sparse=True),
    number("util", "utilisation", "{:.0%}".format, sparse=True),
    number("temp", "temperature_c", "{:.0f} C".format, sparse=True),
    number("GPU mem", "device_peak", lambda peak: size(peak or None), sparse=True),
    number("host mem", "host_peak", lambda peak: size(peak or None), sparse=True),
)


def _median(values: Iterable[float | None]) -> float | None:
    known = _present(values)
    return statistics.median(known) if known else None


def _present(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]
