"""The further tables of the page: the ladder, what features add, and memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from lstm_bench import features
from lstm_bench.analysis.results import Run
from lstm_bench.model.types import LstmBenchError, Record, plain
from lstm_bench.model.units import clean, size
from lstm_bench.report import ladder
from lstm_bench.report.document import Column, Document, Row, Table, number, text
from lstm_bench.runs import store

#: The facts that an implementation states of itself.
KINDS = ("weights", "inputs", "outputs", "workspace")
#: The measured facts, where there are any; `docs/explanation/gpu-and-memory.md` has the details.
MEASURED = {
    "device peak": "the most that its build and first call added on the GPU, by its own allocator",
    "process by NVML": "all that its process holds on the GPU, with its neighbours of the shape",
    "device by NVML": "all that the GPU holds more than before the workers started",
    "import": "what its process held on the host once the framework was imported",
    "host peak": "the most that its build and first call added to the process on the host",
    "process peak": "the most that its process ever had on the host, with its neighbours",
}


def sections(run: Run) -> Iterator[dict[str, Any]]:
    """All of them, as the page's script draws them."""
    for make in (ladder.document, *features.behind("section"), memory):
        with contextlib.suppress(LstmBenchError):  # it has nothing to say of this run
            yield from sections_of(make(run))


def sections_of(document: Document) -> Iterator[dict[str, Any]]:
    """The tables of a document, each with the texts that follow it.

    The first text names the run, and is left out; others before the first table go with that.
    Neighbours of one name are one table.
    """
    blocks: list[tuple[list[Table], list[str]]] = [([], [])]
    for part in document.parts[1:]:
        tables, notes = blocks[-1]
        if isinstance(part, str):
            notes.append(_capital("\n".join(map(clean, part.splitlines()))))
        elif not tables or tables[0].name == part.name:
            tables.append(part)
        else:
            blocks.append(([part], []))
    return (_section(tables, notes) for tables, notes in blocks if tables)


def _section(tables: list[Table], notes: list[str]) -> dict[str, Any]:
    """Each cell as text, a number with the value that it is sorted by."""
    several = len(tables) > 1
    columns = {column.heading: column.right for table in tables for column in table.columns}
    rows = []
    for table in tables:
        own = {column.heading: column for column in table.columns}
        for row in table.rows[: table.most]:
            cells = (_cell(own[head], row) if head in own else "-" for head in columns)
            rows.append([*[clean(table.title)] * several, *cells])
    return {
        "title": _capital("" if several else tables[0].title) or _capital(tables[0].name),
        "notes": notes,
        "columns": [["of", False]] * several + [[head, right] for head, right in columns.items()],
        "rows": rows,
    }


def _cell(column: Column, row: Row) -> str | list[Any]:
    shown = clean(column.show(row))
    return [shown, plain(row[column.key])] if column.right and column.key else shown


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def memory(run: Run) -> Document:
    """The memory that each implementation holds at its largest shape, if any is known."""
    largest: dict[str, Record] = {}
    for record in store.read_records(run.folder).values() if run.folder else ():
        if record.memory and record.copy == 1:
            before = largest.get(record.implementation)
            if before is None or record.shape.flops > before.shape.flops:
                largest[record.implementation] = record
    if not largest:
        return Document()
    measured = [kind for kind in MEASURED if any(kind in r.memory for r in largest.values())]
    kinds = (*KINDS, *measured)
    rows = [
        {"implementation": name, "shape": record.shape.label}
        | {kind: record.memory.get(kind) for kind in kinds}
        for name, record in sorted(largest.items())
    ]
    note = (
        "What the implementation itself holds for its largest shape (hidden,batch,timesteps);"
        " -: it does not say."
    )
    heads = [text(head, head) for head in ("implementation", "shape")]
    table = Table("memory", rows, [*heads, *(number(kind, kind, size) for kind in kinds)])
    return Document([run.name, table, note, *(f"{kind}: {MEASURED[kind]}" for kind in measured)])
