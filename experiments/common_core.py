"""Do twins agree better on the same core, in shorter blocks, or by a measure of the host's pace?

    python experiments/common_core.py H,B,T SECONDS OUT.jsonl [FRAMEWORK=PYTHON ...]
    python experiments/common_core.py --table OUT.jsonl ...

The first, on a GPU, has two processes each of four implementations and measures them in shuffled
rounds, ten rounds each way in turns: blocks of 12 or of 4 ms, with the calling threads wherever the
kernel puts them, or all on one core that changes with every round. Before and after each block a
process also times a loop of Python's. The second prints for each way: the spread of a pair's
difference (1.48 times the median deviation), what is left of it after a straight line through the
difference of the loops is taken off, the difference itself, and how often both had the same core.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

ROWS = {"deepbench": "", "pytorch": "", "tf-mode0": "tensorflow", "tf-mode2": "tensorflow"}
WAYS = {"free": (False, 0.012), "one core": (True, 0.012)}
WAYS |= {f"{way}, short": (tied, 0.004) for way, (tied, _) in WAYS.items()}
SETTLE_S, WARM_UP_S, LOOP, TURN = 0.003, 1.0, 4000, 10


def worker(name: str, shape: str) -> None:
    """Answer every line `core seconds` with a block; a core below 0 is any."""
    from lstm_bench.frameworks import IMPLEMENTATIONS
    from lstm_bench.model.types import Settings, Shape
    from lstm_bench.worker import problem

    row, settings = IMPLEMENTATIONS[name], Settings(device="cuda", threads=1)
    module = importlib.import_module(f"lstm_bench.frameworks.{row.module}.session")
    module.describe(settings)
    hidden, batch, timesteps = map(int, shape.split(","))
    posed = problem.make(Shape(hidden, batch, timesteps, hidden), settings.seed)
    session, now = module.build(posed, row, settings), time.perf_counter_ns
    everywhere, core_now = os.sched_getaffinity(0), ctypes.CDLL(None).sched_getcpu

    def calls(seconds: float) -> list[int]:
        took: list[int] = []
        end = now() + round(seconds * 1e9)
        while not took or now() < end:
            start = now()
            session.call()
            session.wait()
            took.append(now() - start)
        return took

    def loop() -> int:
        start = now()
        for _ in range(LOOP):
            pass
        return now() - start

    calls(WARM_UP_S)
    print("ready", flush=True)
    for line in sys.stdin:
        core, seconds = line.split()
        os.sched_setaffinity(0, everywhere if int(core) < 0 else {int(core)})
        calls(SETTLE_S)
        before, at = loop(), core_now()
        median = float(np.median(calls(float(seconds))))
        print(json.dumps({"median": median, "loop": before * loop(), "core": at}), flush=True)


def measure(shape: str, seconds: float, path: Path, pythons: dict[str, str]) -> None:
    workers: list[tuple[str, Any]] = []
    for name, framework in [*ROWS.items()] * 2:
        command = [pythons.get(framework, sys.executable), __file__, "--worker", name, shape]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        workers.append((name, subprocess.Popen(command, **pipes)))

    def answer(child: Any, begin: str) -> str:
        while line := child.stdout.readline():  # frameworks print, too
            if line.startswith(begin):
                return str(line)
        raise SystemExit("a worker ended")

    for _, child in workers:
        answer(child, "ready")
    rng, cores = random.Random(1), sorted(os.sched_getaffinity(0))
    end, number = time.monotonic() + seconds, 0
    with path.open("w") as file:
        while time.monotonic() < end:
            way = [*WAYS][number // TURN % len(WAYS)]
            tied, block_s = WAYS[way]
            core = rng.choice(cores) if tied else -1
            for which in rng.sample(range(len(workers)), len(workers)):
                name, child = workers[which]
                child.stdin.write(f"{core} {block_s}\n")
                child.stdin.flush()
                result = json.loads(answer(child, "{"))
                words = {"row": name, "worker": which, "round": number, "way": way}
                file.write(json.dumps({**words, **result}) + "\n")
            number += 1
    for _, child in workers:
        child.stdin.close()


def print_table(path: Path) -> None:
    from lstm_bench.analysis.noise import MAD

    def spread(values: Any) -> float:
        return MAD * float(np.median(np.abs(values - np.median(values))))

    pairs: defaultdict[tuple[str, str], defaultdict[int, list[Any]]]
    pairs = defaultdict(lambda: defaultdict(list))
    for block in sorted(map(json.loads, path.open()), key=lambda each: each["worker"]):
        pairs[block["row"], block["way"]][block["round"]].append(block)
    print(path.stem)
    for (row, way), rounds in pairs.items():
        first, second = zip(*(own for own in rounds.values() if len(own) == 2), strict=True)
        times, loops = (
            np.log([b[key] for b in second]) - np.log([a[key] for a in first])
            for key in ("median", "loop")
        )
        same = np.mean([a["core"] == b["core"] for a, b in zip(first, second, strict=True)])
        left = times - np.polyval(np.polyfit(loops, times, 1), loops)
        print(
            f"  {row:10} {way:16} {len(times):4} rounds  spread {spread(times):5.1%}"
            f"  less the loop's {spread(left):5.1%}  difference {np.median(times):6.2%}"
            f"  same core {same:.0%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shape", nargs="?", metavar="H,B,T")
    parser.add_argument("seconds", type=float, nargs="?", metavar="SECONDS")
    parser.add_argument("path", type=Path, nargs="?", metavar="OUT.jsonl")
    parser.add_argument("pythons", nargs="*", metavar="FRAMEWORK=PYTHON")
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return
    if options.path:
        pythons = dict(each.split("=", 1) for each in options.pythons)
        measure(options.shape, options.seconds, options.path, pythons)
    elif not options.table:
        parser.error("H,B,T, SECONDS and OUT.jsonl, or --table and its files")
    for path in options.table or [options.path]:
        print_table(path)


if __name__ == "__main__":
    main()
