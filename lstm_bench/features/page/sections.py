"""The further tables of the page: the ladder, what features add, and memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lstm_bench import features
from lstm_bench.analysis.results import Run
from lstm_bench.model.types import LstmBenchError, Record
from lstm_bench.model.units import size
from lstm_bench.report import ladder, run_report
from lstm_bench.report.document import Column, Table, number, text
from lstm_bench.runs import store

#: What an implementation says of itself.
KINDS = ("weights", "inputs", "outputs", "workspace")
#: What was measured, where it was; `docs/explanation/gpu-and-memory.md` has the details.
MEASURED = {
    "device peak": "the most that its build and first call added on the GPU, by its own allocator",
    "process by NVML": "all that its process holds on the GPU, with its neighbours of the shape",
    "device by NVML": "all that the GPU holds more than before the workers started",
    "import": "what its process held on the host once the framework was imported",
    "host peak": "the most that its build and first call added to the process on the host",
    "process peak": "the most that its process ever had on the host, with its neighbours",
}


def sections(run: Run) -> Iterator[tuple[Table, str]]:
    """Tables, each with a note."""
    yield from _ladder(run)
    for add in features.behind("section"):
        yield from add(run)
    if run.folder:
        yield from memory(store.read_records(run.folder).values())


def _ladder(run: Run) -> Iterator[tuple[Table, str]]:
    try:
        found = ladder.ladder_of(run, run.cells)
    except LstmBenchError:  # without times
        return
    table = ladder.table(run, found)
    why = Column(f"slower than {found.base}", lambda r: found.slower.get(r["implementation"], ""))
    notes = [*ladder.notes(found), *run_report.mark_notes(run, ladder.names(found))]
    note = " ".join(f"{line[:1].upper()}{line[1:]}." for line in notes)
    yield replace(table, title="Ladder", columns=[*table.columns, why]), note


def memory(records: Iterable[Record]) -> Iterator[tuple[Table, str]]:
    """What each implementation holds, at the largest shape that it has; nothing if unknown."""
    largest: dict[str, Record] = {}
    for record in records:
        if record.memory and record.copy == 1:
            before = largest.get(record.implementation)
            if before is None or record.shape.flops > before.shape.flops:
                largest[record.implementation] = record
    rows = [
        {"implementation": name, "shape": record.shape.label, **record.memory}
        for name, record in sorted(largest.items())
    ]
    if not rows:
        return
    measured = [kind for kind in MEASURED if any(kind in row for row in rows)]
    kinds = (*KINDS, *measured)
    note = (
        "What the implementation itself holds for its largest shape (hidden,batch,timesteps);"
        " -: it does not say."
    )
    note += "".join(f" {kind}: {MEASURED[kind]}." for kind in measured)
    heads = [text(head, head) for head in ("implementation", "shape")]
    rows = [dict.fromkeys(kinds) | row for row in rows]
    yield Table("memory", rows, [*heads, *(number(k, k, size) for k in kinds)], "Memory"), note
