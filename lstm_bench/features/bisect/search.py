"""Find the first slower one of some versions: a search that asks for comparisons.

    ends     the last version against the first: at which shapes it is slower, and by how much
    middle   of what is left, against the first version, until two neighbours are left
    border   these two against each other, measured again

A version is slower if it has more than half of the slowdown between the ends, at the shapes where
the ends differ by more than the threshold, beyond the noise. What an interval leaves open is
measured again, and longer.

Pure: who measures is the caller's business, so that a search can be simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from lstm_bench.analysis.comparison import Comparison, Statistic
from lstm_bench.analysis.intervals import over_rounds
from lstm_bench.analysis.noise import in_lots, log_ratios
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import LstmBenchError

THRESHOLD = 0.07  # the least slowdown that is worth a search
ATTEMPTS = 3  # at a pair of versions, each longer than the one before

#: B against A, both by their names, in the so manieth attempt.
Measure = Callable[[str, str, int], Comparison]
Slowdown = Mapping[tuple[int, ...], float]  # by shape, the logarithm of last / first


@dataclass(frozen=True)
class Step:
    """Two versions against each other, at the shapes where the ends differ."""

    what: str  # ends, middle or border
    a: str
    b: str
    attempt: int
    shapes: int
    ratio: float  # B / A, geometric mean over these shapes
    ratio_low: float  # its 95% interval over rounds, never narrower than the noise floor
    ratio_high: float
    halfway: float  # above, B is slower
    verdict: str  # slower, not slower or unsure
    differs: tuple[str, ...] = ()  # fields of comparison.COMPARABLE in which the two differ


@dataclass(frozen=True)
class Bisection:
    """The result of a search: the border between `good` and `bad`, or none."""

    versions: tuple[str, ...]
    steps: tuple[Step, ...]
    good: str = ""  # the last that is not slower
    bad: str = ""  # the first that is

    @property
    def doubts(self) -> list[str]:
        """Why the border may be another; empty: every step was decided, and the border held."""
        border = self.steps[-1]
        if not self.bad:
            return ["the ends are not told apart"] if border.verdict == "unsure" else []
        last = {(step.what, step.b): step for step in self.steps}  # the last attempt of each
        doubts = [
            f"{step.b} lies between slower and not slower"
            for step in last.values()
            if step.what != "border" and step.verdict == "unsure"
        ]
        if border.verdict == "unsure":
            doubts.append(f"{self.bad} against {self.good}, measured again, decides nothing")
        if border.verdict == "not slower":
            doubts.append(
                f"{self.bad} against {self.good} has less than half of the slowdown: it came in"
                " several steps, or the machine changed meanwhile"
            )
        return doubts

    def frame(self) -> pd.DataFrame:
        """One row per measurement, in the order in which they were made."""
        return pd.DataFrame([asdict(step) for step in self.steps])


def search(versions: Sequence[str], measure: Measure, threshold: float = THRESHOLD) -> Bisection:
    """Find the first slower version; the oldest comes first in `versions`."""
    steps: list[Step] = []
    first, last = versions[0], versions[-1]
    for attempt in range(1, ATTEMPTS + 1):
        ends = measure(first, last, attempt)
        if ends.shapes.empty:
            raise LstmBenchError(f"{last} against {first}: no shape at which both have a time")
        slowdown = slowed(ends, threshold)
        if slowdown:
            steps.append(judged("ends", ends, first, last, attempt, slowdown))
            break
        may_be = (ends.shapes["verdict"] == "unsure") & (ends.shapes["ratio"] > 1 + threshold / 2)
        word = "unsure" if may_be.any() else "not slower"
        ratio, count = over_these_shapes(ends), len(ends.shapes)
        interval = ratio.value, ratio.low, ratio.high, np.nan
        steps.append(Step("ends", first, last, attempt, count, *interval, word, ends.differs))
        if word != "unsure":
            break
    if not slowdown:
        return Bisection(tuple(versions), tuple(steps))

    def slower(what: str, a: str, b: str) -> bool:
        for attempt in range(1, ATTEMPTS + 1):
            steps.append(judged(what, measure(a, b, attempt), a, b, attempt, slowdown))
            if steps[-1].verdict != "unsure":
                break
        return steps[-1].ratio > steps[-1].halfway  # as far as one can tell

    good, bad = 0, len(versions) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if slower("middle", first, versions[middle]):
            bad = middle
        else:
            good = middle
    slower("border", versions[good], versions[bad])
    return Bisection(tuple(versions), tuple(steps), versions[good], versions[bad])


def slowed(ends: Comparison, threshold: float) -> Slowdown:
    """The shapes at which B is slower by more than that, and the logarithm of by how much."""
    slower = (ends.shapes["verdict"] == "slower") & (ends.shapes["ratio"] > 1 + threshold)
    mine = ends.shapes[slower]
    return dict(zip(_keys(mine), np.log(mine["ratio"]), strict=True))


def judged(what: str, pair: Comparison, a: str, b: str, attempt: int, slowdown: Slowdown) -> Step:
    """Judge whether B has more than half of the slowdown over A."""
    part = pair.part(np.array([key in slowdown for key in _keys(pair.shapes)], dtype=bool))
    if part.shapes.empty:
        raise LstmBenchError(
            f"{b} against {a}: no time at any of the {len(slowdown)} shapes at which the last"
            " version is slower; leave that version out"
        )
    half = float(np.exp(np.mean([slowdown[key] for key in _keys(part.shapes)]) / 2))
    ratio, word = over_these_shapes(part), "unsure"
    if ratio.low > half or ratio.high < half:
        word = "slower" if ratio.value > half else "not slower"
    interval = ratio.value, ratio.low, ratio.high, half
    return Step(what, a, b, attempt, len(part.shapes), *interval, word, pair.differs)


def over_these_shapes(pair: Comparison) -> Statistic:
    """B / A over just these shapes, however many: other shapes are not asked about."""
    logs = np.log(pair.shapes["ratio"].to_numpy())
    least = np.log1p(pair.shapes["floor"].to_numpy()).mean() / len(logs) ** 0.5
    lots = in_lots(log_ratios(pair.a_rounds, pair.b_rounds))
    ends = (float(logs.mean()), *over_rounds(logs, lots, least))
    return Statistic(*map(float, np.exp(ends)))


def _keys(shapes: pd.DataFrame) -> list[tuple[int, ...]]:
    return list(map(tuple, shapes[SHAPE].to_numpy().tolist()))
