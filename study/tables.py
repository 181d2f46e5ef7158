"""The study's tables, by name: `{{table: headroom}}` in a page."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import tabulate

from lstm_bench.analysis import noise, summary
from lstm_bench.analysis.results import references
from lstm_bench.features.energy import cells as energy_cells
from lstm_bench.features.energy.cells import Drawn, drawn
from lstm_bench.model.types import ACCURACY, Shape
from lstm_bench.model.units import factor, in_units, seconds, span
from lstm_bench.report.paper_table import paper_pairs
from lstm_bench.runs import store
from study import findings
from study.runs import (
    BEST,
    BEST_HALF,
    DEEPBENCH,
    FEW_ROWS,
    KERNEL,
    LADDER,
    MAIN,
    MANY,
    PLAIN,
    REPEAT,
    Study,
    at,
    load,
)

#: The rows of PyTorch and TensorFlow, and the best of cuDNN in the same precision.
AGAINST = (
    ("pytorch", BEST),
    ("tf-mode0", BEST),
    ("pytorch-half", BEST_HALF),
    ("tf-mode0-amp", BEST_HALF),
)
TITLES = {
    "pytorch": "PyTorch, fp32",
    "tf-mode0": "TensorFlow, fp32",
    BEST: "best of cuDNN, fp32",
    "pytorch-half": "PyTorch, `.half()`",
    "pytorch-amp": "PyTorch, AMP",
    "tf-mode0-amp": "TensorFlow, AMP",
    BEST_HALF: "best of cuDNN, fp16",
}
FRAMEWORKS = {
    "fp32": ("pytorch", "tf-mode0", "tf-mode1", "tf-mode2"),
    "half": ("pytorch-amp", "pytorch-half", "tf-mode0-amp", "tf-mode1-amp", "tf-mode2-amp"),
}
#: From PyTorch to the best of cuDNN, one change at a time.
STEPS = ("pytorch", "deepbench", "deepbench-graph", BEST)
CLASSES = ("fp32", "tf32", "half")
#: The best of cuDNN and our kernel, at the same accuracy.
KERNELS = (
    (BEST, "persistent"),
    ("deepbench-tf32-best", "persistent-tf32"),
    (BEST_HALF, "persistent-fp16"),
)
#: The names of the winners in the table of advice.
USES = {
    "pytorch-persistent": "drop-in, fp32",
    "pytorch-tf32-persistent": "drop-in, TF32",
    "pytorch-graph": "graph, fp32",
    "pytorch-tf32-graph": "graph, TF32",
    "pytorch-half-graph": "graph, `.half()`",
}
CPU, ARM = "cpu-default", "cpu-neoverse"
RUNS = (
    MAIN,
    REPEAT,
    LADDER,
    FEW_ROWS,
    KERNEL,
    MANY,
    DEEPBENCH,
    "h200-noise",
    CPU,
    ARM,
)
ENERGY_RUNS = tuple(f"h200-energy-{n}" for n in range(1, 5))
ENERGY_PAIRS = {"same_gpu": ENERGY_RUNS[:2], "other_gpu": ENERGY_RUNS[::2]}
JOULES = {"J": 1.0, "mJ": 1e3, "uJ": 1e6}


def two_digits(value: float) -> str:
    """A share with two digits: 0.35%, 2.4%, 13%."""
    scaled = 100 * value
    return f"{scaled:.0f}%" if scaled >= 9.95 else f"{float(f'{scaled:.2g}'):g}%"


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


def winners(accuracy: str) -> pd.DataFrame:
    """The fastest deployable row that is at least so accurate, at each shape."""
    ladder = load(LADDER)
    kinds = ladder.cells.drop_duplicates("implementation").set_index("implementation")["precision"]
    allowed = CLASSES[: CLASSES.index(accuracy) + 1]
    among = {name for name, kind in kinds.items() if ACCURACY[kind] in allowed}
    timed = summary.times(ladder.cells)
    return summary.winners(timed, ladder.run.noise, among=among - references(ladder.run))


def what_to_use_short() -> str:
    """Without the times, at 100 timesteps."""
    return what_to_use(short=True)


def what_to_use(short: bool = False) -> str:
    """The fastest row of the ladder within each accuracy, and its gain over PyTorch's."""
    times, rows = load(LADDER).times, []
    fastest = [winners(accuracy).itertuples() for accuracy in CLASSES]
    for shape, *own in zip(times.index, *fastest, strict=True):
        if short and shape[2] != 100:
            continue
        cells = [", ".join(map(str, shape[:3]))]
        for name, won in zip(("pytorch", PLAIN, PLAIN), own, strict=True):
            sure = "" if won.verdict == "slower" else " (tie)"
            now = times.loc[shape, name]
            cells.append(f"{USES[won.fastest]}{sure}")
            if not short:
                cells.append(f"{seconds(now)} to {seconds(won.fastest_s)}")
            cells.append(factor(now / won.fastest_s))
        rows.append(cells)
    heads = ["hidden, batch, timesteps"]
    for accuracy, baseline in (("fp32", "fp32"), ("TF32", "TF32"), ("half", "TF32")):
        better = "" if accuracy == "fp32" else " or better"
        heads.append(f"{accuracy}{better}: use")
        heads += ["faster"] if short else [f"from PyTorch, {baseline}", "faster"]
    return table(heads, rows)


def headroom_short() -> str:
    """The table without links, for the README."""
    rows = [
        [TITLES[row], *(factor(at(pair, batch=b).group().ratio.value) for b in batches())]
        for row, best in AGAINST
        for pair in [load(MAIN).against(best, row)]
    ]
    heads = [
        "times the best of cuDNN, in the same precision",
        *(f"batch {batch}" for batch in batches()),
    ]
    return table(heads, rows)


def the_findings() -> str:
    result = findings.findings(load(MAIN))
    return table(["the paper found", "here", "verdict"], result, left=3)


def table_2() -> str:
    """MPE beside the paper's."""
    runs = [load(name) for name in (MAIN, DEEPBENCH, ARM)]
    rows = []
    for a, b, then in paper_pairs(runs[0].run.implementations):
        paper = "" if math.isnan(then) else f"{then:.2f}"
        rows.append([code(a), code(b), paper, *(_mpe(each, a, b) for each in runs)])
    return table(["A", "B", "paper", "H200", "H200, DeepBench's shapes", "CPU"], rows, left=2)


def _mpe(each: Study, a: str, b: str) -> str:
    if not {a, b} <= set(each.times):
        return "-"
    mpe = each.against(a, b).group().mpe
    return f"{mpe.value:.2f} [{mpe.low:.2f}, {mpe.high:.2f}]"


def energy() -> str:
    """Medians over the shapes at which all implementations have an energy."""
    rows = []
    for name, title in TITLES.items():
        own = list(energy_of(name).values())
        rough = "~" if sum(each.known for each in own) <= len(own) / 2 else ""
        gross = statistics.median(each.gross_j for each in own)
        power = statistics.median(each.energy.power_w or math.nan for each in own)
        shown = in_units(float(f"{gross:.2g}"), JOULES), f"{energy_ratio(name, 'pytorch'):.1f}x"
        rows.append([title, *(rough + text for text in shown), f"{power:.0f} W"])
    heads = ["", "median energy per call", "mean ratio to PyTorch, fp32", "power"]
    return table(heads, rows)


@functools.cache
def energy_of(name: str) -> dict[Shape, Drawn]:
    """The energy of an implementation, at the shapes at which all have one."""
    records = energy_cells.firsts(load(MAIN).records)
    shapes = sorted(energy_cells.shared_shapes(records))
    cells = {(each.record.implementation, each.record.shape): each for each in drawn(records)}
    return {shape: cells[name, shape] for shape in shapes}


def energy_ratio(b: str, a: str) -> float:
    """Geometric mean."""
    sides = zip(energy_of(b).values(), energy_of(a).values(), strict=True)
    return math.exp(statistics.fmean(math.log(x.gross_j / y.gross_j) for x, y in sides))


def energy_apart(first: str, second: str) -> float:
    """The median difference of cells that are no estimate in either of two runs."""
    sides = [
        {each.record.cell: each.gross_j for each in drawn(load(name).records) if each.known}
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
    """The ratios in the main run and in its repeat."""
    result = []
    for name, (b, a, batch) in HEADLINES.items():
        ratios = []
        for run in (MAIN, REPEAT):
            times = load(run).times
            times = times if batch is None else times.xs(batch, level="batch")
            ratios.append(mean(times[b] / times[a]))
        result.append((name, ratios[0], ratios[1]))
    return result


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


def _ran(each: Study) -> list[str]:
    run, ok = each.run, int((each.cells["status"] == "ok").sum())
    legs = store.read_legs(run.folder) if run.folder else []
    pairs = sum(known.pairs for known in run.noise)
    floors = sorted(set(noise.applied(run.noise)))
    ends = " to ".join(dict.fromkeys(map(two_digits, (floors[0], floors[-1]))))
    return [
        code(each.name),
        str(run.shapes),
        f"{ok} of {len(each.cells)}",
        str(int((run.cells["status"] == "wrong").sum())),
        span(sum(leg.wall_s for leg in legs)),
        f"up to {int(run.cells['rounds'].max())}",
        str(pairs),
        ends if pairs else "-",
    ]


def versions() -> str:
    """The versions of the main run and of the one on a CPU."""
    columns = []
    for each in map(load, (MAIN, ARM)):
        machine = each.run.manifest["machine"]
        gpu = machine["gpus"][0] if each.run.plan.settings.device == "cuda" else None
        where = f"{gpu['name']}, driver {gpu['driver']}" if gpu else machine["cpu"]
        result: dict[str, dict[str, str]] = {}
        for record in each.records:
            result.setdefault(record.framework, {}).update(record.versions)
        parts = (result[name] for name in ("deepbench", "pytorch", "tensorflow"))
        words = (", ".join(f"{key} {own[key]}" for key in sorted(own)) for own in parts)
        columns.append([where, *words])
    names = ("machine", "C++ baseline", "PyTorch", "TensorFlow")
    rows = [list(row) for row in zip(names, *columns, strict=True)]
    return table(["", code(MAIN), code(ARM)], rows, left=3)


TABLES: dict[str, Callable[[], str]] = {
    "what_to_use": what_to_use,
    "what_to_use_short": what_to_use_short,
    "headroom_short": headroom_short,
    "findings": the_findings,
    "table_2": table_2,
    "energy": energy,
    "repeat": repeat,
    "what_ran": what_ran,
    "versions": versions,
}
