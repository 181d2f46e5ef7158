"""The rows of keras_torch, and what they need."""

from __future__ import annotations

from lstm_bench.model.framework import Framework
from lstm_bench.model.types import Implementation

FRAMEWORKS = (
    Framework(
        "keras-torch",
        ("keras", "torch", "numpy"),
        ("keras", "torch"),
        "pip install keras torch",
    ),
)

ROWS = (
    Implementation(
        "keras-torch",
        "keras-torch",
        "fp32",
        "keras_torch",
        default_on=("cpu",),
        note="Keras LSTM on PyTorch: cuDNN on a GPU, else a Python loop",
    ),
)
