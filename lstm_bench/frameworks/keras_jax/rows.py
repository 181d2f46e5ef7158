"""The rows of keras_jax, and what they need."""

from __future__ import annotations

from lstm_bench.model.framework import Framework
from lstm_bench.model.types import Implementation

FRAMEWORKS = (
    Framework(
        "keras-jax",
        ("keras", "jax", "numpy"),
        ("keras", "jax", "jaxlib"),
        "pip install keras jax, on a GPU keras 'jax[cuda13]'",
    ),
)

ROWS = (
    Implementation(
        "keras-jax",
        "keras-jax",
        "fp32",
        "keras_jax",
        default_on=("cpu",),
        note="Keras LSTM on JAX, under jit",
    ),
)
