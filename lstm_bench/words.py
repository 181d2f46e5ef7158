"""What a run says, in sentences; only what stands beyond its noise.

Pure functions of a run. A difference is told if the whole 95% interval of the geometric mean is
beyond the noise floor; everything else is "no clear difference".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from lstm_bench import analysis
from lstm_bench import machine as machines
from lstm_bench.comparison import Comparison, Group, clear, compare
from lstm_bench.intervals import FEWEST_SHAPES
from lstm_bench.model import Implementation
from lstm_bench.noise import SHAPE
from lstm_bench.results import Run
from lstm_bench.trust import measured
from lstm_bench.units import counted, listed, seconds, single

TITLES = {
    "deepbench": "C++",
    "persistent": "our kernels",
    "pytorch": "PyTorch",
    "tensorflow": "TensorFlow",
}
STRONGLY = 1.5  # by how much the ratio must change along the batch to be worth a word


class Row(NamedTuple):
    """An implementation as it was measured."""

    name: str
    plan: Implementation
    precision: str


class Pair(NamedTuple):
    """B against A, and the statistics over all their shapes."""

    of: Comparison
    whole: Group

    @property
    def floor(self) -> float:
        """The noise floor that the statistics must be beyond."""
        return float(self.of.shapes["floor"].median())

    @property
    def clear(self) -> bool:
        return clear(self.whole, self.floor)

    @property
    def both_ways(self) -> bool:
        """Whether each is faster somewhere, beyond the noise."""
        return bool(self.whole.verdicts["faster"] and self.whole.verdicts["slower"])

    @property
    def one_way(self) -> str:
        """What B is beyond the noise at some shapes and never the other way; empty: neither."""
        called = [word for word in ("faster", "slower") if self.whole.verdicts[word]]
        return called[0] if len(called) == 1 else ""


class Pairs:
    """The comparisons of a run's latency, each made once."""

    def __init__(self, run: Run):
        self._cells = run.cells[run.cells["copy"] == 1]
        self._floors = [run.noise]
        self._made: dict[tuple[str, str], Pair | None] = {}
        ok = measured(run.cells)
        keys = zip(ok["implementation"], *(ok[c] for c in (*SHAPE, "pass_number")), strict=True)
        self._shapes: dict[str, set[tuple[int, ...]]] = {}
        for name, *shape in keys:
            self._shapes.setdefault(name, set()).add(tuple(shape))

    def __call__(self, a: str, b: str) -> Pair | None:
        """B against A; None if they have no shape in common."""
        if (a, b) not in self._made:
            both = self._shapes.get(a, set()) & self._shapes.get(b, set())
            self._made[a, b] = self._compared(a, b) if both else None
        return self._made[a, b]

    def _compared(self, a: str, b: str) -> Pair:
        of = compare(self._cells, a, b, across=None, floors=self._floors)
        return Pair(of, of.group())


def subject(run: Run) -> str:
    """What was measured, where and under which settings, in one line."""
    plan = run.plan
    machine = run.manifest["machine"]
    gpus = machine.get("gpus") or []
    where = str(machine.get("cpu", "an unknown CPU"))
    if plan.settings.device == "cuda":
        where = str(gpus[0].get("name", "GPU")) if gpus else machines.UNSEEN
    if plan.settings.device == "cpu":
        where += f", {counted(plan.settings.threads, 'thread')}"
    shapes = counted(run.shapes, "shape")
    if run.shapes < len(plan.shapes):
        shapes = f"{run.shapes} of {counted(len(plan.shapes), 'planned shape')}"
    names = counted(run.cells["implementation"].nunique(), "implementation")
    tf32 = "on" if plan.settings.tf32 else "off"
    return f"{names} at {shapes} on {where}; TF32 {tf32}, seed {plan.settings.seed}"


def findings(run: Run, pairs: Pairs | None = None) -> list[str]:
    """Who wins, what each framework costs, what lower precision gains."""
    rows = _rows(run)
    if not rows:
        return ["Nothing was measured: no cell of this run has a time."]
    of = analysis.times(run.cells)
    if len(rows) == 1:
        middle = seconds(float(np.nanmedian(of.seconds)))
        shapes = counted(len(of.shapes), "shape")
        return [
            f"Only {rows[0].name} was measured, so there is nothing to hold it against;"
            f" its median latency over {shapes} is {middle}."
        ]
    pairs = pairs or Pairs(run)
    baseline = next((r for r in rows if r.name == analysis.baseline_of(of.names)), rows[0])
    equal = [r for r in rows if _same_work(r, baseline)]
    told = _costs(equal, baseline, pairs)
    told += _left_on_the_table(equal, baseline, pairs)
    told += _lower_precision(rows, pairs)
    if told:
        told.append(
            "Factors are geometric means of latency over the shapes that both sides have, with"
            " their 95% intervals; what is not beyond the noise is no clear difference."
        )
    return _wins(run, rows) + told


def factor(value: float) -> str:
    """A factor with two digits: 1.07x, 8.1x, 33x, 216x."""
    if value < 1.995:
        return f"{value:.2f}x"
    return f"{value:.1f}x" if value < 9.95 else f"{value:.0f}x"


def _rows(run: Run) -> list[Row]:
    """The implementations that have any latency, in the plan's order."""
    first = measured(run.cells).drop_duplicates("implementation").set_index("implementation")
    known = [row for row in run.plan.implementations if row.name in first.index]
    return [Row(row.name, row, str(first["precision"][row.name])) for row in known]


def _same_work(row: Row, other: Row) -> bool:
    return (row.precision, row.plan.computes) == (other.precision, other.plan.computes)


def versus(group: Group, floor: float, interval: bool = True) -> str:
    """`2.4x slower (1.8x to 3.2x)`, or that nothing can be said."""
    if not clear(group, floor):
        return "no clear difference"
    value, low, high = group.ratio.value, group.ratio.low, group.ratio.high
    word = "slower"
    if value < 1:
        word, value, low, high = "faster", 1 / value, 1 / high, 1 / low
    ends = f" ({factor(low)} to {factor(high)})" if interval else ""
    return f"{factor(value)} {word}{ends}"


def _told(pairs: Sequence[Pair]) -> str:
    """All Bs against their As: what is clear with its factor, what goes both ways, the rest."""
    sure = [f"{pair.of.b} {versus(pair.whole, pair.floor)}" for pair in pairs if pair.clear]
    sure += [_both_ways(pair) for pair in pairs if not pair.clear and pair.both_ways]
    sure += [_at_some(pair) for pair in pairs if not pair.clear and pair.one_way]
    rest = [p.of.b for p in pairs if not (p.clear or p.both_ways or p.one_way)]
    if len(pairs) == len(rest) == 1:
        ratio = pairs[0].whole.ratio
        ends = f"{factor(ratio.low)} to {factor(ratio.high)}"
        return f"no clear difference, {rest[0]} takes {ends} its time"
    parts = [listed(sure)] if sure else []
    return "; ".join([*parts, f"no clear difference for {listed(rest)}"] if rest else parts)


def _at_some(pair: Pair) -> str:
    """`tf-mode2 slower at 2 of 3 shapes`, the others within the noise."""
    count = pair.whole.verdicts[pair.one_way]
    return f"{pair.of.b} {pair.one_way} at {count} of {pair.whole.shapes} shapes"


def _both_ways(pair: Pair) -> str:
    """`pytorch-amp faster at 15 and slower at 16 of 38 shapes`, with the ends of the range."""
    words, ratios = pair.whole.verdicts, pair.of.shapes["ratio"]
    ends = f"{factor(1 / ratios.min())} faster to {factor(ratios.max())} slower"
    return (
        f"{pair.of.b} faster at {words['faster']} and slower at {words['slower']}"
        f" of {pair.whole.shapes} shapes ({ends})"
    )


def _best(rows: Sequence[Row], baseline: Row, pairs: Pairs) -> Row | None:
    """The row that beats the baseline by the most, if any does beyond the noise."""
    best, lowest = None, 1.0
    for row in rows:
        pair = pairs(baseline.name, row.name) if row is not baseline else None
        if pair and pair.clear and pair.whole.ratio.value < lowest:
            best, lowest = row, pair.whole.ratio.value
    return best


def _wins(run: Run, rows: Sequence[Row]) -> list[str]:
    """Who is fastest at most shapes, among rows of like precision."""
    won = analysis.contests(analysis.times(run.cells), run.noise)
    won = won[won["verdict"] != "alone"]
    one_kind = single(analysis.kind_of(row.precision) for row in rows)
    return [
        _most_wins(part, "" if one_kind else f"in {kind} precision ")
        for kind, part in won.groupby("precision", sort=False)
    ]


def _most_wins(won: pd.DataFrame, where: str) -> str:
    """The most frequent winner, its wins, the others', and what is too close."""
    shapes = counted(len(won), "shape")
    ranked = Counter(won.loc[won["verdict"] == "slower", "fastest"]).most_common()
    if not ranked:
        text = f"{where}at none of {shapes} does the fastest implementation stand clear of the next"
        return f"{text[0].upper()}{text[1:]} beyond the noise."
    (top, wins), *others = ranked[:3]
    text = f"{where.capitalize()}{top} is the fastest beyond the noise at {wins} of {shapes}"
    if others:
        text += "; " + listed(f"{name} wins {count}" for name, count in others)
    close = int((won["verdict"] != "slower").sum())
    return text + (f"; at {close} the first two are too close to call." if close else ".")


def _costs(rows: Sequence[Row], baseline: Row, pairs: Pairs) -> list[str]:
    """What each framework costs against the baseline, and where the batch changes that."""
    result = []
    for framework in dict.fromkeys(row.plan.framework for row in rows):
        mine = [r for r in rows if r.plan.framework == framework and r is not baseline]
        found = [pair for row in mine if (pair := pairs(baseline.name, row.name))]
        if found:
            title = TITLES.get(framework, framework)
            if framework == baseline.plan.framework:
                title = f"The other {title} rows"
            result.append(f"{title} against {baseline.name}: {_told(found)}{_batches(found)}.")
    return result


def _left_on_the_table(rows: Sequence[Row], baseline: Row, pairs: Pairs) -> list[str]:
    """How much faster the best row of a precision is than what each framework runs by default."""
    best = _best(rows, baseline, pairs)
    if not best:
        return []
    parts = []
    seen = {best.plan.framework, baseline.plan.framework}
    for row in rows:
        if row.plan.framework in seen:
            continue
        seen.add(row.plan.framework)
        pair = pairs(row.name, best.name)
        if pair and pair.clear:
            _, batches = _by_batch(pair)
            told = f"{versus(pair.whole, pair.floor)} than {row.name}"
            parts.append(f"{told} ({batches})" if batches else told)
    if not parts:
        return []
    told = listed(parts, ", and ")
    return [
        f"{best.name}, the fastest row in {best.precision} as a whole, against what frameworks run"
        f" by default: {told}."
    ]


def _lower_precision(rows: Sequence[Row], pairs: Pairs) -> list[str]:
    """What AMP and half precision gain or lose against the same row in single precision."""
    result = []
    for kind, title in (("amp", "AMP"), ("fp16", "Half precision")):
        found = []
        for row in rows:
            full = next((other for other in rows if _full_precision_of(row, other)), None)
            pair = pairs(full.name, row.name) if full and row.plan.precision == kind else None
            if pair:
                found.append(pair)
        if found:
            told = f"{_told(found)}{_batches(found)}"
            result.append(f"{title} against the same row without it: {told}.")
    return result


def _full_precision_of(row: Row, other: Row) -> bool:
    """Whether `other` is the same row of the registry, but in single precision."""

    def but_precision(plan: Implementation) -> tuple[object, ...]:
        options = {k: v for k, v in plan.options.items() if k != "precision"}
        return plan.framework, plan.module, plan.computes, plan.threads, options

    lower = row.plan.precision != "fp32" and other.plan.precision == "fp32"
    return lower and but_precision(row.plan) == but_precision(other.plan)


def _batches(pairs: Sequence[Pair]) -> str:
    """The row that the batch changes most."""
    found = max(((*_by_batch(pair), pair.of.b) for pair in pairs), default=(0.0, "", ""))
    return f"; {found[2]} by batch: {found[1]}" if found[1] else ""


def _by_batch(pair: Pair) -> tuple[float, str]:
    """How strongly the ratio changes from the smallest to the largest batch, and from what to what.

    Only over sizes that both have: else another mix of shapes would look like the batch's doing.
    """
    of = pair.of
    low, high = int(of.shapes["batch"].min()), int(of.shapes["batch"].max())
    rest = [axis for axis in SHAPE if axis != "batch"]
    ends = of.shapes["batch"].isin((low, high))
    rows = (ends & of.shapes[ends].duplicated(rest, keep=False)).to_numpy()
    if low == high or rows.sum() < 2 * FEWEST_SHAPES:
        return 0.0, ""
    part = of.part(rows)
    first, last = (part.group("batch", (at, at)) for at in (low, high))
    smaller, larger = sorted((first.ratio, last.ratio), key=lambda ratio: ratio.value)
    change = larger.value / smaller.value
    if smaller.high > larger.low or change < STRONGLY:
        return 0.0, ""
    floor = Pair(part, first).floor
    told = [versus(group, floor, interval=False) for group in (first, last)]
    return change, f"{told[0]} at batch {low}, {told[1]} at batch {high}"
