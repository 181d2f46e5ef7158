"""What each implementation holds in memory, as a section of the page."""

from __future__ import annotations

from collections.abc import Iterable

from lstm_bench.model.types import Record
from lstm_bench.report.page import Section

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


def sections(records: Iterable[Record]) -> list[Section]:
    """One row per implementation, at the largest shape that it has; nothing if none is known."""
    largest: dict[str, Record] = {}
    for record in records:
        if record.memory and record.copy == 1:
            before = largest.get(record.implementation)
            if before is None or record.shape.flops > before.shape.flops:
                largest[record.implementation] = record
    measured = [kind for kind in MEASURED if any(kind in r.memory for r in largest.values())]
    kinds = (*KINDS, *measured)
    rows: list[list[str | float | None]] = []
    for name, record in sorted(largest.items()):
        found = (record.memory.get(kind) for kind in kinds)
        sizes = (None if size is None else round(size / 2**20, 3) for size in found)
        rows.append([name, record.shape.label, *sizes])
    if not rows:
        return []
    note = (
        "What the implementation itself holds for its largest shape (hidden,batch,timesteps);"
        " empty: it does not say."
    )
    for kind in measured:
        note += f" {kind}: {MEASURED[kind]}."
    columns = ["implementation", "shape", *(f"{kind} (MiB)" for kind in kinds)]
    return [Section(title="Memory", note=note, columns=columns, rows=rows)]
