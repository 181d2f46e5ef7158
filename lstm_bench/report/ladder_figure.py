"""Latency against memory, one point per implementation: what each level of abstraction costs."""

from __future__ import annotations

import math

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
    styled,
)
from lstm_bench.report.run_report import DEFAULT, DEFAULT_NOTE

MARKERS = {"fp32": "o", "tf32": "s", "half": "D", "int8": "^"}
SMALLEST = 2**16  # bytes: what is below cannot be told from nothing
NEAR, GAP = 0.07, 0.02  # inches: around a point, and between labels
WHERE = {"device_peak": "on the GPU", "host_peak": "on the host"}


@styled()
def drawn(run: Run) -> Figure | None:
    """A point for each row; its name stands to the right, at its latency if there is room.

    None for a run without memory peaks of two implementations.
    """
    try:
        found = ladder.ladder_of(run, run.cells)
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
    body = max(3.7, 0.8 * LINE * len(rows))
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
    inches = np.array([WIDTH - 0.9, body - 0.55])
    ax.set_position(box(figure, 0.8, foot + room + 0.45, *inches))
    labels = [elided(row["implementation"], 28) + DEFAULT * row["default"] for row in rows]
    texts = [ax.text(0, 0, plain(label), fontsize=7, ha="center", va="center") for label in labels]
    extents = [text.get_window_extent() for text in texts]
    halves = np.array([(one.width, one.height) for one in extents]) / figure.dpi / 2
    points = ax.transLimits.transform(np.log10(np.column_stack([x, y]))) * inches
    places = _places(points, halves, inches)
    for row, text, point, place, half in zip(rows, texts, points, places, halves, strict=True):
        colour, marker = family_colour(row["implementation"]), MARKERS.get(row["accuracy"], "X")
        text.set(position=place / inches, transform=ax.transAxes, color=colour)
        line = np.array([point, np.clip(point, place - half, place + half)]) / inches
        for ends, how in ((line, {"lw": 0.5, "alpha": 0.6}), (line[:1], {"marker": marker})):
            ax.add_artist(Line2D(*ends.T, color=colour, mec="w", mew=0.5, ms=7, **how)).set(
                transform=ax.transAxes, clip_on=False
            )
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


def _places(points: Numbers, halves: Numbers, inside: Numbers) -> Numbers:
    """Where the middle of each label goes: as near to its point as is free of all else, in inches.

    `halves` are half the labels' sizes; `inside` is the size of what they must not leave.
    """
    taken = [(point - NEAR, point + NEAR) for point in points]
    angles = np.pi * np.array([0, 1, 0.25, -0.25, 0.75, -0.75, 0.5, -0.5])
    turns = np.column_stack([np.cos(angles), np.sin(angles)])
    far = np.repeat(np.arange(NEAR, inside.max(), 0.08), len(turns))[:, None]
    places = np.empty_like(points)
    for n, (point, half) in enumerate(zip(points, halves, strict=True)):
        tried = point + np.tile(turns, (len(far) // len(turns), 1)) * (far + half)
        low, high = tried - half, tried + half
        free = ((low >= 0) & (high <= inside)).all(axis=1)
        for start, end in taken:
            free &= ((high <= start) | (low >= end)).any(axis=1)
        best = int(free.argmax())  # the first; there is always one, as there is room for all
        places[n] = tried[best]
        taken.append((low[best] - GAP, high[best] + GAP))
    return places
