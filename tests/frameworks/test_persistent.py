"""The rows of our own kernels, which lstm_kernels/tests check: what they ask of them."""

from types import SimpleNamespace

import numpy as np
import pytest

import lstm_kernels
from lstm_bench.frameworks.persistent import session as persistent
from lstm_bench.model.types import Settings, Shape, Unsupported
from lstm_bench.worker import problem as problems
from lstm_kernels import Unsupported as Refused
from lstm_kernels import layer as kernels
from lstm_kernels import libraries

ROW = SimpleNamespace(options={"precision": "fp16"})


class Native:
    """A layer of the extension that keeps what it is asked for."""

    def __init__(self):
        self.asked = []

    def memory(self):
        return {"all": 10}

    def outputs(self):
        return [np.ones(3, np.float16).view(np.uint16)] * 3

    def __getattr__(self, name):
        return lambda *arguments: self.asked.append((name, *arguments))


@pytest.fixture
def kernel(monkeypatch):
    """The request that the kernels get, and the layer that they say is the fastest."""
    layer = kernels.Layer(Native(), "plan", SimpleNamespace(storage="fp16"), "fp16")
    layer.peak, asked = 20, []

    def fastest(*arguments):
        asked.append(arguments)
        return layer

    monkeypatch.setattr(kernels, "fastest", fastest)
    return SimpleNamespace(layer=layer, asked=asked)


def built(**settings):
    problem = problems.make(Shape(8, 2, 3, 8), 1)
    return problem, persistent.build(problem, ROW, Settings(device="cuda", **settings))


def test_the_row_is_the_fastest_plan_of_its_precision(kernel):
    problem, session = built()
    ((call, precision, most),) = kernel.asked
    assert all(map(np.array_equal, vars(call).values(), problem.single))
    assert (precision, most) == ("fp16", kernels.TRIED)
    assert (session.path, session.memory, session.device_peak()) == ("plan", {"all": 10}, 20)
    assert session.outputs()[0].tolist() == [1, 1, 1]
    assert session.outputs()[1].shape == (1, 3)
    assert session.outputs()[0].dtype == np.float32


@pytest.mark.parametrize(
    ("inputs", "pinned"),
    [("device", []), ("pinned", [("keep_on_host", True)]), ("pageable", [("keep_on_host", False)])],
)
def test_the_row_keeps_x_and_y_where_the_settings_have_them(kernel, inputs, pinned):
    built(inputs=inputs)
    assert kernel.layer.lstm.asked == pinned


def test_carried_states_are_stored_as_the_layer_stores_them(kernel):
    built(state="carried")
    ((verb, *states),) = kernel.layer.lstm.asked
    assert verb == "carry"
    assert all(state.dtype == np.uint16 and state.shape == (2, 8) for state in states)


def test_what_the_kernels_refuse_is_unsupported_with_their_reason(kernel, monkeypatch):
    def refuse(*_):
        raise Refused("no kernel holds it")

    monkeypatch.setattr(kernels, "fastest", refuse)
    with pytest.raises(Unsupported, match="no kernel holds it"):
        built()
    monkeypatch.setattr(libraries, "find", lambda name: None)
    kernels.toolbox.cache_clear()
    with pytest.raises(Unsupported, match="pip install nvidia-cuda-runtime"):
        persistent.describe(Settings(device="cuda"))


def test_the_drop_in_has_its_old_name_too():
    pytest.importorskip("torch")
    import lstm_bench.persistent

    assert lstm_bench.persistent.LSTM is lstm_kernels.LSTM
