"""One LSTM problem per shape: seeded weights and inputs, and the float64 answer to it.

Every implementation gets these arrays and nothing else, so all do the same work:

    gates(t) = x(t) W_ih' + b_ih + h(t-1) W_hh' + b_hh        rows of W in the order i, f, g, o
    c(t) = sigmoid(f) c(t-1) + sigmoid(i) tanh(g)
    h(t) = sigmoid(o) tanh(c(t))

A layer of a stack reads what the layer below puts out; the backward direction of a layer starts at
the last step of each sequence. A sequence that has ended keeps its states, and what is put out
beyond its end counts for nothing.

A training step is a forward and a backward pass: from `upstream`, the gradients of output, final h
and final c, to those of x, h0, c0 and of every weight; see `gradient.py`.

`lstm-skip-input` is what DeepBench runs: x(t) is added to each gate as it is.
`lstm-padded` takes no heed of lengths.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstm_bench.model.types import Check, Shape, Unsupported
from lstm_bench.worker.gradient import Tape, backward

Array = NDArray[Any]
#: Output (T, B, directions x H), final h and final c (layers x directions, B, H); of a training
#: step also the gradients of x, h0, c0 and of each of `Problem.arrays`.
Answer = tuple[Array, ...]

PADDED = "lstm-padded"
_CHUNK_BYTES = 256 << 20  # of float64 input products held at once
_PART = 1 << 15  # values that are worth a thread of their own


@dataclass(frozen=True, eq=False)
class Weights:
    """A layer in one direction as PyTorch has it: w_ih is (4H, I), w_hh (4H, H)."""

    w_ih: Array
    w_hh: Array
    b_ih: Array
    b_hh: Array


@dataclass(frozen=True, eq=False)
class Problem:
    """Float32 arrays in PyTorch's layout: x is (T, B, I), h0 and c0 (layers x directions, B, H).

    `weights` are by layer, and by direction within a layer.
    """

    shape: Shape
    x: Array
    h0: Array
    c0: Array
    weights: tuple[Weights, ...]
    upstream: tuple[Array, ...] = ()  # of a training step; zero beyond the end of a sequence
    _shared: dict[str, Any] = field(default_factory=dict, repr=False)

    def shared(self, key: str, make: Callable[[], Any]) -> Any:
        """Make once what implementations of a worker hold in common, such as x on the device."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    @property
    def held(self) -> int:
        """The number of things that are held in common so far."""
        return len(self._shared)

    def lengths(self, computes: str = "lstm") -> list[int] | None:
        """The length of each sequence that counts for an implementation; None: all are full."""
        each = self.shape.each_length
        whole = computes == PADDED or min(each) == self.shape.timesteps
        return None if whole else each

    @property
    def arrays(self) -> list[Array]:
        """All weights in the order of `nn.LSTM.parameters`."""
        return [array for weights in self.weights for array in vars(weights).values()]

    @property
    def single(self) -> tuple[Array, ...]:
        """x, h0, c0, w_ih, w_hh, b_ih and b_hh, for what runs the plainest layer alone."""
        if beyond := self.shape.beyond:
            raise Unsupported(f"it runs {', '.join(beyond)} only")
        return self.x, self.h0[0], self.c0[0], *self.arrays


def make(shape: Shape, seed: int) -> Problem:
    """The problem of this shape and seed: the same arrays in every process and on every machine.

    Biases and states are large enough that a mistake in any of them shows in every precision. Steps
    beyond the end of a sequence are filled like the others: a row that reads them is wrong.
    """
    h, b, t, i = shape.hidden, shape.batch, shape.timesteps, shape.input_size
    count = shape.layers * shape.directions
    stack = [shape.layers, shape.directions] if count > 1 else []
    rng = np.random.default_rng([seed, h, b, t, i, *stack])

    def uniform(limit: float, *size: int) -> Array:
        return rng.uniform(-limit, limit, size).astype(np.float32)

    posed = Problem(
        shape=shape,
        x=rng.standard_normal((t, b, i), dtype=np.float32),
        h0=uniform(0.9, count, b, h),
        c0=uniform(1.5, count, b, h),
        weights=tuple(
            Weights(
                w_ih=uniform(width**-0.5, 4 * h, width),
                w_hh=uniform(h**-0.5, 4 * h, h),
                b_ih=uniform(0.7, 4 * h),
                b_hh=uniform(0.7, 4 * h),
            )
            for width in shape.widths
            for _ in range(shape.directions)
        ),
    )
    if not shape.training:
        return posed
    sizes = (t, b, shape.directions * h), (count, b, h), (count, b, h)
    dy, dh, dc = (rng.standard_normal(size, dtype=np.float32) for size in sizes)
    dy[np.arange(t)[:, None] >= np.array(shape.each_length)] = 0  # drawn last: x is as in inference
    return replace(posed, upstream=(dy, dh, dc))


def repeated(problem: Problem, calls: int) -> Problem:
    """The problem that `calls` calls solve which carry their states on: the input repeated."""
    shape = replace(problem.shape, timesteps=calls * problem.shape.timesteps)
    return replace(problem, shape=shape, x=np.tile(problem.x, (calls, 1, 1)), _shared={})


def reference(problem: Problem, computes: str = "lstm") -> Answer:
    """The answer in float64; where a batch is large its rows are shared among threads."""
    s = problem.shape
    if computes == "lstm-skip-input":
        check_skippable(s)
    lengths = problem.lengths(computes)
    ends = None if lengths is None else np.array(lengths)
    h, c = problem.h0.astype(np.float64), problem.c0.astype(np.float64)
    x = problem.x
    tapes = [Tape() for _ in problem.weights] if s.training else []
    for layer in range(s.layers):
        outputs = []
        for direction in range(s.directions):
            place = layer * s.directions + direction
            weights, states = problem.weights[place], (h[place], c[place])
            order = _backwards(s, ends) if direction else None
            given = x if order is None else np.take_along_axis(x, order, 0)
            tape = tapes[place] if tapes else None
            output = _direction(given, weights, *states, ends, computes == "lstm-skip-input", tape)
            outputs.append(output if order is None else np.take_along_axis(output, order, 0))
            if tape:
                tape.order = order
        x = outputs[0] if s.directions == 1 else np.concatenate(outputs, axis=2)
    if not s.training:
        return x, h, c
    return x, h, c, *backward(tapes, s.directions, problem.upstream, ends)


def _backwards(shape: Shape, ends: Array | None) -> Array:
    """Indices (T, B, 1) that turn each sequence round and leave what is beyond its end."""
    steps = np.arange(shape.timesteps)[:, None]
    last = (shape.timesteps if ends is None else ends) - 1
    turned = np.where(steps <= last, last - steps, steps)
    return np.broadcast_to(turned, (shape.timesteps, shape.batch))[:, :, None]


def _direction(
    x: Array,
    weights: Weights,
    h: Array,
    c: Array,
    ends: Array | None,
    skip_input: bool,
    tape: Tape | None = None,
) -> Array:
    """One layer in one direction from the states h and c, which become the last ones."""
    timesteps, batch, width = x.shape
    hidden = h.shape[1]
    w_ih, w_hh, bias = (
        np.asarray(v, np.float64).T
        for v in (weights.w_ih, weights.w_hh, weights.b_ih.astype(np.float64) + weights.b_hh)
    )
    output = np.empty((timesteps, batch, hidden))
    chunk = max(1, _CHUNK_BYTES // (8 * batch * 4 * hidden))
    parts = _parts(batch, 4 * hidden)
    before = h.copy()
    if tape:
        chunk, tape.cells = timesteps, np.empty((timesteps, batch, hidden))
        tape.x, tape.h0, tape.c0, tape.output = x, h.copy(), c.copy(), output
        tape.w_ih, tape.w_hh = weights.w_ih, weights.w_hh
    with ThreadPoolExecutor(len(parts)) as pool:
        each = pool.map if len(parts) > 1 else map
        for start in range(0, timesteps, chunk):
            rows = x[start : start + chunk].astype(np.float64).reshape(-1, width)  # one product
            from_input = np.tile(rows, 4) if skip_input else rows @ w_ih
            from_input += bias
            if tape:
                tape.gates = from_input.reshape(-1, batch, 4 * hidden)  # the cells fill them
            for step, gates in enumerate(from_input.reshape(-1, batch, 4 * hidden), start):
                gates += before @ w_hh
                kept = None if ends is None else (ends <= step, before, c.copy())
                before = output[step]
                shares = zip(*((gates[p], c[p], before[p]) for p in parts), strict=True)
                list(each(_cell, *shares))
                if kept:  # sequences that have ended keep their states
                    over, h_kept, c_kept = kept
                    before[over], c[over] = h_kept[over], c_kept[over]
                if tape:
                    tape.cells[step] = c
    h[:] = before
    return output


def check_skippable(shape: Shape) -> None:
    """Refuse a shape whose input cannot be added to the gates without its projection."""
    if shape.input_size != shape.hidden or shape.beyond:
        raise Unsupported(
            "skipping the input projection needs inference, one layer, and an input as wide as it"
        )


def _cell(gates: Array, c: Array, h: Array) -> None:
    """The gates and the new states of some rows, in place."""
    i, f, g, o = np.split(gates, 4, axis=1)
    np.tanh(g, out=g)
    for gate in (i, f, o):
        gate[:] = _sigmoid(gate)
    c *= f
    c += i * g
    np.multiply(o, np.tanh(c), out=h)


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


def names(answer: Answer) -> list[str]:
    """The name of each array; `dw_hh[2]`: of layer and direction 2, counted from 0."""
    weights = [f"d{name}" for name in Weights.__dataclass_fields__]
    places = range((len(answer) - 6) // len(weights))
    own = [f"{name}[{place}]" if len(places) > 1 else name for place in places for name in weights]
    return ["output", "final h", "final c", "dx", "dh0", "dc0", *own][: len(answer)]


def check(
    answer: Answer, expected: Answer, tolerance: float, lengths: Sequence[int] | None = None
) -> Check:
    """Hold an answer against the reference; NaN, infinity and a wrong shape all fail.

    What is put out beyond the end of a sequence, by `lengths`, counts for nothing, nor does its dx.
    """
    worst_abs, worst_rel = 0.0, 0.0
    reasons = []
    for name, got, want in zip(names(expected), answer, expected, strict=True):
        if got.shape != want.shape:
            reason = f"{name} has shape {got.shape}, expected {want.shape}"
            return Check(float("inf"), float("inf"), tolerance, False, reason)
        if lengths and name in ("output", "dx"):
            inside = np.arange(len(got))[:, None] < np.array(lengths)
            got, want = got[inside], want[inside]
        error, scale = _largest(got, want)
        if name in names(expected)[3:]:  # a gradient is a sum over steps and sequences
            error, scale = error / max(1.0, scale), scale / max(1.0, scale)
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
