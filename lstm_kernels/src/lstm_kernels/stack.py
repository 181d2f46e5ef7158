"""The layers and directions of an `nn.LSTM` on a GPU, each by the kernels of `layer.py`."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

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
KEPT = 8  # batch sizes whose packed weights stay on the GPU
REMEMBERED = 1024  # shapes, beside which all are looked up anew
UNKNOWN = "measured at the first call"
NEW_IN_GRAPH = "a shape that is new while a graph is captured"

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
How = tuple[Any, str]  # a plan, and a way to multiply x by the input weights
T = TypeVar("T")
_TICKS = itertools.count()


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


class Ready:
    """A layer in one direction, with its weights on the GPU."""

    def __init__(self, layer: kernels.Layer):
        self.path, self.run, self.scratch = layer.path, layer.lstm.run, layer.lstm.scratch


@dataclass(frozen=True)
class Route:
    """How calls of one shape run: layer by layer, and how many bytes each wants."""

    ready: list[Ready]
    scratch: int


class Batch:
    """What calls of one batch size read: packed weights, and zeros where no states are given."""

    def __init__(self, zeros: torch.Tensor):
        self.zeros = zeros
        self.loaded: dict[tuple[int, Any, str], Ready] = {}
        self.routes: dict[int, Route] = {}  # by timesteps
        self.used = 0  # when, in calls


class Stack:
    """An `nn.LSTM` with the weights that it had when this was made.

    `captured` is where it leaves what a graph reads whenever it is replayed.
    """

    def __init__(
        self,
        weights: Sequence[torch.Tensor],
        sizes: Sizes,
        precision: str,
        plans: int,
        captured: set[Batch],
    ):
        self.sizes, self.precision, self.type = sizes, precision, TYPES[precision]
        each = 4 if sizes.bias else 2
        # Detached they keep the memory: no other weights can come to lie where these did.
        given = [weight.detach() for weight in weights]
        self.cells = [
            Cell(given[i : i + each], precision, plans) for i in range(0, len(given), each)
        ]
        self._shape = len(self.cells), sizes.hidden
        self._chosen: dict[tuple[int, int], list[How] | str] = {}  # or why there is none
        self._paths: dict[tuple[int, int], str] = {}
        self._batches: dict[int, Batch] = {}
        self._captured = captured
        self._stream = torch.cuda.Stream(DEVICE) if sizes.directions == 2 else None

    def run(self, x: torch.Tensor, states: tuple[torch.Tensor, torch.Tensor] | None) -> Tensors:
        """y, h and c; x is (T, B, I) on the GPU, states are (layers x directions, B, H)."""
        if other_device():  # the native library makes ours the current one
            with torch.cuda.device(DEVICE):
                return self._run(x, states)
        return self._run(x, states)

    def _run(self, x: torch.Tensor, states: tuple[torch.Tensor, torch.Tensor] | None) -> Tensors:
        timesteps, batch, _ = x.shape
        count, hidden = self._shape
        kept = self._batches.get(batch)
        route = kept.routes.get(timesteps) if kept else None
        graph = capturing()
        if kept is None or route is None:
            kept, route = self._prepared(batch, timesteps, graph)
        kept.used = next(_TICKS)
        if graph:
            self._captured.add(kept)
        if x.dtype != self.type:
            x = x.to(self.type)
        x = x.contiguous()
        both, size = self.sizes.directions == 2, self.type.itemsize
        h, c = (x.new_empty((count, batch, hidden)) for _ in range(2))
        if states is None:
            h0 = c0 = kept.zeros
        else:
            h0, c0 = (state.to(self.type).contiguous() for state in states)
        memory = x.new_empty((1 + both) * route.scratch // size)
        scratch, flag, queue = memory.data_ptr(), late().pointer, stream()
        at = h0.data_ptr(), c0.data_ptr(), h.data_ptr(), c.data_ptr()
        state = batch * hidden * size  # bytes

        def run(place: int, x: torch.Tensor, y: torch.Tensor, scratch: int, queue: int) -> None:
            h0, c0, h, c = at if place == 0 else [pointer + place * state for pointer in at]
            launch = route.ready[place].run
            launch(timesteps, x.data_ptr(), h0, c0, y.data_ptr(), h, c, scratch, flag, queue)

        for place in range(0, count, self.sizes.directions):
            y = x.new_empty((timesteps, batch, hidden))
            if not both:
                run(place, x, y, scratch, queue)
                x = y
                continue
            turned, back = x.flip(0), torch.empty_like(y)
            beside = self._stream if timesteps >= BESIDE else None
            if beside:
                beside.wait_stream(here := current())
            other = beside.cuda_stream if beside else queue
            run(place + 1, turned, back, scratch + route.scratch, other)
            run(place, x, y, scratch, queue)
            if beside:
                here.wait_stream(beside)
            x = torch.cat((y, back.flip(0)), -1)
        return x, h, c

    def path(self, batch: int, timesteps: int) -> str:
        """How each layer and direction is computed at a shape; equal ones once."""
        chosen = self._chosen.get(_key(batch, timesteps))
        if isinstance(chosen, str):
            raise Unsupported(chosen)
        return self._paths.get(_key(batch, timesteps), UNKNOWN)

    def at_hand(self, batch: int, timesteps: int) -> bool:
        """Whether a shape can run without anything to measure or to pack."""
        chosen, kept = self._chosen.get(_key(batch, timesteps)), self._batches.get(batch)
        if kept is None or not isinstance(chosen, list):
            return False
        return all((place, *how) in kept.loaded for place, how in enumerate(chosen))

    def _prepared(self, batch: int, timesteps: int, graph: bool) -> tuple[Batch, Route]:
        """What a shape needs; its first call measures which plans are fastest."""
        key = _key(batch, timesteps)
        chosen = self._chosen.get(key)
        if isinstance(chosen, str):
            raise Unsupported(chosen)
        if graph and not self.at_hand(batch, timesteps):
            raise NotYet(NEW_IN_GRAPH)
        with CHOOSING, torch.cuda.device(DEVICE):
            try:
                return self._loaded(key, timesteps)
            except (Unsupported, RuntimeError, MemoryError) as refused:
                self._chosen[key] = str(refused)
                raise Unsupported(str(refused)) from None

    def _loaded(self, key: tuple[int, int], timesteps: int) -> tuple[Batch, Route]:
        batch = key[0]
        if key not in self._chosen:
            make_room(self._chosen)
            torch.cuda.synchronize(DEVICE)  # other work would be measured, too
            trials = (functools.partial(cell.fastest, batch, timesteps) for cell in self.cells)
            self._chosen[key] = [_with_room(trial) for trial in trials]
        chosen = self._chosen[key]
        if isinstance(chosen, str):  # another thread was refused meanwhile
            raise Unsupported(chosen)
        kept = self._batches.get(batch) or self._batch(batch)
        ready = []
        for i, how in enumerate(chosen):
            if (which := (i, *how)) not in kept.loaded:
                kept.loaded[which] = _with_room(functools.partial(self.cells[i].load, batch, how))
            ready.append(kept.loaded[which])
        scratch = max(one.scratch(timesteps) for one in ready)
        make_room(kept.routes)
        kept.routes[timesteps] = route = Route(ready, -(-scratch // 256) * 256)
        make_room(self._paths)
        self._paths[key] = " | ".join(dict.fromkeys(one.path for one in ready))
        return kept, route

    def _batch(self, batch: int) -> Batch:
        """A new batch size, for which the one that was last used longest ago makes room."""
        while len(self._batches) >= KEPT:
            oldest = min(self._batches, key=lambda one: self._batches[one].used)
            del self._batches[oldest]
        count, hidden = self._shape
        made = Batch(torch.zeros((count, batch, hidden), dtype=self.type, device=DEVICE))
        made.used = next(_TICKS)
        self._batches[batch] = made
        return made


def _key(batch: int, timesteps: int) -> tuple[int, int]:
    """What plans are chosen for."""
    return batch, (timesteps - 1).bit_length()


def make_room(memory: dict[Any, Any]) -> None:
    """Forget all that is remembered of shapes, once there are too many."""
    if len(memory) >= REMEMBERED:
        memory.clear()


def _with_room(make: Callable[[], T]) -> T:
    """What takes memory that PyTorch's allocator may hold without a use for it."""
    try:
        return make()
    except MemoryError:
        torch.cuda.empty_cache()
        return make()


class Cell:
    """One layer in one direction."""

    def __init__(self, weights: Sequence[torch.Tensor], precision: str, plans: int):
        self.weights, self.precision, self.plans = weights, precision, plans

    def fastest(self, batch: int, timesteps: int) -> How:
        """The fastest plan, by trial."""
        best = kernels.fastest(self._call(batch, timesteps), self.precision, self.plans)
        best.close()  # with the memory of its trial; one timestep needs hardly any
        return best.plan, best.projection

    def load(self, batch: int, how: How) -> Ready:
        """With its weights as a plan wants them."""
        return Ready(kernels.loaded(self._call(batch, 1), *how))

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


# What `torch.cuda` does around these takes microseconds.


def stream() -> int:
    """The current stream of the GPU, as the driver has it."""
    raw: int = torch._C._cuda_getCurrentRawStream(DEVICE.index)
    return raw


def current() -> torch.cuda.Stream:
    """The current stream of the GPU, as PyTorch has it."""
    return _stream(*torch._C._cuda_getCurrentStream(DEVICE.index))


@functools.lru_cache
def _stream(number: int, index: int, kind: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(stream_id=number, device_index=index, device_type=kind)


def capturing() -> bool:
    """Whether the current stream is captured."""
    return bool(torch._C._cuda_isCurrentStreamCapturing())


def other_device() -> bool:
    """Whether another GPU is the current one."""
    return bool(torch._C._cuda_getDevice() != DEVICE.index)


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
            if flag.value[0]:  # another thread may have counted it
                flag.value[0] = 0
                flag.times += 1
    return flag.times


@functools.cache
def capability() -> tuple[int, int]:
    """The kind of the GPU."""
    major, minor = torch.cuda.get_device_capability(DEVICE)
    return major, minor
