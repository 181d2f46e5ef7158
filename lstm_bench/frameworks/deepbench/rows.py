"""deepbench: the C++ baseline, over cuDNN on a GPU and over kernels of our own on a CPU."""

from __future__ import annotations

from typing import Any

from lstm_bench.model.framework import DASHED, DOTTED, Cost, Framework, Style
from lstm_bench.model.types import Implementation

CPU, CUDA, BOTH = ("cpu",), ("cuda",), ("cpu", "cuda")

FRAMEWORKS = (
    Framework(
        "deepbench",
        ("lstm_kernels._cpu", "numpy"),
        ("scipy-openblas32",),
        "pip install ./lstm_kernels . with a C++20 compiler (g++ 11 or newer) on the PATH",
        title="C++",
        short=("deepbench", "DB"),
        reference=True,
        baseline=True,
        noise=(2, "deepbench"),
        costs={
            "cpu": {"": Cost(2e-6, 1e-8, 1.1e11, 1.5)},
            "cuda": {
                "deepbench-graph": Cost(1.3e-5, 4.6e-6, 2.8e13, 3.0),
                "deepbench-best": Cost(3.8e-5, 1.3e-6, 2.1e13, 0.0, 0.92),
                "deepbench-fp16": Cost(4e-5, 1.7e-5, 4e14, 8.0, 0.09),
                "deepbench-fp16-best": Cost(1.2e-5, 1.2e-6, 1.8e14, 4.2, 1.28),
                "deepbench-tf32": Cost(8e-5, 1.2e-5, 2.7e14, 1.0),
                "deepbench-tf32-best": Cost(1.5e-5, 4.8e-6, 1.8e14, 35.0, 0.4),
                "deepbench-persist-dynamic": Cost(3.4e-5, 8e-7, 4.9e12, 0.0, 0.69),
                "deepbench-persist-static": Cost(5e-5, 6e-7, 4.1e12, 0.0),
            },
        },
        colour="#000000",
        styles={
            "deepbench": Style("#000000"),
            "deepbench-skip": Style("#8c8c8c", "o", DOTTED),
            "deepbench-persist-static": Style("#5e3c99", "v"),
            "deepbench-persist-dynamic": Style("#8073ac", "^", DASHED),
            "deepbench-graph": Style("#5c5c5c", "s", DASHED),
            "deepbench-best": Style("#b8860b", "*"),
            "deepbench-fp16": Style("#3f3f3f", "D", DOTTED),
            "deepbench-fp16-best": Style("#6b8e23", "P", DASHED),
        },
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
