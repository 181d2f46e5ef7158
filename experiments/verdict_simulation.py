"""Are verdicts and intervals as sure as they say? Made-up runs whose truth is known.

    python experiments/verdict_simulation.py [RUNS]

A made-up run has 24 shapes, 10 rounds and an A/A control at every shape. Every round is off by
about 1%, and every process by about 0.5% for as long as it lives, which no number of rounds
averages out. In "rough" runs 3% of the rounds come out up to 40% late besides. In "drifting" runs,
of 10 to 100 rounds, a worker goes faster or slower by 11%, in part for several rounds, as those do
that wait for the host of a GPU; the control shares its worker, what it is compared with does not.
Prints how often the verdict calls two equal things different, how often it finds a true difference,
and how often the 95% intervals hold the truth. Last: what floors of their own do for
implementations of unlike noise.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np

from lstm_bench.analysis import noise
from lstm_bench.analysis.comparison import Comparison, compare
from lstm_bench.analysis.intervals import FEWEST_SHAPES, over_shapes
from lstm_bench.analysis.noise import Numbers
from lstm_bench.analysis.results import frame
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import Record, Shape

SHAPES, ROUNDS = 24, 10
ROUND_NOISE, PROCESS_NOISE, LATE_NOISE = 0.01, 0.005, 0.2
KEEPS = 0.8  # of what stays of a worker's pace is still there in the next round


@dataclass(frozen=True)
class Machine:
    """The disturbances of a run's rounds."""

    process_noise: float = PROCESS_NOISE
    late: float = 0.0  # the share of rounds that come far too late
    drift: float = 0.0  # of a worker's pace
    rounds: int = ROUNDS
    difference: float = 0.05  # that shall be found


QUIET, ROUGH = Machine(), Machine(late=0.03)
DRIFTING = Machine(drift=0.11, difference=0.2)


def pace(rng: np.random.Generator, machine: Machine, count: int) -> Numbers:
    """How much slower a worker is in each round: half of the variance stays for some of them."""
    if not machine.drift:
        return np.zeros(count)
    stays, moves = rng.normal(0, machine.drift / 2**0.5, (2, count))
    for n in range(1, count):
        stays[n] = KEEPS * stays[n - 1] + (1 - KEEPS**2) ** 0.5 * stays[n]
    return np.asarray(stays + moves)


def measured(rng: np.random.Generator, true_s: float, machine: Machine, count: int) -> Numbers:
    """One cell's rounds on a worker without a pace."""
    offset = rng.normal(0, machine.process_noise)
    rounds = rng.normal(0, ROUND_NOISE, count)
    late = rng.random(count) < machine.late
    rounds[late] += np.abs(rng.normal(0, LATE_NOISE, late.sum()))
    return np.asarray(true_s * np.exp(offset + rounds))


def simulated(
    rng: np.random.Generator,
    shapes: int,
    effect: float | Numbers,
    spread: float,
    machine: Machine,
) -> tuple[Comparison, Numbers]:
    """A comparison of B with A, and the true logarithm of B / A at every shape."""
    truth = rng.normal(effect, spread, shapes)
    rows = []
    for number in range(shapes):
        true_s = float(np.exp(rng.uniform(np.log(1e-3), np.log(1e-1))))
        sizes = Shape(number + 1, 1, 1, number + 1)
        cells = (("a", 1, 0.0), ("a", 2, 0.0), ("b", 1, truth[number]))
        slower = {name: np.exp(pace(rng, machine, machine.rounds)) for name in "ab"}
        for name, copy, more in cells:
            own = measured(rng, true_s * np.exp(more), machine, machine.rounds)
            times = list(slower[name] * own)
            row = Record(name, sizes, 1, copy, "ok", latency_s=float(np.median(times)))
            row.round_latency_s, row.group = times, str(number)
            rows.append(row)
    result = compare(frame(rows, {}), "a", "b")
    order = result.shapes[SHAPE[0]].to_numpy() - 1
    return result, truth[order]


def equal_things(rng: np.random.Generator, runs: int, machine: Machine, name: str) -> None:
    called = total = any_in_run = controls = 0
    for _ in range(runs):
        result, _ = simulated(rng, SHAPES, 0.0, 0.0, machine)
        different = int(result.shapes["verdict"].isin(("faster", "slower")).sum())
        called, total, any_in_run = called + different, total + SHAPES, any_in_run + (different > 0)
        controls += sum(n.called_different for n in result.noise[0])
    print(f"equal things, {name}, {runs} runs of {SHAPES} shapes:")
    print(f"  called different: {called / total:.2%} of shapes, in {any_in_run / runs:.1%} of runs")
    print(f"  A/A pairs called different by the floor of the others: {controls / total:.2%}")


def true_differences(rng: np.random.Generator, runs: int, machine: Machine, name: str) -> None:
    right = wrong = total = 0
    for number in range(runs):
        effect = np.log1p(machine.difference) * (1 if number % 2 else -1)
        result, _ = simulated(rng, SHAPES, effect, 0.0, machine)
        words = result.shapes["verdict"]
        right += int((words == ("slower" if effect > 0 else "faster")).sum())
        wrong += int((words == ("faster" if effect > 0 else "slower")).sum())
        total += SHAPES
    size = f"{machine.difference:.0%}"
    print(f"true differences of {size}, {name}, {runs} runs of {SHAPES} shapes:")
    print(f"  found: {right / total:.2%}, called the wrong way: {wrong / total:.2%}")


def mixed_grids(rng: np.random.Generator, runs: int) -> None:
    """Half of the shapes equal, half twice as slow, and few rounds: `--fast`."""
    detected = false = 0
    for _ in range(runs):
        effects = np.where(np.arange(SHAPES) % 2, np.log(2.0), 0.0)
        pair, truth = simulated(rng, SHAPES, effects, 0.0, Machine(rounds=5))
        words = pair.shapes["verdict"].to_numpy()
        detected += int((words[truth > 0] == "slower").sum())
        false += int(np.isin(words[truth == 0], ("faster", "slower")).sum())
    half = runs * SHAPES // 2
    print(f"half of the shapes 2x slower, 5 rounds, {runs} runs of {SHAPES} shapes:")
    print(f"  found: {detected / half:.2%}; equal ones called different: {false / half:.2%}")


def intervals(rng: np.random.Generator, runs: int) -> None:
    print(f"95% intervals that hold the truth, {runs} runs each:")
    print("  shapes  spread over shapes      MPE    ratio")
    for shapes, spread in (
        *((1, 0.0), (2, 0.3), (3, 0.3), (4, 0.3), (7, 0.3)),
        *((12, 0.0), (12, 0.3), (48, 0.05), (48, 0.5)),
    ):
        held = np.zeros(2)
        few = shapes < FEWEST_SHAPES
        for _ in range(runs):
            result, truth = simulated(rng, SHAPES if few else shapes, 0.3, spread, QUIET)
            # few shapes are a part of a run, and the interval speaks of just these
            group = result.group("hidden", (1, shapes)) if few else result.group()
            part = truth[:shapes]
            mpe = (1 - np.exp(part)).mean() if few else 1 - np.exp(0.3 + spread**2 / 2)
            ratio = np.exp(part.mean() if few else 0.3)
            for place, (statistic, true) in enumerate(((group.mpe, mpe), (group.ratio, ratio))):
                held[place] += statistic.low <= true <= statistic.high
        print(f"  {shapes:6d}  {spread:18.0%}  {held[0] / runs:7.1%}  {held[1] / runs:7.1%}")


def two_groups(rng: np.random.Generator, runs: int) -> None:
    """A quarter of all shapes takes 8 times as long, as where an algorithm changes."""
    print(f"95% intervals of the ratio where shapes fall into two groups, {runs} runs each:")
    print("  shapes    holds  truth above it  below it  its ends, medians (truth 1.68)")
    for shapes in (12, 24, 48):
        above = below = 0
        ends = []
        for _ in range(runs):
            logs = np.log(8) * (rng.random(shapes) < 0.25) + rng.normal(0, 0.1, shapes)
            low, high = np.exp(over_shapes(logs))
            above += high < 8**0.25
            below += low > 8**0.25
            ends.append((low, high))
        low, high = np.median(ends, axis=0)
        holds = 1 - (above + below) / runs
        sides = f"{above / runs:14.1%}  {below / runs:8.1%}"
        print(f"  {shapes:6d}  {holds:7.1%}  {sides}  {low:.2f} to {high:.2f}")


def unlike_noise(rng: np.random.Generator, runs: int) -> None:
    """Two implementations whose processes differ by 1%, two by 12%, all equal but for one of 8%."""
    noise_of = {"calm": 0.01, "calm, 8% slower": 0.01, "restless": 0.12, "restless too": 0.12}
    names, shapes = list(noise_of), 30
    pairs = (names[2:], names[:2])
    called = {own: np.zeros(2) for own in (True, False)}
    for _ in range(runs):
        rows = []
        for number in range(shapes):
            sizes = Shape(number + 1, 1, 1, number + 1)
            doubled = {names[2 * number % 4], names[(2 * number + 1) % 4]}
            for name, process_noise in noise_of.items():
                true_s = 0.01 * (1.08 if "slower" in name else 1.0)
                for copy in (1, 2) if name in doubled else (1,):
                    times = list(measured(rng, true_s, Machine(process_noise), ROUNDS))
                    row = Record(name, sizes, 1, copy, "ok", latency_s=float(np.median(times)))
                    row.round_latency_s, row.group = times, str(number)
                    rows.append(row)
        cells = frame(rows, {})
        floors = noise.floors(noise.controls(cells))
        for own, told in called.items():
            used = floors if own else noise.Floors(floors.classes)
            for place, (a, b) in enumerate(pairs):
                words = compare(cells, a, b, floors=[used]).shapes["verdict"]
                told[place] += words.isin(("faster", "slower")).mean() / runs
    print(f"implementations of unlike noise, {runs} runs of {shapes} shapes:")
    for own, (false, detected) in called.items():
        floor = "floors of their own" if own else "one floor for all"
        print(
            f"  {floor}: equal restless ones called different {false:.1%}, 8% found {detected:.1%}"
        )


def held(rng: np.random.Generator, runs: int, machine: Machine) -> tuple[float, float]:
    """How often the interval of a ratio holds the truth: at one shape of a run, and over all."""
    at_shape = whole = 0
    for _ in range(runs):
        result, truth = simulated(rng, SHAPES, 0.3, 0.0, machine)
        true = float(np.exp(truth[0]))
        at_one, over_all = result.group("hidden", (1, 1)).ratio, result.group().ratio
        at_shape += at_one.low <= true <= at_one.high
        whole += over_all.low <= true <= over_all.high
    return at_shape / runs, whole / runs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=int, nargs="?", default=1000)
    runs = parser.parse_args().runs
    rng = np.random.default_rng(1)
    for machine, name in ((QUIET, "quiet"), (ROUGH, "rough")):
        equal_things(rng, runs, machine, name)
        true_differences(rng, runs, machine, name)
    mixed_grids(rng, runs)
    intervals(rng, runs)
    for rounds in (10, 20, 30, 50, 100):
        machine = replace(DRIFTING, rounds=rounds)
        rng = np.random.default_rng(2)
        equal_things(rng, runs, machine, f"drifting, {rounds} rounds")
        true_differences(rng, runs, machine, f"drifting, {rounds} rounds")
        at_shape, whole = held(rng, runs, machine)
        print(f"95% intervals that hold the truth: {at_shape:.1%} of one shape, {whole:.1%} of all")
    two_groups(np.random.default_rng(3), runs)
    unlike_noise(np.random.default_rng(2), runs)


if __name__ == "__main__":
    main()
