"""The rows of onnxruntime, and what they need."""

from __future__ import annotations

from lstm_bench.model.framework import Framework
from lstm_bench.model.types import Implementation

FRAMEWORKS = (
    Framework(
        "onnxruntime",
        ("onnxruntime", "onnx", "numpy"),
        ("onnxruntime", "onnxruntime-gpu", "onnx"),
        "pip install onnxruntime onnx; on a GPU onnxruntime-gpu onnx",
    ),
)

ROWS = (
    Implementation(
        "onnxruntime",
        "onnxruntime",
        "fp32",
        "onnxruntime",
        devices=("cpu",),
        default_on=("cpu",),
        note="ONNX Runtime's LSTM operator",
    ),
    Implementation(
        "onnxruntime-int8",
        "onnxruntime",
        "int8",
        "onnxruntime",
        devices=("cpu",),
        note="the same after quantize_dynamic: int8 weights, inputs quantised in each call",
    ),
    Implementation(
        "onnxruntime-cuda",
        "onnxruntime",
        "fp32",
        "onnxruntime",
        devices=("cuda",),
        note="ONNX Runtime's CUDA provider, TF32 off; its inputs lie on the GPU",
    ),
)
