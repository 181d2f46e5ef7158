"""The layers and directions of an `nn.LSTM` on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lstm_kernels import Unsupported, native
from lstm_kernels.stack import Sizes, Tensors

DEVICE = torch.device("cpu")
PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16"}


class CpuStack:
    """An `nn.LSTM` with the weights that it had when this was made."""

    def __init__(self, weights: Sequence[torch.Tensor], sizes: Sizes, precision: str):
        # Detached they keep the memory: no other weights can come to lie where these did.
        self._weights = [weight.detach() for weight in weights]
        self.path = functools.partial(path, sizes, precision)
        floats = [weight.float().numpy() for weight in self._weights]
        self._native = native.CpuStack(_numbers(sizes), floats, precision)
        self._run, self.bytes = self._native.run, self._native.bytes
        self.type = torch.bfloat16 if precision == "bf16" else torch.float32
        self._halves = int(self.type == torch.bfloat16)
        self._states, self._width = sizes.layers * sizes.directions, sizes.directions * sizes.hidden
        self._hidden = sizes.hidden

    def run(
        self,
        x: torch.Tensor,
        states: tuple[torch.Tensor, torch.Tensor] | None,
        batches: torch.Tensor | None = None,
    ) -> Tensors:
        """y, h and c; x is (T, B, I), or the rows of a packed sequence with its `batch_sizes`."""
        kind = self.type
        x = _plain(x, kind)
        if batches is None:
            timesteps, batch, _ = x.shape
            y, each = x.new_empty(timesteps, batch, self._width), 0  # by a tuple: 1 us more
        else:
            timesteps, batch = len(batches), int(batches[0])
            y, each = x.new_empty(len(x), self._width), batches.data_ptr()
        h = x.new_empty(self._states, batch, self._hidden)
        c = x.new_empty(self._states, batch, self._hidden)
        h_from = c_from = 0
        if states is not None:
            h0, c0 = _plain(states[0], kind), _plain(states[1], kind)
            h_from, c_from = h0.data_ptr(), c0.data_ptr()
        at = x.data_ptr(), h_from, c_from, y.data_ptr(), h.data_ptr(), c.data_ptr(), each
        self._run(*at, timesteps, batch, torch.get_num_threads(), self._halves)
        return y, h, c

    def caller(self, x: torch.Tensor) -> Callable[[torch.Tensor, int, int], Any]:
        """`run` for contiguous tensors of the sizes of x; states by address, or 0."""
        timesteps, batch, _ = x.shape
        run, pack, number = native.library().lstm_stack_run, native.STACK_RUN, self._native.number
        y_shape, state = (timesteps, batch, self._width), (self._states, batch, self._hidden)
        halves, threads, keep = self._halves, torch.get_num_threads, self._native

        def call(x: torch.Tensor, h0: int, c0: int) -> Any:
            new = x.new_empty
            y, h, c = new(*y_shape), new(*state), new(*state)
            at = x.data_ptr(), h0, c0, y.data_ptr(), h.data_ptr(), c.data_ptr()
            status = run(pack(number, *at, 0, timesteps, batch, threads(), halves))
            return None if status else (y, (h, c))

        call.weights = keep  # type: ignore[attr-defined]
        return call


def _plain(tensor: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    return (tensor if tensor.dtype is kind else tensor.to(kind)).contiguous()


def path(sizes: Sizes, precision: str, batch: int, timesteps: int) -> str:
    """How a shape would be computed."""
    call = timesteps, batch, torch.get_num_threads()
    return native.cpu_path(_numbers(sizes), precision, *call)


def _numbers(sizes: Sizes) -> tuple[int, ...]:
    return sizes.input_size, sizes.hidden, sizes.layers, sizes.directions, sizes.bias


@functools.cache
def missing() -> str:
    """Why no call on this machine's CPU can run on the kernels; empty if they can."""
    try:
        native.library()
    except Unsupported as why:
        return str(why)
    return ""
