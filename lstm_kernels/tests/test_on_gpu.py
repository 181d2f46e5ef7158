"""The drop-in on a real GPU: what nn.LSTM gives, on any stream, captured, call after call.

    python -m pytest -q lstm_kernels/tests/test_on_gpu.py

Kernels are compiled once and kept: the first run takes longer.
"""

import copy
import itertools
import threading

import pytest
from cases import TOLERANCES

torch = pytest.importorskip("torch", reason="the drop-in is PyTorch's")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
pytest.importorskip("lstm_kernels._gpu", reason="the extension was not built")

from lstm_kernels import LSTM, Unsupported  # noqa: E402
from lstm_kernels.lstm import TYPES  # noqa: E402

pytestmark = pytest.mark.xdist_group("gpu")

TOLERANCE = {**TOLERANCES, "fp32": 2e-6}  # what is promised
SMALL, LARGE = (5, 37), (100, 1000)  # input and hidden: in a cluster, through L2
BOTH = pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["cluster", "whole-gpu"])


@pytest.fixture(autouse=True)
def same_numbers_every_time():
    torch.manual_seed(1)


def made(sizes=SMALL, precision="fp32", plans=1, **options):
    """An nn.LSTM, and ours with its weights, which takes the first plan that runs."""
    layer = torch.nn.LSTM(*sizes, device="cuda", dtype=TYPES[precision], **options)
    return layer, LSTM.like(layer, precision, plans)


def posed(layer, timesteps, batch):
    """Inputs and states for a layer, time first."""
    like = {"device": "cuda", "dtype": layer.weight_hh_l0.dtype}
    x = torch.randn(timesteps, batch, layer.input_size, **like)
    h0, c0 = (torch.rand(2, 1, batch, layer.hidden_size, **like) - 0.5) * 2
    return x, (h0, c0)


@torch.no_grad()
def off(layer, answer, x, states=None):
    """How far an answer is from nn.LSTM in float64, in parts of the largest value or of 1."""
    precise = copy.deepcopy(layer).double()
    y, (h, c) = precise(x.double(), states and tuple(s.double() for s in states))
    got_y, (got_h, got_c) = answer
    found = []
    for got, want in ((got_y, y), (got_h, h), (got_c, c)):
        assert got.shape == want.shape
        assert got.dtype == x.dtype
        found.append(float((got.double() - want).abs().max() / want.abs().max().clamp(min=1)))
    return max(found)


SHAPES = [  # input, hidden, batch, timesteps
    (1, 1, 1, 1),
    (5, 37, 5, 9),
    (200, 131, 33, 7),
    (100, 600, 3, 20),
    (1024, 1024, 64, 20),
]
HALVES = [(5, 37, 5, 9), (131, 200, 20, 12), (100, 600, 3, 20)]
CASES = [("fp32", s) for s in SHAPES]
CASES += [(p, s) for p, s in itertools.product(("tf32", "fp16", "bf16"), HALVES)]


@pytest.mark.parametrize(("precision", "shape"), CASES)
def test_it_computes_what_nn_lstm_computes(precision, shape):
    *sizes, batch, timesteps = shape
    layer, fast = made(sizes, precision)
    x, states = posed(layer, timesteps, batch)
    for given in (states, None):
        assert off(layer, fast(x, given), x, given) < TOLERANCE[precision], fast.path(
            batch, timesteps
        )
    fast.check()


def test_the_fastest_plan_computes_it_too():
    layer = torch.nn.LSTM(128, 128, device="cuda")
    fast = LSTM.like(layer)
    x, states = posed(layer, 30, 4)
    assert off(layer, fast(x, states), x, states) < TOLERANCE["fp32"]


@pytest.mark.parametrize("bias", [True, False])
def test_batch_first_without_bias_not_contiguous_or_one_sequence(bias):
    layer, fast = made(batch_first=True, bias=bias)
    x, states = posed(layer, 9, 5)
    for given in (x.transpose(0, 1), x.transpose(0, 1).contiguous()):
        assert off(layer, fast(given, states), given, states) < TOLERANCE["fp32"]
    wide = torch.randn(5, 9, 2 * layer.input_size, device="cuda")[..., ::2]
    assert off(layer, fast(wide), wide) < TOLERANCE["fp32"]
    one = wide[0]
    assert off(layer, fast(one), one) < TOLERANCE["fp32"]


@BOTH
def test_shapes_may_change_from_call_to_call(sizes):
    layer, fast = made(sizes)
    for timesteps, batch in [(9, 5), (3, 5), (12, 5), (9, 2), (1, 2), (9, 5), (40, 2), (3, 5)]:
        x, states = posed(layer, timesteps, batch)
        assert off(layer, fast(x, states), x, states) < TOLERANCE["fp32"], (timesteps, batch)
    fast.check()


@BOTH
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_a_thousand_calls_with_changing_inputs_give_the_first_bits(sizes, precision):
    layer, fast = made(sizes, precision)
    inputs = [posed(layer, timesteps, 5) for timesteps in (9, 10, 16, 9, 13)]
    first = []
    for x, states in inputs:
        first.append(fast(x, states))
        assert off(layer, first[-1], x, states) < TOLERANCE[precision]
    wrong = torch.zeros((), device="cuda", dtype=torch.long)
    for call in range(1000):
        x, states = inputs[call * 7 % 5]
        y, (h, c) = first[call * 7 % 5]
        got_y, (got_h, got_c) = fast(x, states)
        for got, want in ((got_y, y), (got_h, h), (got_c, c)):
            wrong += (got != want).any()
    assert int(wrong) == 0
    fast.check()


@BOTH
@pytest.mark.parametrize("batch", [1, 5])  # through L2: one call after another, two at a time
def test_streams_do_not_disturb_each_other(sizes, batch):
    layer, fast = made(sizes)
    posed_two = [posed(layer, 20, batch), posed(layer, 20, batch)]
    right = [fast(*one)[0] for one in posed_two]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    found = [[], []]
    for _ in range(50):
        for which, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[which].append(fast(*posed_two[which])[0])
    fast.check()
    for which in (0, 1):
        assert all(torch.equal(one, right[which]) for one in found[which])


@BOTH
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_captured_call_is_replayed_with_new_inputs(sizes, precision):
    layer, fast = made(sizes, precision)
    x, (h0, c0) = posed(layer, 9, 5)
    fast(x, (h0, c0))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, (h, c) = fast(x, (h0, c0))
    for _ in range(20):
        new_x, new_states = posed(layer, 9, 5)
        for to, one in zip((x, h0, c0), (new_x, *new_states), strict=True):
            to.copy_(one)
        graph.replay()
        right_y, (right_h, right_c) = fast(new_x, new_states)  # in between
        assert torch.equal(y, right_y)
        assert torch.equal(h, right_h)
        assert torch.equal(c, right_c)
        assert off(layer, (y, (h, c)), new_x, new_states) < TOLERANCE[precision]
    fast.check()


def test_a_new_shape_is_not_captured_and_harms_nothing():
    layer, fast = made()
    x, states = posed(layer, 9, 5)
    with pytest.raises(RuntimeError, match="once"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        fast(x, states)
    assert off(layer, fast(x, states), x, states) < TOLERANCE["fp32"]


@BOTH
def test_a_call_does_not_wait(sizes):
    layer, fast = made(sizes)
    x, states = posed(layer, 9, 5)
    fast(x, states)
    torch.cuda.synchronize()
    stream, done = torch.cuda.current_stream(), torch.cuda.Event()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(1_000_000_000)  # cycles: half a second
        fast(x, states)
        done.record(stream)
        assert not done.query()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    fast.check()


def test_another_thread_may_call():
    layer, fast = made(LARGE)
    x, states = posed(layer, 9, 5)
    right, found = fast(x, states)[0], []
    torch.cuda.synchronize()
    thread = threading.Thread(target=lambda: found.append(fast(x, states)[0]))
    thread.start()
    thread.join()
    assert torch.equal(found[0], right)


@BOTH
def test_a_nan_stays_in_its_sequence_and_is_not_waited_for(sizes):
    layer, fast = made(sizes)
    x, states = posed(layer, 9, 5)
    right = fast(x, states)[0]
    x[4, 1, 0] = float("nan")
    y = fast(x, states)[0]
    fast.check()
    assert y[4:, 1].isnan().all()
    y[4:, 1] = right[4:, 1]
    assert torch.equal(y, right)


def test_a_layer_that_no_kernel_holds_is_refused_with_the_reason():
    _, fast = made((8, 2200))
    with pytest.raises(Unsupported, match="no kernel holds a layer of 2200 units in fp32"):
        fast(torch.zeros(1, 1, 8, device="cuda"))
