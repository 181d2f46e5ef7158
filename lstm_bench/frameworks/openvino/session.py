"""OpenVINO: a model of one LSTM sequence, compiled for the CPU."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset8 as ops

from lstm_bench.model.profile import Profile
from lstm_bench.model.types import Implementation, Settings
from lstm_bench.worker.operators import Seen, repeat, table
from lstm_bench.worker.problem import Answer, Array, Problem
from lstm_bench.worker.session import Session

SOURCE = "OpenVINO's performance counters"
_VERSION = ov.__version__.split("-")[0]
_CORE = ov.Core()
#: Layers of a compiled model that hold or move values.
_NO_WORK = ("Input", "Output", "Const", "Reorder", "Reshape", "Transpose")


def describe(settings: Settings) -> dict[str, Any]:
    """Say what this OpenVINO is, and how many threads a model gets: at most one a core."""
    x = ops.parameter([1], np.float32)
    compiled = _compiled(ov.Model([ops.relu(x).output(0)], [x]), settings)
    return {
        "versions": {"openvino": _VERSION},
        "threads": int(compiled.get_property("INFERENCE_NUM_THREADS")),
        "tf32": False,
    }


def _compiled(model: ov.Model, settings: Settings, count: bool = False) -> ov.CompiledModel:
    """Compile for a short wait, which is the default, and in fp32, which is not on every CPU.

    Left alone it computes in bfloat16 or half precision where a CPU has that. Threads are pinned
    to cores, as users have it.
    """
    asked = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": settings.threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERF_COUNT": count,
    }
    return _CORE.compile_model(model, "CPU", asked)


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    """The layer with the problem's weights, compiled for the problem's shape."""
    s = problem.shape
    x = ops.parameter(problem.x.shape, np.float32)
    below, given, made, size = ops.transpose(x, np.array([1, 0, 2])), [x], [], 0
    for layer in range(s.layers):
        own = problem.weights[layer * s.directions :][: s.directions]
        each = [(w.w_ih, w.w_hh, w.b_ih + w.b_hh) for w in own]
        weights = [np.stack([_reordered(w) for w in kind]) for kind in zip(*each, strict=True)]
        size += sum(array.nbytes for array in weights)
        states = [ops.parameter([s.batch, s.directions, s.hidden], np.float32) for _ in range(2)]
        sequence = ops.lstm_sequence(
            below,
            *states,
            ops.constant(np.array(s.each_length, np.int32)),
            *(ops.constant(array) for array in weights),
            s.hidden,
            "bidirectional" if s.directions == 2 else "forward",
        )
        given += states
        made += [sequence.output(1), sequence.output(2)]
        output = sequence.output(0)  # (B, directions, T, H)
        if layer < s.layers - 1:
            turned = ops.transpose(output, np.array([0, 2, 1, 3]))
            below = ops.reshape(turned, np.array([s.batch, s.timesteps, -1]), False)
    last = ops.transpose(output, np.array([2, 0, 1, 3]))
    session = OpenVinoSession(ov.Model([last.output(0), *made], given), problem, settings)
    session.memory["weights"] = size
    return session


def _reordered(weights: Array) -> Array:
    """Gates i, f, g, o as OpenVINO has them: f, i, g, o."""
    i, f, g, o = np.split(weights, 4)
    return np.concatenate([f, i, g, o])


class OpenVinoSession(Session):
    """A call is an infer request whose tensors were set before, so that it copies nothing.

    With carried state two requests take turns: the states that one writes the other reads.
    """

    profiler = SOURCE
    carries = True

    def __init__(self, model: ov.Model, problem: Problem, settings: Settings):
        self.model, self.settings = model, settings
        self.compiled = _compiled(model, settings)
        self.directions = problem.shape.directions
        self.inputs = [problem.x]
        for place in range(0, len(problem.h0), self.directions):
            for states in (problem.h0, problem.c0):  # (B, directions, H)
                own = states[place : place + self.directions].swapaxes(0, 1)
                self.inputs.append(np.ascontiguousarray(own))
        self.memory = {"inputs": sum(array.nbytes for array in self.inputs)}
        self.restart()

    def restart(self) -> None:
        before, after = self._states(), self._states()
        requests = [self._request(self.compiled, before, after)]
        if self.settings.state == "carried":
            requests.append(self._request(self.compiled, after, before))
        self.turns = itertools.cycle(requests)

    def _states(self) -> list[ov.Tensor]:
        """Copies; only x is the array itself."""
        return [ov.Tensor(array) for array in self.inputs[1:]]

    def _request(
        self, compiled: ov.CompiledModel, before: list[ov.Tensor], after: list[ov.Tensor]
    ) -> ov.InferRequest:
        request = compiled.create_infer_request()
        x = ov.Tensor(self.inputs[0], shared_memory=True)
        for place, tensor in enumerate((x, *before)):
            request.set_input_tensor(place, tensor)
        for place, tensor in enumerate(after, 1):
            request.set_output_tensor(place, tensor)
        return request

    def call(self) -> None:
        self.request = next(self.turns)
        self.request.infer(share_outputs=True)

    def outputs(self) -> Answer:
        places = range(len(self.inputs))
        output, *states = (self.request.get_output_tensor(place).data for place in places)
        h, c = (np.concatenate(states[first::2], axis=1).swapaxes(0, 1) for first in (0, 1))
        return output.reshape(*output.shape[:2], -1), h, c

    def close(self) -> None:
        self.__dict__.clear()

    @property
    def path(self) -> str:  # type: ignore[override]
        """The layers of the compiled model, and by which of its primitives each is run."""
        layers = [layer.get_rt_info() for layer in self.compiled.get_runtime_model().get_ops()]
        ran = {
            f"{layer['layerType'].value} ({layer['primitiveType'].value})"
            for layer in layers
            if layer["layerType"].value not in _NO_WORK
        }
        return f"OpenVINO {_VERSION}, {', '.join(sorted(ran))}"

    def operators(self, calls: int) -> Profile:
        """Profile a second request, of a model that counts: counting slows every call."""
        compiled = _compiled(self.model, self.settings, count=True)
        request = self._request(compiled, self._states(), self._states())
        walls_ns = repeat(lambda: request.infer(share_outputs=True), calls)
        ran = [  # means over the calls
            (layer.node_type, 1e3 * (layer.real_time / timedelta(microseconds=1)))
            for layer in request.profiling_info
            if layer.status == ov.ProfilingInfo.Status.EXECUTED
        ]
        seen = []
        for call, wall_ns in enumerate(walls_ns):
            rest = ("around the layers", max(wall_ns - sum(ns for _, ns in ran), 0.0))
            seen += [Seen(call, name, ns, ns, None) for name, ns in (*ran, rest)]
        return table(SOURCE, seen, walls_ns)
