"""How often does the gate fail unchanged runs, and what does it find? Made-up pairs of runs.

    python experiments/gate_simulation.py [PAIRS] [--jobs CORES]

A made-up run has 48 shapes and three rows that are as noisy as those of shipped runs, each with an
A/A control in another process. From one run to the next a cell moves by 0.6 times what its rounds
vary by, and a whole row by 0.45 times that, as in shipped runs of one pass that were repeated. Of a
cell's variance half goes with its pass and half with its process; a row moves with the run. On a
quiet host rounds vary by 0.5%, 2% and 3% (results/cpu-neoverse) and 3% of them come late; on a
drifting one by 11%, in part for several rounds at a time (results/h200-paper). On a host with luck
every process tosses a coin at one shape in eight, and is 30% slower there if it loses
(experiments/process_luck.py). Each pair is judged as it is, then with a slowdown of one row, of one
shape of it, and with one output that is wrong.

Then one shape of a row takes twice the time. The gate is misled if it passes that, or calls it the
same: as it is; with a base that was disturbed by 100x there, in either process or both of one pass;
with the sides swapped, where only "same" misleads; and in turns in one run, as `grid --against`
measures it, by every name that says which side is the base. On two more hosts all processes toss,
and lie 1.5x apart, once without controls.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lstm_bench import frameworks as registry
from lstm_bench.analysis import noise
from lstm_bench.analysis.noise import Numbers
from lstm_bench.analysis.results import frame
from lstm_bench.features.gate import verdicts as gate
from lstm_bench.model.types import Record, Shape

SHAPES = 48
CELL_MOVES, ROW_MOVES = 0.6, 0.45  # from run to run, in what the rounds vary by
LATE, LATE_BY = 0.03, 0.2  # the share of rounds that come late, and by how much
KEEPS = 0.8  # of a drifting worker's pace is still there in the next round
TIMES_S = np.exp(np.linspace(np.log(5e-5), np.log(5e-2), SHAPES))
VICTIM = "b"  # the row in which something is planted


@dataclass(frozen=True)
class Host:
    """A host, by how its rounds vary."""

    name: str
    rounds: int
    noise: dict[str, float]  # by row
    planted: tuple[tuple[str, float], ...]  # at all shapes of a row or at one; by how much slower
    drifts: bool = False
    luck: float = 0.0  # how much slower a process is that loses
    passes: int = 1
    lucky: int = 8  # one shape in so many tosses
    controls: bool = True


CPU = {"a": 0.005, VICTIM: 0.02, "c": 0.03}
GPU = {"a": 0.01, VICTIM: 0.11, "c": 0.11}
HOSTS = (
    Host("quiet, 20 rounds", 20, CPU, (("row", 0.1), ("shape", 0.2))),
    Host("drifting, 50 rounds", 50, GPU, (("row", 0.1), ("row", 0.5)), drifts=True),
    Host("luck, 20 rounds", 20, CPU, (("row", 0.1), ("shape", 0.2)), luck=0.3),
    Host("luck, 4 passes", 20, CPU, (("row", 0.1), ("shape", 0.2)), luck=0.3, passes=4),
    Host("1.5x apart", 20, CPU, (("row", 1.0), ("shape", 1.0)), luck=0.5, lucky=1),
    Host("without controls", 20, CPU, (("row", 1.0),), luck=0.5, lucky=1, controls=False),
)


def run(rng: np.random.Generator, host: Host) -> pd.DataFrame:
    """One run: rows, their controls, and what moved them in this run; versions of a row alike."""
    rows: list[Record] = []
    moves: dict[str, float] = {}
    drifts: dict[tuple[str, int], tuple[list[float], list[Numbers]]] = {}
    for name, spread in host.noise.items():
        row_name = name.partition("~")[0]
        whole = moves.setdefault(row_name, rng.normal(0, ROW_MOVES * spread))
        for number, true_s in enumerate(TIMES_S):
            share = CELL_MOVES * spread / 2**0.5
            moved = [whole + rng.normal(0, share) for _ in range(host.passes)]
            paces = [_pace(rng, host, spread) for _ in range(host.passes)]
            moved, paces = drifts.setdefault((row_name, number), (moved, paces))
            for place in range(0, 2 * host.passes, 1 if host.controls else 2):
                process = rng.normal(0, share) + _luck(rng, host, number)
                own = rng.normal(0, spread / (2**0.5 if host.drifts else 1), host.rounds)
                late = rng.random(host.rounds) < LATE
                own += np.where(late, np.abs(rng.normal(0, LATE_BY, host.rounds)), 0.0)
                times = true_s * np.exp(moved[place // 2] + process + paces[place // 2] + own)
                at, shape = (1 + place // 2, 1 + place % 2), Shape(number + 1, 1, 1, 1)
                row = Record(name, shape, *at, "ok", device="cpu", process=place + 1)
                row.latency_s, row.round_latency_s = float(np.median(times)), list(times)
                row.group = f"{number} {at[0]}"
                rows.append(row)
    return frame(rows, {"cpu": "made up"})


def _luck(rng: np.random.Generator, host: Host, number: int) -> float:
    """The extra time of a process at a shape, for as long as it lives."""
    tosses = number % host.lucky == min(5, host.lucky - 1)
    return float(np.log1p(host.luck)) if tosses and rng.random() < 0.5 else 0.0


def _pace(rng: np.random.Generator, host: Host, spread: float) -> Numbers:
    """How much slower a drifting worker is in each round; the control beside it is, too."""
    if not host.drifts:
        return np.zeros(host.rounds)
    pace = rng.normal(0, spread / 2**0.5, host.rounds)
    for n in range(1, host.rounds):
        pace[n] = KEEPS * pace[n - 1] + (1 - KEEPS**2) ** 0.5 * pace[n]
    return np.asarray(pace)


def slower(
    cells: pd.DataFrame, share: float, hidden: int | None = None, row: str = VICTIM
) -> pd.DataFrame:
    """The same run with a row slower, everywhere or at one shape."""
    where = cells["implementation"] == row
    if hidden is not None:
        where &= cells["hidden"] == hidden
    return _longer(cells, np.where(where, 1 + share, 1.0))


def disturbed(rng: np.random.Generator, cells: pd.DataFrame, hidden: int) -> pd.DataFrame:
    """The same run, in which something took 99% of the time at one shape, in one pass."""
    where = (cells["implementation"] == VICTIM) & (cells["hidden"] == hidden)
    where &= cells["pass_number"] == rng.choice(cells["pass_number"].unique())
    where &= cells["copy"].isin([(1,), (2,), (1, 2)][rng.integers(3)])
    return _longer(cells, np.where(where, 100.0, 1.0))


def _longer(cells: pd.DataFrame, factors: Numbers) -> pd.DataFrame:
    rounds = [
        times if factor == 1 else [factor * time for time in times]
        for factor, times in zip(factors, cells["round_latency_s"], strict=True)
    ]
    return cells.assign(latency_s=cells["latency_s"] * factors, round_latency_s=rounds)


def wrong(cells: pd.DataFrame, hidden: int) -> pd.DataFrame:
    """The same run with one output that is wrong."""
    where = (cells["implementation"] == VICTIM) & (cells["hidden"] == hidden) & (cells["copy"] == 1)
    return cells.assign(status=cells["status"].mask(where, "wrong"))


def verdicts(pair: Sequence[pd.DataFrame], floors: Sequence[noise.Floors]) -> pd.DataFrame:
    """The gate's verdict of each row."""
    base, new = pair
    return gate.judge(base, new, {name: name for name in base["implementation"].unique()}, floors)


def failing(pair: Sequence[pd.DataFrame], floors: Sequence[noise.Floors]) -> pd.DataFrame:
    """The rows that the gate fails."""
    result = verdicts(pair, floors)
    return result[result["fails"]]


def in_turns(host: Host, rng: np.random.Generator) -> tuple[dict[str, str], pd.DataFrame]:
    """A run of a row in two versions, and which of them is the base of which."""
    name = f"{VICTIM}~{rng.choice([*registry.NEW_VERSIONS, *registry.BASE_VERSIONS])}"
    both = replace(host, noise={VICTIM: host.noise[VICTIM], name: host.noise[VICTIM]})
    return registry.bases(both.noise), run(rng, both)


def misled(
    host: Host,
    rng: np.random.Generator,
    pair: Sequence[pd.DataFrame],
    floors: Sequence[noise.Floors],
    at: int,
) -> dict[str, bool]:
    """Whether twice the time at one shape passes, or is called the same; and unchanged turns."""
    base, new = pair
    twice = slower(new, 1.0, at)
    names, turns = in_turns(host, rng)
    (late,) = names
    same = {VICTIM: VICTIM}

    def deceived(
        old: pd.DataFrame, new: pd.DataFrame | None, rows: Mapping[str, str], passes: bool = True
    ) -> bool:
        result = gate.judge(old, new, rows, floors)
        here = result.loc[result["shape"].str.startswith(f"{at},"), "verdict"]
        return bool((here == "same").any()) or (
            passes and not (result["fails"] | result["undecided"]).any()
        )

    unchanged = gate.judge(turns, None, names, floors)
    return {
        "misled, twice": deceived(base, twice, same),
        "misled, base disturbed": deceived(disturbed(rng, base, at), twice, same),
        "misled, sides swapped": deceived(twice, base, same, passes=False),
        "misled, in turns": deceived(slower(turns, 1.0, at, late), None, names),
        "unchanged in turns": bool(unchanged["fails"].any()),
        "not decided in turns": bool(unchanged["undecided"].any()),
    }


def judged(host: Host, number: int) -> dict[str, bool]:
    """Whether a pair of runs fails where nothing was planted, and where something was."""
    rng = np.random.default_rng(number)
    base, new = run(rng, host), run(rng, host)
    floors = [noise.floors(noise.controls(cells)) for cells in (base, new)]
    unchanged = verdicts((base, new), floors)
    result = {"unchanged": bool(unchanged["fails"].any())}
    result["not decided"] = bool(unchanged["undecided"].any())
    at = int(rng.integers(SHAPES)) + 1
    for what, share in host.planted:
        there = slower(new, share, at if what == "shape" else None)
        own = failing((base, there), floors)
        where = own["shape"].str.startswith(f"{at},") if what == "shape" else True
        result[f"{what} {share:.0%}"] = bool(((own["implementation"] == VICTIM) & where).any())
    words = failing((base, wrong(new, at)), floors)["verdict"]
    result["wrong"] = bool((words == "wrong").any())
    return {**result, **misled(host, rng, (base, new), floors, at)}


def simulated(host: Host, pairs: int, jobs: int = 1) -> dict[str, float]:
    """The share of pairs that fail."""
    judge_pair = functools.partial(judged, host)
    if jobs == 1:
        result = list(map(judge_pair, range(pairs)))
    else:
        with ProcessPoolExecutor(jobs) as pool:
            result = list(pool.map(judge_pair, range(pairs), chunksize=10))
    return {kind: sum(pair[kind] for pair in result) / pairs for kind in result[0]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=int, nargs="?", default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--host", help="only those with this in their name")
    given = parser.parse_args()
    pairs = given.pairs
    print(f"share of {pairs} pairs of runs that fail, of {SHAPES} shapes and 3 rows each")
    for host in (host for host in HOSTS if (given.host or "") in host.name):
        result = simulated(host, pairs, given.jobs)
        words = ", ".join(f"{kind} {share:.1%}" for kind, share in result.items())
        print(f"{host.name}: {words}", flush=True)


if __name__ == "__main__":
    main()
