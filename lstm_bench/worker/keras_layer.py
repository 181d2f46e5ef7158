"""Keras' LSTM layer on the backend that its file asks for: a process has one."""

from __future__ import annotations

import os
from typing import Any

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


def layer(keras: Any, problem: Problem, **options: Any) -> Any:
    """A layer as a user makes it, but with the problem's weights."""
    made = keras.layers.LSTM(
        problem.shape.hidden,
        return_sequences=True,
        return_state=True,
        kernel_initializer="zeros",  # weights are set below; the default takes seconds
        recurrent_initializer="zeros",
        **options,
    )
    made.build((problem.shape.batch, problem.shape.timesteps, problem.shape.input_size))
    made.set_weights([problem.w_ih.T, problem.w_hh.T, problem.b_ih + problem.b_hh])
    return made
