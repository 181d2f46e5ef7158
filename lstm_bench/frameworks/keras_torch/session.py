"""Keras on PyTorch: its LSTM layer, in inference mode or trained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from lstm_bench.frameworks.pytorch import session as pytorch
from lstm_bench.frameworks.pytorch.base import Forward, TorchSession, array, kernels, placed
from lstm_bench.model.types import Implementation, Settings
from lstm_bench.worker.function_session import (
    batch_major,
    in_problems_layout,
    states_of,
    upstream_of,
)
from lstm_bench.worker.keras_layer import forward, keras_on, layers, mask_of
from lstm_bench.worker.problem import Answer, Problem
from lstm_bench.worker.session import Session

TRAINS = True
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
    states = [placed(state, "device", settings.device) for state in states_of(problem)]
    stack = torch.nn.ModuleList(layers(keras_on("torch"), problem))
    mask = mask_of(problem)
    upstream = [placed(array, "device", settings.device) for array in upstream_of(problem)]
    session = KerasTorchSession(stack, x, tuple(states), row, settings, None, upstream)
    if mask is not None:
        session.mask = torch.from_numpy(mask).to(settings.device)
    return session


class KerasTorchSession(TorchSession):
    """Keras puts a layer on the GPU where there is one."""

    mask: torch.Tensor | None = None  # (B, T), where sequences end

    def wrapped(self, layer: Any) -> Forward:
        def run(x: torch.Tensor, states: Any) -> Any:
            output, *after = forward(list(layer), self.mask, x, states, bool(self.upstream))
            return output, after

        return run

    def weights(self) -> Iterable[torch.Tensor]:
        return [weight.value for layer in self.layer for weight in layer.weights]  # type: ignore[union-attr]

    @property
    def path(self) -> str:  # type: ignore[override]
        """Keras calls PyTorch's LSTM on cuDNN or, without a word, loops over the steps.

        Read off the operators of a short call like the others.
        """
        with self.mode():
            x = (self.x if self.mask is not None else self.x[:, :1]).to(self.device)
            library = kernels(lambda: self.forward(x, self.initial))
        return "Python loop" if library == "generic" else library

    def outputs(self) -> Answer:
        self.wait()
        output, states = self.result
        h, c = (array(torch.stack(states[first::2])) for first in (0, 1))
        gradients = list(map(array, self.gradients))
        answer = array(output).transpose(1, 0, 2), h, c
        return *answer, *in_problems_layout(gradients, len(states))
