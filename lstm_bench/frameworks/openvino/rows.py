"""The rows of openvino, and what they need."""

from __future__ import annotations

from lstm_bench.model.framework import Framework
from lstm_bench.model.types import Implementation

FRAMEWORKS = (
    Framework(
        "openvino",
        ("openvino", "numpy"),
        ("openvino",),
        "pip install openvino (on aarch64 it needs glibc 2.35 or newer)",
    ),
)

ROWS = (
    Implementation(
        "openvino",
        "openvino",
        "fp32",
        "openvino",
        devices=("cpu",),
        note="OpenVINO's LSTM sequence, in fp32 also where it would take half precision",
    ),
)
