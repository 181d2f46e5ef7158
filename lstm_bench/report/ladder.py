"""`report --ladder`: every way to run the layer, by latency, with what each of them costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench.analysis import summary
from lstm_bench.analysis.results import Run
from lstm_bench.features.profile import cells as profiled_cells
from lstm_bench.model.shape_filter import chosen, shapes_of
from lstm_bench.model.types import LstmBenchError
from lstm_bench.model.units import (
    at_some,
    clean,
    error,
    factor,
    listed,
    over,
    percent,
    seconds,
    size,
    wrapped,
)
from lstm_bench.report import run_report
from lstm_bench.report.document import Column, Document, Table, number, text
from lstm_bench.report.fastest import Compared
from lstm_bench.report.fastest import base_of as base_of

COLUMNS = {"host_peak": "host mem", "device_peak": "GPU mem", "import_s": "import"}
COLUMNS |= {"build_s": "build", "first_call_s": "1st call"}
COSTS = f"{run_report.MEMORY_NOTE}; import: of the framework; build, 1st call: with compilation"
#: What a profile counts in a call, how a sentence says it, and how its number is shown.
COUNTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "kernels": ("kernels a call", "{:.0f}".format),
    "launches": ("launches a call", "{:.0f}".format),
    "active": ("of the time in kernels", lambda share: percent(share, 0)),
    "operators": ("operators a call", "{:.0f}".format),
}
UNPROFILED = "`lstm-bench grid GRID --profile` would count their kernels and operators"


@dataclass(frozen=True)
class Ladder:
    """The rows of a run by latency, and what they are compared with."""

    rows: list[dict[str, Any]]  # the fastest first
    base: str  # what most users run
    shapes: int  # that all rows have
    lacking: dict[str, str]  # rows that lack shapes -> which
    slower: dict[str, str]  # rows that are slower than the base -> why, as far as is known
    unclear: dict[str, str]  # rows that take longer, but not beyond the noise or not at all shapes


def of(run: Run, cells: pd.DataFrame) -> Ladder:
    """The ladder of these cells of a run."""
    everything = summary.times(cells)
    there = dict(zip(everything.names, np.isfinite(everything.seconds).sum(axis=0), strict=True))
    whole = len(everything.shapes)
    kept = [name for name in run.implementations if there.get(name, 0) > summary.ENOUGH * whole]
    if not whole or not kept:
        raise LstmBenchError(f"{run.name} has no times there: there is no ladder to show")
    base = base_of(run, kept)
    mine = cells[cells["implementation"].isin(kept)]
    table = summary.summary(mine, summary.times(mine), None, kept, base)
    rows = table.sort_values(_time(run)[1], kind="stable").to_dict("records")
    for row in rows:
        row["accuracy"] = summary.accuracy(row["precision"])
        row["default"] = row["implementation"] in run.defaults
    lacking, compared = summary.lacking(cells), Compared(run, cells, "latency")
    for name in lacking.keys() - set(kept):
        if ratio := compared.ratio(base, name, "", (0, 0))[0]:
            lacking[name] += f", {factor(ratio)} where it can"
    slower = _slower(run, mine, rows, base, whole)
    return Ladder(rows, base, int(table.attrs["shared_shapes"]), lacking, *slower)


def _time(run: Run) -> tuple[str, str]:
    """The time that the table shows and is sorted by: its heading and its key."""
    return ("per step", "step_s") if run_report.by_step(run) else ("latency", "latency_s")


def _slower(
    run: Run, cells: pd.DataFrame, rows: Sequence[Mapping[str, Any]], base: str, whole: int
) -> tuple[dict[str, str], dict[str, str]]:
    """The rows that are slower than the base beyond the noise, and why; then those that may be."""
    compared, counts = Compared(run, cells, "latency"), _counts(run, cells)
    paths = {row["implementation"]: row["paths"] for row in rows}
    slower, unclear = {}, {}
    for name in (row["implementation"] for row in rows):
        ratio, sure, shapes = compared.ratio(base, name, "", (0, 0))
        if name == base or ratio is None or ratio <= 1:
            continue
        by = at_some(factor(ratio), shapes, whole)
        why = [_path(paths[name]), *_more(counts.get(name, {}), counts.get(base, {}))]
        if sure:
            slower[name] = ": ".join(filter(None, [by, "; ".join(filter(None, why))]))
        else:
            unclear[name] = by
    return slower, unclear


def _path(paths: Sequence[str]) -> str:
    known = list(filter(None, paths))
    return f"{len(known)} ways, by shape" if len(known) > 2 else listed(known) if known else ""


def _counts(run: Run, cells: pd.DataFrame) -> dict[str, dict[str, float]]:
    """What each row does in a call, of the shapes that all profiled rows have."""
    splits = profiled_cells.read(run, shapes_of(cells))
    found: dict[str, dict[str, float]] = {}
    for row in profiled_cells.device_rows(profiled_cells.shared(splits.on_device)[0]):
        found[row["implementation"]] = {what: row[what] for what in COUNTS if what in row}
    for row in profiled_cells.host_rows(profiled_cells.shared(splits.on_host)[0]):
        found[row["implementation"]] = {"operators": row["calls"] or 0.0}
    return found


def _more(own: Mapping[str, float], base: Mapping[str, float]) -> list[str]:
    """`1250 kernels a call against 104`: what a profile counts, and the base's count."""
    return [
        f"{shown(own[what])} {words}" + (f" against {shown(base[what])}" if what in base else "")
        for what, (words, shown) in COUNTS.items()
        if what in own and own[what] != own.get("kernels" if what == "launches" else "")
    ]


def document(run: Run, conditions: Sequence[str] = ()) -> Document:
    """The table, and what is slower than the base."""
    cells = chosen(run.cells, conditions)
    found = of(run, cells)
    result = Document(facts={"run": run.name, "machine": dict(run.manifest["machine"])})
    result.facts |= {"settings": dict(run.manifest["plan"]["settings"]), "base": found.base}
    result.facts |= {"slower": found.slower, "unclear": found.unclear}
    result.facts |= {"lacking": found.lacking}
    result.add(run_report.heading(run))
    if conditions:
        result.add(run_report.only(run, cells, conditions))
        result.facts["where"] = list(conditions)
    result.add(Table("ladder", found.rows, _columns(run, found)))
    result.add("\n".join([*map(wrapped, notes(found)), *run_report.mark_notes(run, _names(found))]))
    result.add(wrapped(run_report.noise_line(run.noise)))
    for title, inside in (("not at every shape", True), ("left out, for want of shapes", False)):
        names = [name for name in found.lacking if (name in _names(found)) == inside]
        if names:
            result.add(wrapped(f"{title}: {'; '.join(f'{n} {found.lacking[n]}' for n in names)}"))
    if found.slower:
        lines = [wrapped(f"  {name} {why}", 6) for name, why in found.slower.items()]
        result.add("\n".join([f"slower than {found.base}:", *lines]))
        if not any(" a call" in why for why in found.slower.values()):
            result.add(UNPROFILED)
    if found.unclear:
        rows = ", ".join(f"{name} {ratio}" for name, ratio in found.unclear.items())
        result.add(wrapped(f"not clearly slower, or not at all shapes: {rows}"))
    return result


def _names(found: Ladder) -> list[str]:
    return [row["implementation"] for row in found.rows]


def notes(found: Ladder) -> list[str]:
    """What the columns mean."""
    return [
        f"medians over {over(found.shapes)}; vs {clean(found.base)}: latency over its latency,"
        " geometric mean; error: largest difference from float64",
        COSTS,
    ]


def _columns(run: Run, found: Ladder) -> list[Column]:
    """Costs that no row knows are left out; two digits are enough for them."""
    known = [key for key in COLUMNS if any(not math.isnan(row[key]) for row in found.rows)]
    two = {True: partial(seconds, digits=2), False: partial(size, digits=2)}
    return [
        run_report.names(run),
        text("class", "accuracy"),
        number(*_time(run), seconds),
        number(
            f"vs {clean(found.base)}",
            "ratio",
            lambda ratio: "-" if math.isnan(ratio) else factor(ratio),
        ),
        number("error", "max_abs_error", error),
        *(number(COLUMNS[key], key, two[key.endswith("_s")]) for key in known),
    ]
