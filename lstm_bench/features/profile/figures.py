"""Profiles as figures: what ran on the device, how long it was idle, and one call over time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from matplotlib import axes
from matplotlib.figure import Figure

from lstm_bench.analysis.results import Run
from lstm_bench.features.profile import cells as profiled_cells
from lstm_bench.features.profile.cells import Split
from lstm_bench.features.profile.families import FAMILIES, families
from lstm_bench.features.profile.summary import summary
from lstm_bench.features.profile.trace import lanes
from lstm_bench.model.profile import Activity, Window
from lstm_bench.model.types import Shape
from lstm_bench.model.units import over, percent, seconds
from lstm_bench.report import figures
from lstm_bench.report.colours import ink
from lstm_bench.report.figures import (
    GREY,
    LINE,
    WIDTH,
    about,
    box,
    elided,
    legend,
    plain,
    styled,
)

#: From the palette of Okabe and Ito, and greys; neighbours in a bar differ in lightness too.
COLOURS = {
    "whole layer": "#5e3c99",
    "persistent": "#cc79a7",
    "recurrent GEMM": "#0072b2",
    "input GEMM": "#56b4e9",
    "GEMM": "#00466e",
    "cell": "#009e73",
    "cast": "#d55e00",
    "repack": "#e69f00",
    "copy": "#f0e442",
    "fill": "#bdbdbd",
    "other": "#595959",
}
ACTIVITY = {"GPU active": "#0072b2", "data movement": "#e69f00", "idle": "#e3e3e3"}
BAR, LEFT, RIGHT = 0.3, 1.95, 1.35  # inches: a bar's pitch, room for names, for figures
FEWEST = 0.045  # a share that has room for its figure


def drawn(run: Run, shapes: Collection[Shape] | None = None) -> dict[str, Figure]:
    """Every figure of the run's profiles, by the stem of its file; `shapes` chooses among them."""
    splits = profiled_cells.read(run, shapes)
    result = {}
    if splits.on_device:
        result["kernel-families"] = by_family(run, splits.on_device)
        result["gpu-activity"] = activity(run, splits.on_device)
    if splits.on_host:
        result["operator-families"] = by_family(run, splits.on_host)
    return result


@styled()
def by_family(run: Run, splits: Sequence[Split]) -> Figure:
    """Time of the parts of a call by family, one bar per row, at one shape.

    One shape and not a mean of many: kernels change with the shape, and this one can be run again.
    """
    shape = profiled_cells.middle(splits)
    cells = profiled_cells.at(splits, shape)
    host = cells[0].of_host
    bars = {}
    for split in cells:
        whole = split.parts_s or 1.0
        shares = {family: time / whole for family, time in split.by_family.items()}
        bars[split.name] = (shares, f"{seconds(split.parts_s)} / {seconds(split.latency_s)}")
    what, time = "What the device runs", "the kernels', copies' and fills' own time"
    if host:
        what, time = "What operators take", "the operators' own time"
    title = f"{what} in one call at {shape.label}, by family"
    notes = (
        f"Right: {time} / the latency. Shape: hidden,batch,timesteps, in the middle of those that"
    )
    notes += " the most rows have."
    if any("GEMM" in split.by_family for split in cells):
        notes += " GEMM: input and recurrent products under one name."
    return _bars(run, title, notes, bars, COLOURS, f"share of {time}")


@styled()
def activity(run: Run, splits: Sequence[Split]) -> Figure:
    """How much of the latency the device was active, moved data, or was idle."""
    cells, common = profiled_cells.shared(splits)
    bars = {}
    for row in profiled_cells.device_rows(cells):
        shares = dict(zip(ACTIVITY, (row["active"], row["moving"], row["idle"]), strict=True))
        bars[row["implementation"]] = (shares, seconds(row["latency_s"]))
    low, high = (f(bars, key=lambda name: bars[name][0]["GPU active"]) for f in (min, max))
    ends = [f"{percent(bars[n][0]['GPU active'], 0)} ({elided(n, 30)})" for n in (low, high)]
    title = f"GPU active in a call: {' to '.join(dict.fromkeys(ends))}"
    notes = (
        f"Mean shares of the latency over {over(common)}. Active: a kernel ran; data movement: only"
    )
    notes += " copies or fills ran; idle: the rest. Right: the median latency."
    if any(split.stretched for split in cells):
        notes += (
            " Kernels of graphs are watched one by one and may take longer than the whole call:"
        )
        notes += " such a call counts as active throughout."
    return _bars(run, title, notes, bars, ACTIVITY, "share of the latency")


def _bars(
    run: Run,
    title: str,
    notes: str,
    bars: Mapping[str, tuple[Mapping[str, float], str]],
    colours: Mapping[str, str],
    label: str,
) -> Figure:
    """Stacked bars of shares, one per row, each with its figure to the right."""
    there = [key for key in colours if any(shares.get(key) for shares, _ in bars.values())]
    lines = -(-len(there) // 2)
    room = 0.15 + 1.2 * LINE * lines
    body = BAR * len(bars) + 0.55 + room
    figure, foot = figures.page(body, title, [about(run)], notes)
    ax = figure.add_axes(
        box(figure, LEFT, foot + room + 0.45, WIDTH - LEFT - RIGHT, BAR * len(bars))
    )
    longest = max(1.0, *(sum(shares.values()) for shares, _ in bars.values()))
    for place, (shares, note) in enumerate(bars.values()):
        reached = 0.0
        for key in there:
            share = shares.get(key, 0.0)
            if share > 0:
                ax.barh(place, share, 0.72, reached, color=colours[key], ec="white", lw=0.6)
                if share >= FEWEST:
                    middle, text = reached + share / 2, percent(share, 0)
                    _say(ax, middle, place, text, ink(colours[key]), ha="center")
                reached += share
        _say(ax, 1.015 * longest, place, plain(note), GREY, ha="left")
    ax.set(xlim=(0, longest), ylim=(len(bars) - 0.5, -0.5), xlabel=label)
    ax.set_yticks(range(len(bars)), [plain(elided(name, 25)) for name in bars])
    ax.xaxis.set_major_formatter(lambda value, _: percent(value, 0))
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    legend(figure, [(colours[key], key) for key in there], "lower left", foot)
    return figure


def _say(ax: axes.Axes, x: float, y: float, text: str, colour: str, ha: str) -> None:
    ax.text(x, y, text, color=colour, ha=ha, va="center_baseline", fontsize=7.5)


@styled()
def timeline(
    activities: Iterable[Activity],
    windows: Sequence[Window],
    path: Path,
    timesteps: int = 1,
    title: str = "One call over time",
) -> Figure:
    """Draw one call: the host's launches above, what ran on the device below.

    Of the calls whose launches were recorded, or else of all, it is the one of median length.
    Products are told apart by `timesteps`, as in tables. The ending of `path` says what is written.
    """
    seen = list(activities)
    launched = {a.correlation: a.start_ns for a in seen if a.kind == "launch"}
    heard = [w for w in windows if any(w[0] <= at <= w[1] for at in launched.values())]
    ordered = sorted(heard or windows, key=lambda window: window[1] - window[0])
    start, end = ordered[len(ordered) // 2]
    call = [a for a in seen if start <= launched.get(a.correlation, a.start_ns) <= end]
    parts = summary(seen, windows, "").parts
    family_of = {
        (part.kind, part.raw or part.name): family
        for part, family in zip(parts, families(parts, timesteps), strict=True)
    }
    figure = _timeline(call, (start, end), family_of, title)
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(path, dpi=150, metadata=metadata)
    return figure


def _timeline(
    call: Sequence[Activity], window: Window, family_of: Mapping[tuple[str, str], str], title: str
) -> Figure:
    """Draws what overlaps on the device side by side, in lanes."""
    launches = [a for a in call if a.kind == "launch"]
    device = sorted((a for a in call if a.kind != "launch"), key=lambda a: a.start_ns)
    there = [f for f in FAMILIES if any(family_of[a.kind, a.name] == f for a in device)]
    room = 0.15 + 1.2 * LINE * -(-(len(there) + 1) // 2)
    busy = sum(a.end_ns - a.start_ns for a in device) / 1e9
    counts = f"Launches: {len(launches)}. On the device: {len(device)} kernels, copies and fills,"
    counts += f" {seconds(busy)} in all. The call: {seconds((window[1] - window[0]) / 1e9)}."
    notes = "While it was profiled, which slows the host: the gaps are longer than in a timed call,"
    notes += " what runs on the device is not."
    figure, foot = figures.page(1.9 + room, title, [counts], notes)
    ax = figure.add_axes(box(figure, 0.75, foot + room + 0.45, WIDTH - 1.0, 1.35))
    unit, scale = ("ms", 1e6) if window[1] - window[0] >= 2e6 else ("us", 1e3)

    def bars(these: Iterable[Activity], bottom: float, height: float, colour: str) -> None:
        spans = [((a.start_ns - window[0]) / scale, (a.end_ns - a.start_ns) / scale) for a in these]
        ax.broken_barh(spans, (bottom, height), facecolors=colour)

    bars(launches, 1.15, 0.7, GREY)
    side_by_side = lanes(device)
    height = 0.7 / max(len(side_by_side), 1)
    for number, lane in enumerate(side_by_side, 1):
        for family in there:
            own = (a for a in lane if family_of[a.kind, a.name] == family)
            bars(own, 0.85 - number * height, height, COLOURS[family])
    last = max([window[1], *(a.end_ns for a in call)]) - window[0]
    ax.set(xlim=(0, last / scale), ylim=(0, 2), xlabel=f"time since the call began ({unit})")
    ax.set_yticks([1.5, 0.5], ["host", "device"])
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    entries = [(GREY, "launches"), *((COLOURS[family], family) for family in there)]
    legend(figure, entries, "lower left", foot)
    return figure
