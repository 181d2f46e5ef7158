"""The layers and directions of an `nn.LSTM` on a GPU.

A plan is chosen by a model of the GPU, and serves any batch and any number of timesteps. Where one
is at hand that can run a new batch size it does; a faster one is compiled meanwhile, and runs
later.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch

from lstm_kernels import Unsupported, native
from lstm_kernels import layer as kernels
from lstm_kernels.halves import Array
from lstm_kernels.plans import Plan

#: What tensors are stored in, by precision.
TYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
DEVICE = torch.device("cuda:0")
PREPARING = threading.Lock()
KEPT = 3  # plans whose packed weights stay on the GPU
REMEMBERED = 1024  # shapes, beside which all are looked up anew
WORTH = 1.1  # how much faster a plan must be guessed to replace one that is at hand
FEW_VECTORS = 128  # at most, for an input product by vectors
#: Weights that such a product reads at most, for 16 vectors each time: more are cuBLAS's or tiles'.
FEW_WEIGHTS = {"fp32": 5_000_000, "tf32": 300_000, "fp16": 100_000, "bf16": 100_000}
SMALL = 64 << 10  # bytes that may live on with a part of them
STREAMS = 16  # for which a shape has scratch of its own
SCRATCH = 1 << 20  # bytes that a layer may keep for a shape and a stream
NEW_IN_GRAPH = "a layer that is new while a graph is captured"

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Shape = tuple[int, int, int, bool]  # batch, timesteps, rows, and whether sequences end before
How = tuple[Plan, str]  # a plan, and a way to multiply x by the input weights
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


@dataclass(eq=False)
class Loaded:
    """A plan with the weights of all layers on the GPU."""

    plan: Plan
    stack: native.GpuStack
    weights: torch.Tensor
    streams: set[int] = field(default_factory=set)  # on which it ran
    used: int = 0  # when, in calls


@dataclass(frozen=True)
class Route:
    """How calls of one shape run, and the bytes of scratch that each wants."""

    loaded: Loaded
    numbers: tuple[int, ...]  # of the batch, timesteps, rows, and the share of a team
    scratch: int


@dataclass(frozen=True)
class Lengths:
    """Of a packed sequence: its numbers, and what the kernels read on the GPU."""

    batch: int
    timesteps: int
    rows: int
    of_sequences: torch.Tensor
    first_rows: torch.Tensor


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
        captured: set[Any],
    ):
        self.sizes, self.precision, self.type = sizes, precision, TYPES[precision]
        self.plans = plans  # that `tune` times
        # Detached they keep the memory: no other weights can come to lie where these did.
        self._weights = [weight.detach() for weight in weights]
        self._kept: dict[How, Loaded] = {}
        self._routes: dict[Shape, Route] = {}
        self._lengths: dict[bytes, Lengths] = {}
        self._able: dict[tuple[int, bool], list[How]] = {}  # by batch, and whether sequences end
        self._tuned: dict[tuple[int, int], How] = {}
        self._refused: dict[tuple[int, bool], str] = {}  # and why not
        self._once: set[How] = set()  # what was loaded, or will be: no plan comes back and forth
        self._packed: dict[How, list[kernels.Weights]] = {}  # by another thread, to be loaded
        self._host: list[list[list[Array]]] | None = None
        self._captured = captured
        self.changes = 0  # of the plans of shapes

    def run(
        self,
        x: torch.Tensor,
        states: tuple[torch.Tensor, torch.Tensor] | None,
        batch_sizes: torch.Tensor | None = None,
    ) -> Tensors:
        """y, h and c; x is (T, B, I) on the GPU, states are (layers x directions, B, H).

        With `batch_sizes` x and y are those of a PackedSequence.
        """
        if other_device():  # the native library makes ours the current one
            with torch.cuda.device(DEVICE):
                return self._run(x, states, batch_sizes)
        return self._run(x, states, batch_sizes)

    def _run(
        self,
        x: torch.Tensor,
        states: tuple[torch.Tensor, torch.Tensor] | None,
        batch_sizes: torch.Tensor | None,
    ) -> Tensors:
        graph, ends, at = capturing(), None, (0, 0)
        if batch_sizes is None:
            timesteps, batch, _ = x.shape
            key = batch, timesteps, timesteps * batch, False
        else:
            ends = self._ends(batch_sizes, graph)
            key = ends.batch, ends.timesteps, ends.rows, True
            at = ends.of_sequences.data_ptr(), ends.first_rows.data_ptr()
        route = self._routes.get(key) or self._prepared(key, graph)
        self._mark(route.loaded, ends, graph)
        if x.dtype != self.type:
            x = x.to(self.type)
        x = x.contiguous()
        wide = self.sizes.directions * self.sizes.hidden
        y = x.new_empty((*x.shape[:-1], wide))
        count = self.sizes.layers * self.sizes.directions
        h, c = (x.new_empty((count, key[0], self.sizes.hidden)) for _ in range(2))
        h0 = c0 = None
        if states is not None:
            h0, c0 = (state.to(self.type).contiguous() for state in states)
        memory = x.new_empty(route.scratch // self.type.itemsize)
        route.loaded.stack.run(
            *(*route.numbers, x.data_ptr()),
            *(0 if state is None else state.data_ptr() for state in (h0, c0)),
            *(y.data_ptr(), h.data_ptr(), c.data_ptr(), memory.data_ptr()),
            *(late().pointer, *at, stream(), 1),
        )
        return y, h, c

    def caller(self, x: torch.Tensor) -> Callable[..., Any] | None:
        """`run` for contiguous tensors of the sizes of x; states by address, or 0.

        It gives y, (h, c), or None where something else has changed; None where scratch is large.
        """
        timesteps, batch, _ = x.shape
        route = self._routes.get((batch, timesteps, timesteps * batch, False))
        if route is None or route.scratch > SCRATCH:
            return None
        loaded, numbers, hidden = route.loaded, route.numbers, self.sizes.hidden
        run, flag, rows = loaded.stack.run, late().pointer, timesteps * batch
        wide, count = self.sizes.directions * hidden, self.sizes.layers * self.sizes.directions
        size, whole, states = self.type.itemsize, rows * wide, count * batch * hidden
        strides = (batch * wide, wide, 1), (batch * hidden, hidden, 1)
        y_shape, h_shape = (timesteps, batch, wide), (count, batch, hidden)
        together = (whole + 2 * states) * size <= SMALL  # one allocation is faster than three
        scratches: dict[int, tuple[torch.Tensor, int]] = {}

        changes, alone = self.changes, threading.Lock()

        def call(x: torch.Tensor, h0: int, c0: int) -> Any:
            if capturing() or other_device() or self.changes != changes:
                return None
            if together:
                made = x.new_empty(whole + 2 * states)
                at = made.data_ptr()
                h_at = at + whole * size
            else:
                y, made = x.new_empty(y_shape), x.new_empty(2 * states)
                at, h_at = y.data_ptr(), made.data_ptr()
            queue = stream()
            with alone:  # what a call launches on a stream stays together
                known = scratches.get(queue)
                if fresh := known is None:
                    self._mark(loaded, None, False)
                    if len(scratches) >= STREAMS:
                        scratches.clear()
                    memory = x.new_empty(route.scratch // size)
                    known = memory, memory.data_ptr()
                run(
                    *(*numbers, x.data_ptr(), h0, c0, at, h_at, h_at + states * size, known[1]),
                    *(flag, 0, 0, queue, fresh),
                )
                scratches[queue] = known
            loaded.used = next(_TICKS)
            # The GPU works while tensors are made of the memory; a write to one is none to another.
            begin = whole if together else 0
            if together:
                y = made.as_strided(y_shape, strides[0]).data
            h = made.as_strided(h_shape, strides[1], begin).data
            c = made.as_strided(h_shape, strides[1], begin + states).data
            return y, (h, c)

        return call

    def _mark(self, loaded: Loaded, ends: Lengths | None, graph: bool) -> None:
        """See that what a call reads lives as long as it does."""
        loaded.used = next(_TICKS)
        read = [] if ends is None else [ends.of_sequences, ends.first_rows]
        if graph:
            self._captured.update({loaded, ends} - {None})
            return
        if (queue := stream()) not in loaded.streams:
            loaded.streams.add(queue)
            read.append(loaded.weights)
        for tensor in read:
            if tensor.is_cuda:
                tensor.record_stream(torch.cuda.current_stream(DEVICE))

    def _ends(self, batch_sizes: torch.Tensor, graph: bool) -> Lengths:
        """The lengths of a packed sequence, which go to the GPU once."""
        key = batch_sizes.numpy().tobytes()
        if (known := self._lengths.get(key)) is None:
            if graph:
                raise NotYet("lengths that are new while a graph is captured")
            sizes = np.frombuffer(key, np.int64)
            first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
            lengths = np.add.reduce(sizes[:, None] > np.arange(sizes[0]), 0, dtype=np.int32)
            there = (torch.from_numpy(each).to(DEVICE) for each in (lengths, first[:-1]))
            known = Lengths(int(sizes[0]), len(sizes), int(first[-1]), *there)
            make_room(self._lengths)
            self._lengths[key] = known
        return known

    def path(self, batch: int, timesteps: int) -> str:
        """How a shape is computed."""
        ways = self._ways(batch, timesteps)
        plan, projection = self._at_hand(ways, batch) or ways[0]
        few = timesteps * batch <= self._few_rows()
        share = kernels.share_of(plan, batch, self.sizes.directions)
        return kernels.path_of(plan, share, kernels.VECTORS if few else projection)

    def at_hand(self, batch: int, timesteps: int) -> bool:
        """Whether a shape can run without anything to compile or to pack."""
        try:
            return self._at_hand(self._ways(batch, timesteps), batch) is not None
        except Unsupported:
            return False

    def tune(self, batch: int, timesteps: int) -> None:
        """Measure which plan is fastest, which calls of this shape take from here on."""
        sizes = self.sizes
        call = kernels.Call(
            np.random.default_rng(1).standard_normal(
                (timesteps, batch, sizes.input_size), np.float32
            ),
            *[np.zeros((batch, sizes.hidden), np.float32)] * 2,
            *self._on_host()[0][0],
        )
        torch.cuda.synchronize(DEVICE)  # other work would be measured, too
        with PREPARING, torch.cuda.device(DEVICE):
            best = _with_room(lambda: kernels.fastest(call, self.precision, self.plans))
            best.close()
            vectors = best.projection == kernels.VECTORS
            make_room(self._tuned)
            how = best.plan, self._projection() if vectors else best.projection
            self._tuned[_key(batch, timesteps)] = how
            self._routes.clear()
            self.changes += 1

    def _projection(self) -> str:
        return kernels.TILES if self.precision == "fp32" else self.precision

    def _few_rows(self) -> int:
        """Vectors up to which an input product by vectors is faster."""
        wide = self.sizes.directions * self.sizes.hidden
        width = max(self.sizes.input_size, wide if self.sizes.layers > 1 else 0)
        return min(FEW_VECTORS, FEW_WEIGHTS[self.precision] // (4 * wide * width) * 16)

    def _ways(self, batch: int, timesteps: int, ends: bool = False) -> list[How]:
        """The plans that can run a batch size, the likeliest to be fast first.

        `ends`: where sequences end at lengths of their own.
        """
        if why := self._refused.get((batch, ends)):
            raise Unsupported(why)
        if tuned := self._tuned.get(_key(batch, timesteps)):
            return [(dataclasses.replace(tuned[0], lengths=ends), tuned[1])]
        known = self._able.get((batch, ends))
        if known is None:  # a millisecond's work
            sizes, way = self.sizes, self._projection()
            try:
                plans = kernels.holding(self.precision, sizes.hidden, batch, sizes.directions)
            except Unsupported as refused:
                self._refused[batch, ends] = str(refused)
                raise
            make_room(self._able)
            known = [(dataclasses.replace(plan, lengths=ends), way) for plan in plans]
            self._able[batch, ends] = known
        return known

    def _at_hand(self, ways: Sequence[How], batch: int) -> How | None:
        """The likeliest to be fast of what is loaded and can run this."""
        if ways[0] in self._kept:
            return ways[0]
        able = {}
        for how in list(self._kept):
            if how[0].lengths == ways[0][0].lengths:
                with contextlib.suppress(Unsupported):
                    able[how] = self._guess(self._kept[how].plan, batch)
        return min(able, key=lambda how: able[how], default=None)

    def _guess(self, plan: Plan, batch: int) -> float:
        """Microseconds per step, roughly."""
        share = kernels.share_of(plan, batch, self.sizes.directions)
        return plan.guess(share.sequences) * (1 if share.together else self.sizes.directions)

    def _prepared(self, key: Shape, graph: bool) -> Route:
        """How a shape runs that was not called before."""
        batch, timesteps, rows, ends = key
        ways = self._ways(batch, timesteps, ends)
        with PREPARING, torch.cuda.device(DEVICE):
            how = self._at_hand(ways, batch)
            if not graph:
                how = self._loaded(ways, how, batch)
            elif how is None:
                raise NotYet(NEW_IN_GRAPH)
            loaded = self._kept[how]
            share = kernels.share_of(loaded.plan, batch, self.sizes.directions)
            scratch = -(-loaded.stack.scratch(rows, share.exchange_bytes) // 256) * 256
            make_room(self._routes)
            self._routes[key] = route = Route(loaded, (batch, timesteps, rows, *share), scratch)
            return route

    def _loaded(self, ways: Sequence[How], how: How | None, batch: int) -> How:
        """A plan that is loaded now. A faster one may be on its way, in another thread."""
        best = ways[0]
        if how is None or best in self._packed:
            return self._load_first(ways, batch)
        slower = self._guess(how[0], batch) > WORTH * self._guess(best[0], batch)
        if best != how and slower and best not in self._once:
            self._once.add(best)
            weights = self._on_host()  # while nothing is captured

            def prepare() -> None:
                with contextlib.suppress(Unsupported):  # the one at hand stays
                    self._packed[best] = self._pack(best, weights)
                    self._routes.clear()
                    self.changes += 1

            threading.Thread(target=prepare, name="lstm_kernels").start()
        return how

    def _load_first(self, ways: Sequence[How], batch: int) -> How:
        """The first of these that can be compiled and launched, loaded."""
        reasons = []
        for how in ways:
            try:
                fitted, _ = kernels.toolbox()[1].fitted(how[0])
                kernels.share_of(fitted, batch, self.sizes.directions)
                if how not in self._kept:
                    packed = self._packed.pop(how, None) or self._pack(how, self._on_host())
                    self._kept[how] = _with_room(functools.partial(self._load, how, packed))
                    self._once.add(how)
                while len(self._kept) > KEPT:  # those go that were used longest ago
                    others = (one for one in self._kept if one != how)
                    del self._kept[min(others, key=lambda one: self._kept[one].used)]
                    self._routes.clear()
                    self.changes += 1
                return how
            except (Unsupported, RuntimeError, MemoryError) as refused:
                reasons.append(str(refused))
        self._refused[batch, ways[0][0].lengths] = reasons[0]
        raise Unsupported(reasons[0])

    def _pack(self, how: How, weights: list[list[list[Array]]]) -> list[kernels.Weights]:
        """The weights of each layer as a plan wants them, and all that it launches compiled."""
        plan, way = how
        with ThreadPoolExecutor() as pool:
            pool.submit(self._products, how)
            kernels.toolbox()[1].fitted(plan)
            return [kernels.packed(layer, plan, way) for layer in weights]

    def _products(self, how: How) -> tuple[bytes, bytes]:
        """The machine code of the input products, for many vectors and for few."""
        few = kernels.VECTORS if self._few_rows() else ""
        many, few_code = (kernels.product_code(way, how[0].storage) for way in (how[1], few))
        return many, few_code

    def _load(self, how: How, packed: list[kernels.Weights]) -> Loaded:
        plan, projection = how
        paths, compiler, _ = kernels.toolbox()
        fitted, code = compiler.fitted(plan)
        parts: list[Array] = []
        places, end = [], 0
        few = projection == kernels.TILES  # else the product by vectors reads the same weights
        for layer in packed:
            for array in (layer.w_ih, layer.weights, layer.bias, layer.few_w_ih)[: 3 + few]:
                parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
                places.append(end)
                end += -(-array.nbytes // 256) * 256
        whole = np.zeros(end, np.uint8)
        for place, part in zip(places, parts, strict=True):
            whole[place : place + len(part)] = part
        memory = torch.from_numpy(whole).to(DEVICE)
        at = [memory.data_ptr() + place for place in places]
        given = []
        for i, layer in enumerate(packed):
            w_ih, weights, bias, *other = at[i * (3 + few) : (i + 1) * (3 + few)]
            where = w_ih, other[0] if few else w_ih, weights, bias
            given.append(
                native.LayerWeights(*where, layer.w_ih.nbytes, layer.scale, layer.input_scale)
            )
        sizes = self.sizes
        most = fitted.shared_bytes(fitted.sequences)
        roomy = kernels.Share(fitted.sequences, max(most, fitted.room), 0, 1)
        stack = native.GpuStack(
            paths,
            (sizes.input_size, sizes.hidden, sizes.layers, sizes.directions),
            (code, *self._products(how)),
            fitted.storage,
            projection,
            self._few_rows(),
            kernels.launch_of(fitted, roomy),
            given,
        )
        return Loaded(fitted, stack, memory)

    def _on_host(self) -> list[list[list[Array]]]:
        """w_ih, w_hh, b_ih and b_hh as float32, by layer and direction."""
        if self._host is None:
            each, both = 4 if self.sizes.bias else 2, self.sizes.directions
            arrays = [weight.float().cpu().numpy() for weight in self._weights]
            cells = [arrays[i : i + each] for i in range(0, len(arrays), each)]
            if not self.sizes.bias:
                none = np.zeros(4 * self.sizes.hidden, np.float32)
                cells = [[*cell, none, none] for cell in cells]
            self._host = [cells[i : i + both] for i in range(0, len(cells), both)]
        return self._host


def _key(batch: int, timesteps: int) -> tuple[int, int]:
    """What plans are measured for."""
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
