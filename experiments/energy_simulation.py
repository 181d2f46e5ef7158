"""How well does energy per call repeat? Made-up energy counters that behave like an H200's.

    python experiments/energy_simulation.py [MEASUREMENTS]

The counter moves every 100 ms, give or take 22; a read takes 4 ms. Two cases, since what a counter
that moves late has counted is not documented: "late" counts up to the regular moment and shows it
late, "true" counts up to the moment at which it moves. A load draws 455 W, an idle GPU 125 W, with
calls of 4.42 ms. Prints how far apart two measurements of the same load are, for each length of the
window, and the spread of three ways to make power of ticks.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Sequence

from lstm_bench.driver.gpu import Gauge
from lstm_bench.features.energy import measure as energy
from lstm_bench.features.energy.measure import POLL_S, Loaded, Tick, Ticks
from lstm_bench.model.types import LEAD_S, Energy

PERIOD_S, JITTER_S, READ_S = 0.1, 0.022, 0.004
LOAD_W, IDLE_W, CALL_S = 455.0, 125.0, 0.00442
WINDOWS = (0.25, 0.35, 0.5, 0.8, 1.0)


class Counter(Gauge):
    """The energy counter of a GPU whose time passes as it is read."""

    def __init__(self, rng: random.Random, late: bool):
        super().__init__()
        self.rng, self.late, self.now_s = rng, late, 0.0
        self.load: tuple[float, float] = (0.0, 0.0)
        self.regular_s = -rng.uniform(0, PERIOD_S)
        self.shown_j, self.next_s = 0.0, 0.0
        self._plan()

    def _plan(self) -> None:
        self.regular_s += PERIOD_S
        half = JITTER_S / 2  # two of them lie between two ticks
        self.next_s = self.regular_s + self.rng.uniform(-half, half)

    def drawn_j(self, until_s: float) -> float:
        start, end = self.load
        loaded = max(0.0, min(until_s, end) - start)
        return 1e6 + IDLE_W * until_s + (LOAD_W - IDLE_W) * loaded

    def ask(self, what: str, *names: str, args: tuple[int, ...] = ()) -> int:
        """Give the energy counter, in millijoules."""
        self.now_s += READ_S / 2
        while self.next_s <= self.now_s:
            self.shown_j = self.drawn_j(self.regular_s if self.late else self.next_s)
            self._plan()
        self.now_s += READ_S / 2
        return round(1000 * self.shown_j)

    def run_load(self, ticks: Ticks, seconds: float) -> Loaded:
        calls = math.ceil(seconds / CALL_S)
        self.load = (self.now_s, self.now_s + calls * CALL_S)
        while self.now_s < self.load[1]:
            ticks.read()
            self.now_s += POLL_S
        return Loaded(calls, calls * CALL_S)


class PolledTicks(Ticks):
    """A counter that is read without a thread."""

    def __enter__(self) -> Ticks:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def measured(rng: random.Random, window_s: float, late: bool) -> tuple[Energy, list[Tick]]:
    """One measurement, and the ticks that it rests on."""
    counter = Counter(rng, late)
    ticks = PolledTicks(counter, lambda: counter.now_s)
    for _ in range(rng.randrange(50)):  # the load starts anywhere between two ticks
        ticks.read()
    result = energy.measure(
        counter,
        lambda seconds: counter.run_load(ticks, seconds),
        idle_w=IDLE_W,
        window_s=window_s,
        watching=lambda _: ticks,
    )
    return result, energy.inside(ticks.ticks, *counter.load)


def by_ends(ticks: Sequence[Tick]) -> float:
    return (ticks[-1].energy_j - ticks[0].energy_j) / (ticks[-1].at_s - ticks[0].at_s)


def energy_by_time(ticks: Sequence[Tick]) -> float:
    at = [tick.at_s for tick in ticks]
    return statistics.linear_regression(at, [tick.energy_j for tick in ticks]).slope


WAYS: dict[str, Callable[[Sequence[Tick]], float]] = {
    "ends": by_ends,
    "energy by time": energy_by_time,
    "time by energy": energy.power,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measurements", type=int, nargs="?", default=4000)
    count = parser.parse_args().measurements
    for late in (True, False):
        print(f"\ncounter: {'late' if late else 'true'}")
        print("window  load   measured  twice: median    95%    99%  within 5%  off", end="")
        print("".join(f"  {way:>14}" for way in WAYS))
        for window_s in WINDOWS:
            rng = random.Random(f"{late} {window_s}")
            result = [measured(rng, window_s, late) for _ in range(2 * count)]
            known = [(e, ticks) for e, ticks in result if e.power_w is not None]
            joules = [j for e, _ in known if (j := e.gross_j(CALL_S)) is not None]
            apart = sorted(abs(a / b - 1) for a, b in zip(joules[::2], joules[1::2], strict=False))
            off = statistics.median(joules) / (LOAD_W * CALL_S) - 1
            print(
                f"{window_s:4.2f} s  {window_s + LEAD_S:.2f} s  {len(known) / len(result):7.1%}"
                f"  {apart[len(apart) // 2]:13.1%}  {apart[len(apart) * 95 // 100]:5.1%}"
                f"  {apart[len(apart) * 99 // 100]:5.1%}"
                f"  {sum(a <= 0.05 for a in apart) / len(apart):9.1%}  {off:+.1%}",
                end="",
            )
            for way in WAYS.values():
                watts = [way(ticks) for _, ticks in known]
                print(f"  {statistics.pstdev(watts) / statistics.fmean(watts):14.2%}", end="")
            print()


if __name__ == "__main__":
    main()
