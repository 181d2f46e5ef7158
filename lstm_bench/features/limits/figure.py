"""How many times the limit each row takes: a dot per shape, in the colour of what binds there."""

from __future__ import annotations

from collections.abc import Collection

from matplotlib.figure import Figure

from lstm_bench.analysis.results import Run
from lstm_bench.features.limits import distance as limits
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import Shape
from lstm_bench.model.units import counted, factor
from lstm_bench.report.figures import (
    LINE,
    WIDTH,
    about,
    box,
    elided,
    legend,
    log_axis,
    page,
    styled,
)

#: Colours of Okabe and Ito, which everybody can tell apart.
COLOURS = {"launch": "#cc79a7", "barrier": "#0072b2"}
COLOURS |= {"bandwidth": "#009e73", "arithmetic": "#d55e00"}
NAMES, ROW = 2.1, 1.35 * LINE  # inches: the width of the names, the height of a row
NOTES = (
    "A dot is a shape, in the colour of what binds there: the part of the machine that takes most"
    " of the limit. The bar is the geometric mean. At 1x nothing could be faster on this machine."
)


@styled()
def drawn(run: Run, shapes: Collection[Shape] | None = None) -> dict[str, Figure]:
    """The rows nearest to their limits first; nothing if the run does not know limits."""
    far = limits.distances(run.cells, run.limits)
    if far.empty:
        return {}
    means = sorted(limits.means(far).items(), key=lambda pair: pair[1])
    over = counted(len(far[SHAPE].drop_duplicates()), "shape")
    body = ROW * len(means)
    figure, foot = page(body + 0.9, f"Distance to the limit over {over}", [about(run)], NOTES)
    ax = figure.add_subplot()
    ax.set_position(box(figure, NAMES, foot + 0.65, WIDTH - NAMES - 0.15, body))
    for row, (name, mean) in enumerate(means):
        own = far[far["implementation"] == name]
        colours = own["binds"].map(COLOURS)
        ax.scatter(own["over"], [row] * len(own), s=16, c=colours, alpha=0.55, linewidths=0)
        ax.plot([mean, mean], [row - 0.35, row + 0.35], color="black", linewidth=1.5)
    ax.axvline(1, color="black", linewidth=0.8)
    log_axis(ax.xaxis, [1.0, *far["over"]], factor)
    ax.set(yticks=range(len(means)), ylim=(len(means) - 0.4, -0.6), xlabel="latency over the limit")
    ax.set_yticklabels([elided(name, 28) for name, _ in means])
    ax.grid(axis="x", color="#e6e6e6", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    there = [part for part in limits.PARTS if (far["binds"] == part).any()]
    legend(figure, [(COLOURS[part], part) for part in there], "lower left", foot)
    return {"limits": figure}
