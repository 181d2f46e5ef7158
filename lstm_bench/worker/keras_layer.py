"""Keras' LSTM layer on the backend that its file asks for: a process has one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lstm_bench.model.types import Unsupported
from lstm_bench.worker.problem import Problem


def keras_on(backend: str) -> Any:
    """Keras, imported for this backend."""
    os.environ["KERAS_BACKEND"] = backend
    import keras

    running = keras.config.backend()
    if running != backend:
        raise Unsupported(f"Keras runs on {running} in this process, expected {backend}")
    return keras


def layers(keras: Any, problem: Problem, **options: Any) -> list[Any]:
    """The layers as a user makes them, but with the problem's weights."""
    shape, made = problem.shape, []
    for number, width in enumerate(shape.widths):
        layer = keras.layers.LSTM(
            shape.hidden,
            return_sequences=True,
            return_state=True,
            kernel_initializer="zeros",  # weights are set below; the default takes seconds
            recurrent_initializer="zeros",
            **options,
        )
        if shape.directions == 2:
            layer = keras.layers.Bidirectional(layer)
        layer.build((shape.batch, shape.timesteps, width))
        own = problem.weights[number * shape.directions :][: shape.directions]
        arrays = [(w.w_ih.T, w.w_hh.T, w.b_ih + w.b_hh) for w in own]
        layer.set_weights([array for three in arrays for array in three])
        made.append(layer)
    return made


def forward(
    calls: Sequence[Callable[..., Any]],
    mask: Any,
    x: Any,
    states: Sequence[Any],
    training: bool = False,
) -> Any:
    """(output, *states) by a call of each layer; `mask` (B, T) ends sequences, None: all full."""
    after: list[Any] = []
    each = len(states) // len(calls)
    for number, call in enumerate(calls):
        own = list(states[number * each :][:each])
        x, *last = call(x, initial_state=own, mask=mask, training=training)
        after += last
    return (x, *after)


def mask_of(problem: Problem) -> Any:
    """(B, T), where sequences last; None if all are full."""
    lengths = problem.lengths()
    return None if lengths is None else np.arange(problem.shape.timesteps) < np.c_[lengths]
