"""The code that `advise` prints: every deployable row has some, and it does what it says."""

import dataclasses
import importlib
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from lstm_bench.driver import machine
from lstm_bench.frameworks import FRAMEWORKS, IMPLEMENTATIONS, find, snippet
from lstm_bench.model.types import TOLERANCES, Settings, Shape, Unsupported
from lstm_bench.worker import problem as problems

DEPLOYABLE = [
    row
    for row in IMPLEMENTATIONS.values()
    if not FRAMEWORKS[row.framework].reference and row.framework != "fake"
]
#: Frameworks whose code is no Python, or which cannot be had any more.
NOT_RUN = ("libtorch", "apex")


def on_gpu(framework):
    """True if it can be run there: ONNX Runtime has a package of its own for that."""
    if not machine.has_gpu():
        return False
    if framework != "onnxruntime":
        return True
    return "CUDAExecutionProvider" in importlib.import_module(framework).get_available_providers()


HERE = sorted(
    {
        (row.framework, device)
        for row in DEPLOYABLE
        for device in row.devices
        if row.framework not in NOT_RUN
        and all(map(importlib.util.find_spec, (*FRAMEWORKS[row.framework].requires, "torch")))
        and (device == "cpu" or on_gpu(row.framework))
    }
)


def process(framework):
    """The process that a row shares: there is one Keras on one backend, and PyTorch is in all."""
    return framework if framework in ("tensorflow", "jax", "keras-jax") else "pytorch"


HIDDEN = {"cpu": {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}, "cuda": {}}
BEFORE = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import warnings
warnings.simplefilter("ignore")
import torch
torch.manual_seed(1)
torch.backends.mkldnn.enabled = True
if os.uname().machine == "aarch64":
    torch.backends.quantized.engine = "qnnpack"
lstm = torch.nn.LSTM(6, 8).eval()
x, h0, c0 = torch.randn(5, 3, 6), torch.randn(1, 3, 8), torch.randn(1, 3, 8)
with torch.no_grad():
    expected = lstm(x, (h0, c0))[0].numpy()
lstm, x, h0, c0 = (tensor.to(DEVICE) for tensor in (lstm, x, h0, c0))
"""
AFTER = """
import numpy
output = output.float().cpu() if isinstance(output, torch.Tensor) else output
output = numpy.asarray(output).astype("float32").reshape(-1, *output.shape[-2:])
if output.shape == (3, 5, 8):
    output = output.transpose(1, 0, 2)
error = float(abs(output.reshape(expected.shape) - expected).max())
"""
#: Runs files one after the other: a framework takes long to import.
ALL = """
import json, runpy, sys, traceback
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = runpy.run_path(name)["error"]
    except BaseException:
        found[name] = traceback.format_exc()
print(json.dumps(found))
"""


@pytest.mark.parametrize("row", DEPLOYABLE, ids=lambda row: row.name)
def test_every_deployable_row_has_code_for_each_of_its_devices(row):
    for device in row.devices:
        code = snippet(row, device)
        assert code
        assert max(map(len, code.splitlines())) <= 96  # it is printed, indented
        if row.framework != "libtorch":
            compile(code, row.name, "exec")


@pytest.mark.parametrize(("group", "device"), sorted({(process(f), d) for f, d in HERE}))
def test_the_code_gives_the_answer_of_nn_lstm(group, device, tmp_path):
    here = [framework for framework, d in HERE if d == device and process(framework) == group]
    mine = [row for row in DEPLOYABLE if row.framework in here and device in row.devices]
    for row in mine:
        for precision in precisions(row):
            code = as_told(snippet(dataclasses.replace(row, precision=precision), device))
            text = f"DEVICE = {device!r}\n{BEFORE}{code}{AFTER}"
            (tmp_path / f"{row.name}.{precision}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", ALL, *sorted(path.name for path in tmp_path.glob("*.py"))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **HIDDEN[device]},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout.splitlines()[-1])
    for row in mine:
        own = {p: errors[f"{row.name}.{p}.py"] for p in precisions(row)}
        ran = {precision: error for precision, error in own.items() if isinstance(error, float)}
        assert ran or refused(row, device), own
        assert all(error <= TOLERANCES[precision] for precision, error in ran.items()), own


def precisions(row):
    """The precisions to try: a CPU has half precision of one kind or of the other."""
    return ["amp-fp16", "amp-bf16"] if row.precision == "amp" else [row.precision]


def as_told(code):
    """The code with what its comment asks for on a CPU such as this."""
    if "reduce_range" not in code:
        return code
    if importlib.import_module("lstm_bench.frameworks.onnxruntime.session").saturates():
        return code.replace('"int8.onnx")', '"int8.onnx", reduce_range=True)', 1)
    return code


def refused(row, device):
    """True if the product itself does not run this row here: some CPUs have no AMP at all."""
    module = importlib.import_module(f"lstm_bench.frameworks.{row.module}.session")
    try:
        module.build(problems.make(Shape(8, 2, 3, 8), 1), row, Settings(device=device)).close()
    except Unsupported:
        return True
    return False


def test_rows_that_cannot_be_deployed_have_none():
    assert snippet(IMPLEMENTATIONS["fake"]) == ""
    assert snippet(IMPLEMENTATIONS["deepbench"]) == ""


def test_a_row_with_threads_of_its_own_sets_them():
    assert snippet(find("pytorch@1", "")).startswith("torch.set_num_threads(1)\n")
