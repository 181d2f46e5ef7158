"""Does the host keep a steadier pace when a process stays on some cores?

    python experiments/pinning.py SECONDS H,B,T ROW ... > blocks.jsonl
    python experiments/pinning.py --table results/h200-pinning-*.jsonl.gz

The first measures rows that one interpreter has, on a GPU, in one process: in blocks that take
turns over the rows and over where the process may run: `free`; all of its threads on four cores;
the calling thread on one core. A line for each block. The second takes each file for a run, and
prints by how much the runs' medians differ, and how far the blocks of a run spread (1.48 times the
median deviation).
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import itertools
import json
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.types import Settings, Shape
from lstm_bench.worker import problem, timing
from lstm_bench.worker.session import Session

BLOCK_S, WARM_UP_S = 0.15, 1.0
AGREE = 0.05  # energy of two runs should, so their times should


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seconds", type=float, nargs="?")
    parser.add_argument("shape", nargs="?", metavar="H,B,T")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args()
    if options.table:
        print_table([lines_of(path) for path in options.table])
    elif options.rows:
        measure(options.seconds, options.shape, options.rows)
    else:
        parser.error("SECONDS, H,B,T and a ROW, or --table and its files")


def measure(seconds: float, shape: str, names: list[str]) -> None:
    everywhere = sorted(os.sched_getaffinity(0))
    places = {"free": everywhere}
    for start in range(0, len(everywhere), max(4, len(everywhere) // 2)):
        places[f"4 cores from {everywhere[start]}"] = everywhere[start : start + 4]
    for core in everywhere[1 :: max(1, len(everywhere) // 4)]:
        places[f"core {core}"] = [core]
    sessions = {name: built(name, shape) for name in names}
    clock = timing.ProcessClock()
    call_s = {name: warmed(session, clock) for name, session in sessions.items()}
    turns = list(itertools.product(places, names))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for place, name in random.sample(turns, len(turns)):
            go_to(places[place], everywhere)
            calls = max(1, round(BLOCK_S / call_s[name]))
            sessions[name].time_queued(max(1, calls // 10), clock)  # moves, and fills caches again
            took_s = sessions[name].time_queued(calls, clock) / 1e9 / calls
            line = {"row": name, "shape": shape, "place": place, "call_s": took_s}
            print(json.dumps({"at": time.time(), **line}), flush=True)


def go_to(cores: list[int], everywhere: list[int]) -> None:
    """One core is for the calling thread alone, more are for all threads."""
    for thread in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(thread), everywhere if len(cores) == 1 else cores)
        except ProcessLookupError:  # a thread that has just ended
            pass
    os.sched_setaffinity(0, cores)


def built(name: str, shape: str) -> Session:
    row, settings = IMPLEMENTATIONS[name], Settings(device="cuda", threads=os.cpu_count() or 1)
    hidden, batch, timesteps = map(int, shape.split(","))
    module = importlib.import_module(f"lstm_bench.frameworks.{row.module}.session")
    module.describe(settings)
    posed = problem.make(Shape(hidden, batch, timesteps, hidden), settings.seed)
    session: Session = module.build(posed, row, settings)
    return session


def warmed(session: Session, clock: timing.Clock) -> float:
    """Seconds a call, once it is warm."""
    end = time.monotonic() + WARM_UP_S
    while True:
        took_s = session.time_queued(5, clock) / 5e9
        if time.monotonic() > end:
            return took_s


def lines_of(path: Path) -> list[dict[str, object]]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in text.decode().splitlines()]


def print_table(runs: list[list[dict[str, object]]]) -> None:
    """Every row at every place, then the places of a kind together."""
    cells: dict[tuple[str, str], list[list[float]]] = defaultdict(lambda: [[] for _ in runs])
    for number, run in enumerate(runs):
        for line in run:
            cells[str(line["row"]), str(line["place"])][number].append(float(str(line["call_s"])))
    spreads: dict[str, list[float]] = defaultdict(list)
    changes: dict[str, list[float]] = defaultdict(list)
    heads = "  ".join(f"{f'run {n + 1}':>9}  spread" for n in range(len(runs)))
    print(f"{'row':<16}  {'place':<16}  {heads}  differ")
    for (row, place), times in sorted(cells.items()):
        medians = [statistics.median(own) for own in times]
        words = (
            f"{1e3 * m:6.3f} ms  {spread(own):6.1%}" for m, own in zip(medians, times, strict=True)
        )
        change = max(medians) / min(medians) - 1
        print(f"{row:<16}  {place:<16}  {'  '.join(words)}  {change:6.1%}")
        kind = place.rstrip("0123456789 ")
        spreads[kind] += map(spread, times)
        changes[kind].append(change)
    print(f"\n{'place':<16}  cases  spread, median  differ, median  over {AGREE:.0%}")
    for kind, own in changes.items():
        middle = f"{statistics.median(spreads[kind]):14.1%}  {statistics.median(own):14.1%}"
        print(f"{kind:<16}  {len(own):5}  {middle}  {sum(each > AGREE for each in own):7}")


def spread(values: Iterable[float]) -> float:
    from lstm_bench.analysis.noise import (
        MAD,  # with pandas, which an interpreter that measures may lack
    )

    values = list(values)
    middle = statistics.median(values)
    return MAD * statistics.median(abs(value - middle) for value in values) / middle


if __name__ == "__main__":
    main()
