"""One LSTM problem per shape: seeded weights and inputs, and the float64 answer to it.

Every implementation gets these arrays and nothing else, so all do the same work:

    gates(t) = x(t) W_ih' + b_ih + h(t-1) W_hh' + b_hh        rows of W in the order i, f, g, o
    c(t) = sigmoid(f) c(t-1) + sigmoid(i) tanh(g)
    h(t) = sigmoid(o) tanh(c(t))

`lstm-skip-input` is what DeepBench runs: x(t) is added to each gate as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstm_bench.model import Check, Shape

Array = NDArray[Any]
Answer = tuple[Array, Array, Array]  # output (T, B, H), final h (B, H), final c (B, H)

_CHUNK_BYTES = 256 << 20  # of float64 input products held at once


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
        """What several implementations of a worker may hold in common, such as x on the device."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]


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


def _sigmoid(v: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * v)))


def reference(problem: Problem, computes: str = "lstm") -> Answer:
    """The answer in float64, written for reading rather than for speed."""
    s = problem.shape
    w_ih, w_hh, bias = (
        np.asarray(v, np.float64).T
        for v in (problem.w_ih, problem.w_hh, problem.b_ih.astype(np.float64) + problem.b_hh)
    )
    h, c = problem.h0.astype(np.float64), problem.c0.astype(np.float64)
    output = np.empty((s.timesteps, s.batch, s.hidden))
    chunk = max(1, _CHUNK_BYTES // (8 * s.batch * 4 * s.hidden))
    for start in range(0, s.timesteps, chunk):
        x = problem.x[start : start + chunk].astype(np.float64)
        from_input = np.tile(x, 4) if computes == "lstm-skip-input" else x @ w_ih
        for step, part in enumerate(from_input, start):
            i, f, g, o = np.split(part + h @ w_hh + bias, 4, axis=1)
            c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
            h = _sigmoid(o) * np.tanh(c)
            output[step] = h
    return output, h, c


def check(answer: Answer, expected: Answer, tolerance: float) -> Check:
    """Hold an answer against the reference; NaN, infinity and a wrong shape all fail."""
    worst_abs, worst_rel = 0.0, 0.0
    reasons = []
    for name, got, want in zip(("output", "final h", "final c"), answer, expected, strict=True):
        if got.shape != want.shape:
            reason = f"{name} has shape {got.shape}, expected {want.shape}"
            return Check(float("inf"), float("inf"), tolerance, False, reason)
        rows = zip(got, want, strict=True)  # row by row: the largest outputs fill gigabytes
        with np.errstate(invalid="ignore"):
            error = float(np.max([np.abs(g - w).max() for g, w in rows]))
        scale = float(np.abs(want).max())
        # np.max, not max: NaN must win
        worst_abs = float(np.max([worst_abs, error]))
        worst_rel = float(np.max([worst_rel, error / max(scale, 1e-30)]))
        if not error <= tolerance * max(1.0, scale):
            reasons.append(f"{name} is off by {error:.3g}")
    reason = ""
    if reasons:
        reason = "; ".join(reasons) + f" (tolerance {tolerance:g})"
    return Check(worst_abs, worst_rel, tolerance, not reasons, reason)
