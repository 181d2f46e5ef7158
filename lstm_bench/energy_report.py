"""What a run took besides time: energy per call, clocks, temperature, memory.

The document of `lstm-bench report --energy`, and its table as a section of the page.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lstm_bench import store
from lstm_bench.model import LstmBenchError, Record, Shape
from lstm_bench.page import Section
from lstm_bench.results import Run
from lstm_bench.run_report import heading
from lstm_bench.tables import Document, Row, Table, number, text
from lstm_bench.units import clipped, wrapped

_ENERGY = (
    "energy per call: power while calls run back to back, times seconds per call, as the median"
    " over the {shapes} shapes that all rows with energy have; net: less what the idle GPU draws in"
    " that time; "
)
_NOTE = (
    "clock: median and lowest while the cells were timed; peaks: the most that one cell needed, the"
    " largest over all shapes"
)


def document(run: Run) -> Document:
    """Energy, the GPU's state and memory, one row per implementation."""
    result = Document(facts={"run": run.name, "machine": dict(run.manifest["machine"])})
    result.add(heading(run))
    records = _measured(run)
    rows = table_rows(records, run.implementations)
    notes = list(dict.fromkeys(leg.note for leg in _legs(run) if leg.note))
    if not any(row["gross_j"] or row["clock_mhz"] or row["host_peak"] for row in rows):
        raise LstmBenchError(
            f"{run.name} has neither energy nor clocks nor memory peaks"
            f"{''.join(f' ({note})' for note in notes)};"
            " measure them with `lstm-bench grid GRID --energy` on a machine with an NVIDIA GPU"
        )
    result.add(Table("energy", rows, _columns(rows)))
    shapes = len(shared_shapes(records))
    result.add(wrapped((_ENERGY.format(shapes=shapes) if shapes else "no energy; ") + _NOTE))
    for note in notes:
        result.add(wrapped(f"! {note}"))
    for title, lines in (
        ("without energy", problem_lines(records)),
        ("throttled", throttled_lines(records)),
    ):
        if lines:
            result.add("\n".join([f"{title}:", *lines]))
    return result


def sections(run: Run) -> list[Section]:
    """The same table for the page, if there is energy to tell of."""
    rows = [row for row in table_rows(_measured(run), run.implementations) if row["gross_j"]]
    if not rows:
        return []
    keys = ("gross_j", "net_j", "power_w", "clock_mhz", "temperature_c")
    names = ["gross (mJ)", "net (mJ)", "power (W)", "SM clock (MHz)", "hottest (C)"]
    cells: list[list[str | float | None]] = []
    for row in rows:
        shown = [1e3 * row[k] if k.endswith("_j") and row[k] else row[k] for k in keys]
        cells.append([row["implementation"], *(None if v is None else round(v, 3) for v in shown)])
    note = "Per call, the median over the shapes that all rows have; net: less the idle GPU's."
    return [Section(title="Energy", note=note, columns=["implementation", *names], rows=cells)]


def _legs(run: Run) -> list[store.Leg]:
    return store.read_legs(run.folder) if run.folder else []


def _measured(run: Run) -> list[Record]:
    if run.folder is None:
        return []
    records = store.read_records(run.folder).values()
    return [r for r in records if r.status == "ok" and r.copy == 1]


def shared_shapes(records: Iterable[Record]) -> set[Shape]:
    """The shapes at which all rows that have any energy have one."""
    found: dict[str, set[Shape]] = {}
    for record in records:
        if record.energy and record.energy.gross_j is not None:
            found.setdefault(record.implementation, set()).add(record.shape)
    return set.intersection(*found.values()) if found else set()


def table_rows(records: Sequence[Record], order: Sequence[str]) -> list[dict[str, Any]]:
    """One row per implementation; what nothing is known of is None."""
    shapes = shared_shapes(records)
    rows = []
    for name in order:
        own = [r for r in records if r.implementation == name]
        energies = [r.energy for r in own if r.energy and r.shape in shapes]
        states = [r.gpu for r in own if r.gpu]
        rows.append(
            {
                "implementation": name,
                "gross_j": _median(e.gross_j for e in energies),
                "net_j": _median(e.net_j for e in energies),
                "power_w": _median(e.power_w for e in energies),
                "idle_w": _median(e.idle_w for e in energies),
                "clock_mhz": _median(s.sm_mhz for s in states),
                "lowest_mhz": min(_known(s.lowest_sm_mhz for s in states), default=None),
                "temperature_c": max(_known(s.temperature_c for s in states), default=None),
                "device_peak": max((r.memory.get("device peak", 0) for r in own), default=0),
                "host_peak": max((r.memory.get("host peak", 0) for r in own), default=0),
            }
        )
    return rows


def problem_lines(records: Iterable[Record]) -> list[str]:
    """Why cells have no energy: each reason once, with how many it concerns."""
    reasons = Counter(
        r.energy.problem.split(":")[0] for r in records if r.energy and r.energy.problem
    )
    return [f"  {count} cells: {reason}" for reason, count in reasons.most_common()]


def throttled_lines(records: Iterable[Record]) -> list[str]:
    reasons = Counter(reason for r in records if r.gpu for reason in r.gpu.throttled)
    return [f"  {count} cells: {reason}" for reason, count in reasons.most_common()]


def _columns(rows: Sequence[Row]) -> list[Any]:
    """Columns of which no row knows anything are left out."""
    columns = [
        ("gross_j", number("gross", "gross_j", joules)),
        ("net_j", number("net", "net_j", joules)),
        ("power_w", number("power", "power_w", _whole("W"))),
        ("idle_w", number("idle", "idle_w", _whole("W"))),
        ("clock_mhz", number("SM clock", "clock_mhz", _whole("MHz"))),
        ("lowest_mhz", number("lowest", "lowest_mhz", _whole("MHz"))),
        ("temperature_c", number("hottest", "temperature_c", _whole("C"))),
        ("device_peak", number("device peak", "device_peak", mebibytes)),
        ("host_peak", number("host peak", "host_peak", mebibytes)),
    ]
    known = [column for key, column in columns if any(row[key] for row in rows)]
    return [text("implementation", "implementation", lambda name: clipped(name, 25)), *known]


def joules(value: float | None) -> str:
    """An amount of energy with three digits and its unit."""
    if value is None:
        return "-"
    for factor, unit in ((1, "J"), (1e3, "mJ"), (1e6, "uJ")):
        scaled = float(f"{value * factor:.3g}")
        if abs(scaled) >= 1:
            return f"{scaled:g} {unit}"
    return "0 J"


def mebibytes(value: float | None) -> str:
    return f"{value / 2**20:,.1f} MiB" if value else "-"


def _whole(unit: str) -> Callable[[float | None], str]:
    return lambda value: "-" if value is None else f"{value:.0f} {unit}"


def _known(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _median(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return statistics.median(known) if known else None
