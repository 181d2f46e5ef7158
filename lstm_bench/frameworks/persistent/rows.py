"""persistent: our kernels for GPUs, called from C++."""

from __future__ import annotations

from lstm_bench.model.framework import CUDA, DASHED, DOTTED, Cost, Framework, Style

PERSISTENT = Framework(
    "persistent",
    ("lstm_kernels._native", "numpy"),
    ("nvidia-cuda-nvrtc", "nvidia-cublas"),
    "pip install ./lstm_kernels . with a C++20 compiler (g++ 11 or newer) on the PATH",
    reference=True,
    quick_to_describe=True,
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
)
FRAMEWORKS = (PERSISTENT,)

row = PERSISTENT.row
ROWS = (
    row("persistent", "kernels of our own, as accurate as fp32", "fp32", CUDA, precision="fp32"),
    row(
        "persistent-tf32",
        "the same, factors rounded as TF32 rounds them",
        "tf32",
        CUDA,
        precision="tf32",
    ),
    row("persistent-fp16", "the same in half precision", "fp16", CUDA, precision="fp16"),
    row("persistent-bf16", "the same in bfloat16", "bf16", CUDA, precision="bf16"),
)
