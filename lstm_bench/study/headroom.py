"""What frameworks leave on the table: their latency over that of cuDNN's best algorithm."""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np
import pandas as pd
from matplotlib import cm, colors
from matplotlib.figure import Figure

from lstm_bench import figures
from lstm_bench.study.section import Section, code, figure, table, text
from lstm_bench.study.subject import Runs, Subject, missing
from lstm_bench.trust import listed, measured
from lstm_bench.units import short, times
from lstm_bench.words import Pair, versus

#: The library's best, and what frameworks run beside it, in the same precision.
AGAINST = (
    ("deepbench-best", "pytorch"),
    ("deepbench-best", "tf-mode0"),
    ("deepbench-fp16-best", "pytorch-half"),
    ("deepbench-fp16-best", "tf-mode0-amp"),
)
BEST = ("deepbench-best", "deepbench-fp16-best")
STEM = "study-headroom"


def section(runs: Runs) -> Section:
    title = "What PyTorch and TensorFlow leave on the table"
    one = runs.paper
    if not one:
        return Section(title, [missing("h200-paper")])
    found = [pair for best, name in AGAINST if (pair := one.pair(best, name))]
    if not found:
        return Section(title, [f"{code(one.run.name)} has none of {', '.join(map(code, BEST))}."])
    told = "; ".join(f"{code(pair.of.b)} {versus(pair.whole, pair.floor)}" for pair in found)
    rows = [_row(pair) for pair in found]
    body = [
        text(f"Against the fastest that cuDNN itself offers for each shape: {told}."),
        table(
            ["row", "against", "shapes", "least", "median", "most", "called slower"], rows, left=2
        ),
        figure(STEM, "Latency of frameworks over the best of cuDNN, by shape"),
        *_algorithms(one),
        _own_shapes(runs.deepbench),
    ]
    short_ = f"Against the best that cuDNN offers for each shape: {told}."
    return Section(title, body, short_, {STEM: drawn(one, found)})


def _row(pair: Pair) -> list[str]:
    ratios = pair.of.shapes["ratio"]
    ends = [times(float(value)) for value in (ratios.min(), ratios.median(), ratios.max())]
    called = f"{pair.whole.verdicts['slower']} of {pair.whole.shapes}"
    return [code(pair.of.b), code(pair.of.a), str(pair.whole.shapes), *ends, called]


def algorithm(path: str) -> tuple[str, bool]:
    """The algorithm that a path names, and whether it is replayed as a graph."""
    found = re.search(r"(persist-static-small-h|persist-static|persist-dynamic|standard)", path)
    names = {"persist-static-small-h": "small-h", "persist-static": "static"}
    name = found[1] if found else "unknown"
    return names.get(name, name.removeprefix("persist-")), ", graph" in path


def _algorithms(one: Subject) -> list[str]:
    """Which algorithm won where, in single and in half precision."""
    ok = measured(one.run.cells)
    ok = ok[ok["implementation"].isin(BEST)]
    if ok.empty:
        return []
    won: dict[tuple[int, int, int], list[str]] = {}
    graphs = 0
    for row in ok.to_dict("records"):
        name, graph = algorithm(row["path"])
        graphs += graph
        places = won.setdefault((row["timesteps"], row["hidden"], row["batch"]), ["-", "-"])
        places[BEST.index(row["implementation"])] = name
    batches = sorted({batch for _, _, batch in won})
    rows = [
        [str(steps), str(hidden), *(" / ".join(won.get((steps, hidden, b), "-")) for b in batches)]
        for steps, hidden in sorted({(steps, hidden) for steps, hidden, _ in won})
    ]
    counts = Counter(name for both in won.values() for name in both if name != "-")
    told = listed(f"{name} at {count}" for name, count in counts.most_common())
    return [
        text(
            f"Which algorithm is the fastest, fp32 / half: {told} of {len(ok)} cells;"
            f" {graphs} of them as a CUDA graph, which spares the launches."
        ),
        table(["timesteps", "hidden", *(f"batch {b}" for b in batches)], rows, left=0),
        text(
            "Standard: step by step, what DeepBench and mostly PyTorch run. Static, dynamic,"
            " small-h: cuDNN's three algorithms that keep the weights on the chip. The choice is"
            " made by a short trial when a cell is built: of two that are close, either may win."
        ),
    ]


def _own_shapes(one: Subject | None) -> str:
    if not one:
        return ""
    found = [pair for best, name in AGAINST if (pair := one.pair(best, name))]
    told = "; ".join(f"{code(p.of.b)} {versus(p.whole, p.floor)}" for p in found)
    return text(f"On DeepBench's own shapes: {told}.") if told else ""


@figures.styled()
def drawn(one: Subject, pairs: list[Pair]) -> Figure:
    """One panel per row and number of timesteps, hidden size by batch size."""
    parts = [pair.of.shapes.assign(pair=pair.of.b) for pair in pairs]
    cells = figures.relative(pd.concat(parts, ignore_index=True))
    gain = np.log2(np.maximum(cells["ratio"].to_numpy(), 1.0))
    limit = max(float(gain.max()), 1.0)
    mapped = cm.ScalarMappable(colors.Normalize(0, limit), "YlOrBr")
    cells["colour"] = [colors.to_hex(colour) for colour in mapped.to_rgba(gain)]
    called = cells["verdict"].isin(["faster", "slower"])
    ratios = zip(cells["ratio"], called, strict=True)
    cells["text"] = [_digits(ratio) if sure else f"({_digits(ratio)})" for ratio, sure in ratios]
    panels = [
        (f"{pair.of.b}: {label}", of[of["pair"] == pair.of.b])
        for pair in pairs
        for label, of in figures.panels_of(cells)
    ]
    columns = len(figures.panels_of(cells))
    worst = cells.loc[cells["ratio"].idxmax()]
    title = f"What frameworks leave on the table: up to {times(float(worst['ratio']))}"
    notes = "In a cell: the row's latency over that of the fastest cuDNN algorithm of the same"
    notes += " precision. In brackets: not beyond the noise, or too few rounds to tell."
    notes += " Grey: not measured."
    made, foot = figures.heat_maps(one.run, title, notes, panels, columns, 0.5)
    place = made.add_axes(figures.box(made, 1.2, foot + 0.3, figures.WIDTH - 2.4, 0.1))
    bar = made.colorbar(mapped, cax=place, orientation="horizontal")
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100) if math.log2(t) <= limit]
    bar.set_ticks([math.log2(t) for t in ticks], labels=[f"{t}x" for t in ticks])
    return made


def _digits(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else short(round(ratio, 1)).removesuffix("0")
