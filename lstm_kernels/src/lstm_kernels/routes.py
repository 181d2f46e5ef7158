"""The path of a call: our kernels, or nn.LSTM itself and why; and the precision they compute in."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from lstm_kernels import on_cpu as cpu
from lstm_kernels import stack as stacks
from lstm_kernels.stack import Sizes

CAPABILITY = (9, 0)  # of the GPUs that the kernels were measured on
TUNED: set[tuple[int, int]] = set()  # others, on which they were measured to be faster
UNSEEN = "weights that were made in inference mode: nobody sees when they change"

_PRECISIONS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def switched_off(layer: Any) -> str:
    """What has nothing to do with tensors."""
    if layer.training and layer.dropout and layer.num_layers > 1:
        return "dropout in training"
    if torch._C._get_tracing_state() or torch._C._len_torch_dispatch_stack():
        return "the call is traced"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "the call is transformed by functorch"
    return ""


def rests_on(layer: Any, x: Any, hx: Any) -> Any:
    """All that a decision rests on, beside weights; None where it must be made anew."""
    if torch.is_grad_enabled() or type(x) is not torch.Tensor:
        return None
    states: Any = None
    if hx is not None:
        if type(hx) is not tuple or any(type(state) is not torch.Tensor for state in hx):
            return None
        states = tuple((state.shape, state.dtype, state.device) for state in hx)
    return (
        *(x.shape, x.dtype, x.device, states),
        *(layer.precision, layer.quantize, layer.batch_first),
        *(torch.is_autocast_enabled(x.device.type), torch.get_autocast_dtype(x.device.type)),
        *(torch._C._get_cudnn_enabled(), torch._C._get_fp32_precision_getter("cuda", "rnn")),
    )


def refusal(layer: Any, x: Any, hx: Any, weights: list[Any]) -> str:
    """Why nn.LSTM itself takes this call; empty if the kernels can."""
    rows = rows_of(x)
    if type(rows) is not torch.Tensor:
        return "a tensor of a class of its own"
    here, types = rows.device, set(_PRECISIONS)
    if on_cpu(x):
        types = set(cpu.PRECISIONS)
        if why := cpu.missing():
            return why
    elif here != stacks.DEVICE:
        return f"x is on {here}, not on {stacks.DEVICE} or the CPU"
    elif not torch._C._get_cudnn_enabled():
        return "cuDNN is switched off"
    elif stacks.capability() not in (CAPABILITY, *TUNED):
        return "not measured on GPUs of this kind: lstm_kernels.tune(layer, batch, timesteps)"
    if layer.proj_size:
        return "proj_size"
    if wrong := _wrong_sizes(layer, x, hx):
        return wrong
    if layer._modules or not all(type(w) is torch.nn.Parameter for w in weights):
        return "weights that are computed, as by weight_norm"
    if any(weight.is_inference() for weight in weights):
        return UNSEEN
    tensors = [rows, *weights, *(hx or ())]
    if any(tensor.device != here for tensor in tensors):
        return "weights and states are not all on the device of x"
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "a gradient is wanted (use torch.no_grad or torch.inference_mode)"
    given = {tensor.dtype for tensor in tensors}
    computed = autocast(rows)
    known = given <= set(_PRECISIONS) and computed in types if computed else given == {rows.dtype}
    return "" if known and rows.dtype in types else ", ".join(map(str, given))


def _wrong_sizes(layer: Any, x: Any, hx: Any) -> str:
    """What does not fit: nn.LSTM says so in its own words."""
    rows = rows_of(x)
    dims = (2, 3) if rows is x else (2,)
    if rows.dim() not in dims or rows.shape[-1] != layer.input_size or not rows.numel():
        return "an input that nn.LSTM refuses, or nothing to do"
    if hx is not None:
        if not isinstance(hx, tuple) or len(hx) != 2:
            return "states that nn.LSTM refuses"
        batch = (batch_and_timesteps(layer, x)[0],) if rows is not x or x.dim() == 3 else ()
        want = (layer.num_layers * (1 + layer.bidirectional), *batch, layer.hidden_size)
        if not all(type(s) is torch.Tensor and s.shape == want for s in hx):
            return "states that nn.LSTM refuses"
    return ""


def rows_of(x: Any) -> Any:
    """The tensor of an input."""
    return x.data if isinstance(x, PackedSequence) else x


def on_cpu(x: Any) -> bool:
    return bool(rows_of(x).device == cpu.DEVICE != stacks.DEVICE)


def batch_and_timesteps(layer: Any, x: Any) -> tuple[int, int]:
    """Batch size and timesteps."""
    if isinstance(x, PackedSequence):
        return int(x.batch_sizes[0]), len(x.batch_sizes)
    timesteps, batch, _ = time_first(x, layer.batch_first).shape
    return batch, timesteps


def sizes_of(layer: Any) -> Sizes:
    directions = 1 + layer.bidirectional
    return Sizes(layer.input_size, layer.hidden_size, layer.num_layers, directions, layer.bias)


INT8 = "int8"


def check_quantize(quantize: str | None) -> None:
    if quantize not in (None, INT8):
        raise ValueError(f"quantize={quantize!r}: expected {INT8!r} or None")


def own_precision(layer: Any) -> str:
    """What a layer's own attributes ask for; empty: what PyTorch's switches say."""
    return layer.quantize or layer.precision or ""


def autocast(x: torch.Tensor) -> torch.dtype | None:
    """What autocast computes an nn.LSTM in; None where it is off.

    On a GPU that is fp16, also where autocast was asked for bfloat16.
    """
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return None
    return torch.float16 if kind == "cuda" else torch.get_autocast_dtype(kind)


def precision_of(layer: Any, x: Any) -> str:
    """The precision that the layer or PyTorch's switches ask for."""
    x = rows_of(x)
    precision = layer.precision or _PRECISIONS[autocast(x) or x.dtype]
    if on_cpu(x):
        return layer.quantize or ("bf16" if precision == "bf16" else "fp32")
    if layer.precision or precision != "fp32":
        return str(precision)
    return "tf32" if torch._C._get_fp32_precision_getter("cuda", "rnn") == "tf32" else "fp32"


def time_first(x: torch.Tensor, batch_first: bool) -> torch.Tensor:
    """(T, B, I)."""
    if x.dim() == 2:
        return x.unsqueeze(1)
    return x.transpose(0, 1) if batch_first else x
