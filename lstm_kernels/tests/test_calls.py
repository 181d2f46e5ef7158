"""`lstm_kernels.LSTM` without a GPU: which path a call takes, and what the kernels are given.

Fake libraries take the GPU's place: y is then the product of the input gate, and the last states
are the first. What it computes on a GPU: test_on_gpu.py.
"""

import contextlib
import copy
import ctypes
import pickle
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from cases import H200, problem

from lstm_kernels import Unsupported, cache
from lstm_kernels import layer as kernels

torch = pytest.importorskip("torch", reason="the drop-in is PyTorch's")
_gpu = pytest.importorskip("lstm_kernels._gpu", reason="the extension was not built")

import lstm_kernels  # noqa: E402
from lstm_kernels import lstm as layers  # noqa: E402
from lstm_kernels import operator, stack  # noqa: E402

INPUT, HIDDEN = 3, 5


@pytest.fixture(autouse=True)
def inference():
    with torch.no_grad():
        yield


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

    class Late(stack.Late):
        def __init__(self):
            with monkeypatch.context() as patched:
                patched.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
                super().__init__()

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
    monkeypatch.setattr(stack, "DEVICE", torch.device("cpu"))
    monkeypatch.setattr(stack, "capability", lambda: layers.CAPABILITY)
    monkeypatch.setattr(stack, "_made", {"late": Late()})
    monkeypatch.setattr(stack, "stream", lambda: 0)
    monkeypatch.setattr(layers, "_heard_once", 0)
    monkeypatch.setattr(layers, "COUNTS", Counter())
    for name, stand_in in {
        "device": contextlib.nullcontext,
        "synchronize": wait,
        "Stream": lambda device: None,
        "is_current_stream_capturing": lambda: seen.capturing,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return seen


def made(**changes):
    return torch.nn.LSTM(INPUT, HIDDEN, **changes)


def like(layer, precision="tf32", plans=1):  # the fake knows no input product but cuBLAS's
    return lstm_kernels.LSTM.like(layer, precision, plans)


def expected(layer, x):
    """What the fake makes of x, (T, B, I): each direction the product of the input gate."""
    for place in range(layer.num_layers):
        outputs = []
        for end in ("", "_reverse")[: 1 + layer.bidirectional]:
            w, *biases = (
                getattr(layer, f"{name}_l{place}{end}")[:HIDDEN]
                for name in ("weight_ih", *(("bias_ih", "bias_hh") if layer.bias else ()))
            )
            outputs.append(x @ w.T + sum(biases))
        x = torch.cat(outputs, -1)
    return x


def close(a, b):
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-5)


def on_kernels():
    return lstm_kernels.calls().get("kernels", 0)


@pytest.mark.parametrize(
    "changes", [{}, {"bias": False}, {"num_layers": 3}, {"bidirectional": True}]
)
@pytest.mark.parametrize("batch_first", [True, False])
def test_tensors_go_in_and_out_as_they_do_with_nn_lstm(gpu, changes, batch_first):
    layer = made(**changes, batch_first=batch_first)
    fast, count = like(layer), layer.num_layers * (1 + layer.bidirectional)
    for timesteps, batch in ((6, 4), (1, 4), (9, 2)):
        x = torch.randn(timesteps, batch, INPUT)
        h0, c0 = torch.randn(2, count, batch, HIDDEN)
        given = x.transpose(0, 1) if batch_first else x
        y, (h, c) = fast(given, (h0, c0))
        assert y.shape == layer(given)[0].shape
        assert close(y.transpose(0, 1) if batch_first else y, expected(layer, x))
        assert torch.equal(h, h0)
        assert torch.equal(c, c0)
        _, (h, c) = fast(given)
        assert not h.any()
        assert not c.any()
    assert on_kernels() == 6


def test_one_sequence_needs_no_batch(gpu):
    layer = made(num_layers=2)
    x, (h0, c0) = torch.randn(7, INPUT), torch.randn(2, 2, HIDDEN)
    y, (h, c) = like(layer)(x, (h0, c0))
    assert close(y, expected(layer, x))
    assert torch.equal(h, h0)
    assert torch.equal(c, c0)


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


def test_few_batch_sizes_keep_their_weights(gpu):
    fast = like(made())
    for batch in (*range(1, 20), 1):
        fast(torch.randn(5, batch, INPUT))
    (cell,) = layers._STACKS[fast].by_precision["tf32"].cells
    assert len(cell._loaded) == stack.KEPT
    assert on_kernels() == 20


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


def test_a_known_shape_can_be_captured_and_a_new_one_is_nn_lstms(gpu):
    fast = like(made())
    x = torch.randn(5, 2, INPUT)
    gpu.capturing = True
    assert torch.equal(fast(x)[0], torch.nn.LSTM.forward(fast, x)[0])
    assert fast.explain(x).startswith("nn.LSTM: a ")
    gpu.capturing = False
    fast(x)
    gpu.capturing = True
    fast(x)
    fast(torch.randn(6, 2, INPUT))
    assert on_kernels() == 3, "the same power of two of timesteps"
    assert gpu.measured == [(2, 5)]


WRITES = {
    "in place": lambda layer, like_it: layer.weight_ih_l0.zero_(),
    "a new parameter": lambda layer, like_it: setattr(
        like_it, "weight_ih_l0", torch.nn.Parameter(torch.zeros(4 * HIDDEN, INPUT))
    ),
    "load_state_dict": lambda layer, like_it: like_it.load_state_dict(made().state_dict()),
    "an optimiser that moves no version": lambda layer, like_it: stepped(layer),
    "data, with refresh": lambda layer, like_it: (
        layer.weight_ih_l0.data.zero_(),
        like_it.refresh(),
    ),
}


class Silent(torch.optim.Optimizer):
    """Writes as a fused optimiser does: no version moves."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.mul_(-2)


def stepped(layer):
    Silent(layer.parameters()).step()


@pytest.mark.parametrize("write", WRITES)
def test_weights_are_those_of_the_call(gpu, write):
    layer = made()
    x, fast = torch.randn(5, 2, INPUT), like(layer)
    before = fast(x)[0]
    WRITES[write](layer, fast)
    got = fast(x)[0]
    if write != "data, with refresh":
        assert torch.equal(got, torch.nn.LSTM.forward(fast, x)[0]), "changed: once by nn.LSTM"
        got = fast(x)[0]
    assert close(got, expected(fast, x))
    assert not close(got, before)


def test_weights_that_change_with_every_call_are_left_to_nn_lstm(gpu):
    fast = like(made())
    x = torch.randn(5, 2, INPUT)
    fast(x)
    for _ in range(5):
        fast.weight_hh_l0.mul_(0.9)
        assert torch.equal(fast(x)[0], torch.nn.LSTM.forward(fast, x)[0])
    assert on_kernels() == 1
    assert len(gpu.measured) == 1


def test_a_call_that_gave_up_is_said_by_the_next_or_by_synchronize(gpu):
    fast, other = like(made()), like(made())
    x = torch.randn(5, 2, INPUT)
    fast(x)
    other(x)
    fast.check()
    for ask in (lstm_kernels.synchronize, fast.check, lambda: fast(x), lambda: other(x)):
        gpu.fake.fake_set_late(1)
        fast(x)
        gpu.fake.fake_set_late(0)
        with pytest.raises(RuntimeError, match="gave up"):
            ask()
        fast(x)  # and then it is as good as new
    fast.check()


REFUSED = {
    "proj_size": ({"proj_size": 2}, {}),
    "float64": ({"dtype": torch.float64}, {"dtype": torch.float64}),
    "nn.LSTM refuses": ({}, {"size": (5, 2, INPUT + 1)}),
    "nothing to do": ({}, {"size": (5, 0, INPUT)}),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_the_kernels_do_not_take_is_nn_lstms(gpu, reason):
    changes, given = REFUSED[reason]
    layer = made(**changes)
    fast, x = like(layer), torch.randn(**{"size": (5, 2, INPUT), **given})
    assert reason in fast.explain(x)
    assert fast.explain(x).startswith("nn.LSTM: ")
    answers = []
    for module in (layer, fast):
        try:
            answers.append(module(x)[0])
        except (RuntimeError, ValueError) as error:
            answers.append(str(error))
    theirs, mine = answers
    assert theirs == mine if isinstance(theirs, str) else torch.equal(theirs, mine)
    assert not on_kernels()


def test_packed_sequences_gradients_dropout_and_switches_are_nn_lstms(gpu):
    layer = made(num_layers=2, dropout=0.5)
    fast, x = like(layer), torch.randn(5, 2, INPUT)
    packed = torch.nn.utils.rnn.pack_sequence([x[:, 0], x[:3, 0]])
    assert torch.equal(fast.eval()(packed)[0].data, layer.eval()(packed)[0].data)
    assert "dropout" in fast.train().explain(x)
    fast.eval()
    with torch.enable_grad():
        assert "gradient" in fast.explain(x)
        fast(x)[0].sum().backward()
    assert layer.weight_ih_l0.grad is not None
    with torch.backends.cudnn.flags(enabled=False):
        assert "switched off" in fast.explain(x)
    torch.nn.utils.parametrizations.weight_norm(fast, "weight_hh_l0")
    assert "weight_norm" in fast.explain(x)
    assert not on_kernels()


def test_a_large_or_unknown_h0_is_nn_lstms(gpu):
    layer = made()
    fast, x = like(layer), torch.randn(5, 2, INPUT)
    for value in (40000.0, float("inf"), float("nan")):
        h0, c0 = torch.full((1, 2, HIDDEN), value), torch.zeros(1, 2, HIDDEN)
        assert torch.equal(fast(x, (h0, c0))[0].nan_to_num(), layer(x, (h0, c0))[0].nan_to_num())
    assert not on_kernels()
    _, states = fast(x)
    fast(x, states)
    assert on_kernels() == 2
    states[0].add_(1e6)
    fast(x, states)
    assert on_kernels() == 2, "written since: looked at again"


def test_it_is_an_nn_lstm(gpu):
    layer = made(num_layers=2)
    fast = like(layer)
    assert isinstance(fast, torch.nn.LSTM)
    assert fast.weight_ih_l0 is layer.weight_ih_l0
    assert {*fast.state_dict()} == {*layer.state_dict()}
    x = torch.randn(5, 2, INPUT)
    fast(x)
    for twin in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert close(twin(x)[0], fast(x)[0])
        assert twin.precision == "tf32"
    with pytest.raises(TypeError, match=r"GRU is not a torch\.nn\.LSTM"):
        like(torch.nn.GRU(3, 5))
    with pytest.raises(ValueError, match="'int8' is none of fp32, tf32"):
        like(made(), "int8")


def test_replace_takes_every_plain_lstm_and_says_what_it_left(gpu, capsys):
    class Mine(torch.nn.LSTM):
        def forward(self, x):
            return super().forward(x)[0]

    model = torch.nn.ModuleDict({"a": made(), "b": torch.nn.Sequential(made()), "c": Mine(3, 5)})
    inside, parameters = model["a"], list(model.parameters())
    model["d"] = model["a"]
    assert lstm_kernels.replace(model) is model
    assert model["a"] is inside is model["d"]
    assert isinstance(model["a"], lstm_kernels.LSTM)
    assert isinstance(model["b"][0], lstm_kernels.LSTM)
    assert type(model["c"]) is Mine
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].split() for line in lines] == [
        ["replaced", "a"],
        ["replaced", "b.0"],
        ["left", "c"],
    ]


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [(torch.float32, "fp32"), (torch.float16, "fp16"), (torch.bfloat16, "bf16")],
)
def test_the_type_of_x_and_pytorchs_switches_are_the_precision(gpu, dtype, precision):
    x = torch.zeros(1, dtype=dtype)
    with torch.backends.cudnn.flags(allow_tf32=False):
        assert layers._precision(x) == precision
    with torch.backends.cudnn.flags(allow_tf32=True):
        assert layers._precision(x) == ("tf32" if precision == "fp32" else precision)
    with torch.autocast("cpu", torch.bfloat16):
        assert layers._precision(x) == "bf16"


def test_a_graph_of_torch_has_it_as_one_operator(gpu):
    layer = made(num_layers=2, batch_first=True)
    weights, x = [w.detach() for w in layer._flat_weights], torch.randn(2, 5, INPUT)
    states = torch.zeros(2, 2, 2, HIDDEN)
    for h0, c0 in ((None, None), states):
        arguments = (x, h0, c0, weights, True, 2, False, True, "tf32", torch.float32)
        found = torch.library.opcheck(operator.lstm, arguments)
        assert set(found.values()) == {"SUCCESS"}
        y, *_ = operator.lstm(*arguments)
        assert close(y.transpose(0, 1), expected(layer, x.transpose(0, 1)))
    assert on_kernels()


def test_compile_and_export_give_what_the_layer_gives():
    layer = lstm_kernels.LSTM(INPUT, HIDDEN, 2, bidirectional=True)
    x = torch.randn(5, 2, INPUT)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert close(compiled(x)[0], layer(x)[0])
    exported = torch.export.export(layer, (x,)).module()
    assert close(exported(x)[0], layer(x)[0])


def test_scripting_takes_it_as_the_nn_lstm_that_it_is():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = lstm_kernels.LSTM(INPUT, HIDDEN)

        def forward(self, x: torch.Tensor):
            return self.lstm(x)

    model, x = Model(), torch.randn(5, 2, INPUT)
    assert torch.equal(torch.jit.script(model)(x)[0], model(x)[0])


def test_what_looks_at_the_class_takes_a_restored_model():
    model = lstm_kernels.replace(torch.nn.Sequential(made()), precision="tf32", quiet=True)
    parameters = list(model.parameters())
    assert type(lstm_kernels.restore(model)[0]) is torch.nn.LSTM
    assert "precision" not in vars(model[0])
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    quantised = torch.ao.quantization.quantize_dynamic(model, {torch.nn.LSTM}, torch.qint8)
    assert "quantized" in type(quantised[0]).__module__


def test_onnx_takes_it_as_the_nn_lstm_that_it_is(tmp_path):
    onnx = pytest.importorskip("onnx")
    layer, x = lstm_kernels.LSTM(INPUT, HIDDEN, 2, bidirectional=True), torch.randn(5, 2, INPUT)
    torch.onnx.export(layer, (x,), tmp_path / "layer.onnx", dynamo=False)
    kinds = [node.op_type for node in onnx.load(tmp_path / "layer.onnx").graph.node]
    assert kinds.count("LSTM") == 2
