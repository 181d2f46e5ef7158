"""deepbench: the C++ baseline, over cuDNN on a GPU and over kernels of our own on a CPU."""

from __future__ import annotations

from lstm_bench.model.framework import CPU, CUDA, DASHED, DOTTED, Cost, Framework, Style

DEEPBENCH = Framework(
    "deepbench",
    ("lstm_kernels._native", "numpy"),
    ("scipy-openblas32",),
    "pip install ./lstm_kernels . with a C++20 compiler (g++ 11 or newer) on the PATH",
    short=("deepbench", "DB"),
    reference=True,
    baseline=True,
    noise=(2, "deepbench"),
    quick_to_describe=True,
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
)
FRAMEWORKS = (DEEPBENCH,)

row = DEEPBENCH.row
ROWS = (
    row("deepbench", "C++ over cuDNN (STANDARD); on a CPU kernels of our own"),
    row(
        "deepbench-skip",
        "what DeepBench runs: no input projection",
        computes="lstm-skip-input",
        skip_input=True,
    ),
    row(
        "deepbench-bf16",
        "our kernels with bfloat16 weights and input",
        "bf16",
        CPU,
        precision="bf16",
    ),
    row(
        "deepbench-int8",
        "our kernels with int8 weights; inputs and states quantised in each call",
        "int8",
        CPU,
        precision="int8",
    ),
    row(
        "deepbench-persist-static", "cuDNN PERSIST_STATIC", "fp32", CUDA, algorithm="persist-static"
    ),
    row(
        "deepbench-persist-dynamic",
        "cuDNN PERSIST_DYNAMIC",
        "fp32",
        CUDA,
        algorithm="persist-dynamic",
    ),
    row("deepbench-graph", "STANDARD replayed as a CUDA graph", "fp32", CUDA, graph=True),
    row(
        "deepbench-best",
        "the fastest of cuDNN's algorithms, in a graph or not",
        "fp32",
        CUDA,
        choose="best",
    ),
    row("deepbench-tf32", "STANDARD with TF32 allowed", "tf32", CUDA),
    row("deepbench-tf32-best", "the fastest with TF32 allowed", "tf32", CUDA, choose="best"),
    row("deepbench-fp16", "STANDARD in half precision", "fp16", CUDA, precision="fp16"),
    row(
        "deepbench-fp16-best",
        "the fastest in half precision",
        "fp16",
        CUDA,
        precision="fp16",
        choose="best",
    ),
)
