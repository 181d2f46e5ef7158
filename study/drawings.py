"""The drawings of docs/explanation/kernel.md: a team of blocks, and a step on a time line."""

from __future__ import annotations

import re
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from lstm_bench.report import figures
from study.runs import ROOT

TEAM, STEP = "docs/figures/kernel-team.svg", "docs/figures/kernel-step.svg"
NOTE = ROOT / "study" / "notes" / "kernel.md"
INKS = ("#0072b2", "#009e73", "#d55e00", "#cc79a7")
PARTS = ("wait for h", "mma", "sums", "barrier", "cell", "send", "y, next input")
SHADES = ("#d55e00", "#0072b2", "#56b4e9", "#999999", "#009e73", "#e69f00", "#cc79a7")
#: Of the table in the note: its first words, and what the drawing calls them.
SHOWN = {
    "128, 1, TF32": "cluster of 16,\nbatch 1, hidden 128",
    "512, 1, TF32": "cluster of 16,\nbatch 1, hidden 512",
    "256, 16, fp32": "cluster of 8,\nbatch 16, hidden 256",
    "1024, 1, fp32": "128 blocks, by L2,\nbatch 1, hidden 1024",
}


@figures.styled()
def team() -> Figure:
    """W_hh cut into stripes, a stripe to a block, and h going around."""
    figure = Figure((figures.WIDTH, 3.3))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 100), ylim=(0, 44))
    ax.axis("off")
    _text(ax, 11.5, 41.5, "W_hh, a stripe a block", bold=True)
    for number, ink in enumerate(INKS):
        ax.add_patch(Rectangle((4, 29 - 8 * number), 13, 7.4, color=ink, alpha=0.85))
        _text(ax, 10.5, 32.7 - 8 * number, "i f g o", ink="white")
    _text(ax, 10.5, 2.2, "columns: the last h", small=True)
    for name, left, sequences in (("team 1", 29, "0 to 7"), ("team 2", 67, "8 to 15")):
        edge = FancyBboxPatch((left, 4), 30, 33, boxstyle="round,pad=0.8", fill=False, ec="#888888")
        ax.add_patch(edge)
        _text(ax, left + 15, 41.5, f"{name}: sequences {sequences} of the batch", bold=True)
        for number, ink in enumerate(INKS):
            _block(ax, left + 1.5, 29.5 - 8 * number, ink, number)
        for start in range(4):
            for end in range(4):
                if start != end:
                    _arrow(ax, left, start, end)
        _text(ax, left + 28, 20.5, "h", bold=True)
    _text(ax, 64.2, 20.5, "...", bold=True)
    for number in range(4):
        ends = ((17.3, 32.7 - 8 * number), (29.9, 32.7 - 8 * number))
        ax.add_patch(FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=8, color="#888888"))
    _text(ax, 23.2, 35.6, "once a call", small=True)
    return figure


def _block(ax: Axes, left: float, low: float, ink: str, number: int) -> None:
    ax.add_patch(FancyBboxPatch((left, low), 18, 6, boxstyle="round,pad=0.3", fc="white", ec=ink))
    ax.add_patch(Rectangle((left + 0.5, low + 0.6), 3.4, 4.8, color=ink, alpha=0.85))
    _text(ax, left + 11, low + 4.3, f"block {number}", small=True)
    _text(ax, left + 11, low + 1.6, "registers, shared memory", small=True, size=5.4)


def _arrow(ax: Axes, left: float, start: int, end: int) -> None:
    ends = ((left + 20, 32.5 - 8 * start), (left + 20, 32.5 - 8 * end))
    ax.add_patch(
        FancyArrowPatch(
            *ends,
            connectionstyle=f"arc3,rad={-0.5 if start < end else 0.5}",
            arrowstyle="-|>",
            mutation_scale=6,
            color=INKS[start],
            linewidth=0.8,
        )
    )


def _text(
    ax: Axes,
    x: float,
    y: float,
    text: str,
    bold: bool = False,
    small: bool = False,
    ink: str = "black",
    size: float = 0,
) -> None:
    size = size or (6.5 if small else 8)
    weight = "bold" if bold else "normal"
    ax.text(x, y, text, ha="center", va="center", fontsize=size, fontweight=weight, color=ink)


def cycles() -> dict[str, dict[str, float]]:
    """The parts of a step by plan, of the table in the note."""
    rows = {}
    for line in re.findall(r"^\| (\d+, \d+, \w+, .*) \|$", NOTE.read_text(), re.M):
        plan, *numbers = line.split(" | ")
        if len(numbers) == len(PARTS) + 1:
            rows[plan] = dict(zip((*PARTS, "step"), map(float, numbers), strict=True))
    return rows


@figures.styled()
def step() -> Figure:
    """A bar per plan: where the cycles of a step go."""
    known = cycles()
    rows = {
        label: next(parts for plan, parts in known.items() if plan.startswith(start))
        for start, label in SHOWN.items()
    }
    figure = Figure((figures.WIDTH, 2.9))
    ax = figure.add_axes((0.19, 0.27, 0.78, 0.62))
    for place, parts in enumerate(reversed(rows.values())):
        left = 0.0
        for part, shade in zip(PARTS, SHADES, strict=True):
            ax.barh(place, parts[part], left=left, color=shade, height=0.62)
            if parts[part] >= 120:
                middle = left + parts[part] / 2
                ax.text(middle, place, f"{parts[part]:.0f}", ha="center", va="center", fontsize=6)
            left += parts[part]
        ax.text(left + 25, place, f"{parts['step']:.0f} in all", va="center", fontsize=6.5)
    ax.set_yticks(range(len(rows)), list(reversed(rows)), fontsize=7)
    ax.set_xlabel("cycles of one timestep, in the order in which they pass", fontsize=7)
    ax.set_xlim(0, 3500)
    ax.spines[["top", "right"]].set_visible(False)
    handles = [Rectangle((0, 0), 1, 1, color=shade) for shade in SHADES]
    figure.legend(handles, PARTS, loc="lower center", ncol=7, fontsize=6.5, frameon=False)
    ax.set_title("One timestep of four plans on an H200", loc="left", fontsize=9, fontweight="bold")
    return figure


DRAWINGS = {TEAM: team, STEP: step}


def write(root: Path) -> list[Path]:
    for path, draw in DRAWINGS.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        draw().savefig(root / path, metadata={"Date": None})
    return [root / path for path in DRAWINGS]
