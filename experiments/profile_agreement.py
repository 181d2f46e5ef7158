"""Do two profilers say the same? Busy time by CUPTI against torch.profiler and CUDA events.

    python experiments/profile_agreement.py [H,B,T ...] [ROW ...]

Each figure comes from a process of its own: two listeners in one disturb each other. PyTorch rows
are held against torch.profiler's kernels, the baseline against CUDA events around a call and
against queued calls. That is the same thing only where it leaves no gaps between its kernels: a
graph, a persistent kernel, and `deepbench` at shapes whose kernels take longer than their launches.
The kernels of a call are counted by family.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from typing import Any

from lstm_bench.driver import machine
from lstm_bench.features.profile import in_worker as profiling
from lstm_bench.features.profile.families import families
from lstm_bench.features.profile.summary import summary
from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.profile import Profile
from lstm_bench.model.types import Settings, Shape
from lstm_bench.worker import problem

SHAPES = ("512,16,25", "128,16,100", "1024,64,50")
TORCH, EVENTS, QUEUED = "torch.profiler", "CUDA events", "queued calls"
ROWS: dict[str, tuple[str, ...]] = {
    "pytorch": (TORCH,),
    "pytorch-amp": (TORCH,),
    "pytorch-half": (TORCH,),
    "deepbench": (EVENTS, QUEUED),
    "deepbench-graph": (EVENTS, QUEUED),
    "deepbench-persist-static": (EVENTS, QUEUED),
}
CALLS, QUEUE = 20, 200


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("asked", nargs="*", metavar="H,B,T or ROW")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # ROW H,B,T PROFILER
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(*options.one)))
        return
    gpu = next(iter(machine.gpus()), {})
    print(f"{gpu.get('name', 'a GPU that NVML does not know')}, driver {gpu.get('driver', '?')}")
    print(f"{'shape':>12}  {'row':<24}  {'busy by':<14}  {'us a call':>9}  CUPTI's is")
    named = [word for word in options.asked if word in ROWS]
    for shape in [word for word in options.asked if word not in ROWS] or SHAPES:
        for row, others in ((row, ROWS[row]) for row in named or ROWS):
            mine = asked(row, shape, "CUPTI")
            start = f"{shape:>12}  {row:<24}"
            if mine["problem"]:
                print(f"{start}  {mine['problem']}")
                continue
            print(f"{start}  {'CUPTI':<14}  {1e6 * mine['seconds']:9.1f}  {mine['kernels']}")
            for by in others:
                other = asked(row, shape, by)["seconds"]
                print(f"{start}  {by:<14}  {1e6 * other:9.1f}  {mine['seconds'] / other - 1:+.1%}")


def asked(row: str, shape: str, by: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", row, shape, by]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measured(row_name: str, shape: str, by: str) -> dict[str, Any]:
    """One cell by one profiler, in this process."""
    row, settings = IMPLEMENTATIONS[row_name], Settings(device="cuda")
    hidden, batch, timesteps = map(int, shape.split(","))
    module = importlib.import_module(f"lstm_bench.frameworks.{row.module}.session")
    module.describe(settings)
    posed = problem.make(Shape(hidden, batch, timesteps, hidden), settings.seed)
    session = module.build(posed, row, settings)
    for _ in range(CALLS):
        session.call()
    session.wait()
    if by == EVENTS:
        session.lstm.time_device(CALLS)
        return {"seconds": statistics.median(session.lstm.time_device(CALLS)) / 1e9}
    if by == QUEUED:
        session.lstm.time_queued(QUEUE)
        return {"seconds": session.lstm.time_queued(QUEUE) / QUEUE / 1e9}
    if by == TORCH:
        activities, windows = session.activities(profiling.MOST)
        return {"seconds": summary(activities, windows, TORCH).busy_s}
    result = profiling.profile(session, 1e-9, "cuda").profile
    return {
        "seconds": result.busy_s,
        "kernels": kernels_of(result, timesteps),
        "problem": result.problem,
    }


def kernels_of(result: Profile, timesteps: int) -> str:
    """How many a call has of each family."""
    counts: defaultdict[str, float] = defaultdict(float)
    for part, family in zip(result.parts, families(result.parts, timesteps), strict=True):
        counts[family] += part.count
    words = ", ".join(f"{count:g} {family}" for family, count in counts.items())
    return f"{result.kernels:g} kernels: {words}"


if __name__ == "__main__":
    main()
