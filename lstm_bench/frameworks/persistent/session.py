"""Kernels of our own: all timesteps in one launch, the recurrent weights on the chip.

How they work: docs/explanation/kernel.md. They are `lstm_kernels`; this is the row that times them.
"""

from __future__ import annotations

from typing import Any

from lstm_bench.frameworks.deepbench.libraries import kernel_refusals
from lstm_bench.frameworks.deepbench.session import BaselineSession
from lstm_bench.model.types import Implementation, Settings
from lstm_bench.worker.problem import Answer, Problem
from lstm_kernels import layer as kernels

OPTIONS = frozenset({"precision"})  # what `build` reads of row.options


@kernel_refusals()
def describe(settings: Settings) -> dict[str, Any]:
    """Describe the compiler and the GPU; a missing library is named with its remedy."""
    _, compiler, _ = kernels.toolbox()
    versions = {"nvrtc": compiler.version, "architecture": compiler.architecture}
    return {"versions": versions, "threads": settings.threads, "tf32": settings.tf32}


@kernel_refusals()
def build(problem: Problem, row: Implementation, settings: Settings) -> BaselineSession:
    """The fastest of the plans that are worth a trial, in a graph or not."""
    layer = kernels.fastest(call_of(problem), row.options["precision"], kernels.TRIED)
    session = PersistentSession(layer)
    if settings.inputs != "device":
        layer.lstm.keep_on_host(settings.inputs == "pinned")
    if settings.state == "carried":
        session.carry(*map(layer.stored, problem.single[1:3]))
    return session


def call_of(problem: Problem) -> kernels.Call:
    return kernels.Call(*problem.single)


class PersistentSession(BaselineSession):
    """A loaded layer of our kernels."""

    def __init__(self, layer: kernels.Layer):
        super().__init__(layer.lstm, layer.path)
        self.layer, self.peak = layer, layer.peak

    def outputs(self) -> Answer:
        output, h, c = self.layer.outputs()
        return output, h[None], c[None]
