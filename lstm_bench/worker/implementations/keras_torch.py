"""Keras on PyTorch: its LSTM layer in inference mode."""

from __future__ import annotations

from typing import Any

import torch

from lstm_bench.model.profile import Activity, Profile, Window
from lstm_bench.model.types import Implementation, Settings
from lstm_bench.worker.implementations import pytorch, torch_profile
from lstm_bench.worker.implementations.function_session import FunctionSession, batch_major
from lstm_bench.worker.implementations.keras_layer import keras_on, layer
from lstm_bench.worker.implementations.session import Session
from lstm_bench.worker.implementations.torch_session import kernels
from lstm_bench.worker.problem import Answer, Problem

allocated = pytorch.allocated


def describe(settings: Settings) -> dict[str, Any]:
    """Obey the run's settings, and say what this Keras and this PyTorch are."""
    version = keras_on("torch").__version__  # first, should it change a setting of PyTorch's
    described = pytorch.describe(settings)
    described["versions"]["keras"] = version
    return described


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    """The layer with the problem's weights, on the device, ready to be called."""
    return KerasTorchSession(layer(keras_on("torch"), problem), problem, settings)


class KerasTorchSession(FunctionSession):
    """Keras puts a layer on the GPU where there is one."""

    profiler = torch_profile.SOURCE

    def __init__(self, lstm: Any, problem: Problem, settings: Settings):
        def forward(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
            with torch.inference_mode():
                return lstm(x, initial_state=[h, c], training=False)

        arrays = (batch_major(problem), problem.h0, problem.c0)
        inputs = [torch.from_numpy(value).to(settings.device) for value in arrays]
        super().__init__(forward, inputs, settings)
        self.cuda = settings.device == "cuda"
        if self.cuda:
            self.wait = torch.cuda.synchronize  # type: ignore[method-assign]
        held = {"weights": [weight.value for weight in lstm.weights], "inputs": inputs}
        self.memory = {name: sum(t.nbytes for t in tensors) for name, tensors in held.items()}

    @property
    def path(self) -> str:  # type: ignore[override]
        """Keras calls PyTorch's LSTM on cuDNN or, without a word, loops over the steps.

        Read off the operators of a short call like the others.
        """
        found = kernels(lambda: self.forward(self.x[:, :1], *self.start))
        return "Python loop" if found == "generic" else found

    def outputs(self) -> Answer:
        self.wait()
        output, h, c = (tensor.cpu().numpy() for tensor in self.result)
        return output.transpose(1, 0, 2), h, c

    def device_peak(self) -> int:
        return int(torch.cuda.max_memory_allocated())

    def operators(self, calls: int) -> Profile:
        return torch_profile.operators(self, calls, self.cuda)

    def activities(self, calls: int) -> tuple[list[Activity], list[Window]] | None:
        return torch_profile.activities(self, calls) if self.cuda else None

    def close(self) -> None:
        super().close()
        if self.cuda:
            torch.cuda.empty_cache()
