"""What a run says, and how far to trust it, in sentences; only what is beyond its noise.

Pure functions of a run. Two implementations are compared by `report.headline`; everything that is
not beyond the noise is "no clear difference".
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from lstm_bench.analysis import noise, summary
from lstm_bench.analysis.results import REFERENCES, Run, references
from lstm_bench.analysis.summary import accuracy_label
from lstm_bench.frameworks import FRAMEWORKS
from lstm_bench.model.types import UNSEEN_GPU, Implementation
from lstm_bench.model.units import counted, error, listed, seconds
from lstm_bench.report import fastest, run_report
from lstm_bench.report.fastest import Compared
from lstm_bench.report.headline import headline

TITLES = {f.name: f.title for f in FRAMEWORKS.values() if f.title}
#: What all numbers are about; help and README say the same.
SCOPE = "Inference, one LSTM layer, one direction, equal lengths"
MOST_NAMED = 4  # rows named in one list of failures or warnings


def subject(run: Run) -> str:
    """What was tested on what, in one line."""
    plan, machine = run.plan, run.manifest["machine"]
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


def findings(run: Run, compared: Compared) -> list[str]:
    """How far frameworks are from what is possible, who wins, what each row costs and gains."""
    there = set(measured(run.cells)["implementation"])
    rows = [row for row in run.plan.implementations if row.name in there]
    if not rows:
        return ["Nothing was measured: no cell of this run has a time."]
    times = summary.times(run.cells)
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
        costs.append(
            "Factors are geometric means of latency over the shapes that both sides have; those"
            " within noise are not stated."
        )
    return [*leads(run, compared), *_wins(run), *costs]


def _full_precision_of(row: Implementation, other: Implementation) -> bool:
    """Whether `other` is the same row of the registry, but in fp32."""

    def but_precision(plan: Implementation) -> tuple[object, ...]:
        options = {k: v for k, v in plan.options.items() if k != "precision"}
        return plan.home, plan.module, plan.computes, plan.threads, options

    lower = row.precision != "fp32" and other.precision == "fp32"
    return lower and but_precision(row) == but_precision(other)


def leads(run: Run, compared: Compared) -> Iterator[str]:
    """How far each framework's best row is from the C++ reference of its class of accuracy.

    Without a reference: how far it is from the fastest of them.
    """
    times, rows = summary.times(run.cells), {row.name: row for row in run.plan.implementations}
    everywhere, best_of_cudnn = np.ones(len(times.shapes), dtype=bool), False
    against_reference = False
    classes = {c: names for c, names in summary.classes(times).items() if c != summary.ANY}
    for accuracy, names in classes.items():
        where = (
            f"In {accuracy_label(accuracy)}, " if len(classes) > 1 and accuracy != "fp32" else ""
        )
        ours, theirs = (
            fastest.ranked(times, [name for name in side if name in rows], everywhere)
            for side in fastest.contestants(run, times, names)
        )
        best = {rows[name].home: name for name in reversed(ours)}.values()
        first = [name for name in ours if name in best]
        base = next(iter([*theirs, *first]), "")
        for name in first:
            if name == base or not (pair := compared(base, name)):
                continue
            against_reference |= base in theirs
            titles = [title(run, rows[side]) for side in (base, name)]
            best_of_cudnn |= titles[0] == "the best of cuDNN"
            yield f"{where}{headline(dataclasses.replace(pair, a=titles[0], b=titles[1]))}."
    if best_of_cudnn:
        yield "The best of cuDNN is our C++ reference: it is called from C++."
    if against_reference:
        yield "The C++ reference shows what is possible and cannot be deployed."


def title(run: Run, row: Implementation) -> str:
    """An implementation by the name that people know it by."""
    if row.framework in REFERENCES:
        best = row.name.endswith("-best") and run.plan.settings.device == "cuda"
        return "the best of cuDNN" if best else f"the C++ reference ({row.name})"
    known = TITLES.get(row.framework, "")
    return known if known.lower() == row.name else f"{known} ({row.name})" if known else row.name


def _wins(run: Run) -> list[str]:
    """Who is fastest at most shapes, of what can be deployed: in each class of accuracy, in any."""
    won = fastest.contests(run, run.cells)
    alike = summary.ANY not in set(won["accuracy"])
    won = won[won["verdict"] != "alone"]
    lost = summary.lacking(run.cells)
    deployed = "of what you can deploy, " if references(run) else ""
    return [
        _most_wins(part, deployed + ("" if alike else f"in {accuracy_label(accuracy)}, "), lost)
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
    text = f"{_capital(where)}{top}{known} is the fastest at {wins} of {shapes}"
    beside = Counter(name for own in sure if top in own for name in own if name != top)
    if beside:
        text += f" (the same code as {_counts(beside)})"
    others = Counter(name for own in sure if top not in own for name in own)
    if others:
        text += f"; {_counts(dict(others.most_common(2)))}"
    if close := int((won["verdict"] != "slower").sum()):
        text += f"; at {close} the first two are within noise"
    return text + (f"; {top} {lost[top]}." if top in lost else ".")


def _counts(places: Mapping[str, int]) -> str:
    return listed(f"{name} at {count}" for name, count in Counter(places).most_common())


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def trust(run: Run) -> list[str]:
    """What is missing, the noise floor, the checks, unequal work and warnings."""
    if run.cells.empty:
        return [f"None of {counted(len(run.plan.shapes), 'planned shape')} has been measured yet."]
    result = []
    if run.left:
        left = f"{run.left} of {counted(run.plan.size, 'planned cell')} still to be measured"
        result.append(f"The run is not complete: {left}, controls counted.")
    result.append(_left_out(run.cells))
    ok = measured(run.cells)
    if not ok.empty:
        result += [_noise(run), _checks(run.cells)]
    if names := list(dict.fromkeys(ok.loc[ok["computes"] != "lstm", "implementation"])):
        result.append(f"Less work, so never fastest: {listed(names)} (no input projection).")
    if marks := run_report.warnings_of(run.cells, run.noise):
        words = listed(f"{count} {mark}" for mark, count in marks[:MOST_NAMED])
        own = run.cells[run.cells["copy"] == 1]
        total = counted(int((own["status"] == "ok").sum()), "cell")
        result.append(f"Warnings about {total}: {words}.")
    if run.damaged:
        result.append(f"Left out, as it could not be read: {counted(run.damaged, 'line')}.")
    return result


def measured(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells with a latency, controls apart."""
    own = (cells["status"] == "ok") & (cells["copy"] == 1) & cells["latency_s"].notna()
    return cells[own]


def _left_out(cells: pd.DataFrame) -> str:
    """How many cells have no time, whose and why."""
    own = cells[cells["copy"] == 1]
    failed = own[own["status"] != "ok"]
    every = counted(len(own), "cell")
    if failed.empty:
        return f"None of {every} failed or was left out."
    kinds = listed(f"{n} {status}" for status, n in Counter(failed["status"]).most_common())
    ranked = Counter(failed["implementation"]).most_common()
    names = [f"{name} {count}" for name, count in ranked[:MOST_NAMED]]
    if len(ranked) > MOST_NAMED:
        names.append(f"{len(ranked) - MOST_NAMED} more")
    return f"Without a time: {len(failed)} of {every}, {kinds} ({listed(names)})."


def _noise(run: Run) -> str:
    """The noise floor that is used, or that it is not known."""
    pairs = sum(n.pairs for n in run.noise)
    few = "; it rests on few pairs" if 0 < pairs < noise.FEWEST_PAIRS else ""
    return f"{_capital(run_report.noise_line(run.noise))}{few}."


def _checks(cells: pd.DataFrame) -> str:
    """Whether each time stands for a checked output, and the largest error by precision."""
    ok = cells[cells["status"] == "ok"]
    checked = ok[ok["max_abs_error"].notna()]
    if checked.empty:
        return "No output was checked against the float64 reference."
    parts = []
    for precision, part in checked.groupby("precision", sort=False):
        worst = part.loc[part["max_abs_error"].idxmax()]
        parts.append(
            f"{worst['max_abs_error']:.0e} in {precision or 'no stated precision'}"
            f" ({worst['implementation']}, tolerance {worst['tolerance']:.0e})"
        )
    many = f"{len(checked)} of {counted(len(ok), 'output')}"
    many = "all outputs" if len(checked) == len(ok) else many
    return f"Checked against a float64 reference: {many}; largest error: {listed(parts)}."
