"""ONNX Runtime: a model of one LSTM operator, plain, on CUDA, or quantised to int8."""

from __future__ import annotations

import functools
import itertools
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from lstm_bench.model.profile import Profile
from lstm_bench.model.types import Implementation, Settings, Unsupported
from lstm_bench.worker.operators import Seen, repeat, table
from lstm_bench.worker.problem import Answer, Array, Problem
from lstm_bench.worker.session import Session

SOURCE = "ONNX Runtime's profiler"
_CUDA = "CUDAExecutionProvider"
_LARGEST = 2**31 - 2**20  # bytes of weights; an ONNX file is one protobuf message, of 2 GiB at most


def describe(settings: Settings) -> dict[str, Any]:
    """Say what this ONNX Runtime is; threads and TF32 are each session's own."""
    if settings.device == "cuda":
        _check_cuda(ort.get_available_providers())
        ort.preload_dlls()  # CUDA and cuDNN as pip has installed them
    return {
        "versions": {"onnxruntime": ort.__version__, "onnx": onnx.__version__},
        "threads": settings.threads,
        "tf32": settings.tf32,
    }


def _check_cuda(providers: list[str]) -> None:
    if _CUDA not in providers:
        raise Unsupported(
            f"onnxruntime {ort.__version__} has {', '.join(providers)}; {_CUDA} comes with"
            " onnxruntime-gpu, where CUDA and cuDNN can be loaded"
        )


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    """The layer as a model with the problem's weights, loaded."""
    model = _model(problem)
    if row.precision == "int8":
        model = _quantised(model)
    bound = settings.device == "cuda" or settings.state == "carried"
    session = (BoundSession if bound else OnnxSession)(model, problem, settings)
    if row.precision == "int8" and saturates():
        session.weights = ", weights of 7 bits"
    return session


def _model(problem: Problem) -> onnx.ModelProto:
    """An LSTM operator for each layer, written down as PyTorch's exporters do."""
    shape, lengths = problem.shape, problem.lengths()
    if (size := sum(array.nbytes for array in problem.arrays)) > _LARGEST:
        raise Unsupported(f"an ONNX file ends at 2 GiB, and the weights are {size / 2**30:.1f} GiB")
    two, state = shape.directions, (shape.directions, shape.batch, shape.hidden)
    weights: dict[str, Array] = {} if lengths is None else {"lengths": np.array(lengths, np.int32)}
    nodes: list[onnx.NodeProto] = []
    x, inputs = "x", {"x": problem.x.shape}
    outputs: dict[str, Sequence[int]] = {}
    for layer in range(shape.layers):
        own = problem.weights[layer * two :][:two]
        w, r, b, y, h, c, h0, c0 = (
            f"{name}{layer or ''}" for name in ("W", "R", "B", "y", "h", "c", "h0", "c0")
        )
        weights[w] = np.stack([_reordered(direction.w_ih) for direction in own])
        weights[r] = np.stack([_reordered(direction.w_hh) for direction in own])
        biases = [map(_reordered, (direction.b_ih, direction.b_hh)) for direction in own]
        weights[b] = np.stack([np.concatenate([*pair]) for pair in biases])
        node = helper.make_node(
            "LSTM",
            [x, w, r, b, "" if lengths is None else "lengths", h0, c0],
            [y, h, c],
            hidden_size=shape.hidden,
            direction="bidirectional" if two == 2 else "forward",
        )
        nodes.append(node)
        inputs |= {h0: state, c0: state}
        outputs |= {h: state, c: state}
        if layer < shape.layers - 1:  # (T, directions, B, H) to the input of the next layer
            nodes.append(helper.make_node("Transpose", [y], [f"{y}t"], perm=[0, 2, 1, 3]))
            nodes.append(helper.make_node("Reshape", [f"{y}t", "joined"], [f"x{layer + 1}"]))
            weights["joined"] = np.array([0, 0, -1], np.int64)
            x = f"x{layer + 1}"
    return _graph(nodes, inputs, {y: (shape.timesteps, *state), **outputs}, weights)


def _graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Mapping[str, Sequence[int]],
    weights: Mapping[str, Any],
    kinds: tuple[int, int] = (TensorProto.FLOAT, TensorProto.FLOAT),
) -> onnx.ModelProto:
    """In versions that any ONNX Runtime of the last years loads, whichever onnx is installed."""
    given, made = (
        [helper.make_tensor_value_info(name, kind, size) for name, size in tensors.items()]
        for kind, tensors in zip(kinds, (inputs, outputs), strict=True)
    )
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "lstm", given, made, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=7)


def _reordered(weights: Array) -> Array:
    """Gates i, f, g, o as ONNX has them: i, o, f, g."""
    i, f, g, o = np.split(weights, 4)
    return np.concatenate([i, o, f, g])


def _bytes(array: TensorProto) -> int:
    kind: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(array.data_type)
    return int(math.prod(array.dims) * kind.itemsize)


def _quantised(model: onnx.ModelProto) -> onnx.ModelProto:
    """Weights to int8 now, inputs and states in each call; settings as they come.

    But 7 bits of weights where products of 8 do not fit, as ONNX Runtime's documentation asks for.
    """
    from onnxruntime.quantization import quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "int8.onnx")
        quantize_dynamic(model, path, reduce_range=saturates())
        return onnx.load(path)


@functools.cache
def saturates() -> bool:
    """Return whether this CPU adds two products in 16 bits and cuts off what is more.

    So does x86 without VNNI: 2 * 255 * 127 is too much.
    """
    depth, size = 64, (1, 64)
    weights = {"b": np.full((depth, depth), 127, np.int8)}
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    kinds = (TensorProto.UINT8, TensorProto.INT32)
    file = _graph([node], {"a": size}, {"y": size}, weights, kinds).SerializeToString()
    session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    (product,) = session.run(None, {"a": np.full((1, depth), 255, np.uint8)})
    return bool((product != depth * 255 * 127).any())


def _options(settings: Settings) -> ort.SessionOptions:
    """One pool of threads, which spins in a call, as users have it, and stops when that ends.

    Left alone it spins on for 20 ms, while the next worker is already timed. Calls back to back
    are as fast so; without any spinning they take up to twice as long.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


class OnnxSession(Session):
    """A call as most write it: `run` with NumPy arrays."""

    profiler = SOURCE
    carries = True  # see `BoundSession`
    weights = ""  # what is special about them, for the path

    def __init__(self, model: onnx.ModelProto, problem: Problem, settings: Settings):
        self.settings, self.file = settings, model.SerializeToString()
        self.session = self._load(_options(settings))
        self.feed, two = {"x": problem.x}, problem.shape.directions
        for layer in range(problem.shape.layers):
            for name, states in (("h0", problem.h0), ("c0", problem.c0)):
                self.feed[f"{name}{layer or ''}"] = states[layer * two :][:two]
        self.memory = {
            "weights": sum(map(_bytes, model.graph.initializer)),
            "inputs": sum(array.nbytes for array in self.feed.values()),
        }

    def _load(self, options: ort.SessionOptions) -> ort.InferenceSession:
        if self.settings.device == "cpu":
            return ort.InferenceSession(self.file, options, ["CPUExecutionProvider"])
        cuda = (_CUDA, {"use_tf32": str(int(self.settings.tf32))})
        session = ort.InferenceSession(self.file, options, [cuda])
        _check_cuda(session.get_providers())  # one that cannot be loaded is left out in silence
        return session

    def call(self) -> None:
        self.result = self.session.run(None, self.feed)

    def outputs(self) -> Answer:
        output, *states = self.result
        both = np.concatenate([*output.swapaxes(0, 1)], axis=2)
        return both, np.concatenate(states[::2]), np.concatenate(states[1::2])

    def close(self) -> None:
        self.__dict__.clear()

    @property
    def path(self) -> str:  # type: ignore[override]
        """The operators that a profiled call ran, and on what."""
        nodes = [event["args"] for event in self._profiled(1)[0] if event["cat"] == "Node"]
        ran = {f"{n['op_name']} on {n['provider'][: -len('ExecutionProvider')]}" for n in nodes}
        return f"ONNX Runtime {ort.__version__}, {', '.join(sorted(ran))}{self.weights}"

    def operators(self, calls: int) -> Profile:
        events, walls_ns = self._profiled(calls)
        return table(SOURCE, list(_seen(events, walls_ns)), walls_ns)

    def _profiled(self, calls: int) -> tuple[list[dict[str, Any]], list[int]]:
        """Profile some calls of a second session: its events, and how long each call took.

        A profile can be ended, but not begun, while a session lives.
        """
        options = _options(self.settings)
        options.enable_profiling = True
        with tempfile.TemporaryDirectory() as folder:
            options.profile_file_prefix = str(Path(folder, "profile"))
            session = self._load(options)
            walls_ns = repeat(lambda: session.run(None, self.feed), calls)
            return json.loads(Path(session.end_profiling()).read_text()), walls_ns


def _seen(events: list[dict[str, Any]], walls_ns: list[int]) -> Iterator[Seen]:
    """Operators, the session around them, Python around that; times are whole microseconds."""
    runs = [event for event in events if event["name"] == "model_run"][-len(walls_ns) :]
    for call, (run, wall_ns) in enumerate(zip(runs, walls_ns, strict=True)):
        run_ns, nodes_ns = 1e3 * run["dur"], 0.0
        for event in events:
            if event["cat"] == "Node" and 0 <= event["ts"] - run["ts"] <= run["dur"]:
                node_ns = 1e3 * event["dur"]
                nodes_ns += node_ns
                size = int(event["args"].get("output_size", 0))
                yield Seen(call, f"ONNX {event['args']['op_name']}", node_ns, node_ns, size)
        yield Seen(call, "session", max(run_ns - nodes_ns, 0.0), run_ns, None)
        yield Seen(call, "Python", max(wall_ns - run_ns, 0.0), wall_ns, None)


class BoundSession(OnnxSession):
    """Inputs and outputs are bound to memory on the device, so that a call copies nothing.

    Or x and y to host memory: to bind x is to copy it, so that each call does; y it copies itself.
    With carried state two bindings take turns: the states that one writes the other reads.
    """

    inputs_from = ("device", "pageable")

    def __init__(self, model: onnx.ModelProto, problem: Problem, settings: Settings):
        super().__init__(model, problem, settings)
        shape, place = problem.shape, settings.device
        x = problem.x
        output_shape = (shape.timesteps, shape.directions, shape.batch, shape.hidden)
        if settings.inputs != "device":
            place = "cpu"
            self.memory["inputs"] -= x.nbytes
        self.x = self._value(x, place)
        self.output = self._value(np.full(output_shape, np.nan, np.float32), place)
        self.restart()

    def restart(self) -> None:
        before, after = self._states(), self._states()
        bindings = [self._bound(before, after)]
        if self.settings.state == "carried":
            bindings.append(self._bound(after, before))
        self.turns = itertools.cycle(bindings)

    def _states(self) -> list[ort.OrtValue]:
        """Copy h0 and c0: on a CPU a value is the array itself."""
        device = self.settings.device
        return [self._value(array.copy(), device) for array in list(self.feed.values())[1:]]

    def _value(self, array: Array, device: str) -> ort.OrtValue:
        return ort.OrtValue.ortvalue_from_numpy(array, device, 0)

    def _bound(self, before: list[ort.OrtValue], after: list[ort.OrtValue]) -> ort.IOBinding:
        binding = self.session.io_binding()
        for name, value in zip(self.feed, (self.x, *before), strict=True):
            binding.bind_ortvalue_input(name, value)
        names = [output.name for output in self.session.get_outputs()]
        for name, value in zip(names, (self.output, *after), strict=True):
            binding.bind_ortvalue_output(name, value)
        return binding

    def call(self) -> None:
        self.binding = next(self.turns)
        if self.settings.inputs != "device":
            self.binding.bind_ortvalue_input("x", self.x)
        self.session.run_with_iobinding(self.binding)

    def outputs(self) -> Answer:
        self.result = self.binding.copy_outputs_to_cpu()
        return super().outputs()
