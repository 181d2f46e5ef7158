"""Keras on JAX: its LSTM layer under `jax.jit`; a plain call takes a hundred times longer."""

from __future__ import annotations

from functools import partial
from typing import Any

from lstm_bench.frameworks.jax import session as jax_file
from lstm_bench.model.types import Implementation, Settings
from lstm_bench.worker.function_session import batch_major
from lstm_bench.worker.keras_layer import forward, keras_on, layers, mask_of
from lstm_bench.worker.problem import Problem
from lstm_bench.worker.session import Session

TRAINS = True


def describe(settings: Settings) -> dict[str, Any]:
    """Obey the run's settings, and say what this Keras and this JAX are."""
    described = jax_file.describe(settings)
    described["versions"]["keras"] = keras_on("jax").__version__
    return described


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    """The layer with the problem's weights on the device, compiled for the problem's shape."""
    stack = layers(keras_on("jax"), problem)
    weights = [[variable.value for variable in layer.trainable_variables] for layer in stack]
    # the seed of dropout
    others = [[variable.value for variable in layer.non_trainable_variables] for layer in stack]
    mask = mask_of(problem)

    def run(weights: Any, x: Any, *states: Any) -> Any:
        def call(number: int, *given: Any, **options: Any) -> Any:
            own = weights[number], others[number]
            return stack[number].stateless_call(*own, *given, **options)[0]

        calls = [partial(call, n) for n in range(len(stack))]
        return forward(calls, mask, x, states, problem.shape.training)

    return jax_file.JaxSession(run, weights, batch_major(problem), problem, settings)
