"""A layer on a GPU: by which of the plans, and its weights as that plan wants them.

Which plan is fastest is measured when a layer is built, and kept for the next process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from lstm_kernels import Unsupported, halves, libraries, native, plans
from lstm_kernels.cache import TuningCache
from lstm_kernels.compiler import Compiler
from lstm_kernels.halves import Array
from lstm_kernels.plans import Plan

Tools = tuple[list[str], Compiler, dict[str, int]]
TRIED = 6  # plans that a layer is timed with
TRIAL_S = 0.02  # how long each of them is timed
ENOUGH = 100  # timesteps to choose a plan by
NONE_HOLDS = "no kernel holds a layer of {} units in {} on this GPU"
TILES, VECTORS = "tiles", "vectors"  # W_ih x by a kernel of our own instead of cuBLAS
FEW_ROWS = 128  # of x: more are never fastest in vectors


@dataclass(frozen=True, eq=False)
class Call:
    """A layer and what goes in, float32 as PyTorch has it: x is (T, B, I), w_ih (4H, I)."""

    x: Array
    h0: Array
    c0: Array
    w_ih: Array
    w_hh: Array
    b_ih: Array
    b_hh: Array

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Hidden, input size, batch, timesteps."""
        timesteps, batch, input_size = self.x.shape
        return self.w_hh.shape[1], input_size, batch, timesteps

    def first(self, timesteps: int) -> Call:
        """Its first timesteps, all of them if there are no more."""
        return self if len(self.x) <= timesteps else replace(self, x=self.x[:timesteps])


def fastest(call: Call, precision: str, most: int) -> Layer:
    """The fastest of the first `most` plans that this GPU can run: as found before, or by trial."""
    _, compiler, device = toolbox()
    h0_top = float(np.abs(call.h0).max(initial=0.0))
    if not h0_top <= plans.H0_MOST:
        raise Unsupported(f"an initial h of {h0_top:g}: at most {plans.H0_MOST:g}")
    candidates = holding(precision, call.sizes[0], call.sizes[2])
    about = {"precision": precision, "sizes": call.sizes, "most": most, "device": device}
    ways = hashlib.sha256(repr(candidates).encode()).hexdigest()
    choice = TuningCache({**about, "kernels": compiler.identity(), "plans": ways})
    if before := choice.read():
        with contextlib.suppress(native.LibraryError, Unsupported):
            plan = candidates[before["plan"]]
            return _as_before(loaded(call, plan, before["projection"]), before)
    layer, found = _by_trial(call, precision, candidates, most)
    choice.write(found)
    return layer


def holding(precision: str, hidden: int, batch: int, directions: int = 1) -> list[Plan]:
    """The plans that can hold a layer on this GPU, the likeliest to be fast first."""
    storage = precision if precision in ("fp16", "bf16") else "fp32"
    device = toolbox()[-1]
    if able := plans.candidates(hidden, batch, precision == "fp32", storage, device, directions):
        return able
    raise Unsupported(NONE_HOLDS.format(hidden, precision))


def _as_before(layer: Layer, before: Mapping[str, Any]) -> Layer:
    try:
        layer.in_graph(before["graph"])
        layer.lstm.time_each(1)
    except BaseException:
        layer.close()
        raise
    layer.path += f" (fastest of {before['tried']})"
    return layer


def _by_trial(
    call: Call, precision: str, candidates: Sequence[Plan], most: int
) -> tuple[Layer, dict[str, Any]]:
    """The fastest, and what to build it from."""
    _, compiler, _ = toolbox()
    compiler.fit_ahead(candidates[:most])
    best, reasons, fastest_yet = Best(), [], 0
    brief = call.first(ENOUGH)  # which plan is fastest does not depend on the rest
    try:
        for i, plan in enumerate(candidates):
            if best.tried == most:
                break
            try:
                if best.consider(loaded(brief, plan, precision)):
                    fastest_yet = i
            except Unsupported as refused:
                reasons.append(str(refused))
        if best.layer is None:
            why = NONE_HOLDS.format(call.sizes[0], precision)
            raise Unsupported("; ".join([why, *reasons[:1]]))
        plan = best.layer.plan
        if brief is not call:
            best.start_again(loaded(call, plan, precision))
        for projection in own_products(precision, call.sizes[2] * call.sizes[3]):
            best.consider(loaded(call, plan, projection))
    except BaseException:
        best.close()
        raise
    layer = best.layer
    layer.path += f" (fastest of {best.tried})"
    layer.peak = best.peak
    found = {"plan": fastest_yet, "projection": layer.projection, "graph": layer.graph}
    return layer, {**found, "tried": best.tried}


def own_products(precision: str, rows: int) -> list[str]:
    """Our ways to multiply `rows` of x that are worth a trial: in fp32 cuBLAS can be beaten."""
    if precision != "fp32":
        return []
    return [TILES, VECTORS] if rows <= FEW_ROWS else [TILES]


class Best:
    """The fastest layer so far. At most two are alive at a time."""

    def __init__(self) -> None:
        self.layer: Layer | None = None
        self.seconds, self.tried, self.peak = math.inf, 0, 0

    def consider(self, other: Layer) -> bool:
        """Time it, and close the slower of the two. Whether it is the fastest now."""
        alive = sum(sum(one.memory.values()) for one in (other, self.layer) if one)
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
        self.layer, self.seconds = other, seconds
        return True

    def start_again(self, other: Layer) -> None:
        """With the plan that was found, at the shape that is wanted."""
        self.close()
        self.layer, self.seconds, self.tried = None, math.inf, self.tried - 1
        self.consider(other)

    def close(self) -> None:
        if self.layer:
            self.layer.close()


class Layer:
    """A layer that is loaded, with its inputs and outputs, by one plan."""

    def __init__(self, lstm: native.GpuLstm, path: str, plan: Plan, projection: str):
        self.lstm, self.path, self.plan, self.projection = lstm, path, plan, projection
        self.memory: dict[str, int] = lstm.memory()
        self.peak = sum(self.memory.values())
        self.graph = False

    def stored(self, array: Array) -> Array:
        """An array as the layer holds it on the device."""
        return halves.stored(array, self.plan.storage)

    def outputs(self) -> tuple[Array, Array, Array]:
        """y, h and c of the last call, as float32."""
        y, h, c = (halves.restored(one, self.plan.storage) for one in self.lstm.outputs())
        return y, h, c

    def choose(self, best_s: float) -> float:
        """Seconds per call, and from here on in a graph if that is faster."""
        plain_s = trial(self.lstm, give_up_s=2 * best_s)
        self.lstm.replay(True)
        graph_s = trial(self.lstm, give_up_s=2 * best_s)
        self.in_graph(graph_s < plain_s)
        return min(plain_s, graph_s)

    def in_graph(self, graph: bool) -> None:
        """From here on replay calls as a CUDA graph, or not."""
        self.lstm.replay(graph)
        self.graph = graph
        if graph:
            self.path += ", graph"

    def close(self) -> None:
        self.lstm.release()


def trial(timed: Any, give_up_s: float = math.inf) -> float:
    """Seconds per call: the median of a few milliseconds of calls, after two to warm up.

    A candidate whose warmed call is beyond `give_up_s` is not worth more of them.
    """
    _, warm_ns = timed.time_each(2)
    if warm_ns > give_up_s * 1e9:
        return float(warm_ns) / 1e9
    calls = int(min(max(TRIAL_S * 1e9 / max(warm_ns, 1), 3), 100))
    return float(statistics.median(timed.time_each(calls))) / 1e9


def loaded(call: Call, plan: Plan, projection: str) -> Layer:
    """The layer by one plan. `projection` is `TILES`, `VECTORS`, or what cuBLAS multiplies x in."""
    paths, compiler, _ = toolbox()
    plan, code = compiler.fitted(plan)
    share = share_of(plan, call.sizes[2])
    lstm = native.GpuLstm(
        *(paths, code, product_code(projection, plan.storage)),
        *call.sizes,
        storage=plan.storage,
        projection=projection,
        launch=launch_of(plan, share),
    )
    try:
        lstm.load(*_arrays(call, plan, projection))
    except BaseException:
        lstm.release()
        raise
    return Layer(lstm, path_of(plan, share, projection), plan, projection)


class Share(NamedTuple):
    """How a plan runs calls of one batch size; see gpu_stack.hpp."""

    sequences: int
    shared_bytes: int
    exchange_bytes: int
    together: int


def share_of(plan: Plan, batch: int, directions: int = 1) -> Share:
    """The sequences of a team, and whether the directions run side by side."""
    if plan.shared_bytes(min(batch, plan.sequences)) > plan.room:
        raise Unsupported(f"{plan.label}: not enough shared memory")
    if not (teams := _at_once(plan)):
        raise Unsupported(f"this GPU cannot run a team of {plan.blocks} blocks")
    beside = directions if plan.cluster or teams >= directions else 1
    share = -(-batch // max(1, teams // beside))
    if plan.cluster and plan.shared_bytes(share) > plan.room:
        share = plan.sequences  # some teams after others
    if plan.shared_bytes(share) > plan.room:
        raise Unsupported(f"{plan.label}: not enough shared memory")
    exchange = plan.exchange_bytes(share, -(-batch // share) * beside)
    return Share(share, plan.shared_bytes(share), exchange, int(beside == directions))


_KNOWN: dict[Plan, int] = {}


def _at_once(plan: Plan) -> int:
    """The teams of a plan that run at the same time."""
    paths, compiler, device = toolbox()
    if not plan.cluster or plan.blocks == 1:
        return device["multiprocessors"] // plan.blocks
    if plan not in _KNOWN:
        fitted, code = compiler.fitted(plan)
        alone = Share(fitted.sequences, fitted.shared_bytes(fitted.sequences), 0, 1)
        _KNOWN[plan] = native.resident(paths, code, launch_of(fitted, alone))
    return _KNOWN[plan]


def launch_of(plan: Plan, share: Share) -> native.Launch:
    """How the native library is to run a plan."""
    sizes = {"cluster": plan.cluster, "blocks": plan.blocks, "threads": plan.threads}
    return native.Launch(
        share=share.sequences,
        shared_bytes=share.shared_bytes,
        exchange_bytes=share.exchange_bytes,
        **sizes,
    )


def path_of(plan: Plan, share: Share, projection: str) -> str:
    """How a layer is computed, for people."""
    chunks = plan.chunks(share.sequences)
    turns = f", {chunks} turns" if chunks > 1 else ""
    ours = projection in (TILES, VECTORS)
    return f"{plan.label}{turns}" + (f", input product in {projection}" if ours else "")


def product_code(projection: str, storage: str) -> bytes:
    """The machine code of an input product of our own; empty for cuBLAS."""
    if projection not in (TILES, VECTORS):
        return b""
    constants = {"STORAGE": halves.STORAGES[storage]} if projection == VECTORS else {}
    return toolbox()[1].cached(f"input_{projection}.cu", constants)


class Weights(NamedTuple):
    """The weights of a layer as a plan wants them; both directions, if there are two."""

    w_ih: Array
    weights: Array
    bias: Array
    scale: float
    input_scale: float
    few_w_ih: Array  # for an input product by vectors


def packed(directions: Sequence[Sequence[Array]], plan: Plan, projection: str) -> Weights:
    """`directions` are w_ih, w_hh, b_ih and b_hh of each."""

    def stored(array: Array) -> Array:
        return halves.stored(array, plan.storage)

    def rounded(array: Array) -> Array:  # weights in 16 bits have lost what those lack
        return halves.restored(stored(array), plan.storage)

    rows = np.concatenate([halves.gates_together(w_ih) for w_ih, *_ in directions])
    few = w_ih = stored(rows)
    input_scale = 1.0
    if projection == TILES:
        w_ih, input_scale = halves.pack_input(rows)
    biases = [halves.gates_together(rounded(i) + rounded(h)) for _, _, i, h in directions]
    recurrent = [rounded(w_hh) for _, w_hh, *_ in directions]
    top = max(float(np.abs(w_hh).max(initial=0.0)) for w_hh in recurrent)
    weights, scales = zip(*(plan.pack(w_hh, top) for w_hh in recurrent), strict=True)
    together = np.concatenate(weights), np.concatenate(biases)
    return Weights(w_ih, *together, scales[0], input_scale, few)


def _arrays(call: Call, plan: Plan, projection: str) -> tuple[Any, ...]:
    """What `Lstm.load` takes."""
    weights = packed([(call.w_ih, call.w_hh, call.b_ih, call.b_hh)], plan, projection)
    given = (halves.stored(array, plan.storage) for array in (call.x, call.h0, call.c0))
    return (*given, *weights[:3], weights.scale, weights.input_scale)


@functools.cache
def toolbox() -> Tools:
    """The paths of what the native library drives, the compiler, and the GPU."""
    native.library()
    paths = libraries.cuda()
    try:
        device = native.device(paths)
    except native.LibraryError as error:
        raise Unsupported(f"no GPU answers: {error}") from None
    capability = f"{device['major']}.{device['minor']}"
    if device["major"] < 8:
        raise Unsupported(f"compute capability {capability}: 8.0 or newer is needed")
    architecture = f"sm_{capability.replace('.', '')}" + ("a" if device["major"] >= 9 else "")
    return paths, Compiler(architecture), {**device, **_versions(paths)}


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
