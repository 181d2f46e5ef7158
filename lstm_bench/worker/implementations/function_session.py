"""A layer that is a function of the input and the states, as TensorFlow, Keras and JAX have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_bench.worker.implementations.session import Session
from lstm_bench.worker.problem import Array, Problem


class FunctionSession(Session):
    """Calls `forward(x, h, c)`, which gives (output, h, c)."""

    carries = True

    def __init__(self, forward: Callable[..., Any], x: Any, h0: Any, c0: Any, carried: bool):
        self.forward, self.x, self.start = forward, x, (h0, c0)
        self.result: Any = (x, h0, c0)  # what there is to wait for before the first call
        self.restart()
        if carried:
            self.call = self._carry_on  # type: ignore[method-assign]

    def call(self) -> None:
        self.result = self.forward(self.x, *self.states)

    def _carry_on(self) -> None:
        self.result = self.forward(self.x, *self.states)
        self.states = self.result[1:]

    def restart(self) -> None:
        self.states = self.start

    def close(self) -> None:
        self.forward = self.x = self.start = self.states = self.result = None  # type: ignore[assignment]


def batch_major(problem: Problem) -> Array:
    """The input as (B, T, I)."""
    return np.ascontiguousarray(problem.x.transpose(1, 0, 2))
