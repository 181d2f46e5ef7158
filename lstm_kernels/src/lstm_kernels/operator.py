"""The layer as one operator of PyTorch, for `torch.compile` and `torch.export`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lstm_kernels.stack import Sizes


def _lstm(
    x: torch.Tensor,
    h0: torch.Tensor | None,
    c0: torch.Tensor | None,
    weights: Sequence[torch.Tensor],
    bias: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
    precision: str,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """y, h and c in `dtype`, by the kernels where they take the call, else by nn.LSTM's way."""
    from lstm_kernels.lstm import by_operator

    sizes = Sizes(x.shape[-1], weights[1].shape[1], layers, 1 + bidirectional, bias)
    states = None if h0 is None or c0 is None else (h0, c0)
    return by_operator(x, states, list(weights), sizes, batch_first, precision, dtype)


lstm = torch.library.custom_op("lstm_kernels::lstm", _lstm, mutates_args=())


def _shapes(x: Any, h0: Any, c0: Any, weights: Sequence[torch.Tensor], *options: Any) -> Any:
    """Tensors of the right sizes and strides."""
    _, layers, bidirectional, batch_first, _, dtype = options
    hidden, directions = weights[1].shape[1], 1 + bidirectional
    timesteps, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
    y = x.new_empty((timesteps, batch, directions * hidden), dtype=dtype)
    h, c = (x.new_empty((layers * directions, batch, hidden), dtype=dtype) for _ in range(2))
    return y.transpose(0, 1) if batch_first else y, h, c


lstm.register_fake(_shapes)
