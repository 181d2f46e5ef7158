"""A run in sentences: what was tested, who wins, what each row costs, how far to trust it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lstm_bench.analysis import noise, summary, uncertainty
from lstm_bench.analysis.results import Run, references
from lstm_bench.analysis.summary import accuracy_label
from lstm_bench.model.shape import PASSES
from lstm_bench.model.types import Implementation
from lstm_bench.model.units import counted, listed, seconds
from lstm_bench.report import fastest, run_report
from lstm_bench.report.fastest import Compared
from lstm_bench.report.headline import headline

#: The subject of all numbers; help and README say the same.
SCOPE = "one LSTM layer, one direction, equal lengths"


def subject(run: Run) -> str:
    """Names what was tested, and the machine."""
    where = run_report.machine_line(run.manifest["machine"], run.manifest["plan"]["settings"])
    trained = sorted({PASSES[training] for training in run.cells["training"]})
    passes = " and ".join(trained or PASSES[:1]).capitalize()
    return f"{passes}, {SCOPE}: {run_report.tested(run.cells)}; on {where}"


def findings(run: Run, compared: Compared) -> list[str]:
    """The winners, and what each row costs and gains."""
    times = summary.times(run.cells)
    rows = [row for row in run.plan.implementations if row.name in times.names]
    if not rows:
        return ["Nothing was measured: no cell of this run has a time."]
    if len(rows) == 1:
        middle = seconds(float(np.nanmedian(times.seconds)))
        return [
            f"Only {rows[0].name} was measured: there is nothing to compare it with. Its median"
            f" latency over {counted(len(times.shapes), 'shape')} is {middle}."
        ]
    baseline = next((r for r in rows if r.name == summary.baseline_of(times.names)), rows[0])
    precisions = times.cells.drop_duplicates("implementation").set_index("implementation")

    def work(row: Implementation) -> tuple[str, str]:
        return precisions["precision"][row.name], row.computes

    equal = [(baseline, row) for row in rows if row != baseline and work(row) == work(baseline)]
    lower = [(full, row) for row in rows for full in rows if _full_precision_of(row, full)]
    pairs = dict.fromkeys((a.name, b.name) for a, b in equal + lower)
    costs = [f"{headline(both)}." for pair in pairs if (both := compared(*pair))]
    if costs:
        costs.append("Factors are geometric means of latency over the shapes that both have.")
    return [*_wins(run), *costs]


def _full_precision_of(row: Implementation, other: Implementation) -> bool:
    """True if `other` is the same row of the registry, but in fp32."""

    def but_precision(plan: Implementation) -> tuple[object, ...]:
        options = {k: v for k, v in plan.options.items() if k != "precision"}
        return plan.home, plan.module, plan.computes, plan.threads, options

    lower = row.precision != "fp32" and other.precision == "fp32"
    return lower and but_precision(row) == but_precision(other)


def _wins(run: Run) -> Iterator[str]:
    """The deployable rows that are fastest, and at how many shapes, in each class of accuracy."""
    won = fastest.contests(run, run.cells)
    what = "Fastest of what you can deploy" if references(run) else "Fastest"
    for accuracy, part in won[won["verdict"] != "alone"].groupby("accuracy", sort=False):
        counts = [f"{name} at {count}" for name, count in summary.wins(part).most_common(3)]
        if close := int((part["verdict"] != "slower").sum()):
            counts.append(f"none beyond the noise at {close}")
        yield f"{what} in {accuracy_label(accuracy)}: {listed(counts)} of {len(part)} shapes."


def trust(run: Run) -> list[str]:
    """Says what is missing, the noise floor, unequal work and warnings."""
    timed = run_report.timed_cells(run.cells)
    warnings = run_report.warnings_of(timed, uncertainty.beyond(timed, run.noise))
    failures = summary.failures(run.cells)
    few = 0 < sum(floor.pairs for floor in run.noise) < noise.FEWEST_PAIRS
    lines = [
        run_report.incomplete(run),
        run_report.noise_line(run.noise) + "; it rests on few pairs" * few,
        *run_report.mark_notes(run, timed["implementation"]),
        *(f"missing: {s.strip()}" for s in run_report.failure_lines(failures, run)),
        *run_report.warning_lines(warnings, len(timed)),
        run_report.damage(run),
    ]
    return [f"{line[:1].upper()}{line[1:]}." for line in map(str.strip, lines) if line]
