"""The fastest row that can be deployed at a shape, its cost and its code."""

from __future__ import annotations

import functools
import math
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from lstm_bench.analysis import summary
from lstm_bench.analysis.choice import CLASSES, TIE, allowed
from lstm_bench.analysis.comparison import Comparison
from lstm_bench.analysis.results import Run
from lstm_bench.features.advise import estimate, sources
from lstm_bench.features.advise.estimate import Choice, HeldOut
from lstm_bench.features.advise.sources import Search, Source
from lstm_bench.frameworks import find, snippet
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.shape_filter import AXES
from lstm_bench.model.types import Implementation, LstmBenchError, Shape
from lstm_bench.model.units import counted, percent, size
from lstm_bench.report.fastest import Compared
from lstm_bench.report.ladder import COLUMNS
from lstm_bench.runs.run_folders import elsewhere

MOST_MISSING = 3  # rows of other runs that are named
COSTS = tuple(COLUMNS)
PEAKS = ("host_peak", "device_peak")


@dataclass(frozen=True)
class Advice:
    """The answer for a shape: its rows, the choice among them, and what is left open."""

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
    def advised(self) -> Mapping[str, Any]:
        return self.choice.row

    @property
    def advised_row(self) -> str:
        return str(self.advised["implementation"])

    @property
    def decided(self) -> bool:
        """Return whether nothing that could be faster is left open."""
        return self.choice.decided and not self.missing and not self.source.lacks

    @property
    def elsewhere(self) -> list[str]:
        """The commands that ask for other devices, where a CPU answers that nobody asked for."""
        run = self.source.run
        if self.search.asked_for or run.plan.settings.device != "cpu":
            return []
        words = ["lstm-bench", "advise", self.source.shape.label]
        if run.folder and not self.search.note:
            words += elsewhere(run.folder)
        devices = self.search.devices
        return [f"{d} has an answer too: `{shlex.join(words)} {sources.flag(d)}`" for d in devices]

    @functools.cached_property
    def other_runs(self) -> dict[str, float]:
        """How much faster than what runs now the candidate is in the other runs with an answer."""
        name, now = self.choice.candidate["implementation"], self.source.now
        return {
            source.run.name: source.seconds[now] / source.seconds[name]
            for source in self.search.peers
            if not source.outside and {name, now} <= source.seconds.keys()
        }

    @property
    def interval(self) -> tuple[float, float]:
        """The lowest and highest speedup of the candidate, by its error and by the other runs."""
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
    for name in {*without} - {*source.times.names}:
        find(name, "--without")  # refuses what is no row at all
    run, now, time, shape = source.run, source.now, source.seconds, source.shape
    if accuracy is None:  # no less than what the user has
        lacks = source.lacks
        accuracy = summary.accuracy(find(lacks, "").precision) if lacks else source.accuracy[now]
        accuracy = summary.ANY if accuracy not in CLASSES else accuracy
    classes, held_out = allowed(accuracy), None
    if not source.measured:
        able = {*sources.deployable(run)}.intersection(source.times.names)
        names = [name for name in able if source.accuracy[name] in classes]
        held_out = estimate.hold_out(source.times, estimate.left_out(source.times), names, now)
    margin, costs = _margin(source, held_out), _costs(source.times, source.near)
    compared = Compared(run, run.cells, "latency")
    device = run.plan.settings.device
    rows, left_out = [], {}
    for name in sorted(source.rows, key=time.__getitem__):
        row: dict[str, Any] = {"implementation": name, "accuracy": source.accuracy[name]}
        row |= {"latency_s": time[name], "speedup": time[now] / time[name]}
        if name == now:
            row["verdict"] = "now"
        elif source.measured:
            row["verdict"] = verdicts(compared(now, name)).get(astuple(shape), "unsure")
        else:
            word = "faster" if row["speedup"] > 1 else "slower"
            beyond = abs(math.log(row["speedup"])) > math.log1p(margin(name, now))
            row["verdict"] = word if beyond else "unsure"
        row |= costs[name]
        known = planned(run, name, source.precisions[name])
        row["code"] = snippet(known, device, shape.training)
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
    missing = _missing(search, classes, without, rows[0]["speedup"])
    return Advice(search, accuracy, memory, rows, faster, held_out, choice, missing)


def _margin(source: Source, held_out: HeldOut | None) -> Callable[[str, str], float]:
    """The most by which two like rows differ: the noise, and what the order may be off by."""
    wrong = held_out.margin if held_out else 0.0
    return lambda row, other: max(source.floor(row, other), wrong)


def _missing(
    search: Search, classes: Collection[str], without: Collection[str], speedup: float
) -> dict[str, tuple[float, Source]]:
    """The rows that gain more in another run, and that the first does not have; most first."""
    first = search.sources[0]
    missing: dict[str, tuple[float, Source]] = {}
    for source in search.peers:
        names = {name for name in source.rows if source.accuracy[name] in classes}
        for name in sorted(names.difference(first.times.names, without, missing)):
            gain = source.seconds.get(first.now, 0.0) / source.seconds[name]
            if gain > (1 + TIE) * speedup:
                missing[name] = (gain, source)
    return dict(sorted(missing.items(), key=lambda item: -item[1][0])[:MOST_MISSING])


def verdicts(pair: Comparison | None) -> dict[tuple[int, ...], str]:
    """The verdict on B at each shape, judged together, as `compare` and the page do."""
    if pair is None:
        return {}
    keys = pair.shapes[SHAPE].itertuples(index=False, name=None)
    return dict(zip(keys, pair.shapes["verdict"], strict=True))


def measure(answer: Advice) -> str:
    """The command that makes the answer sure."""
    source = answer.source
    flags = ["--rigorous"] if source.measured and not answer.choice.decided else []
    return sources.command(source.run, source.shape, to_measure(answer), *flags)


def to_measure(answer: Advice) -> list[str]:
    """The rows that make the answer sure: those that could win, and what runs now."""
    source = answer.source
    names = dict.fromkeys([*answer.could_win, source.now, source.lacks])
    return sources.measurable(names, source.run.plan.settings.device)


def worth(held: HeldOut, run: str) -> str:
    """Say what such advice was worth at the measured shapes of the run."""
    if not held.shapes:
        return f"{run} has too few shapes to say how good such advice is"
    loss = "" if math.isnan(held.loss) else f", {percent(held.loss)} slower on average where not"
    return (
        f"such advice at the {counted(held.shapes, 'shape')} of {run}, each left out in turn: the"
        f" fastest row at {held.best}{loss}; within {percent(estimate.CLOSE, 0)} of it at"
        f" {held.close}; estimated times are off by {percent(held.off, 0)}, median"
    )


def planned(run: Run, name: str, precision: str) -> Implementation:
    """Today's row of that name, for its code; of a name that is gone what the run says of it."""
    try:
        row = find(name, run.name)
    except LstmBenchError:
        row = next(row for row in run.plan.implementations if row.name == name)
    return replace(row, precision=precision) if row.precision == "amp" else row


def _costs(times: summary.Times, near: Sequence[Shape]) -> dict[str, dict[str, float]]:
    """The costs of each row at these shapes; of memory the most at any that is no larger.

    Allocators keep what they have: a cell that is measured late seems to need little.
    """
    largest = {axis: max(getattr(shape, axis) for shape in near) for axis in AXES}
    at = set(map(astuple, near))
    here = [key in at for key in zip(*(times.cells[axis] for axis in SHAPE), strict=True)]
    below = np.logical_and.reduce([times.cells[axis] <= largest[axis] for axis in AXES])
    own, smaller = (times.cells[some].groupby("implementation") for some in (here, below))
    costs = own[[cost for cost in COSTS if cost not in PEAKS]].median()
    costs["max_abs_error"] = own["max_abs_error"].max()
    costs[list(PEAKS)] = smaller[list(PEAKS)].max()
    return {str(name): row.astype(float).to_dict() for name, row in costs.iterrows()}
