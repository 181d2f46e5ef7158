"""PyTorch: `torch.nn.LSTM` in inference mode, plain, under autocast, in half, or through apex."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lstm_bench.model.profile import Activity, CallDepth, Profile, Window
from lstm_bench.model.registry import IMPLEMENTATIONS
from lstm_bench.model.types import Implementation, Settings, Unsupported
from lstm_bench.worker import call_depth, loaded_libraries
from lstm_bench.worker.implementations import amp, torch_profile
from lstm_bench.worker.implementations.session import Session
from lstm_bench.worker.problem import Answer, Problem

OPTIONS = frozenset({"apex"})  # what `build` reads of row.options
_AMP = {"fp16": torch.float16, "bf16": torch.bfloat16}


def describe(settings: Settings) -> dict[str, Any]:
    """Obey the run's settings, and say what this PyTorch is."""
    torch.set_num_threads(settings.threads)
    torch.backends.cudnn.allow_tf32 = settings.tf32
    torch.backends.cuda.matmul.allow_tf32 = settings.tf32
    versions = {"torch": torch.__version__}
    if settings.device == "cuda":
        if not torch.cuda.is_available():
            raise Unsupported(f"torch {torch.__version__} sees no CUDA device (is it a CPU build?)")
        versions["cuda"] = str(torch.version.cuda)
        versions["cudnn"] = loaded_libraries.dotted(torch.backends.cudnn.version() or 0)
    return {
        "versions": versions,
        "threads": torch.get_num_threads(),
        "tf32": bool(torch.backends.cudnn.allow_tf32),
    }


def allocated() -> int:
    """Bytes in use on the GPU now; their peak is counted from here on."""
    torch.cuda.init()  # the statistics do not start it themselves
    torch.cuda.reset_peak_memory_stats()
    return int(torch.cuda.memory_allocated())


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    """The layer with the problem's weights, on the device, ready to be called."""
    shape, device = problem.shape, settings.device
    half = amp.precision(settings, _autocast_once) if row.precision == "amp" else ""
    if half == "bf16" and device == "cuda":
        raise Unsupported("autocast runs cuDNN's LSTM in fp16 only, whatever it is asked for")
    dtype = torch.float16 if row.precision == "fp16" else torch.float32
    layer = torch.nn.LSTM(shape.input_size, shape.hidden, device="meta").to_empty(device=device)
    weights = (problem.w_ih, problem.w_hh, problem.b_ih, problem.b_hh)
    with torch.no_grad():
        for parameter, value in zip(layer.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(value))
    layer = layer.to(dtype=dtype).eval()
    layer.flatten_parameters()
    if row.options.get("apex"):
        from apex import amp as apex_amp

        layer = apex_amp.initialize(layer, opt_level="O1", verbosity=0)

    def placed(name: str) -> torch.Tensor:
        value = torch.from_numpy(getattr(problem, name))
        key = f"torch {name} {device} {dtype}"
        return problem.shared(key, lambda: value.to(device=device, dtype=dtype))

    state = (placed("h0").unsqueeze(0), placed("c0").unsqueeze(0))
    autocast = _AMP[half] if half and not row.options.get("apex") else None
    session = TorchSession(layer, placed("x"), state, device, autocast)
    session.precision = f"amp-{half}" if half else ""
    return session


def _autocast_once(problem: Problem, half: str) -> None:
    settings = Settings(device="cpu", amp=half)
    build(problem, IMPLEMENTATIONS["pytorch-amp"], settings).call()


class TorchSession(Session):
    """One `nn.LSTM`; a call is what a user writes: inference mode, autocast, the layer."""

    profiler = torch_profile.SOURCE

    def __init__(
        self,
        layer: torch.nn.Module,
        x: torch.Tensor,
        state: tuple[torch.Tensor, torch.Tensor],
        device: str,
        autocast: torch.dtype | None,
    ):
        self.layer, self.x, self.state = layer, x, state
        self.device, self.autocast = device, autocast
        if device == "cuda":
            self.wait = torch.cuda.synchronize  # type: ignore[method-assign]
        self.memory = {
            "weights": sum(p.numel() * p.element_size() for p in layer.parameters()),
            "inputs": sum(t.numel() * t.element_size() for t in (x, *state)),
        }

    def call(self) -> None:
        with torch.inference_mode():
            if self.autocast is None:
                self.result = self.layer(self.x, self.state)
                return
            try:
                with torch.autocast(self.device, dtype=self.autocast):
                    self.result = self.layer(self.x, self.state)
            except RuntimeError as error:
                if self.device != "cpu" or "DefaultCPUAllocator" in str(error):
                    raise
                reason = str(error).splitlines()[0]
                raise Unsupported(f"autocast to {self.autocast} on this CPU: {reason}") from None

    def outputs(self) -> Answer:
        self.wait()
        output, (h, c) = self.result

        def array(tensor: torch.Tensor) -> Any:
            return tensor.float().cpu().numpy().astype(np.float32)

        return array(output), array(h[0]), array(c[0])

    def device_peak(self) -> int:
        return int(torch.cuda.max_memory_allocated())

    def operators(self, calls: int) -> Profile:
        return torch_profile.operators(self, calls, self.device == "cuda")

    def activities(self, calls: int) -> tuple[list[Activity], list[Window]] | None:
        return torch_profile.activities(self, calls) if self.device == "cuda" else None

    def depth(self) -> CallDepth:
        return call_depth.measure(self.call, self.wait)

    def close(self) -> None:
        self.result = self.layer = self.x = self.state = None  # type: ignore[assignment]
        if self.device == "cuda":
            torch.cuda.empty_cache()

    @property
    def path(self) -> str:  # type: ignore[override]
        """The kernels behind `nn.LSTM`, read off the operators of a short call like the others."""
        x = self.x[:1]
        autocast: Any = contextlib.nullcontext()
        if self.autocast is not None:
            autocast = torch.autocast(self.device, dtype=self.autocast)
        with torch.no_grad(), autocast:
            return kernels(lambda: self.layer(x, self.state))


def kernels(call: Callable[[], Any]) -> str:
    """The library behind a call, read off its operators."""
    with _OperatorNames() as seen:
        call()
    if any("cudnn_rnn" in name for name in seen.names):
        return f"cuDNN {loaded_libraries.dotted(torch.backends.cudnn.version() or 0)}"
    if any("mkldnn_rnn" in name for name in seen.names):
        return "oneDNN"
    return "generic"


class _OperatorNames(TorchDispatchMode):
    """Collects the names of the operators that run inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        with self:  # inference mode hands over what is made of other operators in one piece
            result = func.decompose(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if result is NotImplemented else result
