"""lstm_kernels: our layer in the place of `torch.nn.LSTM`, as a PyTorch user calls it."""

from __future__ import annotations

from lstm_bench.frameworks.pytorch import rows as pytorch
from lstm_bench.model.framework import CPU, CUDA, DASHED, DOTTED, Cost, Framework, Style
from lstm_bench.model.types import Implementation

_START = """\
import lstm_kernels  # pip install ./lstm_kernels, in a checkout of lstm-bench
lstm = lstm_kernels.LSTM.like(lstm{})
"""


def code(row: Implementation, device: str) -> str:
    """The layer in the row's precision, called in the row's way."""
    quantize = row.options.get("quantize")
    start = _START.format(f', quantize="{quantize}"' if quantize else "")
    if device == "cuda":
        start = start.rstrip() + "  # the first call ever compiles for seconds\n"
    return start + pytorch.code(row, device)


LSTM_KERNELS = Framework(
    "lstm-kernels",
    ("torch", "numpy"),
    ("torch", "nvidia-cuda-nvrtc", "nvidia-cublas"),
    "pip install torch, then ./lstm_kernels . with a C++20 compiler (g++ 11 or newer) on the PATH",
    on_top_of="pytorch",
    costs={
        "cpu": {"": Cost(2e-5, 1e-7, 6e10, 1.5)},
        "cuda": {
            "lstm-kernels": Cost(8.4e-5, 6.5e-7, 7.2e13, 3.7, 0.02, 0.6),
            "lstm-kernels-": Cost(7e-5, 7.3e-7, 2e14, 8.0, 0.02, 0.4),
            "lstm-kernels-graph": Cost(1.8e-5, 6.5e-7, 7.2e13, 2.4, 0.6),
            "lstm-kernels-tf32-graph": Cost(1.2e-5, 5.5e-7, 2.4e14, 8.5, 0.4),
            "lstm-kernels-half-graph": Cost(1.2e-5, 5.5e-7, 2.4e14, 8.5, 0.4),
            "lstm-kernels-bf16-graph": Cost(1.2e-5, 5.5e-7, 2.4e14, 8.5, 0.4),
        },
    },
    start_s=(3.5, 3.0),
    colour="#c2002f",
    styles={
        "lstm-kernels": Style("#c2002f", "*"),
        "lstm-kernels-tf32": Style("#e0457b", "*", DASHED),
        "lstm-kernels-half": Style("#8e0152", "*", DOTTED),
        "lstm-kernels-bf16": Style("#c77bb0", "*", DOTTED),
        "lstm-kernels-int8": Style("#f0a3b5", "v"),
        "lstm-kernels-graph": Style("#7a0018", "P"),
        "lstm-kernels-tf32-graph": Style("#f2709c", "P", DASHED),
        "lstm-kernels-half-graph": Style("#5a0a3c", "X", DOTTED),
        "lstm-kernels-bf16-graph": Style("#b04a90", "X", DASHED),
    },
    code=code,
)
FRAMEWORKS = (LSTM_KERNELS,)

row = LSTM_KERNELS.row
ROWS = (
    row("lstm-kernels", "our kernels in the place of nn.LSTM"),
    row("lstm-kernels-tf32", "the same with TF32 allowed", "tf32", CUDA),
    row("lstm-kernels-half", "the same in half precision", "fp16", CUDA),
    row("lstm-kernels-bf16", "the same in bfloat16", "bf16"),
    row("lstm-kernels-int8", "the same with int8 weights", "int8", CPU, quantize="int8"),
    row("lstm-kernels-graph", "replayed as a CUDA graph", "fp32", CUDA, way="graph"),
    row("lstm-kernels-tf32-graph", "the same with TF32 allowed", "tf32", CUDA, way="graph"),
    row("lstm-kernels-half-graph", "the same in half precision", "fp16", CUDA, way="graph"),
    row("lstm-kernels-bf16-graph", "the same in bfloat16", "bf16", CUDA, way="graph"),
)
