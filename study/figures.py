"""The study's figures, by name: `{{figure: ladder}}` in a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib import cm, colors
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from lstm_bench.analysis import summary
from lstm_bench.features.profile import figures as profile_figures
from lstm_bench.frameworks import PAPER
from lstm_bench.model.types import ACCURACY
from lstm_bench.model.units import factor
from lstm_bench.report import figures
from study.runs import BEST, KERNEL, LADDER, MAIN, PLAIN, load
from study.tables import CLASSES, KERNELS, mean

BESIDE = ("pytorch-half", BEST)  # not in the paper, and worth seeing beside its implementations
INKS = dict(zip(CLASSES, ("#0072b2", "#009e73", "#d55e00"), strict=True))


class Picture(NamedTuple):
    about: str  # for those who do not see it
    draw: Callable[[], Figure]


#: The ways that a user is likely to know, for the README.
WAYS = {
    "pytorch-tf32-persistent": "our layer for PyTorch, TF32",
    "pytorch-half-graph": "PyTorch, .half(), CUDA graph",
    "pytorch-persistent": "our layer for PyTorch, fp32",
    "pytorch-tf32-graph": "PyTorch, CUDA graph",
    "pytorch-half": "PyTorch, .half()",
    "jax-scan-tf32": "JAX, lax.scan",
    PLAIN: "PyTorch as it comes",
    "pytorch": "PyTorch, TF32 off",
    "tf-mode0-tf32": "TensorFlow as it comes",
    "keras-torch": "Keras on PyTorch",
    "tf-xla": "TensorFlow, XLA",
    "tf-mode2": "Keras without cuDNN",
}


def ladder() -> Figure:
    """A bar per implementation: its latency over that of plain PyTorch."""
    notes = (
        f"Latency over that of plain PyTorch ({PLAIN}), geometric mean over {{}} shapes. Rows of"
        " deepbench and persistent are called from C++; pytorch-persistent is our drop-in for"
        " nn.LSTM."
    )
    return _over_plain("One layer, {} ways to call it: {} apart", notes)


def ways() -> Figure:
    """The same for a dozen of them, by the names that people give them."""
    notes = "Time of a call, PyTorch as it comes = 1; the mean over {} sizes. Left is faster."
    return _over_plain("One LSTM layer, {} ways to run it: {} apart", notes, WAYS)


@figures.styled()
def _over_plain(title: str, notes: str, labels: Mapping[str, str] | None = None) -> Figure:
    run = load(LADDER)
    kinds = run.cells.drop_duplicates("implementation").set_index("implementation")["precision"]
    times = run.times.dropna(
        axis="columns"
    )  # not torch.compile, which was given up at half of them
    ratios = {name: mean(times[name] / times[PLAIN]) for name in labels or times}
    names = sorted(ratios, key=lambda name: -ratios[name])
    least = min(ratios.values())
    title = title.format(len(names), factor(ratios[names[0]] / least))
    body = 0.19 * len(names) + 0.85
    under = [figures.about(run.run)]
    figure, foot = figures.page(body, title, under, notes.format(len(times)))
    ax = figure.add_subplot()
    ax.set_position(figures.box(figure, 2.0, foot + 0.65, figures.WIDTH - 2.6, body - 0.75))
    places = list(range(len(names)))
    values = np.array([ratios[name] for name in names])
    inks = [INKS[ACCURACY[kinds[name]]] for name in names]
    for place, value, colour in zip(places, values, inks, strict=True):
        ax.plot([1, value], [place, place], color=colour, linewidth=1.2)
        ax.plot(value, place, "o", color=colour, markersize=5)
        ax.annotate(
            factor(value),
            (value, place),
            ((5 if value >= 1 else -5), 0),
            textcoords="offset points",
            ha="left" if value >= 1 else "right",
            va="center",
            fontsize=7,
        )
    ax.set(xscale="log", xlim=(least / 1.6, values.max() * 1.6), ylim=(-0.7, len(names) - 0.3))
    ax.set_yticks(places, [labels[name] if labels else name for name in names], fontsize=7.5)
    ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if least <= tick <= values.max()]
    ax.set_xticks(ticks, [f"{tick:g}x" for tick in ticks], minor=False)
    ax.set_xticks([], minor=True)
    ax.axvline(1, color=figures.GREY, linewidth=0.8)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    entries = [(Patch(color=INKS[kind]), kind) for kind in CLASSES]
    figures.legend(figure, entries, "lower left", foot)
    return figure


@figures.styled()
def kernel() -> Figure:
    """A panel per accuracy and number of timesteps, hidden size by batch size."""
    pairs = [load(KERNEL).against(own, best) for best, own in KERNELS]
    cells = pd.concat([of.shapes.assign(row=of.a) for of in pairs], ignore_index=True)
    cells = summary.relative(cells)
    gain = np.log2(cells["ratio"].to_numpy())
    limit = float(np.abs(gain).max())
    mapped = cm.ScalarMappable(colors.Normalize(-limit, limit), "PuOr")
    cells["colour"] = [colors.to_hex(colour) for colour in mapped.to_rgba(gain)]
    called = cells["verdict"].isin(["faster", "slower"])
    shown = [f"{ratio:.2f}" for ratio in cells["ratio"]]
    cells["text"] = [text if c else f"({text})" for text, c in zip(shown, called, strict=True)]
    panels = [
        (f"{own}: {label}", part[part["row"] == own])
        for _, own in KERNELS
        for label, part in figures.panels_of(cells)
    ]
    means = (factor(of.group().ratio.value) for of in pairs)
    title = "cuDNN's best takes {} (fp32), {} (TF32), {} (fp16) as long as our kernels"
    notes = (
        "In a cell: latency of the best of cuDNN at the same accuracy over that of our kernel."
        " In brackets: within the noise."
    )
    under = [figures.about(load(KERNEL).run)]
    figure, foot = figures.heat_maps(under, title.format(*means), notes, panels, 3, 0.5)
    place = figure.add_axes(figures.box(figure, 1.2, foot + 0.3, figures.WIDTH - 2.4, 0.1))
    bar = figure.colorbar(mapped, cax=place, orientation="horizontal")
    ticks = [tick for tick in (0.25, 0.5, 1, 2, 4, 8) if abs(math.log2(tick)) <= limit]
    bar.set_ticks([math.log2(tick) for tick in ticks], labels=[f"{tick:g}x" for tick in ticks])
    return figure


def activity() -> Figure:
    """How long the GPU works, moves data and is idle in a call."""
    cells = [each for each in load(MAIN).splits if each.name in (*PAPER, *BESIDE)]
    return profile_figures.activity(load(MAIN).run, cells)


FIGURES = {
    "ways": Picture("Time of one LSTM layer, by the way to run it, over PyTorch's", ways),
    "ladder": Picture("Latency of every way to call the layer over plain PyTorch's", ladder),
    "kernel": Picture("Latency of the best of cuDNN over that of our kernels, by shape", kernel),
    "activity": Picture("How long the GPU is active and idle in a call", activity),
}
