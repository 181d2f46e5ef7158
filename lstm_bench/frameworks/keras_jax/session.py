"""Keras on JAX: its LSTM layer under `jax.jit`; a plain call takes a hundred times longer."""

from __future__ import annotations

from typing import Any

from lstm_bench.frameworks.jax import session as jax_file
from lstm_bench.model.types import Implementation, Settings
from lstm_bench.worker.function_session import batch_major
from lstm_bench.worker.keras_layer import keras_on, layer
from lstm_bench.worker.problem import Problem
from lstm_bench.worker.session import Session


def describe(settings: Settings) -> dict[str, Any]:
    """Obey the run's settings, and say what this Keras and this JAX are."""
    described = jax_file.describe(settings)
    described["versions"]["keras"] = keras_on("jax").__version__
    return described


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    """The layer with the problem's weights on the device, compiled for the problem's shape."""
    lstm = layer(keras_on("jax"), problem)
    weights = [variable.value for variable in lstm.trainable_variables]
    others = [variable.value for variable in lstm.non_trainable_variables]  # the seed of dropout

    def forward(weights: Any, x: Any, h: Any, c: Any) -> Any:
        result, _ = lstm.stateless_call(weights, others, x, initial_state=[h, c], training=False)
        return tuple(result)

    return jax_file.JaxSession(forward, weights, batch_major(problem), problem, settings)
