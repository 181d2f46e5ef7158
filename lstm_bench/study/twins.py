"""Two rows at the same shapes, as profiled: what the GPU takes of a call, and what the host."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lstm_bench.model import Shape
from lstm_bench.split import Split
from lstm_bench.study import rules
from lstm_bench.study.subject import Subject, shapes_of
from lstm_bench.units import percent, seconds, times
from lstm_bench.words import Pair, versus

MOVES = ("cast", "repack", "copy", "fill")  # families that compute nothing
STEPWISE = "step by step in both"
Measure = Callable[..., float]  # of a cell, and of families where these matter


@dataclass(frozen=True)
class Twins:
    """Profiled cells of A and of B, each two at one shape."""

    cells: list[tuple[Split, Split]]

    def at(self, axis: str, value: int) -> Twins:
        return Twins([two for two in self.cells if getattr(two[0].shape, axis) == value])

    def values(self, axis: str) -> list[int]:
        return sorted({getattr(a.shape, axis) for a, _ in self.cells})

    def by_algorithm(self, a: str, b: str) -> dict[str, Twins]:
        """By who runs the whole recurrence in one kernel; only what there is."""
        kinds = {
            "one kernel in both": (True, True),
            f"one kernel in {a} only": (True, False),
            f"one kernel in {b} only": (False, True),
            STEPWISE: (False, False),
        }
        found = {
            name: Twins([(x, y) for x, y in self.cells if (x.in_one, y.in_one) == kind])
            for name, kind in kinds.items()
        }
        return {name: twins for name, twins in found.items() if twins.cells}

    @property
    def shapes(self) -> set[Shape]:
        return {a.shape for a, _ in self.cells}

    @property
    def busy(self) -> float:
        """Geometric mean of B's GPU time over A's."""
        return geometric(b.busy_s / a.busy_s for a, b in self.cells)

    def more(self, of: Measure, *families: str) -> float:
        """By how much B has more of something, in the median."""
        return statistics.median(of(b, *families) - of(a, *families) for a, b in self.cells)

    @property
    def idle(self) -> tuple[str, str]:
        """Mean shares of the latency in which the GPU does nothing, of A and of B."""
        sides = zip(*self.cells, strict=True)
        first, second = (percent(statistics.fmean(c.idle for c in side), 0) for side in sides)
        return first, second

    def explains(self, of: Measure, *families: str) -> float:
        """The share of what B takes longer that something makes up, in the median."""
        shares = [
            (of(b, *families) - of(a, *families)) / (b.latency_s - a.latency_s)
            for a, b in self.cells
            if b.latency_s > a.latency_s
        ]
        return statistics.median(shares) if shares else math.nan


def of_rows(one: Subject, a: str, b: str) -> Twins:
    """At the shapes at which both are profiled."""
    found = {(cell.name, cell.shape): cell for cell in one.profiled(a, b)}
    return Twins([(cell, found[b, shape]) for (name, shape), cell in found.items() if name == a])


def over(pair: Pair, shapes: Collection[Shape]) -> Pair:
    """The same comparison over some of its shapes."""
    return some(pair, np.array([shape in shapes for shape in shapes_of(pair.of)], dtype=bool))


def between(pair: Pair, axis: str, low: int, high: int) -> Pair:
    """The shapes from one size of an axis to another."""
    sizes = pair.of.shapes[axis].to_numpy()
    return some(pair, (sizes >= low) & (sizes <= high))


def some(pair: Pair, rows: npt.NDArray[np.bool_]) -> Pair:
    of = pair.of.part(rows)
    return Pair(of, of.group())


def busy(cell: Split) -> float:
    return cell.busy_s


def host(cell: Split) -> float:
    """What is left of the latency: the GPU waits."""
    return cell.latency_s - cell.busy_s


def host_per_kernel(cell: Split) -> float:
    """Never nothing, or it would have no logarithm."""
    return max(host(cell), 1e-9) / max(kernels(cell), 1.0)


def kernels(cell: Split) -> float:
    return cell.profile.kernels


def moved(cell: Split, *families: str) -> float:
    """GPU time of these families, or of all that compute nothing."""
    return sum(cell.by_family.get(name, 0.0) for name in families or MOVES)


def geometric(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def factor(pair: Pair, axis: str = "all", value: int = 0, faster: bool = False) -> str:
    """B's latency over A's, or A's over B's; in brackets where it is not clear."""
    own = pair if axis == "all" else between(pair, axis, value, value)
    if not own.whole.shapes:
        return "-"
    ratio = own.whole.ratio.value
    shown = times(1 / ratio if faster else ratio)
    return shown if own.clear else f"({shown})"


def outcome(pair: Pair) -> str:
    """`2.7x slower`, how many shapes go each way, or that there is no clear difference."""
    if goes_both_ways(pair):
        return f"{ways(pair)} shapes"
    return versus(pair.whole, pair.floor, interval=False)


def goes_both_ways(pair: Pair) -> bool:
    """Whether there is no one thing to say of all shapes, but much of single ones."""
    return not pair.clear and rules.both_ways(pair.whole)


def ways(pair: Pair) -> str:
    words = pair.whole.verdicts
    return f"faster at {words['faster']}, slower at {words['slower']} of {pair.whole.shapes}"


def why(twins: Twins, pair: Pair) -> str:
    """What B saves or adds on the GPU and on the host, and what comes of it."""
    gpu_s, host_s = twins.more(busy), twins.more(host)
    first, second = twins.idle
    word = "but" if gpu_s * host_s < 0 and abs(host_s) > abs(gpu_s) else "and"
    return (
        f"{_changed(gpu_s)} of GPU time a call ({times(twins.busy)}), {word} the host"
        f" {_changed(host_s)} (the GPU idles {first} of a call before, {second} after):"
        f" {outcome(over(pair, twins.shapes))}"
    )


def _changed(value_s: float) -> str:
    return f"{'adds' if value_s > 0 else 'saves'} {seconds(abs(value_s))}"
