"""How far to trust a run, in sentences: what is missing, its noise, its checks, its warnings."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from lstm_bench.analysis import noise
from lstm_bench.analysis.results import Run
from lstm_bench.model.types import kinds_of
from lstm_bench.model.units import counted, listed

MOST_NAMED = 4  # rows named in one list of failures or warnings


def trust(run: Run) -> list[str]:
    """What is missing, the noise floor, the checks, unequal work and warnings."""
    if run.cells.empty:
        shapes = len(run.plan.shapes)
        told = f"{counted(shapes, 'shape')} {_is(shapes)} planned"
        return [f"{told}; none has been measured yet."]
    result = []
    if run.left:
        planned = counted(len(run.plan.all_cells()), "planned cell")
        left = f"{run.left} of {planned} {_is(run.left, past=False)} still to be measured"
        result.append(f"The run is not complete: {left}, controls counted.")
    result += _left_out(run.cells)
    if not measured(run.cells).empty:
        result += [_noise(run), *_checks(run.cells), *_unequal(run)]
    result += _warnings(run.cells)
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
    """The noise floor by duration class, or that there is none."""
    known = [(n, n.floor) for n in run.noise if n.floor is not None]
    if not known:
        return "The run has no A/A controls: its noise is not known, differences may be chance."
    enough = [(n, floor) for n, floor in known if n.pairs >= noise.FEWEST_PAIRS]
    parts = [
        f"{two_digits(floor)} for calls {_class(n.name)} ({counted(n.pairs, 'pair')})"
        for n, floor in enough or known
    ]
    text = "Noise floor: of the same thing measured twice, 95% differ by less than "
    text += listed(parts)
    if not enough:
        return f"{text}; so few pairs are a rough guide."
    few = [_class(n.name) for n in run.noise if (n, n.floor) not in enough]
    if few:
        text += f"; calls {listed(few)} have too few pairs and take the widest"
    return f"{text}."


def _class(name: str) -> str:
    return name.replace("<", "under").replace(">=", "of at least")


def _checks(cells: pd.DataFrame) -> list[str]:
    """Whether each time stands for a checked answer, and the largest error by precision."""
    ok = cells[cells["status"] == "ok"]
    checked = ok[ok["max_abs_error"].notna()]
    if checked.empty:
        return ["No answer was checked against the float64 reference."]
    parts = []
    for precision, part in checked.groupby("precision", sort=False):
        worst = part.loc[part["max_abs_error"].idxmax()]
        parts.append(
            f"{worst['max_abs_error']:.0e} in {precision or 'no stated precision'}"
            f" ({worst['implementation']}, tolerance {worst['tolerance']:.0e})"
        )
    if len(checked) == len(ok):
        text = "Every answer was checked against a float64 reference"
    else:
        answers = counted(len(ok), "answer")
        text = f"{len(checked)} of {answers} were checked against a float64 reference"
    return [f"{text}; largest error: {listed(parts)}."]


def _unequal(run: Run) -> list[str]:
    """Rows that compute something else must not be read as faster."""
    ok = measured(run.cells)
    names = list(dict.fromkeys(ok.loc[ok["computes"] != "lstm", "implementation"]))
    if not names:
        return []
    does = "does" if len(names) == 1 else "do"
    return [
        f"{listed(names)} {does} less work (the input projection is left out) and"
        f" {_is(len(names), past=False)} not among the winners; beside others it is marked."
    ]


def _warnings(cells: pd.DataFrame) -> list[str]:
    """The most frequent marks, by their first words."""
    told = cells.loc[cells["status"] == "ok", "warnings"]
    marks = kinds_of(told)
    if not marks:
        return []
    common = marks[:MOST_NAMED]
    words = listed(f"{count} {mark}" for mark, count in common)
    total = counted(len(told), "cell")
    return [f"Warnings of {total} with a time, controls included: {words}."]


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
