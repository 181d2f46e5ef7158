"""What `bisect` found: the border, how sure that is, and every measurement on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from lstm_bench.features.bisect.search import Bisection, Step
from lstm_bench.model.units import counted, percent, times, wrapped
from lstm_bench.report.document import Column, Document, Table, number, text
from lstm_bench.report.paper_table import interval


def document(
    found: Bisection, implementation: str, metric: str, runs: Sequence[str], threshold: float
) -> Document:
    """`runs` has the run of each step."""
    facts = {
        **{"implementation": implementation, "metric": metric, "versions": found.versions},
        "threshold": threshold,
        **{"last_good": found.good, "first_slower": found.bad, "doubts": found.doubts},
    }
    rows = [{**asdict(s), "run": run} for s, run in zip(found.steps, runs, strict=True)]
    columns = (
        text("step", "what"),
        text("A", "a"),
        text("B", "b"),
        number("shapes", "shapes"),
        Column("B / A [95% interval]", lambda row: interval(row, "ratio", times), right=True),
        text("B is", "verdict"),
        text("run", "run"),
    )
    result = Document(facts=facts)
    result.add(
        wrapped(_answer(found, implementation, metric, threshold)), wrapped(_sureness(found))
    )
    result.add(Table("steps", rows, columns))
    if differs := dict.fromkeys(what for step in found.steps for what in step.differs):
        result.add(wrapped(f"Not like with like: versions differ in {' and '.join(differs)}."))
    if found.bad:
        result.add(
            wrapped(
                f"slower: over {times(found.steps[-1].halfway)}, half of the slowdown between the"
                f" ends, at the shapes where they differ by more than {percent(threshold, 0)},"
                " beyond the noise"
            )
        )
    return result


def _answer(found: Bisection, implementation: str, metric: str, threshold: float) -> str:
    ends = [step for step in found.steps if step.what == "ends"][-1]
    if not found.bad:
        told = "is not" if ends.verdict == "not slower" else "may or may not be"
        return (
            f"{implementation}: {ends.b} {told} more than {percent(threshold, 0)} slower than"
            f" {ends.a} at any of {counted(ends.shapes, 'shape')}, so there is nothing to search"
            " for."
        )
    border = found.steps[-1]
    told = "may be" if found.doubts else "is"
    return (
        f"{implementation}: {found.bad} {told} the first slower version. Its {metric} is"
        f" {_told(border)} that of {found.good} at {counted(border.shapes, 'shape')};"
        f" between {ends.a} and {ends.b} it is {times(ends.ratio)}."
    )


def _sureness(found: Bisection) -> str:
    if found.doubts:
        return f"Not sure: {'; '.join(found.doubts)}."
    if not found.bad:
        return ""
    return (
        f"Sure: all {len({(s.what, s.b) for s in found.steps})} steps are decided by intervals of"
        " 95%, the border measured again among them."
    )


def _told(step: Step) -> str:
    return f"{times(step.ratio)} ({times(step.ratio_low)} to {times(step.ratio_high)})"
