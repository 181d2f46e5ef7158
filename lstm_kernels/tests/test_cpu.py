"""The layer on a CPU: right for every shape, loud when it fails, no memory left behind."""

import ctypes
import gc
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from cases import SOURCES, TOLERANCES, assert_carried, built_native, compiled, problem, reference

from lstm_kernels import Unsupported

native = built_native()


def made(*arguments, **how):
    """A layer of four sizes, and threads, skip_input, precision and sgemm in this order."""
    names = ("threads", "skip_input", "precision", "sgemm")
    return native.CpuLstm(*arguments[:4], **dict(zip(names, arguments[4:], strict=False)), **how)


def run(arrays, threads=1, skip_input=False, **how):
    timesteps, batch, inputs = arrays[0].shape
    lstm = made(arrays[1].shape[1], inputs, batch, timesteps, threads, skip_input, **how)
    lstm.load(*arrays)
    lstm.forward()
    lstm.wait()
    outputs = lstm.outputs()
    lstm.release()
    return outputs


def assert_right(arrays, threads=1, skip_input=False, tolerance=5e-6, **how):
    expected = reference(*arrays, skip_input=skip_input)
    outputs = run(arrays, threads, skip_input, **how)
    for name, found, right in zip(("output", "h_T", "c_T"), outputs, expected, strict=True):
        assert found.dtype == np.float32
        assert found.shape == right.shape
        # c may grow with the timesteps: its error counts against its size
        error = np.max(np.abs(found - right) / np.maximum(1, np.abs(right)))
        assert error <= tolerance, f"{name}: {error:.2e}"


PRECISIONS = {"fp32": 5e-6, "bf16": TOLERANCES["bf16"], "int8": TOLERANCES["int8"]}


def shapes(count, seed):
    """hidden, inputs, batch, timesteps and threads of some layers, small ones and odd ones."""
    random = np.random.default_rng(seed)
    odd = [47, 61, 64, 97, 127, 128, 131]

    def size():
        return int(random.integers(1, 41) if random.integers(2) else random.choice(odd))

    return [
        (size(), size(), *(int(random.integers(1, most)) for most in (21, 13, 5)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(15))
def test_right_for_every_shape_and_thread_count(seed):
    for number, (hidden, inputs, batch, timesteps, threads) in enumerate(shapes(10, seed)):
        assert_right(problem(hidden, inputs, batch, timesteps, 10 * seed + number), threads)


@pytest.mark.parametrize("seed", range(5))
def test_skip_input_adds_x_to_every_gate(seed):
    for hidden, _, batch, timesteps, threads in shapes(10, seed):
        assert_right(problem(hidden, hidden, batch, timesteps), threads, skip_input=True)


@pytest.mark.parametrize(
    ("hidden", "inputs", "batch", "timesteps"),
    [
        (1, 1, 1, 1),
        (1, 257, 1, 3),
        (257, 1, 1, 3),
        (3, 5, 300, 2),
        (64, 64, 7, 200),
        (128, 96, 3, 129),
    ],
)
def test_right_at_the_edges(hidden, inputs, batch, timesteps):
    """Also batches and lengths beyond the number of timesteps that one product covers."""
    assert_right(problem(hidden, inputs, batch, timesteps), threads=2)


@pytest.mark.parametrize(
    ("precision", "skip_input"),
    [("fp32", False), ("fp32", True), ("bf16", False), ("int8", False)],
)
@pytest.mark.parametrize("batch", [1, 2, 5, 9, 16])
@pytest.mark.parametrize("threads", [2, 3, 4, 64])
def test_the_number_of_threads_does_not_show_in_the_bits(threads, batch, precision, skip_input):
    arrays = problem(67, 67, batch, 9)
    how = {"precision": precision}
    one, many = (run(arrays, n, skip_input, **how) for n in (1, threads))
    assert all(np.array_equal(a, b) for a, b in zip(one, many, strict=True))
    assert_right(problem(67, 31, batch, 9), threads)


@pytest.fixture(params=native.instruction_sets())
def instruction_set(request, monkeypatch):
    monkeypatch.setenv("LSTM_BENCH_ISA", request.param)
    return request.param


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("hidden", "inputs", "batch"),
    [
        *((1, 1, 1), (3, 2, 7), (15, 33, 2), (17, 6, 13), (37, 11, 5), (64, 67, 12), (131, 64, 1)),
        *((40, 50, 33), (72, 33, 70)),  # whole tiles of AMX and parts of them
    ],
)
def test_right_with_every_instruction_set(instruction_set, precision, hidden, inputs, batch):
    arrays = problem(hidden, inputs, batch, 5)
    for threads in (1, 3):
        assert_right(arrays, threads, tolerance=PRECISIONS[precision], precision=precision)


def test_every_instruction_set_has_kernels_of_its_own_name(instruction_set):
    names = [re.sub("[- ]", "", name.lower()) for name in native.kernels().values()]
    assert instruction_set.replace("-", "") in names


def test_an_instruction_set_that_this_cpu_lacks_is_refused(monkeypatch):
    monkeypatch.setenv("LSTM_BENCH_ISA", "avx1024")
    with pytest.raises(ValueError, match=r"expected one that this CPU has, .*; found avx1024"):
        made(4, 4, 1, 1)
    monkeypatch.setenv("LSTM_BENCH_ISA", "")
    assert_right(problem(4, 4, 1, 1))


@pytest.mark.parametrize("plan", [(1, 1, 0), (1, 1, 2), (1, 3, 0), (1, 2, 4), (2, 1, 0), (2, 2, 1)])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_right_however_the_layer_is_cut_up(plan, precision):
    arrays = problem(67, 31, 5, 7)
    if precision == "int8" and plan[2] == 0:
        with pytest.raises(ValueError, match="no such plan"):
            run(arrays, precision=precision, plan=plan)
        return
    assert_right(arrays, tolerance=PRECISIONS[precision], precision=precision, plan=plan)


@pytest.fixture
def sgemm():
    """A cblas_sgemm for the only way in which it is called: rows of x times rows of weights."""
    calls = []
    floats, number, real = ctypes.POINTER(ctypes.c_float), ctypes.c_int, ctypes.c_float

    def product(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        calls.append((order, trans_a, trans_b))
        left = np.ctypeslib.as_array(a, (m, lda))[:, :k]
        right = np.ctypeslib.as_array(b, (n, ldb))[:, :k]
        out = np.ctypeslib.as_array(c, (m, ldc))[:, :n]
        out[:] = alpha * left @ right.T + beta * out

    kinds = [*[number] * 6, real, floats, number, floats, number, real, floats, number]
    function = ctypes.CFUNCTYPE(None, *kinds)(product)
    yield ctypes.cast(function, ctypes.c_void_p).value
    assert set(calls) == {(101, 111, 112)}, "rows, as they are, times transposed ones"


def test_right_where_the_callers_sgemm_has_the_input_product(sgemm):
    for arrays in (problem(67, 31, 5, 7), problem(16, 40, 1, 3)):
        assert_right(arrays, threads=2, sgemm=sgemm)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_fewer_bits_are_fewer_bytes(precision):
    full, few = (made(64, 64, 1, 3, precision=p) for p in ("fp32", precision))
    share = {"bf16": 1 / 2, "int8": 1 / 4}[precision]
    rows = (
        4 * 64 * 4
    )  # bytes of what each row has one of: a bias, and of integers scales and starts
    products = full.memory()["weights"] - rows
    assert 0 <= few.memory()["weights"] - share * products <= 5 * rows


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_nan_is_not_hidden_in_any_precision(precision):
    arrays = problem(8, 8, 2, 3)
    arrays[0][1, 0, 0] = np.nan
    output = run(arrays, precision=precision)[0]
    assert np.isfinite(output[0]).all()
    assert np.isnan(output[1, 0]).all()
    assert np.isfinite(output[:, 1]).all()


@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0])
def test_integers_follow_the_size_of_what_they_stand_for(scale):
    arrays = problem(32, 16, 3, 4, scale=scale)
    assert_right(arrays, tolerance=TOLERANCES["int8"] * (scale or 1), precision="int8")


def test_weights_that_no_integer_stands_for_are_refused():
    arrays = problem(8, 8, 2, 3)
    arrays[4][3, 3] = np.inf
    with pytest.raises(ValueError, match="must be finite"):
        run(arrays, precision="int8")


@pytest.mark.parametrize("threads", [1, 3])
def test_states_are_carried_from_call_to_call(threads):
    arrays = problem(67, 31, 5, 3)
    lstm = made(67, 31, 5, 3, threads)
    lstm.load(*arrays)
    assert_carried(lstm, arrays, tolerance=5e-6)
    lstm.release()


@pytest.mark.parametrize("scale", [1e-4, 10.0, 1e3])
def test_gates_near_zero_and_saturated(scale):
    assert_right(problem(16, 16, 4, 5, scale=scale), tolerance=1e-5)


def test_small_values_keep_their_relative_accuracy():
    arrays = [a * np.float32(1e-6) for a in problem(8, 8, 2, 1)]
    found, right = run(arrays)[0], reference(*arrays)[0]
    assert np.max(np.abs(found - right) / np.abs(right)) < 1e-5


def test_a_second_call_gives_the_same_and_a_second_load_counts():
    lstm = made(24, 8, 3, 5, 2)
    for seed in (1, 2):
        arrays = problem(24, 8, 3, 5, seed)
        lstm.load(*arrays)
        for _ in range(3):
            lstm.forward()
        assert np.abs(lstm.outputs()[0] - reference(*arrays)[0]).max() < 5e-6


def test_outputs_are_copies_and_nan_before_the_first_call():
    lstm = made(5, 5, 2, 3, 1)
    lstm.load(*problem(5, 5, 2, 3))
    before = lstm.outputs()
    lstm.forward()
    after = lstm.outputs()
    lstm.release()
    assert all(np.isnan(array).all() for array in before)
    assert all(np.isfinite(array).all() for array in after)


def test_arrays_of_another_type_or_order_are_taken():
    arrays = problem(9, 6, 2, 3)
    strange = [np.asfortranarray(a.astype(np.float64)) for a in arrays]
    assert np.array_equal(run(arrays)[0], run(strange)[0])


def test_timing_gives_nanoseconds_and_lets_python_run():
    lstm = made(64, 64, 4, 20, 2)
    lstm.load(*problem(64, 64, 4, 20))
    samples = lstm.time_each(5)
    assert len(samples) == 5
    assert all(isinstance(s, int) and s > 0 for s in samples)
    assert lstm.time_queued(50) > 0
    assert lstm.time_each(0) == []
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.wait(0.001):
            ticks.append(1)

    alone = made(64, 64, 4, 20, 1)  # two threads on a busy machine wait for ages
    alone.load(*problem(64, 64, 4, 20))
    thread = threading.Thread(target=tick)
    thread.start()
    alone.time_queued(1 + int(0.3e9 / min(alone.time_each(5))))
    stop.set()
    thread.join()
    assert ticks, "the GIL was held while the clock ran"


PHASES = ["cell", "input product", "recurrent product", "wait"]


@pytest.mark.parametrize("seed", range(5))
def test_a_call_that_is_taken_apart_gives_the_same_bits(seed):
    for hidden, inputs, batch, timesteps, threads in shapes(10, seed):
        arrays = problem(hidden, inputs, batch, timesteps)
        lstm = made(hidden, inputs, batch, timesteps, threads)
        lstm.load(*arrays)
        phases = lstm.phases(1)
        assert sorted(phases) == PHASES
        assert all(seconds >= 0 for seconds in phases.values())
        apart, whole = lstm.outputs(), run(arrays, threads)
        assert all(np.array_equal(a, b) for a, b in zip(apart, whole, strict=True))


def test_phases_are_all_of_a_call_and_per_call():
    lstm = made(64, 64, 4, 20, 2)
    lstm.load(*problem(64, 64, 4, 20))
    start = time.perf_counter()
    phases = lstm.phases(100)
    outside = (time.perf_counter() - start) / 100
    # The same clock before, between and after all phases: they cannot exceed what is around them.
    assert 0 < sum(phases.values()) <= outside
    assert all(phases[name] > 0 for name in PHASES)


def test_phases_need_a_loaded_layer_and_a_call():
    lstm = made(4, 4, 1, 1, 1)
    with pytest.raises(RuntimeError, match="load"):
        lstm.phases(1)
    lstm.load(*problem(4, 4, 1, 1))
    with pytest.raises(ValueError, match="at least 1, found 0"):
        lstm.phases(0)


def test_memory_is_counted():
    memory = made(16, 8, 2, 10, plan=(1, 1, 5)).memory()
    assert memory["weights"] == 4 * 16 * (8 + 16 + 1) * 4
    assert memory["inputs"] == (10 * 2 * 8 + 2 * 2 * 16) * 4
    assert memory["outputs"] == (10 * 2 * 16 + 2 * 2 * 16) * 4
    assert memory["workspace"] == 5 * 2 * 4 * 16 * 4  # the gates of five timesteps


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ((0, 4, 1, 1, 1), ValueError, "hidden 0"),
        ((4, 4, 1, -1, 1), ValueError, "timesteps -1"),
        ((4, 4, 1, 1, 0), ValueError, "threads"),
        ((4, 5, 1, 1, 1, True), ValueError, "equal"),
        ((4, 4, 1, 1, 1, False, "fp64"), ValueError, "found fp64"),
        ((4, 4, 1, 1, 1, True, "int8"), ValueError, "fp32 only"),
        ((4, 4, 1, 1, 1, False, "bf16", 1), ValueError, "fp32 only"),
        ((4, 2**17, 1, 1, 1, False, "int8"), Unsupported, "do not fit 32 bits"),
        ((2**17, 2**17, 2**17, 2**17, 1), MemoryError, "hidden 131072"),
    ],
)
def test_errors_name_what_was_wrong(arguments, error, word):
    with pytest.raises(error, match=word):
        made(*arguments)
    assert_right(problem(4, 4, 1, 1))  # and the next one works


def test_a_wrong_array_is_named():
    arrays = problem(6, 4, 2, 3)
    lstm = made(6, 4, 2, 3, 1)
    with pytest.raises(RuntimeError, match="load"):
        lstm.forward()
    for index, name in enumerate(["x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh"]):
        wrong = [*arrays]
        wrong[index] = np.zeros(7, np.float32)
        with pytest.raises(ValueError, match=f"^{name}: expected shape"):
            lstm.load(*wrong)


def test_a_released_layer_says_so():
    lstm = made(4, 4, 1, 1, 2)
    lstm.release()
    lstm.release()
    for call in (
        lstm.forward,
        lstm.outputs,
        lstm.memory,
        lambda: lstm.time_each(1),
        lambda: lstm.phases(1),
    ):
        with pytest.raises(RuntimeError, match="released"):
            call()


def resident_kb():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4


@pytest.mark.parametrize("cycles", [1000])
def test_prepare_and_release_hold_memory_flat(cycles):
    arrays = problem(48, 40, 3, 4)

    def cycle():
        run(arrays, threads=2)
        with pytest.raises(ValueError, match="equal"):
            made(4, 5, 1, 1, 2, True)

    for _ in range(100):
        cycle()
    gc.collect()
    before, threads = resident_kb(), threading.active_count()
    for _ in range(cycles):
        cycle()
    gc.collect()
    assert resident_kb() - before < 4096  # 1,000 layers of 50 KB would be 50 MB
    assert threading.active_count() == threads


# --- cores

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def cores_of(tmp_path_factory):
    """cores_of(of_machine, worker, workers, caller): those that a thread is bound to."""
    built = tmp_path_factory.mktemp("cores") / "cores.so"
    library = ctypes.CDLL(compiled(HERE / "cores_check.cpp", built, f"-I{SOURCES}/cpu", "-pthread"))
    library.cores_of.restype = ctypes.c_uint64

    def cores(*numbers):
        mask = library.cores_of(*numbers)
        return [core for core in range(64) if mask >> core & 1]

    return cores


@pytest.mark.parametrize("machine", [2, 3, 16, 64])
def test_every_thread_has_cores_of_its_own(cores_of, machine):
    for workers in range(1, machine):
        for caller in (0, machine // 2, machine - 1):
            shares = [cores_of(machine, worker, workers, caller) for worker in range(workers)]
            assert all(shares)
            together = sorted(core for share in shares for core in share)
            assert together == [core for core in range(machine) if core != caller]


def test_where_the_caller_moves_the_others_stay_and_too_many_are_not_bound(cores_of):
    before, after = ([cores_of(16, w, 15, caller) for w in range(15)] for caller in (3, 9))
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 2
    assert cores_of(4, 0, 4, 1) == []
    assert cores_of(4, 0, 1, 7) == []  # nor where the caller is none of them
