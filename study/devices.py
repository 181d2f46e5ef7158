"""The machine that wins at each shape, for docs/explanation/gpu-or-cpu.md: of grids/devices.yaml.

What is shipped of them is compared; until two are, two others that have some shapes in common.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from lstm_bench.analysis import results
from lstm_bench.analysis.machines import Machines, machines
from lstm_bench.report import machines_figure, machines_report
from study.runs import ROOT

FIGURE = "docs/figures/devices.svg"
RUNS = ("h200-devices", "cpu-x86", "cpu-arm")
UNTIL_THEN = ("h200-paper", "cpu-neoverse")


def names(folder: Path = ROOT / "results") -> tuple[str, ...]:
    """The runs that are compared."""
    there = tuple(name for name in RUNS if (folder / name / "manifest.json").exists())
    return there if len(there) > 1 else UNTIL_THEN


def compared(folder: Path = ROOT / "results") -> Machines:
    return machines({name: results.load(folder / name) for name in names(folder)})


def drawn(folder: Path = ROOT / "results") -> Figure:
    return machines_figure.drawn(compared(folder))


def block(folder: Path = ROOT / "results") -> str:
    """The command's output without the table of all shapes and the notes, and the figure."""
    sides = compared(folder)
    document = machines_report.document(sides)
    document.parts = document.parts[: document.parts.index(document.tables[-1])]
    lines = document.written("table").splitlines()
    shown = "\n".join(f"    {line}".rstrip() for line in lines)
    figure = f"![Which machine wins at which hidden size and batch](../figures/{Path(FIGURE).name})"
    return f"\n\n    $ lstm-bench compare {' '.join(sides.names)}\n{shown}\n    ...\n\n{figure}\n\n"
