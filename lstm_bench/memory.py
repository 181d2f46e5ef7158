"""What each implementation holds in memory, as a section of the page."""

from __future__ import annotations

from lstm_bench.page import Section
from lstm_bench.results import Run
from lstm_bench.run_report import shape_label

KINDS = ("weights", "inputs", "outputs", "workspace")


def sections(run: Run) -> list[Section]:
    """One row per implementation, at the largest shape that it has; nothing if none is known."""
    own = run.cells[(run.cells["copy"] == 1) & run.cells["memory"].map(bool)]
    rows: list[list[str | float | None]] = []
    for name in run.implementations:
        mine = own[own["implementation"] == name]
        if mine.empty:
            continue
        work = mine["hidden"] * (mine["hidden"] + mine["input_size"])
        cell = mine.loc[(work * mine["batch"] * mine["timesteps"]).idxmax()]
        found = [cell["memory"].get(kind) for kind in KINDS]
        sizes = [None if value is None else round(value / 2**20, 3) for value in found]
        rows.append([name, shape_label(cell), *sizes])
    if not rows:
        return []
    note = (
        "MiB that the implementation itself holds for its largest shape (hidden,batch,timesteps);"
        " empty: it does not say."
    )
    columns = ["implementation", "shape", *(f"{kind} (MiB)" for kind in KINDS)]
    return [Section(title="Memory", note=note, columns=columns, rows=rows)]
