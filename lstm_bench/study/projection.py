"""How much of the gap between DeepBench and PyTorch is the input projection that DeepBench skips.

The gap is a product: PyTorch / what DeepBench runs = (with the projection / without it) times
(PyTorch / the same work in C++). Logarithms add up: the first one's share is work not done.
"""

from __future__ import annotations

import math

import numpy as np

from lstm_bench.comparison import compare
from lstm_bench.intervals import Statistic
from lstm_bench.model import LstmBenchError, Shape
from lstm_bench.study import rules
from lstm_bench.study.section import Section, code, table, text, within
from lstm_bench.study.subject import Runs, Subject, missing, not_in, shapes_of
from lstm_bench.units import listed, percent, times

SKIP, SAME, FRAMEWORK = "deepbench-skip", "deepbench", "pytorch"


class Gap:
    """The three comparisons over the same shapes."""

    def __init__(self, one: Subject, shapes: set[Shape] | None = None):
        pairs = [one.pair(a, b) for a, b in ((SKIP, FRAMEWORK), (SAME, FRAMEWORK), (SKIP, SAME))]
        found = [pair.of for pair in pairs if pair]
        self.there = len(found) == 3
        if self.there:
            common = set.intersection(*(set(shapes_of(of)) for of in found))
            common = common if shapes is None else common & shapes
            self.parts = [of.part(np.array([s in common for s in shapes_of(of)])) for of in found]
            self.there = bool(common)

    def at(self, axis: str = "all", value: int = 0) -> tuple[Statistic, ...]:
        """MPE to the skipping one and to the same work; the ratio of work, of the framework."""
        groups = [of.group(axis, (value, value)) for of in self.parts]
        return groups[0].mpe, groups[1].mpe, groups[2].ratio, groups[1].ratio

    def values(self, axis: str) -> list[int]:
        return sorted(set(map(int, self.parts[0].shapes[axis])))

    @property
    def shapes(self) -> int:
        return len(self.parts[0].shapes)

    @property
    def word(self) -> str:
        """Whether the larger part of the gap is work that is not done; empty: no clear gap."""
        floor = float(self.parts[0].shapes["floor"].median())
        if rules.is_slower(self.parts[0].group(), floor) != rules.HOLDS:
            return ""
        framework, work = (np.log(of.shapes["ratio"].to_numpy()) for of in self.parts[1:])
        return rules.is_over(rules.mean(list(work - framework)), 0.0)


def share(work: float, framework: float) -> str:
    """The share of the gap that is work, of the logarithm; there must be a gap."""
    whole = math.log(work) + math.log(framework)
    if whole <= 0:
        return "no gap"
    found = math.log(work) / whole
    return "all" if found >= 1 else "none" if found <= 0 else percent(found, 0)


def section(runs: Runs) -> Section:
    title = "How much of the gap to DeepBench is work that it does not do"
    if not runs.paper:
        return Section(title, [missing("h200-paper")])
    whole = Gap(runs.paper)
    if not whole.there:
        names = ", ".join(map(code, (SKIP, SAME, FRAMEWORK)))
        return Section(title, [f"`{runs.paper.run.name}` lacks one of {names}."])
    steps = runs.paper.stepwise(FRAMEWORK)
    alike = Gap(runs.paper, steps)
    held = alike if alike.there else whole
    where = f"at the {held.shapes} shapes where both run the same algorithm"
    if not alike.there:
        where = f"over all {whole.shapes} shapes"
    rows = [_line("all", whole, "all", 0)]
    if alike.there:
        rows.append(_line("same algorithm", alike, "all", 0))
    for axis in ("hidden", "batch", "timesteps"):
        rows += [_line(f"- {axis} {value}", held, axis, value) for value in held.values(axis)]
    heads = ["over", "MPE, to skipping", "MPE, to same work", "work", "framework", "is work"]
    body = [
        text(_answer(held, where), _none(whole, held), _by_length(held)),
        table(heads, rows),
        text(
            f"The first two are MPE with 95% intervals: PyTorch against {code(SKIP)}, which is what"
            f" DeepBench runs, and against {code(SAME)}, which does all the work. Work:"
            f" {code(SAME)} over {code(SKIP)}; framework: PyTorch over {code(SAME)}; both geometric"
            " means of latency, whose product is the whole gap. Is work: the share of the first in"
            " the logarithm of that product (no gap: none by the geometric mean). Which of the two"
            " is larger is told where the 95% interval of the difference of their logarithms, over"
            " shapes, leaves no doubt."
            + (" Rows with a dash: of the shapes with the same algorithm." if alike.there else "")
        ),
        _other_algorithm(runs.paper, steps),
        _queued(runs.paper),
        _own_shapes(runs.deepbench),
    ]
    return Section(title, body, text(_answer(held, where), _none(whole, held)))


ANSWERS = {
    rules.HOLDS: "Most of PyTorch's gap to DeepBench is work that DeepBench does not do",
    rules.HOLDS_NOT: "Less than half of PyTorch's gap to DeepBench is work that it does not do",
    rules.UNKNOWN: "PyTorch's gap to DeepBench is partly work that DeepBench does not do, partly"
    " PyTorch's own, and which part is larger cannot be told",
    "": "PyTorch is not clearly slower than what DeepBench runs",
}


def _none(whole: Gap, held: Gap) -> str:
    """Where there is a gap at some shapes only, that there is none over all of them."""
    if whole.word or not held.word:
        return ""
    gap = whole.parts[0].group().ratio.value
    return (
        f"Over all {whole.shapes} shapes PyTorch takes {times(gap)} the time of what DeepBench"
        " runs: no clear gap."
    )


def _answer(held: Gap, where: str) -> str:
    _, _, work, framework = held.at()
    amount = share(work.value, framework.value)
    sure = held.word in (rules.HOLDS, rules.HOLDS_NOT)
    told = f"; of the gap {amount} is work not done" if sure else ""
    return (
        f"{ANSWERS[held.word]}: {where} PyTorch takes {times(work.value * framework.value)} as long"
        f" as what DeepBench runs, {times(work.value)} by the skipped input projection times"
        f" {times(framework.value)} by PyTorch itself{told}."
    )


def _by_length(held: Gap) -> str:
    steps = held.values("timesteps")
    if len(steps) < 2:
        return ""
    ends = [(t, held.at("timesteps", t)) for t in (steps[0], steps[-1])]
    costs = [f"{times(own.value)} at {t}" for t, (_, _, _, own) in ends]
    skipped = [times(saved.value) for _, (_, _, saved, _) in ends]
    return f"By timesteps PyTorch itself costs {listed(costs)}, the projection {listed(skipped)}."


def _line(label: str, gap: Gap, axis: str, value: int) -> list[str]:
    skip, same, work, framework = gap.at(axis, value)
    return [
        label,
        *(f"{mpe.value:.2f} [{mpe.low:.2f}, {mpe.high:.2f}]" for mpe in (skip, same)),
        times(work.value),
        times(framework.value),
        share(work.value, framework.value),
    ]


def _other_algorithm(one: Subject, steps: set[Shape]) -> str:
    if not one.splits:
        return not_in(one.run, "profiles")
    profiled = {cell.shape for cell in one.splits if cell.name == FRAMEWORK}
    others = sorted({shape.hidden for shape in profiled - steps})
    count = len(profiled - steps)
    if not count:
        return f"PyTorch runs the recurrence step by step at all {len(profiled)} profiled shapes."
    sizes = ", ".join(map(str, others))
    return text(
        f"At {count} of {len(profiled)} profiled shapes (hidden {sizes}) PyTorch has cuDNN run the"
        " whole recurrence in one kernel, which DeepBench never does: there PyTorch can do more"
        " work in less time."
    )


def _queued(one: Subject) -> str:
    """DeepBench queues its calls: the same by throughput."""
    values = []
    for base in (SKIP, SAME):
        try:
            found = compare(one.run.cells, base, FRAMEWORK, "throughput", across=None)
        except LstmBenchError:
            return ""
        if not len(found.shapes):
            return ""
        values.append(found.group().mpe.value)
    return text(
        "DeepBench queues its calls. By queued calls, over all shapes, PyTorch's MPE is"
        f" {values[0]:.2f} against {code(SKIP)} and {values[1]:.2f} against {code(SAME)}."
    )


def _own_shapes(one: Subject | None) -> str:
    if not one:
        return ""
    gap = Gap(one)
    if not gap.there:
        return f"`{one.run.name}` lacks one of the rows."
    skip, same, work, framework = gap.at()
    return text(
        f"On DeepBench's own shapes ({gap.shapes} of {code(one.run.name)}) the MPE is"
        f" {skip.value:.2f} [{skip.low:.2f}, {skip.high:.2f}] against {code(SKIP)} and"
        f" {same.value:.2f} [{same.low:.2f}, {same.high:.2f}] against {code(SAME)}:"
        f" {within(work)} is work, {within(framework)} PyTorch.",
        ""
        if one.splits
        else "The run is not profiled: which algorithm PyTorch ran is not known there.",
    )
