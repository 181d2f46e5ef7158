"""Keras on PyTorch: its LSTM layer in inference mode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from lstm_bench.frameworks.pytorch import session as pytorch
from lstm_bench.frameworks.pytorch.base import Forward, State, TorchSession, kernels, placed
from lstm_bench.model.types import Implementation, Settings
from lstm_bench.worker.function_session import batch_major
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
    x = placed(batch_major(problem), settings.inputs, settings.device)
    h, c = (placed(s, "device", settings.device) for s in (problem.h0, problem.c0))
    return KerasTorchSession(layer(keras_on("torch"), problem), x, (h, c), row, settings)


class KerasTorchSession(TorchSession):
    """Keras puts a layer on the GPU where there is one."""

    def wrapped(self, layer: Any) -> Forward:
        def forward(x: torch.Tensor, state: State) -> Any:
            output, *state_after = layer(x, initial_state=list(state), training=False)
            return output, state_after

        return forward

    def weights(self) -> Iterable[torch.Tensor]:
        return [weight.value for weight in self.layer.weights]  # type: ignore[union-attr]

    @property
    def path(self) -> str:  # type: ignore[override]
        """Keras calls PyTorch's LSTM on cuDNN or, without a word, loops over the steps.

        Read off the operators of a short call like the others.
        """
        with torch.inference_mode():
            x = self.x[:, :1].to(self.device)
            library = kernels(lambda: self.forward(x, self.initial))
        return "Python loop" if library == "generic" else library

    def outputs(self) -> Answer:
        self.wait()
        output, (h, c) = self.result
        return output.cpu().numpy().transpose(1, 0, 2), h.cpu().numpy(), c.cpu().numpy()
