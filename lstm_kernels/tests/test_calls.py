"""The drop-in for nn.LSTM, without a GPU: what it refuses, and what it calls.

Fake libraries take the GPU's place: y is then the product of the input gate, and the last states
are the first. What it computes on a GPU: test_on_gpu.py.
"""

import contextlib
import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from cases import H200, problem

from lstm_kernels import Unsupported, cache
from lstm_kernels import layer as kernels

torch = pytest.importorskip("torch", reason="the drop-in is PyTorch's")
_gpu = pytest.importorskip("lstm_kernels._gpu", reason="the extension was not built")

from lstm_kernels import lstm as drop_in  # noqa: E402

INPUT, HIDDEN = 3, 5


@pytest.fixture
def gpu(library, monkeypatch):
    """A GPU whose memory is the host's: what was asked of it, and a flag to capture."""
    seen = SimpleNamespace(capturing=False, measured=[], waits=0, fake=ctypes.CDLL(library))
    seen.fake.fake_set_late(0)

    def wait(device):
        seen.waits += 1

    def fastest(call, *rest):
        seen.measured.append(call.sizes[2:])
        return really(call, *rest)

    really = kernels.fastest
    compiler = SimpleNamespace(
        cached=lambda source, constants: b"code",
        fitted=lambda plan: (plan, b"code"),
        fit_ahead=lambda plans: None,
        identity=lambda: "kernels",
    )
    tools = (_gpu, [library] * 3, compiler, H200)
    monkeypatch.setattr(kernels, "toolbox", lambda: tools)
    monkeypatch.setattr(kernels, "fastest", fastest)
    monkeypatch.setattr(drop_in, "DEVICE", torch.device("cpu"))
    monkeypatch.setattr(drop_in, "_flag", lambda: torch.zeros(1, dtype=torch.int32))
    for name, stand_in in {
        "device": contextlib.nullcontext,
        "synchronize": wait,
        "current_stream": lambda: SimpleNamespace(cuda_stream=0),
        "is_current_stream_capturing": lambda: seen.capturing,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return seen


def made(**changes):
    return torch.nn.LSTM(INPUT, HIDDEN, **changes)


def like(layer, precision="tf32", plans=1):  # the fake knows no input product but cuBLAS's
    return drop_in.LSTM.like(layer, precision, plans)


def expected(layer, x):
    """What the fake makes of x, (T, B, I)."""
    bias = (layer.bias_ih_l0 + layer.bias_hh_l0)[:HIDDEN] if layer.bias else 0
    return (x @ layer.weight_ih_l0[:HIDDEN].T + bias).detach()


def close(a, b):
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_tensors_go_in_and_out_as_they_do_with_nn_lstm(gpu, bias, batch_first):
    layer = made(bias=bias, batch_first=batch_first)
    fast = like(layer)
    for timesteps, batch in ((6, 4), (1, 4), (9, 2)):
        x = torch.randn(timesteps, batch, INPUT)
        h0, c0 = torch.randn(1, batch, HIDDEN), torch.randn(1, batch, HIDDEN)
        given = x.transpose(0, 1) if batch_first else x
        y, (h, c) = fast(given, (h0, c0))
        assert y.shape == layer(given)[0].shape
        assert close(y.transpose(0, 1) if batch_first else y, expected(layer, x))
        assert torch.equal(h, h0)
        assert torch.equal(c, c0)
        _, (h, c) = fast(given)
        assert not h.any()
        assert not c.any()


def test_one_sequence_needs_no_batch(gpu):
    layer = made()
    x, states = torch.randn(7, INPUT), (torch.randn(1, HIDDEN), torch.randn(1, HIDDEN))
    y, (h, c) = like(layer)(x, states)
    assert close(y, expected(layer, x))
    assert torch.equal(h, states[0])
    assert torch.equal(c, states[1])


def test_inputs_need_not_be_contiguous(gpu):
    layer = made()
    x = torch.randn(INPUT, 4, 6).permute(2, 1, 0)
    wide = torch.randn(1, 4, 2 * HIDDEN)
    y, (h, _) = like(layer)(x, (wide[..., ::2], wide[..., 1::2]))
    assert close(y, expected(layer, x))
    assert torch.equal(h, wide[..., ::2])


def test_a_plan_is_measured_once_for_a_batch_and_a_power_of_two_of_timesteps(gpu):
    fast = like(made())
    for timesteps in (5, 6, 8, 5):
        fast(torch.randn(timesteps, 2, INPUT))
    assert gpu.measured == [(2, 5)]
    fast(torch.randn(9, 2, INPUT))
    fast(torch.randn(5, 3, INPUT))
    assert gpu.measured == [(2, 5), (2, 9), (3, 5)]
    assert gpu.waits == 3, "only a call that measures waits"
    assert "units" in fast.path(2, 6)


@pytest.fixture
def trials(gpu, monkeypatch, tmp_path):
    """What is timed to choose a plan, on a machine that keeps what is found."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "gpu_name", lambda: "a GPU")
    timed, trial = [], kernels.trial

    def counted(one, give_up_s):
        timed.append(one)
        return trial(one, give_up_s)

    monkeypatch.setattr(kernels, "trial", counted)
    return timed


def posed(timesteps=5):
    return kernels.Call(*problem(HIDDEN, INPUT, 2, timesteps))


def test_the_next_process_runs_what_was_fastest_and_measures_nothing(trials):
    first = kernels.fastest(posed(), "tf32", 3)
    first.close()
    assert "(fastest of 3)" in first.path
    assert len(trials) == 6, "each plan, plain and in a graph"
    trials.clear()
    again = kernels.fastest(posed(), "tf32", 3)
    assert not trials
    assert (again.path, again.plan, again.graph) == (first.path, first.plan, first.graph)
    again.lstm.forward()
    again.lstm.wait()
    assert np.isfinite(again.outputs()[0]).all()
    again.close()
    kernels.fastest(posed(timesteps=6), "tf32", 3).close()
    assert trials, "another shape is another choice"


def test_a_kept_plan_that_is_refused_now_is_chosen_anew(trials, monkeypatch):
    first = kernels.fastest(posed(), "tf32", 3)
    first.close()
    trials.clear()
    really = kernels.loaded

    def refused(call, plan, projection):
        if plan == first.plan:
            raise Unsupported("the driver has changed")
        return really(call, plan, projection)

    monkeypatch.setattr(kernels, "loaded", refused)
    other = kernels.fastest(posed(), "tf32", 3)
    other.close()
    assert trials
    assert other.plan != first.plan


def test_a_known_shape_can_be_captured_and_a_new_one_says_what_to_do(gpu):
    fast = like(made())
    x = torch.randn(5, 2, INPUT)
    gpu.capturing = True
    with pytest.raises(RuntimeError, match=r"timesteps 5 is new.*once"):
        fast(x)
    gpu.capturing = False
    fast(x)
    gpu.capturing = True
    fast(x)
    with pytest.raises(RuntimeError, match="timesteps 6 is new"):
        fast(torch.randn(6, 2, INPUT))
    assert gpu.measured == [(2, 5)]


def test_weights_are_those_of_the_moment(gpu):
    layer = made()
    x = torch.randn(5, 2, INPUT)
    fast, before = like(layer), expected(layer, x)
    with torch.no_grad():
        layer.weight_ih_l0.zero_()
    assert close(fast(x)[0], before)


def test_a_call_that_gave_up_is_said_by_the_next_or_by_check(gpu):
    fast = like(made())
    x = torch.randn(5, 2, INPUT)
    fast(x)
    fast.check()
    for ask in (fast.check, lambda: fast(x)):
        gpu.fake.fake_set_late(1)
        fast(x)
        gpu.fake.fake_set_late(0)
        with pytest.raises(RuntimeError, match="gave up"):
            ask()
        fast(x)  # and then it is as good as new
    fast.check()


def test_it_takes_the_place_of_a_module(gpu):
    model = torch.nn.Sequential(made())
    model[0] = like(model[0])
    assert "3, 5, precision='tf32'" in repr(model)
    assert not list(model.parameters())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_layers": 2}, "2 layers"),
        ({"bidirectional": True}, "two directions"),
        ({"proj_size": 2}, "proj_size 2"),
        ({"num_layers": 2, "dropout": 0.5}, r"2 layers, dropout 0\.5"),
        ({"dtype": torch.float64}, "float64"),
    ],
)
def test_what_a_layer_has_that_we_have_not_is_named(gpu, changes, reason):
    with pytest.raises(NotImplementedError, match=reason):
        like(made(**changes))


def test_only_an_lstm_on_the_first_gpu_in_a_known_precision_is_taken(gpu, monkeypatch):
    with pytest.raises(TypeError, match=r"GRU is not a torch\.nn\.LSTM"):
        like(torch.nn.GRU(3, 5))
    with pytest.raises(ValueError, match="'int8' is none of fp32, tf32"):
        like(made(), "int8")
    monkeypatch.setattr(drop_in, "DEVICE", torch.device("cuda:0"))
    with pytest.raises(NotImplementedError, match="on cpu: it must be on cuda:0"):
        like(made())


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [(torch.float32, "fp32"), (torch.float16, "fp16"), (torch.bfloat16, "bf16")],
)
def test_the_type_of_a_layer_is_its_precision(gpu, dtype, precision):
    assert like(made(dtype=dtype), None).precision == precision
    assert like(made(dtype=dtype), "bf16").dtype == torch.bfloat16


def test_wrong_inputs_are_named(gpu):
    fast = like(made())
    x, state = torch.randn(5, 2, INPUT), torch.zeros(1, 2, HIDDEN)
    for wrong, reason in {
        (x[0, 0],): "two or three dimensions",
        (torch.nn.utils.rnn.pack_sequence([x[:, 0]]),): "not packed",
        (x[:0],): "0 timesteps",
        (x[:, :0],): "a batch of 0",
        (x[..., :2],): r"x has the shape \(5, 2, 2\), not \(5, 2, 3\)",
        (x.half(),): r"x is torch.float16 on cpu, not torch.float32",
        (x, (state[0], state)): r"h0 has the shape \(2, 5\)",
        (x, (state, state.double())): r"c0 is torch.float64",
    }.items():
        with pytest.raises(ValueError, match=reason):
            fast(*wrong)
    with pytest.raises(RuntimeError, match="x requires a gradient"):
        fast(x.requires_grad_())
    with torch.no_grad():
        fast(x)
    assert gpu.measured == [(2, 5)]
