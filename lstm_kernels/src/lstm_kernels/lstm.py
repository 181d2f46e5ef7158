"""`torch.nn.LSTM` by kernels of our own, where they take a call; else nn.LSTM itself.

    model = lstm_kernels.replace(model)         # every nn.LSTM of it, in place
    layer = lstm_kernels.LSTM(256, 512, num_layers=2, bidirectional=True)
    layer = lstm_kernels.LSTM.like(trained)     # shares the parameters

docs/how-to/use-the-kernel.md says what runs on the kernels.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.optim.optimizer import register_optimizer_step_post_hook

from lstm_kernels import Unsupported, on_cpu, operator, routes
from lstm_kernels import layer as kernels
from lstm_kernels import stack as stacks
from lstm_kernels.on_cpu import CpuStack
from lstm_kernels.plans import H0_MOST
from lstm_kernels.stack import TYPES, NotYet, Sizes, Stack

COUNTS: Counter[str] = Counter()
KERNELS = "kernels"  # as `calls` counts what ran on them
CHANGED = "the weights have just changed: from the next call on"
LOST = (
    "an earlier call returned wrong outputs: its kernel waited 2 seconds for one step of another"
    " block and gave up. Is the GPU shared with other work?"
)


class LSTM(torch.nn.LSTM):
    """An `nn.LSTM`: its parameters, `state_dict` and results.

    A call in inference runs on our kernels. On a GPU it only queues its work on the current stream,
    but for the first one, which compiles a kernel unless an earlier process has. A model of the GPU
    chooses the kernel; `tune` measures, among `plans` of them.
    """

    precision: str | None = None  # fp32, tf32, fp16, bf16; None: as PyTorch's switches say
    quantize: str | None = None  # int8: weights and products on a CPU; None: as they are
    plans: int = kernels.TRIED

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _allow_dynamo()

    @classmethod
    def like(
        cls,
        layer: torch.nn.LSTM,
        precision: str | None = None,
        plans: int = kernels.TRIED,
        quantize: str | None = None,
    ) -> LSTM:
        """A layer that shares the parameters of this one.

        `precision` is fp32, tf32, fp16 or bf16; by default PyTorch's switches choose. `quantize` is
        int8: on a CPU weights and inputs are rounded to integers of 8 bits, row by row.
        """
        if not isinstance(layer, torch.nn.LSTM):
            raise TypeError(f"{type(layer).__name__} is not a torch.nn.LSTM")
        if precision is not None and precision not in TYPES:
            raise ValueError(f"precision {precision!r} is none of {', '.join(TYPES)}")
        routes.check_quantize(quantize)
        _allow_dynamo()
        made = cls.__new__(cls)
        containers = (dict, list)
        made.__dict__ = {
            name: value.copy() if isinstance(value, containers) else value
            for name, value in layer.__dict__.items()
        }
        if precision is not None:
            made.precision = precision
        if plans != kernels.TRIED:
            made.plans = plans
        if quantize is not None:
            made.quantize = quantize
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        if packed := _STACKS.get(self):
            packed.repeats = None
        super().__setattr__(name, value)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """As `nn.LSTM` does it."""
        if torch.compiler.is_compiling():
            return self._compiled(input, hx)
        packed, answer = _STACKS.get(self), None
        if packed is not None and packed.repeats is not None:
            answer = packed.repeats(self, input, hx)
        if answer is None:
            answer = self._by_kernels(input, hx, _started)
        return super().forward(input, hx) if answer is None else answer

    def explain(self, input: Any, hx: Any = None) -> str:
        """Which path a call takes: `kernels: ...`, or `nn.LSTM: ` and why. It measures nothing."""
        weights = self._weights()
        if why := routes.switched_off(self) or routes.refusal(self, input, hx, weights):
            return f"nn.LSTM: {why}"
        packed, precision = _STACKS.get(self), routes.precision_of(self, input)
        if packed and packed.marks != _marks(weights):
            return f"nn.LSTM: {CHANGED}"
        if routes.on_cpu(input):
            path = on_cpu.path(
                routes.sizes_of(self), precision, *routes.batch_and_timesteps(self, input)
            )
            return f"{KERNELS}: {precision}, {path}"
        if hx is not None and not stacks.capturing() and _started(hx[0]) is None:
            return f"nn.LSTM: {BEYOND}"
        batch, timesteps = routes.batch_and_timesteps(self, input)
        stack: Any = packed.by_precision.get(precision) if packed else None
        try:
            shown = stack or Stack(weights, routes.sizes_of(self), precision, self.plans, set())
            path = shown.path(batch, timesteps)
        except Unsupported as refused:
            return f"nn.LSTM: {refused}"
        if stacks.capturing() and not (stack and stack.at_hand(batch, timesteps)):
            return f"nn.LSTM: {stacks.NEW_IN_GRAPH}"
        return f"{KERNELS}: {precision}, {path}"

    def refresh(self) -> None:
        """Read the weights again at the next call.

        Writes through `.data` and in replayed CUDA graphs are not seen without it.
        """
        if packed := _STACKS.get(self):
            _STACKS[self] = packed.again(_marks(self._weights()))

    def check(self) -> None:
        """Wait for all calls so far; raise if one of them gave up since this layer last raised."""
        _wait()
        if packed := _STACKS.get(self):
            _raise_if_late(packed)

    def packed_bytes(self) -> int:
        """Bytes of the packed weights that calls on a CPU read."""
        packed = _STACKS.get(self)
        known = packed.by_precision.values() if packed else ()
        return sum(stack.bytes for stack in known if isinstance(stack, CpuStack))

    def path(self, batch: int, timesteps: int) -> str:
        """How a shape that was called is computed."""
        packed = _STACKS.get(self)
        known = packed.by_precision.values() if packed else ()
        paths = {stack.path(batch, timesteps) for stack in known if isinstance(stack, Stack)}
        return " | ".join(sorted(paths))

    def extra_repr(self) -> str:
        shown: str = super().extra_repr()
        own = {"precision": self.precision, "quantize": self.quantize}
        return shown + "".join(f", {name}={value!r}" for name, value in own.items() if value)

    def __prepare_scriptable__(self) -> torch.nn.LSTM:
        """For `torch.jit.script`, which takes nn.LSTM only by its own class."""
        plain = torch.nn.LSTM.__new__(torch.nn.LSTM)
        plain.__dict__ = {k: v for k, v in self.__dict__.items() if k not in OWN}
        return plain

    def _by_kernels(self, x: Any, hx: Any, start: Callable[[Any], Any]) -> Any:
        """What the kernels give; None where they do not take the call.

        `start` makes of an initial h one that they can start from, or None.
        """
        taken = self._taken(x, hx)
        if not isinstance(taken, str):
            try:
                if hx is not None and type(taken[0]) is not CpuStack:
                    if (h0 := start(hx[0])) is None:
                        raise Unsupported(BEYOND)
                    hx = h0, hx[1]
                answer = _answered(*taken, x, hx, self.batch_first)
                _count(KERNELS)
                if type(x) is torch.Tensor:
                    packed = _STACKS[self]
                    packed.repeats = _repeats(self, taken[0], packed.marks, x, hx)
                return answer
            except (Unsupported, NotYet) as refused:
                taken = str(refused)
        _count(taken)
        return None

    def _taken(self, x: Any, hx: Any) -> _Taken | str:
        """The kernels of a call and the type of its results, or why nn.LSTM takes it."""
        weights, packed, asked = self._weights(), _STACKS.get(self), None
        if packed is not None:
            _raise_if_late(packed)
        off, marks = routes.switched_off(self), _marks(weights)
        if packed is not None and not off:
            asked = routes.rests_on(self, x, hx)
            if (known := packed.known.get(asked)) and marks == packed.marks:
                return known
        if why := off or routes.refusal(self, x, hx, weights):
            return why
        if marks is None:
            return routes.UNSEEN
        if packed is None:
            packed = _STACKS.setdefault(self, _Packed(marks, stacks.lost_calls(), set()))
            asked = routes.rests_on(self, x, hx)
        if marks != packed.marks:  # packing takes ms: not for what changes with every call
            _STACKS[self] = packed.again(marks)
            return CHANGED
        precision = routes.precision_of(self, x)
        stack: Any = packed.by_precision.get(precision)
        if stack is None:
            made: Any
            if routes.on_cpu(x):
                made = CpuStack(weights, routes.sizes_of(self), precision)
            elif stacks.capturing():
                return "a precision that is new while a graph is captured"
            else:
                sizes = routes.sizes_of(self)
                made = Stack(weights, sizes, precision, self.plans, packed.captured)
            stack = packed.by_precision.setdefault(precision, made)
        rows = routes.rows_of(x)
        taken = stack, routes.autocast(rows) or rows.dtype
        if asked is not None:
            stacks.make_room(packed.known)
            packed.known[asked] = taken
        return taken

    def _weights(self) -> list[Any]:
        """The parameters that are there now: `_parameters` may hold others than nn.LSTM's list."""
        if not all(
            map(is_, map(self._parameters.get, self._flat_weights_names), self._flat_weights)
        ):
            self._update_flat_weights()
        weights: list[Any] = self._flat_weights
        return weights

    def _compiled(self, x: Any, hx: Any) -> Any:
        """As one operator in a graph, which decides when it runs."""
        grads = torch.is_grad_enabled() and (
            x.requires_grad or any(w.requires_grad for w in self._flat_weights)
        )
        plain = isinstance(x, torch.Tensor) and x.dim() == 3 and not grads
        plain = plain and (x.is_cuda or x.dtype in on_cpu.PRECISIONS)
        plain &= not self.proj_size and not (self.training and self.dropout)
        if not plain or torch.onnx.is_in_onnx_export():
            return super().forward(x, hx)
        y, h, c = operator.lstm(
            *(x, *(hx or (None, None)), list(self._flat_weights)),
            *(self.bias, self.num_layers, self.bidirectional, self.batch_first),
            *(routes.own_precision(self), routes.autocast(x) or x.dtype),
        )
        return y, (h, c)


OWN = ("precision", "plans", "quantize")  # what nn.LSTM does not have

_Taken = tuple[Any, torch.dtype]  # a `Stack` or a `CpuStack`
Marks = list[tuple[int, int]]


class _Packed:
    """The weights of a layer as the kernels have them, and which weights these were."""

    def __init__(self, marks: Marks | None, heard: int, captured: set[Any]) -> None:
        self.marks = marks
        self.heard = heard  # of lost calls: for how many the layer has raised
        self.captured = captured  # what graphs read whenever they are replayed
        self.repeats: Any = None  # a CPU's call that is like the one before
        self.known: dict[Any, _Taken] = {}  # by all that `_refusal` and `_precision` look at
        self.by_precision: dict[str, Stack | CpuStack] = {}

    def again(self, marks: Marks | None) -> _Packed:
        """For other weights."""
        return _Packed(marks, self.heard, self.captured)


_STACKS: weakref.WeakKeyDictionary[LSTM, _Packed] = weakref.WeakKeyDictionary()


def _marks(weights: Iterable[torch.Tensor]) -> Marks | None:
    """What differs once a weight is written or replaced; None where nobody can see that."""
    try:
        return [(weight.data_ptr(), weight._version) for weight in weights]
    except RuntimeError:  # an inference tensor has no version
        return None


def _stepped(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """A step of an optimiser: a fused one writes weights, and moves no version of them."""
    if _STACKS:
        steps = _marks(p for group in optimizer.param_groups for p in group["params"])
        written = {address for address, _ in steps or ()}
        for packed in list(_STACKS.values()):
            if any(address in written for address, _ in packed.marks or ()):
                packed.marks = packed.repeats = None


register_optimizer_step_post_hook(_stepped)


def _repeats(layer: LSTM, stack: Any, marks: Marks | None, x: torch.Tensor, hx: Any) -> Any:
    """A function for calls like this one, which gives None where a call is not like it.

    A small layer takes less time than `_taken` and `_answered`, so it asks only what may have
    changed; `LSTM.__setattr__` forgets it.
    """
    layout = x.dim() == 3 and (layer.batch_first is False or x.shape[0] == 1 == x.shape[1])
    plain = layout and x.is_contiguous() and not torch._C._is_any_autocast_enabled()
    if not plain or x.dtype is not stack.type or type(hx) not in (type(None), tuple):
        return None
    kind, shape, dtype, here = torch.Tensor, x.shape, x.dtype, x.device
    call, state = stack.caller(x), None if hx is None else hx[0].shape
    if call is None:
        return None
    on_gpu, switches, lost = type(stack) is Stack, _switches(), stacks.lost_calls()
    grad, autocast = torch.is_grad_enabled, torch._C._is_any_autocast_enabled
    traced, modes = torch._C._get_tracing_state, torch._C._len_torch_dispatch_stack
    transformed = torch._C._functorch.peek_interpreter_stack

    def unlike(tensor: Any, shape: Any) -> bool:
        return (
            type(tensor) is not kind
            or tensor.shape != shape
            or tensor.dtype is not dtype
            or tensor.device != here
            or not tensor.is_contiguous()
        )

    def repeat(layer: LSTM, x: Any, hx: Any) -> Any:
        answer = None
        if grad() or autocast() or traced() or modes() or transformed() is not None:
            return None
        if [(w.data_ptr(), w._version) for w in layer._parameters.values()] != marks:
            return None
        if unlike(x, shape):
            return None
        if on_gpu and (stacks.lost_calls() != lost or _switches() != switches):
            return None
        if hx is None:
            if state is None:
                answer = call(x, 0, 0)
        elif type(hx) is not tuple or len(hx) != 2 or unlike(hx[0], state) or unlike(hx[1], state):
            return None
        elif not on_gpu or _is_bounded(hx[0]):
            answer = call(x, hx[0].data_ptr(), hx[1].data_ptr())
        if answer is not None:
            if on_gpu:
                _bound(answer[1][0])
            with _COUNTING:
                COUNTS[KERNELS] += 1
        return answer

    return repeat


def _switches() -> Any:
    """Those of PyTorch that choose a GPU's path and precision."""
    return torch._C._get_cudnn_enabled(), torch._C._get_fp32_precision_getter("cuda", "rnn")


BEYOND = "an initial h above 32768, or not a number"


def _bound(h: torch.Tensor) -> None:
    """Remember that the kernels can start from it, as it is now."""
    h._lstm_kernels_bounded = -1 if h.is_inference() else h._version  # type: ignore[attr-defined]


def _is_bounded(h: torch.Tensor) -> bool:
    mark = -1 if h.is_inference() else h._version
    return getattr(h, "_lstm_kernels_bounded", None) == mark


def _started(h0: torch.Tensor) -> torch.Tensor | None:
    """An initial h that the kernels can start from; None: nn.LSTM must.

    What a call of ours returned is known to be fine. Anything else is looked at, once for each
    write to it, which waits for the GPU; in a graph that cannot be, and there a value that is too
    large becomes NaN, and so does all that comes of it.
    """
    if _is_bounded(h0):
        return h0
    if stacks.capturing():
        return _or_nan(h0)
    if not float(torch.linalg.vector_norm(h0, math.inf)) <= H0_MOST:  # one kernel
        return None
    if not h0.is_inference():  # else nobody sees the next write
        _bound(h0)
    return h0


def _or_nan(h0: torch.Tensor) -> torch.Tensor:
    return torch.where(h0.abs() <= H0_MOST, h0, torch.nan)


def _answered(stack: Any, given: torch.dtype, x: Any, hx: Any, batch_first: bool) -> Any:
    """The answer in the layout of nn.LSTM."""
    if isinstance(x, PackedSequence):
        return _packed_answer(stack, given, x, hx)
    alone = x.dim() == 2
    if hx is not None and alone:
        hx = tuple(state.unsqueeze(1) for state in hx)
    y, h, c = stack.run(routes.time_first(x, batch_first), hx)
    if y.dtype != given:  # a precision that was chosen for the layer
        y, h, c = (tensor.to(given) for tensor in (y, h, c))
    if alone:
        y, h, c = y.squeeze(1), h.squeeze(1), c.squeeze(1)
    elif batch_first:
        y = y.transpose(0, 1)
    if type(stack) is CpuStack:
        return y, (h, c)
    _bound(h)
    return y, (h, c)


def _packed_answer(stack: Any, given: torch.dtype, x: PackedSequence, hx: Any) -> Any:
    if hx is not None and x.sorted_indices is not None:
        hx = tuple(state.index_select(1, x.sorted_indices) for state in hx)
    y, h, c = (tensor.to(given) for tensor in stack.run(x.data, hx, x.batch_sizes))
    if x.unsorted_indices is not None:
        h, c = (state.index_select(1, x.unsorted_indices) for state in (h, c))
    return PackedSequence(y, x.batch_sizes, x.sorted_indices, x.unsorted_indices), (h, c)


class _Thread(threading.local):
    """For how many lost calls `synchronize` has raised in a thread that calls layers or it.

    Threads that come later need not know of what another has raised for.
    """

    raised = 0

    def __init__(self) -> None:
        self.heard = _Thread.raised


_THREAD = _Thread()


def _raise_if_late(caller: _Packed | _Thread) -> None:
    """Raise once to each caller for calls that gave up, whoever made them."""
    lost = stacks.lost_calls()
    if lost > caller.heard:
        caller.heard = lost
        raise RuntimeError(LOST)


def _wait() -> None:
    if torch.cuda.is_initialized():  # else nothing ran on a GPU
        torch.cuda.synchronize(stacks.DEVICE)


def synchronize() -> None:
    """Wait for all calls so far; raise if one gave up since it last did so in this thread."""
    _wait()
    try:
        _raise_if_late(_THREAD)
    finally:
        _Thread.raised = _THREAD.heard


_COUNTING = threading.Lock()


def _count(path: str) -> None:
    _ = _THREAD.heard  # from here on this thread hears of lost calls
    with _COUNTING:
        COUNTS[path] += 1


def calls() -> dict[str, int]:
    """How many calls ran on the kernels, and how many on nn.LSTM's path, by the reason."""
    return dict(COUNTS)


_ADOPTED: dict[Any, LSTM] = {}  # by where their weights lie
MOST_ADOPTED = 16


def by_operator(
    x: torch.Tensor,
    hx: tuple[torch.Tensor, torch.Tensor] | None,
    weights: list[torch.Tensor],
    sizes: Sizes,
    batch_first: bool,
    precision: str,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """y, h and c, as the operator returns them: y lies in memory with the time first."""
    layer = _layer_of(weights, sizes, batch_first, precision)
    casting = dtype != x.dtype
    with torch.no_grad(), torch.autocast(x.device.type, dtype if casting else None, casting):
        if answer := layer._by_kernels(x, hx, _or_nan):
            y, (h, c) = answer
            return y, h, c
        y, (h, c) = torch.nn.LSTM.forward(layer, x, hx)
        if batch_first:
            y = y.transpose(0, 1).contiguous().transpose(0, 1)
        return y, h, c


def _layer_of(weights: list[torch.Tensor], sizes: Sizes, batch_first: bool, precision: str) -> LSTM:
    """The layer whose parameters these are, or one made of them."""
    where = tuple(weight.data_ptr() for weight in weights)
    for layer in list(_STACKS):
        same = layer.batch_first == batch_first and routes.own_precision(layer) == precision
        if same and [weight.data_ptr() for weight in layer._flat_weights] == list(where):
            return layer
    key = (*where, batch_first, precision)
    if key not in _ADOPTED:
        with torch.device("meta"):
            layer = LSTM(
                *(sizes.input_size, sizes.hidden, sizes.layers, sizes.bias, batch_first),
                bidirectional=sizes.directions == 2,
            )
        for name, weight in zip(layer._flat_weights_names, weights, strict=True):
            setattr(layer, name, torch.nn.Parameter(weight.detach(), requires_grad=False))
        if precision == routes.INT8:
            layer.quantize = precision
        elif precision:
            layer.precision = precision
        _ADOPTED[key] = layer.eval()
        idle = [k for k, v in _ADOPTED.items() if not (v in _STACKS and _STACKS[v].captured)]
        for old in idle[: max(0, len(_ADOPTED) - MOST_ADOPTED)]:
            del _ADOPTED[old]
        return layer
    return _ADOPTED[key]


def tune(layer: LSTM, batch: int, timesteps: int) -> str:
    """Measure at a shape which plan is fastest, and return how it is computed.

    On a GPU of another kind than the kernels were measured on they run after this, where they are
    faster than nn.LSTM.
    """
    shape = (batch, timesteps) if layer.batch_first else (timesteps, batch)
    weight = layer.weight_ih_l0
    x = torch.zeros((*shape, layer.input_size), dtype=weight.dtype, device=weight.device)
    with torch.no_grad():
        if routes.on_cpu(x):
            layer.forward(x)
            return layer.explain(x)
        kind = stacks.capability()
        routes.TUNED.add(kind)
        for _ in range(2):  # the first one after a change of weights is nn.LSTM's
            layer.forward(x)
        path = layer.explain(x)
        if path.startswith(KERNELS):
            stack: Any = _STACKS[layer].by_precision[routes.precision_of(layer, x)]
            stack.tune(batch, timesteps)
            layer.forward(x)
            path = layer.explain(x)
        if kind != routes.CAPABILITY and path.startswith(KERNELS):
            ours, theirs = _seconds(layer, x), _seconds(super(LSTM, layer).forward, x)
            if ours > theirs:
                routes.TUNED.discard(kind)
                return f"nn.LSTM: {theirs * 1e6:.0f} us, the kernels {ours * 1e6:.0f} us"
    return path


def _seconds(function: Any, x: torch.Tensor) -> float:
    """The least time of a call, of twenty after three."""
    took = []
    for _ in range(23):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function(x)
        end.record()
        end.synchronize()
        took.append(begin.elapsed_time(end) / 1e3)
    return float(min(took[3:]))


def replace(
    model: torch.nn.Module,
    precision: str | None = None,
    quiet: bool = False,
    quantize: str | None = None,
) -> Any:
    """Have every plain nn.LSTM of a model run on our kernels; returns the model.

    The modules stay the same objects: hooks, ties and optimisers keep them. Prints what was
    replaced, and what was left and why.
    """
    _allow_dynamo()
    routes.check_quantize(quantize)
    lines = []
    for name, module in model.named_modules():
        shown = name or type(model).__name__
        if type(module) is torch.nn.LSTM:
            module.__class__ = LSTM
            if precision is not None:
                module.precision = precision  # type: ignore[assignment]
            if quantize is not None:
                module.quantize = quantize  # type: ignore[assignment]
            lines.append(f"replaced  {shown}: {module.extra_repr()}")
        elif isinstance(module, torch.nn.LSTM) and not isinstance(module, LSTM):
            lines.append(f"left      {shown}: {type(module).__name__}, a class of its own")
        elif getattr(module, "original_name", "") == "LSTM":
            lines.append(f"left      {shown}: scripted by torch.jit")
    if not quiet:
        print("\n".join(lines) or "no nn.LSTM in this model")
    return model


def restore(model: torch.nn.Module) -> Any:
    """Make every layer of ours in a model a plain nn.LSTM, also one that nobody replaced.

    Returns the model, whose layers stay the same objects.
    For what looks at the class, as `torch.ao.quantization.quantize_dynamic` does.
    """
    for module in model.modules():
        if type(module) is LSTM:
            module.__class__ = torch.nn.LSTM
            for name in OWN:
                module.__dict__.pop(name, None)
    return model


def _allow_dynamo() -> None:
    """Have torch.compile look into an nn.LSTM, which it refuses by default."""
    if os.environ.get("LSTM_KERNELS_DYNAMO") != "0":
        import torch._dynamo.config as dynamo

        dynamo.allow_rnn = True
