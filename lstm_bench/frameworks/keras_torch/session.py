"""Keras on PyTorch: its LSTM layer in inference mode."""

from __future__ import annotations

from typing import Any

import torch

from lstm_bench.frameworks.pytorch import profiler as torch_profile
from lstm_bench.frameworks.pytorch import session as pytorch
from lstm_bench.frameworks.pytorch.base import from_host, kernels, nbytes, placed
from lstm_bench.model.profile import Activity, Profile, Window
from lstm_bench.model.types import INPUTS, Implementation, Settings
from lstm_bench.worker.function_session import FunctionSession, batch_major
from lstm_bench.worker.keras_layer import keras_on, layer
from lstm_bench.worker.problem import Answer, Problem
from lstm_bench.worker.session import Session

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
    inputs_from = INPUTS

    def __init__(self, lstm: Any, problem: Problem, settings: Settings):
        def forward(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
            with torch.inference_mode():
                return lstm(x, initial_state=[h, c], training=False)

        x = placed(batch_major(problem), settings.inputs, settings.device)
        states = tuple(placed(s, "device", settings.device) for s in (problem.h0, problem.c0))
        super().__init__(forward, (x, *states), settings)
        held = (x, *states)
        if settings.inputs != "device":
            self.run, held = from_host(forward, settings), states
        self.device, self.cuda = settings.device, settings.device == "cuda"
        if self.cuda:
            self.wait = torch.cuda.synchronize  # type: ignore[method-assign]
        weights = [weight.value for weight in lstm.weights]
        self.memory = {"weights": nbytes(weights), "inputs": nbytes(held)}

    @property
    def path(self) -> str:  # type: ignore[override]
        """Keras calls PyTorch's LSTM on cuDNN or, without a word, loops over the steps.

        Read off the operators of a short call like the others.
        """
        x = self.x[:, :1].to(self.device)
        found = kernels(lambda: self.forward(x, *self.start))
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
