"""TensorFlow's modes: why mode 0 is not PyTorch though both call cuDNN, and mode 1 against 2."""

from __future__ import annotations

import math

from lstm_bench.study import twins
from lstm_bench.study.section import count, table, text
from lstm_bench.study.subject import Subject, not_in
from lstm_bench.study.twins import Twins
from lstm_bench.units import listed, percent, seconds, signed, times
from lstm_bench.words import Pair

PYTORCH = "pytorch"
MODES = ("tf-mode0", "tf-mode1", "tf-mode2")


def parts(one: Subject) -> list[str]:
    """The tables under the findings."""
    return [*_mode0(one), *_generic(one)]


def _mode0(one: Subject) -> list[str]:
    """Mode 0 against PyTorch: by algorithm, by timesteps, and what it does besides."""
    pair = one.pair(PYTORCH, MODES[0])
    if not pair:
        return []
    title = "### Mode 0 against PyTorch"
    found = twins.of_rows(one, PYTORCH, MODES[0])
    if not found.cells:
        return [title, not_in(one.run, "profiles")]
    return [
        title,
        text(_mode0_why(found, pair)),
        _by_algorithm(found, pair),
        text(
            "Latency and GPU time: mode 0's over PyTorch's, geometric means. GPU's share: of what"
            " mode 0 takes longer; host adds: to latency less GPU time; kernels: how many more mode"
            " 0 runs; all three are medians."
        ),
        *_extra(found),
    ]


def _mode0_why(found: Twins, pair: Pair) -> str:
    """How much of the difference is the GPU's, and how much its further kernels."""
    told = f"Mode 0 against PyTorch: {twins.outcome(pair)}."
    share = found.explains(twins.busy)
    if math.isnan(share):
        return told
    told += f" Of its extra time {percent(share, 0)} is the GPU's and the rest the host's."
    alike = found.by_algorithm("PyTorch", "mode 0").get(twins.STEPWISE)
    moves = _moves(alike) if alike else []
    if not alike or not moves or math.isnan(alike.explains(twins.busy)):
        return f"{told} (Medians.)"
    more = alike.more(twins.kernels)
    explained = percent(alike.explains(twins.moved, *moves), 0)
    return (
        f"{told} Where both go step by step it runs {count(abs(more))}"
        f" {'more' if more >= 0 else 'fewer'} kernels; GPU time of"
        f" {listed(moves)} is {seconds(alike.more(twins.moved, *moves))} more, which explains"
        f" {explained} of what mode 0 takes longer. (Medians.)"
    )


def _moves(found: Twins) -> list[str]:
    """What mode 0 has more of than PyTorch among that which computes nothing."""
    return [f for f in twins.MOVES if found.more(twins.moved, f) > 0]


def _by_algorithm(found: Twins, pair: Pair) -> str:
    rows = []
    for name, own in found.by_algorithm("PyTorch", "mode 0").items():
        rows.append(_line(name, own, pair))
        steps = own.values("timesteps")
        rows += [_line(f"- timesteps {t}", own.at("timesteps", t), pair) for t in steps]
    heads = ["the recurrence", "shapes", "latency", "GPU time", "GPU's share", "host adds"]
    return table([*heads, "kernels"], rows)


def _line(label: str, own: Twins, pair: Pair) -> list[str]:
    here = twins.over(pair, own.shapes)
    return [
        label,
        str(here.whole.shapes),
        twins.factor(here),
        times(own.busy),
        percent(own.explains(twins.busy), 0),
        signed(own.more(twins.host)),
        f"{own.more(twins.kernels):+,.0f}",
    ]


def _extra(found: Twins) -> list[str]:
    """What mode 0 moves on the GPU beyond PyTorch, by hidden size."""
    moves = _moves(found)
    if not moves:
        return []
    rows = []
    for hidden in found.values("hidden"):
        own = found.at("hidden", hidden)
        more = [own.more(twins.moved, f) for f in moves]
        rows.append([str(hidden), *map(signed, more), signed(own.more(twins.busy))])
    return [
        "How much more GPU time mode 0 takes than PyTorch, per call (medians):",
        table(["hidden", *moves, "in all"], rows, left=0),
    ]


def _generic(one: Subject) -> list[str]:
    """Mode 1 against mode 2 by batch and by timesteps."""
    pair = one.pair(*MODES[1:])
    if not pair:
        return []
    rows = []
    for axis in ("batch", "timesteps"):
        for value in sorted(set(map(int, pair.of.shapes[axis]))):
            group = pair.of.group(axis, (value, value))
            ratio, words = group.ratio, group.verdicts
            told = f"{times(ratio.value)} [{ratio.low:.2f}, {ratio.high:.2f}]"
            counts = [str(words[word]) for word in ("faster", "same", "unsure", "slower")]
            rows.append([f"{axis} {value}", str(group.shapes), told, *counts])
    heads = ["over", "shapes", "mode 2 / mode 1", "faster", "same", "unsure", "slower"]
    return [
        "### Mode 1 against mode 2",
        table(heads, rows),
        "Geometric mean of latency with its 95% interval; faster, slower: mode 2 beyond the noise.",
        _generic_why(one, pair),
    ]


def _generic_why(one: Subject, pair: Pair) -> str:
    """Fewer kernels gain only as far as each costs the host no more."""
    found = twins.of_rows(one, *MODES[1:])
    if not found.cells:
        return ""
    sides = list(zip(*found.cells, strict=True))
    steps = [twins.geometric(twins.kernels(c) / c.shape.timesteps for c in own) for own in sides]
    costs = [twins.geometric(twins.host_per_kernel(c) for c in own) for own in sides]
    fewer, dearer = steps[1] < steps[0], costs[1] > costs[0]
    ratio = max(steps) / min(steps)
    return text(
        f"Why: mode 2 runs {times(ratio)} {'fewer' if fewer else 'more'} kernels than mode 1"
        f" ({count(steps[1])} a step against {count(steps[0])}),"
        f" {'but' if fewer == dearer else 'and'} each costs the host"
        f" {'more' if dearer else 'less'} time, {seconds(costs[1])} against {seconds(costs[0])}:"
        f" latency less GPU time, per kernel. Mode 2's GPU time is {times(found.busy)} that of mode"
        f" 1; the GPU idles {found.idle[0]} of a call in mode 1 and {found.idle[1]} in mode 2. In"
        f" all mode 2 against mode 1: {twins.outcome(pair)}. (Geometric means; idle: means.)"
    )
