"""The rows of jax, and what they need."""

from __future__ import annotations

from lstm_bench.model.framework import Framework
from lstm_bench.model.types import Implementation

FRAMEWORKS = (
    Framework(
        "jax",
        ("jax", "numpy"),
        ("jax", "jaxlib"),
        "pip install jax, on a GPU 'jax[cuda13]'",
    ),
)

ROWS = (
    Implementation(
        "jax-scan",
        "jax",
        "fp32",
        "jax",
        default_on=("cpu",),
        note="lax.scan of the cell, compiled by XLA",
    ),
    Implementation(
        "jax-scan-tf32",
        "jax",
        "tf32",
        "jax",
        devices=("cuda",),
        default_on=("cuda",),
        note="the same with TF32 allowed",
    ),
    Implementation(
        "jax-cudnn",
        "jax",
        "fp32",
        "jax",
        options={"cudnn": True},
        devices=("cuda",),
        note="jax.experimental.rnn.lstm",
    ),
)
