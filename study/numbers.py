"""The numbers that the study's sentences may use, by name: `{{pytorch_over_best}}` in a page.

A ratio is refused (`Stale`) unless it is above 1 and beyond the noise: its sentence says "slower"
or "faster", and must be written anew if the runs no longer do.
"""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from lstm_bench.analysis import noise, summary
from lstm_bench.analysis.comparison import Comparison
from lstm_bench.features.limits import distance as limits
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.units import counted, error, factor, percent, seconds
from lstm_bench.report.paper_table import PAPER
from study import findings, tables
from study.runs import (
    BEST,
    CPU_LAYER,
    DEEPBENCH,
    KERNEL,
    LADDER,
    MAIN,
    MANY,
    PLAIN,
    REPEAT,
    Stale,
    at,
    is_clear,
    load,
    only,
    repeated,
)

CALLED = ("faster", "slower")


class Number(NamedTuple):
    """A value, as it is shown; the run that it is from, and how it is made of that."""

    value: float
    shown: str
    run: str
    how: str


class Book:
    """Numbers by name, each entered once."""

    def __init__(self) -> None:
        self.entries: dict[str, Number] = {}

    def add(self, name: str, value: float, shown: str, how: str, run: str = MAIN) -> None:
        if name in self.entries:
            raise ValueError(f"two numbers are called {name}")
        self.entries[name] = Number(float(f"{value:.6g}"), shown, run, how)

    def count(self, name: str, value: int, how: str, run: str = MAIN) -> None:
        self.add(name, value, f"{value:,}", how, run)

    def slower(
        self, name: str, b: str, a: str, run: str = MAIN, where: str = "", **sizes: int
    ) -> None:
        """How many times longer B takes than A; `where` is `stepwise`, or empty."""
        whole = load(run).against(a, b)
        of = at(whole, **sizes)
        how = f"latency of {b} over {a}"
        how += "".join(f", {axis} {size}" for axis, size in sizes.items())
        if len(whole.shapes) < whole.planned:  # the sentence must say which
            how += f", at {len(of.shapes)} of {counted(whole.planned, 'shape')} of the run"
        if where:
            steps = load(run).stepwise(where)
            of = only(of, lambda shape: shape in steps)
            how += f", where {where} goes step by step"
        self._factor(name, of, f"{how}; geometric mean", run)

    def _factor(self, name: str, of: Comparison, how: str, run: str) -> None:
        value = of.group().ratio.value
        if value <= 1 or not is_clear(of):
            raise Stale(f"{name}: {how} is {value:.3f} in {run}, not above 1 beyond the noise")
        self.add(name, value, factor(value), how, run)


def numbers() -> dict[str, Number]:
    book = Book()
    _ladder(book)
    _cpu_layer(book)
    _kernel(book)
    _headroom(book)
    _precision(book)
    _frameworks(book)
    _paper(book)
    _energy(book)
    _run(book)
    _repeat(book)
    return book.entries


def _ladder(book: Book) -> None:
    for name, b, a in (
        ("drop_in_fp32", "pytorch", "pytorch-persistent"),
        ("drop_in_fp32_for_plain", PLAIN, "pytorch-persistent"),
        ("drop_in_tf32", PLAIN, "pytorch-tf32-persistent"),
        ("graph_tf32", PLAIN, "pytorch-tf32-graph"),
        ("graph_half", PLAIN, "pytorch-half-graph"),
        ("scan_gain", PLAIN, "jax-scan-tf32"),
        ("tf_costs", "tf-mode0-tf32", PLAIN),
        ("keras_costs", "keras-torch", "pytorch"),
        ("xla_costs", "tf-xla", "pytorch"),
        ("bf16_costs", "pytorch-bf16", "pytorch-half"),
        ("drop_in_costs", "pytorch-persistent", "persistent"),
        ("graph_fp32", "pytorch", "pytorch-graph"),
    ):
        book.slower(name, b, a, LADDER)
    for batch in (1, 256):
        book.slower(f"graph_tf32_batch{batch}", PLAIN, "pytorch-tf32-graph", LADDER, batch=batch)
    name = "drop_in_fp32_over_plain"
    book.slower(name, "pytorch-persistent", PLAIN, LADDER, hidden=1024, batch=256)
    won = tables.winners("fp32")
    clear = won[won["verdict"] == "slower"]["fastest"].eq("pytorch-persistent").sum()
    how = "shapes at which pytorch-persistent is the fastest in fp32, beyond the noise"
    book.count("drop_in_wins", int(clear), how, LADDER)
    half = tables.winners("half")
    gain = load(LADDER).times[PLAIN].to_numpy() / half["fastest_s"]
    how = f"latency of {PLAIN} over the fastest where half precision will do; geometric mean"
    book.add("half_best", tables.mean(gain), factor(tables.mean(gain)), how, LADDER)
    graphs, sure = half["fastest"] == "pytorch-half-graph", half["verdict"] == "slower"
    for name, result, what in (
        ("half_graphs", graphs & sure, "pytorch-half-graph is the fastest beyond the noise"),
        ("half_drop_ins", ~graphs & sure, "the drop-in is the fastest beyond the noise"),
        ("half_ties", ~sure, "no choice is"),
    ):
        how = f"shapes at which {what}, where half precision will do"
        book.count(name, int(result.sum()), how, LADDER)
    book.count("ladder_shapes", len(won), "shapes with a time", LADDER)
    count = len(load(LADDER).run.implementations)
    book.count("ladder_rows", count, "implementations", LADDER)
    floors = sorted(set(noise.applied(load(LADDER).run.noise)))
    for name, floor in (("ladder_noise_low", floors[0]), ("ladder_noise_high", floors[-1])):
        book.add(
            name, floor, tables.two_digits(floor), "noise floor, by the length of a call", LADDER
        )


def _cpu_layer(book: Book) -> None:
    ours = "lstm-kernels"
    book.slower("cpu_layer", "pytorch", ours, CPU_LAYER)
    book.slower("cpu_layer_step", "pytorch", ours, CPU_LAYER, timesteps=1)
    book.slower("cpu_layer_long", "pytorch", ours, CPU_LAYER, timesteps=500)
    book.slower("cpu_layer_onnx_step", ours, "onnxruntime", CPU_LAYER, timesteps=1)
    book.slower("cpu_layer_onnx_long", "onnxruntime", ours, CPU_LAYER, timesteps=500)
    count = len(load(CPU_LAYER).against("pytorch", "lstm-kernels").shapes)
    book.count("cpu_layer_shapes", count, "shapes with a time", CPU_LAYER)


def _kernel(book: Book) -> None:
    for name, (best, own) in zip(("fp32", "tf32", "fp16"), tables.KERNELS, strict=True):
        book.slower(f"kernel_{name}", best, own, KERNEL)
        book.slower(f"kernel_deepbench_{name}", best, own, DEEPBENCH)
        book.slower(f"kernel_many_{name}", best, own, MANY, hidden=1024, batch=256)
    for name, own in (("fp32", "persistent"), ("fp16", "persistent-fp16")):
        of = load(DEEPBENCH).against(BEST, own)
        how = f"shapes that {own} can run"
        book.count(f"kernel_deepbench_shapes_{name}", len(of.shapes), how, DEEPBENCH)
    book.count("deepbench_shapes", of.planned, "shapes", DEEPBENCH)
    for batch in (1, 64):
        book.slower(f"kernel_batch{batch}", BEST, "persistent", KERNEL, batch=batch)
    run = load(KERNEL).run
    few = run.cells[run.cells["batch"] <= 64]
    over = limits.means(limits.distances(few, run.limits))
    for name in (BEST, "persistent"):
        how = f"latency of {name} over the limit at batch 1 to 64; geometric mean over shapes"
        book.add(f"limit_{name.split('-')[0]}", over[name], factor(over[name]), how, KERNEL)


def _headroom(book: Book) -> None:
    book.slower("pytorch_over_best", "pytorch", BEST)
    book.slower("pytorch_over_best_batch1", "pytorch", BEST, batch=1)
    book.slower("pytorch_over_best_batch256", "pytorch", BEST, batch=256)
    for name, (b, a) in zip(("cpp", "graph", "algorithm"), pairwise(tables.STEPS), strict=True):
        book.slower(f"{name}_gain_batch1", b, a, where="pytorch", batch=1)
    book.slower("pytorch_itself", "pytorch", "deepbench", where="pytorch")
    stepwise = len(load(MAIN).stepwise("pytorch"))
    book.count("stepwise_shapes", stepwise, "shapes at which pytorch goes step by step, by profile")
    for name in ("pytorch", *findings.MODES):
        share = statistics.fmean(findings.idle(load(MAIN), name))
        how = f"mean share of the latency of {name} in which the GPU is idle"
        book.add(f"idle_{name.replace('-', '_')}", share, percent(share, 0), how)
    for name in findings.MODES[1:]:
        share = findings.launching(load(MAIN), name)
        how = f"mean share of a profiled call of {name} inside the calls that launch"
        book.add(f"launching_{name.replace('-', '_')}", share, percent(share, 0), how)


def _precision(book: Book) -> None:
    for batch in (16, 256):
        book.slower(f"half_gain_batch{batch}", "pytorch", "pytorch-half", batch=batch)
    book.slower("half_loss_batch1", "pytorch-half", "pytorch", batch=1)
    book.slower("amp_over_half", "pytorch-amp", "pytorch-half")
    amp, half = (load(MAIN).profiled(name) for name in ("pytorch-amp", "pytorch-half"))
    adds = statistics.median(amp[s].latency_s - half[s].latency_s for s in amp)
    book.add("amp_adds", adds, seconds(adds), "median of pytorch-amp less pytorch-half, by shape")
    casts = statistics.median(
        amp[s].by_family.get("cast", 0.0) - half[s].by_family.get("cast", 0.0) for s in amp
    )
    book.add("amp_casts", casts, seconds(casts), "median GPU time of the casts of pytorch-amp")
    for key, name, run in (
        ("pytorch", "pytorch", MAIN),
        ("pytorch_half", "pytorch-half", MAIN),
        ("tf32", PLAIN, LADDER),
        ("persistent", "persistent", KERNEL),
    ):
        cells = load(run).cells
        worst = float(cells.loc[cells["implementation"] == name, "max_abs_error"].max())
        how = f"largest error of {name} against float64"
        book.add(f"error_{key}", worst, error(worst), how, run)


def _frameworks(book: Book) -> None:
    main = load(MAIN)
    for kind, rows in tables.FRAMEWORKS.items():
        won = summary.winners(summary.times(main.cells), main.run.noise, among=rows)
        name, wins = Counter(won["fastest"]).most_common(1)[0]
        if wins < len(won):
            raise Stale(f"{name} is the fastest framework in {kind} at {wins} of {len(won)} shapes")
        if kind == "fp32":
            clear = int((won["verdict"] == "slower").sum())
            book.count("wins_fp32", clear, f"shapes at which {name} wins beyond the noise in fp32")
    book.slower("tf_over_pytorch", "tf-mode0", "pytorch")
    book.slower("mode1_over_mode0", "tf-mode1", "tf-mode0")
    book.slower("mode2_over_mode0", "tf-mode2", "tf-mode0")


def _paper(book: Book) -> None:
    result = findings.findings(load(MAIN))
    words = Counter(finding.verdict for finding in result)
    book.count("findings", len(result), "claims of the paper that were tested")
    for name, word in (
        ("hold", findings.HOLDS),
        ("do_not_hold", findings.HOLDS_NOT),
        ("depend", findings.DEPENDS),
        ("open", findings.OPEN),
    ):
        book.count(f"findings_{name}", words[word], f"claims of the paper judged: {word}")
    again = findings.findings(load(REPEAT))
    same = sum(a.verdict == b.verdict for a, b in zip(result, again, strict=True))
    book.count("findings_again", same, "claims of the paper that both runs judge alike", REPEAT)
    wins = load(MAIN).against("tf-mode1", "tf-mode2").group().verdicts["faster"]
    book.count("mode2_wins", wins, "shapes at which tf-mode2 is faster than tf-mode1")
    book.slower("pytorch_over_skip", "pytorch", "deepbench-skip", where="pytorch")
    book.slower("projection_costs", "deepbench", "deepbench-skip", where="pytorch")
    for name, b in (("pytorch", "pytorch"), ("tf", "tf-mode0")):
        value = load(MAIN).against("deepbench-skip", b).group().mpe.value
        book.add(f"mpe_{name}", value, f"{value:.2f}", f"MPE of {b} against deepbench-skip")
        value = next(v for x, y, v in PAPER if (x, y) == ("deepbench", b))
        book.add(f"mpe_{name}_paper", value, f"{value:.2f}", f"MPE of {b}, DeepBench", "the paper")
    share, how = findings.LAUNCH_STATE, "share of mode 1 in TensorBoard's state of kernel launch"
    book.add("launch_state_paper", share, percent(share), how, "the paper")


def _energy(book: Book) -> None:
    shapes = len(tables.energy_of("pytorch"))
    book.count("energy_shapes", shapes, "shapes at which all implementations have an energy")
    for name, b, a in (
        ("tf_over_pytorch", "tf-mode0", "pytorch"),
        ("amp_over_half", "pytorch-amp", "pytorch-half"),
        ("pytorch_over_best", "pytorch", BEST),
        ("pytorch_over_half", "pytorch", "pytorch-half"),
    ):
        ratio, how = tables.energy_ratio(b, a), f"energy of {b} over {a}; geometric mean"
        book.add(f"energy_{name}", ratio, f"{ratio:.1f}x", how)
    idle = statistics.median(
        each.energy.idle_w or 0.0 for each in tables.energy_of("pytorch").values()
    )
    book.add("idle_power", idle, f"{idle:.0f} W", "median power of the idle GPU")
    for name, runs in tables.ENERGY_PAIRS.items():
        apart = tables.energy_apart(*runs)
        how = f"median difference of energy per call from {runs[0]}"
        book.add(f"energy_{name}", apart, percent(apart), how, runs[1])


def _run(book: Book) -> None:
    run = load(MAIN).run
    book.count("shapes", run.shapes, "shapes with a time")
    ok = load(MAIN).cells["status"].eq("ok")
    book.count("cells", int(ok.sum()), "cells with a time, controls apart")
    floors = sorted(set(noise.applied(run.noise)))
    for name, floor in (("noise_low", floors[0]), ("noise_high", floors[-1])):
        book.add(name, floor, tables.two_digits(floor), "noise floor, by the length of a call")
    pairs, different = (
        sum(getattr(each, what) for each in run.noise) for what in ("pairs", "called_different")
    )
    book.count("aa_pairs", pairs, "A/A pairs")
    book.count("aa_called", different, "A/A pairs that are called different")


def _repeat(book: Book) -> None:
    result = repeated()
    for name, bound in (("gpu_bound", True), ("host_bound", False)):
        change = float(result.loc[result["gpu_bound"] == bound, "change"].median())
        how = f"median change of {name.replace('_', '-')} cells from {MAIN}"
        book.add(f"change_{name}", change, percent(change), how, REPEAT)
    largest = max(abs(second / first - 1) for _, first, second in tables.headlines())
    how = "largest change of a ratio in the table of both runs"
    book.add("change_of_ratios", largest, percent(largest, 0), how, REPEAT)
    first, second = (load(name).verdicts(tables.TITLES) for name in (MAIN, REPEAT))
    both = first.merge(second, on=["a", "b", *SHAPE])
    called = both[both["verdict_x"].isin(CALLED)]
    again = called["verdict_y"].isin(CALLED)
    turned = int((again & (called["verdict_x"] != called["verdict_y"])).sum())
    share = (int(again.sum()) - turned) / len(called)
    book.count(
        "verdicts", len(called), "times that one of the main implementations is called faster"
    )
    book.add("verdicts_again", share, percent(share), "share of these that it confirms", REPEAT)
    book.count("verdicts_turned", turned, "how many of these it calls the other way round", REPEAT)
