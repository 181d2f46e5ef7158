"""Does the gate pass two runs of the same thing, and find one that is slower? Real runs of PyTorch.

    python experiments/gate_real.py [--runs 4] [--results FOLDER]

Measures `pytorch` and `pytorch-native`, which goes without oneDNN, at 12 shapes with one thread, as
often as asked: 3 passes each, some minutes a run. Runs that FOLDER has already are taken as they
are. One more run has `pytorch` twice, in turns, by the same interpreter. Then every two runs, and
those two rows, are judged in both directions, as they are and by single passes; and
`pytorch-native` against `pytorch`, in one run and in two.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from lstm_bench.analysis import noise, results
from lstm_bench.analysis.results import Run
from lstm_bench.features.gate.times import ALL
from lstm_bench.features.gate.verdicts import judge

GRID = """
hidden: [64, 128, 256]
batch: [1, 16]
timesteps: [10, 50]
threads: 1
implementations: [pytorch, pytorch-native]
controls: 2
passes: 3
sampling: {max_rounds: 15, warmup_cap_s: 1.0, cell_s: 1.0}
"""
WORDS = ("slower", "unsure", "same", "faster")
ROW, OTHER = "pytorch", "pytorch-native"


def measured(folder: Path, name: str, *flags: str) -> Run:
    """A run of the grid, unless it is there."""
    if not (folder / name / "manifest.json").exists():
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(GRID)
            file.flush()
            words = ["grid", file.name, "--run", name, "--results", str(folder), *flags]
            subprocess.run([sys.executable, "-m", "lstm_bench", *words], check=True)
    return results.load(folder / name)


def judged(base: pd.DataFrame, new: pd.DataFrame | None, rows: dict[str, str]) -> pd.DataFrame:
    floors = [noise.floors(noise.controls(side)) for side in (base, new) if side is not None]
    result = judge(base, new, rows, floors)
    return result[result["what"] == "time"]


def single(run: Run, number: int) -> pd.DataFrame:
    """One pass of a run, as if it were all."""
    return run.cells[run.cells["pass_number"] == number].assign(pass_number=1)


def show(what: str, verdicts: list[pd.DataFrame]) -> None:
    """How many comparisons fail, and what their cells are."""
    failed, open_ = (
        sum(bool(result[mark].any()) for result in verdicts) for mark in ("fails", "undecided")
    )
    cells = pd.concat([result.loc[result["shape"] != ALL, ["verdict"]] for result in verdicts])
    counts = cells["verdict"].value_counts()
    words = ", ".join(f"{counts.get(word, 0)} {word}" for word in WORDS)
    count = len(verdicts)
    print(f"{what}: {failed} of {count} fail, {open_} not decided; of {len(cells)} cells {words}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--results", type=Path, default=Path("results-gate"))
    given = parser.parse_args()
    runs = [measured(given.results, f"same-{n}") for n in range(1, given.runs + 1)]
    flags = "-i", ROW, "--against", f"{ROW}={sys.executable}"
    turns = measured(given.results, "turns", *flags)
    same = {ROW: ROW}
    pairs = list(itertools.permutations(runs, 2))
    show("the same in two runs", [judged(a.cells, b.cells, same) for a, b in pairs])
    passes = range(1, runs[0].plan.passes + 1)
    once = [
        judged(single(a, i), single(b, j), same)
        for a, b in pairs
        for i, j in itertools.product(passes, passes)
    ]
    show("the same in two runs of one pass", once)
    ways = {ROW: f"{ROW}~other"}, {f"{ROW}~other": ROW}
    show("the same in turns", [judged(turns.cells, None, way) for way in ways])
    once = [judged(single(turns, n), None, way) for way in ways for n in passes]
    show("the same in turns, one pass", once)
    other = {OTHER: ROW}
    show("without oneDNN, in turns", [judged(run.cells, None, other) for run in runs])
    show("without oneDNN, in two runs", [judged(a.cells, b.cells, other) for a, b in pairs])
    columns = ["shape", "base", "new", "ratio", "noise", "verdict"]
    print(judged(runs[0].cells, None, other)[columns].to_string(index=False))


if __name__ == "__main__":
    main()
