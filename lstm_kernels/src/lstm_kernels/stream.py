"""LSTM layers on a CPU by NumPy alone, which keep their states from call to call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lstm_kernels import native
from lstm_kernels.halves import Array

FLOAT = np.dtype(np.float32)


class Stream:
    """An `nn.LSTM` without PyTorch, for what comes piece by piece.

    `weights` are arrays in the order of `nn.LSTM.parameters()`: of each layer and direction w_ih,
    w_hh and perhaps b_ih, b_hh. They are copied. A call takes x, (timesteps, batch, input), and
    returns y; the next one goes on from the states that it has left. `precision` is fp32, bf16 or
    int8. One call at a time.
    """

    def __init__(
        self,
        weights: Sequence[Any],
        *,
        bias: bool = True,
        bidirectional: bool = False,
        precision: str = "fp32",
        batch: int = 1,
        threads: int = 1,
    ):
        arrays = [np.ascontiguousarray(weight, FLOAT) for weight in weights]
        directions, each = 1 + bidirectional, 4 if bias else 2
        layers, rest = divmod(len(arrays), directions * each)
        if rest or not layers:
            raise ValueError(
                f"weights: expected {directions * each} arrays for each layer, found {len(arrays)}"
            )
        self.hidden, self.input_size = arrays[1].shape[1], arrays[0].shape[1]
        self.batch, self.threads = batch, threads
        self._states, self._width = layers * directions, directions * self.hidden
        for i, array in enumerate(arrays):
            inputs = self.input_size if i < directions * each else self._width
            rows = 4 * self.hidden
            want = [(rows, inputs), (rows, self.hidden), (rows,), (rows,)][i % each]
            if array.shape != want:
                raise ValueError(f"weights[{i}]: expected shape {want}, found {array.shape}")
        sizes = self.input_size, self.hidden, layers, directions, int(bias)
        self._native = native.Stream(sizes, arrays, precision)
        self.reset()

    def reset(self, h0: Any = None, c0: Any = None, batch: int | None = None) -> None:
        """Begin anew, from zeros or from states (layers x directions, batch, hidden)."""
        given = [None if s is None else np.ascontiguousarray(s, FLOAT) for s in (h0, c0)]
        sizes = {state.shape[1] for state in given if state is not None and state.ndim == 3}
        self.batch = batch or (sizes.pop() if sizes else self.batch)
        want = self._states, self.batch, self.hidden
        for name, state in zip(("h0", "c0"), given, strict=True):
            if state is not None and state.shape != want:
                raise ValueError(f"{name}: expected shape {want}, found {state.shape}")
        self._native.reset(self.batch, *given)

    def __call__(self, x: Array) -> Array:
        """y, (timesteps, batch, directions x hidden)."""
        if type(x) is not np.ndarray or x.dtype is not FLOAT or not x.flags.c_contiguous:
            x = np.ascontiguousarray(x, FLOAT)
        shape = x.shape
        if len(shape) != 3 or shape[1] != self.batch or shape[2] != self.input_size or not shape[0]:
            want = f"(timesteps, {self.batch}, {self.input_size})"
            raise ValueError(f"x: expected shape {want}, found {shape}")
        y = np.empty((shape[0], self.batch, self._width), FLOAT)
        self._native.run(x, shape[0], self.threads, y)
        return y

    @property
    def state(self) -> tuple[Array, Array]:
        """h and c, from which the next call goes on."""
        h, c = (np.empty((self._states, self.batch, self.hidden), FLOAT) for _ in range(2))
        self._native.state(h, c)
        return h, c
