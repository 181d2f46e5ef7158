"""persistent: our kernels for GPUs, called from C++."""

from __future__ import annotations

from lstm_bench.model.framework import DASHED, DOTTED, Cost, Framework, Style
from lstm_bench.model.types import Implementation

FRAMEWORKS = (
    Framework(
        "persistent",
        ("lstm_kernels._gpu", "numpy"),
        ("nvidia-cuda-nvrtc", "nvidia-cublas"),
        "pip install ./lstm_kernels . with a C++20 compiler (g++ 11 or newer) on the PATH",
        title="our kernels",
        reference=True,
        costs={
            "cuda": {
                "persistent": Cost(1.8e-5, 6.5e-7, 7.2e13, 2.4, 0.79),
                "persistent-": Cost(1.2e-5, 5.5e-7, 2.4e14, 8.5, 0.65),
            },
        },
        colour="#a50026",
        styles={
            "persistent": Style("#a50026"),
            "persistent-tf32": Style("#d73027", "s", DASHED),
            "persistent-fp16": Style("#f46d43", "D", DOTTED),
            "persistent-bf16": Style("#fdae61", "X", DASHED),
        },
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
