"""Do two profilers say the same? Busy time by CUPTI against torch.profiler and CUDA events.

    python benchmarks/profile_agreement.py [H,B,T ...]

Each figure comes from a process of its own: two listeners in one disturb each other. PyTorch
rows are held against torch.profiler's kernels; the baseline, where it leaves no gaps between its
kernels (a graph, a persistent kernel), against CUDA events around the call.
"""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
from typing import Any

from lstm_bench import problem, profiling
from lstm_bench.model import Settings, Shape
from lstm_bench.profile import summary
from lstm_bench.registry import IMPLEMENTATIONS

SHAPES = ("512,16,25", "128,16,100", "1024,64,50")
ROWS = ("pytorch", "pytorch-amp", "pytorch-half", "deepbench-graph", "deepbench-persist-static")
CALLS = 20


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measured(*sys.argv[2:])))
        return
    print(
        f"{'shape':>12}  {'row':<16} {'kernels':>7}  {'CUPTI':>9}  {'by another':>10}  difference"
    )
    for shape in sys.argv[1:] or SHAPES:
        for row in ROWS:
            one, other = (asked(row, shape, by) for by in ("cupti", "other"))
            if one["problem"]:
                print(f"{shape:>12}  {row:<16} {one['problem']}")
                continue
            mine = one["busy_s"]
            print(
                f"{shape:>12}  {row:<16} {one['kernels']:7.1f}  {1e6 * mine:6.1f} us"
                f"  {1e6 * other['seconds']:7.1f} us  {mine / other['seconds'] - 1:+.1%}"
                f"  {other['kernels'] or ''}"
            )


def asked(row: str, shape: str, by: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", row, shape, by]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measured(row_name: str, shape: str, by: str) -> dict[str, Any]:
    """One cell by one profiler, in this process."""
    row, settings = IMPLEMENTATIONS[row_name], Settings(device="cuda")
    hidden, batch, timesteps = map(int, shape.split(","))
    module = importlib.import_module(f"lstm_bench.implementations.{row.module}")
    module.describe(settings)
    posed = problem.make(Shape(hidden, batch, timesteps, hidden), settings.seed)
    session = module.build(posed, row, settings)
    for _ in range(CALLS):
        session.call()
    session.wait()
    if by == "cupti":
        found = profiling.profile(session, 1e-9, "cuda").profile
        return {
            "problem": found.problem,
            "busy_s": found.busy_s,
            "kernels": found.kernels,
        }
    if row.framework == "deepbench":
        session.lstm.time_device(CALLS)
        return {"seconds": statistics.median(session.lstm.time_device(CALLS)) / 1e9, "kernels": 0}
    activities, windows = session.activities(profiling.MOST)
    own = summary(activities, windows, "torch.profiler")
    return {"seconds": own.busy_s, "kernels": own.kernels}


if __name__ == "__main__":
    main()
