"""A drop-in for `torch.nn.LSTM` on a GPU, by kernels of our own: one layer, inference.

    fast = LSTM.like(layer)
    output, (h, c) = fast(x, (h0, c0))

README.md says what it takes.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch

from lstm_kernels import layer as kernels
from lstm_kernels.halves import Array

#: What tensors are stored in, by precision. A layer's own type gives the first that fits.
TYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
DEVICE = torch.device("cuda:0")
CHOOSING = threading.Lock()  # plans are measured on one stream
States = tuple[torch.Tensor, torch.Tensor]


class LSTM(torch.nn.Module):
    """A layer with the weights that an `nn.LSTM` has now.

    The first call at a new batch size, or at a new power of two of timesteps, measures which of
    `plans` plans is fastest, unless an earlier process has; that takes seconds. All other calls
    only queue their work on the current stream: they wait for nothing, and their memory is
    PyTorch's.
    """

    def __init__(
        self, layer: torch.nn.LSTM, precision: str | None = None, plans: int = kernels.TRIED
    ) -> None:
        super().__init__()
        self.precision = _precision(layer, precision)
        self.plans = plans
        self.input_size, self.hidden_size = layer.input_size, layer.hidden_size
        self.batch_first = layer.batch_first
        self.dtype = TYPES[self.precision]
        self._weights = _weights(layer)
        self._chosen: dict[tuple[int, int], Any] = {}  # by batch and power of two of timesteps
        self._loaded: dict[tuple[Any, ...], Any] = {}  # by how a batch is computed
        self._called: set[tuple[int, int]] = set()  # batch and timesteps
        self._flag = _flag()  # a kernel that gave up sets it
        self._late = self._flag.numpy()

    @classmethod
    def like(
        cls, layer: torch.nn.LSTM, precision: str | None = None, plans: int = kernels.TRIED
    ) -> LSTM:
        """This `nn.LSTM`, its weights copied.

        `precision` is fp32, tf32, fp16 or bf16; by default what the layer's type says.
        """
        return cls(layer, precision, plans)

    def forward(self, x: torch.Tensor, hx: States | None = None) -> tuple[torch.Tensor, States]:
        """As `nn.LSTM` does it: x is (T, B, I), (B, T, I) with batch_first, or (T, I)."""
        self._raise_if_late()
        if not isinstance(x, torch.Tensor) or x.dim() not in (2, 3):
            raise ValueError("x must be a tensor of two or three dimensions, not packed")
        batched = x.dim() == 3
        if not batched:
            x = x.unsqueeze(1)
        elif self.batch_first:
            x = x.transpose(0, 1)
        timesteps, batch = x.shape[:2]
        if not timesteps or not batch:
            raise ValueError(f"x has {timesteps} timesteps and a batch of {batch}: nothing to do")
        x = self._taken("x", x, (timesteps, batch, self.input_size))
        state = (1, batch, self.hidden_size)
        if hx is None:
            h0 = c0 = x.new_zeros(state)
        else:
            h0, c0 = (s if batched else s.unsqueeze(1) for s in hx)
            h0, c0 = self._taken("h0", h0, state), self._taken("c0", c0, state)
        with torch.cuda.device(DEVICE):
            lstm = self._layer(batch, timesteps)
            y = x.new_empty((timesteps, batch, self.hidden_size))
            h, c = x.new_empty(state), x.new_empty(state)
            scratch = x.new_empty(lstm.scratch(timesteps), dtype=torch.uint8)
            lstm.run(
                timesteps,
                *(one.data_ptr() for one in (x, h0, c0, y, h, c, scratch, self._flag)),
                torch.cuda.current_stream().cuda_stream,
            )
        self._called.add((batch, timesteps))
        if not batched:
            return y.squeeze(1), (h.squeeze(1), c.squeeze(1))
        return y.transpose(0, 1) if self.batch_first else y, (h, c)

    def check(self) -> None:
        """Wait for all calls so far; raise if one of them gave up. The next call raises, too."""
        torch.cuda.synchronize(DEVICE)
        self._raise_if_late()

    def path(self, batch: int, timesteps: int) -> str:
        """How a shape that was called is computed."""
        return str(self._chosen[batch, (timesteps - 1).bit_length()].path)

    def extra_repr(self) -> str:
        first = ", batch_first=True" if self.batch_first else ""
        return f"{self.input_size}, {self.hidden_size}{first}, precision={self.precision!r}"

    def _raise_if_late(self) -> None:
        if self._late[0]:
            self._late[0] = 0
            raise RuntimeError(
                "an earlier call returned wrong outputs: its kernel waited 2 seconds for one step"
                " of another block and gave up. Is the GPU shared with other work?"
            )

    def _taken(self, name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """A tensor as the kernels read it, or what is wrong with it."""
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}, not {shape}")
        if tensor.dtype != self.dtype or tensor.device != DEVICE:
            found = f"{tensor.dtype} on {tensor.device}"
            raise ValueError(f"{name} is {found}, not {self.dtype} on {DEVICE}")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(f"{name} requires a gradient: this is for inference (torch.no_grad)")
        return tensor.contiguous()

    def _layer(self, batch: int, timesteps: int) -> Any:
        """The layer to run, chosen by measuring at the first call."""
        key = (batch, (timesteps - 1).bit_length())
        if (batch, timesteps) not in self._called and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"batch {batch}, timesteps {timesteps} is new, and while a graph is captured"
                " nothing can be measured: call the layer once with this shape before"
            )
        with CHOOSING:
            if key not in self._chosen:
                self._chosen[key] = self._choose(batch, timesteps)
        return self._chosen[key].lstm

    def _choose(self, batch: int, timesteps: int) -> Any:
        torch.cuda.synchronize(DEVICE)  # other work would be measured, too
        best = kernels.fastest(self._call(batch, timesteps), self.precision, self.plans)
        best.close()  # with the memory of its trial; one timestep needs hardly any
        how = (batch, best.plan, best.projection)
        if how not in self._loaded:
            self._loaded[how] = kernels.loaded(self._call(batch, 1), *how[1:])
        return self._loaded[how]

    def _call(self, batch: int, timesteps: int) -> kernels.Call:
        step = np.random.default_rng(1).standard_normal((1, batch, self.input_size), np.float32)
        states = np.zeros((batch, self.hidden_size), np.float32)
        x, (w_ih, w_hh, b_ih, b_hh) = np.tile(step, (timesteps, 1, 1)), self._weights
        return kernels.Call(x, states, states, w_ih, w_hh, b_ih, b_hh)


def _precision(layer: torch.nn.LSTM, asked: str | None) -> str:
    """The precision to compute in, or what this layer has that we have not."""
    if not isinstance(layer, torch.nn.LSTM):
        raise TypeError(f"{type(layer).__name__} is not a torch.nn.LSTM")
    found = {
        f"{layer.num_layers} layers": layer.num_layers != 1,
        "two directions": layer.bidirectional,
        f"proj_size {layer.proj_size}": layer.proj_size,
        f"dropout {layer.dropout}": layer.dropout,
    }
    if more := [name for name, there in found.items() if there]:
        raise NotImplementedError(
            f"this has {', '.join(more)}: only one layer in one direction can be run"
        )
    device, dtype = layer.weight_hh_l0.device, layer.weight_hh_l0.dtype
    if device != DEVICE:
        raise NotImplementedError(f"this layer is on {device}: it must be on {DEVICE}")
    if asked is not None and asked not in TYPES:
        raise ValueError(f"precision {asked!r} is none of {', '.join(TYPES)}")
    own = next((name for name, stored in TYPES.items() if stored == dtype), None)
    if own is None:
        raise NotImplementedError(f"this layer is {dtype}: float32, float16 or bfloat16 can be run")
    return asked or own


def _weights(layer: torch.nn.LSTM) -> list[Array]:
    """w_ih, w_hh, b_ih and b_hh as float32 on the host."""
    zeros = torch.zeros(4 * layer.hidden_size)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    found = [getattr(layer, name, zeros) for name in names]
    return [one.detach().float().cpu().numpy().copy() for one in found]


def _flag() -> torch.Tensor:
    """A number that host and GPU see."""
    return torch.zeros(1, dtype=torch.int32, pin_memory=True)
