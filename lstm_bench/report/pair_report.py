"""A comparison as a document: over all shapes, along each axis, where each side wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lstm_bench.analysis.comparison import WORDS, Comparison, Group, doublings
from lstm_bench.analysis.intervals import FEWEST_SHAPES
from lstm_bench.analysis.results import Run
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.units import clipped, counted, percent, seconds, times
from lstm_bench.report.document import Column, Document, Table, number, paragraph
from lstm_bench.report.fastest import size_label
from lstm_bench.report.headline import AXES, headline
from lstm_bench.report.paper_table import MPE, SIGNS, interval, statistics
from lstm_bench.report.run_report import heading, noise_facts, noise_lines, pass_lines, shape_label

Changed = Mapping[str, tuple[str, str]]  # of a library: its version in A, its version in B
LARGEST = 3  # wins either way
MOST_ROWS, MOST_COLUMNS = 16, 9  # of the map of wins


def document(
    pair: Comparison,
    runs: Sequence[Run],
    changed: Changed | None = None,
    drift: Sequence[float] = (),
) -> Document:
    """The answer first, then the evidence.

    `changed`: versions that differ between the runs; `drift`: how many times longer rows take in
    the second that both have alike.
    """
    a, b = pair.a, pair.b
    result = Document(facts={"a": a, "b": b, "metric": pair.metric})
    result.facts |= {"runs": [run.name for run in runs], "left_out": pair.left_out}
    result.facts |= {"differs": list(pair.differs), "versions_differ": dict(changed or {})}
    result.facts |= {"in_turns": pair.in_turns, "drift": list(drift)}
    result.facts["noise"] = [noise_facts(n) for n in pair.noise]
    result.add("\n".join(heading(run) for run in runs))
    if pair.shapes.empty:
        result.add(f"{a} and {b} have no shape in common", _left_out(pair))
        return result
    overall = pair.group()
    result.facts["shapes"] = pair.shapes.to_dict("records")
    lines = _answer(pair, overall, changed or {})
    if not pair.in_turns:
        lines.append(_drift(drift))
    result.add(paragraph(*lines))
    noise = _noise(pair, runs)
    result.add("\n".join(["noise floor: by how much 95% of A/A pairs differ", *noise]))
    result.add(_groups("all", [overall], pair), paragraph(SIGNS), _left_out(pair))
    along = {axis: groups for axis in AXES if len(groups := pair.along(axis)) > 1}
    for axis, groups in along.items():
        result.add(_groups(axis, groups, pair))
    if any(group.shapes < FEWEST_SHAPES for groups in along.values() for group in groups):
        result.add(
            f"intervals of fewer than {FEWEST_SHAPES} shapes hold for just these shapes, all others"
            " for shapes like them"
        )
    if len(pair.shapes) > 1:
        result.add(_where(pair))
    result.add(*_largest(pair))
    return result


def _answer(pair: Comparison, overall: Group, changed: Changed) -> list[str]:
    """The answer in words."""
    words = overall.verdicts
    counts = f"faster at {words['faster']}, slower at {words['slower']}, the same at"
    lines = [
        f"{headline(pair)}.",
        f"Of {counted(overall.shapes, 'shape')} {pair.b} is {counts} {words['same']};"
        f" {words['unsure']} unsure.",
    ]
    if pair.in_turns and (apart := pair.apart):
        lines.append(
            f"At {counted(apart, 'shape')} they were measured at different times: unsure at best."
        )
    if pair.differs:
        lines.append(f"Not like with like: the two differ in {' and '.join(pair.differs)}.")
    if changed:
        versions = (f"{name} {a} in A, {b} in B" for name, (a, b) in changed.items())
        lines.append(f"Versions differ: {'; '.join(versions)}.")
    return lines


def _drift(drift: Sequence[float]) -> str:
    """Says what two runs cannot tell, and how much that may be."""
    known = "no row that both have alike shows how much"
    if drift:
        ends = " to ".join(dict.fromkeys((times(drift[0]), times(drift[-1]))))
        known = f"{counted(len(drift), 'row')} that both have alike took {ends} in the second"
    return (
        "Measured in different runs: a machine that drifts between them counts as a difference, and"
        f" the noise floors do not cover it; {known}."
    )


def _noise(pair: Comparison, runs: Sequence[Run]) -> list[str]:
    used = pair.shapes["floor"]
    shown = percent(used.min()) + ("" if used.min() == used.max() else f" to {percent(used.max())}")
    lines = []
    for run, floors in zip(runs, pair.noise, strict=False):
        lines += [f"  {run.name}:"] if len(pair.noise) > 1 else []
        lines += noise_lines(floors, pair.metric, (pair.a, pair.b))
        lines += pass_lines(run, pair.metric)
    return [*lines, f"  used here: {shown}"]


def _left_out(pair: Comparison) -> str:
    reasons = ", ".join(f"{why}: {count}" for why, count in pair.left_out.items())
    return f"left out (shapes): {reasons}" if reasons else ""


def _groups(axis: str, groups: Sequence[Group], pair: Comparison) -> Table:
    rows = [
        {
            "by": group.by,
            "at": group.label,
            "shapes": group.shapes,
            **statistics(group.mpe, group.ratio),
            **{f"b_{word}": group.verdicts[word] for word in WORDS},
        }
        for group in groups
    ]
    return Table(
        "groups",
        rows,
        (
            number("over" if axis == "all" else axis, "at"),
            number("shapes", "shapes"),
            Column(MPE, lambda row: interval(row, "mpe"), right=True),
            Column("B / A [95% interval]", lambda row: interval(row, "ratio", times), right=True),
            *(number(f"{word}", f"b_{word}") for word in WORDS),
        ),
        title=f"by {pair.metric}; A = {pair.a}, B = {pair.b}; faster: shapes at which B is faster"
        if axis == "all"
        else "",
    )


def _where(pair: Comparison) -> Table:
    """Hidden by batch: who wins, at how many of the shapes there."""
    shapes = pair.shapes
    ranges = {
        axis: doublings(sorted(map(int, shapes[axis].unique())), most)
        for axis, most in (("hidden", MOST_ROWS), ("batch", MOST_COLUMNS))
    }
    rows = []
    for hidden in ranges["hidden"]:
        row = {"hidden": size_label(hidden, "-")}
        for batch in ranges["batch"]:
            inside = shapes["hidden"].between(*hidden) & shapes["batch"].between(*batch)
            row[f"batch {size_label(batch, '-')}"] = _wins(shapes[inside])
        rows.append(row)
    columns = [number(key, key) for key in rows[0]]
    title = f"at how many shapes each is faster (A: {pair.a}, B: {pair.b})"
    return Table("wins", rows, columns, title)


def _wins(shapes: pd.DataFrame) -> str:
    a, b = (int((shapes["verdict"] == word).sum()) for word in ("slower", "faster"))
    sides = " ".join(f"{name} {count}" for name, count in (("A", a), ("B", b)) if count)
    return f"{sides or '-'}/{len(shapes)}" if len(shapes) else ""


def _largest(pair: Comparison) -> list[Table]:
    """The three largest wins either way."""
    tables = []
    for name, word, ascending in ((pair.a, "slower", False), (pair.b, "faster", True)):
        won = pair.shapes[pair.shapes["verdict"] == word]
        top = won.sort_values(["ratio", *SHAPE], ascending=[ascending] + [True] * len(SHAPE))
        rows = [{"winner": name, **row} for row in top[:LARGEST].to_dict("records")]
        if rows:
            columns = (
                Column("shape", shape_label, right=True),
                number(clipped(f"A {pair.a}", 28), "a_s", seconds),
                number(clipped(f"B {pair.b}", 28), "b_s", seconds),
                number("B / A", "ratio", times),
                number("noise floor", "floor", percent),
            )
            tables.append(Table("largest", rows, columns, f"largest wins of {name}"))
    return tables
