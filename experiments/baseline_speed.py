"""Is the C++ baseline the fastest thing in a run? Every framework row of its precision, by shape.

    python experiments/baseline_speed.py results/RUN

Prints, for each framework row, the geometric mean of its latency over the baseline's and the
shapes where the baseline is slower beyond the run's noise floor. On a GPU the baseline is
`deepbench-best`, in half precision `deepbench-fp16-best`; on a CPU it is `deepbench`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lstm_bench.analysis import results
from lstm_bench.analysis.comparison import compare
from lstm_bench.model.units import times
from lstm_bench.report.document import Table, number, text
from lstm_bench.report.run_report import shape_label


def baseline_for(precision: str, names: list[str]) -> str:
    best = "deepbench-best" if precision in ("fp32", "tf32") else "deepbench-fp16-best"
    return best if best in names else "deepbench"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="results/RUN")
    run = results.load(parser.parse_args().run)
    precision = run.cells.drop_duplicates("implementation").set_index("implementation")["precision"]
    rows = []
    for name in run.implementations:
        if name.startswith("deepbench"):
            continue
        base = baseline_for(precision[name], run.implementations)
        found = compare(run.cells, name, base, across=None)  # AMP against half precision, too
        slower = found.shapes[found.shapes["verdict"] == "slower"].to_dict("records")
        rows.append(
            {
                "row": name,
                "base": base,
                "shapes": len(found.shapes),
                "mean": 1 / found.group().ratio.value,
                "least": 1 / found.shapes["ratio"].max(),
                "slower": " ".join(map(shape_label, slower)) or "none",
            }
        )
    columns = (
        text("framework row", "row"),
        text("baseline", "base"),
        number("shapes", "shapes"),
        number("geometric mean", "mean", times),
        number("least", "least", times),
        text("baseline slower at", "slower"),
    )
    print(Table("speed", rows, columns).drawn())


if __name__ == "__main__":
    main()
