"""ONNX Runtime and OpenVINO: what of them ran, in which precision, and what they refuse."""

import importlib

import numpy as np
import pytest
from layers import SETTINGS, need

from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.types import Settings, Shape, Unsupported
from lstm_bench.worker import problem as problems

pytestmark = [pytest.mark.frameworks, pytest.mark.xdist_group("frameworks")]

PROBLEM = problems.make(Shape(hidden=16, batch=4, timesteps=6, input_size=9), seed=3)


@pytest.fixture
def onnx():
    need("onnxruntime")
    return importlib.import_module("lstm_bench.frameworks.onnxruntime.session")


@pytest.fixture
def openvino():
    need("openvino")
    return importlib.import_module("lstm_bench.frameworks.openvino.session")


@pytest.mark.parametrize(("saturates", "most"), [(True, 64), (False, 127)])
def test_weights_have_7_bits_where_products_of_8_are_cut_off(onnx, monkeypatch, saturates, most):
    monkeypatch.setattr(onnx, "saturates", lambda: saturates)
    model = onnx._quantised(onnx._model(PROBLEM))
    arrays = [onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    weights = [array for array in arrays if array.dtype == np.int8 and array.ndim == 3]
    assert len(weights) == 2
    assert max(abs(array.astype(int)).max() for array in weights) == most


@pytest.mark.parametrize(
    ("name", "operator"),
    [("onnxruntime", "LSTM"), ("onnxruntime-int8", "DynamicQuantizeLSTM")],
)
def test_onnx_runtime_names_the_operator_that_ran_and_its_time(onnx, name, operator):
    session = onnx.build(PROBLEM, IMPLEMENTATIONS[name], SETTINGS)
    assert f", {operator} on CPU" in session.path
    assert session.path.endswith("7 bits") == (name.endswith("int8") and onnx.saturates())
    profile = session.operators(3)
    assert {part.name: part.count for part in profile.parts} == {
        f"ONNX {operator}": 1,
        "session": 1,
        "Python": 1,
    }


@pytest.mark.parametrize("state", ["fixed", "carried"])
def test_onnx_runtime_has_as_many_threads_as_the_run_and_none_that_spins_between_calls(onnx, state):
    settings = Settings(threads=3, state=state)
    session = onnx.build(PROBLEM, IMPLEMENTATIONS["onnxruntime"], settings).session
    options = session.get_session_options()
    assert options.intra_op_num_threads == 3
    assert options.get_session_config_entry("session.force_spinning_stop") == "1"


@pytest.mark.parametrize("state", ["fixed", "carried"])
def test_onnx_runtime_binds_x_and_y_where_they_lie_and_x_anew_in_each_call(
    onnx, monkeypatch, state
):
    bound = []
    bind = onnx.ort.IOBinding.bind_ortvalue_input

    def binding(self, name, value):
        bound.append((name, value.device_name()))
        bind(self, name, value)

    monkeypatch.setattr(onnx.ort.IOBinding, "bind_ortvalue_input", binding)
    settings = Settings(device="cpu", inputs="pageable", state=state)
    session = onnx.BoundSession(onnx._model(PROBLEM), PROBLEM, settings)
    assert np.isnan(session.output.numpy()).all()
    for _ in range(2):
        bound.clear()
        session.call()
        assert bound == [("x", "cpu")]
    session.restart()
    session.call()
    assert problems.check(session.outputs(), problems.reference(PROBLEM), 5e-5).passed


def test_weights_beyond_what_an_onnx_file_holds_are_refused(onnx, monkeypatch):
    monkeypatch.setattr(onnx, "_LARGEST", 4 * 4 * 16 * (16 + 9))  # the biases are too much
    with pytest.raises(Unsupported, match="2 GiB"):
        onnx.build(PROBLEM, IMPLEMENTATIONS["onnxruntime"], SETTINGS)


def test_an_onnx_runtime_without_cuda_says_what_it_has(onnx):
    if "CUDAExecutionProvider" in onnx.ort.get_available_providers():
        pytest.skip("this one has CUDA")
    with pytest.raises(Unsupported, match=r"has .*CPUExecutionProvider; CUDA.* onnxruntime-gpu"):
        onnx.describe(Settings(device="cuda"))


def test_a_cuda_provider_that_cannot_be_loaded_is_not_replaced_in_silence(onnx, monkeypatch):
    loaded = onnx.ort.InferenceSession

    def on_cpu(file, options, _providers):
        return loaded(file, options, ["CPUExecutionProvider"])

    monkeypatch.setattr(onnx.ort, "InferenceSession", on_cpu)
    with pytest.raises(Unsupported, match="has CPUExecutionProvider"):
        onnx.build(PROBLEM, IMPLEMENTATIONS["onnxruntime-cuda"], Settings(device="cuda"))


def test_openvino_computes_in_fp32_whatever_the_cpu_could(openvino):
    session = openvino.build(PROBLEM, IMPLEMENTATIONS["openvino"], SETTINGS)
    asked = session.compiled.get_property("INFERENCE_PRECISION_HINT")
    assert asked.to_string() == "f32"
    layers = session.compiled.get_runtime_model().get_ops()
    precisions = {layer.get_rt_info()["runtimePrecision"].value for layer in layers}
    assert "f32" in precisions
    assert not precisions & {"f16", "bf16"}


def test_openvino_names_the_layer_and_the_primitive_that_ran_and_their_time(openvino):
    session = openvino.build(PROBLEM, IMPLEMENTATIONS["openvino"], SETTINGS)
    assert "RNN" in session.path
    assert "f32)" in session.path
    profile = session.operators(3)
    assert any(part.name.startswith("LSTM") and part.count == 1 for part in profile.parts)


def test_openvino_says_how_many_threads_it_has_and_never_more_than_there_are_cores(openvino):
    assert openvino.describe(Settings(threads=1))["threads"] == 1
    assert 1 <= openvino.describe(Settings(threads=10_000))["threads"] < 10_000
