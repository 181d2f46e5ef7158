"""TensorFlow: Keras' LSTM layer in a `tf.function`."""

from __future__ import annotations

from lstm_bench.frameworks.code import KERAS, arrays, half
from lstm_bench.model.framework import CPU, CUDA, DASHED, Cost, Framework, Style
from lstm_bench.model.types import Implementation

_STRICT = "tf.config.experimental.enable_tensor_float_32_execution(False)\n"


def code(row: Implementation, device: str) -> str:
    """Keras' layer in the row's mode, as a graph."""
    mode, cuda = row.options["mode"], device == "cuda"
    options = f"    use_cudnn={cuda and mode == 0},\n    implementation={1 if mode == 1 else 2},\n"
    if row.precision.startswith("amp"):
        options += f'    dtype="mixed_{half(row, device)}",\n'
    return (
        "import keras\nimport tensorflow as tf\n"
        + (_STRICT if cuda and row.precision == "fp32" else "")
        + KERAS.format(options=options)
        + arrays("tf.constant")
        + "call = lambda x, h, c: layer(x, initial_state=[h, c], training=False)\n"
        + f"fast = tf.function(call{', jit_compile=True' if row.options.get('xla') else ''})\n"
        + "output, h, c = fast(x, h0, c0)"
    )


TENSORFLOW = Framework(
    "tensorflow",
    ("tensorflow", "numpy"),
    ("tensorflow", "keras"),
    "pip install tensorflow",
    short=("tf-mode", "TF"),
    noise=(3, "tf-mode2"),
    environment={"TF_CPP_MIN_LOG_LEVEL": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
    costs={
        "cpu": {
            "": Cost(1.3e-3, 1.9e-5, 1.7e10, 8.0, 0.02, 0.12),
            "tf-mode1": Cost(1.3e-3, 5e-5, 1.1e10, 10.0, 0.02, 0.18),
        },
        "cuda": {
            "tf-mode0": Cost(9e-4, 1.5e-5, 4.6e13, 18.0, 0.16, 0.08),
            "tf-mode0-amp": Cost(1e-3, 1.8e-5, 7.4e14, 15.0, 0.13, 0.08),
            "tf-mode0-tf32": Cost(9.6e-4, 1.4e-5, 2.5e14, 15.0, 0.06, 0.07),
            "tf-mode1": Cost(1.2e-3, 5.3e-4, 6e13, 15.0, 0.14, 0.2),
            "tf-mode2": Cost(1.3e-3, 3.1e-4, 9.4e13, 30.0, 0.12, 0.12),
            "tf-xla": Cost(4e-4, 4.1e-5, 4.2e13, 0.6, 0.04, 0.45),
        },
    },
    start_s=(7.0, 9.0),
    emulated=(2.0, 3.0),
    colour="#0072b2",
    styles={
        "tf-mode0": Style("#0072b2"),
        "tf-mode1": Style("#009e73", "v"),
        "tf-mode2": Style("#cc79a7", "^"),
        "tf-mode0-amp": Style("#56b4e9", "s", DASHED),
        "tf-mode1-amp": Style("#3fae8b", "v", DASHED),
        "tf-mode2-amp": Style("#b0608c", "^", DASHED),
    },
    code=code,
)
FRAMEWORKS = (TENSORFLOW,)

row = TENSORFLOW.row
ROWS = (
    row("tf-mode0", "Keras LSTM on cuDNN; on a CPU the same code as mode 2", mode=0),
    row("tf-mode0-tf32", "mode 0 with TF32 allowed", "tf32", CUDA, default_on=CUDA, mode=0),
    row("tf-mode1", "Keras LSTM, implementation=1: eight small products a step", mode=1),
    row(
        "tf-mode2",
        "Keras LSTM, implementation=2: two larger products a step",
        default_on=CPU,
        mode=2,
    ),
    row("tf-xla", "mode 2 compiled by XLA", mode=2, xla=True),
    row("tf-mode0-amp", "mode 0 under a mixed dtype policy", "amp", mode=0),
    row("tf-mode1-amp", "mode 1 under a mixed dtype policy", "amp", mode=1),
    row("tf-mode2-amp", "mode 2 under a mixed dtype policy", "amp", mode=2),
)
