"""The study's figures, by name: `{{figure: headroom}}` in a page."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib import cm, colors
from matplotlib.figure import Figure

from lstm_bench.analysis import summary
from lstm_bench.model.registry import PAPER
from lstm_bench.model.units import factor
from lstm_bench.report import figures, profile_figures
from study.runs import BEST, MAIN, at, load
from study.tables import AGAINST

BESIDE = ("pytorch-half", BEST)  # not in the paper, and worth seeing beside its implementations


class Picture(NamedTuple):
    about: str  # for those who do not see it
    draw: Callable[[], Figure]


@figures.styled()
def headroom() -> Figure:
    """A panel per implementation and number of timesteps, hidden size by batch size."""
    run = load(MAIN).run
    pairs = [load(MAIN).against(best, row) for row, best in AGAINST]
    cells = pd.concat([of.shapes.assign(row=of.b) for of in pairs], ignore_index=True)
    cells = summary.relative(cells)
    gain = np.log2(np.maximum(cells["ratio"].to_numpy(), 1.0))
    limit = float(gain.max())
    mapped = cm.ScalarMappable(colors.Normalize(0, limit), "YlOrBr")
    cells["colour"] = [colors.to_hex(colour) for colour in mapped.to_rgba(gain)]
    called = cells["verdict"].isin(["faster", "slower"])
    shown = [f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}" for ratio in cells["ratio"]]
    cells["text"] = [text if c else f"({text})" for text, c in zip(shown, called, strict=True)]
    panels = [
        (f"{row}: {label}", part[part["row"] == row])
        for row, _ in AGAINST
        for label, part in figures.panels_of(cells)
    ]
    ends = (factor(at(pairs[0], batch=batch).group().ratio.value) for batch in (1, 256))
    title = "pytorch takes {} as long as the best of cuDNN at batch 1, {} at batch 256"
    notes = (
        "In a cell: latency over that of the best of cuDNN (fastest algorithm, in a CUDA graph"
        " where that helps) in the same precision. In brackets: within the noise."
    )
    under, title = [figures.about(run)], title.format(*ends)
    figure, foot = figures.heat_maps(under, title, notes, panels, 3, 0.5)
    place = figure.add_axes(figures.box(figure, 1.2, foot + 0.3, figures.WIDTH - 2.4, 0.1))
    bar = figure.colorbar(mapped, cax=place, orientation="horizontal")
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100) if math.log2(tick) <= limit]
    bar.set_ticks([math.log2(tick) for tick in ticks], labels=[f"{tick}x" for tick in ticks])
    return figure


def activity() -> Figure:
    """How long the GPU works, moves data and is idle in a call."""
    cells = [one for one in load(MAIN).splits if one.name in (*PAPER, *BESIDE)]
    return profile_figures.activity(load(MAIN).run, cells)


def kernels() -> Figure:
    """What the GPU's time goes into."""
    cells = [one for one in load(MAIN).splits if one.name in PAPER]
    return profile_figures.by_family(load(MAIN).run, cells)


FIGURES = {
    "headroom": Picture("Latency over the best of cuDNN, by shape", headroom),
    "activity": Picture("How long the GPU is active and idle in a call", activity),
    "kernels": Picture("What the GPU runs in one call", kernels),
}
