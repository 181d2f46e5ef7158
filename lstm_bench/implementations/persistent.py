"""Kernels of our own: all timesteps in one launch, the recurrent weights on the chip.

How they work: docs/kernel.md. Which of their plans is fastest for a shape is measured when a layer
is built, as `deepbench-best` does with cuDNN's algorithms.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import numpy as np

from lstm_bench.implementations import baseline_libraries as libraries
from lstm_bench.implementations import kernel_plan
from lstm_bench.implementations.deepbench import BaselineSession, trial
from lstm_bench.implementations.kernel_compiler import Compiler
from lstm_bench.implementations.kernel_plan import Plan
from lstm_bench.model import Implementation, Settings, Unsupported
from lstm_bench.problem import Answer, Array, Problem

Tools = tuple[Any, list[str], Compiler, dict[str, int]]
TRIED = 4  # plans that a layer is timed with
SPLIT_FROM = 1 << 28  # FLOPs of the input product, from which the three-part product is worth a trial


def describe(settings: Settings) -> dict[str, Any]:
    """What the kernels are compiled with and run on; a missing library is named with its remedy."""
    _, _, compiler, _ = _tools()
    versions = {"nvrtc": compiler.version, "architecture": compiler.architecture}
    return {"versions": versions, "threads": settings.threads, "tf32": settings.tf32}


def build(problem: Problem, row: Implementation, settings: Settings) -> BaselineSession:
    """The fastest of the plans that are worth a trial, in a graph or not."""
    tools = module, paths, compiler, device = _tools()
    shape, precision = problem.shape, row.options["precision"]
    storage = precision if precision in ("fp16", "bf16") else "fp32"
    h0_top = float(np.abs(problem.h0).max(initial=0.0))
    if not h0_top <= kernel_plan.H0_MOST:
        raise Unsupported(f"an initial h of {h0_top:g}: at most {kernel_plan.H0_MOST:g}")
    found = kernel_plan.candidates(
        shape.hidden,
        shape.batch,
        precision == "fp32",
        storage,
        clusters=device["major"] >= 9,
        multiprocessors=device["multiprocessors"],
    )
    best: PersistentSession | None = None
    best_s, reasons = math.inf, []
    tried = 0
    for plan in found:
        if tried == int(os.environ.get("PERSISTENT_TRIED", TRIED)):
            break
        try:
            other = _session(problem, plan, precision, tools)
        except (module.Unsupported, Unsupported) as refused:
            reasons.append(str(refused))
            continue
        tried += 1
        other_s = other.choose(best_s)
        if other_s < best_s:
            best, other, best_s = other, best, other_s
        if other:
            other.close()
    if best is None:
        raise Unsupported(
            f"no plan holds a layer of {shape.hidden} units in {precision}"
            + "".join(f"; {reason}" for reason in reasons[:1])
        )
    best.path += f" (fastest of {tried})"
    return best


class PersistentSession(BaselineSession):
    """A loaded layer of our kernels."""

    def __init__(self, lstm: Any, path: str, storage: str):
        super().__init__(lstm, path)
        self.storage = storage

    def outputs(self) -> Answer:
        y, h, c = self.lstm.outputs()
        if self.storage == "fp32":
            return y, h, c
        widen = kernel_plan.widen
        return widen(y, self.storage), widen(h, self.storage), widen(c, self.storage)

    def choose(self, best_s: float) -> float:
        """Seconds per call, and from here on in a graph if that is faster."""
        plain_s = trial(self, give_up_s=2 * best_s)
        self.lstm.replay(True)
        graph_s = trial(self, give_up_s=2 * best_s)
        self.lstm.replay(graph_s < plain_s)
        if graph_s < plain_s:
            self.path += ", graph"
        return min(plain_s, graph_s)


def _session(
    problem: Problem, plan: Plan, precision: str, tools: Tools
) -> PersistentSession:
    """The layer by one plan, loaded."""
    module, paths, compiler, device = tools
    s = problem.shape
    code = compiler.cached(f"{plan.family}_lstm.cu", plan.constants)
    teams = device["multiprocessors"] // plan.blocks
    if plan.family == "cluster" and plan.blocks > 1:
        teams = module.resident(paths, code, _launch(module, plan, min(s.batch, plan.sequences)))
    if teams < 1:
        raise Unsupported(f"this GPU cannot run a team of {plan.blocks} blocks")
    share = -(-s.batch // teams)
    if plan.family == "cluster" and plan.shared_bytes(share) > device["shared_bytes"]:
        share = plan.sequences  # some teams after others
    if plan.shared_bytes(share) > device["shared_bytes"]:
        raise Unsupported(f"{plan.label}: not enough shared memory")
    projection, splitter = {"fp32": "fp32", "tf32": "tf32"}.get(precision, precision), b""
    if precision == "fp32" and s.flops * s.input_size / (s.hidden + s.input_size) >= SPLIT_FROM:
        projection, splitter = "3xtf32", compiler.cached("split_input.cu", {})
    lstm = module.Lstm(
        paths,
        code,
        splitter,
        *(s.hidden, s.input_size, s.batch, s.timesteps),
        storage=plan.storage,
        projection=projection,
        launch=_launch(module, plan, share, -(-s.batch // share)),
    )
    try:
        lstm.load(*_arrays(problem, plan, projection))
    except BaseException:
        lstm.release()
        raise
    return PersistentSession(lstm, f"{plan.label}, {plan.chunks(share)} turns", plan.storage)


def _launch(module: Any, plan: Plan, share: int, teams: int = 1) -> Any:
    """How the extension is to run a plan."""
    return module.Launch(
        cluster=plan.family == "cluster",
        blocks=plan.blocks,
        threads=plan.threads,
        share=share,
        shared_bytes=plan.shared_bytes(share),
        exchange_bytes=plan.exchange_bytes(share, teams),
    )


def _arrays(problem: Problem, plan: Plan, projection: str) -> tuple[Any, ...]:
    """x, h0, c0, w_ih, weights, bias, scale: as the layer wants them."""

    def stored(array: Array) -> Array:
        if plan.storage == "fp32":
            return np.ascontiguousarray(array, np.float32)
        return kernel_plan.narrow(array, plan.storage)

    def rounded(array: Array) -> Array:  # weights that are stored in 16 bits have lost what those lack
        return (
            array if plan.storage == "fp32" else kernel_plan.widen(stored(array), plan.storage)
        )

    p = problem
    w_ih = kernel_plan.gates_together(p.w_ih)
    w_ih = kernel_plan.three_parts(w_ih) if projection == "3xtf32" else stored(w_ih)
    bias = kernel_plan.gates_together(rounded(p.b_ih) + rounded(p.b_hh))
    weights, scale = kernel_plan.pack(rounded(p.w_hh), plan)
    return stored(p.x), stored(p.h0), stored(p.c0), w_ih, weights, bias, scale


@functools.cache
def _tools() -> Tools:
    """The extension, the paths of what it drives, the compiler, and the GPU."""
    module, paths = libraries.extension("_persistent"), libraries.persistent()
    try:
        device = module.device(paths)
    except module.LibraryError as error:
        raise Unsupported(f"no GPU answers: {error}") from None
    capability = f"{device['major']}.{device['minor']}"
    if device["major"] < 8:
        raise Unsupported(f"compute capability {capability}: 8.0 or newer is needed")
    architecture = f"sm_{capability.replace('.', '')}" + ("a" if device["major"] >= 9 else "")
    return module, paths, Compiler(architecture), device
