"""Energy per call, by row."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from lstm_bench import energy_report, noise
from lstm_bench.energy_report import joules
from lstm_bench.model import Record, Shape
from lstm_bench.study import rules
from lstm_bench.study.section import Section, code, table, text
from lstm_bench.study.subject import Runs, missing, not_in
from lstm_bench.trust import counted
from lstm_bench.units import percent, times

FEWEST_PAIRS, USUAL = 5, 0.05  # below so many A/A pairs, what docs/energy.md finds is used


def section(runs: Runs) -> Section:
    title = "Energy per call"
    one = runs.paper
    if not one:
        return Section(title, [missing("h200-paper")])
    own = [record for record in one.records if record.copy == 1]
    shapes = energy_report.shared_shapes(own)
    if not shapes:
        return Section(title, [not_in(one.run, "energy")])
    rows = energy_report.table_rows(own, one.run.implementations)
    known = [row for row in rows if row["gross_j"]]
    base = "pytorch" if any(row["implementation"] == "pytorch" for row in known) else ""
    shown = [
        [
            code(row["implementation"]),
            joules(row["gross_j"]),
            joules(row["net_j"]),
            f"{row['power_w']:.0f} W",
            times(_against(own, base, row["implementation"], shapes)) if base else "-",
        ]
        for row in known
    ]
    pairs = differences(one.records)
    told = _least(own, shapes, _noise(pairs))
    idle = [row["idle_w"] for row in known if row["idle_w"]]
    body = [
        text(told),
        table(["row", "gross", "net", "power", "gross / pytorch"], shown),
        text(
            f"Medians over the {len(shapes)} shapes at which all of these rows have an energy; the"
            " last column is a geometric mean. Gross: all that the GPU draws while calls run back"
            " to back; net: less what it would have drawn idle"
            + (f" ({statistics.median(idle):.0f} W)." if idle else "."),
            _repeats(pairs),
            *(line.strip() + "." for line in energy_report.problem_lines(own)),
        ),
    ]
    return Section(title, body, told)


def _gross(records: Sequence[Record], name: str) -> dict[Shape, float]:
    return {
        r.shape: r.energy.gross_j
        for r in records
        if r.implementation == name and r.energy and r.energy.gross_j
    }


def _against(records: Sequence[Record], a: str, b: str, shapes: set[Shape]) -> float:
    return math.exp(statistics.fmean(_logs(records, a, b, shapes)))


def _logs(records: Sequence[Record], a: str, b: str, shapes: set[Shape]) -> list[float]:
    first, second = _gross(records, a), _gross(records, b)
    return [math.log(second[s] / first[s]) for s in sorted(shapes) if s in first and s in second]


def differences(records: Sequence[Record]) -> list[float]:
    """|A' - A| / A of gross energy, for all A/A pairs that have one."""
    first = {(r.implementation, r.shape, r.pass_number): r for r in records if r.copy == 1}
    found = []
    for record in records:
        twin = first.get((record.implementation, record.shape, record.pass_number))
        if record.copy != 2 or not twin or not record.energy or not twin.energy:
            continue
        a, b = twin.energy.gross_j, record.energy.gross_j
        if a and b:
            found.append(abs(b / a - 1))
    return found


def _noise(pairs: Sequence[float]) -> float:
    """What a difference in energy must be beyond."""
    return noise.percentile_95(np.array(pairs)) if len(pairs) >= FEWEST_PAIRS else USUAL


def _repeats(pairs: Sequence[float]) -> str:
    if not pairs:
        return "No row was measured twice: how well energy repeats is not known."
    return (
        f"Of {counted(len(pairs), 'A/A pair')} the gross energy differs by"
        f" {percent(statistics.median(pairs))} in the median and at most {percent(max(pairs))}."
    )


def _least(records: Sequence[Record], shapes: set[Shape], floor: float) -> str:
    """Which row that a framework's user can have needs the least, in fp32 and in half."""
    sentences = []
    for kind, half in (("fp32", False), ("half precision", True)):
        rows = {
            r.implementation
            for r in records
            if r.framework != "deepbench" and ("16" in r.precision) == half and r.shape in shapes
        }
        total = {
            name: statistics.fmean(
                math.log(v) for s, v in _gross(records, name).items() if s in shapes
            )
            for name in sorted(rows)
            if _gross(records, name)
        }
        ranked = sorted(total, key=lambda name: (total[name], name))
        if len(ranked) < 2:
            continue
        apart = rules.mean(_logs(records, ranked[0], ranked[1], shapes))
        clear = rules.is_over(apart, math.log1p(floor)) == rules.HOLDS
        told = f"the next, {code(ranked[1])}, takes {times(math.exp(apart.value))} as much"
        if not clear:
            told = f"not clearly less than {code(ranked[1])}"
        sentences.append(
            f"In {kind} {code(ranked[0])} takes the least energy of the frameworks' rows: {told}."
        )
    return " ".join(sentences) or "Too few rows have an energy to be held against each other."
