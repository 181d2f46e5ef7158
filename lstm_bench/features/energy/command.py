"""`lstm-bench report --energy`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from lstm_bench.analysis.results import Run
    from lstm_bench.report.document import Document


@click.command(help="Energy per call, power, clocks, temperature, memory peaks.")
def energy(run: Run, conditions: Sequence[str], everything: bool) -> Document:
    from lstm_bench.features.energy import report

    return report.document(run, conditions)
