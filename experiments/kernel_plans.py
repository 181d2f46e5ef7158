"""Time every plan of our kernels for a shape: was the fastest among those that were tried?

    python experiments/kernel_plans.py 1024,256,100 512,64,100 --precision fp16 tf32
    python experiments/kernel_plans.py 1024,64,100 --family warpgroup --first 5
    python experiments/kernel_plans.py 256,16,50 --json FILE    # to fit `guess` of the plans to

One line a plan, in the order in which a layer tries them: microseconds a call, those of a step
beyond the first half of them (not with --json), the largest error. Exit code 1 when one was wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "experiments")]

from kernel_sweep import TOLERANCE, reference  # noqa: E402

from lstm_bench.frameworks.persistent.session import call_of  # noqa: E402
from lstm_bench.model.types import Shape  # noqa: E402
from lstm_bench.worker import problem as problems  # noqa: E402
from lstm_kernels import Unsupported, plans  # noqa: E402
from lstm_kernels import layer as kernels  # noqa: E402
from lstm_kernels.native import LibraryError  # noqa: E402


def microseconds(layer: kernels.Layer) -> float:
    """A call in a graph or not, whichever is faster."""
    layer.choose(float("inf"))
    layer.lstm.time_each(3)
    return float(statistics.median(layer.lstm.time_each(20))) / 1e3


def line_of(
    problem: problems.Problem, plan: Any, precision: str, expected: Any, log: Path | None
) -> str:
    projection = kernels.TILES if precision == "fp32" else precision
    call = call_of(problem)
    layer = kernels.loaded(call, plan, projection)
    try:
        layer.lstm.forward()
        check = problems.check(layer.outputs(), expected, TOLERANCE[precision])
        whole = microseconds(layer)
        path = layer.path
    finally:
        layer.close()
    verdict = "" if check.passed else "  WRONG"
    if log:
        about = {"family": plan.family, "sizes": call.sizes, "precision": precision, "us": whole}
        with log.open("a") as file:
            file.write(json.dumps({**about, "plan": dataclasses.asdict(plan)}) + "\n")
        return f"{whole:9.1f} {check.max_abs_error:8.0e}  {path}{verdict}"
    half = problem.shape.timesteps // 2
    layer = kernels.loaded(call.first(half), plan, projection)
    step = (whole - microseconds(layer)) / (problem.shape.timesteps - half)
    layer.close()
    return f"{whole:9.1f} {step:8.2f} {check.max_abs_error:8.0e}  {path}{verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shapes", nargs="+", help="hidden,batch,timesteps")
    parser.add_argument("--precision", nargs="+", default=["fp32", "tf32", "fp16"])
    parser.add_argument("--family", help="cluster, whole_gpu, vector or warpgroup")
    parser.add_argument("--first", type=int, default=1000, help="of the plans of a shape")
    parser.add_argument("--json", type=Path, help="append each plan and its time to this file")
    chosen = parser.parse_args()
    _, compiler, device = kernels.toolbox()
    good = True
    for text in chosen.shapes:
        hidden, batch, timesteps = map(int, text.split(","))
        problem = problems.make(Shape(hidden, batch, timesteps, hidden), 1)
        expected = reference(problem)
        for precision in chosen.precision:
            storage = precision if precision in ("fp16", "bf16") else "fp32"
            split = precision == "fp32"
            result = plans.candidates(hidden, batch, split, storage, device)
            result = [p for p in result if chosen.family in (None, p.family)][: chosen.first]
            compiler.fit_ahead(result)
            print(f"{text} {precision}\n       us  us/step    error  plan", flush=True)
            for plan in result:
                try:
                    line = line_of(problem, plan, precision, expected, chosen.json)
                except Unsupported as refused:
                    line = f"  refused: {refused}"
                except LibraryError as broken:
                    line = f"  WRONG {plan.label}: {broken}"
                good &= "WRONG" not in line
                print(line, f"  {plan}" if "WRONG" in line else "", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
