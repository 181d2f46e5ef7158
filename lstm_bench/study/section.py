"""What a section of the study is, and the Markdown that it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tabulate
from matplotlib.figure import Figure

from lstm_bench.intervals import Statistic
from lstm_bench.units import clean, listed, times, wrapped


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it, the answer first."""

    title: str
    body: Sequence[str]
    short: str = ""  # its line of "In short"; empty: none
    figures: Mapping[str, Figure] = field(default_factory=dict)  # by the stems of their files

    def written(self) -> str:
        return "\n\n".join([f"## {self.title}", *(part for part in self.body if part)])


def text(*sentences: str) -> str:
    """A paragraph of them, folded; an empty sentence is left out."""
    return wrapped(" ".join(sentence for sentence in sentences if sentence))


def bullets(lines: Sequence[str]) -> str:
    return "\n".join(wrapped(f"- {line}", 2) for line in lines)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table in Markdown; the first `left` columns are words, the others numbers."""
    shown = [[clean(cell).replace("|", "/") for cell in row] for row in rows]
    sides = ["left" if place < left else "right" for place in range(len(headings))]
    return str(
        tabulate.tabulate(
            shown, headings, "github", colalign=sides if shown else None, disable_numparse=True
        )
    )


def reached_by(names: Sequence[str]) -> str:
    """Who does as well as that, as the start of a sentence."""
    return f"{listed(names)} {'does' if len(names) == 1 else 'do'}" if names else "No run does"


def within(ratio: Statistic) -> str:
    """A ratio and its interval."""
    return f"{times(ratio.value)} ({times(ratio.low)} to {times(ratio.high)})"


def count(value: float) -> str:
    """How many of something, on average or in the median."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def figure(stem: str, about: str) -> str:
    return f"![{about}](figures/{stem}.svg)"


def code(name: str) -> str:
    """The name of a row, of a run or of a command."""
    return f"`{clean(name)}`"
