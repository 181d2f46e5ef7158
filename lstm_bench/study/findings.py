"""Which of the paper's findings hold: the claims, the rule for each, the tables behind them."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from lstm_bench import profile_figures, split
from lstm_bench.comparison import Group
from lstm_bench.kernel_report import SHORT
from lstm_bench.registry import PAPER
from lstm_bench.split import Split
from lstm_bench.study import rules
from lstm_bench.study.section import Section, code, count, figure, table, text
from lstm_bench.study.subject import Runs, Subject, missing, not_in
from lstm_bench.trust import counted
from lstm_bench.units import percent, seconds, times
from lstm_bench.words import Pair, clear, versus

SMALL_BATCH = 16  # where the paper saw mode 1 and mode 2 change places
MANY_STEPS = 1000  # from where it saw mode 1 ahead again
MOSTLY = 0.5  # of a call's time
AMP = ("pytorch", "tf-mode0", "tf-mode1", "tf-mode2")
MODES = ("tf-mode0", "tf-mode1", "tf-mode2")


class Finding(NamedTuple):
    """A claim of the paper in our words, what the run shows, and the word for it."""

    claim: str
    here: str
    word: str


def section(runs: Runs) -> Section:
    title = "Which of the paper's findings hold"
    one = runs.paper
    if not one:
        return Section(title, [missing("h200-paper")])
    found = findings(one)
    counts = Counter(finding.word for finding in found)
    told = (
        f"of {len(found)} findings of the paper {counts[rules.HOLDS]} hold,"
        f" {counts[rules.HOLDS_NOT]} do not, {counts[rules.UNKNOWN]} cannot be told"
    )
    body = [
        f"On the H200, {told}.",
        table(["the paper found", "here", "verdict"], [list(one) for one in found], left=3),
        text(
            "A claim holds if its whole 95% interval lies on its side beyond the noise floor, does"
            " not hold if the whole interval lies off that side, and else cannot be told. Claims on"
            " growth hold the largest size of an axis against the smallest, all other sizes equal."
        ),
        *_amp(one),
        *_modes(one),
        *_launches(one),
    ]
    drawn = figures(one)
    broken = [finding.claim for finding in found if finding.word == rules.HOLDS_NOT]
    rest = f" No longer true: {'; '.join(broken)}." if broken else ""
    return Section(title, body, f"O{told[1:]}.{rest}", drawn)


def figures(one: Subject) -> dict[str, Figure]:
    """The paper's figures 5 and 6, of its rows: what the kernels do, and how long nothing runs."""
    cells = [cell for cell in one.splits if cell.name in PAPER]
    if not one.profiled("pytorch", *MODES):
        return {}
    return {
        "study-activity": profile_figures.activity(one.run, cells),
        "study-kernels": profile_figures.by_family(one.run, cells),
    }


def findings(one: Subject) -> list[Finding]:
    """All claims, in the order of the paper's sections."""
    pytorch, mode0 = AMP[:2]
    return [
        _two("PyTorch beats TensorFlow's mode 0", one, pytorch, mode0, "slower"),
        _largest_batch(one),
        _modes_by_batch(one),
        _modes_at_many_steps(one),
        _generic_modes(one),
        _launching(one),
        _more_kernels(one),
        _two("AMP slows PyTorch on the whole", one, pytorch, "pytorch-amp", "slower"),
        _grows("AMP gains with hidden size in PyTorch", one, pytorch, "hidden"),
        _grows("AMP gains with timesteps in PyTorch", one, pytorch, "timesteps"),
        _grows("AMP gains with hidden size in mode 0", one, mode0, "hidden"),
        _grows("AMP gains with timesteps in mode 0", one, mode0, "timesteps"),
    ]


def _unknown(claim: str, why: str = "not measured") -> Finding:
    return Finding(claim, why, rules.UNKNOWN)


def _judged(group: Group, floor: float, word: str) -> str:
    return (rules.is_slower if word == "slower" else rules.is_faster)(group, floor)


def _two(claim: str, one: Subject, a: str, b: str, word: str) -> Finding:
    """B is `word` than A over all shapes."""
    pair = one.pair(a, b)
    if not pair:
        return _unknown(claim)
    here = f"{b} {versus(pair.whole, pair.floor, interval=False)}"
    return Finding(claim, here, _judged(pair.whole, pair.floor, word))


def _largest_batch(one: Subject) -> Finding:
    claim = "PyTorch beats the library at large batches"
    pair = one.pair("deepbench", "pytorch")
    if not pair:
        return _unknown(claim)
    most = int(pair.of.shapes["batch"].max())
    group = pair.of.group("batch", (most, most))
    here = f"{versus(group, pair.floor, interval=False)} at batch {most}"
    return Finding(claim, here, rules.is_faster(group, pair.floor))


def _between(pair: Pair, axis: str, low: int, high: int) -> Group:
    return pair.of.group(axis, (low, high))


def _modes_by_batch(one: Subject) -> Finding:
    claim = f"mode 1 beats 2 to batch {SMALL_BATCH}, loses above"
    pair = one.pair("tf-mode1", "tf-mode2")
    if not pair:
        return _unknown(claim)
    most = int(pair.of.shapes["batch"].max())
    small = _between(pair, "batch", 1, SMALL_BATCH)
    large = _between(pair, "batch", SMALL_BATCH + 1, most)
    if not small.shapes or not large.shapes:
        return _unknown(claim)
    word = rules.both(rules.is_slower(small, pair.floor), rules.is_faster(large, pair.floor))
    told = [versus(group, pair.floor, interval=False) for group in (small, large)]
    return Finding(claim, f"mode 2 {told[0]}, then {told[1]}", word)


def _modes_at_many_steps(one: Subject) -> Finding:
    claim = f"mode 1 beats mode 2 from {MANY_STEPS} timesteps"
    pair = one.pair("tf-mode1", "tf-mode2")
    most = int(pair.of.shapes["timesteps"].max()) if pair else 0
    if not pair or most < MANY_STEPS:
        return _unknown(claim)
    group = _between(pair, "timesteps", MANY_STEPS, most)
    here = f"mode 2 {versus(group, pair.floor)}"
    return Finding(claim, here, rules.is_slower(group, pair.floor))


def _generic_modes(one: Subject) -> Finding:
    claim = "modes 1 and 2 are slower than mode 0"
    pairs = [one.pair("tf-mode0", name) for name in MODES[1:]]
    found = [pair for pair in pairs if pair]
    if len(found) < 2:
        return _unknown(claim)
    told = [times(pair.whole.ratio.value) for pair in found]
    words = [rules.is_slower(pair.whole, pair.floor) for pair in found]
    faster = sum(pair.whole.verdicts["faster"] for pair in found)
    here = f"{told[0]} and {told[1]}; faster at {counted(faster, 'shape')}"
    return Finding(claim, here, rules.both(*words))


def _launching(one: Subject) -> Finding:
    """By the paper's own measure, the share of launches; the GPU's idle share stands beside it."""
    claim = "modes 1 and 2 mostly launch kernels"
    cells = one.profiled(*MODES[1:])
    known = [c for c in cells if not math.isnan(c.launching) and c.profile.launches]
    rows = split.by_name(known)
    if len(rows) < 2:
        return _unknown(claim, "launches not profiled")
    found = [rules.mean([c.launching for c in own]) for own in rows.values()]
    idle = [percent(statistics.fmean(c.idle for c in own), 0) for own in rows.values()]
    told = [percent(share.value, 0) for share in found]
    here = f"launching {told[0]}, {told[1]}; GPU idle {idle[0]}, {idle[1]}"
    return Finding(claim, here, rules.both(*(rules.is_over(share, MOSTLY) for share in found)))


def _more_kernels(one: Subject) -> Finding:
    claim = "mode 0 runs more kernels than PyTorch"
    cells = split.by_name(one.profiled("pytorch", "tf-mode0"))
    if not cells:
        return _unknown(claim, "not profiled")
    counts = [{c.shape: c.profile.kernels for c in own} for own in cells.values()]
    more = sum(counts[1][shape] > counts[0][shape] for shape in counts[0])
    middle = [statistics.median(own.values()) for own in counts]
    here = f"{count(middle[1])} to {count(middle[0])}; at {more} of {len(counts[0])} shapes"
    # kernels are counted, not timed: no noise
    return Finding(claim, here, rules.HOLDS if more == len(counts[0]) else rules.HOLDS_NOT)


def _grows(claim: str, one: Subject, name: str, axis: str) -> Finding:
    """What AMP gains is larger at the far end of an axis."""
    pair = one.pair(name, name + "-amp")
    found = rules.trend(pair, axis) if pair else None
    if not found:
        return _unknown(claim)
    ends = f"{_gain(found.at_low)} at {found.low}, {_gain(found.at_high)} at {found.high}"
    return Finding(claim, ends, found.falls)


def _gain(ratio: float) -> str:
    return f"{times(1 / ratio)} faster" if ratio < 1 else f"{times(ratio)} slower"


def _amp(one: Subject) -> list[str]:
    """What AMP gains by hidden size and by timesteps, and what the device says to it."""
    pairs = {name: pair for name in AMP if (pair := one.pair(name, name + "-amp"))}
    if not pairs:
        return []
    rows = []
    for axis in ("hidden", "timesteps"):
        values = sorted({int(v) for pair in pairs.values() for v in pair.of.shapes[axis]})
        for value in values:
            groups = [(pair.of.group(axis, (value, value)), pair.floor) for pair in pairs.values()]
            rows.append([f"{axis} {value}", *(_factor(*found) for found in groups)])
    words = []
    for axis in ("hidden", "timesteps"):
        found = [rules.trend(pair, axis) for pair in pairs.values()]
        words.append([f"grows with {axis}", *(t.falls if t else "-" for t in found)])
    return [
        "### AMP by hidden size and by timesteps",
        table(["how many times faster with AMP", *map(code, pairs)], rows + words),
        "Below 1x AMP is slower. In brackets: not beyond the noise as a whole.",
        *_amp_why(one),
    ]


def _factor(group: Group, floor: float) -> str:
    if not group.shapes:
        return "-"
    shown = times(1 / group.ratio.value)
    return shown if clear(group, floor) else f"({shown})"


def _amp_why(one: Subject) -> list[str]:
    """The device's side of PyTorch's AMP, by hidden size."""
    cells = one.profiled("pytorch", "pytorch-amp")
    if not cells:
        return [not_in(one.run, "profiles")]
    rows, ends = [], []
    for hidden in sorted({c.shape.hidden for c in cells}):
        full, amp = _at(cells, hidden, "pytorch"), _at(cells, hidden, "pytorch-amp")
        busy = [statistics.median(c.busy_s for c in own) for own in (full, amp)]
        ratio = _busy_ratio(full, amp)
        moved = statistics.fmean(_share(c, "cast", "repack", "copy", "fill") for c in amp)
        rows.append(
            [
                str(hidden),
                *map(seconds, busy),
                times(ratio),
                *(percent(statistics.fmean(c.idle for c in own), 0) for own in (full, amp)),
                percent(moved, 0),
                *(f"{_persistent(own)} of {len(own)}" for own in (full, amp)),
            ]
        )
        ends.append(
            f"at hidden {hidden} AMP's device time is {times(ratio)} that of fp32, and"
            f" {percent(moved, 0)} of it is casting and moving"
        )
    heads = [
        "hidden",
        "busy fp32",
        "AMP",
        "ratio",
        "idle fp32",
        "AMP",
        "AMP moves",
        "one kernel fp32",
        "AMP",
    ]
    return [
        text(f"Why, by the kernels of PyTorch: {ends[0]}; {ends[-1]}." if len(ends) > 1 else ""),
        table(heads, rows, left=0),
        text(
            "Busy: time in which something ran on the GPU, the median over shapes; idle: share of"
            " the latency in which nothing did; AMP moves: casts, repacking, copies and fills, of"
            " its kernels' time; one kernel: shapes at which one kernel holds the whole recurrence."
        ),
        _mode0_why(one),
    ]


def _mode0_why(one: Subject) -> str:
    """Whether what AMP saves on the device can be seen through the host in TensorFlow's mode 0."""
    cells = split.by_name(one.profiled("tf-mode0", "tf-mode0-amp"))
    if not cells:
        return ""
    full, amp = cells["tf-mode0"], cells["tf-mode0-amp"]
    ratio = _busy_ratio(full, amp)
    idle = [percent(statistics.fmean(c.idle for c in own), 0) for own in (full, amp)]
    return text(
        f"In TensorFlow's mode 0 AMP's device time is {times(ratio)} that of fp32 over all shapes,"
        f" while the GPU idles {idle[0]} of a call in fp32 and {idle[1]} with AMP."
    )


def _busy_ratio(first: Sequence[Split], second: Sequence[Split]) -> float:
    """Geometric mean of the second's busy time over the first's, shape by shape."""
    before = {one.shape: one.busy_s for one in first}
    logs = [math.log(one.busy_s / before[one.shape]) for one in second]
    return math.exp(statistics.fmean(logs))


def _at(cells: Sequence[Split], hidden: int, name: str) -> list[Split]:
    return [c for c in cells if c.shape.hidden == hidden and c.name == name]


def _share(cell: Split, *families: str) -> float:
    return sum(cell.by_family.get(name, 0.0) for name in families) / (cell.parts_s or 1.0)


def _persistent(cells: Sequence[Split]) -> int:
    return sum("persistent" in cell.by_family for cell in cells)


def _modes(one: Subject) -> list[str]:
    """Mode 1 against mode 2 by batch and by timesteps."""
    pair = one.pair("tf-mode1", "tf-mode2")
    if not pair:
        return []
    rows = []
    for axis in ("batch", "timesteps"):
        for value in sorted(set(map(int, pair.of.shapes[axis]))):
            group, words = (
                pair.of.group(axis, (value, value)),
                pair.of.group(axis, (value, value)).verdicts,
            )
            ratio = group.ratio
            told = f"{times(ratio.value)} [{ratio.low:.2f}, {ratio.high:.2f}]"
            counts = [str(words[word]) for word in ("faster", "same", "unsure", "slower")]
            rows.append([f"{axis} {value}", str(group.shapes), told, *counts])
    heads = ["", "shapes", "mode 2 / mode 1", "faster", "same", "unsure", "slower"]
    return [
        "### Mode 1 against mode 2",
        table(heads, rows),
        "Geometric mean of latency with its 95% interval; faster, slower: mode 2 beyond the noise.",
        _modes_why(one),
    ]


def _modes_why(one: Subject) -> str:
    """What the device sees of the two."""
    cells = split.by_name(one.profiled(*MODES[1:]))
    if not cells:
        return ""
    told = []
    for name, own in cells.items():
        steps = statistics.median(c.profile.kernels / c.shape.timesteps for c in own)
        busy = statistics.fmean(1 - c.idle for c in own)
        told.append(
            f"{code(name)} runs {count(steps)} kernels a step and keeps the GPU busy"
            f" {percent(busy, 0)} of a call"
        )
    return text(f"Why: {'; '.join(told)}.")


def _launches(one: Subject) -> list[str]:
    """Kernels, launches and idle time of TensorFlow's modes beside PyTorch."""
    title = "### Launches"
    four = "pytorch", *MODES
    cells = one.profiled("deepbench", *four) or one.profiled(*four)
    if not cells:
        return [title, not_in(one.run, "profiles")]
    rows = []
    for row in split.device_rows(cells):
        own = [c for c in cells if c.name == row["implementation"]]
        steps = statistics.median(c.profile.kernels / c.shape.timesteps for c in own)
        rows.append(
            [
                code(row["implementation"]),
                count(row["kernels"]),
                count(steps),
                count(row["launches"]) if row["launches"] else "-",
                *(percent(row[key], 0) for key in ("active", "moving", "idle", "launching")),
            ]
        )
    idle = {row[0]: row[6] for row in rows}
    heads = ["row", "kernels", "per step", "launches", "active", "moving", "idle", "launching"]
    return [
        title,
        text(
            f"The GPU idles {idle[code('pytorch')]} of a call of PyTorch,"
            f" {idle[code('tf-mode0')]} in mode 0, {idle[code('tf-mode1')]} in mode 1 and"
            f" {idle[code('tf-mode2')]} in mode 2."
        ),
        table(heads, rows),
        text(
            f"Per call, over the {len({c.shape for c in cells})} shapes of which all have a"
            " profile: counts are medians, shares means. Active: a kernel ran; moving: only copies"
            " or fills ran; idle: nothing did; launching: the host's share inside"
            " launches, in profiled calls."
        ),
        figure("study-activity", "How long the GPU is active and idle in a call, by row"),
        *_families(cells),
        figure("study-kernels", "What the GPU runs in one call, by row"),
    ]


def _families(cells: Sequence[Split]) -> list[str]:
    """What the device's time goes into, as far as it is not nothing."""
    rows = split.family_rows(cells)
    there = [
        name
        for name in rows[0]
        if name != "implementation" and any(row[name] > 0.005 for row in rows)
    ]
    shown = [[code(row["implementation"]), *(percent(row[n], 0) for n in there)] for row in rows]
    return [
        "What the kernels' time goes into:",
        table(["row", *(SHORT.get(name, name) for name in there)], shown),
    ]
