"""Test our kernels on a real GPU: correct at random shapes, with any plan, always the same bits.

    python experiments/kernel_sweep.py random --shapes 500    every row against float64
    python experiments/kernel_sweep.py bits --calls 10000     two inputs in turns, bit by bit

Of the plans that a shape has, each row takes one at random, not the fastest. Exit code 1 when an
answer was wrong or changed. Under NVIDIA's checkers:

    compute-sanitizer --tool racecheck python experiments/kernel_sweep.py random --shapes 3 --small
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lstm_bench.frameworks.persistent.session import call_of  # noqa: E402
from lstm_bench.model.types import TOLERANCES, Shape  # noqa: E402
from lstm_bench.worker import problem as problems  # noqa: E402
from lstm_kernels import Unsupported, plans  # noqa: E402
from lstm_kernels import layer as kernels  # noqa: E402
from lstm_kernels.compiler import Compiler  # noqa: E402

TOLERANCE = {**TOLERANCES, "fp32": 2e-6}  # what docs/explanation/kernel.md promises
#: One shape for each family of kernels and precision, or nearly.
BITS = (
    ((256, 20, 30, 256), "fp32"),
    ((1024, 9, 20, 64), "tf32"),
    ((512, 40, 20, 128), "fp16"),
    ((1024, 1, 20, 64), "fp32"),
    ((128, 2, 30, 128), "fp32"),
)
MOST = 4_000_000  # of batch x timesteps x hidden: larger ones take the host too long


def shapes(count: int, seed: int, small: bool) -> list[Shape]:
    """Every fourth has few sequences: there is a family of kernels for those alone."""
    rng = random.Random(seed)
    result: list[Shape] = []
    while len(result) < count:
        scale = 8 if small else 1
        few = len(result) % 4 == 0
        hidden, batch = rng.randint(1, 1100 // scale), rng.randint(1, 4 if few else 300 // scale)
        shape = Shape(hidden, batch, rng.randint(1, 300 // scale), rng.randint(1, 600 // scale))
        if shape.batch * shape.timesteps * shape.hidden <= MOST:
            result.append(shape)
    return result


def plan_of(shape: Shape, precision: str, seed: int, device: dict[str, int]) -> Any:
    storage = precision if precision in ("fp16", "bf16") else "fp32"
    result = plans.candidates(shape.hidden, shape.batch, precision == "fp32", storage, device)
    rng = random.Random(f"{seed} {shape} {precision}")
    products = kernels.own_products(precision, shape.batch * shape.timesteps)
    return rng.choice(result[:12]), rng.choice([precision, *products])


def compiled(job: tuple[str, Any]) -> bool:
    """True if the plan has the registers that it was meant to have."""
    architecture, plan = job
    try:
        return bool(Compiler(architecture).fitted(plan)[0] == plan)
    except Unsupported:
        return False


def reference(problem: problems.Problem) -> problems.Answer:
    """In float64, on the GPU where PyTorch is there."""
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return problems.reference(problem)
    p = problem
    x, h, c, w_ih, w_hh, b_ih, b_hh = (torch.from_numpy(a).cuda().double() for a in p.single)
    projected, output = x @ w_ih.T + b_ih + b_hh, []
    for step in projected:
        i, f, g, o = (step + h @ w_hh.T).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        output.append(h)
    return tuple(v.cpu().numpy() for v in (torch.stack(output), h, c))  # type: ignore[return-value]


def sweep(count: int, seed: int, small: bool) -> bool:
    _, compiler, device = kernels.toolbox()
    precisions = ("fp32", "tf32", "fp16", "bf16")
    cases = [
        (s, p, *plan_of(s, p, seed, device)) for s in shapes(count, seed, small) for p in precisions
    ]
    started = time.perf_counter()
    jobs = {f"{c[2].family}{c[2].constants}": c[2] for c in cases}.values()
    with multiprocessing.get_context("spawn").Pool() as pool:
        as_planned = pool.map(compiled, [(compiler.architecture, p) for p in jobs], chunksize=4)
    print(
        f"{len(jobs)} kernels in {time.perf_counter() - started:.0f} s,"
        f" {as_planned.count(False)} of them with fewer weights in registers than planned"
    )
    counts = {"ok": 0, "refused": 0, "wrong": 0}
    worst: dict[str, float] = dict.fromkeys(precisions, 0.0)
    problem, expected = None, None
    for shape, precision, plan, projection in cases:
        if problem is None or problem.shape != shape:
            problem = problems.make(shape, seed)
            expected = problems.reference(problem) if small else reference(problem)
        assert expected is not None
        try:
            layer = kernels.loaded(call_of(problem), plan, projection)
        except Unsupported as refused:
            counts["refused"] += 1
            print(f"  refused: {shape.label} {precision}: {refused}")
            continue
        layer.lstm.forward()
        first = layer.outputs()
        layer.lstm.replay(True)
        layer.lstm.forward()
        same = all(map(np.array_equal, first, layer.outputs()))
        check = problems.check(first, expected, TOLERANCE[precision])
        layer.close()
        counts["ok" if check.passed and same else "wrong"] += 1
        worst[precision] = float(np.max([worst[precision], check.max_abs_error]))
        if not check.passed or not same:
            print(f"  WRONG {shape.label} {precision} {plan}: {check.reason}, same bits: {same}")
    print(f"random: {counts}, worst errors", {p: f"{e:.1e}" for p, e in worst.items()})
    return counts["wrong"] == 0


def bits(calls: int) -> bool:
    """The same two inputs again and again: the first answers to them are the only ones.

    Half of the calls are looked at, the others queue one behind another.
    """
    *_, device = kernels.toolbox()
    good = True
    for sizes, precision in BITS:
        posed = [problems.make(Shape(*sizes), seed) for seed in (1, 2)]
        plan, _ = plan_of(posed[0].shape, precision, 1, device)
        layers = [kernels.loaded(call_of(p), plan, precision) for p in posed]
        first: list[Any] = []
        changed = 0
        for number in range(calls):
            layer = layers[number % 2]
            layer.lstm.forward()
            if number % 100 < 50:
                answer = layer.outputs()
                if number < 2:
                    first.append(answer)
                changed += not all(map(np.array_equal, first[number % 2], answer))
        print(f"bits: {plan.label}, {precision}: {calls} calls, {changed} answers changed")
        good = good and not changed
        for layer in layers:
            layer.close()
    return good


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["random", "bits"])
    parser.add_argument("--shapes", type=int, default=500)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="an eighth of each size")
    options = parser.parse_args()
    if options.part == "bits":
        good = bits(options.calls)
    else:
        good = sweep(options.shapes, options.seed, options.small)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
