"""What each implementation holds in memory, as a section of the page."""

from __future__ import annotations

from collections.abc import Iterable

from lstm_bench.model import Record
from lstm_bench.page import Section

KINDS = ("weights", "inputs", "outputs", "workspace")


def sections(records: Iterable[Record]) -> list[Section]:
    """One row per implementation, at the largest shape that it has; nothing if none is known."""
    largest: dict[str, Record] = {}
    for record in records:
        if record.memory and record.copy == 1:
            before = largest.get(record.implementation)
            if before is None or record.shape.flops > before.shape.flops:
                largest[record.implementation] = record
    rows: list[list[str | float | None]] = []
    for name, record in sorted(largest.items()):
        found = (record.memory.get(kind) for kind in KINDS)
        sizes = (None if size is None else round(size / 2**20, 3) for size in found)
        rows.append([name, record.shape.label, *sizes])
    if not rows:
        return []
    note = (
        "MiB that the implementation itself holds for its largest shape (hidden,batch,timesteps);"
        " empty: it does not say."
    )
    columns = ["implementation", "shape", *(f"{kind} (MiB)" for kind in KINDS)]
    return [Section(title="Memory", note=note, columns=columns, rows=rows)]
