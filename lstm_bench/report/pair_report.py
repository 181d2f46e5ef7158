"""A comparison as a document: over all shapes, along each axis, where each side wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lstm_bench.analysis.comparison import WORDS, Comparison, Group, doublings
from lstm_bench.analysis.intervals import FEWEST_SHAPES
from lstm_bench.analysis.noise import SHAPE
from lstm_bench.analysis.results import Run
from lstm_bench.model.units import clipped, counted, percent, seconds, short, times
from lstm_bench.report.document import Column, Document, Table, number, paragraph
from lstm_bench.report.fastest import size_label
from lstm_bench.report.headline import headline
from lstm_bench.report.paper_table import MPE, SIGNS, interval, statistics
from lstm_bench.report.run_report import heading, noise_facts, noise_lines, pass_lines, shape_label

Changed = Mapping[str, tuple[str, str]]  # of a library: its version in A, its version in B
AXES = ("hidden", "batch", "timesteps")
LARGEST = 3  # wins either way
MOST_ROWS, MOST_COLUMNS = 16, 9  # of the map of wins


def document(
    found: Comparison,
    runs: Sequence[Run],
    changed: Changed | None = None,
    drift: Sequence[float] = (),
) -> Document:
    """The answer first, then the evidence.

    `changed`: versions that differ between the runs; `drift`: how many times longer rows take in
    the second that both have alike.
    """
    a, b = found.a, found.b
    result = Document(facts={"a": a, "b": b, "metric": found.metric})
    result.facts |= {"runs": [run.name for run in runs], "left_out": found.left_out}
    result.facts |= {"differs": list(found.differs), "versions_differ": dict(changed or {})}
    result.facts |= {"in_turns": found.in_turns, "drift": list(drift)}
    result.facts["noise"] = [noise_facts(n) for n in found.noise]
    result.add("\n".join(heading(run) for run in runs))
    if found.shapes.empty:
        result.add(f"{a} and {b} have no shape in common", _left_out(found))
        return result
    overall = found.group()
    result.facts["shapes"] = found.shapes.to_dict("records")
    lines = _answer(found, overall, changed or {})
    lines += [] if found.in_turns else _apart(found, drift)
    result.add(paragraph(*lines))
    noise = _noise(found, runs)
    result.add("\n".join(["noise floor: by how much 95% of A/A pairs differ", *noise]))
    result.add(_groups("all", [overall], found), paragraph(SIGNS), _left_out(found))
    along = {axis: groups for axis in AXES if len(groups := found.along(axis)) > 1}
    for axis, groups in along.items():
        result.add(_groups(axis, groups, found))
    if any(group.shapes < FEWEST_SHAPES for groups in along.values() for group in groups):
        result.add(
            f"intervals of fewer than {FEWEST_SHAPES} shapes hold for just these shapes, all others"
            " for shapes like them"
        )
    if len(found.shapes) > 1:
        result.add(_where(found))
    result.add(*_largest(found))
    return result


def _answer(found: Comparison, overall: Group, changed: Changed) -> list[str]:
    """What a colleague would say, in words."""
    b, ratio = found.b, overall.ratio
    over = "rounds" if overall.shapes < FEWEST_SHAPES else "shapes and rounds"
    ends = f"geometric mean, 95% interval {short(ratio.low)} to {short(ratio.high)} over {over}"
    words = overall.verdicts
    counts = f"faster at {words['faster']}, slower at {words['slower']}, the same at"
    lines = [
        f"{headline(found)}.",
        f"By {found.metric}, B / A = {times(ratio.value)} ({ends}).",
        f"Of {counted(overall.shapes, 'shape')} {b} is {counts} {words['same']};"
        f" {words['unsure']} unsure.",
    ]
    if found.in_turns and (apart := found.apart):
        lines.append(
            f"At {counted(apart, 'shape')} they were measured at different times: unsure at best."
        )
    if found.differs:
        lines.append(f"Not like with like: the two differ in {' and '.join(found.differs)}.")
    if changed:
        versions = (f"{name} {a} in A, {b} in B" for name, (a, b) in changed.items())
        lines.append(f"Versions differ: {'; '.join(versions)}.")
    return lines


def _apart(found: Comparison, drift: Sequence[float]) -> list[str]:
    """What two runs cannot tell, how much that may be, and what to type instead."""
    known = "no row that both have alike shows how much"
    if drift:
        ends = " to ".join(dict.fromkeys((times(drift[0]), times(drift[-1]))))
        known = f"{counted(len(drift), 'row')} that both have alike took {ends} in the second"
    lines = [
        "Measured in different runs: a machine that drifts between them counts as a difference, and"
        f" the noise floors do not cover it; {known}."
    ]
    if found.differs == ("threads",):
        row = found.a.split("@")[0]
        lines.append(f"In one run they take turns: `lstm-bench grid GRID -i {row},{row}@1`.")
    return lines


def _noise(found: Comparison, runs: Sequence[Run]) -> list[str]:
    used = found.shapes["floor"]
    shown = percent(used.min()) + ("" if used.min() == used.max() else f" to {percent(used.max())}")
    lines = []
    for run, floors in zip(runs, found.noise, strict=False):
        lines += [f"  {run.name}:"] if len(found.noise) > 1 else []
        lines += ["  " + line for line in noise_lines(floors, found.metric, (found.a, found.b))]
        lines += ["  " + line for line in pass_lines(run, found.metric)]
    return [*lines, f"  used here: {shown}"]


def _left_out(found: Comparison) -> str:
    reasons = ", ".join(f"{why}: {count}" for why, count in found.left_out.items())
    return paragraph(f"left out (shapes): {reasons}", indent=2) if reasons else ""


def _groups(axis: str, groups: Sequence[Group], found: Comparison) -> Table:
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
        title=f"A = {found.a}, B = {found.b}; faster: shapes at which B is faster"
        if axis == "all"
        else "",
    )


def _where(found: Comparison) -> Table:
    """Hidden by batch: who wins, at how many of the shapes there."""
    shapes = found.shapes
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
    title = f"at how many shapes each is faster (A: {found.a}, B: {found.b})"
    return Table("wins", rows, columns, title)


def _wins(shapes: pd.DataFrame) -> str:
    a, b = (int((shapes["verdict"] == word).sum()) for word in ("slower", "faster"))
    sides = " ".join(f"{name} {count}" for name, count in (("A", a), ("B", b)) if count)
    return f"{sides or '-'}/{len(shapes)}" if len(shapes) else ""


def _largest(found: Comparison) -> list[Table]:
    """The three largest wins either way."""
    tables = []
    for name, word, ascending in ((found.a, "slower", False), (found.b, "faster", True)):
        won = found.shapes[found.shapes["verdict"] == word]
        top = won.sort_values(["ratio", *SHAPE], ascending=[ascending] + [True] * len(SHAPE))
        rows = [{"winner": name, **row} for row in top[:LARGEST].to_dict("records")]
        if rows:
            columns = (
                Column("shape", shape_label, right=True),
                number(clipped(f"A {found.a}", 28), "a_s", seconds),
                number(clipped(f"B {found.b}", 28), "b_s", seconds),
                number("B / A", "ratio", times),
                number("noise floor", "floor", percent),
            )
            tables.append(Table("largest", rows, columns, f"largest wins of {name}"))
    return tables
