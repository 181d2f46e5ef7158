"""A fast LSTM layer: kernels of our own.

`LSTM` takes the place of `torch.nn.LSTM`; `Stream` needs NumPy alone.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstm_kernels.lstm import LSTM as LSTM
    from lstm_kernels.lstm import calls as calls
    from lstm_kernels.lstm import replace as replace
    from lstm_kernels.lstm import restore as restore
    from lstm_kernels.lstm import synchronize as synchronize
    from lstm_kernels.lstm import tune as tune
    from lstm_kernels.stream import Stream as Stream

__version__ = "0.1.0"

_OF_TORCH = ("LSTM", "calls", "replace", "restore", "synchronize", "tune")


class Unsupported(Exception):
    """No kernel takes this layer, or this machine lacks what the kernels need; it says why."""


def __getattr__(name: str) -> Any:
    """Import what a name needs when it is asked for: PyTorch, which the rest works without."""
    if name == "Stream":
        from lstm_kernels.stream import Stream

        return Stream
    if name not in _OF_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lstm_kernels import lstm, native

    if not native.PATH.exists():
        warnings.warn(native.ABSENT, RuntimeWarning, stacklevel=2)
    return getattr(lstm, name)
