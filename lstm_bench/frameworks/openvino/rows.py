"""OpenVINO: a model of one LSTM sequence."""

from __future__ import annotations

from lstm_bench.model.framework import CPU, Cost, Framework

_CODE = """\
import openvino as ov
torch.onnx.export(lstm, (x, (h0, c0)), "lstm.onnx", dynamo=False)
hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
fast = ov.Core().compile_model("lstm.onnx", "CPU", hints)
output, h, c = fast([x.numpy(), h0.numpy(), c0.numpy()]).values()"""

OPENVINO = Framework(
    "openvino",
    ("openvino", "numpy"),
    ("openvino",),
    "pip install openvino (on aarch64 it needs glibc 2.35 or newer)",
    costs={"cpu": {"": Cost(6e-5, 3e-6, 6.9e10, 2.5, 0.22)}},
    colour="#00767f",
    code=lambda row, device: _CODE,
)
FRAMEWORKS = (OPENVINO,)

_NOTE = "OpenVINO's LSTM sequence, in fp32 also where it would take half precision"
ROWS = (OPENVINO.row("openvino", _NOTE, "fp32", CPU),)
