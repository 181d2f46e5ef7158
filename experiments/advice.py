"""Test the advice for shapes that were not measured: leave out each shape of a run in turn.

    python experiments/advice.py [RUN ...]

Prints the table of docs/how-to/get-advice.md: at how many shapes the row that `lstm-bench advise`
names from the other shapes is the fastest, at how many it is within 5% of it, and how much slower
it is on average where it is not the fastest.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lstm_bench.analysis.results import load
from lstm_bench.features.advise.advice import held_out, held_out_table
from lstm_bench.model.units import percent
from lstm_bench.runs.run_folders import find_run

RESULTS = Path(__file__).resolve().parent.parent / "results"
SHIPPED = ("h200-paper", "h200-ladder", "h200-deepbench", "cpu-neoverse")


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("runs", metavar="RUN", nargs="*", default=SHIPPED)
    rows = []
    for name in parser.parse_args().runs:
        rows += held_out(load(find_run(RESULTS, name)))
    print(held_out_table(rows).drawn("github"))
    close, shapes = (sum(row[key] for row in rows) for key in ("close", "shapes"))
    print(f"\nwithin 5% of the fastest: {close} of {shapes} cases, {percent(close / shapes)}")


if __name__ == "__main__":
    main()
