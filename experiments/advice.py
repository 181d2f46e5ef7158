"""Test the advice for shapes that were not measured: leave out each shape of a run in turn.

    python experiments/advice.py [RUN ...]

Prints the table of docs/how-to/get-advice.md: at how many shapes the row that `lstm-bench advise`
names from the other shapes is the fastest, at how many it is within 5% of it, and how much slower
it is on average where it is not the fastest.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lstm_bench.analysis import summary
from lstm_bench.analysis.choice import CLASSES, allowed
from lstm_bench.analysis.results import Run, load
from lstm_bench.features.advise import estimate, sources
from lstm_bench.model.units import percent
from lstm_bench.report.document import Row, Table, number, text
from lstm_bench.report.fastest import base_of
from lstm_bench.runs.run_folders import find_run

RESULTS = Path(__file__).resolve().parent.parent / "results"
SHIPPED = ("h200-paper", "h200-ladder", "h200-deepbench", "cpu-neoverse")


def held_out(run: Run) -> list[dict[str, Any]]:
    """The worth of advice from a run, for each accuracy that may be asked for."""
    times, names = summary.times(run.cells), sources.deployable(run)
    precisions, now = sources.precisions_of(times), base_of(run, names)
    classes = {name: summary.accuracy(precisions[name]) for name in names}
    guesses = estimate.left_out(times)
    rows = []
    for accuracy in (known for known in CLASSES if known in classes.values()):
        mine = [name for name in names if classes[name] in allowed(accuracy)]
        tried = estimate.hold_out(times, guesses, mine, now)
        rows.append({"run": run.name, "accuracy": accuracy, "rows": len(mine), **asdict(tried)})
    return rows


def table(rows: Sequence[Row]) -> str:
    """`held_out` of some runs, in Markdown."""
    columns = [
        text("run", "run"),
        text("accuracy", "accuracy"),
        number("rows", "rows"),
        number("shapes", "shapes"),
        number("the fastest", "best"),
        number("within 5%", "close"),
        number("loss when not", "loss", percent),
        number("times off by", "off", lambda off: percent(off, 0)),
    ]
    return Table("held out", rows, columns).drawn("github")


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("runs", metavar="RUN", nargs="*", default=SHIPPED)
    rows = []
    for name in parser.parse_args().runs:
        rows += held_out(load(find_run(RESULTS, name)))
    print(table(rows))
    close, shapes = (sum(row[key] for row in rows) for key in ("close", "shapes"))
    print(f"\nwithin 5% of the fastest: {close} of {shapes} cases, {percent(close / shapes)}")


if __name__ == "__main__":
    main()
