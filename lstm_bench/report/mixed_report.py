"""The report of a run that may have been measured on unlike devices: each kind by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from lstm_bench.analysis import kinds
from lstm_bench.analysis.results import Run
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import LstmBenchError
from lstm_bench.model.units import counted
from lstm_bench.report import run_report
from lstm_bench.report.document import Document, Table, paragraph


def document(
    run: Run, metric: str = "latency", conditions: Sequence[str] = (), everything: bool = False
) -> Document:
    """One screen of a run, or one for each kind of device that it was measured on."""
    parts = kinds.parts(run)
    if len(parts) == 1:
        return run_report.document(run, metric, conditions, everything)
    result = Document(facts={"run": run.name, "mixed": []}, everything=everything)
    result.main = "implementations"
    result.add(_heading(run, parts))
    for part in parts:
        try:
            own = run_report.document(part, metric, conditions, everything)
        except LstmBenchError as error:  # no shape of this kind was asked for
            result.add(f"{part.part}: {error}")
            continue
        result.facts["mixed"].append(own.facts)
        result.add(*(_marked(content, part) for content in own.parts if content != run_report.MORE))
        result.add_details(*(_marked(content, part) for content in own.details))
    if not everything:
        result.add(run_report.MORE)
    return result


def _heading(run: Run, parts: Sequence[Run]) -> str:
    lines = [
        f"{run.name}: mixed, measured on {counted(len(parts), 'kind')} of device; each is shown by"
        " itself, and they are not compared",
    ]
    for part in parts:
        shapes = len(part.cells[SHAPE].drop_duplicates())
        lines.append(f"  {part.part}: {counted(shapes, 'shape')}")
    return paragraph(*lines, run_report.incomplete(run))


def _marked(part: str | Table, run: Run) -> Any:
    """A table's rows say which kind of device they are of."""
    if isinstance(part, str):
        return part
    rows = [{**row, "device_kind": run.part} for row in part.rows]
    return dataclasses.replace(part, rows=rows)
