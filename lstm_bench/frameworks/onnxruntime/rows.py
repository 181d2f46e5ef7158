"""ONNX Runtime: a model of one LSTM operator."""

from __future__ import annotations

from lstm_bench.model.framework import CPU, CUDA, Cost, Framework
from lstm_bench.model.types import Implementation

_CODE = """\
import onnxruntime as ort
names = {"input_names": ["x", "h0", "c0"], "output_names": ["output", "h", "c"]}
torch.onnx.export(lstm, (x, (h0, c0)), "lstm.onnx", dynamo=False, **names)
"""
_QUANTISE = """\
from onnxruntime.quantization import quantize_dynamic
# on x86 without VNNI with reduce_range=True: sums of products would be cut off
quantize_dynamic("lstm.onnx", "int8.onnx")
"""
_FEED = 'feed = {"x": x.cpu().numpy(), "h0": h0.cpu().numpy(), "c0": c0.cpu().numpy()}\n'
_BOUND = """\
binding = session.io_binding()  # inputs and outputs stay on the GPU
for name, array in feed.items():
    value = ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0)
    binding.bind_ortvalue_input(name, value)
for name in ("output", "h", "c"):
    binding.bind_output(name, "cuda")
session.run_with_iobinding(binding)
output, h, c = binding.copy_outputs_to_cpu()"""


def code(row: Implementation, device: str) -> str:
    """The layer exported and loaded; on a GPU bound to memory there."""
    int8, cuda = row.precision == "int8", device == "cuda"
    file = "int8.onnx" if int8 else "lstm.onnx"
    provider = '("CUDAExecutionProvider", {"use_tf32": "0"})' if cuda else '"CPUExecutionProvider"'
    return (
        _CODE
        + (_QUANTISE if int8 else "")
        + ("ort.preload_dlls()\n" if cuda else "")
        + f"provider = {provider}\n"
        + f'session = ort.InferenceSession("{file}", providers=[provider])\n'
        + _FEED
        + (_BOUND if cuda else "output, h, c = session.run(None, feed)")
    )


ONNX_RUNTIME = Framework(
    "onnxruntime",
    ("onnxruntime", "onnx", "numpy"),
    ("onnxruntime", "onnxruntime-gpu", "onnx"),
    "pip install onnxruntime onnx; on a GPU onnxruntime-gpu onnx",
    costs={
        "cpu": {
            "onnxruntime": Cost(7e-5, 1e-6, 7.7e10, 2.6, 0.06),
            "onnxruntime-int8": Cost(8e-5, 3e-6, 1.2e11, 1.0, 0.15),
        },
    },
    colour="#1b7837",
    code=code,
)
FRAMEWORKS = (ONNX_RUNTIME,)

_INT8 = "the same after quantize_dynamic: int8 weights, inputs quantised in each call"
_ON_GPU = "ONNX Runtime's CUDA provider, TF32 off; its inputs lie on the GPU"
ROWS = (
    ONNX_RUNTIME.row("onnxruntime", "ONNX Runtime's LSTM operator", "fp32", CPU, default_on=CPU),
    ONNX_RUNTIME.row("onnxruntime-int8", _INT8, "int8", CPU),
    ONNX_RUNTIME.row("onnxruntime-cuda", _ON_GPU, "fp32", CUDA),
)
