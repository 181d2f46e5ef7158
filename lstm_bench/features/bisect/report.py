"""The report of `bisect`: the border, how sure that is, and every measurement on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from lstm_bench.features.bisect.search import Bisection
from lstm_bench.model.units import counted, percent, times, wrapped
from lstm_bench.report.document import Column, Document, Table, number, text
from lstm_bench.report.paper_table import interval


def document(
    search: Bisection, implementation: str, metric: str, runs: Sequence[str], threshold: float
) -> Document:
    """`runs` has the run of each step."""
    result = Document(facts={"implementation": implementation, "metric": metric})
    result.facts |= {"versions": search.versions, "threshold": threshold}
    result.facts |= {"last_good": search.good, "first_slower": search.bad, "doubts": search.doubts}
    sure = "" if not search.bad else "Sure: all steps are decided by intervals of 95%."
    sure = f"Not sure: {'; '.join(search.doubts)}." if search.doubts else sure
    result.add(wrapped(_answer(search, implementation, metric, threshold)), wrapped(sure))
    rows = [{**asdict(step), "run": run} for step, run in zip(search.steps, runs, strict=True)]
    columns = (
        text("step", "what"),
        text("A", "a"),
        text("B", "b"),
        number("shapes", "shapes"),
        Column("B / A [95% interval]", lambda row: interval(row, "ratio", times), right=True),
        text("B is", "verdict"),
        text("run", "run"),
    )
    result.add(Table("steps", rows, columns))
    if differs := dict.fromkeys(what for step in search.steps for what in step.differs):
        result.add(wrapped(f"Not like with like: versions differ in {' and '.join(differs)}."))
    if search.bad:
        result.add(
            wrapped(
                f"slower: over {times(search.steps[-1].halfway)}, half of the slowdown between the"
                f" ends, at the shapes where they differ by more than {percent(threshold, 0)},"
                " beyond the noise"
            )
        )
    return result


def _answer(search: Bisection, implementation: str, metric: str, threshold: float) -> str:
    ends = [step for step in search.steps if step.what == "ends"][-1]
    if not search.bad:
        verb = "is not" if ends.verdict == "not slower" else "may or may not be"
        return (
            f"{implementation}: {ends.b} {verb} more than {percent(threshold, 0)} slower than"
            f" {ends.a} at any of {counted(ends.shapes, 'shape')}, so there is nothing to search"
            " for."
        )
    border, verb = search.steps[-1], "may be" if search.doubts else "is"
    ratio, *ends_of = map(times, (border.ratio, border.ratio_low, border.ratio_high))
    return (
        f"{implementation}: {search.bad} {verb} the first slower version. Its {metric} is"
        f" {ratio} ({' to '.join(ends_of)}) that of {search.good} at"
        f" {counted(border.shapes, 'shape')}; between {ends.a} and {ends.b} it is"
        f" {times(ends.ratio)}."
    )
