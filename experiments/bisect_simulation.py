"""Count how often `lstm-bench bisect` finds a slowdown in made-up times, planted or not.

python experiments/bisect_simulation.py [--trials 50] [--versions 16] [--slowdown 0.1]
        [--noise 0.02]

Every round of every cell is off by NOISE (standard deviation, relative); the judge is the one that
`bisect` uses, with comparisons, verdicts and noise floors as of any run.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter

from lstm_bench.analysis import comparison, results
from lstm_bench.features.bisect.search import Bisection, search
from lstm_bench.model.types import Record, Shape

ROUNDS = 10
SHAPES = {64: 2e-4, 128: 5e-4, 256: 2e-3}  # hidden size and what a call takes


def trial(
    rng: random.Random, versions: int, first: int, slowdown: float, noise: float
) -> Bisection:
    """A search among versions of which all from number `first` on are slower."""
    names = [f"v{number}" for number in range(versions)]

    def measure(a: str, b: str, attempt: int) -> comparison.Comparison:
        cells = [
            made_up(rng, name, hidden, call_s * factor, number, copy, noise)
            for number in range(1, 2 ** (attempt - 1) + 1)
            for hidden, call_s in SHAPES.items()
            for name in (a, b)
            for factor in [1 + slowdown * (names.index(name) >= first)]
            for copy in (1, 2)
        ]
        return comparison.compare(results.frame(cells, {}), a, b)

    return search(names, measure)


def made_up(
    rng: random.Random, name: str, hidden: int, call_s: float, number: int, copy: int, noise: float
) -> Record:
    rounds = [call_s * rng.gauss(1, noise) for _ in range(ROUNDS)]
    return Record(
        name,
        Shape(hidden, 1, 10, hidden),
        pass_number=number,
        copy=copy,
        status="ok",
        device="cpu",
        precision="fp32",
        latency_s=sorted(rounds)[ROUNDS // 2],
        round_latency_s=rounds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--versions", type=int, default=16)
    parser.add_argument("--slowdown", type=float, default=0.1)
    parser.add_argument("--noise", type=float, default=0.02)
    given = parser.parse_args()
    for slowdown in (given.slowdown, 0.0):
        rng, outcomes, measured = random.Random(1), Counter[str](), 0
        for _ in range(given.trials):
            first = rng.randrange(1, given.versions)
            result = trial(rng, given.versions, first, slowdown, given.noise)
            measured += len(result.steps)
            right = result.bad == (f"v{first}" if slowdown else "")
            outcomes[f"{'right' if right else 'wrong'}, {'not ' * bool(result.doubts)}sure"] += 1
        what = f"{slowdown:.0%} slower from one of {given.versions} versions on, noise"
        words = ", ".join(f"{outcome}: {count}" for outcome, count in sorted(outcomes.items()))
        mean = measured / given.trials
        print(f"{what} {given.noise:.0%}, {given.trials} trials: {words}; {mean:.1f} measurements")


if __name__ == "__main__":
    main()
