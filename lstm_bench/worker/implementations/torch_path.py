"""Which library runs an LSTM of PyTorch's, read off the operators that a call dispatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lstm_bench.worker import loaded_libraries


def library(call: Callable[[], Any]) -> str:
    """`cuDNN 9.19.0`, `oneDNN`, or `generic`: no operator that is a whole layer."""
    seen = _OperatorNames()
    with torch.no_grad(), seen:
        call()
    if any("cudnn_rnn" in name for name in seen.names):
        return f"cuDNN {loaded_libraries.dotted(torch.backends.cudnn.version() or 0)}"
    if any("mkldnn_rnn" in name for name in seen.names):
        return "oneDNN"
    return "generic"


class _OperatorNames(TorchDispatchMode):
    """Collects the names of the operators that run inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))
