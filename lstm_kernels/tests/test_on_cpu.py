"""`lstm_kernels.LSTM` on a CPU: what nn.LSTM gives, by our kernels, beside other work."""

import copy
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from cases import TOLERANCES, built_native

torch = pytest.importorskip("torch", reason="the drop-in is PyTorch's")
native = built_native()

from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence  # noqa: E402

import lstm_kernels  # noqa: E402
from lstm_kernels import lstm as layers  # noqa: E402

FP32 = 2e-6
HALF = {torch.float32: FP32, torch.bfloat16: TOLERANCES["bf16"]}
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def inference():
    threads = torch.get_num_threads()
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


def made(*sizes, seed=0, **options):
    torch.manual_seed(seed)
    return lstm_kernels.LSTM(*sizes, **options)


def by_nn_lstm(layer, x, hx=None):
    """What an nn.LSTM in float64 gives."""
    plain = lstm_kernels.restore(copy.deepcopy(layer)).double()
    hx = hx if hx is None else tuple(state.double() for state in hx)
    if isinstance(x, PackedSequence):
        return plain(PackedSequence(x.data.double(), *x[1:]), hx)
    return plain(x.double(), hx)


def tensors(answer):
    y, (h, c) = answer
    return (y.data if isinstance(y, PackedSequence) else y), h, c


def errors(found, right):
    """The largest error of each tensor, beside its size where that is above 1."""
    for a, b in zip(tensors(found), tensors(right), strict=True):
        assert a.shape == b.shape
        yield ((a.double() - b).abs() / b.abs().clamp(min=1)).max().item()


def assert_ours(layer, x, hx=None, tolerance=FP32):
    """The kernels take a call, and it is right: the first time and the second."""
    right = by_nn_lstm(layer, x, hx)
    assert layer.explain(x, hx).startswith(layers.KERNELS), layer.explain(x, hx)
    before = lstm_kernels.calls().get(layers.KERNELS, 0)
    for _ in range(2):
        found = layer(x, hx)
        assert all(error <= tolerance for error in errors(found, right)), list(errors(found, right))
    assert lstm_kernels.calls()[layers.KERNELS] == before + 2
    return found


def assert_nn_lstms(layer, x, hx, reason):
    assert reason in layer.explain(x, hx)
    before = lstm_kernels.calls().get(layers.KERNELS, 0)
    answer = layer(x, hx)
    assert lstm_kernels.calls().get(layers.KERNELS, 0) == before
    return answer


@pytest.mark.parametrize("seed", range(30))
def test_right_at_random_layers_and_calls(seed):
    random = np.random.default_rng(seed)
    for number in range(5):
        inputs, hidden = (int(random.choice([1, 2, 7, 16, 33, 64, 131])) for _ in range(2))
        options = {
            "num_layers": int(random.integers(1, 4)),
            "bidirectional": bool(random.integers(2)),
            "bias": bool(random.integers(2)),
            "batch_first": bool(random.integers(2)),
        }
        kind = torch.float32 if random.integers(3) else torch.bfloat16
        layer = made(inputs, hidden, seed=number, **options).to(kind)
        batch, timesteps = int(random.integers(1, 14)), int(random.integers(1, 20))
        torch.set_num_threads(int(random.integers(1, 5)))
        states = options["num_layers"] * (1 + options["bidirectional"])
        hx = tuple(torch.randn(states, batch, hidden, dtype=kind) for _ in range(2))
        hx = hx if random.integers(2) else None
        if random.integers(2):
            lengths = [int(n) for n in random.integers(1, timesteps + 1, batch)]
            sequences = [torch.randn(length, inputs, dtype=kind) for length in lengths]
            x = pack_sequence(sequences, enforce_sorted=False)
        else:
            shape = (batch, timesteps) if options["batch_first"] else (timesteps, batch)
            x = torch.randn(*shape, inputs, dtype=kind)
        found = assert_ours(layer, x, hx, HALF[kind])
        assert all(tensor.dtype == kind for tensor in tensors(found))


def test_a_packed_sequence_comes_back_as_nn_lstm_gives_it():
    layer, lengths = made(3, 5, bidirectional=True), torch.tensor([2, 7, 1, 7])
    x = torch.randn(7, 4, 3)
    hx = torch.randn(2, 4, 5), torch.randn(2, 4, 5)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    y, _ = assert_ours(layer, packed, hx)
    plain, _ = torch.nn.LSTM.forward(layer, packed, hx)
    assert type(y) is PackedSequence
    for ours, theirs in zip(y[1:], plain[1:], strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("batch_first", [False, True])
def test_one_sequence_without_a_batch_and_an_input_with_strides(batch_first):
    layer = made(6, 8, num_layers=2, bidirectional=True, batch_first=batch_first)
    assert_ours(layer, torch.randn(5, 6), tuple(torch.randn(4, 8) for _ in range(2)))
    assert_ours(layer, torch.randn(4, 6, 3).transpose(1, 2))
    assert_ours(layer, torch.randn(200)[1:91].view(5, 3, 6))
    halves = made(6, 8).bfloat16()
    assert_ours(halves, torch.randn(200).bfloat16()[1:91].view(5, 3, 6), None, TOLERANCES["bf16"])


def test_outputs_are_tensors_of_their_own():
    layer, x = made(4, 4), torch.randn(1, 1, 4)
    for _ in range(3):
        y, (h, c) = layer(x)
        kept = y.clone()
        h.zero_(), c.zero_()
        layer(torch.randn(1, 1, 4))
        assert torch.equal(y, kept)


def test_autocast_computes_in_bfloat16_as_it_does_for_nn_lstm():
    layer, x = made(8, 16), torch.randn(3, 2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            y, (h, c) = layer(x)
        assert "bf16" in layer.explain(x)
    assert {tensor.dtype for tensor in (y, h, c)} == {torch.bfloat16}
    assert all(error <= TOLERANCES["bf16"] for error in errors((y, (h, c)), by_nn_lstm(layer, x)))
    assert layer(x)[0].dtype == torch.float32


def test_int8_is_an_explicit_choice_of_a_layer_or_of_a_model():
    plain = torch.nn.LSTM(16, 32, num_layers=2)
    layer = lstm_kernels.LSTM.like(plain, quantize="int8")
    x = torch.randn(5, 3, 16)
    found = assert_ours(layer, x, None, TOLERANCES["int8"])
    assert "int8" in layer.explain(x)
    assert max(errors(found, by_nn_lstm(layer, x))) > FP32, "nothing was rounded"
    model = lstm_kernels.replace(torch.nn.Sequential(plain), quiet=True, quantize="int8")
    assert "int8" in model[0].explain(x)
    assert not hasattr(lstm_kernels.restore(model)[0], "quantize")
    with pytest.raises(ValueError, match="expected 'int8' or None"):
        lstm_kernels.LSTM.like(plain, quantize="int4")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30, 1e20])
@pytest.mark.parametrize("place", ["x", "h0", "c0"])
def test_what_is_not_a_number_or_large_goes_where_nn_lstm_has_it_go(place, value):
    layer = made(6, 8)
    x, h0, c0 = torch.randn(4, 3, 6), torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    {"x": x[1], "h0": h0[0], "c0": c0[0]}[place][1, 2] = value
    plain = torch.nn.LSTM.forward(layer, x, (h0, c0))
    for _ in range(2):
        for ours, right in zip(tensors(layer(x, (h0, c0))), tensors(plain), strict=True):
            assert torch.allclose(ours, right, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_what_the_kernels_do_not_take_is_nn_lstms():
    x = torch.randn(3, 2, 4)
    assert_nn_lstms(made(4, 6, proj_size=2), x, None, "proj_size")
    assert_nn_lstms(made(4, 6).double(), x.double(), None, "float64")
    assert_nn_lstms(made(4, 6).half(), x.half(), None, "float16")
    dropped = made(4, 6, num_layers=2, dropout=0.5)
    assert_nn_lstms(dropped, x, None, "dropout in training")
    assert_ours(dropped.eval(), x)
    layer = made(4, 6)
    with torch.enable_grad():
        y, _ = assert_nn_lstms(layer, x, None, "a gradient is wanted")
        y.sum().backward()
    assert layer.weight_hh_l0.grad is not None
    with pytest.raises(ValueError, match="2D or 3D"):
        layer(torch.randn(1, 1, 1, 4))


def test_a_call_after_others_like_it_looks_again_at_all_that_differs():
    """A repeated call skips most questions: none of these may be among them."""
    layer, x = made(4, 4), torch.randn(2, 1, 4)
    hx = torch.randn(1, 1, 4), torch.randn(1, 1, 4)

    def prepared():
        for _ in range(3):
            assert_ours(layer, x, hx)

    prepared()
    with torch.enable_grad():
        assert layer(x, hx)[0].requires_grad
    prepared()
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x, hx)[0].dtype == torch.bfloat16
    prepared()
    assert_ours(layer, torch.randn(3, 1, 4), hx)
    prepared()
    assert_ours(layer, x)
    prepared()
    assert_ours(layer, x, (hx[0], torch.randn(4, 1, 1).permute(1, 2, 0)))
    prepared()
    assert layer(x[:, 0], (hx[0][:, 0], hx[1][:, 0]))[0].shape == (2, 4)
    prepared()
    with pytest.raises(RuntimeError, match="Expected hidden"):
        layer(x, (torch.zeros(1, 2, 4), hx[1]))
    prepared()
    layer.batch_first = True
    assert_ours(layer, torch.randn(1, 2, 4), hx)
    layer.batch_first = False
    prepared()
    layer.quantize = "int8"
    rounded = assert_ours(layer, x, hx, TOLERANCES["int8"])
    assert max(errors(rounded, by_nn_lstm(layer, x, hx))) > FP32, "nothing was rounded"
    layer.quantize = None
    prepared()
    large = hx[0], torch.full((1, 1, 4), 1e30)
    plain = torch.nn.LSTM.forward(layer, x, large)
    assert torch.allclose(layer(x, large)[1][1], plain[1][1])
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: layer(x, hx)[0])(x)
    assert torch.allclose(graph(2 * x), layer(2 * x, hx)[0], atol=1e-5)


WRITES = {
    "in place": lambda layer: layer.weight_hh_l0.mul_(0.5),
    "a new parameter": lambda layer: setattr(
        layer, "weight_ih_l0", torch.nn.Parameter(layer.weight_ih_l0 * 2)
    ),
    "load_state_dict": lambda layer: layer.load_state_dict(made(4, 4, seed=9).state_dict()),
    "assigned": lambda layer: layer.load_state_dict(made(4, 4, seed=9).state_dict(), assign=True),
    "another type and back": lambda layer: layer.half().float(),
    "a fused step": lambda layer: stepped(layer, fused=True),
    "a step": lambda layer: stepped(layer, fused=False),
    "data and refresh": lambda layer: (layer.bias_hh_l0.data.fill_(3), layer.refresh()),
}


def stepped(layer, fused):
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.Adam(layer.parameters(), lr=0.1, fused=fused).step()


@pytest.mark.parametrize("write", WRITES)
def test_a_write_to_the_weights_is_seen(write):
    layer, x = made(4, 4), torch.randn(2, 1, 4)
    for _ in range(3):
        before = layer(x)
    WRITES[write](layer)
    right = by_nn_lstm(layer, x)
    assert max(errors(before, right)) > 3e-5, "the write changed nothing"
    for _ in range(3):  # nn.LSTM's, packed, repeated
        assert max(errors(layer(x), right)) <= 1e-5
    assert layer.explain(x).startswith(layers.KERNELS)


def test_compile_and_export_have_it_as_one_operator():
    model, x = torch.nn.Sequential(made(4, 6, num_layers=2, batch_first=True)), torch.randn(2, 3, 4)
    right = by_nn_lstm(model[0], x)
    before = lstm_kernels.calls().get(layers.KERNELS, 0)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert max(errors(compiled(x), right)) <= FP32
    exported = torch.export.export(model, (x,)).module()
    assert max(errors(exported(x), right)) <= FP32
    assert lstm_kernels.calls()[layers.KERNELS] == before + 2


def test_threads_share_a_layer_and_have_their_own():
    torch.set_num_threads(2)
    shared, x = made(32, 64, bidirectional=True), torch.randn(40, 8, 32)
    first, wrong = shared(x)[0], []

    def work(number):
        own, once = made(16, 32, seed=number), torch.randn(20, 4, 16)
        with torch.no_grad():
            before = own(once)[0]
            for _ in range(30):
                if not (torch.equal(shared(x)[0], first) and torch.equal(own(once)[0], before)):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_has_threads_of_its_own():
    torch.set_num_threads(2)
    layer, x = made(64, 128), torch.randn(50, 8, 64)
    right = layer(x)[0].numpy()
    child = os.fork()
    if child == 0:  # with NumPy alone: PyTorch's own threads do not outlive a fork
        signal.alarm(60)  # ends a hang
        os._exit(0 if np.array_equal(layer(x)[0].numpy(), right) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(layer(x)[0].numpy(), right)


def test_nothing_spins_after_a_call_and_no_thread_is_bound_to_a_core():
    torch.set_num_threads(2)
    layer, x = made(64, 128), torch.randn(50, 8, 64)
    allowed = os.sched_getaffinity(0)
    layer(x), layer(x)
    time.sleep(0.01)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1, "half a second of sleep took CPU time"
    for thread in os.listdir("/proc/self/task"):
        assert os.sched_getaffinity(int(thread)) == allowed


def test_memory_stays_flat():
    layer, x = made(32, 32, num_layers=2, bidirectional=True), torch.randn(3, 2, 32)

    def resident_kb():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    for _ in range(2000):
        layer(x)
    before = resident_kb()
    for _ in range(20000):
        layer(x)
    assert resident_kb() - before < 2048


def test_a_layer_that_goes_gives_its_weights_back():
    def resident_kb():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    x = torch.randn(1, 1, 256)
    for number in range(40):
        made(256, 256)(x)  # 2 MB each
        if number == 9:
            before = resident_kb()
    assert resident_kb() - before < 20_000


# --- without PyTorch


def arrays_of(layer):
    return [parameter.detach().numpy() for parameter in layer.parameters()]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_a_stream_goes_on_where_it_was(precision):
    layer = made(7, 13, num_layers=2)
    stream = lstm_kernels.Stream(arrays_of(layer), precision=precision, batch=3)
    x = torch.randn(12, 3, 7)
    y = np.concatenate([stream(piece.numpy()) for piece in x.split([1, 1, 5, 2, 3])])
    right = tensors(by_nn_lstm(layer, x))
    tolerance = TOLERANCES.get(precision, FP32)
    for found, expected in zip((y, *stream.state), right, strict=True):
        assert np.abs(found - expected.numpy()).max() <= tolerance
    stream.reset(right[1].numpy(), right[2].numpy())
    again = stream(x.numpy())
    onward = by_nn_lstm(layer, x, right[1:])[0]
    assert np.abs(again - onward.numpy()).max() <= tolerance
    stream.reset(batch=1)
    assert stream(np.zeros((1, 1, 7))).shape == (1, 1, 13)


def test_a_stream_takes_what_cannot_be_written_to_and_says_what_does_not_fit():
    stream = lstm_kernels.Stream(arrays_of(made(4, 6)))
    x = np.ones((2, 1, 4), np.float32)
    right = stream(x)
    x.setflags(write=False)
    stream.reset()
    assert np.array_equal(stream(x), right)
    with pytest.raises(ValueError, match=r"x: expected shape \(timesteps, 1, 4\), found \(2, 4\)"):
        stream(x[:, 0])
    with pytest.raises(ValueError, match=r"h0: expected shape \(1, 1, 6\), found \(6,\)"):
        stream.reset(np.zeros(6))
    with pytest.raises(ValueError, match="expected 4 arrays for each layer, found 3"):
        lstm_kernels.Stream(arrays_of(made(4, 6))[:3])
    with pytest.raises(ValueError, match=r"weights\[1\]: expected shape"):
        lstm_kernels.Stream([np.zeros((24, 4)), np.zeros((20, 6)), np.zeros(24), np.zeros(24)])
    with pytest.raises(ValueError, match="found fp8"):
        lstm_kernels.Stream(arrays_of(made(4, 6)), precision="fp8")


def flags_of_c():
    command = [sys.executable, "-m", "lstm_kernels", "--cflags", "--libs"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_a_program_in_c_gets_the_same(tmp_path):
    if not (compiler := shutil.which("cc")):
        pytest.skip("no cc")
    source = tmp_path / "check.c"
    source.write_text(C_PROGRAM)
    command = [
        compiler,
        "-Wall",
        "-Werror",
        str(source),
        *flags_of_c(),
        "-o",
        str(tmp_path / "check"),
    ]
    subprocess.run(command, check=True)
    layer = made(3, 5, bidirectional=False, num_layers=2)
    x = torch.randn(4, 1, 3)
    data = np.concatenate([array.ravel() for array in (*arrays_of(layer), x.numpy())])
    answer = subprocess.run(
        [tmp_path / "check"],
        input=data.astype(np.float32).tobytes(),
        check=True,
        capture_output=True,
    ).stdout
    y = np.frombuffer(answer, np.float32).reshape(4, 1, 5)
    assert np.abs(y - by_nn_lstm(layer, x)[0].numpy()).max() <= FP32


C_PROGRAM = """
#include <lstm_kernels.h>
#include <stdio.h>
#include <string.h>

static float values[4096];

int main(void) {
    const lstm_sizes sizes = {3, 5, 2, 1, 1};
    const int counts[] = {60, 100, 20, 20, 100, 100, 20, 20};
    const float* weights[8];
    const float* next = values;
    float y[5];
    lstm_stream* stream;
    if (!fread(values, sizeof(float), 4096, stdin)) return 2;
    for (int i = 0; i < 8; ++i) weights[i] = next, next += counts[i];
    if (lstm_stream_create(&sizes, "fp4", weights, &stream) != LSTM_INVALID) return 3;
    if (!strstr(lstm_error(), "found fp4")) return 4;
    if (lstm_stream_create(&sizes, "fp32", weights, &stream)) return 5;
    for (int t = 0; t < 4; ++t, next += 3) {
        if (lstm_stream_step(stream, next, y)) return 6;
        fwrite(y, sizeof(float), 5, stdout);
    }
    lstm_stream_destroy(stream);
    return 0;
}
"""


def test_the_example_in_c_runs(tmp_path):
    if not (compiler := shutil.which("cc")) or not EXAMPLES.exists():
        pytest.skip("no cc, or no examples beside these tests")
    built = str(tmp_path / "stream")
    subprocess.run([compiler, str(EXAMPLES / "stream.c"), *flags_of_c(), "-o", built], check=True)
    shown = subprocess.run([built], check=True, capture_output=True, text=True).stdout
    assert shown.startswith("2000 steps of 128 units")
