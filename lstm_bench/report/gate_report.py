"""What the gate found: a document whose failures come first, or JUnit's XML for CI systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from lstm_bench.analysis.gate import ALL
from lstm_bench.model.units import clean, counted, listed, percent, seconds, size, times, wrapped
from lstm_bench.report.document import Column, Document, Row, Table, number, text

MOST = 20  # failures that are drawn, and as many that are unsure
MOST_ROUNDS = 10_000  # nobody would measure more
Differs = Mapping[str, Sequence[str]]


def document(found: pd.DataFrame, differs: Differs, threshold: float, in_turns: bool) -> Document:
    """What differs, the verdict, then what it rests on, the worst first."""
    result = Document(main="verdicts")
    result.facts |= {"differs": {what: list(pair) for what, pair in differs.items()}}
    result.facts |= {"threshold": threshold, "passed": not found["fails"].any()}
    result.add("\n".join(wrapped(line) for line in (changed(differs, in_turns), said(found))))
    result.add(_disturbed(found), _failures(found), _rows(found), _unsure(found))
    result.add(_settled(found, in_turns))
    result.add_details(Table("verdicts", _records(found), _COLUMNS))
    return result


def changed(differs: Differs, in_turns: bool) -> str:
    """The first line: what was another in the base than in the new run."""
    if not differs:
        return f"nothing differs but the {'row' if in_turns else 'time'}"
    told = (f"{what.removeprefix('sampling.')} {a} -> {b}" for what, (a, b) in differs.items())
    return f"differs: {', '.join(told)}"


def said(found: pd.DataFrame) -> str:
    """The verdict in a sentence."""
    cells = found[found["shape"] != ALL].drop_duplicates(["implementation", "shape"])
    rows = counted(found["implementation"].nunique(), "row")
    whole = f"{counted(len(cells), 'cell')} of {rows}"
    fails = found[found["fails"]]
    if fails.empty:
        unsure = int((found["verdict"] == "unsure").sum())
        return f"passed: {whole}, none slower, larger or lost; {unsure} unsure"
    kinds = fails["verdict"].mask(fails["shape"] == ALL, fails["verdict"] + " as a whole")
    counts = kinds.value_counts(sort=False)
    return f"FAILED: {whole}; {listed(f'{n} {word}' for word, n in counts.items())}"


def _disturbed(found: pd.DataFrame) -> str:
    cells = found[found["disturbed"] & (found["shape"] != ALL)]
    if cells.empty:
        return ""
    return wrapped(
        f"{counted(len(cells), 'cell')} measured while other processes took the cores: none of"
        " these can fail as slower; measure again where nothing else runs"
    )


def junit(found: pd.DataFrame, differs: Differs, in_turns: bool) -> str:
    """A test case for every row at every shape, and one for every row as a whole."""
    grouped = found.groupby(["implementation", "shape"], sort=False)
    failed = int(grouped["fails"].any().sum())
    suite = ElementTree.Element("testsuite", name="lstm-bench gate", tests=str(len(grouped)))
    suite.set("failures", str(failed))
    properties = ElementTree.SubElement(suite, "properties")
    told = clean(changed(differs, in_turns))
    ElementTree.SubElement(properties, "property", name="differs", value=told)
    for (name, shape), entries in grouped:
        case = ElementTree.SubElement(suite, "testcase", classname=clean(name), name=clean(shape))
        for entry in _records(entries):
            if entry["fails"]:
                ElementTree.SubElement(
                    case, "failure", type=clean(entry["verdict"]), message=_sentence(entry)
                )
            elif entry["verdict"] == "unsure":
                ElementTree.SubElement(case, "system-out").text = _sentence(entry)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _sentence(entry: Row) -> str:
    if entry["what"] == "output":
        return clean(f"{entry['verdict']}, and was not in the base")
    base, new, noise = _value("base")(entry), _value("new")(entry), percent(entry["noise"])
    told = f"{entry['what']} {base} -> {new}, {times(entry['ratio'])}"
    return clean(told if entry["noise"] is None else f"{told}; noise {noise}")


def _failures(found: pd.DataFrame) -> Table | str:
    """Whole rows first, then cells; of either the worst first."""
    fails = found[found["fails"]]
    if fails.empty:
        return ""
    left = len(fails) - MOST
    more = f"; the first {MOST} of {len(fails)}" if left > 0 else ""
    return Table("failures", _records(_worst(fails)), _COLUMNS, f"failures{more}", MOST, keys=2)


def _unsure(found: pd.DataFrame) -> Table | str:
    unsure = found[found["verdict"] == "unsure"]
    if unsure.empty:
        return ""
    more = f" (the first {MOST} of {len(unsure)})" if len(unsure) > MOST else ""
    title = f"unsure{more}: beyond the threshold, not beyond the noise"
    columns = [*_COLUMNS[:2], *_COLUMNS[3:], Column("needs", _needs, right=True)]
    return Table("unsure", _records(_worst(unsure)), columns, title, MOST, keys=2)


def _settled(found: pd.DataFrame, in_turns: bool) -> str:
    """What would settle what is unsure."""
    unsure = found[found["verdict"] == "unsure"]
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


def _rows(found: pd.DataFrame) -> Table | str:
    """Every row in a line."""
    lines = []
    for name, own in found[found["what"] == "time"].groupby("implementation", sort=False):
        whole, cells = own[own["shape"] == ALL], own[own["shape"] != ALL]
        counts = cells["verdict"].value_counts()
        line = {"implementation": name, "against": own["against"].iloc[0], "shapes": len(cells)}
        line |= {word: int(counts.get(word, 0)) for word in ("slower", "unsure", "same", "faster")}
        known = whole.iloc[0] if len(whole) else dict.fromkeys(("ratio", "noise", "verdict"))
        lines.append({**line, **{what: known[what] for what in ("ratio", "noise", "verdict")}})
    if not lines:
        return ""
    columns = [
        text("row", "implementation"),
        number("shapes", "shapes"),
        *(number(word, word) for word in ("slower", "unsure", "same", "faster")),
        number("new / base", "ratio", times),
        number("noise", "noise", percent),
        text("as a whole", "verdict", lambda word: word or "-"),
    ]
    return Table("rows", lines, columns, "time by row, and its geometric mean over shapes")


def _records(found: pd.DataFrame) -> list[dict[str, Any]]:
    """As JSON holds them: None for what is not known."""
    known: Sequence[Mapping[Any, Any]] = found.to_dict("records")
    return [{str(k): None if v != v else v for k, v in one.items()} for one in known]


def _value(key: str) -> Any:
    def show(row: Row) -> str:
        return seconds(row[key]) if row["what"] == "time" else size(row[key])

    return show


def _rounds(rounds: float | None) -> str:
    if rounds is None:
        return "-"
    return f"over {MOST_ROUNDS}" if rounds > MOST_ROUNDS else f"{rounds:.0f}"


_COLUMNS = [
    text("row", "implementation"),
    Column("shape", lambda row: row["shape"], right=True),
    Column("what", lambda row: row["what" if row["verdict"] == "larger" else "verdict"]),
    Column("base", _value("base"), right=True),
    Column("new", _value("new"), right=True),
    number("new / base", "ratio", times),
    number("noise", "noise", percent),
]
