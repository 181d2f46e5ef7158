"""How much does the pace of calls depend on the core, and for how long does a core keep its pace?

    python experiments/core_pace.py ROW H,B,T OUT.npz
    python experiments/core_pace.py --table OUT.npz ...

The first, on a GPU, builds a row twice in one process and writes down when every call began, how
long it took and on which core: one build for 5 s without a pause; then both in turns, a block of
20 ms each, 40 times with 150 ms of sleep between; then one build 20 ms on every core in turn, three
times. The second prints for each file: the spread of the blocks after a sleep, and by how much the
second build, which follows at once, differs; what moments of one core that lie further and further
apart differ by; the time on each core. Spreads are 1.48 times the median deviation.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

BLOCK_S, PAUSE_S, PAUSES, TURNS = 0.02, 0.15, 40, 3
WINDOW_MS, LAGS_MS = 5, (5, 40, 320, 1280)
START, TOOK, CORE, TAG = range(4)

Calls = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


def measure(name: str, shape: str, path: Path) -> None:
    from lstm_bench.frameworks import IMPLEMENTATIONS
    from lstm_bench.model.types import Settings, Shape
    from lstm_bench.worker import problem
    from lstm_bench.worker.session import Session

    row, settings = IMPLEMENTATIONS[name], Settings(device="cuda", threads=1)
    module = importlib.import_module(f"lstm_bench.frameworks.{row.module}.session")
    module.describe(settings)
    hidden, batch, timesteps = map(int, shape.split(","))
    posed = problem.make(Shape(hidden, batch, timesteps, hidden), settings.seed)
    both: list[Session] = [module.build(posed, row, settings) for _ in range(2)]
    core, now = ctypes.CDLL(None).sched_getcpu, time.perf_counter_ns

    def calls(session: Session, seconds: float, tag: int = 0) -> list[tuple[int, ...]]:
        result: list[tuple[int, ...]] = []
        end = now() + round(seconds * 1e9)
        while not result or result[-1][START] < end:
            start = now()
            session.call()
            session.wait()
            result.append((start, now() - start, core(), tag))
        return result

    for session in both:
        calls(session, 1.0)
    steady = calls(both[0], 5.0)
    paused: list[tuple[int, ...]] = []
    placed: list[tuple[int, ...]] = []
    for number in range(PAUSES):
        time.sleep(PAUSE_S)
        for build, session in enumerate(both):
            paused += calls(session, BLOCK_S, 2 * number + build)
    everywhere = os.sched_getaffinity(0)
    for own in TURNS * sorted(everywhere):
        os.sched_setaffinity(0, {own})
        time.sleep(0.03)
        placed += calls(both[0], BLOCK_S, own)
    np.savez_compressed(path, continuous=steady, sleep=paused, cores=placed)


def spread(values: Numbers) -> float:
    from lstm_bench.analysis.noise import MAD  # with pandas, which an interpreter may lack

    return MAD * float(np.median(np.abs(values - np.median(values))))


def block_medians(calls: Calls) -> Numbers:
    """One for each stretch of calls with the same tag, in logarithms."""
    ends = np.flatnonzero(np.diff(calls[:, TAG])) + 1
    return np.array([np.median(np.log(block[:, TOOK])) for block in np.split(calls, ends)])


def over_time(calls: Calls) -> dict[int, float]:
    """The difference of moments, by the milliseconds between them."""
    window = (calls[:, START] - calls[0, START]) // (WINDOW_MS * 1_000_000)
    level = np.full(window[-1] + 1, np.nan)
    for number in np.unique(window):
        level[number] = np.median(np.log(calls[window == number, TOOK]))
    apart = {lag: level[lag // WINDOW_MS :] - level[: -(lag // WINDOW_MS)] for lag in LAGS_MS}
    return {lag: spread(result[np.isfinite(result)]) for lag, result in apart.items()}


def print_table(path: Path) -> None:
    held = np.load(path)
    first, second = block_medians(held["sleep"]).reshape(-1, 2).T
    lags = ", ".join(f"{lag} ms {own:.1%}" for lag, own in over_time(held["continuous"]).items())
    print(f"{path.stem}: {np.median(held['continuous'][:, TOOK]) / 1e3:.4g} us a call")
    print(f"  after a sleep {spread(first):.1%}; second build {spread(second - first):.1%}")
    print(f"  moments apart: {lags}")
    tags = held["cores"][:, TAG]
    order = tags[np.r_[0, np.flatnonzero(np.diff(tags)) + 1]]
    levels = block_medians(held["cores"])
    for core in np.unique(order):
        times = "  ".join(f"{np.exp(own) / 1e3:7.4g}" for own in levels[order == core])
        print(f"  core {core:3}  {times} us")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", nargs="?", metavar="ROW")
    parser.add_argument("shape", nargs="?", metavar="H,B,T")
    parser.add_argument("path", type=Path, nargs="?", metavar="OUT.npz")
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args()
    if options.path:
        measure(options.row, options.shape, options.path)
    elif not options.table:
        parser.error("ROW, H,B,T and OUT.npz, or --table and its files")
    for path in options.table or [options.path]:
        print_table(path)


if __name__ == "__main__":
    main()
