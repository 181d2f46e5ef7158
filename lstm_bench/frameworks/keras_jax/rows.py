"""Keras on JAX."""

from __future__ import annotations

from lstm_bench.frameworks.code import KERAS, arrays
from lstm_bench.frameworks.jax.rows import STRICT
from lstm_bench.model.framework import CPU, Cost, Framework
from lstm_bench.model.types import Implementation

_CODE = """\
weights = [v.value for v in layer.trainable_variables]
others = [v.value for v in layer.non_trainable_variables]
fast = jax.jit(lambda x, h, c: layer.stateless_call(
    weights, others, x, initial_state=[h, c], training=False)[0])
"""


def code(row: Implementation, device: str) -> str:
    """Keras' layer as a function without state, compiled by XLA."""
    start = 'import os\nos.environ["KERAS_BACKEND"] = "jax"\n'
    start += "import jax\nimport jax.numpy as jnp\nimport keras\n"
    start += (STRICT if device == "cuda" else "") + KERAS.format(options="")
    return start + _CODE + arrays("jnp.asarray") + "output, h, c = fast(x, h0, c0)"


KERAS_JAX = Framework(
    "keras-jax",
    ("keras", "jax", "numpy"),
    ("keras", "jax", "jaxlib"),
    "pip install keras jax, on a GPU keras 'jax[cuda13]'",
    on_top_of="jax",
    costs={
        "cpu": {"": Cost(3e-4, 6e-5, 4e10, 5.0, 0.8)},
        "cuda": {"": Cost(2.8e-4, 1.4e-5, 3.3e13, 1.0, 0.2, 0.02)},
    },
    start_s=(6.0, 6.0),
    colour="#c51b7d",
    code=code,
)
FRAMEWORKS = (KERAS_JAX,)

ROWS = (KERAS_JAX.row("keras-jax", "Keras LSTM on JAX, under jit", default_on=CPU),)
