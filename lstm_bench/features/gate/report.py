"""The gate's report: a document whose failures come first, or JUnit's XML for CI systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from lstm_bench.features.gate.sides import Sides, shortened
from lstm_bench.features.gate.times import ALL, TIME
from lstm_bench.features.gate.verdicts import TOTAL
from lstm_bench.model.units import (
    clean,
    counted,
    listed,
    percent,
    seconds,
    shown_ratio,
    size,
    times,
    wrapped,
)
from lstm_bench.report.document import Column, Document, Row, Table, number, text

MOST = 20  # failures that are drawn, and as many that are unsure
MOST_ROUNDS = 10_000  # nobody would measure more


def document(judged: pd.DataFrame, compared: Sides, threshold: float) -> Document:
    """Names the sides, the verdict, then what it rests on, the worst first."""
    result = Document(main="verdicts")
    result.facts |= {"sides": list(compared.sides), "warnings": list(compared.warnings)}
    result.facts |= {"differs": {what: list(pair) for what, pair in compared.differs.items()}}
    decided, fails = not judged["undecided"].any(), bool(judged["fails"].any())
    result.facts |= {"threshold": threshold, "passed": decided and not fails, "decided": decided}
    result.add("\n".join(wrapped(line) for line in (*compared.lines(), verdict(judged))))
    failures = _shortlist(judged[judged["fails"]], "failures", "failures{}", _COLUMNS)
    result.add(_disturbed(judged, compared), failures, _renamed(judged, compared))
    result.add(_rows(judged, TIME, "time by row, and its geometric mean over shapes"))
    result.add(_rows(judged, TOTAL, f"since the first base, measured {compared.first[:10]}"))
    unsure = judged[(judged["verdict"] == "unsure") & (judged["what"] == TIME)]
    title = "unsure{}: neither within the threshold for sure, nor beyond the noise"
    columns = [*_COLUMNS[:2], *_COLUMNS[3:], Column("needs", _needs, right=True)]
    result.add(_shortlist(unsure, "unsure", title, columns), _remedy(judged, compared.in_turns))
    result.add_details(Table("verdicts", _records(judged), _COLUMNS))
    return result


def verdict(judged: pd.DataFrame) -> str:
    """The verdict in a sentence."""
    cells = judged[judged["shape"] != ALL].drop_duplicates(["implementation", "shape"])
    rows = counted(judged["implementation"].nunique(), "row")
    whole = f"{counted(len(cells), 'cell')} of {rows}"
    open_ = _records(judged[judged["undecided"]])
    fails = judged[judged["fails"] & ~judged["undecided"]]
    end = ""
    if open_:
        furthest = max(open_, key=lambda cell: abs(np.log(cell["ratio"])))
        end = f"{'up' if furthest['ratio'] >= 1 else 'down'} to {_ratio(furthest)}"
    if judged["fails"].any():
        kinds = fails["verdict"].mask(fails["shape"] == ALL, fails["verdict"] + " as a whole")
        kinds = kinds.mask(fails["what"] == TOTAL, kinds + " since the first base")
        parts = [f"{n} {word}" for word, n in kinds.value_counts(sort=False).items()]
        parts += [f"{len(open_)} not decided, {end}"] if open_ else []
        return f"FAILED: {whole}; {listed(parts)}"
    if open_:
        return f"not decided: {len(open_)} of {counted(len(cells), 'cell')}, {end}"
    faster = int((judged.loc[judged["shape"] != ALL, "verdict"] == "faster").sum())
    return f"passed: {whole}, none slower, larger or lost; {faster} faster"


_MARKED = "It is marked so there, or its passes lie more than twice apart"
_WHY = {
    "base": f"{_MARKED}, or its one pass took more than twice the new run's time: none of these is"
    " called the same or faster",
    "new": f"{_MARKED}: none of these can fail as slower",
}


def _disturbed(judged: pd.DataFrame, compared: Sides) -> str:
    """The cells of each side that was disturbed, and what follows from it."""
    cells = judged[(judged["shape"] != ALL) & (judged["what"] == TIME)]
    lines = []
    for side, row in (("base", "against"), ("new", "implementation")):
        named = [
            f"{cell[row]} {cell['shape']} ({_value('base')(cell)} -> {_value('new')(cell)})"
            for cell in _records(cells[cells["disturbed"].isin((side, "both"))])
        ]
        if named:
            lines.append(
                f"{side} disturbed at {counted(len(named), 'cell')} of run"
                f" {compared.sides[0][side]['run']}: {shortened(named)}. {_WHY[side]}; measure that"
                " run again, or both in turns"
            )
    return "\n".join(map(wrapped, lines))


def _renamed(judged: pd.DataFrame, compared: Sides) -> str:
    """A hint where a whole row is missing: it may have another name."""
    lost = judged[judged["verdict"] == "missing"]["implementation"].unique()
    timed = set(judged[judged["what"] == TIME]["implementation"])
    if names := [name for name in lost if name not in timed]:
        return wrapped(
            f"missing: {shortened(names)}; if a row has another name in the new run:"
            f" --as NEW={names[0]}"
        )
    return ""


def junit(judged: pd.DataFrame, compared: Sides) -> str:
    """A test case for every row at every shape, and one for every row as a whole."""
    suite = ElementTree.Element("testsuite", name="lstm-bench gate")
    properties = ElementTree.SubElement(suite, "properties")
    facts = {"compared": "; ".join(compared.lines()), "verdict": verdict(judged)}
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=clean(value))
    counts = {"tests": 0, "failures": 0, "skipped": 0}
    for (name, shape), entries in judged.groupby(["implementation", "shape"], sort=False):
        case = ElementTree.SubElement(suite, "testcase", classname=clean(name), name=clean(shape))
        fails, open_ = entries["fails"].any(), entries["undecided"].any()
        counts["tests"] += 1
        counts["failures"] += int(fails)
        counts["skipped"] += int(open_ and not fails)
        for entry in _records(entries):
            if entry["fails"]:
                kind = clean(entry["verdict"])
                ElementTree.SubElement(case, "failure", type=kind, message=_sentence(entry))
            elif entry["undecided"] and not fails:
                ElementTree.SubElement(case, "skipped", message=f"unsure: {_sentence(entry)}")
    suite.attrib |= {what: str(count) for what, count in counts.items()}
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _sentence(entry: Row) -> str:
    if entry["what"] == "output":
        return clean(f"{entry['verdict']}, and was not in the base")
    change = f"{_value('base')(entry)} -> {_value('new')(entry)}, {_ratio(entry)}"
    known = f"; noise {_noise(entry)}" if _timed(entry) else ""
    return clean(f"{entry['what']} {change}{known}")


def _shortlist(cells: pd.DataFrame, name: str, title: str, columns: list[Column]) -> Table | str:
    """Whole rows first, then cells; of either the worst first."""
    if cells.empty:
        return ""
    more = f" (the first {MOST} of {len(cells)})" if len(cells) > MOST else ""
    order = pd.DataFrame({"cell": cells["shape"] != ALL, "ratio": -cells["ratio"].fillna(np.inf)})
    worst = cells.loc[order.sort_values(["cell", "ratio"], kind="stable").index]
    return Table(name, _records(worst), columns, title.format(more), MOST, keys=2)


def _remedy(judged: pd.DataFrame, in_turns: bool) -> str:
    """Names what would settle what is unsure."""
    unsure = judged[judged["undecided"] & (judged["disturbed"] == "")]
    wanted = unsure["passes"].max()
    if not np.isfinite(wanted):
        turns = "; or measure both in turns in one run, with `--against`"
        return "" if unsure.empty or in_turns else f"needs: rounds in all{turns}"
    again = "that run" if in_turns else "both runs"
    return wrapped(
        "needs: processes of the same code differ too, and so few cannot decide it; measure"
        f" {again} again with fresh ones: `lstm-bench grid GRID --passes {wanted:.0f}`"
    )


def _rows(judged: pd.DataFrame, what: str, title: str) -> Table | str:
    """Counts the verdicts of each row, and shows its mean ratio."""
    lines = []
    words = ("slower", "unsure", "same", "faster")
    for name, own in judged[judged["what"] == what].groupby("implementation", sort=False):
        cells, whole = own[own["shape"] != ALL], _records(own[own["shape"] == ALL])
        counts = cells["verdict"].value_counts()
        line = {"implementation": name, "against": own["against"].iloc[0], "shapes": len(cells)}
        line |= {word: int(counts.get(word, 0)) for word in words}
        line |= {"what": what, "ratio": float(np.exp(np.log(cells["ratio"]).mean()))}
        line |= {"noise": None, "verdict": None, "base": None, "new": None}
        if whole:
            line |= {key: whole[0][key] for key in ("ratio", "noise", "verdict", "base", "new")}
        elif len(cells) == 1:
            line |= {side: float(cells[side].iloc[0]) for side in ("base", "new")}
        lines.append(line)
    if not lines:
        return ""
    columns = [
        text("row", "implementation"),
        number("shapes", "shapes"),
        *(number(word, word) for word in words),
        Column("new / base", _ratio, right=True),
        Column("noise", lambda row: _noise(row) if row["verdict"] else "-", right=True),
        text("as a whole", "verdict", lambda word: word or "-"),
    ]
    return Table("rows" if what == TIME else "total", lines, columns, title)


def _records(judged: pd.DataFrame) -> list[dict[str, Any]]:
    """Values for JSON, where None stands for what is not known."""
    return list(judged.astype(object).where(judged.notna(), None).to_dict("records"))


def _timed(entry: Row) -> bool:
    return entry["what"] in (TIME, TOTAL)


def _value(key: str) -> Callable[[Row], str]:
    return lambda entry: seconds(entry[key]) if _timed(entry) else size(entry[key])


def _ratio(entry: Row) -> str:
    """New over base, of the figures that are shown, so that the table bears it out."""
    new, base = _value("new")(entry), _value("base")(entry)
    return times(entry["ratio"] if "-" in (new, base) else shown_ratio(new, base))


def _noise(entry: Row) -> str:
    if not _timed(entry):
        return "-"
    if entry["noise"] is None:
        return "unknown"
    return percent(entry["noise"]) if entry["noise"] <= 1 else "not measurable here"


def _what(entry: Row) -> str:
    if entry["what"] == TOTAL:
        return f"{entry['verdict']} since the first base"
    return str(entry["what" if entry["verdict"] == "larger" else "verdict"])


def _needs(entry: Row) -> str:
    passes, rounds = entry["passes"], entry["rounds"]
    if passes is not None:
        return f"{passes:.0f} passes"
    if rounds is None:
        return "-"
    return f"over {MOST_ROUNDS} rounds" if rounds > MOST_ROUNDS else f"{rounds:.0f} rounds"


_COLUMNS = [
    text("row", "implementation"),
    Column("shape", lambda entry: entry["shape"], right=True),
    Column("what", _what),
    Column("base", _value("base"), right=True),
    Column("new", _value("new"), right=True),
    Column("new / base", _ratio, right=True),
    Column("noise", _noise, right=True),
]
