"""The drop-in on a real GPU: what nn.LSTM gives, on any stream, captured, call after call.

    python -m pytest -q lstm_kernels/tests/test_on_gpu.py

Kernels are compiled once and kept: the first run takes longer.
"""

import copy
import gc
import itertools
import os
import threading
from pathlib import Path

import pytest
from cases import TOLERANCES, built_native

torch = pytest.importorskip("torch", reason="the drop-in is PyTorch's")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)
built_native()

import lstm_kernels  # noqa: E402
from lstm_kernels import LSTM  # noqa: E402
from lstm_kernels.stack import TYPES, Stack  # noqa: E402

pytestmark = pytest.mark.xdist_group("gpu")

TOLERANCE = {**TOLERANCES, "fp32": 2e-6}  # what is promised
SMALL, LARGE = (5, 37), (100, 1000)  # input and hidden: in a cluster, through L2
BOTH = pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["cluster", "whole-gpu"])


@pytest.fixture(autouse=True)
def inference_with_the_same_numbers_every_time():
    torch.manual_seed(1)
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def on_kernels(layer, x, states=None):
    """What the layer gives; it must have run on the kernels."""
    before = lstm_kernels.calls().get("kernels", 0)
    answer = layer(x, states)
    assert lstm_kernels.calls().get("kernels", 0) == before + 1, layer.explain(x, states)
    return answer


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
        answer = on_kernels(fast, x, given)
        assert off(layer, answer, x, given) < TOLERANCE[precision], fast.path(batch, timesteps)
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


def test_a_graph_keeps_what_it_reads():
    layer, fast = made(num_layers=2)
    x, _ = posed(layer, 9, 5)
    right = on_kernels(fast, x)[0]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, _ = on_kernels(fast, x)
    layer.weight_hh_l0.mul_(2)
    for batch in (6, 7, 5):  # others need the memory
        fast(torch.randn(9, batch, SMALL[0], device="cuda"))
    fast.refresh()
    on_kernels(fast, x)
    graph.replay()
    assert torch.equal(y, right)
    fast.check()


def test_a_new_shape_in_a_graph_is_nn_lstms():
    layer, fast = made()
    x, _ = posed(layer, 9, 5)
    layer(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, states = fast(x)
    graph.replay()
    assert off(layer, (y, states), x) < 1e-5  # cuDNN in fp32 is 5e-6 off
    assert off(layer, on_kernels(fast, x), x) < TOLERANCE["fp32"]


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


def test_a_layer_that_no_kernel_holds_is_nn_lstms():
    layer, fast = made((8, 2200))
    x = torch.zeros(1, 1, 8, device="cuda")
    assert torch.equal(fast(x)[0], layer(x)[0])
    assert "no kernel holds a layer of 2200 units in fp32" in fast.explain(x)


STACKS = [
    {"num_layers": 3},
    {"bidirectional": True},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
    {"num_layers": 2, "bias": False, "batch_first": True},
]


@BOTH
@pytest.mark.parametrize("options", STACKS, ids=str)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_layers_and_directions(sizes, options, precision):
    layer, fast = made(sizes, precision, **options)
    x, _ = posed(layer, 9, 5)
    count = layer.num_layers * (1 + layer.bidirectional)
    batch = x.shape[not layer.batch_first]
    h0, c0 = torch.rand(2, count, batch, layer.hidden_size, device="cuda", dtype=x.dtype)
    for states in ((h0, c0), None):
        answer = on_kernels(fast, x, states)
        assert off(layer, answer, x, states) < 4 * TOLERANCE[precision]
        again = fast(x, states)
        assert torch.equal(answer[0], again[0])


def test_the_switches_of_pytorch_choose_the_precision():
    layer = torch.nn.LSTM(64, 64, device="cuda")
    fast = LSTM.like(layer, plans=1)
    x, _ = posed(layer, 9, 5)
    assert off(layer, on_kernels(fast, x), x) < TOLERANCE["fp32"]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
        assert "tf32" in fast.explain(x)
        assert TOLERANCE["fp32"] < off(layer, on_kernels(fast, x), x) < TOLERANCE["tf32"]
    for kind in (torch.float16, torch.bfloat16):
        with torch.autocast("cuda", kind):
            y, (h, c) = on_kernels(fast, x)
            assert {y.dtype, h.dtype, c.dtype} == {layer(x)[0].dtype}
            assert torch.allclose(y.float(), layer(x)[0].float(), atol=2e-2)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_precision_of_its_own_leaves_the_type_of_x(precision):
    layer = torch.nn.LSTM(64, 64, num_layers=2, device="cuda")
    x, _ = posed(layer, 9, 5)
    answer = on_kernels(LSTM.like(layer, precision, plans=1), x)
    assert off(layer, answer, x) < 2 * TOLERANCE[precision]


def step(layer, kind, fused=True):
    optimiser = kind(layer.parameters(), lr=0.1, fused=fused)
    for parameter in layer.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimiser.step()


def at_the_same_place(weight):
    """Where the old weights were, if PyTorch gives that memory back and takes it again."""
    before, shape = weight.data_ptr(), weight.shape
    weight.data = torch.empty(0, device="cuda")
    tried = [torch.zeros(shape, device="cuda") for _ in range(50)]
    weight.data = ([one for one in tried if one.data_ptr() == before] or tried)[0]


def averaged(layer):
    for parameter in layer.parameters():
        parameter.data.mul_(0.5)


def drawn_to_others(layer):
    """On a GPU PyTorch 2.11 leaves no mark of it."""
    others = [torch.randn_like(parameter) / 8 for parameter in layer.parameters()]
    torch._foreach_lerp_([*layer.parameters()], others, 0.5)


WRITES = {
    "in place": lambda layer, fast: layer.weight_hh_l0.mul_(2),
    "a step": lambda layer, fast: step(layer, torch.optim.Adam, fused=False),
    "a fused step of Adam": lambda layer, fast: step(layer, torch.optim.Adam),
    "a fused step of AdamW": lambda layer, fast: step(layer, torch.optim.AdamW),
    "a fused step of SGD": lambda layer, fast: step(layer, torch.optim.SGD),
    "lerp_, with refresh": lambda layer, fast: (drawn_to_others(layer), fast.refresh()),
    "memory of the old weights": lambda layer, fast: at_the_same_place(layer.weight_hh_l0),
    "load_state_dict": lambda layer, fast: fast.load_state_dict(
        torch.nn.LSTM(*SMALL, device="cuda").state_dict()
    ),
    "a new parameter": lambda layer, fast: setattr(
        fast, "weight_hh_l0", torch.nn.Parameter(torch.randn_like(layer.weight_hh_l0) / 8)
    ),
    "data, with refresh": lambda layer, fast: (averaged(layer), fast.refresh()),
}


@pytest.mark.parametrize("write", WRITES)
def test_weights_are_those_of_the_call(write):
    layer, fast = made()
    x, states = posed(layer, 9, 5)
    before = on_kernels(fast, x, states)[0]
    WRITES[write](layer, fast)
    for _ in range(3):
        answer = fast(x, states)
        assert off(fast, answer, x, states) < 1e-5  # cuDNN in fp32 is 5e-6 off
    assert not torch.allclose(answer[0], before, atol=1e-3)
    on_kernels(fast, x, states)


def test_half_is_another_layer():
    layer, fast = made()
    x, _ = posed(layer, 9, 5)
    on_kernels(fast, x)
    fast.half()
    fast.precision = None
    answer = on_kernels(fast, x.half()) if fast.explain(x.half()).startswith("kernels") else None
    answer = answer or fast(x.half())
    assert off(fast, answer, x.half()) < TOLERANCE["fp16"]


def test_a_large_h0_is_nn_lstms():
    layer, fast = made()
    x, (h0, c0) = posed(layer, 9, 5)
    for value in (4e4, float("inf"), float("nan")):
        h0[0, 1, 2] = value
        before = lstm_kernels.calls().get("kernels", 0)
        y, theirs = fast(x, (h0, c0))[0], layer(x, (h0, c0))[0]
        assert lstm_kernels.calls().get("kernels", 0) == before
        assert torch.equal(y.isnan(), theirs.isnan())
        assert torch.equal(y.nan_to_num(), theirs.nan_to_num())


def test_compiled_and_exported_it_gives_the_same():
    _, fast = made((64, 64), num_layers=2, batch_first=True)
    for parameter in fast.parameters():
        parameter.requires_grad_(False)
    x = torch.randn(3, 20, 64, device="cuda")
    right = on_kernels(fast, x)[0]
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), First(fast), torch.nn.ReLU()).cuda()
    plain = model(x)
    before = lstm_kernels.calls()["kernels"]
    for mode in (None, "reduce-overhead"):
        compiled = torch.compile(model, fullgraph=True, mode=mode)
        for _ in range(4):
            assert torch.allclose(compiled(x), plain, atol=1e-5), (mode, lstm_kernels.calls())
    assert lstm_kernels.calls()["kernels"] > before
    exported = torch.export.export(fast, (x,)).module()
    assert torch.allclose(exported(x)[0], right, atol=1e-6)


class First(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


@pytest.mark.parametrize(("few_rows", "timesteps"), [(0, 2049), (10**8, 257)])
def test_rows_beyond_the_height_of_a_grid_are_multiplied_too(monkeypatch, few_rows, timesteps):
    monkeypatch.setattr(Stack, "_few_rows", lambda stack: few_rows)  # in tiles, in vectors
    layer, fast = made((1, 8))
    x, states = posed(layer, timesteps, 4096)
    assert off(layer, on_kernels(fast, x, states), x, states) < TOLERANCE["fp32"]


ENDS = [[9, 7, 7, 2, 1], [4], [3, 3, 3], [40, *[1] * 70]]


@BOTH
@pytest.mark.parametrize("options", [{}, *STACKS], ids=str)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_packed_sequences(sizes, options, precision):
    layer, fast = made(sizes, precision, **options)
    count = layer.num_layers * (1 + layer.bidirectional)
    kind = {"device": "cuda", "dtype": layer.weight_hh_l0.dtype}
    for lengths in ENDS:
        for sort in (True, False):
            given = lengths if sort else lengths[::-1]
            packed = torch.nn.utils.rnn.pack_sequence(
                [torch.randn(n, layer.input_size, **kind) for n in given], enforce_sorted=sort
            )
            h0, c0 = torch.rand(2, count, len(given), layer.hidden_size, **kind) - 0.5
            for states in ((h0, c0), None):
                y, rest = on_kernels(fast, packed, states)
                precise = copy.deepcopy(layer).double()
                doubled = states and tuple(state.double() for state in states)
                want, last = precise(packed._replace(data=packed.data.double()), doubled)
                for got, right in zip((y.data, *rest), (want.data, *last), strict=True):
                    assert got.shape == right.shape
                    apart = (got.double() - right).abs().max() / right.abs().max().clamp(min=1)
                    assert apart < 4 * TOLERANCE[precision], (fast.explain(packed), lengths)
    fast.check()


@BOTH
def test_a_new_batch_size_waits_for_nothing(sizes):
    layer, fast = made(sizes, "fp16")
    x, _ = posed(layer, 20, 4)
    on_kernels(fast, x)
    for batch in (1, 3, 9, 17, 40, 100, 200):
        x, states = posed(layer, 20, batch)
        for _ in range(3):
            assert off(layer, on_kernels(fast, x, states), x, states) < TOLERANCE["fp16"]
            for thread in threading.enumerate():
                if thread.name == "lstm_kernels":
                    thread.join()


def test_repeated_steps_carry_their_states(monkeypatch):
    layer, fast = made((64, 64), num_layers=2)
    x = torch.randn(30, 4, 64, device="cuda")
    whole, (h, c) = layer.double()(x.double())
    layer.float()
    states, steps = None, []
    for step in x:
        y, states = on_kernels(fast, step[None], states)
        steps.append(y)
    assert (torch.cat(steps).double() - whole).abs().max() < 1e-5
    assert (states[0].double() - h).abs().max() < 1e-5
    assert (states[1].double() - c).abs().max() < 1e-5


def test_four_threads_on_two_streams_beside_other_work_get_the_same_bits():
    layer, fast = made((100, 200), num_layers=2, bidirectional=True)
    x, _ = posed(layer, 20, 5)
    right = on_kernels(fast, x)[0]
    streams, wrong = [torch.cuda.Stream(), torch.cuda.Stream()], []
    noise = torch.randn(2048, 2048, device="cuda")
    torch.cuda.synchronize()

    def work(which):
        with torch.no_grad(), torch.cuda.stream(streams[which % 2]):
            for _ in range(100):
                noise @ noise
                wrong.append((fast(x)[0] != right).any())

    threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lstm_kernels.synchronize()
    assert len(wrong) == 400
    assert not any(map(bool, wrong))


EDGES = [(1, 1), (130, 1), (130, 70), (1152, 1), (1152, 70), (1153, 1), (2112, 1)]  # hidden, batch


def test_what_explain_claims_runs_on_the_kernels(monkeypatch):
    claimed = 0
    for (hidden, batch), precision in itertools.product(EDGES, TYPES):
        layer, fast = made((3, hidden), precision)
        x, _ = posed(layer, 2, batch)
        if fast.explain(x).startswith("kernels: "):
            with monkeypatch.context() as patched:
                patched.setattr(torch.nn.LSTM, "forward", None)
                answer = on_kernels(fast, x)
            assert off(layer, answer, x) < TOLERANCE[precision]
            claimed += 1
    assert claimed >= 20, "fp32 to 1152 units, others to 2112"


def memory():
    """Bytes that PyTorch has in use and holds on the GPU, and that the process has."""
    torch.cuda.synchronize()
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), resident


def test_ten_thousand_calls_of_two_modules_on_two_streams_by_four_threads_leave_memory_flat():
    modules = [made(SMALL, num_layers=2, bidirectional=True), made(LARGE, "fp16")]
    inputs = [posed(layer, 10, 5)[0] for layer, _ in modules]
    right = [on_kernels(fast, x) for (_, fast), x in zip(modules, inputs, strict=True)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    failed, wrong = [], torch.zeros(4, device="cuda", dtype=torch.long)
    torch.cuda.synchronize()

    def work(thread, calls):
        try:
            with torch.no_grad(), torch.cuda.stream(streams[thread % 2]):
                for call in range(calls):
                    which = (call + thread // 2) % 2
                    y, (h, c) = modules[which][1](inputs[which])
                    want_y, (want_h, want_c) = right[which]
                    same = torch.stack(
                        [(y == want_y).all(), (h == want_h).all(), (c == want_c).all()]
                    )
                    wrong[thread] += ~same.all()
                torch.cuda.current_stream().synchronize()
        except Exception as error:
            failed.append(error)

    def by_four(calls):
        threads = [threading.Thread(target=work, args=(i, calls)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lstm_kernels.synchronize()
        return memory()

    before = lstm_kernels.calls()["kernels"]
    (used, held, process), after = by_four(250), by_four(2250)
    assert not failed
    assert not wrong.any()
    assert lstm_kernels.calls()["kernels"] == before + 10_000
    assert after[0] == used
    assert after[1] - held < 64e6, "what 2,250 calls of a thread return is more"
    assert after[2] - process < 64e6
