"""`lstm-bench advise`: the fastest row that can be deployed at a shape, its cost and its code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench.analysis import advice, summary
from lstm_bench.analysis.advice import HeldOut
from lstm_bench.analysis.comparison import Comparison
from lstm_bench.analysis.noise import SHAPE, floor_at
from lstm_bench.analysis.results import Run, references
from lstm_bench.model.registry import find, guess
from lstm_bench.model.types import Implementation, LstmBenchError, Shape
from lstm_bench.model.units import counted, error, factor, listed, percent, seconds, size, wrapped
from lstm_bench.report import run_report
from lstm_bench.report.document import Column, Document, Table, number, text
from lstm_bench.report.fastest import Compared
from lstm_bench.report.ladder import COLUMNS, base_of
from lstm_bench.report.page import LETTERS
from lstm_bench.report.snippets import snippet
from lstm_bench.runs import run_folders

MOST = 6  # rows that are drawn; JSON and CSV have all
COSTS = tuple(COLUMNS)
PEAKS = ("host_peak", "device_peak")
SAID = {"slower": "beyond the noise", "faster": "beyond the noise", "same": "within noise"}
SAID |= {"unsure": "which may be noise"}


@dataclass(frozen=True)
class Advice:
    """What to run at a shape."""

    run: Run
    shape: Shape
    now: str
    accuracy: str
    memory: float | None
    rows: list[dict[str, Any]]  # what may be taken, fastest first
    left_out: dict[str, str]  # faster than the advised row -> why it is not advised
    near: tuple[Shape, ...]  # the shape itself, or those that its times were worked out from
    floor: float  # the noise floor at these times
    held_out: HeldOut | None  # None: it was measured

    @property
    def measured(self) -> bool:
        return self.held_out is None

    @property
    def advised(self) -> dict[str, Any]:
        """The fastest that is faster than what runs now beyond the noise; else that, if it may."""
        good = [row for row in self.rows if row["verdict"] in ("faster", "estimated")]
        own = [row for row in self.rows if row["implementation"] == self.now]
        return (good or own or self.rows)[0]

    @property
    def could_win(self) -> list[str]:
        """The rows within the noise, and within what estimates are wrong by, of the fastest."""
        margin = max(self.floor, self.held_out.margin if self.held_out else 0.0)
        if not math.isfinite(margin):
            return [row["implementation"] for row in self.rows]
        most = self.rows[0]["latency_s"] * (1 + margin)
        return [row["implementation"] for row in self.rows if row["latency_s"] <= most]


def of(
    run: Run,
    shape: Shape,
    now: str | None = None,
    accuracy: str | None = None,
    memory: float | None = None,
) -> Advice:
    """Advice from a run; refuses where the run has nothing to say of the shape."""
    times = summary.times(run.cells)
    if not len(times.shapes):
        raise LstmBenchError(f"{run.name} has no times: there is nothing to advise from")
    if beyond := advice.outside(times.shapes, shape):
        raise LstmBenchError(
            f"{shape.label} is outside of what {run.name} measured: {beyond}; nothing is guessed"
            f" there. Measure it: `{command(run, shape, _deployable(run, times))}`"
            f"{_other(run, shape)}"
        )
    places, _ = advice.near(times.shapes, shape)
    near = tuple(Shape(*map(int, times.shapes.loc[place, SHAPE])) for place in places)
    measured = near == (shape,)
    time = dict(zip(times.names, advice.seconds_at(times, shape), strict=True))
    known = [name for name in run.implementations if not math.isnan(time.get(name, math.nan))]
    ours = [name for name in _deployable(run, times) if name in known]
    if not ours:
        raise LstmBenchError(
            f"{run.name} has no time of anything that can be deployed at"
            f" {listed(shape.label for shape in near)}{_other(run, shape)}"
        )
    now = _now(run, shape, now, known) if now else base_of(run, ours)
    precisions = _precisions(times)
    if accuracy is None:  # no less than what the user has
        accuracy = summary.accuracy(precisions[now])
        accuracy = summary.ANY if accuracy not in advice.CLASSES else accuracy
    classes = advice.allowed(accuracy)
    costs = _costs(times, near)
    compared = Compared(run, run.cells, "latency")
    on_gpu = run.plan.settings.device == "cuda"
    rows, left_out = [], {}
    for name in sorted(ours, key=time.__getitem__):
        row: dict[str, Any] = {"implementation": name, "accuracy": _class(precisions, name)}
        row |= {"latency_s": float(time[name]), "speedup": float(time[now] / time[name])}
        row["verdict"] = "estimated"
        if measured:
            known_at = _verdicts(compared(now, name)) if name != now else {astuple(shape): "now"}
            row["verdict"] = known_at.get(astuple(shape), "unsure")
        row |= costs[name]
        row["code"] = snippet(_row(run, name, precisions[name]), run.plan.settings.device)
        peak = row["device_peak" if on_gpu else "host_peak"]
        if row["accuracy"] not in classes:
            left_out[name] = f"{row['accuracy']} accuracy"
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
    best = rows[0]
    floors = floor_at(run.floors("latency"), [best["latency_s"]], [best["implementation"]])
    floor = float(floors[0])
    names = _allowed(_deployable(run, times), precisions, accuracy)
    held_out = None if measured else advice.hold_out(times, advice.left_out(times), names)
    faster = {n: why for n, why in left_out.items() if time[n] < rows[0]["latency_s"]}
    return Advice(run, shape, now, accuracy, memory, rows, faster, near, floor, held_out)


def held_out(run: Run) -> list[dict[str, Any]]:
    """What advice from a run is worth, for each accuracy that may be asked for."""
    times = summary.times(run.cells)
    precisions = _precisions(times)
    ours = _deployable(run, times)
    there = {_class(precisions, name) for name in ours}
    guesses = advice.left_out(times)
    found = []
    for accuracy in (one for one in advice.CLASSES if one in there):
        names = _allowed(ours, precisions, accuracy)
        tried = advice.hold_out(times, guesses, names)
        found.append({"run": run.name, "accuracy": accuracy, "rows": len(names), **asdict(tried)})
    return found


def on_page(run: Run) -> dict[str, Any] | None:
    """What the page needs to answer for any shape; None of a run that has nothing to advise."""
    times = summary.times(run.cells)
    names, precisions = _deployable(run, times), _precisions(times)
    if not names:
        return None
    now = base_of(run, names)
    shapes = times.shapes[SHAPE].to_numpy().tolist()
    compared = Compared(run, run.cells, "latency")
    measured = {name: times.seconds[:, times.names.index(name)] for name in names}
    guesses = advice.left_out(times)
    worths = {
        one: worth(advice.hold_out(times, guesses, _allowed(names, precisions, one)), run.name)
        for one in (*advice.CLASSES, summary.ANY)
    }
    worths = {one: f"{told[0].upper()}{told[1:]}" for one, told in worths.items()}
    return {
        "rows": names,
        "classes": [_class(precisions, name) for name in names],
        "order": advice.CLASSES,
        "now": now,
        "shapes": shapes,
        "seconds": [[float(f"{t:.7g}") for t in measured[name]] for name in names],
        "verdict": [_letters(compared(now, name), shapes) for name in names],
        "slope": list(advice.slope_of(times.shapes, np.log(times.seconds))),
        "doubling": list(advice.DOUBLING.values()),
        "nearest": advice.NEAREST,
        "power": advice.POWER,
        "worth": worths,
        "code": [
            snippet(_row(run, name, precisions[name]), run.plan.settings.device) for name in names
        ],
    }


def _letters(found: Comparison | None, shapes: Sequence[Sequence[int]]) -> list[str]:
    """The verdict at every shape, one letter each as the page has them; else nothing."""
    known = _verdicts(found)
    return [LETTERS.get(known.get(tuple(shape), ""), "") for shape in shapes]


def _verdicts(found: Comparison | None) -> dict[tuple[int, ...], str]:
    """What B is against A, shape by shape: judged together, as `compare` and the page do."""
    if found is None:
        return {}
    keys = found.shapes[SHAPE].itertuples(index=False, name=None)
    return dict(zip(keys, found.shapes["verdict"], strict=True))


def _allowed(names: Sequence[str], precisions: Mapping[str, str], accuracy: str) -> list[str]:
    classes = advice.allowed(accuracy)
    return [name for name in names if _class(precisions, name) in classes]


def command(run: Run, shape: Shape, names: Sequence[str]) -> str:
    """What measures these rows at a shape."""
    return " ".join(["lstm-bench grid", *measuring(run, shape, names)])


def measuring(run: Run, shape: Shape, names: Sequence[str]) -> list[str]:
    """The same as the arguments of `lstm-bench grid`."""
    return ["--shape", shape.label, "-i", ",".join(names), "--device", run.plan.settings.device]


def frame(found: Advice) -> pd.DataFrame:
    """One row per implementation that may be taken, fastest first."""
    table = pd.DataFrame(found.rows)
    table.insert(1, "advised", table["implementation"] == found.advised["implementation"])
    table.attrs |= facts(found)
    return table


def facts(found: Advice) -> dict[str, Any]:
    """What is known beside the rows."""
    return {
        "run": found.run.name,
        "shape": asdict(found.shape),
        "now": found.now,
        "accuracy": found.accuracy,
        "memory": found.memory,
        "advised": found.advised["implementation"],
        "measured": found.measured,
        "near": [] if found.measured else [asdict(shape) for shape in found.near],
        "noise_floor": found.floor,
        "held_out": asdict(found.held_out) if found.held_out else None,
        "left_out": found.left_out,
        "could_win": found.could_win,
        "measure": command(found.run, found.shape, to_measure(found)),
    }


def document(found: Advice) -> Document:
    """The answer, what it costs, its code, and how sure it is."""
    result = Document(facts=facts(found))
    result.add(run_report.heading(found.run))
    result.add(wrapped(answer(found)))
    asked = f"{found.accuracy} accuracy" + (" or finer" if found.accuracy != "fp32" else "")
    if found.memory is not None:
        asked += f", at most {size(found.memory)}"
    title = f"{found.shape.label}, {asked}" + ("" if found.measured else ", estimated")
    shown = [
        row
        for place, row in enumerate(found.rows)
        if place < MOST or row["implementation"] == found.now
    ]
    result.add(Table("rows", shown, _columns(found), title))
    rest = [row for row in found.rows if row not in shown]
    result.add_details(Table("rows", rest, _columns(found)) if rest else "")
    if found.left_out:
        rows = ", ".join(f"{name} ({why})" for name, why in list(found.left_out.items())[:MOST])
        result.add(wrapped(f"faster, but not what was asked for: {rows}"))
    if code := found.advised["code"]:
        lines = "\n".join(f"    {line}".rstrip() for line in code.splitlines())
        start = "from lstm, a trained nn.LSTM, and tensors x (T, B, I), h0 and c0 (1, B, H)"
        result.add(f"{found.advised['implementation']}, {start}:\n\n{lines}")
    result.add("\n".join(map(wrapped, certainty(found))))
    return result


def answer(found: Advice) -> str:
    """The advice in a sentence or two."""
    row, now = found.advised, found.now
    times, name = factor(row["speedup"]), row["implementation"]
    if not found.measured:
        told = f"{name}, about {times} faster than {now}" if name != now else f"Keep {now}"
        if row["speedup"] < 1:
            told = f"{name}, about {factor(1 / row['speedup'])} slower than {now}"
        return (
            f"{told}. {found.shape.label} was not measured: this is worked out from"
            f" {listed(shape.label for shape in found.near)}."
        )
    if name == now:
        return f"Keep {now}: nothing that may be taken is faster beyond the noise."
    if row["verdict"] == "faster":
        return f"{name}, {times} faster than {now}, beyond the noise."
    if row["verdict"] == "slower":
        return (
            f"{name}, {factor(1 / row['speedup'])} slower than {now}: nothing faster may be taken."
        )
    return f"{name}, as fast as {now} as far as the noise tells ({times})."


def certainty(found: Advice) -> list[str]:
    """How sure that is: the noise, the next best, and what such advice was worth elsewhere."""
    pairs = sum(one.pairs for one in found.run.noise)
    told = sum(one.called_different for one in found.run.noise)
    noise = f"noise floor {percent(found.floor)}"
    noise += f" ({counted(pairs, 'A/A pair')}, {told} wrongly called different)" if pairs else ""
    lines = [noise]
    others = [row for row in found.rows if row is not found.advised]
    if others:
        other = others[0]
        ratio = other["latency_s"] / found.advised["latency_s"]
        names = found.advised["implementation"], other["implementation"]
        known = _verdicts(Compared(found.run, found.run.cells, "latency")(*names))
        told_at = known.get(astuple(found.shape), "unsure")
        word = SAID[told_at] if found.measured else "as estimated"
        lines[0] += f"; next best: {other['implementation']}, {factor(ratio)} its time, {word}"
    if found.held_out:
        lines += [worth(found.held_out, found.run.name), f"measure it: {facts(found)['measure']}"]
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


def to_measure(found: Advice) -> list[str]:
    """What to measure for a sure answer: the rows that could win, and what runs now."""
    return list(dict.fromkeys([*found.could_win, found.now]))


def is_outside(run: Run, shape: Shape) -> bool:
    """Whether a shape is beyond all that the run measured."""
    shapes = summary.times(run.cells).shapes
    return not len(shapes) or bool(advice.outside(shapes, shape))


def deployable(run: Run) -> list[str]:
    """The rows that do the whole work and that a program can use."""
    return _deployable(run, summary.times(run.cells))


def _deployable(run: Run, times: summary.Times) -> list[str]:
    facts = times.cells.drop_duplicates("implementation").set_index("implementation")
    ours = references(run)
    names = [name for name in run.implementations if name in facts.index]
    return [n for n in names if n not in ours and facts["computes"][n] == "lstm"]


def _other(run: Run, shape: Shape) -> str:
    """`; h200-paper has it: --run h200-paper`, if another run beside this one does."""
    found = run_folders.with_shape(run.folder, shape) if run.folder else []
    others = [folder.name for folder in found if folder.name != run.name]
    return f"; {others[0]} has it: --run {others[0]}" if others else ""


def _now(run: Run, shape: Shape, asked: str, known: Sequence[str]) -> str:
    if asked not in known:
        has = guess(asked, known) or f"; it has: {', '.join(known)}"
        raise LstmBenchError(f"--now: {run.name} has no time of {asked!r} at {shape.label}{has}")
    return asked


def _precisions(times: summary.Times) -> dict[str, str]:
    facts = times.cells.drop_duplicates("implementation")
    return dict(zip(facts["implementation"], facts["precision"], strict=True))


def _class(precisions: Mapping[str, str], name: str) -> str:
    return summary.accuracy(precisions[name])


def _row(run: Run, name: str, precision: str) -> Implementation:
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


def _columns(found: Advice) -> list[Column]:
    known = [key for key in COSTS if any(not math.isnan(row[key]) for row in found.rows)]
    two = {True: partial(seconds, digits=2), False: partial(size, digits=2)}
    return [
        text("implementation", "implementation"),
        text("class", "accuracy"),
        number("latency", "latency_s", seconds),
        number("speedup", "speedup", factor),
        *([text(f"against {found.now}", "verdict")] if found.measured else []),
        number("error", "max_abs_error", error),
        *(number(COLUMNS[key], key, two[key.endswith("_s")]) for key in known),
    ]
