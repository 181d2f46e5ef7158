"""How steady is the host that launches a GPU's work, and which way of taking turns sees it least?

    python benchmarks/host_pace.py pytorch 256,256,10 deepbench 512,1,100 [--seconds 30]

Two processes build the same layer and are timed in turns, in several ways that take turns with
each other, so that none has the better moment. Whatever differs between the two is noise.

    ways      alone: one process, block after block; turns: two of them, as a grid does it;
              rested: after 0.1 s in which nobody does anything; one core: both bound to a core,
              another one every 0.4 s; next core: another one for every pair; spinning: each on a
              core of its own that never rests.
              5+2.5: blocks of 5 ms after 2.5 ms of calls that do not count
    call      the median, against the median of `alone`
    unsettled how much slower the first third of a block is than the last
    block     spread of single blocks; pair: of the ratio of two neighbours (both: 1.48 MAD)
    probe     correlation of a block's time with that of a fixed loop before and after it
    steady    spread of the pairs whose two probes are within 10% of the best
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import select
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lstm_bench import problem, timing
from lstm_bench.model import Settings, Shape
from lstm_bench.registry import IMPLEMENTATIONS

TURN_S = 0.4  # how long a way is tried before it is another's turn
PROBE = range(3000)
NEAR = 1.1  # a probe within this of the best is a steady one


class Way(NamedTuple):
    """How two processes are timed."""

    block_s: float
    settle_s: float
    cores: str = "any"  # "one" for both, the "next" for every pair, or its "own" for each
    spinning: bool = False
    rest_s: float = 0.0
    both: bool = True


WAYS = {
    "alone 5+0": Way(0.005, 0.0, both=False),
    "turns 5+2.5": Way(0.005, 0.0025),
    "turns 5+5": Way(0.005, 0.005),
    "turns 2+1": Way(0.002, 0.001),
    "turns 20+5": Way(0.02, 0.005),
    "rested 5+5": Way(0.005, 0.005, rest_s=0.1),
    "one core 5+2.5": Way(0.005, 0.0025, cores="one"),
    "one core 5+5": Way(0.005, 0.005, cores="one"),
    "one core 2+2": Way(0.002, 0.002, cores="one"),
    "next core 5+2.5": Way(0.005, 0.0025, cores="next"),
    "next core 5+5": Way(0.005, 0.005, cores="next"),
    "spinning 5+2.5": Way(0.005, 0.0025, cores="own", spinning=True),
}


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        serve(sys.argv[2], sys.argv[3])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pairs", nargs="+", metavar="ROW H,B,T")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each row")
    parser.add_argument("--python", default=sys.executable, help="that has the framework")
    parser.add_argument("--keep", help="write all blocks to this JSON file")
    options = parser.parse_args()
    kept = {}
    for row, shape in zip(options.pairs[::2], options.pairs[1::2], strict=True):
        found = tried(row, shape, options.seconds, options.python)
        kept[f"{row} {shape}"] = found
        show(row, shape, found)
    if options.keep:
        with open(options.keep, "w") as file:
            json.dump(kept, file)


def tried(row: str, shape: str, seconds: float, python: str) -> dict[str, list[Any]]:
    """All ways, a little at a time; of each, pairs of blocks that followed each other."""
    workers = [Worker(row, shape, python) for _ in range(2)]
    cores = sorted(os.sched_getaffinity(0))
    found: defaultdict[str, list[Any]] = defaultdict(list)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name in random.sample(list(WAYS), len(WAYS)):
            way = WAYS[name]
            move(workers, way, cores)
            found[name] += list(turns(workers, way, cores))
    for worker in workers:
        worker.end()
    return dict(found)


def move(workers: Sequence[Worker], way: Way, cores: list[int]) -> None:
    """Bind the processes as it is done in this way."""
    chosen = random.sample(cores, min(2, len(cores)))
    places = [chosen[:1], chosen[-1:]] if way.cores == "own" else [chosen[:1]] * 2
    for worker, place in zip(workers, places, strict=True):
        worker.ask(cores=cores if way.cores == "any" else place, spinning=way.spinning)


def turns(workers: Sequence[Worker], way: Way, cores: list[int]) -> Iterator[list[Any]]:
    """Pairs of blocks, one of each process."""
    first, second = workers if way.both else [workers[0]] * 2
    end = time.monotonic() + TURN_S
    while time.monotonic() < end:
        time.sleep(way.rest_s)
        if way.cores == "next":
            move(workers, way, cores)
        order = (first, second) if random.random() < 0.5 else (second, first)
        yield [one.ask(block_s=way.block_s, settle_s=way.settle_s) for one in order]


class Worker:
    """A process that holds one layer."""

    def __init__(self, row: str, shape: str, python: str):
        self.process = subprocess.Popen(
            [python, __file__, "--worker", row, shape],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ask()

    def ask(self, **request: Any) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def serve(row_name: str, shape: str) -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # frameworks print
    row, settings = IMPLEMENTATIONS[row_name], Settings(device="cuda")
    hidden, batch, timesteps = map(int, shape.split(","))
    module = importlib.import_module(f"lstm_bench.implementations.{row.module}")
    module.describe(settings)
    session = module.build(problem.make(Shape(hidden, batch, timesteps, hidden), 1), row, settings)
    clock, spinning = timing.ProcessClock(), False
    session.time_each(50, clock)
    call_s = statistics.median(session.time_each(50, clock)) / 1e9
    while True:
        while spinning and not select.select([0], [], [], 0)[0]:
            pass
        line = sys.stdin.readline()
        if not line:
            return
        request, reply = json.loads(line), None
        if "cores" in request:
            spinning = request["spinning"]
            os.sched_setaffinity(0, request["cores"])
        elif request:
            session.time_each(int(request["settle_s"] / call_s), clock)
            before = probe()
            calls = session.time_each(max(3, int(request["block_s"] / call_s)), clock)
            third = len(calls) // 3
            early, late = statistics.median(calls[:third]), statistics.median(calls[-third:])
            reply = [statistics.median(calls), early / late, max(before, probe())]
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def probe() -> int:
    """Nanoseconds of a loop that has nothing to wait for."""
    start = time.perf_counter_ns()
    for _ in PROBE:
        pass
    return time.perf_counter_ns() - start


def show(row: str, shape: str, found: dict[str, list[Any]]) -> None:
    alone = statistics.median(block[0] for pair in found["alone 5+0"] for block in pair)
    best = min(block[2] for pairs in found.values() for pair in pairs for block in pair)
    print(f"\n{row} {shape}: {alone / 1e3:.0f} us alone, probe {best / 1e3:.0f} us at best")
    print(f"{'':16} pairs    call  unsettled  block   pair  probe  steady")
    for name, pairs in found.items():
        blocks = [block for pair in pairs for block in pair]
        times = [block[0] for block in blocks]
        ratios = [a[0] / b[0] for a, b in pairs]
        steady = [a[0] / b[0] for a, b in pairs if max(a[2], b[2]) < NEAR * best]
        tied = statistics.correlation(times, [block[2] for block in blocks])
        print(
            f"{name:16} {len(pairs):5} {statistics.median(times) / alone - 1:+7.1%}"
            f"  {statistics.median(block[1] for block in blocks) - 1:+9.1%}"
            f" {spread(times):6.1%} {spread(ratios):6.1%} {tied:+6.2f}"
            f"  {spread(steady):6.1%} ({len(steady) / len(pairs):.0%})"
        )


def spread(values: Sequence[float]) -> float:
    if len(values) < 3:
        return float("nan")
    middle = statistics.median(values)
    return 1.48 * statistics.median(abs(value / middle - 1) for value in values)


if __name__ == "__main__":
    main()
