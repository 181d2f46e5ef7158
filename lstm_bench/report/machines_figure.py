"""Machines against each other as a figure: who wins over hidden and batch size, and by how much."""

from __future__ import annotations

from matplotlib.figure import Figure

from lstm_bench.analysis.machines import Machines, table
from lstm_bench.analysis.summary import relative
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.units import factor
from lstm_bench.report.figures import PALE, about, elided, fastest_maps, styled
from lstm_bench.report.machines_report import letters

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5e3c99")


@styled()
def drawn(sides: Machines) -> Figure:
    """A panel for each number of timesteps, a colour for each machine."""
    cells, marks = table(sides), letters(sides)
    colour = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(sides.names)}
    first = cells[cells["verdict"] == "fastest"].drop_duplicates(SHAPE)
    behind = cells[cells["verdict"] != "fastest"].groupby(SHAPE)["ratio"].min()
    first = first.join(behind.rename("behind"), on=SHAPE)
    first = relative(first.reset_index(drop=True))
    places = list(zip(first["run"], first["wins"], first["behind"], strict=True))
    first["colour"] = [colour[name] + ("" if wins else PALE) for name, wins, _ in places]
    first["text"] = [f"{marks[name]}\n{factor(by)}" for name, _, by in places]
    won = {name: int(cells.loc[cells["run"] == name, "wins"].sum()) for name in sides.names}
    best = max(sides.names, key=lambda name: won[name])
    title = f"Fastest machine: {elided(best, 40)} at {won[best]} of {len(first)} shapes"
    under = [f"{marks[name]}: {about(run)}" for name, run in sides.runs.items()]
    entries = [
        (colour[name], f"{marks[name]} {elided(name, 30)}: fastest at {won[name]} of {len(first)}")
        for name in sides.names
    ]
    return fastest_maps(under, title, first, entries)
