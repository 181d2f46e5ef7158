"""What AMP gains: by size, by the algorithm that it makes PyTorch choose, and why."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from lstm_bench.study import rules, twins
from lstm_bench.study.section import code, table, text
from lstm_bench.study.subject import Subject, not_in, tf32
from lstm_bench.study.twins import Twins
from lstm_bench.units import percent, seconds, signed, times
from lstm_bench.words import Pair

ROWS = ("pytorch", "tf-mode0", "tf-mode1", "tf-mode2")
AXES = ("hidden", "batch", "timesteps")


def with_amp(name: str) -> str:
    return f"{name}-amp"


def parts(one: Subject) -> list[str]:
    """The tables under the findings."""
    pairs = {name: pair for name in ROWS if (pair := one.pair(name, with_amp(name)))}
    if not pairs:
        return []
    return [
        "### AMP by size",
        _by_size(pairs),
        text(
            "Geometric means; below 1x AMP is slower. In brackets: not beyond the noise as a whole."
            " Grows: the largest size against the smallest, all other sizes equal.",
            tf32(one.run, "AMP"),
        ),
        *(_pytorch(one, pairs[ROWS[0]]) if ROWS[0] in pairs else []),
        *(_mode0(one, pairs[ROWS[1]]) if ROWS[1] in pairs else []),
    ]


def _by_size(pairs: Mapping[str, Pair]) -> str:
    rows = []
    for axis in AXES:
        for value in sorted({int(v) for pair in pairs.values() for v in pair.of.shapes[axis]}):
            rows.append([f"{axis} {value}", *(gain(p, axis, value) for p in pairs.values())])
    for axis in AXES:
        found = [rules.trend(pair, axis) for pair in pairs.values()]
        rows.append([f"grows with {axis}", *(t.falls if t else "-" for t in found)])
    return table(["times faster with AMP", *map(code, pairs)], rows)


def gain(pair: Pair, axis: str = "all", value: int = 0) -> str:
    """How many times faster B is; in brackets if that is not clear."""
    return twins.factor(pair, axis, value, faster=True)


def _pytorch(one: Subject, pair: Pair) -> list[str]:
    """What AMP changes in PyTorch besides the precision."""
    found = twins.of_rows(one, pair.of.a, pair.of.b)
    if not found.cells:
        return [not_in(one.run, "profiles")]
    return [
        text(_changed(found)),
        _one_kernel(found),
        text(_same_algorithm(found, pair)),
        _by_algorithm(found, pair),
        text(
            "The last columns are AMP's gain at a hidden size. GPU time: AMP's over that of fp32."
        ),
        text(f"Why, by the profiles of PyTorch (medians): {_ends(found, pair)}."),
        _by_hidden(found),
        text(
            "Busy: time in which something ran on the GPU, the median over shapes; ratio: the"
            " geometric mean; host adds: to latency less busy, the median; idle: mean share of the"
            " latency in which the GPU did nothing; AMP moves: casts, repacking, copies and fills,"
            " of its kernels' time."
        ),
    ]


def _changed(found: Twins) -> str:
    """Whether AMP changes more than the precision."""
    other = sum(full.in_one != amp.in_one for full, amp in found.cells)
    told = f"With AMP PyTorch runs another algorithm at {other} of {len(found.cells)} shapes"
    told += ": there what AMP gains is not the precision's alone." if other else "."
    return f"{told} Which of the two runs the whole recurrence in one kernel:"


def _one_kernel(found: Twins) -> str:
    batches = found.values("batch")
    rows = [
        [str(hidden), *(_who(found.at("hidden", hidden).at("batch", batch)) for batch in batches)]
        for hidden in found.values("hidden")
    ]
    return table(["hidden", *(f"batch {batch}" for batch in batches)], rows, left=0)


def _who(found: Twins) -> str:
    """Which of the two does at these shapes, which differ in timesteps."""
    if not found.cells:
        return "-"
    kinds = {(a.in_one, b.in_one) for a, b in found.cells}
    if len(kinds) > 1:
        counts = [sum(cell.in_one for cell in side) for side in zip(*found.cells, strict=True)]
        return f"fp32 {counts[0]}, AMP {counts[1]} of {len(found.cells)}"
    return {
        (True, True): "both",
        (True, False): "fp32 only",
        (False, True): "AMP only",
        (False, False): "neither",
    }[kinds.pop()]


def _same_algorithm(found: Twins, pair: Pair) -> str:
    """Whether the gain grows with the hidden size where AMP changes nothing but the precision."""
    alike = found.by_algorithm("fp32", "AMP").get(twins.STEPWISE)
    trend = rules.trend(twins.over(pair, alike.shapes), "hidden") if alike else None
    if not trend:
        return ""
    return (
        f"Does AMP gain with hidden size where both go step by step? {_ANSWERS[trend.falls]}:"
        f" {times(1 / trend.at_low)} at {trend.low}, {times(1 / trend.at_high)} at {trend.high}."
    )


_ANSWERS = {rules.HOLDS: "Yes", rules.HOLDS_NOT: "No", rules.UNKNOWN: "That cannot be told"}


def _by_algorithm(found: Twins, pair: Pair) -> str:
    sizes = found.values("hidden")
    rows = []
    for name, own in found.by_algorithm("fp32", "AMP").items():
        here = twins.over(pair, own.shapes)
        by_size = (gain(here, "hidden", hidden) for hidden in sizes)
        rows.append([name, str(here.whole.shapes), gain(here), times(own.busy), *by_size])
    heads = ["the recurrence", "shapes", "AMP gains", "GPU time"]
    return table([*heads, *(f"at {hidden}" for hidden in sizes)], rows)


def _ends(found: Twins, pair: Pair) -> str:
    sizes = found.values("hidden")
    told = [
        f"at hidden {hidden} AMP {twins.why(found.at('hidden', hidden), pair)}"
        for hidden in dict.fromkeys((sizes[0], sizes[-1]))
    ]
    return "; ".join(told)


def _by_hidden(found: Twins) -> str:
    rows = []
    for hidden in found.values("hidden"):
        own = found.at("hidden", hidden)
        sides = list(zip(*own.cells, strict=True))
        moves = statistics.fmean(twins.moved(amp) / (amp.parts_s or 1.0) for amp in sides[1])
        rows.append(
            [
                str(hidden),
                *(seconds(statistics.median(c.busy_s for c in side)) for side in sides),
                times(own.busy),
                signed(own.more(twins.host)),
                *own.idle,
                percent(moves, 0),
            ]
        )
    heads = ["hidden", "busy fp32", "AMP", "ratio", "host adds", "idle fp32", "AMP", "AMP moves"]
    return table(heads, rows, left=0)


def _mode0(one: Subject, pair: Pair) -> list[str]:
    """Whether what AMP saves on the GPU can be seen through the host in TensorFlow's mode 0."""
    found = twins.of_rows(one, pair.of.a, pair.of.b)
    if not found.cells:
        return []
    return [text(f"In TensorFlow's mode 0, over all shapes, AMP {twins.why(found, pair)}.")]
