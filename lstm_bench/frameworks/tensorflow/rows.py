"""The rows of tensorflow, and what they need."""

from __future__ import annotations

from typing import Any

from lstm_bench.model.framework import Framework
from lstm_bench.model.types import Implementation

FRAMEWORKS = (
    Framework(
        "tensorflow",
        ("tensorflow", "numpy"),
        ("tensorflow", "keras"),
        "pip install tensorflow",
    ),
)


def _row(name: str, precision: str, mode: int, note: str, **more: Any) -> Implementation:
    return Implementation(
        name=f"tf-{name}",
        framework="tensorflow",
        module="tensorflow",
        precision=precision,
        options={"mode": mode, **more.pop("options", {})},
        note=note,
        **more,
    )


ROWS = (
    _row("mode0", "fp32", 0, "Keras LSTM on cuDNN; on a CPU the same code as mode 2"),
    _row(
        "mode0-tf32",
        "tf32",
        0,
        "mode 0 with TF32 allowed",
        devices=("cuda",),
        default_on=("cuda",),
    ),
    _row("mode1", "fp32", 1, "Keras LSTM, implementation=1: eight small products a step"),
    _row(
        "mode2",
        "fp32",
        2,
        "Keras LSTM, implementation=2: two larger products a step",
        default_on=("cpu",),
    ),
    _row("xla", "fp32", 2, "mode 2 compiled by XLA", options={"xla": True}),
    _row("mode0-amp", "amp", 0, "mode 0 under a mixed dtype policy"),
    _row("mode1-amp", "amp", 1, "mode 1 under a mixed dtype policy"),
    _row("mode2-amp", "amp", 2, "mode 2 under a mixed dtype policy"),
)
