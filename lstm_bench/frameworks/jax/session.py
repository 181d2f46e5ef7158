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

from lstm_bench.model.types import Implementation, Settings, Shape, Unsupported
from lstm_bench.model.units import gist
from lstm_bench.worker import loaded_libraries
from lstm_bench.worker.function_session import (
    FunctionSession,
    batch_major,
    in_problems_layout,
    states_of,
    upstream_of,
)
from lstm_bench.worker.problem import Answer, Array, Problem
from lstm_bench.worker.session import Session

TRAINS = True
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
    shape = problem.shape
    if not row.options.get("cudnn"):
        weights = [(w.w_ih.T, w.w_hh.T, w.b_ih + w.b_hh) for w in problem.weights]
        scan = functools.partial(_scan, shape.directions, problem.lengths())
        return JaxSession(scan, weights, problem.x, problem, settings)
    products = [w for own in problem.weights for w in (own.w_ih, own.w_hh)]
    biases = [b for own in problem.weights for b in (own.b_ih, own.b_hh)]
    flat = np.concatenate([array.ravel() for array in (*products, *biases)])
    cudnn = functools.partial(_cudnn, shape)
    return JaxSession(cudnn, (flat,), batch_major(problem), problem, settings)


def _scan(
    directions: int, lengths: list[int] | None, weights: Any, x: Any, *states: Any
) -> tuple[Any, ...]:
    """Layer by layer; a sequence that has ended keeps its states, backwards it has not begun."""
    last: list[Any] = []
    for place, own in enumerate(weights):
        if place % directions == 0:
            given, outputs = x, []
        before = states[2 * place : 2 * place + 2]
        output, h, c = _direction(own, given, before, lengths, backwards=place % directions == 1)
        last += [h, c]
        outputs.append(output)
        x = jnp.concatenate(outputs, axis=2) if directions == 2 else output
    return x, *last


def _direction(
    weights: Any, x: Any, states: Any, lengths: list[int] | None, backwards: bool
) -> Any:
    """One product for the inputs of all steps, then one a step."""
    w_ih, w_hh, bias = weights
    ends = None if lengths is None else jnp.asarray(lengths)[:, None]

    def step(states: Any, given: Any) -> Any:
        from_input, number = given
        h, c = states
        i, f, g, o = jnp.split(from_input + h @ w_hh, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        if ends is not None:
            h, c = (jnp.where(number < ends, *pair) for pair in ((h, states[0]), (c, states[1])))
        return (h, c), h

    numbers = None if ends is None else jnp.arange(len(x))
    given = x @ w_ih + bias, numbers
    (h, c), output = jax.lax.scan(step, tuple(states), given, reverse=backwards)
    return output, h, c


def _cudnn(shape: Shape, weights: Any, x: Any, *states: Any) -> Any:
    """Strict fp32 or TF32 by the default precision, as `describe` sets it."""
    from jax.experimental import rnn

    output, h, c = rnn.lstm(
        x,
        *(jnp.stack(states[first::2]) for first in (0, 1)),
        *weights,
        jnp.asarray(shape.each_length, jnp.int32),
        input_size=shape.input_size,
        hidden_size=shape.hidden,
        num_layers=shape.layers,
        dropout=0.0,
        bidirectional=shape.directions == 2,
    )
    return output, *(state for pair in zip(h, c, strict=True) for state in pair)


def _step(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same of (weights, upstream), with the gradients of x, states and weights behind it."""

    def step(held: Any, x: Any, *states: Any) -> tuple[Any, ...]:
        weights, upstream = held
        answer, back = jax.vjp(function, weights, x, *states)
        of_weights, *others = back(upstream)
        return *answer, *others, *jax.tree.leaves(of_weights)

    return step


class JaxSession(FunctionSession):
    """A function of (weights, x, *states), compiled."""

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
        states = [jnp.asarray(value) for value in states_of(problem)]
        inputs = [x if on_host else jnp.asarray(x), *states]
        self.problem, self.time_major = problem, x is problem.x
        if upstream := upstream_of(problem):
            upstream[0] = problem.upstream[0] if self.time_major else upstream[0]
            function = _step(function)
        held = (weights, tuple(map(jnp.asarray, upstream))) if upstream else weights
        self.compiled = jax.jit(function).lower(held, *inputs).compile()
        self.memory = {
            "weights": sum(w.nbytes for w in jax.tree.leaves(weights)),
            "inputs": sum(value.nbytes for value in inputs[on_host:]),
        }
        forward = functools.partial(self.compiled, held)
        super().__init__(forward, inputs, settings)
        if on_host:
            self.run = self._from_host

    def _from_host(self, x: Array, *states: Any) -> Any:
        output, *states = self.forward(jax.device_put(x), *states)
        return np.asarray(output), *states

    def wait(self) -> None:
        self.result[-1].block_until_ready()  # as are the others then: they are of one program

    def outputs(self) -> Answer:
        output = np.asarray(self.result[0])
        answer = output if self.time_major else output.transpose(1, 0, 2), *self.last_states
        states = len(self.start)
        gradients = self.gradients
        if gradients and self.time_major:
            gradients[0] = gradients[0].transpose(1, 0, 2)
        if len(gradients) == states + 2:  # of cuDNN's weights there is one
            *gradients, flat = gradients
            return *answer, *in_problems_layout(gradients, states), *self._apart(flat)
        return *answer, *in_problems_layout(gradients, states)

    def _apart(self, flat: Array) -> list[Array]:
        """cuDNN's weights, all matrices and then all biases, in the order of `Problem.arrays`."""
        arrays, places = self.problem.arrays, range(0, len(self.problem.arrays), 4)
        order = [at + n for pair in ((0, 1), (2, 3)) for at in places for n in pair]
        parts = np.split(flat, np.cumsum([arrays[at].size for at in order])[:-1])
        known = dict(zip(order, parts, strict=True))
        return [known[at].reshape(array.shape) for at, array in enumerate(arrays)]

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
