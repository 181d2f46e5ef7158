"""A fast LSTM layer: kernels of our own. `LSTM` takes the place of `torch.nn.LSTM`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstm_kernels.lstm import LSTM as LSTM

__version__ = "0.1.0"


class Unsupported(Exception):
    """No kernel takes this layer, or this machine lacks what the kernels need; it says why."""


def __getattr__(name: str) -> Any:
    """`LSTM` imports PyTorch, which the rest works without."""
    if name != "LSTM":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lstm_kernels.lstm import LSTM

    return LSTM
