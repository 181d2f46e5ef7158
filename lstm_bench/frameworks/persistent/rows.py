"""The rows of persistent, and what they need."""

from __future__ import annotations

from lstm_bench.model.framework import Framework
from lstm_bench.model.types import Implementation

FRAMEWORKS = (
    Framework(
        "persistent",
        ("lstm_kernels._gpu", "numpy"),
        ("nvidia-cuda-nvrtc", "nvidia-cublas"),
        "pip install ./lstm_kernels . with a C++20 compiler (g++ 11 or newer) on the PATH",
    ),
)


def _row(suffix: str, precision: str, note: str) -> Implementation:
    return Implementation(
        name="persistent" + suffix,
        framework="persistent",
        module="persistent",
        precision=precision,
        options={"precision": precision},
        devices=("cuda",),
        note=note,
    )


ROWS = (
    _row("", "fp32", "kernels of our own, as accurate as fp32"),
    _row("-tf32", "tf32", "the same, factors rounded as TF32 rounds them"),
    _row("-fp16", "fp16", "the same in half precision"),
    _row("-bf16", "bf16", "the same in bfloat16"),
)
