"""The kernels on a real GPU where something is not a number, or never comes.

    python -m pytest -q lstm_kernels/tests/test_on_gpu_faults.py

Each family of kernels is forced in turn. Where a wait must not end, its source is changed.
"""

import contextlib
import copy

import pytest
from cases import TOLERANCES

torch = pytest.importorskip("torch", reason="the drop-in is PyTorch's")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

import lstm_kernels  # noqa: E402
from lstm_kernels import LSTM, plans  # noqa: E402
from lstm_kernels import layer as kernels  # noqa: E402
from lstm_kernels.compiler import HEADERS, Compiler  # noqa: E402
from lstm_kernels.stack import TYPES, Stack  # noqa: E402

pytestmark = pytest.mark.xdist_group("gpu")

TOLERANCE = {**TOLERANCES, "fp32": 2e-6}
INPUTS, HIDDEN = 5, 100
NAN, INF = float("nan"), float("inf")
WAYS = {
    "cluster": lambda plan: plan.family == "cluster" and plan.blocks >= 4,
    "whole_gpu": lambda plan: plan.family == "whole_gpu",
    "vector_l2": lambda plan: plan.family == "vector" and not plan.cluster,
    "vector_words": lambda plan: plan.family == "vector" and plan.cluster and plan.blocks >= 4,
    "warpgroup": lambda plan: plan.family == "warpgroup" and plan.slices == 1,
    "warpgroup_slices": lambda plan: plan.family == "warpgroup" and plan.slices == 2,
}
CASES = [(way, precision, None) for way in WAYS for precision in ("fp32", "tf32", "fp16", "bf16")]
CASES += [("cluster", "fp32", kernels.TILES), ("cluster", "fp32", kernels.VECTORS)]


@pytest.fixture(autouse=True)
def inference_with_the_same_numbers_every_time():
    torch.manual_seed(1)
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.fixture
def forced(monkeypatch):
    """An nn.LSTM and ours, by one family of kernels and one input product."""

    def make(way, precision, projection=None):
        every, few = plans.candidates, 10**6 if projection == kernels.VECTORS else 0

        def candidates(*sizes):
            return [plan for plan in every(*sizes) if WAYS[way](plan)]

        by = projection if projection == kernels.TILES else precision
        monkeypatch.setattr(plans, "candidates", candidates)
        monkeypatch.setattr(Stack, "_projection", lambda stack: by)
        monkeypatch.setattr(Stack, "_few_rows", lambda stack: few)
        layer = torch.nn.LSTM(INPUTS, HIDDEN, device="cuda", dtype=TYPES[precision])
        layer.weight_ih_l0[3, 0] = 0  # an infinite x makes the input gate of unit 3 NaN
        return layer, LSTM.like(layer, precision, plans=1)

    return make


@pytest.fixture
def changed(monkeypatch):
    """Has kernels compiled with other text in a source: {file: (before, after)}."""
    read = Compiler._texts

    def change(files):
        def texts(source):
            names = (source, *HEADERS)
            return [replaced(name, text) for name, text in zip(names, read(source), strict=True)]

        def replaced(name, text):
            for before, after in files.get(name, ()):
                assert before in text, (name, before)
                text = text.replace(before, after)
            return text

        monkeypatch.setattr(Compiler, "_texts", staticmethod(texts))

    return change


def posed(way, timesteps, kind):
    batch = 3 if way.startswith("vector") else 20
    x = torch.randn(timesteps, batch, INPUTS, device="cuda", dtype=kind)
    h0, c0 = (torch.rand(2, 1, batch, HIDDEN, device="cuda", dtype=kind) - 0.5) * 2
    return x, h0, c0


def on_kernels(layer, x, states):
    before = lstm_kernels.calls().get("kernels", 0)
    y, (h, c) = layer(x, states)
    assert lstm_kernels.calls().get("kernels", 0) == before + 1, layer.explain(x, states)
    return y, h, c


@pytest.mark.parametrize(("way", "precision", "projection"), CASES)
def test_what_is_no_number_goes_where_nn_lstm_has_it_go(forced, way, precision, projection):
    layer, fast = forced(way, precision, projection)
    precise = copy.deepcopy(layer).double().cpu()
    clean = posed(way, 6, TYPES[precision])
    right = on_kernels(fast, clean[0], clean[1:])
    places = [  # which of x, h0, c0; where; what
        (0, (2, 1, 2), NAN),
        *((0, (2, 1, i), value) for i in (0, 1) for value in (INF, -INF)),
        *((2, (0, 1, unit), value) for unit in (3, 4, HIDDEN - 1) for value in (NAN, INF)),
    ]
    for which, where, value in places:
        given = [tensor.clone() for tensor in clean]
        given[which][where] = value
        found = on_kernels(fast, given[0], tuple(given[1:]))
        x, h0, c0 = (tensor.double().cpu() for tensor in given)
        y, (h, c) = precise(x, (h0, c0))
        if which == 0 and where[2] == 0:
            assert int(y[2, 1].isnan().sum()) == 1
            assert y[3, 1].isnan().all()
        others = [i for i in range(x.shape[1]) if i != 1]
        for got, want, without in zip(found, (y, h, c), right, strict=True):
            about = fast.path(x.shape[1], 6), which, where, value
            got = got.double().cpu()
            assert torch.equal(got.isnan(), want.isnan()), about
            assert torch.equal(got.isinf(), want.isinf()), about
            finite = want.isfinite()
            assert torch.allclose(got[finite], want[finite], atol=TOLERANCE[precision]), about
            assert torch.equal(got[:, others], without[:, others].double().cpu()), about
    lstm_kernels.synchronize()


LONG = 50  # timesteps of the call that is lost; 49 are computed by the same plan
NEVER = f"blockIdx.x == 3 && call.timesteps == {LONG} && t == "  # followed by a step
RETURNS = {  # where a kernel does not send h of step 5
    "cluster.cu": ["sequence >= at.here(chunk) || patience.lost()"],
    "whole_gpu.cu": ["copy >= COPIES || sequence >= at.here(chunk)"],
    "vector.cu": ["at.lane % 4", "at.lane / 2 >= BLOCKS"],
}
LOST = {
    file: [(f"if ({before}) return;", f"if ({NEVER} 5 || {before}) return;") for before in all_of]
    for file, all_of in RETURNS.items()
}
of_sender = NEVER.replace("call.", "exchange.")
LOST["warpgroup.cu"] = [("if (counts) asm", f"if (counts && !({of_sender} 6)) asm")]  # 0 is h0
LOST["call.cuh"] = [("LIMIT = 2000", "LIMIT = 100")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_lost_call_is_nan_from_there_on(forced, changed, way, precision):
    changed(LOST)
    _, fast = forced(way, precision)
    x, h0, c0 = posed(way, LONG, TYPES[precision])
    right, _, _ = on_kernels(fast, x[:-1], (h0, c0))
    lstm_kernels.synchronize()
    y, h, c = on_kernels(fast, x, (h0, c0))
    with pytest.raises(RuntimeError):
        lstm_kernels.synchronize()
    y, h, c, right = (tensor.double().cpu() for tensor in (y, h, c, right))
    lost = y[-1].isnan().any(-1)
    assert lost[0]  # the team of block 3 has the first sequence
    assert y[6:, lost].isnan().all()
    assert h[:, lost].isnan().all()
    assert c[:, lost].isnan().all()
    assert torch.allclose(y[:6], right[:6], atol=TOLERANCE[precision])
    assert torch.allclose(y[:-1, ~lost], right[:, ~lost], atol=TOLERANCE[precision])
    with contextlib.suppress(RuntimeError):  # the layer may say so once more
        fast(x[:-1], (h0, c0))
    again, _, _ = on_kernels(fast, x[:-1], (h0, c0))
    lstm_kernels.synchronize()
    assert torch.equal(again.double().cpu(), right)


def test_no_moment_is_taken_for_the_mark_of_a_lost_call(forced, changed):
    sends = "const int copy = at.lane & 1;"
    slowly = "if (blockIdx.x == 3 && t == 5) for (int i = 0; i < 50; ++i) __nanosleep(1000000);"
    clock = "return unsigned(t >> 20);"
    changed(
        {"call.cuh": [(clock, "return ~0u;")], "whole_gpu.cu": [(sends, f"{slowly} {sends}")]},
    )
    layer, fast = forced("whole_gpu", "fp32")
    x, h0, c0 = posed("whole_gpu", 9, torch.float32)
    y, _, _ = on_kernels(fast, x, (h0, c0))
    lstm_kernels.synchronize()
    want, _ = copy.deepcopy(layer).double()(x.double(), (h0.double(), c0.double()))
    assert torch.allclose(y.double(), want, atol=TOLERANCE["fp32"])
