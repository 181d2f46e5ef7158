"""The layers and directions of an `nn.LSTM` on a GPU, each by the kernels of `layer.py`."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lstm_kernels import Unsupported
from lstm_kernels import layer as kernels
from lstm_kernels.halves import Array

#: What tensors are stored in, by precision.
TYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
DEVICE = torch.device("cuda:0")
CHOOSING = threading.Lock()  # plans are measured on one stream
BESIDE = 8  # timesteps from which on two directions run on two streams
KEPT = 8  # batch sizes whose packed weights stay on the GPU, for each layer and direction

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Sizes:
    """What an `nn.LSTM` is, beside its weights."""

    input_size: int
    hidden: int
    layers: int
    directions: int
    bias: bool


class NotYet(Exception):
    """This call cannot run on the kernels now, but a later one can."""


class Stack:
    """An `nn.LSTM` with the weights that it had when this was made."""

    def __init__(self, weights: Sequence[torch.Tensor], sizes: Sizes, precision: str, plans: int):
        self.weights, self.sizes, self.precision = list(weights), sizes, precision
        self.type = TYPES[precision]
        each = 4 if sizes.bias else 2
        count = sizes.layers * sizes.directions
        self.cells = [
            Cell(self.weights[i * each : (i + 1) * each], precision, plans) for i in range(count)
        ]
        self._zeros: dict[int, torch.Tensor] = {}
        self._stream = torch.cuda.Stream(DEVICE) if sizes.directions == 2 else None

    def run(self, x: torch.Tensor, states: tuple[torch.Tensor, torch.Tensor] | None) -> Tensors:
        """y, h and c; x is (T, B, I) on the GPU, states are (layers x directions, B, H)."""
        timesteps, batch, _ = x.shape
        both, count = self.sizes.directions == 2, len(self.cells)
        capturing = torch.cuda.is_current_stream_capturing()
        ready = [cell.ready(batch, timesteps, capturing) for cell in self.cells]
        if x.dtype != self.type:
            x = x.to(self.type)
        x = x.contiguous()
        size = batch * self.sizes.hidden * self.type.itemsize  # bytes of the state of a layer
        last = x.new_empty((2, count, batch, self.sizes.hidden))
        h, c = last.unbind()
        if states is None:
            h0 = c0 = self._no_states(batch, capturing)
        else:
            h0, c0 = (state.to(self.type).contiguous() for state in states)
        pointers = [tensor.data_ptr() for tensor in (h0, c0, h, c)]
        for place in range(0, count, self.sizes.directions):
            outputs = [x.new_empty((timesteps, batch, self.sizes.hidden)) for _ in range(1 + both)]
            beside = self._stream if both and timesteps >= BESIDE else None
            if both:
                with _beside(beside):
                    at = [pointer + (place + 1) * size for pointer in pointers]
                    ready[place + 1].run(x.flip(0), outputs[1], *at)
            ready[place].run(x, outputs[0], *(pointer + place * size for pointer in pointers))
            if beside:
                torch.cuda.current_stream().wait_stream(beside)
            x = torch.cat((outputs[0], outputs[1].flip(0)), -1) if both else outputs[0]
        return x, h, c

    def path(self, batch: int, timesteps: int) -> str:
        """How each layer and direction is computed at a shape; equal ones once."""
        paths = [cell.path(batch, timesteps) for cell in self.cells]
        return " | ".join(dict.fromkeys(paths))

    def _no_states(self, batch: int, capturing: bool) -> torch.Tensor:
        """Zeros that every call without states reads."""
        if batch not in self._zeros:
            if capturing:
                raise NotYet("a batch size that is new while a graph is captured")
            shape = (len(self.cells), batch, self.sizes.hidden)
            self._zeros[batch] = torch.zeros(shape, dtype=self.type, device=DEVICE)
        return self._zeros[batch]


@contextlib.contextmanager
def _beside(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """On this stream, after what is queued; without one on the current stream."""
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield


class Ready:
    """A layer in one direction that can be launched at once."""

    def __init__(self, kernels: kernels.Layer):
        self.path, self._lstm = kernels.path, kernels.lstm

    def run(self, x: torch.Tensor, y: torch.Tensor, *states: int) -> None:
        """Queue it on the current stream; `states` are where h0, c0, h and c lie."""
        timesteps, lstm = x.shape[0], self._lstm
        scratch = torch.empty(lstm.scratch(timesteps), dtype=torch.uint8, device=x.device)
        h0, c0, h, c = states
        where = x.data_ptr(), h0, c0, y.data_ptr(), h, c, scratch.data_ptr(), late().pointer
        lstm.run(timesteps, *where, stream())


class Cell:
    """One layer in one direction: by the fastest plan at each shape, its weights packed once."""

    def __init__(self, weights: Sequence[torch.Tensor], precision: str, plans: int):
        self.weights, self.precision, self.plans = weights, precision, plans
        self._chosen: dict[tuple[int, int], tuple[Any, str]] = {}
        self._refused: dict[tuple[int, int], str] = {}
        self._loaded: OrderedDict[tuple[int, Any, str], Ready] = OrderedDict()
        self._captured: list[Ready] = []  # graphs read their weights when they are replayed

    def ready(self, batch: int, timesteps: int, capturing: bool = False) -> Ready:
        """The kernels for a shape; the first call of a shape measures which are fastest."""
        key = (batch, (timesteps - 1).bit_length())
        if key in self._refused:
            raise Unsupported(self._refused[key])
        how = self._chosen.get(key)
        ready = self._loaded.get((batch, *how)) if how else None
        if ready is None:
            if capturing:
                raise NotYet("a shape that is new while a graph is captured")
            with CHOOSING, torch.cuda.device(DEVICE):
                ready = self._choose(key, timesteps)
        if capturing:
            self._captured.append(ready)
        return ready

    def path(self, batch: int, timesteps: int) -> str:
        """How a shape that was called is computed."""
        how = self._chosen[batch, (timesteps - 1).bit_length()]
        return self._loaded[(batch, *how)].path

    def _choose(self, key: tuple[int, int], timesteps: int) -> Ready:
        batch = key[0]
        if key not in self._chosen:
            torch.cuda.synchronize(DEVICE)  # other work would be measured, too
            try:
                best = kernels.fastest(self._call(batch, timesteps), self.precision, self.plans)
            except Unsupported as refused:
                self._refused[key] = str(refused)
                raise
            best.close()  # with the memory of its trial; one timestep needs hardly any
            self._chosen[key] = best.plan, best.projection
        how = (batch, *self._chosen[key])
        if how not in self._loaded:
            self._loaded[how] = Ready(kernels.loaded(self._call(batch, 1), *how[1:]))
            while len(self._loaded) > KEPT:
                self._loaded.popitem(last=False)
        return self._loaded[how]

    def _call(self, batch: int, timesteps: int) -> kernels.Call:
        w_ih, w_hh, b_ih, b_hh = self._on_host()
        step = np.random.default_rng(1).standard_normal((1, batch, w_ih.shape[1]), np.float32)
        states = np.zeros((batch, w_hh.shape[1]), np.float32)
        return kernels.Call(
            np.tile(step, (timesteps, 1, 1)), states, states, w_ih, w_hh, b_ih, b_hh
        )

    def _on_host(self) -> list[Array]:
        """w_ih, w_hh, b_ih and b_hh as float32."""
        given = [tensor.detach().float().cpu().numpy() for tensor in self.weights]
        return given if len(given) == 4 else [*given, *[np.zeros(len(given[0]), np.float32)] * 2]


class Late:
    """A number in host memory that a kernel sets when it gave up waiting."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(1, dtype=torch.int32, device="cpu").pin_memory()
        self.value = self.tensor.numpy()
        self.pointer = self.tensor.data_ptr()
        self.times = 0  # that it was seen
        self.lock = threading.Lock()


def stream() -> int:
    """The current stream of the GPU, as the driver has it."""
    raw: int = torch._C._cuda_getCurrentRawStream(DEVICE.index)
    return raw


_made: dict[str, Late] = {}


def late() -> Late:
    """The flag of this process."""
    return _made.get("late") or _made.setdefault("late", Late())


def lost_calls() -> int:
    """How often a call was seen to have given up."""
    flag = _made.get("late")
    if flag is None:  # nothing ran yet
        return 0
    if flag.value[0]:
        with flag.lock:
            flag.value[0] = 0
            flag.times += 1
    return flag.times


@functools.cache
def capability() -> tuple[int, int]:
    """The kind of the GPU."""
    major, minor = torch.cuda.get_device_capability(DEVICE)
    return major, minor
