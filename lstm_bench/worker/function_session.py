"""A layer that is a function of the input and the states, as TensorFlow, Keras and JAX have it.

A training step is such a function too: behind output and states come the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lstm_bench.model.types import Settings
from lstm_bench.worker.problem import Array, Problem
from lstm_bench.worker.session import Session


class FunctionSession(Session):
    """Calls `run(x, *states)`, which gives (output, *states): h and c of each layer and direction.

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

    @property
    def last_states(self) -> tuple[Array, Array]:
        """The final h and c of the last call."""
        last = self.result[1 : 1 + len(self.start)]
        states = [np.asarray(state).astype(np.float32) for state in last]
        return np.stack(states[::2]), np.stack(states[1::2])

    @property
    def gradients(self) -> list[Array]:
        """Those of the last call; none in inference."""
        behind = self.result[1 + len(self.start) :]
        return [np.asarray(gradient).astype(np.float32) for gradient in behind]


def states_of(problem: Problem) -> list[Array]:
    """The initial h and c of each layer and direction in turns."""
    return [state for pair in zip(problem.h0, problem.c0, strict=True) for state in pair]


def upstream_of(problem: Problem) -> list[Array]:
    """The gradients of the output as (B, T, ...) and of each state in turns; none in inference."""
    if not problem.upstream:
        return []
    dy, dh, dc = problem.upstream
    states = [state for pair in zip(dh, dc, strict=True) for state in pair]
    return [np.ascontiguousarray(dy.transpose(1, 0, 2)), *states]


def in_problems_layout(gradients: Sequence[Array], states: int) -> list[Array]:
    """Gradients of x (B, T, I), each state and Keras' weights, as an answer has them."""
    if not gradients:
        return []
    dx, *others = gradients
    own, weights = others[:states], others[states:]
    result = [dx.transpose(1, 0, 2), np.stack(own[::2]), np.stack(own[1::2])]
    for kernel, recurrent, bias in zip(*(weights[n::3] for n in range(3)), strict=True):
        result += [kernel.T, recurrent.T, bias, bias]
    return result


def batch_major(problem: Problem) -> Array:
    """The input as (B, T, I)."""
    return np.ascontiguousarray(problem.x.transpose(1, 0, 2))
