"""TensorFlow: Keras' LSTM layer in a `tf.function` of fixed shape.

Keras 3 has two code paths where the paper's TensorFlow had three modes:

    mode 0   the cuDNN kernel (`use_cudnn=True`); a CPU has none and runs the code of mode 2
    mode 1   the generic cell with `implementation=1`: eight small products a step
    mode 2   the generic cell with `implementation=2`: two larger products a step

With `xla` XLA compiles the function, at its first call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.frameworks.tensorflow import profiler as tensorflow_profile
from lstm_bench.model.profile import Activity, Profile, Window
from lstm_bench.model.types import Implementation, Settings, Unsupported
from lstm_bench.worker import amp, loaded_libraries
from lstm_bench.worker.function_session import (
    FunctionSession,
    batch_major,
    in_problems_layout,
    states_of,
    upstream_of,
)
from lstm_bench.worker.keras_layer import forward, keras_on, layers, mask_of
from lstm_bench.worker.problem import Answer, Array, Problem
from lstm_bench.worker.session import Session

TRAINS = True
OPTIONS = frozenset({"mode", "xla"})  # what `build` reads of row.options
keras = keras_on("tensorflow")
_POLICIES = {"fp16": "mixed_float16", "bf16": "mixed_bfloat16"}


def describe(settings: Settings) -> dict[str, Any]:
    """Obey the run's settings, and say what this TensorFlow is."""
    gpus = tf.config.list_physical_devices("GPU")
    build = tf.sysconfig.get_build_info()
    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
    if settings.device == "cuda":
        if not gpus:
            raise Unsupported(f"tensorflow {tf.__version__} sees no GPU (is it a CPU build?)")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        versions["built for cuda"] = str(build.get("cuda_version", ""))
        versions["built for cudnn"] = str(build.get("cudnn_version", ""))
    else:
        tf.config.set_visible_devices([], "GPU")  # Keras picks cuDNN when any GPU is visible
    tf.config.threading.set_intra_op_parallelism_threads(settings.threads)
    tf.config.threading.set_inter_op_parallelism_threads(settings.threads)
    tf.config.experimental.enable_tensor_float_32_execution(settings.tf32)
    return {
        "versions": versions,
        "threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
    }


def allocated() -> int:
    """Bytes in use on the GPU now; their peak is counted from here on."""
    tf.config.experimental.reset_memory_stats("GPU:0")
    return int(tf.config.experimental.get_memory_info("GPU:0")["current"])


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    """The layer with the problem's weights, traced for the problem's shape."""
    mode, cuda = row.options["mode"], settings.device == "cuda"
    half = (
        amp.precision(settings, _mixed_once, bool(problem.upstream))
        if row.precision == "amp"
        else ""
    )
    if half == "bf16" and cuda and mode == 0:
        raise Unsupported("TensorFlow's cuDNN LSTM has no bfloat16: it would run in fp32")
    stack = layers(
        keras,
        problem,
        implementation=1 if mode == 1 else 2,
        use_cudnn=cuda and mode == 0,
        dtype=_POLICIES[half] if half else "float32",
    )

    def placed(name: str, value: Any) -> tf.Tensor:
        return problem.shared(f"tensorflow {name}", lambda: tf.identity(on_device(value, settings)))

    x = batch_major(problem)
    if settings.inputs == "device":
        x = placed("x", x)
    states = [placed(f"state {n}", value) for n, value in enumerate(states_of(problem))]
    if settings.state == "carried":  # as the layer gives them back
        states = [tf.cast(state, stack[0].compute_dtype) for state in states]
    xla = row.options.get("xla")
    upstream = [placed(f"upstream {n}", value) for n, value in enumerate(upstream_of(problem))]
    given = stack, mask_of(problem), (x, *states), settings, xla, upstream
    session = TensorFlowSession(*given)
    session.precision = f"amp-{half}" if half else ""
    return session


def on_device(value: Any, settings: Settings) -> tf.Tensor:
    """An array as a tensor that lies there."""
    with tf.device("GPU:0" if settings.device == "cuda" else "CPU:0"):
        return tf.constant(value)


def _mixed_once(problem: Problem, half: str) -> None:
    settings = Settings(device="cpu", amp=half)
    build(problem, IMPLEMENTATIONS["tf-mode2-amp"], settings).call()


class TensorFlowSession(FunctionSession):
    """Keras' layers behind a `tf.function` whose signature is the problem's shape."""

    profiler = tensorflow_profile.SOURCE
    inputs_from = ("device", "pageable")

    def __init__(
        self,
        stack: list[Any],
        mask: Array | None,
        inputs: tuple[tf.Tensor, ...],
        settings: Settings,
        xla: bool | None,
        upstream: Sequence[tf.Tensor] = (),
    ):
        """`upstream`: the gradients of output and states, of a training step."""
        signature = [tf.TensorSpec(t.shape, t.dtype) for t in inputs]

        @tf.function(input_signature=signature, autograph=False, jit_compile=xla)  # type: ignore[untyped-decorator]
        def run(x: tf.Tensor, *states: tf.Tensor) -> Any:
            ends = None if mask is None else tf.constant(mask)
            if not upstream:
                return forward(stack, ends, x, states)
            weights = [w.value for layer in stack for w in layer.trainable_variables]
            with tf.GradientTape() as tape:
                tape.watch((x, *states))
                answer = forward(stack, ends, x, states, training=True)
            pairs = zip(upstream, answer, strict=True)
            given = [tf.cast(gradient, tensor.dtype) for gradient, tensor in pairs]
            return (*answer, *tape.gradient(answer, (x, *states, *weights), given))

        super().__init__(run, inputs, settings)
        if settings.inputs != "device":
            self.run, inputs = self._from_host, inputs[1:]
        self.stack, self.settings, self.cuda = stack, settings, settings.device == "cuda"
        self.memory = {
            "weights": sum(int(np.prod(w.shape)) * 4 for layer in stack for w in layer.weights),
            "inputs": sum(int(np.prod(t.shape)) * t.dtype.size for t in inputs),
        }
        if self.cuda:
            self.wait = tf.test.experimental.sync_devices  # type: ignore[method-assign]

    def _from_host(self, x: Array, *states: tf.Tensor) -> Any:
        output, *states = self.forward(on_device(x, self.settings), *states)
        return output.numpy(), *states

    @property
    def path(self) -> str:  # type: ignore[override]
        """Read off the traced graph, so it is what runs and not what was asked for."""
        traced = self.forward.get_concrete_function()
        if traced.function_def.attr["_XlaMustCompile"].b:
            return "XLA"
        graph = traced.graph.as_graph_def()
        functions = (f.node_def for f in graph.library.function)
        operators = {node.op for nodes in (graph.node, *functions) for node in nodes}
        library = f"cuDNN {loaded_libraries.cudnn()}".strip()
        return next((f"{library}, {op}" for op in sorted(operators) if "CudnnRNN" in op), "generic")

    def outputs(self) -> Answer:
        output = tf.cast(self.result[0], tf.float32).numpy()
        answer = output.transpose(1, 0, 2), *self.last_states
        return *answer, *in_problems_layout(self.gradients, len(self.start))

    def device_peak(self) -> int:
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])

    def operators(self, calls: int) -> Profile:
        return tensorflow_profile.operators(self, calls, self.cuda)

    def activities(self, calls: int) -> tuple[list[Activity], list[Window]] | None:
        return tensorflow_profile.activities(self, calls) if self.cuda else None
