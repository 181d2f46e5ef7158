"""A run as figures: time by each axis, who is fastest where, and what AMP gains.

A point of a line figure is the median over shapes, and its bar the 95% interval of that by order
statistics. Of fewer than six shapes not even the whole range holds their median with 95%; so where
a point of a figure rests on fewer, all its bars speak of just these shapes: they are the medians of
the shapes' own intervals, over lots of rounds.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import axes, cm, colors, font_manager, patches, style, ticker
from matplotlib.figure import Figure

from lstm_bench import features
from lstm_bench.analysis import noise, summary
from lstm_bench.analysis.comparison import compare
from lstm_bench.analysis.noise import METRICS, Numbers
from lstm_bench.analysis.results import Run
from lstm_bench.frameworks import FRAMEWORKS
from lstm_bench.model.framework import Style
from lstm_bench.model.median import median_interval
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import Shape
from lstm_bench.model.units import counted, short, times
from lstm_bench.report import fastest, run_report
from lstm_bench.report.colours import ink, style_of

PYTORCH = ("deepbench", "pytorch", "pytorch-amp")  # the rows of the paper's figures 2 and 4
AXES = {
    "hidden": "hidden size (units)",
    "batch": "batch size (sequences)",
    "timesteps": "timesteps (steps)",
}
HEADS = ["implementation", "at", "shapes", "latency_s", "low_s", "high_s"]
FEWEST_SHAPES, MOST_PANELS = 6, 24
WIDTH, LINE = 8.0, 0.16  # inches, as all lengths here
GREY, EMPTY, PALE = "#595959", "#f2f2f2", "50"  # the last is an opacity, to add to a colour
STYLE = {
    "font.family": "DejaVu Sans",  # comes with Matplotlib: the same everywhere
    "font.size": 8.5,
    "text.parse_math": False,  # names are names, whatever they are made of
    "svg.fonttype": "path",  # needs no font where it is looked at
    "svg.hashsalt": "lstm-bench",
}


@contextmanager
def styled() -> Iterator[None]:
    with style.context(["default", STYLE]):  # whatever a matplotlibrc says
        yield


def write(run: Run, folder: Path, shapes: Collection[Shape] | None = None) -> list[Path]:
    """Write every figure that the run has data for, as SVG and as PNG.

    Features add theirs by the door `figure`, a function of a run, and of the shapes that are
    chosen, to figures by the stems of their files.
    """
    from lstm_bench.report import ladder_figure

    drawings = drawn(run)
    if ladder := ladder_figure.drawn(run):
        drawings["ladder"] = ladder
    for draw in features.behind("figure"):
        drawings |= draw(run, shapes)
    return saved(drawings, folder)


@styled()
def saved(drawings: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write figures by the stems of their files."""
    paths = []
    for stem, figure in drawings.items():
        folder.mkdir(parents=True, exist_ok=True)
        for ending, metadata in (("svg", {"Date": None}), ("png", {})):
            paths.append(folder / f"{stem}.{ending}")
            figure.savefig(paths[-1], dpi=150, metadata=metadata)
    return paths


def drawn(run: Run) -> dict[str, Figure]:
    """Every figure that the run has data for, by the stem of its file."""
    drawings = {f"time-by-{axis}-all": time_by(run, axis) for axis in AXES}
    if {"pytorch", "pytorch-amp"} & set(summary.times(run.cells).names):
        for axis in ("batch", "timesteps"):
            drawings[f"time-by-{axis}-pytorch"] = time_by(run, axis, PYTORCH)
    classes = summary.classes(summary.times(run.cells))
    drawings |= {f"winners-{accuracy}": winners(run, accuracy) for accuracy in classes}
    drawings["amp-gain"] = amp_gain(run)
    return {stem: figure for stem, figure in drawings.items() if figure}


def points(run: Run, axis: str, only: Sequence[str] | None = None) -> pd.DataFrame:
    """The median of every row at every value of an axis.

    All are over the same other sizes, if any of these has all rows and values: a line must show
    the axis and nothing else.
    """
    known = summary.times(run.cells)
    names = [n for n in run.implementations if n in known.names and (only is None or n in only)]
    others = [other for other in SHAPE if other != axis]
    rest = summary.relative(known.shapes).groupby(others).ngroup().to_numpy()
    at, chosen = known.shapes[axis].to_numpy(), {}
    for name in names:
        there = ~np.isnan(known.seconds[:, known.names.index(name)])
        for value in np.unique(at[there]).tolist():
            chosen[name, value] = np.flatnonzero(there & (at == value))
    sizes = [set(rest[rows]) for rows in chosen.values()]
    common = set.intersection(*sizes) if sizes else set()
    if common:
        chosen = {key: rows[np.isin(rest[rows], list(common))] for key, rows in chosen.items()}
    over_shapes = all(len(rows) >= FEWEST_SHAPES for rows in chosen.values())
    passes = known.cells.groupby([known.shape_of, "implementation"])[METRICS["latency"][1]]
    rounds = {key: [time for times in lists for time in times] for key, lists in passes}
    table = []
    for (name, value), rows in chosen.items():
        own = known.seconds[rows, known.names.index(name)]
        ends = interval(own, [rounds[row, name] for row in rows], over_shapes)
        table.append((name, value, len(rows), float(np.median(own)), *ends))
    result = pd.DataFrame(table, columns=HEADS)
    alike = "the same for all" if common else "each point's own, as none is common: do not compare"
    result.attrs = {"over_shapes": over_shapes, "alike": alike, "along": bool(common)}
    return result


def interval(
    seconds: Numbers, rounds: Sequence[Sequence[float]], over_shapes: bool
) -> tuple[float, float]:
    """The 95% interval of the median of `seconds`, one per shape, each with its rounds."""
    if over_shapes:
        return median_interval(list(seconds))
    ends = []
    for time, own in zip(seconds, rounds, strict=True):
        lots = noise.in_lots(np.array([[t for t in own if t > 0]]))[0]
        own = lots[np.isfinite(lots)]
        # around the cell's figure
        ends.append(median_interval(own * (time / np.median(own))) if len(own) else (time, time))
    low, high = np.median(ends, axis=0)
    return float(low), float(high)


@styled()
def time_by(run: Run, axis: str, only: Sequence[str] | None = None) -> Figure | None:
    """Execution time against an axis of the grid, one line per implementation.

    Points alone where the shapes of the ticks differ in more than the axis.
    """
    table = points(run, axis, only)
    if table.empty:
        return None
    last = table.groupby("implementation", sort=False)["latency_s"].last()
    order = list(last.sort_values(ascending=False, kind="stable").index)  # as the lines end
    what = f"{len(order)} implementations" if len(order) > 1 else elided(order[0], 40)
    less = run.cells[run.cells["implementation"].isin(order) & (run.cells["computes"] != "lstm")]
    over = "shapes" if table.attrs["over_shapes"] else "the rounds of these shapes"
    notes = f"Bars: 95% interval of the median, over {over}; set side by side."
    if len(less):
        notes += f" * computes less ({', '.join(sorted(set(less['computes'])))})."
    title = f"Execution time by {AXES[axis].split(' (')[0]}: {what}"
    count = " to ".join(map(str, sorted({table["shapes"].min(), table["shapes"].max()})))
    under = [about(run), f"Shapes behind each median: {count}, {table.attrs['alike']}."]
    ax, place = line_page(len(order), title, under, notes)
    shifts = _scale_x(ax, sorted(set(table["at"])), len(order))
    lines = {}
    for name, shift in zip(last.index, shifts, strict=True):
        mine, how = table[table["implementation"] == name], style_of(name)
        x, alpha = mine["at"].to_numpy() * shift, 0.6 if len(order) < 6 else 0.3
        ax.vlines(x, 1e3 * mine["low_s"], 1e3 * mine["high_s"], colors=how.colour, alpha=alpha)
        (lines[name],) = ax.plot(x, 1e3 * mine["latency_s"], label=name, **marks(how))
        joined = table.attrs["along"]  # else a line would go from one kind of shape to another
        lines[name].set_linestyle(((0, how.dash) if how.dash else "-") if joined else "none")
    low, high = 1e3 * table["low_s"].min(), 1e3 * table["high_s"].max()
    if high < 4 * low:  # too little to see on a log axis
        ax.set_ylim(0, 1.1 * high)
    else:
        log_axis(ax.yaxis, (low, high), "{:g}".format)
    ax.set(xlabel=AXES[axis], ylabel="latency of one call (ms)")
    stars = dict.fromkeys(less["implementation"], "*")
    entries = [(lines[name], elided(name, 28) + stars.get(name, "")) for name in order]
    return page_end(ax, entries, place)


def line_page(
    rows: int, title: str, under: Sequence[str], notes: str
) -> tuple[axes.Axes, tuple[float, float]]:
    """Axes on a page of their own, with room for a legend of so many rows, and where they stand."""
    body = max(3.7, 1.25 * LINE * rows)
    figure, foot = page(body, title, under, notes)
    ax = figure.add_subplot()
    ax.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    return ax, (foot, body)


def page_end(ax: axes.Axes, entries: list[tuple[Any, str]], place: tuple[float, float]) -> Figure:
    """The page, with a legend to the right of its axes."""
    figure, (foot, body) = ax.get_figure(root=True), place
    assert figure
    taken = legend(figure, entries, "upper right", foot + body)
    ax.set_position(box(figure, 0.75, foot + 0.45, WIDTH - 0.85 - taken, body - 0.5))
    return figure


def marks(how: Style) -> dict[str, Any]:
    """The colour and marker of an implementation, for Matplotlib."""
    size = 8 if how.marker == "*" else 5.5
    return {"color": how.colour, "marker": how.marker, "ms": size, "mec": "w", "mew": 0.5}


def log_axis(
    axis: Any, values: Sequence[float], show: Callable[[float], str], base: float = 10
) -> None:
    """A log axis with as many ticks as have room, in the units that people read."""
    low, high, name = min(values), max(values), axis.axis_name
    axis.axes.set(**{f"{name}scale": "log", f"{name}lim": (low / 1.2, high * 1.2)})
    steps = (1.0, 2.0, 5.0) if base == 10 and high < 1e3 * low else (1.0,)
    most = 12 if base == 10 else 6
    axis.set_major_locator(ticker.LogLocator(base, steps, numticks=most))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: show(value)))


def _scale_x(ax: axes.Axes, values: Sequence[int], rows: int) -> list[float]:
    """A log axis with ticks at the grid's own values; returns where each row stands beside them."""
    span = math.log(values[-1] / values[0]) or 1.0
    room = min(0.4 * np.diff(np.log(values)).min(initial=span), 0.012 * span * (rows - 1))
    edge = math.exp(0.03 * span + room / 2)
    ax.set(xscale="log", xlim=(values[0] / edge, values[-1] * edge))
    kept = [values[-1]]
    for value in reversed(values[:-1]):  # a label must not run into the next
        if math.log(kept[-1] / value) / span > 0.02 + 0.016 * len(str(kept[-1])):
            kept.append(value)
    ax.set_xticks(kept, [str(value) for value in kept])
    ax.xaxis.set_minor_locator(ticker.NullLocator())
    return [math.exp(shift) for shift in np.linspace(-room / 2, room / 2, rows)]


@styled()
def winners(run: Run, accuracy: str = "fp32") -> Figure | None:
    """The fastest that can be deployed over hidden and batch size, a panel for each timesteps."""
    known = summary.times(run.cells)
    won = fastest.contests(run, run.cells)
    won = summary.relative(won[won["accuracy"] == accuracy].reset_index(drop=True))
    if won["next"].isna().all():
        return None  # nobody to beat
    counts = summary.wins(won)
    names = sorted(set(won["fastest"]), key=lambda n: (-counts[n], known.names.index(n)))
    cells = list(zip(won["fastest"], won["ratio"], won["verdict"], strict=True))
    won["colour"] = [style_of(n).colour + ("" if v == "slower" else PALE) for n, _, v in cells]
    won["text"] = [f"{_short(n)}\n{times(r) if v == 'slower' else v}" for n, r, v in cells]
    beside = (won["fastest_s"] / won["reference_s"]).tolist()
    won["text"] += [f"\nC++ {r:.2g}x" if math.isfinite(r) else "" for r in beside]
    notes = ""
    if won["reference"].notna().any():
        notes = " C++: how many times faster the C++ reference is, which cannot be deployed."
    best = f"{elided(names[0], 30)} at {counts[names[0]]} of {len(won)}"
    what = "Fastest to deploy" if won["reference"].notna().any() else "Fastest"
    best = best if counts else "nothing, all within noise"
    title = f"{what} in {summary.accuracy_label(accuracy)}: {best}"
    entries: list[tuple[Any, str]] = [
        (style_of(name).colour, f"{elided(name, 30)}: fastest at {counts[name]} of {len(won)}")
        for name in names
    ]
    return fastest_maps([about(run)], title, won, entries, notes)


def fastest_maps(
    under: Sequence[str],
    title: str,
    cells: pd.DataFrame,
    entries: list[tuple[Any, str]],
    more: str = "",
) -> Figure:
    """A panel for each number of timesteps, some of very many; below, whose colour is which."""
    panels = panels_of(cells)
    shown = panels[:: math.ceil(len(panels) / MOST_PANELS)]
    notes = f"In a cell: the fastest, and how much slower the next is. Pale: within noise.{more}"
    if len(shown) < len(panels):
        notes += f" {len(shown)} of {len(panels)} panels are shown."
    room = 0.1 + 0.6 * LINE * (len(entries) + 1)
    figure, foot = heat_maps(under, title, notes, shown, 3, room)
    legend(figure, entries, "lower left", foot)
    return figure


@styled()
def amp_gain(run: Run) -> Figure | None:
    """How many times faster each row is with AMP, over the grid."""
    names = set(summary.times(run.cells).names)
    pairs = [n for n in run.implementations if {n, n + "-amp"} <= names]
    floors = [run.noise]
    compared = [
        compare(run.cells, n, n + "-amp", across=None, floors=floors).shapes.assign(pair=n)
        for n in pairs
    ]
    both = summary.relative(pd.concat(compared)) if compared else pd.DataFrame()
    if both.empty:
        return None
    words = [f"{word} at {(both['verdict'] == word).sum()}" for word in ("faster", "slower")]
    title = f"AMP is {' and '.join(words)} of {counted(len(both), 'cell')}"
    notes = "In a cell: how many times faster AMP is, the geometric mean over timesteps and input"
    notes += " sizes; below 1 it is slower. In brackets: no more than half of them are beyond the"
    notes += " noise, to that side."
    sides = both.verdict.map({"faster": 1, "slower": -1}).fillna(0)
    both = both.assign(gain=-np.log2(both.ratio), called=sides)
    cells = both.groupby(["pair", "hidden", "batch"], sort=False)
    cells = cells.agg({"gain": "mean", "called": "mean"}).reset_index()
    limit = max(float(cells["gain"].abs().max()), math.log2(1.6))
    mapped = cm.ScalarMappable(colors.Normalize(-limit, limit), "RdBu")
    cells["colour"] = [colors.to_hex(colour) for colour in mapped.to_rgba(cells["gain"].to_numpy())]
    sure = np.sign(cells["gain"]) * cells["called"] > 0.5
    texts = zip(cells["gain"], sure, strict=True)
    cells["text"] = [short(2**gain) if called else f"({short(2**gain)})" for gain, called in texts]
    panels = [(elided(pair, 30), part) for pair, part in cells.groupby("pair", sort=False)]
    figure, foot = heat_maps([about(run)], title, notes, panels, 4, 0.5)
    place = figure.add_axes(box(figure, 1.2, foot + 0.3, WIDTH - 2.4, 0.1))
    bar = figure.colorbar(mapped, cax=place, orientation="horizontal")
    ticks = [t for t in (1.2, 1.5, 2, 5, 20, 100, 1000) if math.log2(t) <= limit][-2:]
    labels = [*(f"{t:g}x slower" for t in ticks), "equal", *(f"{t:g}x faster" for t in ticks)]
    bar.set_ticks([*(-np.log2(ticks)), 0.0, *np.log2(ticks)], labels=labels)
    return figure


def panels_of(cells: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """One part of the table per number of timesteps and pass, and input size where it differs."""
    sizes = ["timesteps", "input_size", "training"]
    parts = []
    for (steps, width, trained), part in cells.groupby(sizes, sort=True):
        own = f", input {width}" if width else ""
        parts.append((f"timesteps {steps}{own}{', training' if trained else ''}", part))
    return parts


def _most_per_row(cells: pd.DataFrame) -> int:
    """How many panels fit side by side with readable cells."""
    return int(np.clip((WIDTH - 0.5) / (0.46 * cells["hidden"].nunique()), 1, 4))


def heat_maps(
    under: Sequence[str],
    title: str,
    notes: str,
    panels: list[tuple[str, pd.DataFrame]],
    most: int,
    room: float,
) -> tuple[Figure, float]:
    """Panels of coloured cells, hidden size to the right, batch size upwards; `room` is below.

    `under` stands under the title.
    """
    cells = pd.concat([part for _, part in panels])
    hidden, batch = sorted(set(cells["hidden"])), sorted(set(cells["batch"]))
    per_row = min(most, len(panels), _most_per_row(cells))
    rows = math.ceil(len(panels) / per_row)
    wide, left = (0.1 + 0.075 * len(str(sizes[-1])) for sizes in (hidden, batch))  # tick labels
    stride = (WIDTH - 0.3) / per_row
    width, height = min((stride - left - 0.1) / len(hidden), 1.1), min(0.5, 6.0 / len(batch))
    pitch = max(height * len(batch) + 0.5, 1.7 / rows)
    figure, foot = page(rows * pitch + 0.25 + room, title, under, notes)
    for number, (text, part) in enumerate(panels):
        row, column = divmod(number, per_row)
        x = 0.3 + left + column * stride
        y = foot + room + 0.2 + (rows - row - 0.5) * pitch - height * len(batch) / 2
        ax = figure.add_axes(box(figure, x, y, width * len(hidden), height * len(batch)))
        ax.set(xlim=(0, len(hidden)), ylim=(0, len(batch)), facecolor=EMPTY)
        ax.set_title(elided(plain(text), int(stride / 0.08)), loc="left", fontsize=8.5)
        ax.spines[["top", "right", "left", "bottom"]].set_visible(False)
        ax.tick_params(length=0)
        sides = ((ax.xaxis, hidden, wide / width), (ax.yaxis, batch, 0.16 / height))
        for axis, values, step in sides:
            kept = range(0, len(values), math.ceil(step))
            axis.set_ticks([n + 0.5 for n in kept], [str(values[n]) for n in kept])
        for cell in part.to_dict("records"):
            x, y, colour = hidden.index(cell["hidden"]), batch.index(cell["batch"]), cell["colour"]
            ax.add_patch(patches.Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="white"))
            label = ax.text(x + 0.5, y + 0.5, cell["text"] if min(width, height) > 0.35 else "")
            label.set(ha="center", va="center", fontsize=7, color=ink(colour))
        ax.set_xlabel(AXES["hidden"] if number + per_row >= len(panels) else "")
    middle = (foot + room + 0.2 + rows * pitch / 2) / figure.get_figheight()
    figure.text(0.2 / WIDTH, middle, AXES["batch"], rotation=90, ha="center", va="center")
    return figure, foot


def box(figure: Figure, *sides: float) -> tuple[float, float, float, float]:
    """Left, bottom, width and height, from inches; Matplotlib's own layouts are not repeatable."""
    (left, bottom, width, height), tall = sides, figure.get_figheight()
    return left / WIDTH, bottom / tall, width / WIDTH, height / tall


def page(body: float, title: str, under: Sequence[str], notes: str) -> tuple[Figure, float]:
    """A figure with its texts around an empty body, and the height where that begins."""
    under = [line for text in under for line in textwrap.wrap(plain(text), 138)]
    feet = textwrap.wrap(plain(notes), 138)
    head, foot = 0.36 + LINE * len(under), 0.1 + LINE * len(feet)
    tall = head + body + foot
    figure = Figure(figsize=(WIDTH, tall))
    small: Any = {"fontsize": 7.5, "color": GREY, "va": "top", "linespacing": 1.3}
    figure.text(0.01, 1 - 0.08 / tall, plain(title), fontsize=11, weight="bold", va="top")
    figure.text(0.01, 1 - 0.31 / tall, "\n".join(under), **small)
    figure.text(0.01, (foot - 0.03) / tall, "\n".join(feet), **small)
    return figure, foot


def about(run: Run) -> str:
    """The machine, the run and its noise, in a line."""
    line = run_report.machine_line(run.manifest["machine"], run.manifest["plan"]["settings"])
    shapes = f"{run.shapes} of {counted(len(run.plan.shapes), 'shape')}"
    groups = [run.noise.classes, *run.noise.own.values()]
    if run.noise.own and not run.noise.others:
        groups = groups[1:]
    noisy = f"noise floor {run_report.floor_span(*groups) or 'not measured'}"
    amp = run.plan.settings.amp
    return f"{line}, AMP in {amp}; run {elided(run.name, 40)}, {shapes}; {noisy}."


def legend(figure: Figure, entries: list[tuple[Any, str]], corner: str, y: float) -> float:
    """A legend at the right or left edge of the page, labels as they are; returns its width.

    An entry is what was drawn, or its colour, and a label.
    """
    right, handles = "right" in corner, [handle for handle, _ in entries]
    handles = [patches.Patch(facecolor=h) if isinstance(h, str) else h for h in handles]
    blank = ["x"] * len(entries)  # a label with a leading underscore would be left out
    how: Any = {"ncols": 2 - right, "handlelength": 3, "fontsize": 7.5, "frameon": False}
    placed = figure.legend(handles, blank, loc=corner, **how)
    placed.set_bbox_to_anchor((right, y / figure.get_figheight()))
    for text, (_, label) in zip(placed.get_texts(), entries, strict=True):
        text.set_text(plain(label))
    return float(placed.get_window_extent().width / figure.dpi)


def _short(name: str) -> str:
    """A name for a cell."""
    for framework in FRAMEWORKS.values():
        name = name.replace(*framework.short)
    return textwrap.fill(elided(plain(name), 18).replace("-", " "), 7)


def elided(text: str, width: int) -> str:
    """Both ends of a long name: variants differ at the end."""
    half = (width - 1) // 2
    return text if len(text) <= width else f"{text[:half]}\N{HORIZONTAL ELLIPSIS}{text[-half:]}"


def plain(text: str) -> str:
    """Characters that the font lacks, spelled out: a box says nothing, and warns."""
    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    known = {c for c in set(text) if c.isprintable() and font.get_char_index(ord(c))}
    return "".join(c if c in known else ascii(c)[1:-1] for c in text)
