"""Kernels of our own: all timesteps in one launch, the recurrent weights on the chip.

How they work: docs/explanation/kernel.md. Which plan is fastest for a shape is measured when a
layer is built, as `deepbench-best` does with cuDNN's algorithms, and kept for the next process.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lstm_bench.model.types import Implementation, Settings, Unsupported, to_json
from lstm_bench.worker.implementations import baseline_libraries as libraries
from lstm_bench.worker.implementations import halves, kept, kernel_plan
from lstm_bench.worker.implementations.deepbench import BaselineSession, trial
from lstm_bench.worker.implementations.kernel_compiler import Compiler
from lstm_bench.worker.implementations.kernel_plan import Plan
from lstm_bench.worker.problem import Answer, Array, Problem

Tools = tuple[Any, list[str], Compiler, dict[str, int]]
OPTIONS = frozenset({"precision"})  # what `build` reads of row.options
TRIED = 6  # plans that a layer is timed with
ENOUGH = 100  # timesteps to choose a plan by
TILES, VECTORS = "tiles", "vectors"  # W_ih x by a kernel of our own instead of cuBLAS
FEW_ROWS = 128  # of x: more are never fastest in vectors
MANY_ROWS = 65535 * 128  # of x: a grid of tiles is no higher


def describe(settings: Settings) -> dict[str, Any]:
    """What the kernels are compiled with and run on; a missing library is named with its remedy."""
    _, _, compiler, _ = toolbox()
    versions = {"nvrtc": compiler.version, "architecture": compiler.architecture}
    return {"versions": versions, "threads": settings.threads, "tf32": settings.tf32}


def build(problem: Problem, row: Implementation, settings: Settings) -> BaselineSession:
    """The fastest of the plans that are worth a trial, in a graph or not."""
    h0_top = float(np.abs(problem.h0).max(initial=0.0))
    if not h0_top <= kernel_plan.H0_MOST:
        raise Unsupported(f"an initial h of {h0_top:g}: at most {kernel_plan.H0_MOST:g}")
    best = fastest(problem, row.options["precision"], TRIED)
    if settings.inputs != "device":
        best.lstm.keep_on_host(settings.inputs == "pinned")
    if settings.state == "carried":
        best.carry(*(_stored(state, best.storage) for state in (problem.h0, problem.c0)))
    return best


def fastest(problem: Problem, precision: str, most: int) -> PersistentSession:
    """The fastest of the first `most` plans that this GPU can run: as found before, or by trial."""
    module, _, compiler, device = toolbox()
    shape = problem.shape
    storage = precision if precision in ("fp16", "bf16") else "fp32"
    plans = kernel_plan.candidates(shape.hidden, shape.batch, precision == "fp32", storage, device)
    about = {"precision": precision, "shape": to_json(shape), "most": most, "device": device}
    ways = hashlib.sha256(repr(plans).encode()).hexdigest()
    choice = kept.Choice({**about, "kernels": compiler.identity(), "plans": ways})
    if before := choice.read():
        with contextlib.suppress(module.Unsupported, module.LibraryError, Unsupported):
            return _as_before(loaded(problem, plans[before["plan"]], before["projection"]), before)
    session, found = _by_trial(problem, precision, plans, most)
    choice.write(found)
    return session


def _as_before(session: PersistentSession, before: Mapping[str, Any]) -> PersistentSession:
    try:
        session.in_graph(before["graph"])
        session.time_each(1)
    except BaseException:
        session.close()
        raise
    session.path += f" (fastest of {before['tried']})"
    return session


def _by_trial(
    problem: Problem, precision: str, plans: Sequence[Plan], most: int
) -> tuple[PersistentSession, dict[str, Any]]:
    """The fastest, and what to build it from."""
    module, _, compiler, _ = toolbox()
    compiler.fit_ahead(plans[:most])
    best, reasons, fastest_yet = Best(), [], 0
    brief = _shortened(problem, ENOUGH)
    try:
        for i, plan in enumerate(plans):
            if best.tried == most:
                break
            try:
                if best.consider(loaded(brief, plan, precision)):
                    fastest_yet = i
            except (module.Unsupported, Unsupported) as refused:
                reasons.append(str(refused))
        if best.session is None:
            units = problem.shape.hidden
            why = f"no kernel holds a layer of {units} units in {precision} on this GPU"
            raise Unsupported("; ".join([why, *reasons[:1]]))
        plan = best.session.plan
        if brief is not problem:
            best.start_again(loaded(problem, plan, precision))
        for projection in own_products(precision, problem.shape.batch * problem.shape.timesteps):
            best.consider(loaded(problem, plan, projection))
    except BaseException:
        best.close()
        raise
    session = best.session
    session.path += f" (fastest of {best.tried})"
    session.peak = best.peak
    found = {"plan": fastest_yet, "projection": session.projection, "graph": session.graph}
    return session, {**found, "tried": best.tried}


def own_products(precision: str, rows: int) -> list[str]:
    """Our ways to multiply `rows` of x that are worth a trial: in fp32 cuBLAS can be beaten."""
    if precision != "fp32" or rows > MANY_ROWS:
        return []
    return [TILES, VECTORS] if rows <= FEW_ROWS else [TILES]


def _shortened(problem: Problem, timesteps: int) -> Problem:
    """Its first timesteps, where it has more: which plan is fastest does not depend on the rest."""
    if problem.shape.timesteps <= timesteps:
        return problem
    shape = dataclasses.replace(problem.shape, timesteps=timesteps)
    return dataclasses.replace(problem, shape=shape, x=problem.x[:timesteps], _shared={})


class Best:
    """The fastest session so far. At most two are alive at a time."""

    def __init__(self) -> None:
        self.session: PersistentSession | None = None
        self.seconds, self.tried, self.peak = math.inf, 0, 0

    def consider(self, other: PersistentSession) -> bool:
        """Time it, and close the slower of the two. Whether it is the fastest now."""
        alive = sum(sum(one.memory.values()) for one in (other, self.session) if one)
        self.peak = max(self.peak, alive)
        self.tried += 1
        try:
            seconds = other.choose(self.seconds)
        except BaseException:
            other.close()
            raise
        if seconds >= self.seconds:
            other.close()
            return False
        self.close()
        self.session, self.seconds = other, seconds
        return True

    def start_again(self, other: PersistentSession) -> None:
        """With the plan that was found, at the shape that is wanted."""
        self.close()
        self.session, self.seconds, self.tried = None, math.inf, self.tried - 1
        self.consider(other)

    def close(self) -> None:
        if self.session:
            self.session.close()


class PersistentSession(BaselineSession):
    """A loaded layer of our kernels."""

    def __init__(self, lstm: Any, path: str, plan: Plan, projection: str):
        super().__init__(lstm, path)
        self.plan, self.storage, self.projection = plan, plan.storage, projection
        self.graph = False

    def outputs(self) -> Answer:
        y, h, c = self.lstm.outputs()
        if self.storage == "fp32":
            return y, h, c
        widen = halves.widen
        return widen(y, self.storage), widen(h, self.storage), widen(c, self.storage)

    def choose(self, best_s: float) -> float:
        """Seconds per call, and from here on in a graph if that is faster."""
        plain_s = trial(self, give_up_s=2 * best_s)
        self.lstm.replay(True)
        graph_s = trial(self, give_up_s=2 * best_s)
        self.in_graph(graph_s < plain_s)
        return min(plain_s, graph_s)

    def in_graph(self, graph: bool) -> None:
        """From here on replay calls as a CUDA graph, or not."""
        self.lstm.replay(graph)
        self.graph = graph
        if graph:
            self.path += ", graph"


def loaded(problem: Problem, plan: Plan, projection: str) -> PersistentSession:
    """The layer by one plan. `projection` is `TILES`, `VECTORS`, or what cuBLAS multiplies x in."""
    module, paths, compiler, device = toolbox()
    s = problem.shape
    plan, code = compiler.fitted(plan)
    if plan.shared_bytes(min(s.batch, plan.sequences)) > plan.room:
        raise Unsupported(f"{plan.label}: not enough shared memory")
    teams = device["multiprocessors"] // plan.blocks
    if plan.cluster and plan.blocks > 1:
        teams = module.resident(paths, code, _launch(module, plan, min(s.batch, plan.sequences)))
    if teams < 1:
        raise Unsupported(f"this GPU cannot run a team of {plan.blocks} blocks")
    share = -(-s.batch // teams)
    if plan.cluster and plan.shared_bytes(share) > plan.room:
        share = plan.sequences  # some teams after others
    if plan.shared_bytes(share) > plan.room:
        raise Unsupported(f"{plan.label}: not enough shared memory")
    ours = projection in (TILES, VECTORS)
    product = compiler.cached(f"input_{projection}.cu", {}) if ours else b""
    lstm = module.Lstm(
        paths,
        code,
        product,
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
    turns = f", {plan.chunks(share)} turns" if plan.chunks(share) > 1 else ""
    inputs = f", input product in {projection}" if ours else ""
    return PersistentSession(lstm, f"{plan.label}{turns}{inputs}", plan, projection)


def _launch(module: Any, plan: Plan, share: int, teams: int = 1) -> Any:
    """How the extension is to run a plan."""
    return module.Launch(
        cluster=plan.cluster,
        blocks=plan.blocks,
        threads=plan.threads,
        share=share,
        shared_bytes=plan.shared_bytes(share),
        exchange_bytes=plan.exchange_bytes(share, teams),
    )


def _stored(array: Array, storage: str) -> Array:
    """An array as the layer holds it on the device."""
    if storage == "fp32":
        return np.ascontiguousarray(array, np.float32)
    return halves.narrow(array, storage)


def _arrays(problem: Problem, plan: Plan, projection: str) -> tuple[Any, ...]:
    """What `Lstm.load` takes."""

    def stored(array: Array) -> Array:
        return _stored(array, plan.storage)

    def rounded(
        array: Array,
    ) -> Array:  # weights that are stored in 16 bits have lost what those lack
        return array if plan.storage == "fp32" else halves.widen(stored(array), plan.storage)

    p = problem
    w_ih = halves.gates_together(p.w_ih)
    input_scale = 1.0
    if projection == TILES:
        w_ih, input_scale = halves.pack_input(w_ih)
    else:
        w_ih = stored(w_ih)
    bias = halves.gates_together(rounded(p.b_ih) + rounded(p.b_hh))
    weights, scale = plan.pack(rounded(p.w_hh))
    return stored(p.x), stored(p.h0), stored(p.c0), w_ih, weights, bias, scale, input_scale


@functools.cache
def toolbox() -> Tools:
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
    return module, paths, Compiler(architecture), {**device, **_versions(paths)}


def _versions(paths: Sequence[str]) -> dict[str, int]:
    """What is chosen with one driver and cuBLAS may not be the fastest with others."""
    _, driver, cublas = map(ctypes.CDLL, paths)
    number = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(number))
    found = {"cuda_driver": number.value}
    for i, part in enumerate(("major", "minor", "patch")):
        cublas.cublasGetProperty(i, ctypes.byref(number))
        found[f"cublas_{part}"] = number.value
    return found
