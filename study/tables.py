"""The study's tables, by name: `{{table: headroom}}` in a page."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import tabulate

from lstm_bench.analysis import energy_cells, noise
from lstm_bench.analysis.comparison import Comparison
from lstm_bench.analysis.energy_cells import Drawn, drawn
from lstm_bench.model.types import Shape
from lstm_bench.model.units import factor, in_units, seconds, span
from lstm_bench.report.findings import two_digits
from lstm_bench.report.paper_table import paper_pairs
from lstm_bench.runs import store
from study import findings
from study.runs import BEST, BEST_HALF, MAIN, REPEAT, Study, at, is_clear, load

#: What PyTorch and TensorFlow run, and the best of cuDNN in the same precision.
AGAINST = (
    ("pytorch", BEST),
    ("tf-mode0", BEST),
    ("pytorch-half", BEST_HALF),
    ("tf-mode0-amp", BEST_HALF),
)
TITLES = {
    "pytorch": "PyTorch, fp32",
    "tf-mode0": "TensorFlow mode 0, fp32",
    BEST: "best of cuDNN, fp32",
    "pytorch-half": "PyTorch, `.half()`",
    "pytorch-amp": "PyTorch, AMP",
    "tf-mode0-amp": "TensorFlow mode 0, AMP",
    BEST_HALF: "best of cuDNN, fp16",
}
FRAMEWORKS = {
    "fp32": ("pytorch", "tf-mode0", "tf-mode1", "tf-mode2"),
    "half": ("pytorch-amp", "pytorch-half", "tf-mode0-amp", "tf-mode1-amp", "tf-mode2-amp"),
}
#: From PyTorch to the best of cuDNN, one change at a time.
STEPS = ("pytorch", "deepbench", "deepbench-graph", BEST)
ALGORITHMS = {
    "persist-static-small-h": "small",
    "persist-static": "static",
    "persist-dynamic": "dynamic",
    "standard": "standard",
}
RUNS = (MAIN, REPEAT, "h200-deepbench", "h200-noise", "cpu-default")
ENERGY_RUNS = tuple(f"h200-energy-{n}" for n in range(1, 5))
ENERGY_PAIRS = {"same_gpu": ENERGY_RUNS[:2], "other_gpu": ENERGY_RUNS[::2]}
JOULES = {"J": 1.0, "mJ": 1e3, "uJ": 1e6}


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """In Markdown; the first `left` columns are words, the others numbers."""
    sides = ["left" if place < left else "right" for place in range(len(heads))]
    return str(tabulate.tabulate(rows, heads, "github", colalign=sides, disable_numparse=True))


def code(name: str) -> str:
    return f"`{name}`"


def batches() -> list[int]:
    return sorted({int(shape[1]) for shape in load(MAIN).times.index})


def mean(ratios: pd.Series[float]) -> float:
    return float(np.exp(np.log(ratios).mean()))


def what_to_use() -> str:
    """The faster of the frameworks' two winners, which `numbers` checks win everywhere."""
    one = load(MAIN)
    gain, rows = one.against("pytorch-half", "pytorch"), []
    for (batch, steps), part in one.times.groupby(level=["batch", "timesteps"]):
        own = at(gain, batch=batch, timesteps=steps)
        half = mean(own.shapes["ratio"])
        use, best = ("pytorch-half", BEST_HALF) if half > 1 else ("pytorch", BEST)
        verdicts = set(own.shapes["verdict"])
        mark = "" if verdicts == {"slower" if half > 1 else "faster"} else " *"
        middle = part.xs(512, level="hidden").iloc[0]
        rows.append(
            [
                *(str(batch), str(steps), TITLES[use] + mark, seconds(middle[use])),
                factor(half),
                factor(mean(part[use] / part[best])),
            ]
        )
    heads = ["batch", "timesteps", "use", "its latency at hidden 512"]
    gains = ("speed-up of half", "speed-up of the best of cuDNN")
    return table([*heads, *(f"{gain} (all hidden sizes)" for gain in gains)], rows, left=3)


def latency() -> str:
    """At the middle of the grid, by batch."""
    times = load(MAIN).times.xs((512, 100), level=("hidden", "timesteps"))
    rows = [[title, *map(seconds, times[name])] for name, title in TITLES.items()]
    return table(["latency of a call", *(f"batch {batch}" for batch in batches())], rows)


def headroom() -> str:
    """With intervals, for the study."""
    pairs = [load(MAIN).against(best, row) for row, best in AGAINST]
    rows = [["all", *map(_with_interval, pairs)]]
    rows += [[str(b), *(_with_interval(at(pair, batch=b)) for pair in pairs)] for b in batches()]
    slower = (f"{of.group().verdicts['slower']} of {len(of.shapes)}" for of in pairs)
    rows.append(["slower at", *slower])
    return table(["batch", *(TITLES[row] for row, _ in AGAINST)], rows)


def headroom_short() -> str:
    """Without, for the README."""
    rows = [
        [TITLES[row], *(factor(at(pair, batch=b).group().ratio.value) for b in batches())]
        for row, best in AGAINST
        for pair in [load(MAIN).against(best, row)]
    ]
    heads = [
        "slower than the best of cuDNN in the same precision",
        *(f"batch {batch}" for batch in batches()),
    ]
    return table(heads, rows)


def _with_interval(of: Comparison) -> str:
    ratio = of.group().ratio
    low, high = (factor(end).removesuffix("x") for end in (ratio.low, ratio.high))
    shown = f"{factor(ratio.value)} [{low}, {high}]"
    return shown if is_clear(of) else f"({shown})"


def steps() -> str:
    """What each change on the way from PyTorch to the best of cuDNN gives.

    Only where PyTorch runs the algorithm that the first step runs: else that step has two changes.
    """
    one, rows = load(MAIN), []
    alike = {dataclasses.astuple(shape) for shape in one.stepwise("pytorch")}
    times = one.times[one.times.index.isin(alike)]
    for batch in batches():
        own = times.xs(batch, level="batch")
        gains = [mean(own[a] / own[b]) for a, b in itertools.pairwise(STEPS)]
        rows.append([str(batch), *map(factor, gains), factor(math.prod(gains))])
    heads = ["batch", "C++ instead of PyTorch", "and a CUDA graph", "and the best algorithm"]
    return table([*heads, "together"], rows)


def algorithm(path: str) -> str:
    found = re.search("|".join(ALGORITHMS), path)
    return ALGORITHMS[found[0]] if found else "unknown"


def algorithms() -> str:
    """Which one is the fastest at 100 timesteps, in fp32 and in half precision."""
    cells = load(MAIN).cells
    cells = cells[(cells["timesteps"] == 100) & cells["implementation"].isin((BEST, BEST_HALF))]
    won = cells.assign(won=cells["path"].map(algorithm))
    won = won.pivot(index=["hidden", "batch"], columns="implementation", values="won")
    rows = []
    for hidden in sorted(set(cells["hidden"])):
        own = (won.loc[hidden, batch] for batch in batches())
        rows.append([str(hidden), *(f"{here[BEST]} / {here[BEST_HALF]}" for here in own)])
    return table(["hidden", *(f"batch {batch}" for batch in batches())], rows)


def the_findings() -> str:
    found = findings.findings(load(MAIN))
    return table(["the paper found", "here", "verdict"], found, left=3)


def table_2() -> str:
    """MPE beside the paper's."""
    runs = [load(name) for name in (MAIN, "h200-deepbench", "cpu-default")]
    rows = []
    for a, b, then in paper_pairs(runs[0].run.implementations):
        paper = "" if math.isnan(then) else f"{then:.2f}"
        rows.append([code(a), code(b), paper, *(_mpe(one, a, b) for one in runs)])
    return table(["A", "B", "paper", "H200", "H200, DeepBench's shapes", "CPU"], rows, left=2)


def _mpe(one: Study, a: str, b: str) -> str:
    if not {a, b} <= set(one.times):
        return "-"
    mpe = one.against(a, b).group().mpe
    return f"{mpe.value:.2f} [{mpe.low:.2f}, {mpe.high:.2f}]"


def energy() -> str:
    """Medians over the shapes at which all implementations have an energy."""
    rows = []
    for name, title in TITLES.items():
        own = list(energy_of(name).values())
        rough = "~" if sum(one.known for one in own) <= len(own) / 2 else ""
        gross = statistics.median(one.gross_j for one in own)
        power = statistics.median(one.energy.power_w or math.nan for one in own)
        shown = in_units(float(f"{gross:.2g}"), JOULES), f"{energy_ratio(name, 'pytorch'):.1f}x"
        rows.append([title, *(rough + text for text in shown), f"{power:.0f} W"])
    return table(["", "energy per call", "over PyTorch, fp32", "power"], rows)


@functools.cache
def energy_of(name: str) -> dict[Shape, Drawn]:
    """Of an implementation, at the shapes at which all have one."""
    records = energy_cells.firsts(load(MAIN).records)
    shapes = sorted(energy_cells.shared_shapes(records))
    cells = {(one.record.implementation, one.record.shape): one for one in drawn(records)}
    return {shape: cells[name, shape] for shape in shapes}


def energy_ratio(b: str, a: str) -> float:
    """Geometric mean."""
    sides = zip(energy_of(b).values(), energy_of(a).values(), strict=True)
    return math.exp(statistics.fmean(math.log(x.gross_j / y.gross_j) for x, y in sides))


def energy_apart(first: str, second: str) -> float:
    """By how much cells differ that are no estimate in either of two runs, in the median."""
    sides = [
        {one.record.cell: one.gross_j for one in drawn(load(name).records) if one.known}
        for name in (first, second)
    ]
    common = sides[0].keys() & sides[1].keys()
    return statistics.median(abs(sides[1][cell] / sides[0][cell] - 1) for cell in common)


#: The ratios that the pages speak of most: B, A, batch.
HEADLINES = {
    "PyTorch, fp32, over the best of cuDNN": ("pytorch", BEST, None),
    "the same at batch 1": ("pytorch", BEST, 1),
    "PyTorch, `.half()`, over the best of cuDNN": ("pytorch-half", BEST_HALF, None),
    "the same at batch 1 ": ("pytorch-half", BEST_HALF, 1),
    "TensorFlow mode 0, fp32, over the best of cuDNN": ("tf-mode0", BEST, None),
    "TensorFlow mode 0 over PyTorch, fp32": ("tf-mode0", "pytorch", None),
    "PyTorch, fp32, over `.half()`": ("pytorch", "pytorch-half", None),
    "PyTorch, AMP, over `.half()`": ("pytorch-amp", "pytorch-half", None),
    "PyTorch, fp32, over `deepbench-skip`": ("pytorch", "deepbench-skip", None),
    "TensorFlow mode 1 over mode 0": ("tf-mode1", "tf-mode0", None),
}


def headlines() -> list[tuple[str, float, float]]:
    """Each ratio in the main run and in its repeat."""
    found = []
    for name, (b, a, batch) in HEADLINES.items():
        ratios = []
        for run in (MAIN, REPEAT):
            times = load(run).times
            times = times if batch is None else times.xs(batch, level="batch")
            ratios.append(mean(times[b] / times[a]))
        found.append((name, ratios[0], ratios[1]))
    return found


def repeat() -> str:
    rows = [
        [name, factor(first), factor(second), f"{second / first - 1:+.0%}"]
        for name, first, second in headlines()
    ]
    return table(["latency of", code(MAIN), code(REPEAT), "change"], rows)


def what_ran() -> str:
    return table(
        ["run", "shapes", "cells ok", "wrong", "took", "rounds", "A/A pairs", "noise floor"],
        [_ran(load(name)) for name in (*RUNS, *ENERGY_RUNS)],
    )


def _ran(one: Study) -> list[str]:
    run, ok = one.run, int((one.cells["status"] == "ok").sum())
    legs = store.read_legs(run.folder) if run.folder else []
    pairs = sum(known.pairs for known in run.noise)
    floors = sorted(set(noise.applied(run.noise)))
    ends = " to ".join(dict.fromkeys(map(two_digits, (floors[0], floors[-1]))))
    return [
        code(one.name),
        str(run.shapes),
        f"{ok} of {len(one.cells)}",
        str(int((run.cells["status"] == "wrong").sum())),
        span(sum(leg.wall_s for leg in legs)),
        f"up to {int(run.cells['rounds'].max())}",
        str(pairs),
        ends if pairs else "-",
    ]


def versions() -> str:
    """What the main run and the one on a CPU ran with."""
    columns = []
    for one in map(load, (MAIN, "cpu-default")):
        machine = one.run.manifest["machine"]
        gpu = machine["gpus"][0] if one.run.plan.settings.device == "cuda" else None
        where = f"{gpu['name']}, driver {gpu['driver']}" if gpu else machine["cpu"]
        found: dict[str, dict[str, str]] = {}
        for record in one.records:
            found.setdefault(record.framework, {}).update(record.versions)
        parts = (found[name] for name in ("deepbench", "pytorch", "tensorflow"))
        told = (", ".join(f"{key} {own[key]}" for key in sorted(own)) for own in parts)
        columns.append([where, *told])
    names = ("machine", "C++ baseline", "PyTorch", "TensorFlow")
    rows = [list(row) for row in zip(names, *columns, strict=True)]
    return table(["", code(MAIN), code("cpu-default")], rows, left=3)


TABLES: dict[str, Callable[[], str]] = {
    "what_to_use": what_to_use,
    "latency": latency,
    "headroom": headroom,
    "headroom_short": headroom_short,
    "steps": steps,
    "algorithms": algorithms,
    "findings": the_findings,
    "table_2": table_2,
    "energy": energy,
    "repeat": repeat,
    "what_ran": what_ran,
    "versions": versions,
}
