"""A layer that is a function of the input and the states, as TensorFlow, Keras and JAX have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lstm_bench.model.types import Settings
from lstm_bench.worker.problem import Array, Problem
from lstm_bench.worker.session import Session


class FunctionSession(Session):
    """Calls `run(x, h, c)`, which gives (output, h, c).

    That is `forward`; where x lies in host memory a subclass sets `run` to copy x and y around it.
    """

    carries = True

    def __init__(self, forward: Any, inputs: Sequence[Any], settings: Settings):
        self.run = self.forward = forward
        self.result = inputs  # to wait for, until there is an answer
        self.x, *self.start = inputs
        self.states: Sequence[Any] = self.start
        if settings.state == "carried":
            self.call = self._carry_on  # type: ignore[method-assign]

    def call(self) -> None:
        self.result = self.run(self.x, *self.states)

    def _carry_on(self) -> None:
        self.result = self.run(self.x, *self.states)
        self.states = self.result[1:]

    def restart(self) -> None:
        self.states = self.start

    def close(self) -> None:
        self.run = self.forward = self.x = None
        self.start, self.states, self.result = [], [], []


def batch_major(problem: Problem) -> Array:
    """The input as (B, T, I)."""
    return np.ascontiguousarray(problem.x.transpose(1, 0, 2))
