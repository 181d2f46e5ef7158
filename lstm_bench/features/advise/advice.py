"""`lstm-bench advise`: the fastest row that can be deployed at a shape, its cost and its code."""

from __future__ import annotations

import functools
import math
import shlex
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench.analysis import summary
from lstm_bench.analysis.choice import CLASSES, TIE, allowed, rank
from lstm_bench.analysis.comparison import Comparison
from lstm_bench.analysis.noise import SHAPE
from lstm_bench.analysis.results import Run
from lstm_bench.features.advise import estimate as advice
from lstm_bench.features.advise import sources
from lstm_bench.features.advise.estimate import Choice, HeldOut
from lstm_bench.features.advise.sources import Search, Source
from lstm_bench.frameworks import find
from lstm_bench.model.types import Implementation, LstmBenchError, Shape
from lstm_bench.model.units import (
    WIDTH,
    counted,
    error,
    factor,
    listed,
    percent,
    seconds,
    shown_ratio,
    size,
    wrapped,
)
from lstm_bench.report import run_report
from lstm_bench.report.document import Column, Document, Table, number, text
from lstm_bench.report.fastest import Compared
from lstm_bench.report.ladder import COLUMNS, base_of
from lstm_bench.report.snippets import snippet
from lstm_bench.runs.run_folders import elsewhere

MOST = 6  # rows that are drawn; JSON and CSV have all
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
        accuracy = summary.ANY if accuracy not in CLASSES else accuracy
    classes = allowed(accuracy)
    held_out = None
    if not source.measured:
        able = [name for name in sources.deployable(run) if name in source.times.names]
        names = _allowed(able, precisions, accuracy)
        held_out = advice.hold_out(source.times, advice.left_out(source.times), names, now)
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
    choice = advice.choose(rows, now, margin)
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
            if gain > (1 + TIE) * speedup:
                missing[name] = (gain, source)
    most = sorted(missing, key=lambda name: -missing[name][0])[:MOST_MISSING]
    return {name: missing[name] for name in most}


def held_out(run: Run) -> list[dict[str, Any]]:
    """What advice from a run is worth, for each accuracy that may be asked for."""
    times, names = summary.times(run.cells), sources.deployable(run)
    precisions, now = sources.precisions_of(times), base_of(run, names)
    there = {_class(precisions, name) for name in names}
    guesses = advice.left_out(times)
    rows = []
    for accuracy in (known for known in CLASSES if known in there):
        mine = _allowed(names, precisions, accuracy)
        tried = advice.hold_out(times, guesses, mine, now)
        rows.append({"run": run.name, "accuracy": accuracy, "rows": len(mine), **asdict(tried)})
    return rows


def verdicts(pair: Comparison | None) -> dict[tuple[int, ...], str]:
    """What B is against A, shape by shape: judged together, as `compare` and the page do."""
    if pair is None:
        return {}
    keys = pair.shapes[SHAPE].itertuples(index=False, name=None)
    return dict(zip(keys, pair.shapes["verdict"], strict=True))


def _allowed(names: Sequence[str], precisions: Mapping[str, str], accuracy: str) -> list[str]:
    classes = allowed(accuracy)
    return [name for name in names if _class(precisions, name) in classes]


def frame(answer: Advice) -> pd.DataFrame:
    """One row per implementation that may be taken, fastest first."""
    table = pd.DataFrame(answer.rows)
    table.insert(1, "advised", table["implementation"] == answer.advised["implementation"])
    table.attrs |= facts(answer)
    return table


def facts(answer: Advice) -> dict[str, Any]:
    """What is known beside the rows."""
    measured, choice = answer.measured, answer.choice
    return {
        "run": answer.run.name,
        "why": answer.search.why,
        "device": answer.source.device,
        "devices": list(answer.search.devices),
        "shape": asdict(answer.shape),
        "now": answer.now,
        "accuracy": answer.accuracy,
        "memory": answer.memory,
        "advised": answer.advised["implementation"],
        "decided": answer.decided,
        "candidate": choice.candidate["implementation"],
        "interval": list(answer.interval),
        "ties": [row["implementation"] for row in choice.ties],
        "other_runs": answer.other_runs,
        "missing": {name: gain for name, (gain, _) in answer.missing.items()},
        "measured": measured,
        "near": [] if measured else [asdict(shape) for shape in answer.source.near],
        "noise_floor": answer.source.floor(answer.rows[0]["implementation"]),
        "held_out": asdict(answer.held_out) if answer.held_out else None,
        "left_out": answer.left_out,
        "could_win": answer.could_win,
        "measure": measure(answer),
    }


def measure(answer: Advice) -> str:
    """What to type for a sure answer."""
    flags = ["--rigorous"] if answer.measured and not answer.choice.decided else []
    return sources.command(answer.run, answer.shape, to_measure(answer), *flags)


def to_measure(answer: Advice) -> list[str]:
    """What to measure for a sure answer: the rows that could win, and what runs now."""
    names = dict.fromkeys([*answer.could_win, answer.now, answer.source.lacks])
    return sources.measurable(names, answer.run.plan.settings.device)


def document(answer: Advice, code_of: str | None = None) -> Document:
    """The answer, what it costs, its code or that of another row, and how sure it is."""
    result = Document(facts=facts(answer))
    result.add("\n".join([run_report.heading(answer.run), *map(wrapped, answer.elsewhere)]))
    to_type = "measure it:\n" + " \\\n".join(
        textwrap.wrap(measure(answer), WIDTH - 6, break_long_words=False, break_on_hyphens=False)
    )
    to_type = to_type.replace("\n", "\n    ")
    result.add(wrapped(sentence(answer)), "" if answer.decided else to_type)
    asked = f"{answer.accuracy} accuracy" + (" or finer" if answer.accuracy != "fp32" else "")
    if answer.memory is not None:
        asked += f", at most {size(answer.memory)}"
    title = f"{answer.shape.label}, {asked}" + ("" if answer.measured else ", estimated")
    always = answer.now, answer.advised["implementation"]
    shown = [
        row for n, row in enumerate(answer.rows) if n < MOST or row["implementation"] in always
    ]
    result.add(Table("rows", shown, _columns(answer), title))
    rest = [row for row in answer.rows if row not in shown]
    result.add_details(Table("rows", rest, _columns(answer)) if rest else "")
    if answer.left_out:
        rows = ", ".join(f"{name} ({why})" for name, why in list(answer.left_out.items())[:MOST])
        result.add(wrapped(f"faster, but not what was asked for: {rows}"))
    name = code_of or str(answer.advised["implementation"])
    precision = answer.source.precisions.get(name) or find(name, "--code").precision
    code = snippet(planned(answer.run, name, precision), answer.run.plan.settings.device)
    if code_of and not code:
        raise LstmBenchError(f"--code: no program can use {name}; `lstm-bench list` shows all rows")
    if code:
        lines = "\n".join(f"    {line}".rstrip() for line in code.splitlines())
        start = "from lstm, a trained nn.LSTM, and tensors x (T, B, I), h0 and c0 (1, B, H)"
        result.add(f"{name}, {start}:\n\n{lines}")
    result.facts["code"] = code
    result.add("\n".join(map(wrapped, [*origin(answer), *certainty(answer)])))
    result.add(to_type if answer.decided and not answer.measured else "")
    return result


def sentence(answer: Advice) -> str:
    """The advice in a few sentences."""
    choice, now, run = answer.choice, answer.now, answer.run.name
    name, speedup = choice.candidate["implementation"], _gain(answer, choice.candidate)
    gain = f"{factor(max(speedup, 1 / speedup))} {'faster' if speedup > 1 else 'slower'}"
    pace = f"{'' if answer.measured else 'about '}{gain} than {now}"
    if speedup > 1:
        pace += f" ({' to '.join(map(factor, answer.interval))})"
    words = {
        "keep": f"Keep {now}: nothing that may be taken is faster beyond the noise",
        "tie": f"{name}, a tie with {now} ({gain}, which may be noise)",
        "faster": f"{name}, {pace}" + (", beyond the noise" if answer.measured else ""),
        "slower": f"{name}, {pace}: nothing faster may be taken",
        "unclear": f"Not decided: {name} may be {pace}, which may be noise",
    }
    if choice.state == "keep" and not answer.decided:
        words["keep"] = f"Not decided: no row of {run} is faster than {now} beyond the noise"
    if answer.missing and not words[choice.state].startswith("Not decided"):
        words[choice.state] = f"Not decided: {words[choice.state]}"
    parts = [words[choice.state]]
    if choice.state == "unclear" and choice.row["verdict"] == "faster":
        sure = factor(_gain(answer, choice.row))
        parts.append(f"Sure is {choice.row['implementation']}, {sure} faster")
    rivals = [row for row in choice.ties if row["implementation"] != now]
    if rivals and choice.state != "keep":
        ratio = shown_ratio(choice.candidate["latency_s"], rivals[0]["latency_s"])
        names = listed(row["implementation"] for row in rivals)
        exact = rank(choice.candidate["accuracy"]) < rank(rivals[0]["accuracy"])
        more = f"; {name} is more exact" if exact else ""
        parts.append(f"A tie with {names} ({factor(ratio)} its time, which may be noise){more}")
    if lacks := answer.source.lacks:
        parts.append(f"Without any setting you run {lacks}, which {run} does not have")
    if answer.missing:
        rows = listed(
            f"{row} ({factor(gain)} in {source.run.name} at {source.near[0].label})"
            for row, (gain, source) in answer.missing.items()
        )
        parts.append(f"Faster may be what {run} does not have: {rows}")
    if not answer.measured:
        near = listed(shape.label for shape in answer.source.near)
        parts.append(f"{answer.shape.label} was not measured: this is worked out from {near}")
    return ". ".join(parts) + "."


def origin(answer: Advice) -> list[str]:
    """Which run the answer is from, and what others say."""
    source, search, now = answer.source, answer.search, answer.now
    lines = []
    if search.asked:
        others = counted(search.asked - 1, "other run")
        before = f"before {others} with an answer: {search.why}"
        lines.append(f"from {source.run.name}, {before if search.asked > 1 else 'the only answer'}")
    name, gains = answer.choice.candidate["implementation"], answer.other_runs
    if gains and name != now:
        ends = " to ".join(dict.fromkeys(map(factor, (min(gains.values()), max(gains.values())))))
        lines.append(f"in {listed(gains)} {name} is {ends} as fast as {now}")
    elif search.asked > 1 and name != now:
        lines.append(f"no other run has times of both {name} and {now} there")
    if search.devices and not answer.elsewhere:
        devices = ", ".join(map(sources.flag, search.devices))
        lines.append(f"other devices with an answer: {devices}")
    return [search.note, *lines] if search.note else lines


def certainty(answer: Advice) -> list[str]:
    """How sure that is: the noise, and what such advice was worth elsewhere."""
    run, source = answer.run, answer.source
    pairs = sum(each.pairs for each in run.noise)
    wrong = sum(each.called_different for each in run.noise)
    floor = source.floor(answer.rows[0]["implementation"], answer.now)
    line = f"noise floor {percent(floor)}"
    line += f" ({counted(pairs, 'A/A pair')}, {wrong} wrongly called different)" if pairs else ""
    if source.excess > floor:
        line += f"; {answer.now} is {percent(source.excess, 0)} slower than the same in finer"
        line += " arithmetic, which only noise explains"
    lines = [line]
    if answer.held_out:
        lines.append(worth(answer.held_out, run.name))
    return lines


def worth(held: HeldOut, run: str) -> str:
    """What such advice was worth at the measured shapes of the run."""
    if not held.shapes:
        return f"{run} has too few shapes to say how good such advice is"
    loss = "" if math.isnan(held.loss) else f", {percent(held.loss)} slower on average where not"
    return (
        f"such advice at the {counted(held.shapes, 'shape')} of {run}, each left out in turn: the"
        f" fastest row at {held.best}{loss}; within {percent(advice.CLOSE, 0)} of it at"
        f" {held.close}; estimated times are off by {percent(held.off, 0)}, median"
    )


def held_out_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """`held_out` of some runs."""
    return Table(
        "held out",
        rows,
        [
            text("run", "run"),
            text("accuracy", "accuracy"),
            number("rows", "rows"),
            number("shapes", "shapes"),
            number("the fastest", "best"),
            number("within 5%", "close"),
            number("loss when not", "loss", percent),
            number("times off by", "off", lambda off: percent(off, 0)),
        ],
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


def _gain(answer: Advice, row: Mapping[str, Any]) -> float:
    """How many times faster than now a row is, by the latencies that are shown."""
    return shown_ratio(answer.source.seconds[answer.now], row["latency_s"])


def _columns(answer: Advice) -> list[Column]:
    advised = answer.advised if answer.decided else None

    def verdict(row: Mapping[str, Any]) -> str:
        return f"{row['verdict']}, advised" if row is advised else str(row["verdict"])

    known = [key for key in COSTS if any(not math.isnan(row[key]) for row in answer.rows)]
    two = {True: functools.partial(seconds, digits=2), False: functools.partial(size, digits=2)}
    return [
        text("implementation", "implementation"),
        text("class", "accuracy"),
        number("latency", "latency_s", seconds),
        Column("speedup", lambda row: factor(_gain(answer, row)), right=True),
        Column(f"against {answer.now}", verdict),
        number("error", "max_abs_error", error),
        *(number(COLUMNS[key], key, two[key.endswith("_s")]) for key in known),
    ]
