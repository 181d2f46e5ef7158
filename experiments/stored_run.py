"""Questions to a stored run: is the C++ baseline the fastest, and does a worker keep its pace?

    python experiments/stored_run.py baseline results/RUN
    python experiments/stored_run.py pace results/RUN

`baseline` prints, for each framework row, the geometric mean of its latency over the baseline's and
the shapes where the baseline is slower beyond the run's noise floor. On a GPU the baseline is
`deepbench-best`, in half precision `deepbench-fp16-best`; on a CPU it is `deepbench`.

`pace` tells whether neighbouring rounds are independent. All rows of a framework run in one worker.
What its rows at a shape have in common in a round, less their medians, is the worker's pace. It
prints, for the rows whose rounds spread by 3% or more: how much rounds spread, how much the pace
does, how much of it is still there one and four rounds later, and by how much the two halves of a
shape's rounds differ, beside what they would if all rounds were independent. Spreads are standard
deviations, differences root mean squares, all over shapes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from lstm_bench.analysis import noise, results
from lstm_bench.analysis.comparison import compare
from lstm_bench.analysis.noise import Numbers
from lstm_bench.analysis.results import Run
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.units import percent, times
from lstm_bench.report.document import Table, number, text
from lstm_bench.report.run_report import shape_label

LEAST_SPREAD, FEWEST_ROUNDS, FEWEST_ROWS = 0.03, 16, 2


def baseline_for(precision: str, names: list[str]) -> str:
    best = "deepbench-best" if precision in ("fp32", "tf32") else "deepbench-fp16-best"
    return best if best in names else "deepbench"


def baseline(run: Run) -> Table:
    """Every framework row against the baseline of its precision."""
    precision = run.cells.drop_duplicates("implementation").set_index("implementation")["precision"]
    rows = []
    for name in run.implementations:
        if name.startswith("deepbench"):
            continue
        base = baseline_for(precision[name], run.implementations)
        pair = compare(run.cells, name, base, across=None)  # AMP against half precision, too
        slower = pair.shapes[pair.shapes["verdict"] == "slower"].to_dict("records")
        rows.append(
            {
                "row": name,
                "base": base,
                "shapes": len(pair.shapes),
                "mean": 1 / pair.group().ratio.value,
                "least": 1 / pair.shapes["ratio"].max(),
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
    return Table("speed", rows, columns)


def two_digits(value: float) -> str:
    return f"{value:.2f}"


def deviations(cells: pd.DataFrame) -> Numbers:
    """One line for every restless cell: how far each round is from its median."""
    logs = np.log(noise.by_round(list(cells["round_latency_s"])))
    away = logs - noise.row_median(logs)[:, None]
    restless = noise.MAD * noise.row_median(np.abs(away)) >= LEAST_SPREAD
    return np.asarray(away[restless & (np.isfinite(away).sum(axis=1) >= FEWEST_ROUNDS)])


def kept(pace: Numbers, rounds: int) -> float:
    """The correlation with what comes some rounds later."""
    away = pace - pace.mean()
    return float((away[:-rounds] * away[rounds:]).mean() / (away * away).mean())


def halves(pace: Numbers) -> tuple[float, float]:
    """The difference, and its standard deviation for independent rounds."""
    middle = len(pace) // 2
    expected = float(pace.std() * 2 / len(pace) ** 0.5)
    return float(pace[:middle].mean() - pace[middle:].mean()), expected


def about(framework: str, cells: pd.DataFrame) -> dict[str, object] | None:
    """A framework's figures over all shapes."""
    rows: list[float] = []
    paces: list[Numbers] = []
    for _, group in cells.groupby([*SHAPE, "group"]):
        away = deviations(group)
        if len(away) < FEWEST_ROWS:
            continue
        away = away[:, np.isfinite(away).all(axis=0)]  # rounds that all of them have
        if away.shape[1] >= FEWEST_ROUNDS:
            rows += list(away.std(axis=1))
            paces.append(away.mean(axis=0))
    if not paces:
        return None
    differ, expected = np.array([halves(pace) for pace in paces]).T
    return {
        "worker": framework,
        "shapes": len(paces),
        "rounds": int(np.median([len(pace) for pace in paces])),
        "row": float(np.mean(rows)),
        "pace": float(np.mean([pace.std() for pace in paces])),
        "next": float(np.mean([kept(pace, 1) for pace in paces])),
        "fourth": float(np.mean([kept(pace, 4) for pace in paces])),
        "halves": float(np.sqrt((differ**2).mean())),
        "alone": float(np.sqrt((expected**2).mean())),
    }


def pace(run: Run) -> Table:
    """How steady each worker is from round to round."""
    cells = run.cells[(run.cells["status"] == "ok") & (run.cells["copy"] == 1)]
    cells = cells[cells["latency_s"].notna()]
    worker = cells["implementation"].map({row.name: row.worker for row in run.plan.implementations})
    rows = [about(str(name), own) for name, own in cells.groupby(worker)]
    columns = (
        text("worker", "worker"),
        number("shapes", "shapes"),
        number("rounds", "rounds"),
        number("spread", "row", percent),
        number("of the pace", "pace", percent),
        number("next round", "next", two_digits),
        number("four later", "fourth", two_digits),
        number("halves differ", "halves", percent),
        number("if independent", "alone", percent),
    )
    return Table("pace", [row for row in rows if row], columns)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    questions = {"baseline": baseline, "pace": pace}
    parser.add_argument("question", choices=questions)
    parser.add_argument("run", type=Path, metavar="results/RUN")
    given = parser.parse_args()
    print(questions[given.question](results.load(given.run)).drawn())


if __name__ == "__main__":
    main()
