"""The gradients of an LSTM in float64, by hand: the reference of a training step.

`upstream` holds the gradients dy, dh and dc of output, final h and final c. Backwards in time:

    dh += dy(t)
    dc += dh sigmoid(o) (1 - tanh(c(t))^2)
    dgates = dc tanh(g) i', dc c(t-1) f', dc sigmoid(i) g', dh tanh(c(t)) o'      by their inputs
    dh, dc = dgates W_hh, dc sigmoid(f)

and over all steps dx = dgates W_ih, dW_ih = dgates' x, dW_hh = dgates' h(t-1), db = sum of dgates.
A gate adds both of its biases: db is the gradient of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(init=False)
class Tape:
    """A layer in one direction after its forward pass, its steps in the order of that pass."""

    x: Array
    h0: Array
    c0: Array
    w_ih: Array
    w_hh: Array
    gates: Array  # (T, B, 4H): sigmoid and tanh of i, f, g, o; the backward pass overwrites them
    cells: Array  # (T, B, H)
    output: Array
    order: Array | None = None  # the indices that turn its sequences round


def backward(
    tapes: Sequence[Tape], directions: int, upstream: Sequence[Array], ends: Array | None
) -> list[Array]:
    """The gradients of x, h0 and c0, then of w_ih, w_hh, b_ih and b_hh by layer and direction."""
    dy, dh, dc = (array.astype(np.float64) for array in upstream)
    weights: list[list[Array]] = []
    for first in reversed(range(0, len(tapes), directions)):
        sides, own = [], []
        for place in range(first, first + directions):
            tape, side = tapes[place], place - first
            hidden = tape.output.shape[2]
            part = dy[:, :, side * hidden : (side + 1) * hidden]
            part = part if tape.order is None else np.take_along_axis(part, tape.order, 0)
            dgates = _through_time(tape, part, dh[place], dc[place], ends)
            given = (dgates @ tape.w_ih).reshape(*dy.shape[:2], -1)
            order = tape.order
            sides.append(given if order is None else np.take_along_axis(given, order, 0))
            before = np.concatenate([tape.h0[None], tape.output[:-1]]).reshape(-1, hidden)
            x, bias = tape.x.reshape(len(dgates), -1), dgates.sum(axis=0)
            own += [dgates.T @ x, dgates.T @ before, bias, bias]
        weights.insert(0, own)
        dy = np.sum(sides, axis=0)
    return [dy, dh, dc, *(array for own in weights for array in own)]


def _through_time(tape: Tape, dy: Array, dh: Array, dc: Array, ends: Array | None) -> Array:
    """The gradients (T x B, 4H) of all gates; dh and dc, of the last states, become the first's."""
    w_hh = tape.w_hh.astype(np.float64)
    for step in reversed(range(len(dy))):
        i, f, g, o = np.split(tape.gates[step], 4, axis=1)
        before = tape.cells[step - 1] if step else tape.c0
        tanh_c = np.tanh(tape.cells[step])
        to_h = dh + dy[step]
        to_c = dc + to_h * o * (1 - tanh_c**2)
        carried = to_c * f
        into = to_c * g * i * (1 - i), to_c * before * f * (1 - f), to_c * i * (1 - g**2)
        dgates = np.concatenate([*into, to_h * tanh_c * o * (1 - o)], axis=1)
        before_h = dgates @ w_hh
        if ends is not None:  # a sequence that has ended passes them on
            over = ends <= step
            dgates[over], before_h[over], carried[over] = 0, dh[over], dc[over]
        dh[:], dc[:] = before_h, carried
        tape.gates[step] = dgates
    return tape.gates.reshape(-1, tape.gates.shape[2])
