"""`torch.nn.LSTM` as a session: called in inference mode, or trained, as a user does."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from lstm_bench.frameworks.pytorch import call_depth
from lstm_bench.frameworks.pytorch import profiler as torch_profile
from lstm_bench.model.profile import Activity, CallDepth, Profile, Window
from lstm_bench.model.types import INPUTS, Implementation, Settings, Unsupported
from lstm_bench.worker import loaded_libraries
from lstm_bench.worker.problem import Answer, Array
from lstm_bench.worker.session import Session

try:
    from torch.autograd.profiler_legacy import profile as _Operators
except ImportError:  # a PyTorch that has only `torch.profiler`
    _Operators = None

State = tuple[torch.Tensor, ...]  # h and c; Keras has one of each layer
Forward = Callable[[torch.Tensor, State], tuple[torch.Tensor, State]]
HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}


class TorchSession(Session):
    """The layer as it is. A variant wraps it, or overrides how it is called.

    `x` lies where the settings have it; `forward` takes it on the device, `run` where it is.
    """

    profiler = torch_profile.SOURCE
    gradients: Sequence[torch.Tensor] = ()
    carries = True
    inputs_from = INPUTS

    def __init__(
        self,
        layer: torch.nn.Module,
        x: torch.Tensor,
        state: State,
        row: Implementation,
        settings: Settings,
        lengths: Sequence[int] | None = None,
        upstream: Sequence[torch.Tensor] = (),
    ):
        """`upstream`: the gradients of output and states, of a training step."""
        self.lengths, self.upstream, self.two_passes = lengths, upstream, bool(upstream)
        self.row, self.device = row, settings.device
        self.mode = torch.enable_grad if upstream else torch.inference_mode
        self.differentiate: Callable[..., Any] = torch.autograd.grad
        if upstream:
            x = x.detach().requires_grad_()
            state = tuple(tensor.detach().requires_grad_() for tensor in state)
            self.call = self._step  # type: ignore[method-assign]
            if self.device == "cpu":
                self.differentiate = refusing(self.differentiate, f"a backward pass of {x.dtype}")
        self.layer, self.x, self.state, self.initial = layer, x, state, state
        self.carried = settings.state == "carried"
        if self.carried:
            self.call = self._carry  # type: ignore[method-assign]
        if self.device == "cuda":
            self.wait = torch.cuda.synchronize  # type: ignore[method-assign]
        self.run = self.forward = self.wrapped(Packing(layer, lengths) if lengths else layer)
        self.memory = {"weights": nbytes(self.weights()), "inputs": nbytes((x, *state))}
        if settings.inputs != "device":
            self.run = from_host(self.forward, settings)
            self.memory["inputs"] = nbytes(state)

    def wrapped(self, layer: torch.nn.Module) -> Forward:
        """Return what a call runs: a function of input and states that gives output and states."""
        refusable = self.device == "cpu" and self.row.precision in HALF
        return refusing(layer, f"an LSTM in {self.x.dtype}") if refusable else layer

    def weights(self) -> Iterable[torch.Tensor]:
        return tuple(self.layer.parameters())

    def call(self) -> None:
        with torch.inference_mode():
            self.result = self.run(self.x, self.state)

    def forward_pass(self) -> None:
        self.result = self.run(self.x, self.state)

    def backward_pass(self) -> None:
        output, states = self.result
        given = (output, *states)
        if self.upstream[0].dtype != output.dtype:  # at the first call, under autocast
            pairs = zip(self.upstream, given, strict=True)
            self.upstream = [gradient.to(tensor.dtype) for gradient, tensor in pairs]
        leaves = (self.x, *self.state, *self.weights())
        self.gradients = self.differentiate(given, leaves, self.upstream)

    def _step(self) -> None:
        self.forward_pass()
        self.backward_pass()

    def _carry(self) -> None:
        with torch.inference_mode():
            self.result = self.run(self.x, self.state)
            self.state = self.result[1]

    def restart(self) -> None:
        self.state = self.initial

    def outputs(self) -> Answer:
        self.wait()
        output, (h, c) = self.result

        return tuple(map(array, (output, h, c, *self.gradients)))

    def device_peak(self) -> int:
        return int(torch.cuda.max_memory_allocated())

    def operators(self, calls: int) -> Profile:
        return torch_profile.operators(self, calls, self.device == "cuda")

    def activities(self, calls: int) -> tuple[list[Activity], list[Window]] | None:
        return torch_profile.activities(self, calls) if self.device == "cuda" else None

    def depth(self) -> CallDepth:
        return call_depth.measure(self.call, self.wait)

    def close(self) -> None:
        self.result = self.layer = self.x = None  # type: ignore[assignment]
        self.gradients = self.upstream = ()
        self.run = self.forward = None  # type: ignore[assignment]
        self.state = self.initial = None  # type: ignore[assignment]
        if self.device == "cuda":
            torch.cuda.empty_cache()

    @property
    def path(self) -> str:  # type: ignore[override]
        """The library behind the layer, read off the operators of a short call like the others."""
        with self.mode():
            x = (self.x if self.lengths else self.x[:1]).to(self.device)
            return kernels(lambda: self.forward(x, self.initial))


class Packing(torch.nn.Module):
    """Packs the padded x of each call by the lengths, as users do, and pads the output again."""

    def __init__(self, layer: torch.nn.Module, lengths: Sequence[int]):
        super().__init__()
        self.layer, self.lengths = layer, torch.tensor(lengths)  # on the CPU, as packing wants it

    def forward(self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> Any:
        output, after = self.layer(self.packed(x), state)
        return pad_packed_sequence(output, total_length=x.shape[0])[0], after

    def packed(self, x: torch.Tensor) -> PackedSequence:  # the type: torch.jit.script reads it
        return pack_padded_sequence(x, self.lengths, enforce_sorted=False)


def from_host(forward: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """The same for x in host memory, with y copied to one buffer there; the copies are queued."""
    device, pinned = torch.device(settings.device), settings.inputs == "pinned"
    kept: list[torch.Tensor] = []

    def copied(x: torch.Tensor, *states: Any) -> Any:
        output, *rest = forward(x.to(device, non_blocking=True), *states)
        if not kept:  # NaN: what is not copied must not pass a check
            y = torch.empty(output.shape, dtype=output.dtype, pin_memory=pinned)
            kept.append(y.fill_(torch.nan))
        return kept[0].copy_(output, non_blocking=True), *rest

    return copied


def placed(
    array: Array, inputs: str, device: str, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """An array as a tensor where `inputs` has it."""
    if inputs == "device":
        return torch.from_numpy(array).to(device=device, dtype=dtype)
    tensor = torch.from_numpy(array).to(dtype=dtype)
    return tensor.pin_memory() if inputs == "pinned" else tensor


def array(tensor: torch.Tensor) -> Array:
    """A tensor in float32, in host memory."""
    return np.asarray(tensor.detach().float().cpu().numpy(), np.float32)


def kernels(call: Callable[[], Any]) -> str:
    """The library behind a call, read off its operators.

    Not by `torch.profiler`, which leaves a GPU's launches slower for as long as the process lives.
    """
    if _Operators is None:
        return "not known"
    with _Operators() as seen:
        call()
    return library(event.name for event in seen.function_events)


def library(operators: Iterable[str]) -> str:
    """Name the library whose LSTM these operators call."""
    names = " ".join(operators)
    if "cudnn_rnn" in names:
        return f"cuDNN {loaded_libraries.dotted(torch.backends.cudnn.version() or 0)}"
    if "mkldnn_rnn" in names:
        return "oneDNN"
    return str(torch.backends.quantized.engine) if "quantized_lstm" in names else "generic"


def refusing(forward: Callable[..., Any], what: str) -> Callable[..., Any]:
    """The same; where this CPU cannot, it is unsupported for the reason that PyTorch gives."""

    def refuse(*given: Any) -> Any:
        try:
            return forward(*given)
        except RuntimeError as error:
            if "DefaultCPUAllocator" in str(error):
                raise
            reason = str(error).splitlines()[0]
            raise Unsupported(f"{what} on this CPU: {reason}") from None

    return refuse


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the warnings that what is asked for by name is old."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def nbytes(tensors: Iterable[torch.Tensor]) -> int:
    """The bytes of all tensors."""
    return sum(t.numel() * t.element_size() for t in tensors)
