"""`lstm-bench report --workloads`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from lstm_bench.analysis.results import Run
    from lstm_bench.report.document import Document


@click.command(help="Real layers by name: latency, sequences per second, real time, memory.")
def workloads(run: Run, conditions: Sequence[str], everything: bool) -> Document:
    from lstm_bench.features.workloads import report

    return report.document(run, conditions, everything)
