"""Machines against each other as a document: who is faster from which size on, and every shape."""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lstm_bench.analysis import summary
from lstm_bench.analysis.machines import Machines, priced, table, unlike
from lstm_bench.model.shape import SHAPE, Shape
from lstm_bench.model.units import counted, listed, seconds, times
from lstm_bench.report.document import Column, Document, Row, Table, number, paragraph, text
from lstm_bench.report.headline import headline
from lstm_bench.report.run_report import heading, noise_facts, noise_line, shape_label

NOBODY = "?"  # wins: within noise, unsure, or by timesteps


def document(sides: Machines, prices: Mapping[str, float] | None = None) -> Document:
    """How the setups differ, the answer, then the evidence."""
    frame, apart = table(sides, prices), unlike(sides)
    result = Document(main="shapes")
    result.facts = {
        "runs": sides.names,
        **{key: getattr(sides, key) for key in ("metric", "accuracy", "implementation")},
        **{"unlike": apart, "had": dict(sides.had), "prices": dict(prices or {})},
        "rows": dict(sides.rows),
        "noise": {n: noise_facts(run.floors(sides.metric)) for n, run in sides.runs.items()},
    }
    marks = letters(sides)
    heads = (f"{marks[name]} = {heading(run)}" for name, run in sides.runs.items())
    result.add("\n".join([*heads, *_apart(sides, apart)]))
    result.add(paragraph(*_answer(sides, frame)))
    if prices:
        result.add(paragraph(*_by_price(sides, frame, prices)))
    result.add(_map(sides, frame), _shapes(sides, frame, prices))
    result.add(paragraph(*_notes(sides, frame, prices)))
    return result


def letters(sides: Machines) -> dict[str, str]:
    """A short name for each run: A, B, ..."""
    return dict(zip(sides.names, string.ascii_uppercase, strict=False))


def _apart(sides: Machines, apart: Mapping[str, Sequence[str]]) -> list[str]:
    """How the setups differ beside the machine: the reader must know that first."""
    lines = []
    shown = {what: values for what, values in apart.items() if not what.startswith("sampling.")}
    sampling = [what.partition(".")[2] for what in apart if what not in shown]
    if shown or sampling:
        differences = [f"{what} {' / '.join(values)}" for what, values in shown.items()]
        differences += [f"sampling ({', '.join(sampling)})"] if sampling else []
        order = " / ".join(letters(sides).values())
        lines.append(f"Not the same build on each ({order}): {'; '.join(differences)}.")
    if sides.implementation is None:
        lines += _choice(sides)
    devices = {name for cells in sides.cells.values() for name in cells["device_name"]}
    if len(devices) == 1:
        lines.append(
            "The same device in all: what differs is not the machine, or it drifted between the"
            " runs, which they cannot tell; to compare threads, measure ROW and ROW@1 in one run."
        )
    return lines


def _choice(sides: Machines) -> list[str]:
    """Rows that only some of the runs have: a machine with few to choose from looks slow."""
    common, marks = set.intersection(*map(set, sides.rows.values())), letters(sides)
    own = {n: [row for row in rows if row not in common] for n, rows in sides.rows.items()}
    more = [f"{marks[n]} also has {', '.join(rows)}" for n, rows in own.items() if rows]
    both = f"all have {', '.join(sorted(common)) or 'none'}"
    return [f"Not the same rows to choose from: {both}; {'; '.join(more)}."] if more else []


def _answer(sides: Machines, frame: pd.DataFrame) -> list[str]:
    """The faster machine and by how much, at how many shapes, and from which size on."""
    better = "" if sides.accuracy in ("fp32", summary.ANY) else " or better"
    best = f"the fastest that can be deployed in {summary.accuracy_label(sides.accuracy)}{better}"
    what = sides.implementation or best
    had = listed(f"{sides.had[name]} in {name}" for name in sides.names)
    shapes = counted(len(frame) // len(sides.runs), "shape")
    lines = [
        f"By {sides.metric} of a call, each with {what}, at the {shapes} that all have ({had}):"
    ]
    for (i, _), pair in sides.pairs.items():
        if i == 0:
            lines.append(f"{headline(pair)}.")
    return [*lines, _wins(sides, frame, "wins", "the fastest")]


def _wins(sides: Machines, frame: pd.DataFrame, wins: str, word: str) -> str:
    """At how many shapes each wins."""
    shapes = len(frame) // len(sides.runs)
    won = {name: int(frame.loc[frame["run"] == name, wins].sum()) for name in sides.names}
    open_ = shapes - sum(won.values())
    counts = [f"{name} is {word} at {count}" for name, count in won.items()]
    rest = f", at {open_} it is within noise or not clear" if open_ else ""
    return f"Of {counted(shapes, 'shape')} {listed(counts)}{rest}."


def _by_price(sides: Machines, frame: pd.DataFrame, prices: Mapping[str, float]) -> list[str]:
    hourly = listed(f"{price:g} an hour for {name}" for name, price in prices.items())
    lines = [f"By price, at {hourly}, a machine kept busy by calls one after another:"]
    for (i, j), pair in priced(sides, prices).pairs.items():
        if i == 0:
            a, b, ratio = sides.names[i], sides.names[j], times(pair.group().ratio.value)
            lines.append(
                f"A call costs {ratio} as much on {b} as on {a}, geometric mean over shapes."
            )
    return [*lines, _wins(sides, frame, "price_wins", "the cheapest")]


def _map(sides: Machines, frame: pd.DataFrame) -> Table:
    """Batch by timesteps: who wins at which hidden sizes."""
    marks = letters(sides)
    won = frame[frame["wins"]].set_index(SHAPE)["run"]
    shapes = frame.drop_duplicates(SHAPE)
    winner = [
        marks[won[key]] if key in won.index else NOBODY
        for key in shapes[SHAPE].itertuples(index=False, name=None)
    ]
    shapes = shapes.assign(winner=winner)
    steps = sorted(shapes["timesteps"].unique())
    rows = []
    for batch, part in shapes.groupby("batch"):
        row: dict[str, Any] = {"batch": int(batch)}
        for step in steps:
            there = part[part["timesteps"] == step].groupby("hidden")["winner"]
            winners = there.agg(lambda own: own.iloc[0] if own.nunique() == 1 else NOBODY)
            row[f"timesteps {step}"] = _along(winners)
        rows.append(row)
    title = f"who wins at which hidden sizes; {NOBODY}: within noise, or not clear"
    return Table("wins", rows, [number(key, key) for key in rows[0]], title)


def _along(winners: pd.Series[str]) -> str:
    """`A 64-128, B 256-1024`."""
    parts = []
    for winner, run in itertools.groupby(winners.items(), key=lambda pair: pair[1]):
        sizes = [str(size) for size, _ in run]
        parts.append(f"{winner} {'-'.join(dict.fromkeys((sizes[0], sizes[-1])))}")
    return ", ".join(parts)


def _shapes(sides: Machines, frame: pd.DataFrame, prices: Mapping[str, float] | None) -> Table:
    """Every shape: who wins, by how much, and what each run has there."""
    marks, added = letters(sides), sides.added[sides.names[0]]
    keys = [column.key for column in added] + ["price"] * bool(prices)
    rows = []
    for sizes, part in frame.groupby(SHAPE, sort=False):
        row: dict[str, Any] = vars(Shape.from_row(sizes)).copy()
        ranked = part.sort_values("ratio")
        first, then = ranked.iloc[0], ranked.iloc[1]
        row |= {"fastest": first["run"], "ratio": then["ratio"], "verdict": then["verdict"]}
        for own in part.to_dict("records"):
            mark = marks[own["run"]]
            row[f"{mark}_run"] = own["run"]
            for what in ("implementation", "seconds", "floor", *keys):
                row[f"{mark}_{what}"] = own[what]
        rows.append(row)
    words = {"slower": "", "same": " within noise", "unsure": " unsure"}

    def fastest(row: Row) -> str:
        return f"{marks[row['fastest']]} {times(row['ratio'])}{words[row['verdict']]}"

    columns = [Column("shape", shape_label, right=True), Column("fastest", fastest)]
    for mark in marks.values():
        columns.append(number(mark, f"{mark}_seconds", seconds))
        columns.append(text("with", f"{mark}_implementation"))
    for more in added:
        if frame[more.key].notna().any():
            heads = [(f"{mark} {more.heading}", f"{mark}_{more.key}") for mark in marks.values()]
            columns += [number(*head, more.show) for head in heads]
    if prices:
        heads = [(f"{mark} price", f"{mark}_price") for mark in marks.values()]
        columns += [number(*head, "{:.3g}".format) for head in heads]
    return Table("shapes", rows, columns)


def _notes(sides: Machines, frame: pd.DataFrame, prices: Mapping[str, float] | None) -> list[str]:
    """Explains the numbers."""
    lines = ["fastest: by how many times the next machine is slower."]
    for more in sides.added[sides.names[0]]:
        names = list(dict.fromkeys(frame.loc[frame[more.key].notna(), "run"]))
        if names:
            lines.append(f"{more.heading}: {more.note}; measured in {listed(names)}.")
    if prices:
        lines.append("price: of a million calls, as long as each takes.")
    lines += [
        f"{name}: {noise_line(run.floors(sides.metric), sides.metric)}"
        for name, run in sides.runs.items()
    ]
    lines.append(
        "A difference must be beyond the larger noise floor. Measured in different runs: what else"
        " changed between them counts as a difference."
    )
    return lines
