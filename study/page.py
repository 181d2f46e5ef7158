"""Fills numbers, tables and figures into the pages that people write.

A template is Markdown with `{{name}}` for a number, `{{table: name}}` and `{{figure: name}}`.
Any other number in its text is a literal, which nothing checks: `literals` finds them.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path

from lstm_bench.model.units import wrapped
from lstm_bench.report.figures import styled
from study import counts, data, devices, drawings
from study.figures import FIGURES
from study.numbers import Number, numbers
from study.runs import ROOT
from study.tables import TABLES

STUDY, README, DETAILS = (ROOT / "study" / f"{name}.md" for name in ("study", "readme", "details"))
PLACEHOLDER = re.compile(r"\{\{(?:(table|figure): )?(\w+)\}\}")
NOTE = "<!-- Made by `make study` of study/{} and the runs in results/: edit that, not this. -->"

#: Numbers that are not checked: a size, a mode, the usual interval, a year, a name.
_SIZES = r"\d+(?:(?:, | and | or | to |, and )\d+)*"
ALLOWED = re.compile(
    rf"(?:hidden|batch|timesteps|modes?|Table) {_SIZES}|{_SIZES} timesteps|95%|\b20\d\d\b"
    r"|[a-z]+\d+",  # H200, fp32, float64
    re.IGNORECASE,
)


@functools.cache
def known() -> Mapping[str, Number]:
    return numbers()


def used(template: str) -> set[tuple[str, str]]:
    """The placeholders: what kind, which name."""
    return set(PLACEHOLDER.findall(template))


def literals(template: str) -> list[str]:
    """Numbers in the text that are neither placeholders nor allowed; code and links are no text."""
    text = re.sub(r"^    .*$", " ", template, flags=re.M)
    text = re.sub(r"<!--.*?-->|`[^`]*`|\]\([^)]*\)", " ", text, flags=re.S)
    text = ALLOWED.sub(" ", " ".join(PLACEHOLDER.sub("it", text).split()))
    return re.findall(r"\S*\d\S*", text)


def filled(template: str, figures: str) -> str:
    """A page, its paragraphs folded anew; `figures` is where it finds them."""

    def put(result: re.Match[str]) -> str:
        kind, name = result.groups()
        if kind == "table":
            return TABLES[name]()
        if kind == "figure":
            return f"![{FIGURES[name].about}]({figures}/study-{name}.svg)"
        return known()[name].shown

    blocks = (PLACEHOLDER.sub(put, block) for block in template.strip().split("\n\n"))
    return "\n\n".join(map(_folded, blocks)) + "\n"


def _folded(block: str) -> str:
    """A paragraph or a list; anything else stays as it is."""
    if block.startswith(("|", "#", "!", "<", "```", "    ")):
        return block
    items = re.split(r"\n(?=- )", block)
    return "\n".join(
        wrapped(" ".join(item.split()), 2 if item[0:2] == "- " else 0) for item in items
    )


def study() -> str:
    return _made_of(STUDY, "figures")


def readme() -> str:
    return _made_of(README, "docs/figures")


def details() -> str:
    return _made_of(DETAILS, "../../docs/figures")


def _made_of(template: Path, figures: str) -> str:
    title, _, rest = filled(template.read_text(encoding="utf-8"), figures).partition("\n")
    return f"{title}\n\n{NOTE.format(template.name)}\n{rest}"


def listed() -> str:
    """The numbers as JSON, for readers and for tests."""
    entries = {name: number._asdict() for name, number in sorted(known().items())}
    return json.dumps(entries, indent=1) + "\n"


@styled()
def write(root: Path = ROOT) -> list[Path]:
    """All that the study generates; returns the files."""
    texts = {
        "docs/study.md": study(),
        "study/numbers.json": listed(),
        "study/notes/study.md": details(),
        "README.md": readme(),
        data.DICTIONARY: data.dictionary(),
    }
    for name in counts.pages():
        texts[name] = counts.filled((ROOT / name).read_text(encoding="utf-8"))
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    (root / data.TABLE).write_bytes(data.packed(data.table()))
    paths = [root / name for name in (*texts, data.TABLE)]
    for name, picture in FIGURES.items():
        paths.append(root / "docs" / "figures" / f"study-{name}.svg")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        picture.draw().savefig(paths[-1], metadata={"Date": None})
    paths.append(root / devices.FIGURE)
    devices.drawn().savefig(paths[-1], metadata={"Date": None})
    return [*paths, *drawings.write(root)]
