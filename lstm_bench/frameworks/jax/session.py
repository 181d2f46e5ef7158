"""JAX: the cell in a `lax.scan`, compiled by XLA, or cuDNN's layer (`jax.experimental.rnn`).

Layers are compiled while they are built: a call runs what is there.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

from lstm_bench.model.types import Implementation, Settings, Unsupported
from lstm_bench.model.units import gist
from lstm_bench.worker import loaded_libraries
from lstm_bench.worker.function_session import FunctionSession, batch_major
from lstm_bench.worker.problem import Answer, Array, Problem
from lstm_bench.worker.session import Session

OPTIONS = frozenset({"cudnn"})  # what `build` reads of row.options
_TASKS = Path("/proc/self/task")
_CALLED = re.compile(r'custom_call_target="([^"]*)"')


def describe(settings: Settings) -> dict[str, Any]:
    """Obey the run's settings, and say what this JAX is."""
    cuda = settings.device == "cuda"
    os.environ["PJRT_NPROC"] = str(settings.threads)  # these two count until a device is asked for
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or 75% of the GPU is gone
    jax.config.update("jax_platforms", "cuda,cpu" if cuda else "cpu")
    jax.config.update("jax_default_matmul_precision", None if settings.tf32 else "highest")
    jax.config.update("jax_enable_compilation_cache", False)  # the time to compile is recorded
    try:
        jax.devices()
    except RuntimeError as error:
        raise Unsupported(f"jax {jax.__version__} sees no GPU: {gist(error)}") from None
    versions = {"jax": jax.__version__, "jaxlib": jaxlib.__version__}
    if cudnn := loaded_libraries.cudnn():
        versions["cudnn"] = cudnn
    return {
        "versions": versions,
        "threads": _pool() or settings.threads,
        "tf32": jax.config.jax_default_matmul_precision != "highest",
    }


def _pool() -> int:
    """The threads that XLA has for the work of a CPU, by their name."""
    try:
        names = [(task / "comm").read_text() for task in _TASKS.iterdir()]
    except OSError:
        return 0
    return sum("XLAEigen" in name for name in names)


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    """The layer with the problem's weights on the device, compiled for the problem's shape."""
    p = problem
    if not row.options.get("cudnn"):
        weights = (p.w_ih.T, p.w_hh.T, p.b_ih + p.b_hh)
        return JaxSession(_scan, weights, p.x, problem, settings)
    flat = np.concatenate([w.ravel() for w in (p.w_ih, p.w_hh, p.b_ih, p.b_hh)])
    return JaxSession(_cudnn, (flat,), batch_major(p), problem, settings)


def _scan(weights: Any, x: Any, h: Any, c: Any) -> Any:
    """One product for the inputs of all steps, then one a step."""
    w_ih, w_hh, bias = weights

    def step(states: Any, from_input: Any) -> Any:
        h, c = states
        i, f, g, o = jnp.split(from_input + h @ w_hh, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    (h, c), output = jax.lax.scan(step, (h, c), x @ w_ih + bias)
    return output, h, c


def _cudnn(weights: Any, x: Any, h: Any, c: Any) -> Any:
    """Strict fp32 or TF32 by the default precision, as `describe` sets it."""
    from jax.experimental import rnn

    (batch, steps, size), hidden = x.shape, h.shape[1]
    lengths = jnp.full((batch,), steps, jnp.int32)
    layer = {"num_layers": 1, "dropout": 0.0, "bidirectional": False}
    output, h, c = rnn.lstm(
        x, h[None], c[None], *weights, lengths, input_size=size, hidden_size=hidden, **layer
    )
    return output, h[0], c[0]


class JaxSession(FunctionSession):
    """A function of (weights, x, h, c), compiled."""

    inputs_from = ("device", "pageable")

    def __init__(
        self,
        function: Callable[..., Any],
        weights: Any,
        x: Array,
        problem: Problem,
        settings: Settings,
    ):
        weights = jax.tree.map(jnp.asarray, weights)
        on_host = settings.inputs != "device"
        states = [jnp.asarray(value) for value in (problem.h0, problem.c0)]
        inputs = [x if on_host else jnp.asarray(x), *states]
        self.compiled = jax.jit(function).lower(weights, *inputs).compile()
        self.time_major = x is problem.x
        self.memory = {
            "weights": sum(w.nbytes for w in jax.tree.leaves(weights)),
            "inputs": sum(value.nbytes for value in inputs[on_host:]),
        }
        forward = functools.partial(self.compiled, weights)
        super().__init__(forward, inputs, settings)
        if on_host:
            self.run = self._from_host

    def _from_host(self, x: Array, *states: Any) -> Any:
        output, *states = self.forward(jax.device_put(x), *states)
        return np.asarray(output), *states

    def wait(self) -> None:
        self.result[-1].block_until_ready()  # as are the others then: they are of one program

    def outputs(self) -> Answer:
        output, h, c = map(np.asarray, self.result)
        return output if self.time_major else output.transpose(1, 0, 2), h, c

    @property
    def path(self) -> str:  # type: ignore[override]
        """Read off the compiled program, so it is what runs and not what was asked for."""
        program = self.compiled.as_text()
        called = {name.strip("_").split("$")[0] for name in _CALLED.findall(program)}
        if any(name.startswith("cudnn_rnn") for name in called):
            return f"cuDNN {loaded_libraries.cudnn()}".strip()
        loop, cublas = " while(" in program, "cublas" in called
        return "XLA" + ", loop" * loop + ", cuBLAS" * cublas

    def device_peak(self) -> int | None:
        """XLA plans all its memory when it compiles; JAX's count of a peak cannot be restarted."""
        plan = self.compiled.memory_analysis()
        if plan is None:
            return None
        held = plan.argument_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
        return int(held + plan.temp_size_in_bytes)

    def close(self) -> None:
        super().close()
        self.compiled = None
