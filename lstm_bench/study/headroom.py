"""What frameworks leave on the table: their latency over that of cuDNN's best algorithm."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import cm, colors
from matplotlib.figure import Figure

from lstm_bench import analysis, figures, words
from lstm_bench.comparison import Group, clear
from lstm_bench.model import Shape
from lstm_bench.noise import SHAPE
from lstm_bench.study.section import Section, code, figure, table, text
from lstm_bench.study.subject import Runs, Subject, missing, shapes_of
from lstm_bench.trust import measured
from lstm_bench.units import counted, error, listed, times
from lstm_bench.words import Pair, versus

#: The library's best, and what frameworks run beside it, in the same precision.
AGAINST = (
    ("deepbench-best", "pytorch"),
    ("deepbench-best", "tf-mode0"),
    ("deepbench-fp16-best", "pytorch-half"),
    ("deepbench-fp16-best", "tf-mode0-amp"),
)
BEST = ("deepbench-best", "deepbench-fp16-best")
#: From the framework to the best, one change at a time: by STANDARD, a graph, the algorithm.
STEPS = ("pytorch", "deepbench", "deepbench-graph", "deepbench-best")
STEPS_HALF = ("pytorch-half", "deepbench-fp16", "deepbench-fp16-best")
WHAT = "cuDNN's best algorithm, in a CUDA graph where that is faster"
#: How algorithms are called in the table, where that is not their name.
SHORT = {"standard": "std", "dynamic": "dyn", "small-h": "small"}
NO_GRAPH = "PyTorch in a CUDA graph was not measured."
LESS_EXACT = 2.0  # times the error of STANDARD
STEM = "study-headroom"


def section(runs: Runs) -> Section:
    title = "What PyTorch and TensorFlow leave on the table"
    one = runs.paper
    if not one:
        return Section(title, [missing("h200-paper")])
    found = [pair for best, name in AGAINST if (pair := one.pair(best, name))]
    if not found:
        return Section(title, [f"{code(one.run.name)} has none of {', '.join(map(code, BEST))}."])
    told = "; ".join(map(_ends, found))
    body = [
        text(f"Against {WHAT} (below: the best of cuDNN): {told}.", _graphs(one)),
        _by_batch(found),
        text(
            f"Geometric means of latency over that of {listed(map(code, BEST), ' or ')}, whichever"
            " has the row's precision, with 95% intervals; in round brackets: not beyond the noise."
            " Least, most: of one shape. Slower at: of how many shapes, beyond the noise."
        ),
        figure(STEM, "Latency of frameworks over the best of cuDNN, by shape"),
        *_steps(one),
        _exactness(one),
        *_algorithms(one),
        _own_shapes(runs.deepbench),
    ]
    short = text(f"Against {WHAT}: {told}.", _first_step(one), "" if _own_graphs(one) else NO_GRAPH)
    return Section(title, body, short, {STEM: drawn(one, found)})


def _batches(pair: Pair) -> list[int]:
    return sorted(set(map(int, pair.of.shapes["batch"])))


def _at(pair: Pair, batch: int) -> Group:
    return pair.of.group("batch", (batch, batch))


def _ends(pair: Pair) -> str:
    """A row at the smallest and at the largest batch: a mean over all hides how far apart."""
    batches = _batches(pair)
    if len(batches) < 2:
        return f"{code(pair.of.b)} {versus(pair.whole, pair.floor)}"
    told = (
        f"{versus(_at(pair, batch), pair.floor)} at batch {batch}"
        for batch in (batches[0], batches[-1])
    )
    return f"{code(pair.of.b)} {listed(told)}"


def _graphs(one: Subject) -> str:
    """Whose a graph is, and whether a framework's row has one."""
    told = "A graph is CUDA's, not cuDNN's, and users of PyTorch may capture one too"
    own = _own_graphs(one)
    return f"{told}: {listed(map(code, own))}." if own else f"{told}. {NO_GRAPH}"


def _own_graphs(one: Subject) -> list[str]:
    return [name for name in one.run.implementations if re.match(r"pytorch.*graph", name)]


def _by_batch(pairs: Sequence[Pair]) -> str:
    """Batches downwards, rows of frameworks to the right."""
    rows = [["all shapes", *(_factor(pair.whole, pair.floor) for pair in pairs)]]
    for batch in sorted({batch for pair in pairs for batch in _batches(pair)}):
        groups = ((_at(pair, batch), pair.floor) for pair in pairs)
        rows.append([f"batch {batch}", *(_factor(*found) for found in groups)])
    ratios = [pair.of.shapes["ratio"] for pair in pairs]
    rows.append(["least", *(words.factor(float(own.min())) for own in ratios)])
    rows.append(["most", *(words.factor(float(own.max())) for own in ratios)])
    called = (f"{pair.whole.verdicts['slower']} of {pair.whole.shapes}" for pair in pairs)
    rows.append(["slower at", *called])
    return table(["latency over best", *(code(pair.of.b) for pair in pairs)], rows)


def _factor(group: Group, floor: float) -> str:
    if not group.shapes:
        return "-"
    of = group.ratio
    ends = (words.factor(end).removesuffix("x") for end in (of.low, of.high))
    shown = f"{words.factor(of.value)} [{', '.join(ends)}]"
    return shown if clear(group, floor) else f"({shown})"


def steps_of(one: Subject, names: Sequence[str]) -> pd.DataFrame | None:
    """How many times longer each row takes than the next, where all were measured; None if none.

    The product along a line is the first over the last.
    """
    of = analysis.times(one.run.cells[one.run.cells["implementation"].isin(names)])
    if set(of.names) != set(names):
        return None
    seconds = of.seconds[:, [of.names.index(name) for name in names]]
    known = ~np.isnan(seconds).any(axis=1)
    ratios = pd.DataFrame(seconds[known, :-1] / seconds[known, 1:], columns=list(names[:-1]))
    return ratios.assign(batch=of.shapes.loc[known, "batch"].to_numpy()) if known.any() else None


def _means(steps: pd.DataFrame) -> list[float]:
    """The whole first, then its factors: geometric means, so they multiply too."""
    parts = np.exp(np.log(steps.drop(columns="batch")).mean())
    return [float(parts.prod()), *map(float, parts)]


def _steps(one: Subject) -> list[str]:
    """What of the whole is PyTorch, what the graph, and what the algorithm."""
    steps, half = steps_of(one, STEPS), steps_of(one, STEPS_HALF)
    told, shown = "", ""
    if steps is not None:
        whole, itself, graph, choice = map(times, _means(steps))
        told = (
            f"The whole is a product: {code(STEPS[0])} takes {whole} as long as the best of cuDNN,"
            f" {itself} by PyTorch against {code(STEPS[1])}, {graph} by the graph that"
            f" {code(STEPS[2])} adds and {choice} by the algorithm. Another order of the steps"
            f" would give other factors.{_alike(one)}"
        )
        rows = [["all shapes", *map(times, _means(steps))]]
        for batch, own in steps.groupby("batch"):
            rows.append([f"batch {batch}", *map(times, _means(own))])
        shown = table(["in fp32", "whole", "PyTorch", "graph", "algorithm"], rows)
    if half is not None:
        whole, itself, rest = map(times, _means(half))
        told += (
            f" In half precision {code(STEPS_HALF[0])} takes {whole} as long: {itself} against"
            f" {code(STEPS_HALF[1])}, {rest} by graph and algorithm together."
        )
    return [text(told.strip()), shown] if told else []


def _first_step(one: Subject) -> str:
    """Where a call is shortest, what of the whole is PyTorch's own."""
    steps = steps_of(one, STEPS)
    if steps is None:
        return ""
    batch = int(steps["batch"].min())
    whole, itself, graph, choice = map(times, _means(steps[steps["batch"] == batch]))
    return (
        f"{code(STEPS[0])}'s {whole} at batch {batch} is a product: {itself} by PyTorch itself,"
        f" {graph} by the graph and {choice} by the algorithm."
    )


def _alike(one: Subject) -> str:
    """PyTorch's own factor where its choice of algorithm is not in it."""
    pair, steps = one.pair(STEPS[1], STEPS[0]), one.stepwise(STEPS[0])
    if not pair:
        return ""
    alike = pair.of.part(np.array([shape in steps for shape in shapes_of(pair.of)])).group()
    if alike.shapes in (0, pair.whole.shapes):
        return ""
    return (
        f" PyTorch's has its own choice of algorithm in it: at the {alike.shapes} shapes where it"
        f" goes step by step as {code(STEPS[1])} does, it is {times(alike.ratio.value)}."
    )


def _exactness(one: Subject) -> str:
    """Whether the best in single precision is less exact where it is not STANDARD."""
    ok = measured(one.run.cells)
    best = ok[ok["implementation"] == BEST[0]]
    others = best[[algorithm(path)[0] not in ("standard", "unknown") for path in best["path"]]]
    standard = ok[ok["implementation"] == STEPS[1]].merge(others[SHAPE])
    worst, usual = (float(cells["max_abs_error"].max()) for cells in (others, standard))
    if math.isnan(worst) or math.isnan(usual):
        return ""
    where = f"where it runs a persistent algorithm, at {counted(len(others), 'shape')}"
    word = "less" if worst > LESS_EXACT * usual else "no less"
    single = one_kernel(one, STEPS[0])
    own = ok[ok["implementation"] == STEPS[0]]
    own = own[[Shape(*map(int, row)) in single for row in own[SHAPE].to_numpy()]]
    too = ""
    if len(own):
        too = (
            f"; {code(STEPS[0])} where it is one kernel: {error(float(own['max_abs_error'].max()))}"
        )
    return text(
        f"In fp32 the best of cuDNN is {word} exact than {code(STEPS[1])} {where}. The largest"
        f" error against float64 there: {error(worst)}, {code(STEPS[1])} {error(usual)}{too}."
    )


def one_kernel(one: Subject, name: str) -> set[Shape]:
    """The shapes at which one kernel holds a row's whole recurrence, by its profile."""
    own = (cell for cell in one.splits if cell.name == name)
    return {cell.shape for cell in own if cell.in_one}


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
        [str(steps), str(hidden), *(_both(won.get((steps, hidden, b))) for b in batches)]
        for steps, hidden in sorted({(steps, hidden) for steps, hidden, _ in won})
    ]
    counts = Counter(name for both in won.values() for name in both if name != "-")
    told = listed(f"{SHORT.get(name, name)} at {count}" for name, count in counts.most_common())
    return [
        text(
            f"Which algorithm is the fastest, fp32 / half: {told} of {len(ok)} cells;"
            f" {graphs} of them in a CUDA graph, which spares the launches."
        ),
        table(["timesteps", "hidden", *(f"batch {b}" for b in batches)], rows, left=0),
        text(
            "std: STANDARD, step by step, as `deepbench`. static, dyn and small: PERSIST_STATIC,"
            " PERSIST_DYNAMIC and PERSIST_STATIC_SMALL_H, which keep the weights on the chip. The"
            " choice is made by a short trial when a cell is built: of two that are close, either"
            " may win."
        ),
    ]


def _both(names: Sequence[str] | None) -> str:
    return " / ".join(SHORT.get(name, name) for name in names) if names else "-"


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
    cells = analysis.relative(pd.concat(parts, ignore_index=True))
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
    notes = (
        "In a cell: the row's latency over that of cuDNN's best algorithm in the same precision,"
    )
    notes += " in a CUDA graph where that is faster. In the title: geometric means. In brackets:"
    notes += " not beyond the noise, or not for certain."
    notes += " Grey: not measured."
    made, foot = figures.heat_maps(one.run, title_of(pairs[0]), notes, panels, columns, 0.5)
    place = made.add_axes(figures.box(made, 1.2, foot + 0.3, figures.WIDTH - 2.4, 0.1))
    bar = made.colorbar(mapped, cax=place, orientation="horizontal")
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100) if math.log2(t) <= limit]
    bar.set_ticks([math.log2(t) for t in ticks], labels=[f"{t}x" for t in ticks])
    return made


def title_of(pair: Pair) -> str:
    """The finding: a row at the smallest and at the largest batch."""
    ends = dict.fromkeys((_batches(pair)[0], _batches(pair)[-1]))
    told = (f"{about(_at(pair, batch).ratio.value)} at batch {batch}" for batch in ends)
    return f"{pair.of.b} over the best of cuDNN: {', '.join(told)}"


def about(ratio: float) -> str:
    """Two digits: 0.94x, 1.3x, 26x."""
    return f"{float(f'{ratio:.2g}'):g}x"


def _digits(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}" if ratio < 1000 else f"{ratio:.0f}"
