"""What a run says, and how far to trust it, in sentences; only what is beyond its noise.

Pure functions of a run. A difference is stated if the whole 95% interval of the geometric mean is
beyond the noise floor; everything else is "no clear difference".
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from lstm_bench.analysis import noise, summary
from lstm_bench.analysis.comparison import Comparison, Group, Side, clear, paired
from lstm_bench.analysis.intervals import FEWEST_SHAPES
from lstm_bench.analysis.noise import SHAPE
from lstm_bench.analysis.results import REFERENCES, Run, references
from lstm_bench.analysis.summary import said
from lstm_bench.frameworks import FRAMEWORKS
from lstm_bench.model.types import UNSEEN_GPU, Implementation
from lstm_bench.model.units import counted, error, factor, listed, seconds, single
from lstm_bench.report import fastest, run_report
from lstm_bench.report import headline as headlines
from lstm_bench.report.headline import (
    STRONGLY,
    Told,
    both_ways,
    by_axis,
    floor_of,
    headline,
    told_by,
)

TITLES = {f.name: f.title for f in FRAMEWORKS.values() if f.title}
#: What all numbers are about; help and README say the same.
SCOPE = "Inference, one LSTM layer, one direction, equal lengths"
LOWER = {"tf32": "TF32", "amp": "AMP", "fp16": "Half precision", "bf16": "bfloat16", "int8": "int8"}


class Row(NamedTuple):
    """An implementation as it was measured."""

    name: str
    plan: Implementation
    precision: str


@dataclass(frozen=True)
class Pair:
    """B against A, and the statistics over all their shapes."""

    of: Comparison
    whole: Group
    back: Pair | None = None  # A against B, if that was there first

    @functools.cached_property
    def floor(self) -> float:
        """The noise floor that the statistics must be beyond."""
        return floor_of(self.of)

    @functools.cached_property
    def by_axis(self) -> Told:
        """The axis that explains most of the spread, if one does, and its parts."""
        if self.back:
            axis, parts = self.back.by_axis
            return axis, [part.turned() for part in parts]
        return by_axis(self.of)

    @property
    def covered(self) -> str:
        """` at 12 of 24 shapes`, if a side lacks some."""
        count = len(self.of.shapes)
        return "" if count == self.of.planned else f" at {count} of {self.of.planned} shapes"

    @property
    def turns(self) -> bool:
        """Whether what B is against A changes along that axis."""
        return len(self.by_axis[1]) > 1

    def turned(self) -> Pair:
        """A against B."""
        return Pair(self.of.turned(), self.whole.turned(), self)

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
        cells = run.cells[run.cells["copy"] == 1]
        self._sides = {name: Side.of(cells, name) for name in cells["implementation"].unique()}
        self._floors = [run.noise]
        self._made: dict[tuple[str, str], Pair | None] = {}

    def __call__(self, a: str, b: str) -> Pair | None:
        """B against A; None if they have no shape in common."""
        if (a, b) not in self._made:
            self._made[a, b] = pair = self._compared(a, b)
            self._made[b, a] = pair.turned() if pair else None
        return self._made[a, b]

    def _compared(self, a: str, b: str) -> Pair | None:
        one, other = self._sides.get(a), self._sides.get(b)
        if not (one and other and one.place.keys() & other.place.keys()):
            return None
        of = paired(one, other, across=None, floors=self._floors)
        return Pair(of, of.group())


def subject(run: Run) -> str:
    """What was tested on what, in one line."""
    plan = run.plan
    machine = run.manifest["machine"]
    gpus = machine.get("gpus") or []
    where = str(machine.get("cpu", "an unknown CPU"))
    if plan.settings.device == "cuda":
        where = str(gpus[0].get("name", "GPU")) if gpus else UNSEEN_GPU
    if plan.settings.device == "cpu":
        where += f", {counted(plan.settings.threads, 'thread')}"
    shapes = counted(run.shapes, "shape")
    if run.shapes < len(plan.shapes):
        shapes = f"{run.shapes} of {counted(len(plan.shapes), 'planned shape')}"
    names = counted(run.cells["implementation"].nunique(), "implementation")
    ok = run.cells[run.cells["status"] == "ok"]
    checked = "; all outputs checked" if len(ok) and ok["max_abs_error"].notna().all() else ""
    if wrong := int((run.cells["status"] == "wrong").sum()):
        checked = f"; {counted(wrong, 'output')} wrong"
    return f"{SCOPE}: {names} at {shapes} on {where}{checked}"


class Lead(NamedTuple):
    """A framework's best row beside the C++ reference of its accuracy, or beside another row."""

    accuracy: str
    row: Row
    base: Row
    pair: Pair


def leads(run: Run, pairs: Pairs) -> list[Lead]:
    """What a manager asks: how far each framework's best row is from what is possible.

    Without a reference: how far the frameworks' best rows are from the fastest of them.
    """
    of, rows = summary.times(run.cells), {row.name: row for row in _rows(run)}
    everywhere, found = np.ones(len(of.shapes), dtype=bool), []
    for accuracy, names in summary.classes(of).items():
        if accuracy == summary.ANY:
            continue
        sides = fastest.contestants(run, of, names)
        ours, theirs = ([name for name in side if name in rows] for side in sides)
        best = {rows[n].plan.home: n for n in reversed(fastest.ranked(of, ours, everywhere))}
        first = sorted(best.values(), key=fastest.ranked(of, ours, everywhere).index)
        base = next(iter(fastest.ranked(of, theirs, everywhere) or first), "")
        for name in first:
            pair = pairs(base, name) if name != base else None
            if pair:
                found.append(Lead(accuracy, rows[name], rows[base], pair))
    return found


def lead_sentences(run: Run, found: Sequence[Lead]) -> list[str]:
    """`PyTorch is 2.4x slower than the best of cuDNN: 8.4x at batch 1, 1.30x at batch 256.`"""
    several = len({one.accuracy for one in found}) > 1
    told = []
    for one in found:
        where = f"In {said(one.accuracy)}, " if several and one.accuracy != "fp32" else ""
        of = dataclasses.replace(one.pair.of, a=title(run, one.base), b=title(run, one.row))
        line = headline(of, one.pair.whole, one.pair.by_axis)
        told.append(f"{where}{line}.")
    ours = {title(run, one.base) for one in found if one.base.plan.framework in REFERENCES}
    if ours:
        what = "The C++ reference"
        if "the best of cuDNN" in ours:
            what = "The best of cuDNN is our C++ reference: it"
        told.append(f"{what} is called from C++ and shows what is possible.")
    return told


def title(run: Run, row: Row) -> str:
    """An implementation by the name that people know it by."""
    if row.plan.framework in REFERENCES:
        best = row.name.endswith("-best") and run.plan.settings.device == "cuda"
        return "the best of cuDNN" if best else f"the C++ reference ({row.name})"
    known = TITLES.get(row.plan.framework, "")
    return known if known.lower() == row.name else f"{known} ({row.name})" if known else row.name


def findings(run: Run, pairs: Pairs | None = None) -> list[str]:
    """Who wins, what each framework costs, what lower precision gains."""
    rows = _rows(run)
    if not rows:
        return ["Nothing was measured: no cell of this run has a time."]
    of = summary.times(run.cells)
    if len(rows) == 1:
        middle = seconds(float(np.nanmedian(of.seconds)))
        shapes = counted(len(of.shapes), "shape")
        return [
            f"Only {rows[0].name} was measured: there is nothing to compare it with. Its median"
            f" latency over {shapes} is {middle}."
        ]
    pairs = pairs or Pairs(run)
    baseline = next((r for r in rows if r.name == summary.baseline_of(of.names)), rows[0])
    equal = [r for r in rows if _same_work(r, baseline)]
    told = _costs(equal, baseline, pairs) + _lower_precision(rows, pairs)
    if told:
        told.append(
            "Factors are geometric means of latency over the shapes that both sides have; those"
            " within noise are not stated."
        )
    return _wins(run, rows) + told


def _rows(run: Run) -> list[Row]:
    """The implementations that have any latency, in the plan's order."""
    first = measured(run.cells).drop_duplicates("implementation").set_index("implementation")
    known = [row for row in run.plan.implementations if row.name in first.index]
    return [Row(row.name, row, str(first["precision"][row.name])) for row in known]


def _same_work(row: Row, other: Row) -> bool:
    return (row.precision, row.plan.computes) == (other.precision, other.plan.computes)


def versus(group: Group, floor: float) -> str:
    """`2.4x slower`, or that nothing can be said."""
    return headlines.versus(group.ratio.value) if clear(group, floor) else "no clear difference"


def _told(pairs: Sequence[Pair]) -> str:
    """All Bs against their As: what is told by an axis or clear, what goes both ways, the rest."""
    sure = [f"{p.of.b} {told_by(*p.by_axis)}{p.covered}" for p in pairs if p.turns]
    left = [pair for pair in pairs if not pair.turns]
    sure += [f"{p.of.b} {versus(p.whole, p.floor)}{p.covered}" for p in left if p.clear]
    left = [pair for pair in left if not pair.clear]
    sure += [f"{pair.of.b} {both_ways(pair.of, pair.whole)}" for pair in left if pair.both_ways]
    sure += [_at_some(pair) for pair in left if pair.one_way]
    rest = [p.of.b for p in left if not (p.both_ways or p.one_way)]
    if len(pairs) == len(rest) == 1:
        ratio = pairs[0].whole.ratio
        ends = f"{factor(ratio.low)} to {factor(ratio.high)}"
        return f"no clear difference, {rest[0]} takes {ends} its time"
    parts = [listed(sure)] if sure else []
    return "; ".join([*parts, f"no clear difference for {listed(rest)}"] if rest else parts)


def _at_some(pair: Pair) -> str:
    """`tf-mode2 slower at 2 of 3 shapes`, the others within the noise."""
    count = pair.whole.verdicts[pair.one_way]
    return f"{pair.of.b} {pair.one_way} at {count} of {counted(pair.whole.shapes, 'shape')}"


def _wins(run: Run, rows: Sequence[Row]) -> list[str]:
    """Who is fastest at most shapes, of what can be deployed: in each class of accuracy, in any."""
    won = fastest.contests(run, run.cells)
    won = won[won["verdict"] != "alone"]
    alike = single(summary.accuracy(row.precision) for row in rows)
    lost = summary.lacking(run.cells)
    deployed = "of what you can deploy, " if references(run) else ""
    return [
        _most_wins(part, deployed + ("" if alike else f"in {said(accuracy)}, "), lost)
        for accuracy, part in won.groupby("accuracy", sort=False)
    ]


def _most_wins(won: pd.DataFrame, where: str, lost: Mapping[str, str]) -> str:
    """The most frequent winner, its wins, the others', what is within noise, what it cannot run."""
    shapes = counted(len(won), "shape")
    sure = won.loc[won["verdict"] == "slower", "shared"]
    ranked = summary.wins(won).most_common(1)
    if not ranked:
        return _capital(f"{where}nothing is clearly the fastest at any of {shapes}.")
    ((top, wins),) = ranked
    worst = won.loc[won["fastest"] == top, "error"].max()
    known = f" (error {error(worst)})" if worst > 0 else ""
    text = _capital(where) + f"{top}{known} is the fastest at {wins} of {shapes}"
    beside = Counter(name for own in sure if top in own for name in own if name != top)
    if beside:
        names = listed(f"{name} at {count}" for name, count in beside.most_common())
        text += f" (the same code as {names})"
    others = Counter(name for own in sure if top not in own for name in own).most_common(2)
    if others:
        text += "; " + listed(f"{name} at {count}" for name, count in others)
    if close := int((won["verdict"] != "slower").sum()):
        text += f"; at {close} the first two are within noise"
    return text + (f"; {top} {lost[top]}." if top in lost else ".")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _costs(rows: Sequence[Row], baseline: Row, pairs: Pairs) -> list[str]:
    """What each framework costs against the baseline, and where the batch changes that."""
    result = []
    for framework in dict.fromkeys(row.plan.framework for row in rows):
        mine = [r for r in rows if r.plan.framework == framework and r is not baseline]
        found = [pair for row in mine if (pair := pairs(baseline.name, row.name))]
        if found:
            title = TITLES.get(framework, framework)
            if framework == baseline.plan.framework:
                title = f"The other {title} implementations"
            result.append(
                f"{title} compared with {baseline.name}: {_told(found)}{_batches(found)}."
            )
    return result


def _lower_precision(rows: Sequence[Row], pairs: Pairs) -> list[str]:
    """What lower precision gains or loses against the same row in fp32."""
    result = []
    for precision, title in LOWER.items():
        found = []
        for row in rows:
            full = next((other for other in rows if _full_precision_of(row, other)), None)
            pair = pairs(full.name, row.name) if full and row.plan.precision == precision else None
            if pair:
                found.append(pair)
        if found:
            told = f"{_told(found)}{_batches(found)}"
            result.append(f"{title} compared with fp32: {told}.")
    return result


def _full_precision_of(row: Row, other: Row) -> bool:
    """Whether `other` is the same row of the registry, but in fp32."""

    def but_precision(plan: Implementation) -> tuple[object, ...]:
        options = {k: v for k, v in plan.options.items() if k != "precision"}
        return plan.home, plan.module, plan.computes, plan.threads, options

    lower = row.plan.precision != "fp32" and other.plan.precision == "fp32"
    return lower and but_precision(row.plan) == but_precision(other.plan)


def _batches(pairs: Sequence[Pair]) -> str:
    """The row that the batch changes most."""
    told = ((*_by_batch(pair), pair.of.b) for pair in pairs if not pair.turns)
    found = max(told, default=(0.0, "", ""))
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
    told = [versus(group, floor) for group in (first, last)]
    return change, f"{told[0]} at batch {low}, {told[1]} at batch {high}"


MOST_NAMED = 4  # rows named in one list of failures or warnings


def trust(run: Run) -> list[str]:
    """What is missing, the noise floor, the checks, unequal work and warnings."""
    if run.cells.empty:
        shapes = len(run.plan.shapes)
        told = f"{counted(shapes, 'shape')} {_is(shapes)} planned"
        return [f"{told}; none has been measured yet."]
    result = []
    if run.left:
        planned = counted(run.plan.size, "planned cell")
        left = f"{run.left} of {planned} {_is(run.left, past=False)} still to be measured"
        result.append(f"The run is not complete: {left}, controls counted.")
    result += _left_out(run.cells)
    if not measured(run.cells).empty:
        result += [_noise(run), *_checks(run.cells), *_unequal(run)]
    result += _warnings(run)
    if run.damaged:
        lines = counted(run.damaged, "line")
        result.append(f"{lines} of the run could not be read and {_is(run.damaged)} left out.")
    return result


def two_digits(value: float) -> str:
    """A share with two digits: 0.35%, 2.4%, 13%."""
    scaled = 100 * value
    return f"{scaled:.0f}%" if scaled >= 9.95 else f"{float(f'{scaled:.2g}'):g}%"


def measured(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells with a latency, controls apart."""
    own = (cells["status"] == "ok") & (cells["copy"] == 1) & cells["latency_s"].notna()
    return cells[own]


def _left_out(cells: pd.DataFrame) -> list[str]:
    """How many cells have no time, of whom and why."""
    own = cells[cells["copy"] == 1]
    failed = own[own["status"] != "ok"]
    cells = counted(len(own), "cell")
    if failed.empty:
        return [f"None of {cells} failed or was left out."]
    kinds = listed(f"{count} {status}" for status, count in _counts(failed["status"]))
    have = "has" if len(failed) == 1 else "have"
    names = _named(failed["implementation"])
    return [f"{len(failed)} of {cells} {have} no time: {kinds} ({names})."]


def _noise(run: Run) -> str:
    """The noise floor that is used, by duration class, or that it is not known."""
    known = [(n, used) for n, used in zip(run.noise, noise.applied(run.noise), strict=True)]
    parts = [f"{two_digits(used)} for calls {_class(n.name)}" for n, used in known if n.pairs]
    if not parts:
        return "The run has no A/A controls: its noise is not known, differences may be chance."
    few = sum(n.pairs for n in run.noise) < noise.FEWEST_PAIRS
    floors = listed(parts)
    if run.noise.own:
        others = f"; of others {floors}" if run.noise.others else ""
        floors = run_report.own_floors(run.noise, two_digits) + others
    text = f"Noise floor: {floors}. Smaller differences are within noise"
    return text + ("; it rests on few pairs." if few else ".")


def _class(name: str) -> str:
    return name.replace("<", "under").replace(">=", "of at least")


def _checks(cells: pd.DataFrame) -> list[str]:
    """Whether each time stands for a checked output, and the largest error by precision."""
    ok = cells[cells["status"] == "ok"]
    checked = ok[ok["max_abs_error"].notna()]
    if checked.empty:
        return ["No output was checked against the float64 reference."]
    parts = []
    for precision, part in checked.groupby("precision", sort=False):
        worst = part.loc[part["max_abs_error"].idxmax()]
        parts.append(
            f"{worst['max_abs_error']:.0e} in {precision or 'no stated precision'}"
            f" ({worst['implementation']}, tolerance {worst['tolerance']:.0e})"
        )
    if len(checked) == len(ok):
        text = "Every output was checked against a float64 reference"
    else:
        outputs = counted(len(ok), "output")
        text = f"{len(checked)} of {outputs} were checked against a float64 reference"
    return [f"{text}; largest error: {listed(parts)}."]


def _unequal(run: Run) -> list[str]:
    """Rows that compute something else must not be read as faster."""
    ok = measured(run.cells)
    names = list(dict.fromkeys(ok.loc[ok["computes"] != "lstm", "implementation"]))
    if not names:
        return []
    does = "does" if len(names) == 1 else "do"
    return [
        f"{listed(names)} {does} less work (the input projection is left out) and never"
        f" {'wins' if len(names) == 1 else 'win'}."
    ]


def _warnings(run: Run) -> list[str]:
    """The most frequent warnings, by their first words."""
    marks = run_report.warnings_of(run.cells, run.noise)
    if not marks:
        return []
    words = listed(f"{count} {mark}" for mark, count in marks[:MOST_NAMED])
    own = run.cells[run.cells["copy"] == 1]
    total = counted(int((own["status"] == "ok").sum()), "cell")
    return [f"Warnings about {total}: {words}."]


def _counts(values: pd.Series[str]) -> list[tuple[str, int]]:
    return Counter(values).most_common()


def _named(values: pd.Series[str]) -> str:
    ranked = _counts(values)
    told = [f"{name} {count}" for name, count in ranked[:MOST_NAMED]]
    if len(ranked) > MOST_NAMED:
        told.append(f"{len(ranked) - MOST_NAMED} more")
    return listed(told)


def _is(number: int, past: bool = True) -> str:
    if past:
        return "was" if number == 1 else "were"
    return "is" if number == 1 else "are"
