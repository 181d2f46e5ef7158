"""The fastest row that can be deployed at a shape, its cost and its code."""

from __future__ import annotations

import functools
import math
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from lstm_bench.analysis import noise, summary
from lstm_bench.analysis.comparison import Comparison
from lstm_bench.analysis.noise import SHAPE
from lstm_bench.analysis.results import Run
from lstm_bench.features.advise import estimate, sources
from lstm_bench.features.advise.estimate import Choice, HeldOut
from lstm_bench.features.advise.sources import Search, Source
from lstm_bench.frameworks import find, snippet
from lstm_bench.model.types import Implementation, LstmBenchError, Shape
from lstm_bench.model.units import (
    counted,
    percent,
    size,
)
from lstm_bench.report.fastest import Compared
from lstm_bench.report.ladder import COLUMNS, base_of
from lstm_bench.report.page import LETTERS
from lstm_bench.runs.run_folders import elsewhere

MOST_MISSING = 3  # rows of other runs that are named
COSTS = tuple(COLUMNS)
PEAKS = ("host_peak", "device_peak")


@dataclass(frozen=True)
class Advice:
    """What to run at a shape."""

    search: Search
    accuracy: str
    memory: float | None
    rows: list[dict[str, Any]]  # what may be taken, fastest first
    left_out: dict[str, str]  # faster than the fastest of these -> why it is not among them
    held_out: HeldOut | None  # None: it was measured
    choice: Choice
    missing: dict[str, tuple[float, Source]]  # faster in another run, and not in this one

    @property
    def source(self) -> Source:
        return self.search.sources[0]

    @property
    def run(self) -> Run:
        return self.source.run

    @property
    def shape(self) -> Shape:
        return self.source.shape

    @property
    def now(self) -> str:
        return self.source.now

    @property
    def measured(self) -> bool:
        return self.source.measured

    @property
    def advised(self) -> Mapping[str, Any]:
        return self.choice.row

    @property
    def decided(self) -> bool:
        """Whether nothing that could be faster is left open."""
        return self.choice.decided and not self.missing and not self.source.lacks

    @property
    def elsewhere(self) -> list[str]:
        """The commands that ask for other devices, where a CPU answers that nobody asked for."""
        if self.search.asked_for or self.run.plan.settings.device != "cpu":
            return []
        command = f"lstm-bench advise {self.shape.label}"
        if self.run.folder and not self.search.note:
            command = shlex.join([*command.split(), *elsewhere(self.run.folder)])
        devices = self.search.devices
        return [f"{d} has an answer too: `{command} {sources.flag(d)}`" for d in devices]

    @functools.cached_property
    def other_runs(self) -> dict[str, float]:
        """How much faster than what runs now the candidate is in the other runs with an answer."""
        name, now = self.choice.candidate["implementation"], self.now
        return {
            source.run.name: source.seconds[now] / source.seconds[name]
            for source in self.search.peers
            if not source.outside and {name, now} <= source.seconds.keys()
        }

    @property
    def interval(self) -> tuple[float, float]:
        """What the speedup of the candidate may be, by its error and by the other runs."""
        speedup = self.choice.candidate["speedup"]
        wrong = max(self.source.noise, self.held_out.spread if self.held_out else 0.0)
        low, high = speedup / (1 + wrong), speedup * (1 + wrong)
        if self.choice.candidate["verdict"] == "faster":  # that much is known
            low = max(low, 1.0)
        others = self.other_runs.values()
        return min([low, *others]), max([high, *others])

    @property
    def could_win(self) -> list[str]:
        """The rows that may be as fast as the fastest, and those of other runs."""
        margin, fastest = _margin(self.source, self.held_out), self.rows[0]["implementation"]
        most = self.rows[0]["latency_s"]
        times = {row["implementation"]: row["latency_s"] for row in self.rows}
        rows = [name for name, time in times.items() if time <= most * (1 + margin(name, fastest))]
        return [*rows, *self.missing]


def advise(
    search: Search,
    accuracy: str | None = None,
    memory: float | None = None,
    without: Collection[str] = (),
) -> Advice:
    """Advice from the best of some runs; refuses where it has no row of the kind that is asked."""
    source = search.sources[0]
    if source.outside:
        raise sources.refusal([source], "; without --run all runs are asked")
    for name in without:
        if name not in source.times.names:
            find(name, "--without")  # refuses what is no row at all
    run, now, time, shape = source.run, source.now, source.seconds, source.shape
    precisions = source.precisions
    if accuracy is None:  # no less than what the user has
        usual = find(source.lacks, "").precision if source.lacks else precisions[now]
        accuracy = summary.accuracy(usual)
        accuracy = summary.ANY if accuracy not in estimate.CLASSES else accuracy
    classes = estimate.allowed(accuracy)
    held_out = None
    if not source.measured:
        able = [name for name in sources.deployable(run) if name in source.times.names]
        names = _allowed(able, precisions, accuracy)
        held_out = estimate.hold_out(source.times, estimate.left_out(source.times), names, now)
    margin, costs = _margin(source, held_out), _costs(source.times, source.near)
    compared = Compared(run, run.cells, "latency")
    device = run.plan.settings.device
    rows, left_out = [], {}
    for name in sorted(source.rows, key=time.__getitem__):
        row: dict[str, Any] = {"implementation": name, "accuracy": _class(precisions, name)}
        row |= {"latency_s": time[name], "speedup": time[now] / time[name]}
        if name == now:
            row["verdict"] = "now"
        elif source.measured:
            row["verdict"] = verdicts(compared(now, name)).get(astuple(shape), "unsure")
        else:
            beyond = abs(math.log(row["speedup"])) > math.log1p(margin(name, now))
            row["verdict"] = "unsure"
            if beyond:
                row["verdict"] = "faster" if row["speedup"] > 1 else "slower"
        row |= costs[name]
        row["code"] = snippet(planned(run, name, precisions[name]), device)
        peak = row["device_peak" if device == "cuda" else "host_peak"]
        if row["accuracy"] not in classes:
            left_out[name] = f"{row['accuracy']} accuracy"
        elif name in without:
            left_out[name] = "--without"
        elif memory is not None and not peak <= memory:
            left_out[name] = "memory not known" if math.isnan(peak) else f"needs {size(peak)}"
        else:
            rows.append(row)
    if not rows:
        least = f" and at most {size(memory)}" if memory is not None else ""
        why = ", ".join(f"{name} ({reason})" for name, reason in left_out.items())
        raise LstmBenchError(
            f"{run.name} has no row with {accuracy} accuracy{least} at {shape.label}; it has {why}"
        )
    choice = estimate.choose(rows, now, margin)
    faster = {n: why for n, why in left_out.items() if time[n] < rows[0]["latency_s"]}
    missing = _missing(search, accuracy, without, rows[0]["speedup"])
    return Advice(search, accuracy, memory, rows, faster, held_out, choice, missing)


def _margin(source: Source, held_out: HeldOut | None) -> Callable[[str, str], float]:
    """By how much two rows may differ and be alike: the noise, and what the order may be off by."""
    wrong = held_out.margin if held_out else 0.0
    return lambda row, other: max(source.floor(row, other), wrong)


def _missing(
    search: Search, accuracy: str, without: Collection[str], speedup: float
) -> dict[str, tuple[float, Source]]:
    """The rows that gain more in another run, and that the first does not have; most first."""
    first = search.sources[0]
    known = {*first.times.names, *without}
    missing: dict[str, tuple[float, Source]] = {}
    for source in search.peers:
        names = _allowed(source.rows, source.precisions, accuracy)
        for name in sorted({*names} - known - missing.keys()):
            gain = source.seconds.get(first.now, 0.0) / source.seconds[name]
            if gain > (1 + estimate.TIE) * speedup:
                missing[name] = (gain, source)
    most = sorted(missing, key=lambda name: -missing[name][0])[:MOST_MISSING]
    return {name: missing[name] for name in most}


def on_page(run: Run) -> dict[str, Any] | None:
    """What the page needs to answer for any shape; None of a run that has nothing to advise."""
    times = summary.times(run.cells)
    names = [name for name in sources.deployable(run) if name in times.names]
    precisions = sources.precisions_of(times)
    if not names:
        return None
    now = base_of(run, names)
    shapes = times.shapes[SHAPE].to_numpy().tolist()
    compared = Compared(run, run.cells, "latency")
    measured = {name: times.seconds[:, times.names.index(name)] for name in names}
    guesses, floors = estimate.left_out(times), run.floors("latency")
    tried = {
        accuracy: estimate.hold_out(times, guesses, _allowed(names, precisions, accuracy), now)
        for accuracy in (*estimate.CLASSES, summary.ANY)
    }
    worths = {accuracy: worth(held, run.name) for accuracy, held in tried.items()}
    limits = [limit for _, limit in noise.CLASSES]
    device = run.plan.settings.device
    return {
        "rows": names,
        "classes": [_class(precisions, name) for name in names],
        "order": estimate.CLASSES,
        "now": now,
        "shapes": shapes,
        "seconds": [[float(f"{t:.7g}") for t in measured[name]] for name in names],
        "verdict": [_letters(compared(now, name), shapes) for name in names],
        "slope": list(estimate.slope_of(times.shapes, np.log(times.seconds))),
        "doubling": list(estimate.DOUBLING.values()),
        "nearest": estimate.NEAREST,
        "power": estimate.POWER,
        "tie": estimate.TIE,
        "limits": limits[:-1],
        "floors": [list(noise.floor_at(floors, [0, *limits[:-1]], [n] * 3)) for n in names],
        "margin": {accuracy: held.margin for accuracy, held in tried.items()},
        "worth": {accuracy: f"{text[0].upper()}{text[1:]}" for accuracy, text in worths.items()},
        "code": [snippet(planned(run, name, precisions[name]), device) for name in names],
    }


def _letters(pair: Comparison | None, shapes: Sequence[Sequence[int]]) -> list[str]:
    """The verdict at every shape, one letter each as the page has them; else nothing."""
    known = verdicts(pair)
    return [LETTERS.get(known.get(tuple(shape), ""), "") for shape in shapes]


def verdicts(pair: Comparison | None) -> dict[tuple[int, ...], str]:
    """What B is against A, shape by shape: judged together, as `compare` and the page do."""
    if pair is None:
        return {}
    keys = pair.shapes[SHAPE].itertuples(index=False, name=None)
    return dict(zip(keys, pair.shapes["verdict"], strict=True))


def _allowed(names: Sequence[str], precisions: Mapping[str, str], accuracy: str) -> list[str]:
    classes = estimate.allowed(accuracy)
    return [name for name in names if _class(precisions, name) in classes]


def measure(answer: Advice) -> str:
    """The command that makes the answer sure."""
    flags = ["--rigorous"] if answer.measured and not answer.choice.decided else []
    return sources.command(answer.run, answer.shape, to_measure(answer), *flags)


def to_measure(answer: Advice) -> list[str]:
    """The rows that make the answer sure: those that could win, and what runs now."""
    names = dict.fromkeys([*answer.could_win, answer.now, answer.source.lacks])
    return sources.measurable(names, answer.run.plan.settings.device)


def worth(held: HeldOut, run: str) -> str:
    """What such advice was worth at the measured shapes of the run."""
    if not held.shapes:
        return f"{run} has too few shapes to say how good such advice is"
    loss = "" if math.isnan(held.loss) else f", {percent(held.loss)} slower on average where not"
    return (
        f"such advice at the {counted(held.shapes, 'shape')} of {run}, each left out in turn: the"
        f" fastest row at {held.best}{loss}; within {percent(estimate.CLOSE, 0)} of it at"
        f" {held.close}; estimated times are off by {percent(held.off, 0)}, median"
    )


def _class(precisions: Mapping[str, str], name: str) -> str:
    return summary.accuracy(precisions[name])


def planned(run: Run, name: str, precision: str) -> Implementation:
    """Today's row of that name, for its code; of a name that is gone what the run says of it."""
    planned = {row.name: row for row in run.plan.implementations}
    try:
        row = find(name, run.name)
    except LstmBenchError:
        row = planned[name]
    return replace(row, precision=precision) if row.precision == "amp" else row


def _costs(times: summary.Times, near: Sequence[Shape]) -> dict[str, dict[str, float]]:
    """What a row costs at these shapes; of memory the most at any that is no larger.

    Allocators keep what they have: a cell that is measured late seems to need little.
    """
    largest = {axis: max(getattr(shape, axis) for shape in near) for axis in SHAPE}
    at = {(shape.hidden, shape.batch, shape.timesteps, shape.input_size) for shape in near}
    here = [key in at for key in zip(*(times.cells[axis] for axis in SHAPE), strict=True)]
    below = np.logical_and.reduce([times.cells[axis] <= largest[axis] for axis in SHAPE])
    medians = [cost for cost in COSTS if cost not in PEAKS]
    found = times.cells[here].groupby("implementation")[medians].median()
    found["max_abs_error"] = times.cells[here].groupby("implementation")["max_abs_error"].max()
    found[list(PEAKS)] = times.cells[below].groupby("implementation")[list(PEAKS)].max()
    records = found.to_dict("index")
    return {str(name): {str(k): float(v) for k, v in row.items()} for name, row in records.items()}
