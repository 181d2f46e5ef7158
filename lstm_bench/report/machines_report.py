"""Machines against each other as a document: who is faster from which size on, and every shape."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from lstm_bench.analysis import summary
from lstm_bench.analysis.machines import Machines, priced, table, unlike
from lstm_bench.analysis.noise import SHAPE
from lstm_bench.model.units import counted, listed, seconds, times, wrapped
from lstm_bench.report.document import Column, Document, Row, Table, number, paragraph, text
from lstm_bench.report.headline import headline, place_of
from lstm_bench.report.run_report import heading, noise_facts, noise_line, shape_label

FEW = 3  # rows that are named
NOBODY = "?"  # wins: within noise, unsure, or by timesteps


def document(sides: Machines, prices: Mapping[str, float] | None = None) -> Document:
    """What differs beside the machines, the answer, where it turns, then the evidence."""
    found, apart = table(sides, prices), unlike(sides)
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
    result.add("\n".join([*heads, *map(wrapped, _apart(sides, apart))]))
    result.add(paragraph(*_answer(sides, found)))
    if prices:
        result.add(paragraph(*_by_price(sides, found, prices)))
    result.add(_map(sides, found), _shapes(sides, found, prices))
    result.add(paragraph(*_notes(sides, found, prices)))
    return result


def letters(sides: Machines) -> dict[str, str]:
    """A short name for each run: A, B, ..."""
    return dict(zip(sides.names, string.ascii_uppercase, strict=False))


def _apart(sides: Machines, apart: Mapping[str, Sequence[str]]) -> list[str]:
    """In what the runs were not alike beside the machine: the reader must know that first."""
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
    common = set.intersection(*(set(rows) for rows in sides.rows.values()))
    others = {name: [row for row in rows if row not in common] for name, rows in sides.rows.items()}
    if not any(others.values()):
        return []
    marks = letters(sides)
    more = [
        f"{marks[name]} also has {', '.join(rows) if len(rows) <= FEW else f'{len(rows)} others'}"
        for name, rows in others.items()
        if rows
    ]
    both = f"all have {', '.join(sorted(common))}" if common else "none is common to all"
    return [f"Not the same rows to choose from: {both}; {'; '.join(more)}."]


def _answer(sides: Machines, found: pd.DataFrame) -> list[str]:
    """Who is faster and by how much, at how many shapes, and from which size on."""
    what = f"with {sides.implementation}"
    if sides.implementation is None:
        best = f"in {_within(sides.accuracy)}"
        if sides.accuracy == summary.ANY:
            best = "whatever its error"
        what = f"with the fastest that can be deployed {best}"
    had = listed(f"{sides.had[name]} in {name}" for name in sides.names)
    shapes = len(found) // len(sides.runs)
    lines = [f"By {sides.metric} of a call, each {what}, at {_common(shapes)} ({had}):"]
    for (i, _), pair in sides.pairs.items():
        if i == 0:
            lines.append(f"{headline(pair)}.")
    lines += _wins(sides, found, "wins", "the fastest")
    return lines


def _within(accuracy: str) -> str:
    return summary.accuracy_label(accuracy) + ("" if accuracy == "fp32" else " or better")


def _common(shapes: int) -> str:
    return "the one shape that all have" if shapes == 1 else f"the {shapes} shapes that all have"


def _wins(sides: Machines, found: pd.DataFrame, wins: str, word: str) -> list[str]:
    """At how many shapes each wins, and where that is."""
    shapes = len(found) // len(sides.runs)
    won = {name: int(found.loc[found["run"] == name, wins].sum()) for name in sides.names}
    open_ = shapes - sum(won.values())
    counts = [f"{name} is {word} at {count}" for name, count in won.items()]
    rest = f", at {open_} it is within noise or not clear" if open_ else ""
    lines = [f"Of {counted(shapes, 'shape')} {listed(counts)}{rest}."]
    always = "whatever the timesteps " if found["timesteps"].nunique() > 1 else ""
    if max(won.values()) < shapes:
        for name in sides.names:
            if place := where(found[found["run"] == name], wins):
                lines.append(f"{name} is {word} {always}{place}.")
    return lines


def where(own: pd.DataFrame, wins: str = "wins") -> str:
    """`from hidden 512 up at batch 1 and at every hidden from batch 4 up`: where a run wins.

    Only sizes at which it wins with all timesteps, and at all input sizes, count.
    """
    grid = own.groupby(["batch", "hidden"])[wins].all().unstack()
    spans = [_spans(row.dropna()) for _, row in grid.iterrows()]
    parts = []
    for first, last, span in _runs(spans):
        if span:
            place = place_of("batch", *_ends(grid.index, first, last))
            parts.append(f"{span} {place.replace('up to batch', 'at batches up to')}".strip())
    return listed(parts) if parts else ""


def _spans(won: pd.Series[bool]) -> str:
    """The hidden sizes that were won, as a reader would say them; empty if none was."""
    if won.all():
        return "at every hidden size"
    parts = [
        place_of("hidden", *_ends(won.index, first, last)) for first, last, yes in _runs(won) if yes
    ]
    return listed(parts) if parts else ""


def _ends(sizes: pd.Index[int], first: int, last: int) -> tuple[int, int, bool, bool]:
    """Two sizes by their places, and whether they are the ends of all."""
    return sizes[first], sizes[last], first == 0, last == len(sizes) - 1


def _runs(values: Iterable[Any]) -> Iterator[tuple[int, int, Any]]:
    """The first and the last place of neighbours that are alike, and their value."""
    start = 0
    for value, group in itertools.groupby(values):
        end = start + len(list(group))
        yield start, end - 1, value
        start = end


def _by_price(sides: Machines, found: pd.DataFrame, prices: Mapping[str, float]) -> list[str]:
    hourly = listed(f"{price:g} an hour for {name}" for name, price in prices.items())
    lines = [f"By price, at {hourly}, a machine kept busy by calls one after another:"]
    for (i, j), pair in priced(sides, prices).pairs.items():
        if i == 0:
            a, b, ratio = sides.names[i], sides.names[j], times(pair.group().ratio.value)
            lines.append(
                f"A call costs {ratio} as much on {b} as on {a}, geometric mean over shapes."
            )
    return lines + _wins(sides, found, "price_wins", "the cheapest")


def _map(sides: Machines, found: pd.DataFrame) -> Table:
    """Batch by timesteps: who wins at which hidden sizes."""
    marks = letters(sides)
    won = found[found["wins"]].set_index(SHAPE)["run"]
    shapes = found.drop_duplicates(SHAPE)
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
            one = there.agg(lambda own: own.iloc[0] if own.nunique() == 1 else NOBODY)
            row[f"timesteps {step}"] = _along(one)
        rows.append(row)
    title = f"who wins at which hidden sizes; {NOBODY}: within noise, or not clear"
    return Table("wins", rows, [number(key, key) for key in rows[0]], title)


def _along(winners: pd.Series[str]) -> str:
    """`A 64-128, B 256-1024`."""
    sizes = winners.index
    return ", ".join(
        f"{winner} {'-'.join(map(str, dict.fromkeys((sizes[first], sizes[last]))))}"
        for first, last, winner in _runs(winners)
    )


def _shapes(sides: Machines, found: pd.DataFrame, prices: Mapping[str, float] | None) -> Table:
    """Every shape: who wins, by how much, and what each run has there."""
    marks, added = letters(sides), sides.added[sides.names[0]]
    keys = [column.key for column in added] + ["price"] * bool(prices)
    rows = []
    for sizes, part in found.groupby(SHAPE, sort=False):
        row: dict[str, Any] = dict(zip(SHAPE, map(int, sizes), strict=True))
        ranked = part.sort_values("ratio")
        first, then = ranked.iloc[0], ranked.iloc[1]
        row |= {"fastest": first["run"], "ratio": then["ratio"], "verdict": then["verdict"]}
        for one in part.to_dict("records"):
            mark = marks[one["run"]]
            row[f"{mark}_run"] = one["run"]
            for what in ("implementation", "seconds", "floor", *keys):
                row[f"{mark}_{what}"] = one[what]
        rows.append(row)
    words = {"slower": "", "same": " within noise", "unsure": " unsure"}

    def fastest(row: Row) -> str:
        return f"{marks[row['fastest']]} {times(row['ratio'])}{words[row['verdict']]}"

    columns = [Column("shape", shape_label, right=True), Column("fastest", fastest)]
    for mark in marks.values():
        columns.append(number(mark, f"{mark}_seconds", seconds))
        columns.append(text("with", f"{mark}_implementation"))
    for more in added:
        if found[more.key].notna().any():
            heads = [(f"{mark} {more.heading}", f"{mark}_{more.key}") for mark in marks.values()]
            columns += [number(*head, more.show) for head in heads]
    if prices:
        heads = [(f"{mark} price", f"{mark}_price") for mark in marks.values()]
        columns += [number(*head, "{:.3g}".format) for head in heads]
    return Table("shapes", rows, columns)


def _notes(sides: Machines, found: pd.DataFrame, prices: Mapping[str, float] | None) -> list[str]:
    """What the numbers are, and what they are not."""
    lines = ["fastest: by how many times the next machine is slower."]
    for more in sides.added[sides.names[0]]:
        names = list(dict.fromkeys(found.loc[found[more.key].notna(), "run"]))
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
