"""`lstm_kernels.LSTM` without a GPU: which path a call takes, and what the kernels are given.

Fake libraries take the GPU's place: y is then the product of the input gate, and the last states
are the first. What it computes on a GPU: test_onnative.py.
"""

import contextlib
import copy
import ctypes
import pickle
import threading
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from cases import H200, built_native, problem

from lstm_kernels import Unsupported, cache
from lstm_kernels import layer as kernels

torch = pytest.importorskip("torch", reason="the drop-in is PyTorch's")
native = built_native()

from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402

import lstm_kernels  # noqa: E402
from lstm_kernels import lstm as layers  # noqa: E402
from lstm_kernels import operator, plans, routes, stack  # noqa: E402

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
    seen.compiler, tools = compiler, ([library] * 3, compiler, H200)
    monkeypatch.setattr(kernels, "toolbox", lambda: tools)
    monkeypatch.setattr(kernels, "fastest", fastest)
    monkeypatch.setattr(stack, "DEVICE", torch.device("cpu"))
    monkeypatch.setattr(stack, "capability", lambda: routes.CAPABILITY)
    monkeypatch.setattr(stack, "_made", {"late": Late()})
    monkeypatch.setattr(stack, "stream", lambda: 0)
    monkeypatch.setattr(stack, "capturing", lambda: seen.capturing)
    monkeypatch.setattr(stack, "other_device", lambda: False)
    monkeypatch.setattr(layers._Thread, "raised", 0)
    monkeypatch.setattr(layers, "_THREAD", layers._Thread())
    monkeypatch.setattr(layers, "COUNTS", Counter())
    for name, stand_in in {
        "device": contextlib.nullcontext,
        "synchronize": wait,
        "Stream": lambda device: None,
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


def test_inputs_need_no_batch_nor_be_contiguous(gpu):
    layer = made(num_layers=2)
    x, (h0, c0) = torch.randn(7, INPUT), torch.randn(2, 2, HIDDEN)
    y, (h, c) = like(layer)(x, (h0, c0))
    assert close(y, expected(layer, x))
    assert torch.equal(h, h0)
    assert torch.equal(c, c0)
    layer = made()
    x = torch.randn(INPUT, 4, 6).permute(2, 1, 0)
    wide = torch.randn(1, 4, 2 * HIDDEN)
    y, (h, _) = like(layer)(x, (wide[..., ::2], wide[..., 1::2]))
    assert close(y, expected(layer, x))
    assert torch.equal(h, wide[..., ::2])


def test_no_call_measures_or_waits(gpu):
    fast = like(made(num_layers=2))
    for timesteps, batch in ((5, 2), (9, 2), (5, 3), (70, 100), (1, 1)):
        x = torch.randn(timesteps, batch, INPUT)
        assert close(fast(x)[0], expected(fast, x))
        assert "units" in fast.path(batch, timesteps)
    assert not gpu.measured
    assert not gpu.waits


def settled():
    """Wait for what is prepared in other threads."""
    for thread in threading.enumerate():
        if thread.name == "lstm_kernels":
            thread.join()


@pytest.fixture
def guessed(monkeypatch):
    """Sets which kind of plan the model takes for the fastest."""

    def favour(kind):
        for one in ("vector", "cluster"):
            plan = plans.VectorPlan if one == "vector" else plans.TensorPlan
            us = 1.0 if one == kind else 2.0
            monkeypatch.setattr(plan, "guess", lambda self, share, us=us: us + self.blocks)

    return favour


def test_a_new_batch_runs_on_the_plan_at_hand_until_a_faster_one_is_ready(gpu, guessed):
    guessed("cluster")
    fast = like(made())
    fast(torch.randn(5, 2, INPUT))
    guessed("vector")
    x, compiled = torch.randn(5, 3, INPUT), threading.Event()
    really = gpu.compiler.fitted
    gpu.compiler.fitted = lambda plan: compiled.wait() and really(plan)
    for _ in range(3):
        assert close(fast(x)[0], expected(fast, x))
        assert "vectors in" not in fast.path(3, 5)
    compiled.set()
    settled()
    for _ in range(3):
        assert close(fast(x)[0], expected(fast, x))
    assert "vectors in" in fast.path(3, 5)
    assert on_kernels() == 7


def test_a_plan_that_cannot_be_compiled_leaves_the_one_at_hand(gpu, guessed):
    guessed("cluster")
    fast, x = like(made()), torch.randn(5, 3, INPUT)
    fast(torch.randn(5, 2, INPUT))
    guessed("vector")

    def fails(plan):
        if isinstance(plan, plans.VectorPlan):
            raise Unsupported("too few registers")
        return plan, b"code"

    gpu.compiler.fitted = fails
    for _ in range(3):
        assert close(fast(x)[0], expected(fast, x))
        settled()
    assert on_kernels() == 4


def test_batches_of_all_sizes_keep_a_few_plans_and_come_and_go_once(gpu, monkeypatch):
    fast = like(made(num_layers=2))
    for _ in range(2):
        for batch in range(1, 300, 7):
            x = torch.randn(2, batch, INPUT)
            assert close(fast(x)[0], expected(fast, x))
            settled()
    (kept,) = layers._STACKS[fast].by_precision.values()
    assert len(kept._kept) <= stack.KEPT
    loads, really = [], stack.Stack._load
    monkeypatch.setattr(stack.Stack, "_load", lambda *args: loads.append(1) or really(*args))
    for batch in range(1, 300, 7):
        fast(torch.randn(2, batch, INPUT))
        settled()
    assert not loads


def test_what_is_remembered_of_shapes_is_bounded(gpu, monkeypatch):
    monkeypatch.setattr(stack, "REMEMBERED", 4)
    layer = made(bidirectional=True)
    fast = like(layer)
    for timesteps in (*range(1, 12), 1):
        x = torch.randn(timesteps, 2, INPUT)
        assert close(fast(x)[0], expected(layer, x))
        packed = torch.nn.utils.rnn.pack_sequence([x[:, 0], x[:1, 0]])
        assert fast(packed)[0].data.shape == (timesteps + 1, 2 * HIDDEN)
    packed = layers._STACKS[fast]
    (kept,) = packed.by_precision.values()
    assert max(map(len, (packed.known, kept._routes, kept._lengths))) <= 4
    assert on_kernels() == 24


@pytest.mark.parametrize("hidden", [HIDDEN, 3000])  # which the kernels hold, and which nothing does
def test_plans_are_looked_for_once_for_a_batch_whatever_the_lengths(gpu, monkeypatch, hidden):
    looked, really = [], kernels.holding
    monkeypatch.setattr(kernels, "holding", lambda *sizes: looked.append(1) or really(*sizes))
    fast = like(torch.nn.LSTM(INPUT, hidden))
    for last in range(1, 9):
        x = torch.randn(9, INPUT)
        fast(torch.nn.utils.rnn.pack_sequence([x, x[:last]]))
    assert len(looked) == 1


@pytest.mark.parametrize("changes", [{}, {"num_layers": 3, "bidirectional": True}])
@pytest.mark.parametrize("ordered", [True, False])
def test_packed_sequences_go_in_and_out_as_they_do_with_nn_lstm(gpu, changes, ordered):
    layer = made(**changes)
    fast, count = like(layer), layer.num_layers * (1 + layer.bidirectional)
    for lengths in ((6, 6, 2, 1), (3,), (9, 4, 1)):
        given = lengths if ordered else lengths[::-1]
        packed = torch.nn.utils.rnn.pack_sequence(
            [torch.randn(length, INPUT) for length in given], enforce_sorted=ordered
        )
        h0, c0 = torch.randn(2, count, len(lengths), HIDDEN)
        y, (h, c) = fast(packed, (h0, c0))
        assert close(y.data, expected(layer, packed.data))
        assert torch.equal(y.batch_sizes, packed.batch_sizes)
        assert torch.equal(h, h0)
        assert torch.equal(c, c0)
    assert on_kernels() == 3
    assert fast.explain(packed).startswith("kernels: ")


def test_calls_that_repeat_have_outputs_of_their_own(gpu):
    fast, x = like(made()), torch.randn(1, 1, INPUT)
    answers = [fast(x) for _ in range(5)]
    tensors = [tensor for y, (h, c) in answers for tensor in (y, h, c)]
    before = [tensor.clone() for tensor in tensors]
    for i, tensor in enumerate(tensors):
        version = [other._version for other in tensors]
        tensor.add_(1)
        changed = [j for j, v in enumerate(version) if tensors[j]._version != v]
        assert changed == [i], "a write to one is none to another"
    assert all(torch.equal(now, then + 1) for now, then in zip(tensors, before, strict=True))


def test_a_repeated_call_sees_what_has_changed(gpu):
    layer = made()
    fast, x = like(layer), torch.randn(2, 2, INPUT)
    for _ in range(3):
        _, states = fast(x)
    for other in (torch.randn(2, 3, INPUT), torch.randn(4, 2, INPUT), x[:, :1], x):
        assert close(fast(other)[0], expected(layer, other))
    assert torch.equal(fast(x, states)[1][0], states[0])
    assert torch.equal(fast(x, states)[1][0], states[0])
    large = torch.full_like(states[0], 1e6), states[1]
    assert torch.equal(fast(x, large)[0], layer(x, large)[0])
    ran = on_kernels()
    with torch.backends.cudnn.flags(enabled=False):
        assert torch.equal(fast(x)[0], layer(x)[0])
    with torch.enable_grad():
        assert fast(x)[0].requires_grad
    assert on_kernels() == ran


def test_a_graph_keeps_what_it_reads_once(gpu):
    fast, x = like(made()), torch.randn(5, 2, INPUT)
    like(made())(x)
    before = gpu.fake.fake_live()
    fast(x)
    live = gpu.fake.fake_live()
    gpu.capturing = True
    for _ in range(10):
        fast(x)
    assert len(layers._STACKS[fast].captured) == 1
    gpu.capturing = False
    fast.refresh()
    assert gpu.fake.fake_live() == live
    fast.weight_hh_l0.zero_()
    for _ in range(3):
        fast(x)
    assert gpu.fake.fake_live() == live + live - before, "the new weights came beside them"
    del fast
    assert gpu.fake.fake_live() == before


def test_without_memory_on_the_gpu_nn_lstm_takes_it(gpu, monkeypatch):
    fast, x, really = like(made()), torch.randn(5, 2, INPUT), stack.Stack._load

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(stack.Stack, "_load", full)
    for _ in range(2):
        assert torch.equal(fast(x)[0], torch.nn.LSTM.forward(fast, x)[0])
    monkeypatch.setattr(stack.Stack, "_load", really)
    fast.refresh()
    fast(x)
    assert on_kernels() == 1


def test_another_current_gpu_stays_the_current_one(gpu, monkeypatch):
    entered, fast, x = [], like(made()), torch.randn(5, 2, INPUT)
    fast(x)
    on = contextlib.nullcontext()
    monkeypatch.setattr(torch.cuda, "device", lambda one: entered.append(one) or on)
    monkeypatch.setattr(stack, "other_device", lambda: True)
    fast(x)
    assert entered == [stack.DEVICE]


def test_explain_measures_nothing_and_leaves_nothing(gpu):
    fast, x = like(made()), torch.randn(5, 2, INPUT)
    before = fast.explain(x)
    assert before.startswith("kernels: tf32, cluster, 1 x 8 units")
    assert fast not in layers._STACKS
    fast(x)
    assert fast.explain(x) == before
    wide = like(torch.nn.LSTM(INPUT, 3000))
    assert "no kernel holds a layer of 3000 units in tf32" in wide.explain(x)
    h0 = torch.full((1, 2, HIDDEN), 1e6)
    assert "an initial h above 32768" in fast.explain(x, (h0, h0))
    fast.weight_hh_l0.zero_()
    for _ in range(2):
        assert "just changed" in fast.explain(x)
    assert not gpu.measured
    assert on_kernels() == 1


def test_tune_measures(gpu):
    fast = like(made(batch_first=True))
    assert "units" in lstm_kernels.tune(fast, batch=2, timesteps=5)
    fast.weight_hh_l0.zero_()
    assert "units" in lstm_kernels.tune(fast, batch=3, timesteps=5)
    assert gpu.measured == [(2, 5), (3, 5)]


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


def test_a_layer_that_ran_can_be_captured_and_a_new_one_is_nn_lstms(gpu):
    fast = like(made())
    x = torch.randn(5, 2, INPUT)
    gpu.capturing = True
    assert torch.equal(fast(x)[0], torch.nn.LSTM.forward(fast, x)[0])
    assert fast.explain(x).startswith("nn.LSTM: a ")
    gpu.capturing = False
    fast(x)
    gpu.capturing = True
    assert fast.explain(x).startswith("kernels: ")
    fast(x)
    fast(torch.randn(6, 2, INPUT))
    many = torch.randn(6, 40, INPUT)
    assert close(fast(many)[0], expected(fast, many)), "by the plan that is at hand"
    assert on_kernels() == 4


average = torch.optim.swa_utils


def averaged(layer, **options):
    """As `AveragedModel` writes the model that it keeps."""
    model = average.AveragedModel(torch.nn.Module(), **options)
    model.module, model.n_averaged = layer, torch.tensor(1)
    model.update_parameters(made())


def fused(layer, kind):
    for parameter in layer.parameters():
        parameter.grad = torch.randn_like(parameter)
    kind(layer.parameters(), lr=0.1, fused=True).step()


def anew(layer):
    layer.weight_ih_l0 = torch.nn.Parameter(torch.zeros(4 * HIDDEN, INPUT))


def through_data(layer):
    for parameter in layer.parameters():
        parameter.data.copy_(parameter.data * 2)
    layer.refresh()


def from_vector(layer):
    vector = torch.randn(sum(parameter.numel() for parameter in layer.parameters()))
    torch.nn.utils.vector_to_parameters(vector, layer.parameters())


WRITES = {
    "in place": lambda layer: layer.weight_ih_l0.zero_(),
    "copy_": lambda layer: layer.weight_ih_l0.copy_(torch.zeros(4 * HIDDEN, INPUT)),
    "detached": lambda layer: layer.weight_ih_l0.detach().zero_(),
    "init": lambda layer: torch.nn.init.orthogonal_(layer.weight_ih_l0),
    "a new parameter": anew,
    "load_state_dict": lambda layer: layer.load_state_dict(made().state_dict()),
    "load_state_dict, assigned": lambda layer: layer.load_state_dict(
        made().state_dict(), assign=True
    ),
    "an optimiser that moves no version": lambda layer: stepped(layer),
    "fused SGD": lambda layer: fused(layer, torch.optim.SGD),
    "fused Adam": lambda layer: fused(layer, torch.optim.Adam),
    "fused AdamW": lambda layer: fused(layer, torch.optim.AdamW),
    "AveragedModel": averaged,
    "EMA": lambda layer: averaged(layer, multi_avg_fn=average.get_ema_multi_avg_fn(0.5)),
    "EMA, one by one": lambda layer: averaged(layer, avg_fn=average.get_ema_avg_fn(0.5)),
    "lerp_": lambda layer: torch._foreach_lerp_(
        [*layer.parameters()], [torch.randn_like(p) for p in layer.parameters()], 0.5
    ),
    "vector_to_parameters": from_vector,
    "half and float": lambda layer: layer.half().float(),
    "data, with refresh": through_data,
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
    fast, x = like(made()), torch.randn(5, 2, INPUT)
    before = fast(x)[0]
    WRITES[write](fast)
    got = fast(x)[0]
    if write != "data, with refresh":
        assert torch.equal(got, torch.nn.LSTM.forward(fast, x)[0]), "changed: once by nn.LSTM"
        got = fast(x)[0]
    assert close(got, expected(fast, x))
    assert on_kernels() == 2
    if write != "half and float":
        assert not close(got, before)


@pytest.mark.parametrize("write", ["fused Adam", "in place", "half and float"])
def test_weights_of_a_graph_of_torch_are_those_of_the_call(gpu, write):
    layer, x = made(), torch.randn(5, 2, INPUT)

    def call():
        switches = True, 1, False, False, "tf32", torch.float32
        return operator.lstm(x, None, None, layer._flat_weights, *switches)[0]

    for _ in range(2):
        assert close(call(), expected(layer, x))
    WRITES[write](layer)
    call()
    assert close(call(), expected(layer, x))
    assert on_kernels() >= 3


def test_weights_that_become_inference_tensors_are_nn_lstms(gpu):
    fast, x = like(made()), torch.randn(5, 2, INPUT)
    fast(x)
    with torch.inference_mode():
        anew(fast)
        for _ in range(2):
            assert torch.equal(fast(x)[0], torch.nn.LSTM.forward(fast, x)[0])
    assert "inference mode" in fast.explain(x)
    anew(fast)
    fast(x)
    assert close(fast(x)[0], expected(fast, x))
    assert on_kernels() == 2


def test_no_other_weights_can_come_to_lie_where_the_packed_ones_were(gpu):
    fast, x = like(made()), torch.randn(5, 2, INPUT)
    fast(x)
    old = StorageWeakRef(fast.weight_ih_l0.untyped_storage())
    fast.weight_ih_l0.data = torch.zeros(4 * HIDDEN, INPUT)
    assert not old.expired(), "their address is how a change is seen"
    fast(x)
    assert old.expired()


def test_weights_that_change_with_every_call_are_left_to_nn_lstm(gpu):
    fast = like(made())
    x = torch.randn(5, 2, INPUT)
    fast(x)
    for _ in range(5):
        fast.weight_hh_l0.mul_(0.9)
        assert torch.equal(fast(x)[0], torch.nn.LSTM.forward(fast, x)[0])
    assert on_kernels() == 1


def fails(call):
    """Whether it raises for a lost call."""
    try:
        call()
    except RuntimeError as error:
        return "gave up" in str(error)
    return False


def elsewhere(call):
    """What a call gives in a thread of its own."""
    answers = []

    def work():
        with torch.no_grad():
            answers.append(call())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return answers[0]


def lost(gpu, layer, x):
    """A call that gives up."""
    gpu.fake.fake_set_late(1)
    layer(x)
    gpu.fake.fake_set_late(0)


def test_a_lost_call_is_raised_once_to_every_caller(gpu):
    fast, other, idle = like(made()), like(made()), like(made())
    x = torch.randn(5, 2, INPUT)
    callers = [lstm_kernels.synchronize, fast.check, other.check, lambda: fast(x), lambda: other(x)]
    for one in (fast, other):
        one(x)
    for turn in range(5):
        assert not any(map(fails, callers))
        lost(gpu, fast, x)
        in_turn = callers[turn:] + callers[:turn]
        assert sum(map(fails, in_turn)) == 3, "each layer, and the thread"
    assert not any(map(fails, [*callers, lambda: idle(x)]))


def test_the_next_call_of_a_layer_raises_whatever_was_written_since(gpu):
    fast, other, x = like(made()), like(made()), torch.randn(5, 2, INPUT)
    for one in (fast, other):
        one(x)
    lost(gpu, fast, x)
    fast.refresh()
    other.weight_hh_l0.zero_()
    for one in (fast, other):
        assert [fails(lambda: one(x)) for _ in range(3)] == [True, False, False]  # noqa: B023


def test_each_thread_that_calls_is_warned_and_those_that_come_later_are_not(gpu):
    fast, x = like(made()), torch.randn(5, 2, INPUT)
    called, warned = threading.Event(), threading.Event()

    def others():
        with torch.no_grad():
            fast(x)
        called.set()
        warned.wait(10)
        return [fails(lstm_kernels.synchronize) for _ in range(2)]

    found = []
    thread = threading.Thread(target=lambda: found.append(others()))
    thread.start()
    called.wait(10)
    lost(gpu, fast, x)
    assert fails(lstm_kernels.synchronize)
    assert not elsewhere(lambda: fails(lstm_kernels.synchronize))
    warned.set()
    thread.join()
    assert found == [[True, False]]


def test_a_lost_call_is_counted_once_however_many_threads_see_it(gpu):
    flag = stack.late()

    class Second:
        """Gets the lock after another thread has counted."""

        def __enter__(self):
            flag.value[0], flag.times = 0, flag.times + 1

        def __exit__(self, *_):
            pass

    flag.lock, flag.value[0] = Second(), 1
    assert stack.lost_calls() == 1


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


def test_gradients_dropout_and_switches_are_nn_lstms(gpu):
    layer = made(num_layers=2, dropout=0.5)
    fast, x = like(layer), torch.randn(5, 2, INPUT)
    layer.eval()
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


def test_without_a_gpu_there_is_nothing_to_wait_for():
    layer = lstm_kernels.LSTM(INPUT, HIDDEN)
    layer(torch.randn(5, 2, INPUT))
    layer.check()
    lstm_kernels.synchronize()


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
    x, layer = torch.zeros(1, dtype=dtype), lstm_kernels.LSTM(INPUT, HIDDEN)
    with torch.backends.cudnn.flags(allow_tf32=False):
        assert routes.precision_of(layer, x) == precision
    with torch.backends.cudnn.flags(allow_tf32=True):
        assert routes.precision_of(layer, x) == ("tf32" if precision == "fp32" else precision)
    with torch.autocast("cpu", torch.bfloat16):
        assert routes.precision_of(layer, x) == "bf16"


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
    ours = torch.nn.ModuleList([lstm_kernels.LSTM(INPUT, HIDDEN), like(made())])
    assert {type(layer) for layer in lstm_kernels.restore(ours)} == {torch.nn.LSTM}
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    quantised = torch.ao.quantization.quantize_dynamic(model, {torch.nn.LSTM}, torch.qint8)
    assert "quantized" in type(quantised[0]).__module__


def test_onnx_takes_it_as_the_nn_lstm_that_it_is(tmp_path):
    onnx = pytest.importorskip("onnx")
    layer, x = lstm_kernels.LSTM(INPUT, HIDDEN, 2, bidirectional=True), torch.randn(5, 2, INPUT)
    torch.onnx.export(layer, (x,), tmp_path / "layer.onnx", dynamo=False)
    kinds = [node.op_type for node in onnx.load(tmp_path / "layer.onnx").graph.node]
    assert kinds.count("LSTM") == 2
