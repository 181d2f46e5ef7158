"""LibTorch: `torch::nn::LSTM`, called from C++."""

from __future__ import annotations

from lstm_bench.model.framework import CPU, CUDA, Cost, Framework
from lstm_bench.model.types import Implementation

_CODE = """\
// C++; weights from Python by torch.jit.save or torch::load
torch::nn::LSTM lstm(torch::nn::LSTMOptions(input_size, hidden_size));
lstm->to({device});
torch::InferenceMode guard;{strict}
auto [output, state] = lstm->forward(x, std::make_tuple(h0, c0));"""
_STRICT = "\nat::globalContext().setAllowTF32CuDNN(false);  // the default is TF32"


def code(row: Implementation, device: str) -> str:
    """C++, in the precision of the row."""
    strict = _STRICT if device == "cuda" and row.precision == "fp32" else ""
    return _CODE.format(device=f"torch::k{device.upper()}", strict=strict)


LIBTORCH = Framework(
    "libtorch",
    ("torch", "numpy"),
    ("torch",),
    "pip install torch numpy, and a C++20 compiler (g++ 11 or newer) on the PATH",
    costs={
        "cuda": {
            "libtorch": Cost(4e-5, 1.2e-5, 3.8e13, 9.6, 0.5),
            "libtorch-tf32": Cost(1.2e-4, 1.2e-5, 2.7e14, 10.0, 0.05),
        },
    },
    colour="#7f3b08",
    code=code,
)
FRAMEWORKS = (LIBTORCH,)

_NOTE = "torch::nn::LSTM called and timed in C++; compiled at first use"
_TF32 = "the same with TF32 allowed, as LibTorch has it by default"
ROWS = (
    LIBTORCH.row("libtorch", _NOTE, default_on=CPU),
    LIBTORCH.row("libtorch-tf32", _TF32, "tf32", CUDA, default_on=CUDA),
)
