"""What the gate found: a document whose failures come first, or JUnit's XML for CI systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from lstm_bench.features.gate.verdicts import ALL, TIME, TOTAL
from lstm_bench.model.units import (
    WIDTH,
    clean,
    counted,
    listed,
    percent,
    seconds,
    size,
    times,
    wrapped,
)
from lstm_bench.report.document import Column, Document, Row, Table, number, text

MOST = 20  # failures that are drawn, and as many that are unsure
MOST_NAMED = 4  # rows, or cells, in a sentence
MOST_ROUNDS = 10_000  # nobody would measure more
Differs = Mapping[str, Sequence[str]]
Sides = Sequence[Mapping[str, Mapping[str, str]]]


@dataclass(frozen=True)
class Compared:
    """What is compared: each row's two sides, what differs between them, and what to mind."""

    sides: Sides
    differs: Differs
    warnings: Sequence[str]
    in_turns: bool
    first: str = ""  # when the first base was measured, where the base replaced others

    @property
    def runs(self) -> list[str]:
        return [self.sides[0][which]["run"] for which in ("base", "new")] if self.sides else []

    def lines(self) -> list[str]:
        """Which side is which; then what was another in the base than in the new run."""
        alike: dict[tuple[str, str], list[list[str]]] = {}
        for both in self.sides:
            known = tuple(_known(both[which]) for which in ("base", "new"))
            rows = alike.setdefault((known[0], known[1]), [[], []])
            rows[0].append(both["base"]["row"])
            rows[1].append(both["new"]["row"])
        renamed = any(both["base"]["row"] != both["new"]["row"] for both in self.sides)
        if not self.in_turns and not renamed and len(alike) > 1:  # each framework has its own
            alike = {("", ""): [[], []]}
        lines = []
        for known, rows in alike.items():
            named = [_named(names) if renamed else "" for names in rows]
            if not self.in_turns:
                runs = (f"run {clean(name)}" for name in self.runs)
                named = [
                    f"{rows} in {run}" if rows else run
                    for rows, run in zip(named, runs, strict=True)
                ]
            base, new = (clean(name) + more for name, more in zip(named, known, strict=True))
            sides = [f"base: {base}", f"new: {new}"]
            whole = ", ".join(sides)
            lines += [whole] if len(whole) <= WIDTH else sides
        return [*lines, self._differing(), *(f"! {warning}" for warning in self.warnings)]

    def _differing(self) -> str:
        if not self.differs:
            return f"nothing differs but the {'row' if self.in_turns else 'time'}"
        changes = (
            f"{what.removeprefix('sampling.')} {a} -> {b}" for what, (a, b) in self.differs.items()
        )
        return f"differs: {', '.join(changes)}"


def _known(side: Mapping[str, str]) -> str:
    path = side["interpreter"].removeprefix(f"{Path.cwd()}/")
    known = ", ".join(filter(None, (side["versions"], path)))
    return f" ({clean(known)})" if known else ""


def _named(names: Sequence[str]) -> str:
    left = len(names) - MOST_NAMED
    return listed([*names[:MOST_NAMED], *([f"{left} more"] if left > 0 else [])])


def document(found: pd.DataFrame, compared: Compared, threshold: float) -> Document:
    """Which side is which, the verdict, then what it rests on, the worst first."""
    result = Document(main="verdicts")
    result.facts |= {"sides": list(compared.sides), "warnings": list(compared.warnings)}
    result.facts |= {"differs": {what: list(pair) for what, pair in compared.differs.items()}}
    decided, fails = not found["undecided"].any(), bool(found["fails"].any())
    result.facts |= {"threshold": threshold, "passed": decided and not fails, "decided": decided}
    result.add("\n".join(wrapped(line) for line in (*compared.lines(), verdict(found))))
    result.add(_disturbed(found, compared), _failures(found), _renamed(found, compared))
    result.add(_rows(found, TIME, "time by row, and its geometric mean over shapes"))
    result.add(_rows(found, TOTAL, f"since the first base, measured {compared.first[:10]}"))
    result.add(_unsure(found), _settled(found, compared.in_turns))
    result.add_details(Table("verdicts", _records(found), _COLUMNS))
    return result


def verdict(found: pd.DataFrame) -> str:
    """The verdict in a sentence."""
    cells = found[found["shape"] != ALL].drop_duplicates(["implementation", "shape"])
    rows = counted(found["implementation"].nunique(), "row")
    whole = f"{counted(len(cells), 'cell')} of {rows}"
    open_, fails = found[found["undecided"]], found[found["fails"] & ~found["undecided"]]
    worst = max(open_["ratio"], key=lambda ratio: abs(np.log(ratio)), default=1.0)
    end = f"{'up' if worst >= 1 else 'down'} to {times(worst)}"
    if len(fails) or open_["fails"].any():
        kinds = fails["verdict"].mask(fails["shape"] == ALL, fails["verdict"] + " as a whole")
        kinds = kinds.mask(fails["what"] == TOTAL, kinds + " since the first base")
        parts = [f"{n} {word}" for word, n in kinds.value_counts(sort=False).items()]
        parts += [f"{len(open_)} not decided, {end}"] if len(open_) else []
        return f"FAILED: {whole}; {listed(parts)}"
    if len(open_):
        return f"not decided: {len(open_)} of {counted(len(cells), 'cell')}, {end}"
    faster = int((found.loc[found["shape"] != ALL, "verdict"] == "faster").sum())
    return f"passed: {whole}, none slower, larger or lost; {faster} faster"


_MARKED = "It is marked so there, or its passes lie more than twice apart"
_WHY = {
    "base": f"{_MARKED}, or its one pass took more than twice the new run's time: none of these is"
    " called the same or faster",
    "new": f"{_MARKED}: none of these can fail as slower",
}


def _disturbed(found: pd.DataFrame, compared: Compared) -> str:
    lines = []
    for place, side in enumerate(("base", "new")):
        cells = found[found["disturbed"].isin((side, "both")) & (found["shape"] != ALL)]
        cells = cells[cells["what"] == TIME]
        if cells.empty:
            continue
        named = [
            f"{cell['against' if side == 'base' else 'implementation']} {cell['shape']}"
            f" ({seconds(cell['base'])} -> {seconds(cell['new'])})"
            for cell in _records(cells)
        ]
        lines.append(
            f"{side} disturbed at {counted(len(cells), 'cell')} of run {compared.runs[place]}:"
            f" {_named(named)}. {_WHY[side]}; measure that run again, or both in turns"
        )
    return "\n".join(map(wrapped, lines))


def _renamed(found: pd.DataFrame, compared: Compared) -> str:
    """A hint where a whole row is missing: it may have another name."""
    lost = found[found["verdict"] == "missing"]["implementation"].unique()
    timed = set(found[found["what"] == TIME]["implementation"])
    if names := [name for name in lost if name not in timed]:
        return wrapped(
            f"missing: {_named(names)}; if a row has another name in the new run:"
            f" --as NEW={names[0]}"
        )
    return ""


def junit(found: pd.DataFrame, compared: Compared) -> str:
    """A test case for every row at every shape, and one for every row as a whole."""
    grouped = found.groupby(["implementation", "shape"], sort=False)
    fails, open_ = grouped["fails"].any(), grouped["undecided"].any()
    suite = ElementTree.Element("testsuite", name="lstm-bench gate", tests=str(len(grouped)))
    suite.set("failures", str(int(fails.sum())))
    suite.set("skipped", str(int((open_ & ~fails).sum())))
    properties = ElementTree.SubElement(suite, "properties")
    facts = {"compared": "; ".join(compared.lines()), "verdict": verdict(found)}
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=clean(value))
    for key, entries in grouped:
        name, shape = map(clean, key)
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=shape)
        for entry in _records(entries):
            if entry["fails"]:
                kind, text_ = clean(entry["verdict"]), _sentence(entry)
                ElementTree.SubElement(case, "failure", type=kind, message=text_)
            elif entry["undecided"] and not fails[key]:
                ElementTree.SubElement(case, "skipped", message=f"unsure: {_sentence(entry)}")
            elif entry["verdict"] == "unsure":
                ElementTree.SubElement(case, "system-out").text = f"unsure: {_sentence(entry)}"
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _sentence(entry: Row) -> str:
    if entry["what"] == "output":
        return clean(f"{entry['verdict']}, and was not in the base")
    change = f"{_value('base')(entry)} -> {_value('new')(entry)}, {times(entry['ratio'])}"
    known = f"; noise {_noise(entry)}" if _timed(entry) else ""
    return clean(f"{entry['what']} {change}{known}")


def _timed(entry: Row) -> bool:
    return entry["what"] in (TIME, TOTAL)


def _noise(entry: Row) -> str:
    if not _timed(entry):
        return "-"
    share = entry["noise"]
    if share is None:
        return "unknown"
    return percent(share) if share <= 1 else "not measurable here"


def _failures(found: pd.DataFrame) -> Table | str:
    """Whole rows first, then cells; of either the worst first."""
    fails = found[found["fails"]]
    if fails.empty:
        return ""
    left = len(fails) - MOST
    more = f"; the first {MOST} of {len(fails)}" if left > 0 else ""
    return Table("failures", _records(_worst(fails)), _COLUMNS, f"failures{more}", MOST, keys=2)


def _unsure(found: pd.DataFrame) -> Table | str:
    unsure = found[(found["verdict"] == "unsure") & (found["what"] == TIME)]
    if unsure.empty:
        return ""
    more = f" (the first {MOST} of {len(unsure)})" if len(unsure) > MOST else ""
    title = f"unsure{more}: neither within the threshold for sure, nor beyond the noise"
    columns = [*_COLUMNS[:2], *_COLUMNS[3:], Column("needs", _needs, right=True)]
    return Table("unsure", _records(_worst(unsure)), columns, title, MOST, keys=2)


def _settled(found: pd.DataFrame, in_turns: bool) -> str:
    """What would settle what is unsure."""
    unsure = found[found["undecided"] & (found["disturbed"] == "")]
    wanted = unsure["passes"].max()
    if not np.isfinite(wanted):
        turns = "; or measure both in turns in one run, with `--against`"
        return "" if unsure.empty or in_turns else f"needs: rounds in all{turns}"
    again = "that run" if in_turns else "both runs"
    return wrapped(
        "needs: processes of the same code differ too, and so few cannot decide it; measure"
        f" {again} again with fresh ones: `lstm-bench grid GRID --passes {wanted:.0f}`"
    )


def _needs(entry: Row) -> str:
    if entry["passes"] is not None:
        return f"{entry['passes']:.0f} passes"
    told = _rounds(entry["rounds"])
    return told if told == "-" else f"{told} rounds"


def _worst(found: pd.DataFrame) -> pd.DataFrame:
    order = pd.DataFrame({"cell": found["shape"] != ALL, "ratio": -found["ratio"].fillna(np.inf)})
    return found.loc[order.sort_values(["cell", "ratio"], kind="stable").index]


def _rows(found: pd.DataFrame, what: str, title: str) -> Table | str:
    """Every row in a line."""
    lines = []
    words = ("slower", "unsure", "same", "faster")
    for name, own in found[found["what"] == what].groupby("implementation", sort=False):
        cells = own[own["shape"] != ALL]
        counts = cells["verdict"].value_counts()
        line = {"implementation": name, "against": own["against"].iloc[0], "shapes": len(cells)}
        line |= {word: int(counts.get(word, 0)) for word in words}
        line |= {"what": what, "ratio": float(np.exp(np.log(cells["ratio"]).mean()))}
        line |= {"noise": None, "verdict": None}
        for whole in _records(own[own["shape"] == ALL]):
            line |= {key: whole[key] for key in ("ratio", "noise", "verdict")}
        lines.append(line)
    if not lines:
        return ""
    columns = [
        text("row", "implementation"),
        number("shapes", "shapes"),
        *(number(word, word) for word in words),
        number("new / base", "ratio", times),
        Column("noise", lambda row: _noise(row) if row["verdict"] else "-", right=True),
        text("as a whole", "verdict", lambda word: word or "-"),
    ]
    return Table("rows" if what == TIME else "total", lines, columns, title)


def _records(found: pd.DataFrame) -> list[dict[str, Any]]:
    """As JSON holds them: None for what is not known."""
    known: Sequence[Mapping[Any, Any]] = found.to_dict("records")
    return [{str(k): None if v != v else v for k, v in one.items()} for one in known]


def _value(key: str) -> Any:
    def show(row: Row) -> str:
        return seconds(row[key]) if _timed(row) else size(row[key])

    return show


def _what(row: Row) -> str:
    if row["what"] == TOTAL:
        return f"{row['verdict']} since the first base"
    return str(row["what" if row["verdict"] == "larger" else "verdict"])


def _rounds(rounds: float | None) -> str:
    if rounds is None:
        return "-"
    return f"over {MOST_ROUNDS}" if rounds > MOST_ROUNDS else f"{rounds:.0f}"


_COLUMNS = [
    text("row", "implementation"),
    Column("shape", lambda row: row["shape"], right=True),
    Column("what", lambda row: _what(row)),
    Column("base", _value("base"), right=True),
    Column("new", _value("new"), right=True),
    number("new / base", "ratio", times),
    Column("noise", lambda row: _noise(row), right=True),
]
