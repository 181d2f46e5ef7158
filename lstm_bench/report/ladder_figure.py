"""Latency against memory, one point per implementation: what each level of abstraction costs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from matplotlib import axes, ticker
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lstm_bench.analysis.noise import Numbers
from lstm_bench.analysis.results import Run
from lstm_bench.model.types import LstmBenchError
from lstm_bench.model.units import counted, over, seconds, size
from lstm_bench.report import ladder
from lstm_bench.report.colours import family_colour, family_of
from lstm_bench.report.figures import (
    GREY,
    LINE,
    WIDTH,
    about,
    box,
    elided,
    legend,
    page,
    plain,
    saved,
    styled,
)
from lstm_bench.report.run_report import DEFAULT, DEFAULT_NOTE

MARKERS = {"fp32": "o", "tf32": "s", "half": "D", "int8": "^"}
SMALLEST = 2**16  # bytes: what is below cannot be told from nothing
WHERE = {"device_peak": "on the GPU", "host_peak": "on the host"}


def write(run: Run, folder: Path) -> list[Path]:
    """Write the figure, if the run has memory peaks of two implementations or more."""
    figure = drawn(run)
    return saved({"ladder": figure}, folder) if figure else []


@styled()
def drawn(run: Run) -> Figure | None:
    """A point for each row; its name stands to the right, at its latency if there is room."""
    try:
        found = ladder.of(run, run.cells)
    except LstmBenchError:
        return None
    key = next((k for k in WHERE if any(row[k] > 0 for row in found.rows)), "host_peak")
    rows = [row for row in found.rows if not math.isnan(row[key])]
    if len(rows) < 2:
        return None
    names = [row["implementation"] for row in rows]
    notes = f"Memory: the most that build and first call added {WHERE[key]}."
    if without := [row["implementation"] for row in found.rows if row not in rows]:
        notes += f" Not known of {', '.join(without)}."
    if any(row["default"] for row in rows):
        notes += f" {DEFAULT_NOTE}."
    families = {family_of(name): family_colour(name) for name in names}
    classes = [c for c in MARKERS if any(row["accuracy"] == c for row in rows)]
    classes = classes if len(classes) > 1 else []
    room = 0.1 + 1.2 * LINE * math.ceil((len(families) + len(classes)) / 2)
    body = max(3.7, 1.15 * LINE * len(rows) + 0.6)
    under = [about(run), f"Latency: median over {over(found.shapes)}; memory: the most at any."]
    title = f"Latency and memory: {counted(len(rows), 'implementation')}"
    figure, foot = page(body + room, title, under, notes)
    x = np.array([max(row[key], SMALLEST) for row in rows])
    y = np.array([row["latency_s"] for row in rows])
    ax = figure.add_subplot()
    _log(ax, x, y)
    ax.set(xlabel=f"peak memory {WHERE[key]}", ylabel="latency of one call")
    ax.grid(color="#e6e6e6", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    labels = [elided(row["implementation"], 28) + DEFAULT * row["default"] for row in rows]
    texts = [ax.text(0, 0, plain(label), fontsize=7.5, va="center") for label in labels]
    wide = max(text.get_window_extent().width for text in texts) / figure.dpi
    width, height = WIDTH - 1.2 - wide, body - 0.55
    ax.set_position(box(figure, 0.8, foot + room + 0.45, width, height))
    low, high = np.log(ax.get_ylim())
    places = _spread((np.log(y) - low) / (high - low), 1.15 * LINE / height)
    for row, text, place, across, up in zip(rows, texts, places, x, y, strict=True):
        colour = family_colour(row["implementation"])
        point = ax.transLimits.transform((math.log10(across), math.log10(up)))
        line = Line2D([point[0], 1.0, 1.03], [point[1], place, place], color=colour, alpha=0.35)
        line.set(linewidth=0.7, transform=ax.transAxes, clip_on=False, zorder=1)
        ax.add_artist(line)
        ax.plot(across, up, MARKERS.get(row["accuracy"], "X"), color=colour, mec="w", mew=0.5, ms=7)
        text.set(position=(1.04, place), transform=ax.transAxes, color=colour)
    entries = [(_sample("o", colour), elided(family, 28)) for family, colour in families.items()]
    entries += [(_sample(MARKERS[one], GREY), one) for one in classes]
    legend(figure, entries, "lower left", foot)
    return figure


def _sample(marker: str, colour: str) -> Line2D:
    return Line2D([], [], linestyle="none", marker=marker, color=colour, mec="w", mew=0.5, ms=7)


def _log(ax: axes.Axes, x: Numbers, y: Numbers) -> None:
    """Log axes with as many ticks as have room, in the units that people read."""
    ends = [(values.min() / 1.4, values.max() * 1.4) for values in (x, y)]
    ax.set(xscale="log", yscale="log", xlim=ends[0], ylim=ends[1])
    steps = (1.0, 2.0, 5.0) if ends[1][1] < 1e3 * ends[1][0] else (1.0,)
    ax.xaxis.set_major_locator(ticker.LogLocator(2, numticks=8))
    ax.yaxis.set_major_locator(ticker.LogLocator(10, steps, numticks=12))
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: size(value)))
    ax.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: seconds(value)))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(ticker.NullLocator())


def _spread(wanted: Numbers, step: float) -> Numbers:
    """Places from 0 to 1, at least a step apart, near the wanted ones, which are sorted.

    Those that are pushed up by the ones below, those that are pushed down by the ones above, and
    the middle of the two, kept inside.
    """
    steps = step * np.arange(len(wanted))
    up = np.maximum.accumulate(wanted - steps) + steps
    down = np.minimum.accumulate((wanted - steps)[::-1])[::-1] + steps
    return np.clip((up + down) / 2, steps, 1 - steps[::-1])
