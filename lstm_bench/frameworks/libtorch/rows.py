"""The rows of libtorch, and what they need."""

from __future__ import annotations

from lstm_bench.model.framework import Framework
from lstm_bench.model.types import Implementation

FRAMEWORKS = (
    Framework(
        "libtorch",
        ("torch", "numpy"),
        ("torch",),
        "pip install torch numpy, and a C++20 compiler (g++ 11 or newer) on the PATH",
    ),
)

ROWS = (
    Implementation(
        "libtorch",
        "libtorch",
        "fp32",
        "libtorch",
        note="torch::nn::LSTM called and timed in C++; compiled at first use",
        default_on=("cpu",),
    ),
    Implementation(
        "libtorch-tf32",
        "libtorch",
        "tf32",
        "libtorch",
        devices=("cuda",),
        note="the same with TF32 allowed, as LibTorch has it by default",
        default_on=("cuda",),
    ),
)
