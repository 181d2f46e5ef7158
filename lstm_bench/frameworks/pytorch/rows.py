"""PyTorch: `torch.nn.LSTM`, plain or in one of the ways that PyTorch offers; and NVIDIA's apex."""

from __future__ import annotations

from lstm_bench.frameworks.code import half
from lstm_bench.model.framework import CPU, CUDA, DASHED, DOTTED, Cost, Framework, Style
from lstm_bench.model.types import Implementation

STRICT = 'torch.backends.cudnn.rnn.fp32_precision = "ieee"  # the default is TF32\n'
_CALL = "output, (h, c) = lstm(x, (h0, c0))"
_INFERENCE = f"with torch.inference_mode():\n    {_CALL}"
_GRAPH = """\
with torch.inference_mode():
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):  # libraries choose and allocate
            lstm(x, (h0, c0))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output, (h, c) = lstm(x, (h0, c0))
graph.replay()  # then x.copy_(the next input), replay, read output"""
_COMPILE = """\
import torch._dynamo
torch._dynamo.config.allow_rnn = True  # else it runs as it is, without a word
fast = torch.compile(lstm{mode})
with torch.inference_mode():
    output, (h, c) = fast(x, (h0, c0))"""
_SCRIPT = """\
class Layer(torch.nn.Module):  # a bare nn.LSTM cannot be scripted
    def __init__(self, lstm: torch.nn.LSTM):
        super().__init__()
        self.lstm = lstm
    def forward(self, x: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor):
        return self.lstm(x, (h0, c0))

fast = torch.jit.script(Layer(lstm).eval())
with torch.inference_mode():
    output, (h, c) = fast(x, h0, c0)"""
_TRACE = """\
with torch.inference_mode():
    fast = torch.jit.trace(lstm, (x, (h0, c0)))
    output, (h, c) = fast(x, (h0, c0))"""
_INT8 = """\
# on ARM first: torch.backends.quantized.engine = 'qnnpack'
model = torch.nn.Sequential(lstm)
model = torch.ao.quantization.quantize_dynamic(model, {{torch.nn.LSTM}}, torch.qint8)
with torch.inference_mode():
    output, (h, c) = model[0](x, (h0, c0))"""
#: By `row.options["way"]`; `lstm` is in the row's precision by then.
_WAYS = {
    "": _INFERENCE,
    "graph": _GRAPH,
    "compile": _COMPILE,
    "script": _SCRIPT,
    "trace": _TRACE,
    "native": "torch.backends.mkldnn.enabled = False  # of the whole process\n" + _INFERENCE,
    "int8": _INT8,
}
_AMP = "with torch.inference_mode(), torch.autocast({device!r}, dtype=torch.{half}):\n    " + _CALL
_APEX = f"""\
from apex import amp  # NVIDIA/apex at e13873d, the last that has it
lstm = amp.initialize(lstm, opt_level="O1", verbosity=0)
{_INFERENCE}"""


def code(row: Implementation, device: str) -> str:
    """The layer in the row's precision, called in the row's way."""
    way, cuda = row.options.get("way", ""), device == "cuda"
    start = STRICT if cuda and row.precision == "fp32" else ""
    if cast := {"fp16": "half", "bf16": "bfloat16"}.get(row.precision):
        start += f"lstm, x, h0, c0 = (t.{cast}() for t in (lstm, x, h0, c0))\n"
    call = _AMP if row.precision.startswith("amp") else _WAYS.get(way, "")
    return call and start + call.format(
        device=device,
        half=half(row, device),
        mode=', mode="reduce-overhead"' if cuda else "",
    )


PYTORCH = Framework(
    "pytorch",
    ("torch", "numpy"),
    ("torch",),
    "pip install torch numpy",
    short=("pytorch", "PT"),
    baseline=True,
    noise=(1, "pytorch"),
    environment={"ONEDNN_JIT_PROFILE": "0"},  # or it leaves /tmp/perf-PID.map behind
    costs={
        "cpu": {
            "pytorch-compile": Cost(4e-4, 3e-6, 8e10, 5.0, 3.0, build_step_s=0.02),
        },
        "cuda": {
            "pytorch-graph": Cost(1.7e-5, 4e-6, 2.6e13, 7.0),
            "pytorch-tf32": Cost(1.1e-4, 1.4e-5, 3.7e14, 95.0),
            "pytorch-tf32-graph": Cost(1.7e-5, 4e-6, 1.1e14, 26.0),
            "pytorch-half": Cost(9.3e-5, 5.2e-6, 5.4e14, 73.0),
            "pytorch-half-graph": Cost(1.4e-5, 1.9e-6, 4.4e14, 98.0),
            "pytorch-amp": Cost(5.5e-4, 3.7e-6, 4.4e14, 40.0),
            "pytorch-compile": Cost(2.3e-5, 1.2e-5, 3.3e13, 0.0, 2.0, build_step_s=0.6),
        },
    },
    start_s=(3.5, 3.0),
    emulated=(3.0, 40.0),
    colour="#d55e00",
    styles={
        "pytorch": Style("#d55e00"),
        "pytorch-amp": Style("#e69f00", "s", DASHED),
        "pytorch-half": Style("#8c2d04", "D", DOTTED),
        "pytorch-apex": Style("#c7853a", "X", DASHED),
        "pytorch-tf32": Style("#b34700", "s"),
        "pytorch-graph": Style("#f07d1a", "^", DASHED),
        "pytorch-tf32-graph": Style("#96500c", "P", DASHED),
        "pytorch-half-graph": Style("#a63a1e", "v", DASHED),
        "pytorch-bf16": Style("#6f3a1a", "X", DOTTED),
        "pytorch-int8": Style("#d4a017", "v"),
        "pytorch-compile": Style("#b5651d", "*"),
        "pytorch-script": Style("#a97142", "D", DASHED),
        "pytorch-trace": Style("#cd8544", "o", DOTTED),
        "pytorch-native": Style("#9c6b2f", "^", DOTTED),
    },
    code=code,
    threads_code="torch.set_num_threads({})",
)
APEX = Framework(
    "apex",
    ("torch", "apex.amp", "numpy"),
    ("torch", "apex"),
    "add a checkout of github.com/NVIDIA/apex at e13873d, the last with amp, to PYTHONPATH:"
    " there is nothing to build; pytorch-amp is its heir",
    module="pytorch",
    on_top_of="pytorch",
    code=lambda row, device: _APEX,
)
FRAMEWORKS = (PYTORCH, APEX)

row = PYTORCH.row
ROWS = (
    row("pytorch", "torch.nn.LSTM in strict fp32; cuDNN on a GPU", default_on=CPU),
    row("pytorch-tf32", "TF32 allowed, as PyTorch does by default", "tf32", CUDA, default_on=CUDA),
    row("pytorch-amp", "torch.autocast around each call", "amp"),
    row("pytorch-half", "weights and input in half precision; no casts in the call", "fp16", CUDA),
    row("pytorch-bf16", "weights and input in bfloat16", "bf16"),
    row("pytorch-graph", "replayed as a CUDA graph", "fp32", CUDA, way="graph"),
    row("pytorch-tf32-graph", "the same with TF32 allowed", "tf32", CUDA, way="graph"),
    row("pytorch-half-graph", "the same in half precision", "fp16", CUDA, way="graph"),
    row(
        "pytorch-compile",
        "torch.compile; on a GPU all steps unrolled, mode reduce-overhead",
        way="compile",
        cap_s=30,
    ),
    row("pytorch-script", "torch.jit.script", way="script"),
    row("pytorch-trace", "torch.jit.trace", way="trace"),
    row("pytorch-native", "oneDNN off: PyTorch's own loop", "fp32", CPU, way="native"),
    row("pytorch-int8", "weights quantised by quantize_dynamic", "int8", CPU, way="int8"),
    APEX.row(
        "pytorch-apex", "apex.amp, opt level O1, as the paper used it", "amp", CUDA, apex=True
    ),
)
