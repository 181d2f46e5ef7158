"""The rows of pytorch, and what they need."""

from __future__ import annotations

from typing import Any

from lstm_bench.model.framework import Framework
from lstm_bench.model.types import Implementation

CPU, CUDA = ("cpu",), ("cuda",)

FRAMEWORKS = (
    Framework("pytorch", ("torch", "numpy"), ("torch",), "pip install torch numpy"),
    Framework(
        "apex",
        ("torch", "apex.amp", "numpy"),
        ("torch", "apex"),
        "add a checkout of github.com/NVIDIA/apex at e13873d, the last with amp, to PYTHONPATH:"
        " there is nothing to build; pytorch-amp is its heir",
    ),
)


def _row(
    suffix: str,
    note: str,
    precision: str = "fp32",
    devices: tuple[str, ...] = ("cpu", "cuda"),
    default_on: tuple[str, ...] = (),
    **options: Any,
) -> Implementation:
    tf32 = suffix.startswith("-tf32")
    return Implementation(
        name="pytorch" + suffix,
        framework="pytorch",
        module="pytorch",
        precision="tf32" if tf32 else precision,
        options=options,
        devices=CUDA if tf32 else devices,
        note=note,
        default_on=default_on,
    )


ROWS = (
    _row("", "torch.nn.LSTM in strict fp32; cuDNN on a GPU", default_on=CPU),
    _row("-tf32", "TF32 allowed, as PyTorch does by default", default_on=CUDA),
    _row("-amp", "torch.autocast around each call", "amp"),
    _row("-half", "weights and input in half precision; no casts in the call", "fp16", CUDA),
    _row("-bf16", "weights and input in bfloat16", "bf16"),
    _row("-graph", "replayed as a CUDA graph", devices=CUDA, way="graph"),
    _row("-tf32-graph", "the same with TF32 allowed", way="graph"),
    _row("-half-graph", "the same in half precision", "fp16", CUDA, way="graph"),
    _row(
        "-compile",
        "torch.compile; on a GPU all steps unrolled, mode reduce-overhead",
        way="compile",
        cap_s=30,
    ),
    _row("-script", "torch.jit.script", way="script"),
    _row("-trace", "torch.jit.trace", way="trace"),
    _row("-persistent", "our kernels as a drop-in", devices=CUDA, way="persistent"),
    _row("-tf32-persistent", "the same in TF32", way="persistent"),
    _row("-native", "oneDNN off: PyTorch's own loop", devices=CPU, way="native"),
    _row("-int8", "weights quantised by quantize_dynamic", "int8", CPU, way="int8"),
    Implementation(
        "pytorch-apex",
        "apex",
        "amp",
        "pytorch",
        options={"apex": True},
        devices=("cuda",),
        note="apex.amp, opt level O1, as the paper used it",
    ),
)
