"""`torch.nn.LSTM` by kernels of our own, where they take a call; else nn.LSTM itself.

    model = lstm_kernels.replace(model)         # every nn.LSTM of it, in place
    layer = lstm_kernels.LSTM(256, 512, num_layers=2, bidirectional=True)
    layer = lstm_kernels.LSTM.like(trained)     # shares the parameters

docs/how-to/use-the-kernel.md says what runs on the kernels.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter, OrderedDict
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from lstm_kernels import Unsupported, operator
from lstm_kernels import layer as kernels
from lstm_kernels import stack as stacks
from lstm_kernels.plans import H0_MOST
from lstm_kernels.stack import TYPES, NotYet, Sizes, Stack

CAPABILITY = (9, 0)  # of the GPUs that the kernels were measured on
COUNTS: Counter[str] = Counter()
KERNELS = "kernels"  # as `calls` counts what ran on them
LOST = (
    "an earlier call returned wrong outputs: its kernel waited 2 seconds for one step of another"
    " block and gave up. Is the GPU shared with other work?"
)

_PRECISIONS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


class LSTM(torch.nn.LSTM):
    """An `nn.LSTM`: its parameters, `state_dict` and results.

    A call in inference on a GPU runs on our kernels. The first call at a new batch size, or at a
    new power of two of timesteps, measures which of `plans` plans is fastest, unless an earlier
    process has; that takes seconds. Later calls only queue their work on the current stream.
    """

    precision: str | None = None  # fp32, tf32, fp16, bf16; None: as PyTorch's switches say
    plans: int = kernels.TRIED

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _allow_dynamo()

    @classmethod
    def like(
        cls, layer: torch.nn.LSTM, precision: str | None = None, plans: int = kernels.TRIED
    ) -> LSTM:
        """A layer that shares the parameters of this one.

        `precision` is fp32, tf32, fp16 or bf16; by default PyTorch's switches choose.
        """
        if not isinstance(layer, torch.nn.LSTM):
            raise TypeError(f"{type(layer).__name__} is not a torch.nn.LSTM")
        if precision is not None and precision not in TYPES:
            raise ValueError(f"precision {precision!r} is none of {', '.join(TYPES)}")
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
        return made

    def forward(self, input: Any, hx: Any = None) -> Any:
        """As `nn.LSTM` does it."""
        if torch.compiler.is_compiling():
            return self._compiled(input, hx)
        stack, path = self._stack(input, hx)
        if stack is not None:
            states, path = hx, "an initial h above 32768, or not a number"
            if hx is not None and (h0 := _started(hx[0])) is not None:
                states = h0, hx[1]
            if hx is None or h0 is not None:
                try:
                    answer = _by_kernels(stack, input, states, self.batch_first)
                    COUNTS[KERNELS] += 1
                    return answer
                except (Unsupported, NotYet) as refused:
                    path = str(refused)
        COUNTS[path] += 1
        return super().forward(input, hx)

    def explain(self, input: Any, hx: Any = None) -> str:
        """Which path a call takes: `kernels: ...`, or `nn.LSTM: ` and why."""
        stack, path = self._stack(input, hx)
        if stack is None:
            return f"nn.LSTM: {path}"
        x = _time_first(input, self.batch_first)
        try:
            for cell in stack.cells:
                cell.ready(x.shape[1], x.shape[0])
        except (Unsupported, NotYet) as refused:
            return f"nn.LSTM: {refused}"
        return f"{KERNELS}: {stack.precision}, {stack.path(x.shape[1], x.shape[0])}"

    def refresh(self) -> None:
        """Read the weights again at the next call.

        Writes through `.data` and in replayed CUDA graphs are not seen without it.
        """
        _STACKS.pop(self, None)

    def check(self) -> None:
        """Wait for all calls so far; raise if one of them gave up."""
        synchronize()

    def path(self, batch: int, timesteps: int) -> str:
        """How a shape that was called is computed."""
        (stack, *_) = _STACKS[self].by_precision.values()
        return stack.path(batch, timesteps)

    def extra_repr(self) -> str:
        shown: str = super().extra_repr()
        return shown + (f", precision={self.precision!r}" if self.precision else "")

    def __prepare_scriptable__(self) -> torch.nn.LSTM:
        """For `torch.jit.script`, which takes nn.LSTM only by its own class."""
        plain = torch.nn.LSTM.__new__(torch.nn.LSTM)
        plain.__dict__ = {k: v for k, v in self.__dict__.items() if k not in ("precision", "plans")}
        return plain

    def _stack(self, x: Any, hx: Any) -> tuple[Stack | None, str]:
        """The kernels of a call, or why nn.LSTM takes it."""
        weights, packed, own = self._flat_weights, _STACKS.get(self), self._parameters
        names = zip(self._flat_weights_names, weights, strict=True)
        if any(own.get(name) is not weight for name, weight in names):
            self._update_flat_weights()  # parameters were swapped for others
            weights = self._flat_weights
        if why := _switched_off(self):
            return None, why
        graded = torch.is_grad_enabled()
        asked = _asked(x, hx)
        if packed is None or graded or asked not in packed.taken:
            if why := _refusal(self, x, hx, weights):
                return None, why
            if packed is None:
                packed = _STACKS[self] = _Packed(weights)
            if not graded:
                packed.taken.add(asked)
        _raise_if_late()
        return packed.stack(self, weights, self.precision or _precision(x))

    def _compiled(self, x: Any, hx: Any) -> Any:
        """As one operator in a graph, which decides when it runs."""
        grads = torch.is_grad_enabled() and (
            x.requires_grad or any(w.requires_grad for w in self._flat_weights)
        )
        plain = isinstance(x, torch.Tensor) and x.is_cuda and x.dim() == 3 and not grads
        plain &= not self.proj_size and not (self.training and self.dropout)
        if not plain or torch.onnx.is_in_onnx_export():
            return super().forward(x, hx)
        y, h, c = operator.lstm(
            *(x, *(hx or (None, None)), list(self._flat_weights)),
            *(self.bias, self.num_layers, self.bidirectional, self.batch_first),
            *(self.precision or "", _autocast(x) or x.dtype),
        )
        return y, (h, c)


class _Packed:
    """The weights of a module as the kernels have them, and which weights these were."""

    def __init__(self, weights: list[torch.Tensor]) -> None:
        self.seen = _marks(weights)
        self.taken: set[Any] = set()  # inputs, by all that `_refusal` looks at
        self.by_precision: dict[str, Stack] = {}

    def stack(
        self, layer: LSTM, weights: list[torch.Tensor], precision: str
    ) -> tuple[Stack | None, str]:
        """The kernels with these weights.

        Packing takes milliseconds: weights that change between any two calls are left to nn.LSTM.
        """
        marks = _marks(weights)
        if marks != self.seen:
            self.taken.clear()
            self.by_precision.clear()
            self.seen = marks
            return None, "the weights have just changed: from the next call on"
        if precision not in self.by_precision:
            if torch.cuda.is_current_stream_capturing():
                return None, "a precision that is new while a graph is captured"
            shape = (layer.input_size, layer.hidden_size, layer.num_layers, 1 + layer.bidirectional)
            sizes = Sizes(*shape, layer.bias)
            self.by_precision[precision] = Stack(weights, sizes, precision, layer.plans)
        return self.by_precision[precision], ""


_STACKS: weakref.WeakKeyDictionary[LSTM, _Packed] = weakref.WeakKeyDictionary()


def _marks(weights: list[torch.Tensor]) -> list[tuple[int, int]]:
    """What differs once a weight is written or replaced."""
    return [(weight.data_ptr(), weight._version) for weight in weights]


def _stepped(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """A step of an optimiser: a fused one writes weights, and moves no version of them."""
    if _STACKS:
        written = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for layer, packed in list(_STACKS.items()):
            if any(id(weight) in written for weight in layer._flat_weights):
                packed.seen = []


register_optimizer_step_post_hook(_stepped)


def _switched_off(layer: LSTM) -> str:
    """What has nothing to do with tensors."""
    if not torch.backends.cudnn.enabled:
        return "cuDNN is switched off"
    if layer.training and layer.dropout and layer.num_layers > 1:
        return "dropout in training"
    if torch._C._get_tracing_state() or torch._C._len_torch_dispatch_stack():
        return "the call is traced"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "the call is transformed by functorch"
    return ""


def _asked(x: Any, hx: Any) -> Any:
    """All that a decision about an input rests on, beside switches and weights."""
    if type(x) is not torch.Tensor:
        return None
    if not isinstance(hx, tuple):
        return x.shape, x.dtype, x.device, torch.is_autocast_enabled(x.device.type), hx is None
    return (_asked(x, None), *(_asked(state, None) for state in hx))


def _refusal(layer: LSTM, x: Any, hx: Any, weights: list[Any]) -> str:
    """Why nn.LSTM itself takes this call; empty if the kernels can."""
    if type(x) is not torch.Tensor:
        packed = isinstance(x, torch.nn.utils.rnn.PackedSequence)
        return "a packed sequence" if packed else "a tensor of a class of its own"
    if x.device != stacks.DEVICE:
        return f"x is on {x.device}, not on {stacks.DEVICE}"
    if stacks.capability() not in (CAPABILITY, *TUNED):
        return "not measured on GPUs of this kind: lstm_kernels.tune(layer, batch, timesteps)"
    if layer.proj_size:
        return "proj_size"
    if wrong := _wrong_sizes(layer, x, hx):
        return wrong
    if layer._modules or not all(type(w) is torch.nn.Parameter for w in weights):
        return "weights that are computed, as by weight_norm"
    if any(weight.is_inference() for weight in weights):
        return "weights that were made in inference mode: nobody sees when they change"
    tensors = [x, *weights, *(hx or ())]
    if any(tensor.device != stacks.DEVICE for tensor in tensors):
        return "weights and states are not all on the device of x"
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "a gradient is wanted (use torch.no_grad or torch.inference_mode)"
    types = {tensor.dtype for tensor in tensors}
    known = types <= set(_PRECISIONS) if _autocast(x) else types == {x.dtype}
    return "" if known and x.dtype in _PRECISIONS else f"{', '.join(map(str, types))}"


def _wrong_sizes(layer: LSTM, x: torch.Tensor, hx: Any) -> str:
    """What does not fit: nn.LSTM says so in its own words."""
    if x.dim() not in (2, 3) or x.shape[-1] != layer.input_size or not x.numel():
        return "an input that nn.LSTM refuses, or nothing to do"
    if hx is not None:
        if not isinstance(hx, tuple) or len(hx) != 2:
            return "states that nn.LSTM refuses"
        batch = (x.shape[not layer.batch_first],) if x.dim() == 3 else ()
        want = (layer.num_layers * (1 + layer.bidirectional), *batch, layer.hidden_size)
        if not all(type(s) is torch.Tensor and s.shape == want for s in hx):
            return "states that nn.LSTM refuses"
    return ""


def _autocast(x: torch.Tensor) -> torch.dtype | None:
    """What autocast computes an nn.LSTM in; None where it is off.

    On a GPU that is fp16, also where autocast was asked for bfloat16.
    """
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return None
    return torch.float16 if kind == "cuda" else torch.get_autocast_dtype(kind)


def _precision(x: torch.Tensor) -> str:
    """The precision that PyTorch's switches ask for."""
    precision = _PRECISIONS[_autocast(x) or x.dtype]
    return "tf32" if precision == "fp32" and _tf32() else precision


def _tf32() -> bool:
    """Whether cuDNN may use TF32 for recurrent layers."""
    cudnn = torch.backends.cudnn
    if not hasattr(cudnn, "rnn"):  # before PyTorch 2.9
        return bool(cudnn.allow_tf32)
    for switch in (cudnn.rnn, cudnn, torch.backends):
        if switch.fp32_precision != "none":
            return bool(switch.fp32_precision == "tf32")
    return False


def _started(h0: torch.Tensor) -> torch.Tensor | None:
    """An initial h that the kernels can start from; None: nn.LSTM must.

    What a call of ours returned is known to be fine. Anything else is looked at, once for each
    write to it, which waits for the GPU; in a graph that cannot be, and there a value that is too
    large becomes NaN, and so does all that comes of it.
    """
    mark = -1 if h0.is_inference() else h0._version
    if getattr(h0, "_lstm_kernels_bounded", None) == mark:
        return h0
    if torch.cuda.is_current_stream_capturing():
        return _or_nan(h0)
    if not bool((h0.abs() <= H0_MOST).all()):
        return None
    if not h0.is_inference():  # else nobody sees the next write
        h0._lstm_kernels_bounded = mark  # type: ignore[attr-defined]
    return h0


def _or_nan(h0: torch.Tensor) -> torch.Tensor:
    return torch.where(h0.abs() <= H0_MOST, h0, torch.nan)


def _time_first(x: torch.Tensor, batch_first: bool) -> torch.Tensor:
    """(T, B, I)."""
    if x.dim() == 2:
        return x.unsqueeze(1)
    return x.transpose(0, 1) if batch_first else x


def _by_kernels(stack: Stack, x: torch.Tensor, hx: Any, batch_first: bool) -> Any:
    """The answer in the layout of nn.LSTM."""
    alone = x.dim() == 2
    if hx is not None and alone:
        hx = tuple(state.unsqueeze(1) for state in hx)
    y, h, c = stack.run(_time_first(x, batch_first), hx)
    given = _autocast(x) or x.dtype
    if y.dtype != given:  # a precision that was chosen for the layer
        y, h, c = (tensor.to(given) for tensor in (y, h, c))
    if alone:
        y, h, c = y.squeeze(1), h.squeeze(1), c.squeeze(1)
    elif batch_first:
        y = y.transpose(0, 1)
    h._lstm_kernels_bounded = -1 if h.is_inference() else h._version  # type: ignore[attr-defined]
    return y, (h, c)


_heard_once = 0


def _raise_if_late() -> None:
    """Raise once for a call that gave up, whoever made it."""
    global _heard_once
    if stacks.lost_calls() > _heard_once:
        _heard_once = stacks.lost_calls()
        raise RuntimeError(LOST)


def synchronize() -> None:
    """Wait for all calls so far; raise if one of them gave up."""
    torch.cuda.synchronize(stacks.DEVICE)
    _raise_if_late()


def calls() -> dict[str, int]:
    """How many calls ran on the kernels, and how many on nn.LSTM's path, by the reason."""
    return dict(COUNTS)


_ADOPTED: OrderedDict[tuple[int, ...], LSTM] = OrderedDict()  # by where their weights lie
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
        stack, path = layer._stack(x, hx)
        if stack is not None:
            try:
                states = hx and (_or_nan(hx[0]), hx[1])
                y, (h, c) = _by_kernels(stack, x, states, batch_first)
                COUNTS[KERNELS] += 1
                return y, h, c.clone()  # h and c lie in one piece of memory
            except (Unsupported, NotYet) as refused:
                path = str(refused)
        COUNTS[path] += 1
        y, (h, c) = torch.nn.LSTM.forward(layer, x, hx)
        if batch_first:
            y = y.transpose(0, 1).contiguous().transpose(0, 1)
        return y, h, c


def _layer_of(weights: list[torch.Tensor], sizes: Sizes, batch_first: bool, precision: str) -> LSTM:
    """The layer whose parameters these are, or one made of them."""
    where = tuple(weight.data_ptr() for weight in weights)
    for layer in list(_STACKS):
        same = layer.batch_first == batch_first and (layer.precision or "") == precision
        if same and [weight.data_ptr() for weight in layer._flat_weights] == list(where):
            return layer
    key = (*where, batch_first, hash(precision))
    if key not in _ADOPTED:
        with torch.device("meta"):
            layer = LSTM(
                *(sizes.input_size, sizes.hidden, sizes.layers, sizes.bias, batch_first),
                bidirectional=sizes.directions == 2,
            )
        for name, weight in zip(layer._flat_weights_names, weights, strict=True):
            setattr(layer, name, torch.nn.Parameter(weight.detach(), requires_grad=False))
        layer.precision = precision or None
        _ADOPTED[key] = layer.eval()
        while len(_ADOPTED) > MOST_ADOPTED:
            _ADOPTED.popitem(last=False)
    return _ADOPTED[key]


TUNED: set[tuple[int, int]] = set()  # kinds of GPUs beside the one that was measured


def tune(layer: LSTM, batch: int, timesteps: int) -> str:
    """Measure at a shape which plan is fastest, and return how it is computed.

    On a GPU of another kind than the kernels were measured on they run after this, where they are
    faster than nn.LSTM.
    """
    shape = (batch, timesteps) if layer.batch_first else (timesteps, batch)
    weight = layer.weight_ih_l0
    x = torch.zeros((*shape, layer.input_size), dtype=weight.dtype, device=weight.device)
    with torch.no_grad():
        kind = stacks.capability()
        TUNED.add(kind)
        path = layer.explain(x)
        if kind != CAPABILITY and path.startswith(KERNELS):
            ours, theirs = _seconds(layer, x), _seconds(super(LSTM, layer).forward, x)
            if ours > theirs:
                TUNED.discard(kind)
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


def replace(model: torch.nn.Module, precision: str | None = None, quiet: bool = False) -> Any:
    """Have every plain nn.LSTM of a model run on our kernels; returns the model.

    The modules stay the same objects: hooks, ties and optimisers keep them. Prints what was
    replaced, and what was left and why.
    """
    _allow_dynamo()
    lines = []
    for name, module in model.named_modules():
        shown = name or type(model).__name__
        if type(module) is torch.nn.LSTM:
            module.__class__ = LSTM
            if precision is not None:
                module.precision = precision  # type: ignore[assignment]
            lines.append(f"replaced  {shown}: {module.extra_repr()}")
        elif isinstance(module, torch.nn.LSTM) and not isinstance(module, LSTM):
            lines.append(f"left      {shown}: {type(module).__name__}, a class of its own")
        elif getattr(module, "original_name", "") == "LSTM":
            lines.append(f"left      {shown}: scripted by torch.jit")
    if not quiet:
        print("\n".join(lines) or "no nn.LSTM in this model")
    return model


def restore(model: torch.nn.Module) -> Any:
    """Make every layer that `replace` replaced a plain nn.LSTM again; returns the model.

    For what looks at the class, as `torch.ao.quantization.quantize_dynamic` does.
    """
    for module in model.modules():
        if type(module) is LSTM:
            module.__class__ = torch.nn.LSTM
            for name in ("precision", "plans"):
                module.__dict__.pop(name, None)
    return model


def _allow_dynamo() -> None:
    """Have torch.compile look into an nn.LSTM, which it refuses by default."""
    if os.environ.get("LSTM_KERNELS_DYNAMO") != "0":
        import torch._dynamo.config as dynamo

        dynamo.allow_rnn = True
