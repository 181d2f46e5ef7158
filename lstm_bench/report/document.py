"""Documents of text and tables, and the five formats that they are written in.

A table keeps its raw values: people see microseconds and percent, CSV and JSON get seconds and
fractions.
"""

from __future__ import annotations

import io
import json
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import tabulate

from lstm_bench.model.types import LstmBenchError, plain
from lstm_bench.model.units import WIDTH, clean, wrapped

tabulate.MIN_PADDING = 0  # columns as narrow as their contents: tables must fit a page

FORMATS = ("table", "github", "csv", "json", "latex")
_BY_SUFFIX = {".txt": "table", ".md": "github", ".csv": "csv", ".json": "json", ".tex": "latex"}
_LAYOUT = {"table": "simple", "github": "github", "latex": "latex_booktabs"}
_MARKDOWN = re.compile(r"[\\|`*\[\]<>&]")
_BETWEEN = 2  # spaces between two columns of a plain table
_NARROWEST = 12  # a column is not folded to less
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of a table: it shows text of one value of a row, or of several."""

    heading: str
    show: Callable[[Row], str]
    right: bool = False
    key: str = ""  # the value that a reader sorts it by; empty: its text
    sparse: bool = False  # left out if no row has a value


def text(
    heading: str,
    key: str,
    to: Callable[[Any], str] = str,
    right: bool = False,
    sparse: bool = False,
) -> Column:
    """A column of one value; "-" where a row has none."""

    def show(row: Row) -> str:
        return to(row[key]) if known(row[key]) else "-"

    return Column(heading, show, right, key, sparse)


def number(heading: str, key: str, to: Callable[[Any], str] = str, sparse: bool = False) -> Column:
    return text(heading, key, to, True, sparse)


def known(value: Any) -> bool:
    """True for a value that is neither None nor NaN."""
    return value is not None and bool(value == value)


@dataclass(frozen=True)
class Table:
    """Raw rows, and the columns that people see."""

    name: str  # in JSON; tables of one name are one CSV
    rows: Sequence[Row]
    columns: Sequence[Column]
    title: str = ""
    most: int | None = None  # rows that are drawn; CSV and JSON have all
    keys: int = 1  # columns that tell which row it is

    def __post_init__(self) -> None:
        kept = [
            column
            for column in self.columns
            if not column.sparse or any(known(row[column.key] or None) for row in self.rows)
        ]
        object.__setattr__(self, "columns", kept)

    def drawn(self, form: str = "table", width: int | None = None) -> str:
        """The table as text; columns beyond `width` go on below, with the key columns again.

        Headings are folded if the table fits so. A column that leaves no room for
        another is folded between its words, and inside of those that are longer than the column.
        """
        rows = self.rows[: self.most]
        shown = [[clean(column.show(row)) for column in self.columns] for row in rows]
        if form == "github":
            shown = [[_MARKDOWN.sub(_escaped, cell) for cell in row] for row in shown]
        heads = [[column.heading] for column in self.columns]
        widths = [max((len(row[n]) for row in shown), default=1) for n in range(len(heads))]
        longest = _longest(heads, widths)
        if form == "table" and width and _across(longest) > width:
            folded = [_wrap(head, size or 1) for (head,), size in zip(heads, widths, strict=True)]
            if _across(_longest(folded, widths)) <= width:
                heads, longest = folded, _longest(folded, widths)
        blocks = _blocks(longest, width, self.keys) if width else [list(range(len(heads)))]
        return "\n\n".join(
            self._block(shown, heads, form, block, _folds([longest[n] for n in block], width))
            for block in blocks
        )

    def _block(
        self,
        shown: list[list[str]],
        heads: list[list[str]],
        form: str,
        places: list[int],
        folds: list[int | None],
    ) -> str:
        columns = [self.columns[place] for place in places]
        widths = list(zip(places, folds, strict=True))
        return str(
            tabulate.tabulate(
                [[_narrowed(row[n], w) if w else row[n] for n, w in widths] for row in shown],
                headers=["\n".join(heads[n]) for n in places],
                tablefmt=_LAYOUT[form],
                colalign=["right" if c.right else "left" for c in columns] if shown else None,
                disable_numparse=True,
            )
        )


@dataclass
class Document:
    """Text and tables in reading order; CSV gets the table `main`, or the first."""

    parts: list[str | Table] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)  # what JSON gets beside the tables
    details: list[str | Table] = field(default_factory=list)  # drawn with --all; JSON has them
    everything: bool = False  # whether details are drawn
    main: str = ""

    def add(self, *parts: str | Table) -> None:
        self.parts += filter(None, parts)  # what has nothing to say leaves no gap

    def add_details(self, *parts: str | Table) -> None:
        self.details += filter(None, parts)

    @property
    def tables(self) -> list[Table]:
        return [part for part in [*self.parts, *self.details] if isinstance(part, Table)]

    def written(self, form: str, width: int | None = None) -> str:
        """The whole in one of FORMATS, without a newline at its end.

        `width` is that of the terminal where it is for one; text is folded to it.
        """
        if form == "json":
            return self._json()
        if form == "csv":
            return self._csv()
        blocks = []
        for part in [*self.parts, *(self.details if self.everything else [])]:
            if isinstance(part, Table):
                title = _titled(part.title, form, width)
                blocks.append(f"{title}{part.drawn(form, width)}")
            else:
                blocks.append(_as_text(folded(part, min(width or WIDTH, WIDTH)), form))
        return "\n\n".join(blocks)

    def _json(self) -> str:
        data: dict[str, Any] = dict(self.facts)
        for table in self.tables:
            data.setdefault(table.name, []).extend(dict(row) for row in table.rows)
        return json.dumps(plain(data), indent=1, ensure_ascii=False, allow_nan=False)

    def _csv(self) -> str:
        if not self.tables:
            return ""
        name = self.main or self.tables[0].name
        rows = [_flat(row) for table in self.tables if table.name == name for row in table.rows]
        out = io.StringIO()
        pd.DataFrame(rows).to_csv(out, index=False, lineterminator="\n")
        return out.getvalue().rstrip("\n")


def paragraph(*lines: str, title: str = "") -> str:
    """Lines under a title, those without text left out; empty without any."""
    kept = list(filter(None, lines))
    return "\n".join([f"{title}:"] * bool(title and kept) + kept)


def _longest(heads: Sequence[Sequence[str]], widths: Sequence[int]) -> list[int]:
    """The width of each column, its heading in lines."""
    lines = [max(map(len, head), default=0) for head in heads]
    return [max(both) for both in zip(lines, widths, strict=True)]


def _across(longest: Sequence[int]) -> int:
    return sum(longest) + _BETWEEN * (len(longest) - 1)


def _wrap(heading: str, width: int) -> list[str]:
    return textwrap.wrap(heading, width, break_long_words=False)


def _blocks(longest: Sequence[int], width: int, keys: int) -> list[list[int]]:
    """The blocks of columns side by side: the keys in every block, the others as they fit."""
    first = list(range(keys))
    free = width - sum(longest[:keys]) - _BETWEEN * (keys - 1)
    blocks, room = [first[:]], free
    for place in range(keys, len(longest)):
        needs = longest[place] + _BETWEEN
        if needs > room and len(blocks[-1]) > keys:
            blocks.append(first[:])
            room = free
        blocks[-1].append(place)
        room -= needs
    return blocks


def _folds(longest: Sequence[int], width: int | None) -> list[int | None]:
    """The width to which the longest column of a block is folded, if the block is too wide."""
    over = sum(longest) + _BETWEEN * (len(longest) - 1) - (width or math.inf)
    widest = max(longest, default=0)
    fold = max(int(widest - over), _NARROWEST) if over > 0 else None
    place = longest.index(widest) if longest else -1
    return [fold if n == place else None for n in range(len(longest))]


def _narrowed(cell: str, width: int) -> str:
    return wrapped(re.sub(rf"(\S{{{width}}})(?=\S)", r"\1 ", cell), width=width)


def folded(text: str, width: int) -> list[str]:
    """The lines of a text, folded; what goes on below an indented line is indented further."""
    lines = []
    for line in map(clean, text.splitlines()):
        indent = len(line) - len(line.lstrip())
        lines += wrapped(line, indent and indent + 4, width).split("\n")
    return lines


def _escaped(match: re.Match[str]) -> str:
    """Markdown's own characters as text."""
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(match[0], "\\" + match[0])


def _as_text(lines: list[str], form: str) -> str:
    if form == "latex":
        return "\n".join("% " + line for line in lines)
    if form == "github":  # as it is: nothing in it is markup
        return "\n".join(["```text", *(line.replace("```", "` ` `") for line in lines), "```"])
    return "\n".join(lines)


def _titled(title: str, form: str, width: int | None) -> str:
    if not title:
        return ""
    title = clean(title)
    if form == "table":
        title = wrapped(title, width=min(width or WIDTH, WIDTH))
    if form == "github":
        title = _MARKDOWN.sub(_escaped, title)
    return {"table": f"{title}\n\n", "github": f"### {title}\n\n", "latex": f"% {title}\n"}[form]


def _flat(row: Row) -> dict[str, Any]:
    """A line of CSV: lists joined, text that a spreadsheet takes for a formula quoted."""
    result = {}
    for key, value in row.items():
        if isinstance(value, (list, tuple)):
            value = "; ".join(map(str, value))
        if isinstance(value, str):
            value = clean(value)
            value = "'" + value if value.startswith(_FORMULA) else value
        result[key] = value
    return result


def chosen_format(form: str | None, output: str | None) -> str:
    """The format that was asked for, or the one that the file's name asks for."""
    if form:
        return form
    if output in (None, "-"):
        return "table"
    suffix = Path(str(output)).suffix.lower()
    if suffix in (".html", ".htm"):
        raise LstmBenchError("--output writes tables; a page is `lstm-bench report --html FILE`")
    if suffix not in _BY_SUFFIX:
        known = ", ".join(_BY_SUFFIX)
        raise LstmBenchError(
            f"--output {output}: found {suffix or 'no suffix'}, expected {known}, or --format"
        )
    return _BY_SUFFIX[suffix]
