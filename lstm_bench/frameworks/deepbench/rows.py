"""The rows of deepbench, and what they need."""

from __future__ import annotations

from typing import Any

from lstm_bench.model.framework import Framework
from lstm_bench.model.types import Implementation

CPU, CUDA, BOTH = ("cpu",), ("cuda",), ("cpu", "cuda")

FRAMEWORKS = (
    Framework(
        "deepbench",
        ("lstm_kernels._cpu", "numpy"),
        ("scipy-openblas32",),
        "pip install ./lstm_kernels . with a C++20 compiler (g++ 11 or newer) on the PATH",
    ),
)


def _row(suffix: str, note: str, devices: tuple[str, ...] = CUDA, **options: Any) -> Implementation:
    return Implementation(
        name="deepbench" + suffix,
        framework="deepbench",
        module="deepbench",
        precision="tf32" if suffix.startswith("-tf32") else options.get("precision", "fp32"),
        options=options,
        computes="lstm-skip-input" if options.get("skip_input") else "lstm",
        devices=devices,
        note=note,
    )


ROWS = (
    _row("", "C++ over cuDNN (STANDARD); on a CPU kernels of our own", BOTH),
    _row("-skip", "what DeepBench runs: no input projection", BOTH, skip_input=True),
    _row("-bf16", "our kernels with bfloat16 weights and input", CPU, precision="bf16"),
    _row(
        "-int8",
        "our kernels with int8 weights; inputs and states quantised in each call",
        CPU,
        precision="int8",
    ),
    _row("-persist-static", "cuDNN PERSIST_STATIC", algorithm="persist-static"),
    _row("-persist-dynamic", "cuDNN PERSIST_DYNAMIC", algorithm="persist-dynamic"),
    _row("-graph", "STANDARD replayed as a CUDA graph", graph=True),
    _row("-best", "the fastest of cuDNN's algorithms, in a graph or not", choose="best"),
    _row("-tf32", "STANDARD with TF32 allowed"),
    _row("-tf32-best", "the fastest with TF32 allowed", choose="best"),
    _row("-fp16", "STANDARD in half precision", precision="fp16"),
    _row("-fp16-best", "the fastest in half precision", precision="fp16", choose="best"),
)
