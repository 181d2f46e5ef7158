"""Keras on PyTorch."""

from __future__ import annotations

from lstm_bench.frameworks.code import KERAS
from lstm_bench.frameworks.pytorch.rows import STRICT
from lstm_bench.model.framework import CPU, Cost, Framework
from lstm_bench.model.types import Implementation

_CODE = """\
with torch.inference_mode():
    state = [h0[0], c0[0]]
    output, h, c = layer(x.transpose(0, 1), initial_state=state, training=False)"""


def code(row: Implementation, device: str) -> str:
    """Keras' layer, called."""
    start = 'import os\nos.environ["KERAS_BACKEND"] = "torch"\nimport keras\n'
    return start + (STRICT if device == "cuda" else "") + KERAS.format(options="") + _CODE


KERAS_TORCH = Framework(
    "keras-torch",
    ("keras", "torch", "numpy"),
    ("keras", "torch"),
    "pip install keras torch",
    on_top_of="pytorch",
    costs={
        "cpu": {"": Cost(1.3e-3, 2e-4, 4e10, 5.0)},
        "cuda": {"": Cost(1.3e-3, 1.3e-5, 4.8e13, 1.0, 0.04)},
    },
    start_s=(6.0, 6.0),
    colour="#c51b7d",
    code=code,
)
FRAMEWORKS = (KERAS_TORCH,)

_NOTE = "Keras LSTM on PyTorch: cuDNN on a GPU, else a Python loop"
ROWS = (KERAS_TORCH.row("keras-torch", _NOTE, default_on=CPU),)
