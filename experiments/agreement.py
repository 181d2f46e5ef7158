"""How many A/A pairs agree to 1%, and what would make it more?

    python experiments/agreement.py results/RUN

First, for pairs whose calls take 100 us or more: how many agree, by how the time of a cell is read
off its rounds. The last two compare round with round, as verdicts do. Then: how many may be
expected to agree after more rounds, if rounds were independent and spread as these do. Last: how
much of the timed seconds cells had after no other cell of their shape was near, which means within
1.5 times both intervals or within 10%; A/A pairs count as near.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench.analysis import noise, results
from lstm_bench.analysis.noise import Numbers
from lstm_bench.model.median import median_interval
from lstm_bench.model.units import percent
from lstm_bench.report.document import Table, number, text

SHORTEST_S, CLOSE = 1e-4, 0.01
MORE = (1, 2, 4, 8, 16)
FIRST_ROUNDS, INTERVALS, APART = 10, 1.5, 0.10


def trimmed(ratios: Numbers, share: float) -> float:
    """The mean without this share of the lowest and of the highest."""
    inner = np.sort(ratios)
    cut = int(share * len(inner))
    return float(inner[cut : len(inner) - cut].mean())


def differences(first: Numbers, second: Numbers) -> dict[str, float]:
    """The difference of one pair, in logarithms, by how it is read."""
    result: dict[str, Any] = {"median of the rounds": np.median(second) - np.median(first)}
    for share in (0.05, 0.10, 0.25):
        name = f"{percent(share)} quantile of the rounds"
        result[name] = np.quantile(second, share) - np.quantile(first, share)
    result["fastest round"] = second.min() - first.min()
    result["round by round, median"] = np.median(second - first)
    result["round by round, trimmed mean"] = trimmed(second - first, 0.35)
    return {name: abs(float(value)) for name, value in result.items()}


def spread(ratios: Numbers) -> float:
    """A standard deviation that a few bad rounds do not move."""
    return noise.MAD * float(np.median(np.abs(ratios - np.median(ratios))))


def expected(spread: float, rounds: float) -> float:
    """How likely the median of so many differences is within 1%, if the truth is none."""
    error = math.sqrt(math.pi / 2) * spread / math.sqrt(rounds)
    return math.erf(CLOSE / max(error, 1e-12) / math.sqrt(2))


def pairs_of(cells: pd.DataFrame) -> list[tuple[Numbers, Numbers]]:
    """Both sides of every pair, round by round, in logarithms."""
    both = noise.controls(cells)
    long = both.time_s >= SHORTEST_S
    known = np.isfinite(both.first) & np.isfinite(both.second)
    sides = zip(both.first[long], both.second[long], known[long], strict=True)
    return [(np.log(first[own]), np.log(second[own])) for first, second, own in sides]


def spent_in_vain(cells: pd.DataFrame) -> float:
    """The share of the timed seconds after no other cell of the shape was near."""
    vain = 0.0
    for _, shape in cells.groupby(["group", "pass_number"]):
        doubled = set(shape.loc[shape["copy"] > 1, "implementation"])
        for at, cell in shape.iterrows():
            rounds = len(cell["round_latency_s"])
            if cell["implementation"] in doubled or rounds <= FIRST_ROUNDS:
                continue
            others = shape.drop(index=at)["round_latency_s"]
            for used in range(FIRST_ROUNDS, rounds):
                if all(apart(cell["round_latency_s"][:used], other[:used]) for other in others):
                    vain += cell["timed_s"] * (rounds - used) / rounds
                    break
    return float(vain / cells["timed_s"].sum())


def apart(first: list[float], second: list[float]) -> bool:
    (low, high), (second_low, second_high) = median_interval(first), median_interval(second)
    width = math.log(high / low) + math.log(second_high / second_low)
    gap = abs(math.log(np.median(first) / np.median(second)))
    return gap > max(INTERVALS * width, APART)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="results/RUN")
    run = parser.parse_args().run
    cells = results.load(run).cells
    cells = cells[(cells["status"] == "ok") & cells["latency_s"].notna()]
    pairs = pairs_of(cells)
    if not pairs:
        raise SystemExit(f"{run}: no A/A pair of calls over 100 us")
    tensorflow = pairs_of(cells[cells["implementation"].str.startswith("tf-")])
    every, theirs = (
        pd.DataFrame([differences(*pair) for pair in own]) < CLOSE for own in (pairs, tensorflow)
    )
    result = [
        {
            "read": name,
            "all": every[name].sum(),
            "tensorflow": theirs[name].sum() if len(theirs) else 0,
        }
        for name in every
    ]
    columns = (
        text("a cell's time", "read"),
        number(f"agree, of {len(pairs)}", "all"),
        number(f"of TensorFlow's {len(tensorflow)}", "tensorflow"),
    )
    print(Table("agreement", result, columns).drawn())
    spreads = [spread(second - first) for first, second in pairs]
    rounds = [len(first) for first, _ in pairs]
    later = [
        {
            "rounds": f"{times}x",
            "share": np.mean([*map(expected, spreads, np.multiply(rounds, times))]),
        }
        for times in MORE
    ]
    shares = (text("rounds", "rounds"), number("expected to agree", "share", percent))
    print(Table("more", later, shares).drawn())
    print(f"after no other cell was near: {percent(spent_in_vain(cells))} of the timed seconds")


if __name__ == "__main__":
    main()
