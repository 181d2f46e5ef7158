"""The report of `lstm-bench advise`: the advice in sentences, a table, its code, how sure it is."""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from lstm_bench.analysis.choice import rank
from lstm_bench.features.advise import advice, sources
from lstm_bench.frameworks import find, snippet
from lstm_bench.model.types import LstmBenchError
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
from lstm_bench.report.ladder import COLUMNS

MOST = 6  # rows that are drawn; JSON and CSV have all


def frame(answer: advice.Advice) -> pd.DataFrame:
    """One row per implementation that may be taken, fastest first."""
    table = pd.DataFrame(answer.rows)
    table.insert(1, "advised", table["implementation"] == answer.advised_row)
    table.attrs |= facts(answer)
    return table


def facts(answer: advice.Advice) -> dict[str, Any]:
    """The answer as JSON has it, beside the rows."""
    source, choice = answer.source, answer.choice
    return {
        "run": source.run.name,
        "why": answer.search.why,
        "device": source.device,
        "devices": list(answer.search.devices),
        "shape": asdict(source.shape),
        "now": source.now,
        "accuracy": answer.accuracy,
        "memory": answer.memory,
        "advised": answer.advised_row,
        "decided": answer.decided,
        "candidate": choice.candidate["implementation"],
        "interval": list(answer.interval),
        "ties": [row["implementation"] for row in choice.ties],
        "other_runs": answer.other_runs,
        "missing": {name: gain for name, (gain, _) in answer.missing.items()},
        "measured": source.measured,
        "near": [] if source.measured else [asdict(shape) for shape in source.near],
        "noise_floor": source.floor(answer.rows[0]["implementation"]),
        "held_out": asdict(answer.held_out) if answer.held_out else None,
        "left_out": answer.left_out,
        "could_win": answer.could_win,
        "measure": advice.measure(answer),
    }


def document(answer: advice.Advice, code_of: str | None = None) -> Document:
    """The answer, what it costs, its code or that of another row, and how sure it is."""
    result, source = Document(facts=facts(answer)), answer.source
    result.add("\n".join([run_report.heading(source.run), *map(wrapped, answer.elsewhere)]))
    words = wrapped(advice.measure(answer), width=WIDTH - 6).split("\n")
    to_type = "measure it:\n    " + " \\\n    ".join(words)
    result.add(wrapped(sentence(answer)), "" if answer.decided else to_type)
    asked = f"{answer.accuracy} accuracy" + (" or finer" if answer.accuracy != "fp32" else "")
    if answer.memory is not None:
        asked += f", at most {size(answer.memory)}"
    title = f"{source.shape.label}, {asked}" + ("" if source.measured else ", estimated")
    always = [row["implementation"] in (source.now, answer.advised_row) for row in answer.rows]
    shown = [row for n, row in enumerate(answer.rows) if n < MOST or always[n]]
    result.add(Table("rows", shown, _columns(answer), title))
    rest = [row for row in answer.rows if row not in shown]
    result.add_details(Table("rows", rest, _columns(answer)) if rest else "")
    if answer.left_out:
        rows = ", ".join(f"{name} ({why})" for name, why in list(answer.left_out.items())[:MOST])
        result.add(wrapped(f"faster, but not what was asked for: {rows}"))
    name = code_of or answer.advised_row
    precision = source.precisions.get(name) or find(name, "--code").precision
    row = advice.planned(source.run, name, precision)
    code = snippet(row, source.run.plan.settings.device, source.shape.training)
    if source.shape.training:
        forward = f"`lstm-bench advise {replace(source.shape, training=False).label} --code {name}`"
        result.add(wrapped(f"no code of a training step; that of its forward pass: {forward}"))
    elif code_of and not code:
        raise LstmBenchError(f"--code: no program can use {name}; `lstm-bench list` shows all rows")
    if code:
        start = "from lstm, a trained nn.LSTM, and tensors x (T, B, I), h0 and c0 (1, B, H)"
        result.add(f"{name}, {start}:\n\n{textwrap.indent(code, '    ')}")
    result.facts["code"] = code
    result.add("\n".join(map(wrapped, [*origin(answer), *certainty(answer)])))
    result.add(to_type if answer.decided and not source.measured else "")
    return result


def sentence(answer: advice.Advice) -> str:
    """The advice in a few sentences."""
    choice, source = answer.choice, answer.source
    now, run, candidate = source.now, source.run.name, choice.candidate
    name, speedup = candidate["implementation"], _gain(answer, candidate)
    gain = f"{factor(max(speedup, 1 / speedup))} {'faster' if speedup > 1 else 'slower'}"
    pace = f"{'' if source.measured else 'about '}{gain} than {now}"
    if speedup > 1:
        pace += f" ({' to '.join(map(factor, answer.interval))})"
    words = {
        "keep": f"Keep {now}: nothing that may be taken is faster beyond the noise",
        "tie": f"{name}, a tie with {now} ({gain}, which may be noise)",
        "faster": f"{name}, {pace}" + (", beyond the noise" if source.measured else ""),
        "slower": f"{name}, {pace}: nothing faster may be taken",
        "unclear": f"{name} may be {pace}, which may be noise",
    }[choice.state]
    if choice.state == "keep" and not answer.decided:
        words = f"no row of {run} is faster than {now} beyond the noise"
    undecided = (choice.state in ("keep", "unclear") and not answer.decided) or answer.missing
    parts = [f"Not decided: {words}" if undecided else words]
    if choice.state == "unclear" and choice.row["verdict"] == "faster":
        parts.append(f"Sure is {answer.advised_row}, {factor(_gain(answer, choice.row))} faster")
    rivals = [row for row in choice.ties if row["implementation"] != now]
    if rivals and choice.state != "keep":
        ratio = shown_ratio(*(seconds(row["latency_s"]) for row in (candidate, rivals[0])))
        names = listed(row["implementation"] for row in rivals)
        exact = rank(candidate["accuracy"]) < rank(rivals[0]["accuracy"])
        more = f"; {name} is more exact" if exact else ""
        parts.append(f"A tie with {names} ({factor(ratio)} its time, which may be noise){more}")
    if source.lacks:
        parts.append(f"Without any setting you run {source.lacks}, which {run} does not have")
    if answer.missing:
        rows = listed(
            f"{row} ({factor(gain)} in {other.run.name} at {other.near[0].label})"
            for row, (gain, other) in answer.missing.items()
        )
        parts.append(f"Faster may be what {run} does not have: {rows}")
    if not source.measured:
        near = listed(shape.label for shape in source.near)
        parts.append(f"{source.shape.label} was not measured: this is worked out from {near}")
    return ". ".join(parts) + "."


def origin(answer: advice.Advice) -> list[str]:
    """Names the run that the answer is from, and what others say."""
    source, search, now = answer.source, answer.search, answer.source.now
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


def certainty(answer: advice.Advice) -> list[str]:
    """Says how sure that is: the noise, and the worth of such advice elsewhere."""
    source = answer.source
    run, now = source.run, source.now
    pairs = sum(each.pairs for each in run.noise)
    wrong = sum(each.called_different for each in run.noise)
    floor = source.floor(answer.rows[0]["implementation"], now)
    line = f"noise floor {percent(floor)}"
    line += f" ({counted(pairs, 'A/A pair')}, {wrong} wrongly called different)" if pairs else ""
    if source.excess > floor:
        line += f"; {now} is {percent(source.excess, 0)} slower than the same in finer"
        line += " arithmetic, which only noise explains"
    return [line, *([advice.worth(answer.held_out, run.name)] if answer.held_out else [])]


def _gain(answer: advice.Advice, row: Mapping[str, Any]) -> float:
    """How many times faster than now a row is, by the latencies that are shown."""
    return shown_ratio(seconds(answer.source.seconds[answer.source.now]), seconds(row["latency_s"]))


def _columns(answer: advice.Advice) -> list[Column]:
    advised = answer.advised if answer.decided else None

    def verdict(row: Mapping[str, Any]) -> str:
        return f"{row['verdict']}, advised" if row is advised else str(row["verdict"])

    known = [key for key in advice.COSTS if any(not math.isnan(row[key]) for row in answer.rows)]
    two = {True: functools.partial(seconds, digits=2), False: functools.partial(size, digits=2)}
    return [
        text("implementation", "implementation"),
        text("class", "accuracy"),
        number("latency", "latency_s", seconds),
        Column("speedup", lambda row: factor(_gain(answer, row)), right=True),
        Column(f"against {answer.source.now}", verdict),
        number("error", "max_abs_error", error),
        *(number(COLUMNS[key], key, two[key.endswith("_s")]) for key in known),
    ]
