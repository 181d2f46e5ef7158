"""Our layer in the place of `torch.nn.LSTM`: a call that nn.LSTM itself took is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

import lstm_kernels
from lstm_bench.frameworks.pytorch import session as pytorch
from lstm_bench.frameworks.pytorch.base import Forward, Packing, TorchSession
from lstm_bench.frameworks.pytorch.session import allocated as allocated
from lstm_bench.frameworks.pytorch.session import wake as wake
from lstm_bench.frameworks.pytorch.variants import Graph
from lstm_bench.model.types import Implementation, Settings, Unsupported
from lstm_bench.worker.problem import Problem
from lstm_bench.worker.session import Session
from lstm_bench.worker.timing import Clock

OPTIONS = frozenset({"way", "quantize"})  # what `build` reads of row.options


def describe(settings: Settings) -> dict[str, Any]:
    """Obey the run's settings, and say what PyTorch and the kernels are."""
    about = pytorch.describe(settings)
    versions = {**about["versions"], "lstm-kernels": lstm_kernels.__version__}
    return {**about, "versions": versions}


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    """The layer with the problem's weights, on the device, its plan chosen."""
    way = KernelGraph if "way" in row.options else KernelSession
    return pytorch.build(problem, row, settings, way)


class KernelSession(TorchSession):
    """Called as it is."""

    def wrapped(self, layer: torch.nn.Module) -> Forward:
        self.packing = layer if isinstance(layer, Packing) else None
        plain = self.packing.layer if self.packing else layer
        assert isinstance(plain, torch.nn.LSTM)
        quantize = self.row.options.get("quantize")
        self.ours: lstm_kernels.LSTM | None = lstm_kernels.LSTM.like(plain, quantize=quantize)
        taken_by, why = self._explained()
        if taken_by != "kernels":
            raise Unsupported(f"nn.LSTM itself takes this call: {why}")
        if self.packing:
            self.packing.layer = self.ours
        forward: Forward = self.packing or self.ours
        return forward

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        if self.ours and self.row.precision == "int8":  # packed by the first call
            self.call()
            self.restart()
            self.memory["weights"] = self.ours.packed_bytes()

    def _explained(self) -> tuple[str, str]:
        """Name what takes a call, and how or why."""
        assert self.ours
        with torch.inference_mode():
            x = self.x.to(self.device)
            path = self.ours.explain(self.packing.packed(x) if self.packing else x, self.initial)
        taken_by, _, how = path.partition(": ")
        return taken_by, how

    def time_each(self, calls: int, clock: Clock) -> list[int]:
        with only_kernels():
            return super().time_each(calls, clock)

    def time_queued(self, calls: int, clock: Clock) -> int:
        with only_kernels():
            return super().time_queued(calls, clock)

    @property
    def path(self) -> str:  # type: ignore[override]
        return self._explained()[1]

    def close(self) -> None:
        self.ours = None
        super().close()


class KernelGraph(Graph, KernelSession):
    """Captured once as a CUDA graph, and replayed."""

    def __init__(self, *arguments: Any):
        with only_kernels():
            super().__init__(*arguments)


@contextlib.contextmanager
def only_kernels() -> Iterator[None]:
    """Refuse what is called inside if nn.LSTM itself took a call."""
    before = lstm_kernels.calls()
    yield
    for reason, count in lstm_kernels.calls().items():
        if reason != "kernels" and count > before.get(reason, 0):
            raise Unsupported(f"nn.LSTM itself takes this call: {reason}")
