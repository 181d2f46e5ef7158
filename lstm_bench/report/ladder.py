"""`report --ladder`: every way to run the layer, by latency, with what each of them costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench import features
from lstm_bench.analysis import summary
from lstm_bench.analysis.results import Run
from lstm_bench.model.shape_filter import chosen
from lstm_bench.model.types import LstmBenchError
from lstm_bench.model.units import (
    at_some,
    clean,
    error,
    factor,
    listed,
    over,
    seconds,
    size,
)
from lstm_bench.report import run_report
from lstm_bench.report.document import Document, Table, number, paragraph, text
from lstm_bench.report.fastest import Compared, base_of

COLUMNS = {"forward_s": "forward", "backward_s": "backward"}  # where a row has them
COLUMNS |= {"host_peak": "host mem", "device_peak": "GPU mem", "import_s": "import"}
COLUMNS |= {"build_s": "build", "first_call_s": "1st call"}
COSTS = f"{run_report.MEMORY_NOTE}; import: of the framework; build, 1st call: with compilation"


@dataclass(frozen=True)
class Ladder:
    """The rows of a run by latency, and what they are compared with."""

    rows: list[dict[str, Any]]  # the fastest first
    base: str  # what most users run
    shapes: int  # shapes that all rows have
    lacking: dict[str, str]  # rows that lack shapes -> which
    slower: dict[str, str]  # rows that are slower than the base -> why, as far as is known
    unclear: dict[str, str]  # rows that take longer, but not beyond the noise or not at all shapes
    hints: list[str]  # commands that show more of the reasons


def ladder_of(run: Run, cells: pd.DataFrame) -> Ladder:
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
        if ratio := compared.ratio(base, name)[0]:
            lacking[name] += f", {factor(ratio)} where it can"
    # Door `column-ladder`: of (run, cells, base) what may make each row slower than the base, in
    # words, and a hint how to know it of more rows.
    known = [why(run, mine, base) for why in features.behind("column-ladder")]
    slower, unclear = {}, {}
    for name, paths in ((row["implementation"], row["paths"]) for row in rows):
        ratio, sure, shapes = compared.ratio(base, name)
        if name == base or ratio is None or ratio <= 1:
            continue
        by = at_some(factor(ratio), shapes, whole)
        if sure:
            why = filter(None, [_path(paths), *(words.get(name) for words, _ in known)])
            slower[name] = ": ".join(filter(None, [by, "; ".join(why)]))
        else:
            unclear[name] = by
    hints = [hint for words, hint in known if not slower.keys() & words.keys()]
    common = int(table.attrs["shared_shapes"])
    return Ladder(rows, base, common, lacking, slower, unclear, hints)


def _time(run: Run) -> tuple[str, str]:
    """The time that the table shows and is sorted by: its heading and its key."""
    return ("per step", "step_s") if run_report.by_step(run) else ("latency", "latency_s")


def _path(paths: Sequence[str]) -> str:
    known = list(filter(None, paths))
    return f"{len(known)} ways, by shape" if len(known) > 2 else listed(known) if known else ""


def document(run: Run, conditions: Sequence[str] = ()) -> Document:
    """The table, and what is slower than the base."""
    cells = chosen(run.cells, conditions)
    ladder = ladder_of(run, cells)
    result = run_report.about(run, cells, conditions)
    result.facts |= {"base": ladder.base, "slower": ladder.slower, "unclear": ladder.unclear}
    result.facts |= {"lacking": ladder.lacking}
    names = [row["implementation"] for row in ladder.rows]
    result.add(_table(run, ladder))
    result.add(
        paragraph(
            f"medians over {over(ladder.shapes)}; vs {clean(ladder.base)}: latency over its"
            " latency, geometric mean; error: largest difference from float64",
            COSTS,
            *run_report.mark_notes(run, names),
        )
    )
    result.add(run_report.noise_line(run.noise))
    if ladder.lacking:
        lacking = (f"{name} {why}" for name, why in ladder.lacking.items())
        result.add(f"not at every shape: {'; '.join(lacking)}")
    slower = (f"  {name} {why}" for name, why in ladder.slower.items())
    result.add(paragraph(*slower, title=f"slower than {ladder.base}"))
    if ladder.slower:
        result.add(*ladder.hints)
    if ladder.unclear:
        rows = ", ".join(f"{name} {ratio}" for name, ratio in ladder.unclear.items())
        result.add(f"not clearly slower, or not at all shapes: {rows}")
    return result


def _table(run: Run, ladder: Ladder) -> Table:
    """The rows; two digits are enough for what they cost."""
    two = {True: partial(seconds, digits=2), False: partial(size, digits=2)}
    costs = [number(head, key, two[key.endswith("_s")], True) for key, head in COLUMNS.items()]
    columns = [
        run_report.names(run),
        text("class", "accuracy"),
        number(*_time(run), seconds),
        number(f"vs {clean(ladder.base)}", "ratio", factor),
        number("error", "max_abs_error", error),
        *costs,
    ]
    return Table("ladder", ladder.rows, columns)
