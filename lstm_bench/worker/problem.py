"""One LSTM problem per shape: seeded weights and inputs, and the float64 answer to it.

Every implementation gets these arrays and nothing else, so all do the same work:

    gates(t) = x(t) W_ih' + b_ih + h(t-1) W_hh' + b_hh        rows of W in the order i, f, g, o
    c(t) = sigmoid(f) c(t-1) + sigmoid(i) tanh(g)
    h(t) = sigmoid(o) tanh(c(t))

`lstm-skip-input` is what DeepBench runs: x(t) is added to each gate as it is.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstm_bench.model.types import Check, Shape, Unsupported

Array = NDArray[Any]
Answer = tuple[Array, Array, Array]  # output (T, B, H), final h (B, H), final c (B, H)

_CHUNK_BYTES = 256 << 20  # of float64 input products held at once
_PART = 1 << 15  # values that are worth a thread of their own


@dataclass(frozen=True, eq=False)
class Problem:
    """Float32 arrays in PyTorch's layout: x is (T, B, I), w_ih (4H, I), w_hh (4H, H)."""

    shape: Shape
    x: Array
    h0: Array
    c0: Array
    w_ih: Array
    w_hh: Array
    b_ih: Array
    b_hh: Array
    _shared: dict[str, Any] = field(default_factory=dict, repr=False)

    def shared(self, key: str, make: Callable[[], Any]) -> Any:
        """Make once what implementations of a worker hold in common, such as x on the device."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    @property
    def held(self) -> int:
        """How many things are held in common so far."""
        return len(self._shared)


def make(shape: Shape, seed: int) -> Problem:
    """The problem of this shape and seed: the same arrays in every process and on every machine.

    Biases and states are large enough that a mistake in any of them shows in every precision.
    """
    h, b, t, i = shape.hidden, shape.batch, shape.timesteps, shape.input_size
    rng = np.random.default_rng([seed, h, b, t, i])

    def uniform(limit: float, *size: int) -> Array:
        return rng.uniform(-limit, limit, size).astype(np.float32)

    return Problem(
        shape=shape,
        x=rng.standard_normal((t, b, i), dtype=np.float32),
        h0=uniform(0.9, b, h),
        c0=uniform(1.5, b, h),
        w_ih=uniform(i**-0.5, 4 * h, i),
        w_hh=uniform(h**-0.5, 4 * h, h),
        b_ih=uniform(0.7, 4 * h),
        b_hh=uniform(0.7, 4 * h),
    )


def repeated(problem: Problem, calls: int) -> Problem:
    """The problem that `calls` calls solve which carry their states on: the input repeated."""
    shape = replace(problem.shape, timesteps=calls * problem.shape.timesteps)
    return replace(problem, shape=shape, x=np.tile(problem.x, (calls, 1, 1)), _shared={})


def reference(problem: Problem, computes: str = "lstm") -> Answer:
    """The answer in float64; where a batch is large its rows are shared among threads."""
    s = problem.shape
    if computes == "lstm-skip-input":
        check_skippable(s)
    w_ih, w_hh, bias = (
        np.asarray(v, np.float64).T
        for v in (problem.w_ih, problem.w_hh, problem.b_ih.astype(np.float64) + problem.b_hh)
    )
    h, c = problem.h0.astype(np.float64), problem.c0.astype(np.float64)
    output = np.empty((s.timesteps, s.batch, s.hidden))
    chunk = max(1, _CHUNK_BYTES // (8 * s.batch * 4 * s.hidden))
    parts = _parts(s.batch, 4 * s.hidden)
    with ThreadPoolExecutor(len(parts)) as pool:
        each = pool.map if len(parts) > 1 else map
        for start in range(0, s.timesteps, chunk):
            x = problem.x[start : start + chunk].astype(np.float64)
            rows = x.reshape(-1, s.input_size)  # one product, not one a step
            from_input = np.tile(rows, 4) if computes == "lstm-skip-input" else rows @ w_ih
            from_input += bias
            from_input = from_input.reshape(len(x), s.batch, -1)
            for step, gates in enumerate(from_input, start):
                gates += h @ w_hh
                h = output[step]
                list(each(_cell, *zip(*((gates[p], c[p], h[p]) for p in parts), strict=True)))
    return output, h.copy(), c


def check_skippable(shape: Shape) -> None:
    """Refuse a shape whose input cannot be added to the gates without its projection."""
    if shape.input_size != shape.hidden:
        raise Unsupported("skipping the input projection needs an input as wide as the hidden size")


def _cell(gates: Array, c: Array, h: Array) -> None:
    """The new states of some rows, in place."""
    i, f, g, o = np.split(gates, 4, axis=1)
    c *= _sigmoid(f)
    c += _sigmoid(i) * np.tanh(g)
    np.multiply(_sigmoid(o), np.tanh(c), out=h)


def _sigmoid(v: Array) -> Array:
    v = np.tanh(0.5 * v)
    v += 1.0
    v *= 0.5
    return v


def _parts(rows: int, width: int) -> list[slice]:
    """Rows in as many parts as there are cores, none too small to be worth a thread."""
    count = max(1, min(os.cpu_count() or 1, rows, rows * width // _PART))
    edges = [rows * n // count for n in range(count + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def check(answer: Answer, expected: Answer, tolerance: float) -> Check:
    """Hold an answer against the reference; NaN, infinity and a wrong shape all fail."""
    worst_abs, worst_rel = 0.0, 0.0
    reasons = []
    for name, got, want in zip(("output", "final h", "final c"), answer, expected, strict=True):
        if got.shape != want.shape:
            reason = f"{name} has shape {got.shape}, expected {want.shape}"
            return Check(float("inf"), float("inf"), tolerance, False, reason)
        error, scale = _largest(got, want)
        # np.max, not max: NaN must win
        worst_abs = float(np.max([worst_abs, error]))
        worst_rel = float(np.max([worst_rel, error / max(scale, 1e-30)]))
        if not error <= tolerance * max(1.0, scale):
            reasons.append(f"{name} is off by {error:.3g}")
    reason = ""
    if reasons:
        reason = "; ".join(reasons) + f" (tolerance {tolerance:g})"
    return Check(worst_abs, worst_rel, tolerance, not reasons, reason)


def _largest(got: Array, want: Array) -> tuple[float, float]:
    """The largest |got - want| and the largest |want|, row by row: outputs can fill gigabytes."""

    def over(rows: slice) -> tuple[float, float]:
        with np.errstate(invalid="ignore"):
            pairs = [
                (np.abs(g - w).max(), np.abs(w).max())
                for g, w in zip(got[rows], want[rows], strict=True)
            ]
        error, scale = np.max(pairs, axis=0)
        return float(error), float(scale)

    parts = _parts(len(got), got[0].size)
    with ThreadPoolExecutor(len(parts)) as pool:
        error, scale = np.max(list(pool.map(over, parts)), axis=0)
    return float(error), float(scale)
