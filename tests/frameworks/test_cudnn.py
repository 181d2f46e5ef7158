"""The cuDNN baseline's calls of its library, checked on the host against a fake one.

The real library is swept by experiments/gpu_sweep.py on a machine that has a GPU.
"""

import ctypes
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cases import assert_carried, problem, reference

from lstm_bench.frameworks.deepbench import session as deepbench
from lstm_bench.model.types import Settings, Shape, Unsupported
from lstm_bench.worker import problem as problems
from lstm_bench.worker.timing import ProcessClock
from lstm_kernels import cache

_cudnn = pytest.importorskip("lstm_bench._cudnn", reason="the C++ baseline was not built")

ROOT = Path(__file__).resolve().parents[2]
STANDARD, STATIC, DYNAMIC = 0, 1, 2
TO_DEVICE, TO_HOST = 1, 2  # copies, as CUDA counts their kinds
ONE_STREAM_ONE_HANDLE = 2
NAMES = ("x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh")
each_precision = pytest.mark.parametrize(
    ("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 5e-3)]
)
TRAINING = [
    Shape(5, 2, 4, 3, training=True),
    Shape(5, 3, 4, 2, layers=3, directions=2, lengths="4/1/3", training=True),
    Shape(1, 1, 3, 2, layers=2, training=True),
]
in_a_graph_or_not = pytest.mark.parametrize("graph", [False, True])

pytestmark = pytest.mark.xdist_group("cudnn")


@pytest.fixture
def fake(library):
    """The fake, its settings as new, and the promise that a test leaves nothing alive in it."""
    handle = ctypes.CDLL(library)
    handle.fake_set_limit.argtypes = [ctypes.c_size_t]
    handle.fake_set_limit(2**34)
    handle.fake_set_wrong(-1)
    handle.fake_set_lost_copies(0)
    _cudnn.Lstm(library, library, 1, 1, 1, 1).release()  # opens the device, which stays open
    assert handle.fake_live() == ONE_STREAM_ONE_HANDLE
    yield handle
    assert handle.fake_live() == ONE_STREAM_ONE_HANDLE, "something was not freed"
    assert handle.fake_sticky() == 0, "an error was left for the next call to find"


@pytest.fixture
def layer(library, fake):
    """Makes layers, which are released when the test ends."""
    made = []

    def make(*sizes, arrays=None, **options):
        made.append(_cudnn.Lstm(library, library, *sizes, **options))
        if arrays:
            made[-1].load(*arrays)
        return made[-1]

    yield make
    for lstm in made:
        lstm.release()


def error(outputs, arrays, **options):
    """The largest of output, h and c."""
    expected = reference(*arrays, **options)
    return max(np.abs(a - b).max() for a, b in zip(outputs, expected, strict=True))


def run(layer, arrays, **options):
    timesteps, batch, inputs = arrays[0].shape
    lstm = layer(arrays[1].shape[1], inputs, batch, timesteps, arrays=arrays, **options)
    assert all(np.isnan(array).all() for array in lstm.outputs()), "not poisoned"
    lstm.forward()
    lstm.wait()
    return lstm.outputs()


@in_a_graph_or_not
@pytest.mark.parametrize("skip_input", [False, True])
@each_precision
@pytest.mark.parametrize("algorithm", ["standard", "persist-static", "persist-dynamic"])
def test_weights_and_biases_reach_their_place(
    layer, algorithm, precision, tolerance, skip_input, graph
):
    arrays = problem(5, 5 if skip_input else 3, 2, 4)
    options = {"algorithm": algorithm, "precision": precision, "graph": graph}
    outputs = run(layer, arrays, skip_input=skip_input, **options)
    assert [array.dtype for array in outputs] == [np.float32] * 3
    assert [array.shape for array in outputs] == [(4, 2, 5), (2, 5), (2, 5)]
    assert error(outputs, arrays, skip_input=skip_input) < tolerance


@in_a_graph_or_not
@each_precision
@pytest.mark.parametrize(
    "shape",
    [Shape(5, 3, 4, 2, layers=3, directions=2, lengths="4/1/3"), Shape(5, 2, 4, 3, layers=2)],
    ids=lambda shape: shape.label,
)
def test_stacks_directions_and_lengths(layer, shape, precision, tolerance, graph):
    posed = problems.make(shape, seed=1)
    more = {"layers": shape.layers, "directions": shape.directions}
    sizes = (shape.hidden, shape.input_size, shape.batch, shape.timesteps)
    lstm = layer(*sizes, precision=precision, graph=graph, lengths=posed.lengths() or [], **more)
    lstm.load(posed.x, posed.h0, posed.c0, *posed.arrays)
    lstm.forward()
    lstm.wait()
    expected = problems.reference(posed)
    check = problems.check(lstm.outputs(), expected, tolerance, posed.lengths())
    assert check.passed, check.reason
    with pytest.raises(ValueError, match="four arrays"):
        lstm.load(posed.x, posed.h0, posed.c0, *posed.arrays[:-1])


@in_a_graph_or_not
@each_precision
@pytest.mark.parametrize("shape", TRAINING, ids=lambda shape: shape.label)
def test_gradients_come_from_their_place_at_each_step(session, shape, precision, tolerance, graph):
    built = session(shape=shape, precision=precision, graph=graph)
    posed = problems.make(shape, seed=1)
    expected = problems.reference(posed)
    if not graph:
        assert all(np.isnan(array).all() for array in built.outputs()), "not poisoned"
    for _ in range(2):  # cuDNN adds to the gradients of weights
        built.call()
        built.wait()
        check = problems.check(built.outputs(), expected, tolerance, posed.lengths())
        assert check.passed, check.reason
    assert built.two_passes == (not graph)
    if built.two_passes:
        built.time_passes(2, ProcessClock())
        assert problems.check(built.outputs(), expected, tolerance, posed.lengths()).passed


def test_a_training_step_holds_what_its_backward_pass_needs(session):
    shape = TRAINING[0]
    trained, inferred = session(shape=shape), session(shape=replace(shape, training=False))
    assert {"reserve", "gradients"} == trained.memory.keys() - inferred.memory.keys()
    assert trained.device_peak() > 2 * inferred.device_peak()
    with pytest.raises(RuntimeError, match="training=True"):
        inferred.forward_pass()


def test_no_row_trains_without_its_input_product(session):
    with pytest.raises(Unsupported, match="needs inference"):
        session(shape=Shape(8, 2, 3, 8, training=True), skip_input=True)


def test_best_of_a_training_step_is_right_at_unlike_lengths(session):
    posed = problems.make(TRAINING[1], seed=1)
    best = session(shape=TRAINING[1], choose="best")
    best.call()
    best.wait()
    assert "fastest of" in best.path
    check = problems.check(best.outputs(), problems.reference(posed), 1e-5, posed.lengths())
    assert check.passed, check.reason


@in_a_graph_or_not
@each_precision
def test_states_are_carried_from_call_to_call(layer, precision, tolerance, graph):
    arrays = problem(5, 3, 2, 3)
    lstm = layer(5, 3, 2, 3, precision=precision)
    lstm.load(*arrays)
    lstm.replay(graph)
    lstm.forward()
    assert_carried(lstm, arrays, tolerance)
    with pytest.raises(ValueError, match="h0 or c0 does not have the size"):
        lstm.carry(arrays[0], arrays[2])


def test_pinned_memory_that_is_refused_is_said(layer, fake):
    lstm = layer(5, 3, 2, 4)
    lstm.load(*problem(5, 3, 2, 4))
    fake.fake_set_limit(0)
    with pytest.raises(MemoryError, match=r"cudaHostAlloc of 96 bytes: .*hidden 5"):
        lstm.keep_on_host(True)


def test_a_refusal_carries_the_librarys_word_and_the_shape(layer):
    with pytest.raises(
        _cudnn.Unsupported,
        match=r"cudnnSetRNNDescriptor_v8: CUDNN_STATUS_NOT_SUPPORTED, why, .*hidden 65",
    ):
        layer(65, 65, 1, 1, algorithm="persist-static")
    assert issubclass(_cudnn.Unsupported, NotImplementedError)


@in_a_graph_or_not
def test_a_refusal_of_the_call_itself(layer, graph):
    with pytest.raises(_cudnn.Unsupported, match="cudnnRNNForward"):
        run(layer, problem(4, 4, 1, 1), algorithm="persist-static-small-h", graph=graph)


@pytest.mark.parametrize("limit", [0, 500, 1500, 2500, 5000])
def test_too_little_memory_is_said_and_nothing_stays_behind(layer, fake, limit):
    fake.fake_set_limit(limit)
    with pytest.raises(
        MemoryError, match=r"cudaMalloc of .* bytes: cudaErrorMemoryAllocation.*hidden 16"
    ):
        layer(16, 16, 2, 30)
    fake.fake_set_limit(2**34)
    run(layer, problem(16, 16, 2, 3))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"precision": "fp8"}, "fp8"),
        ({"algorithm": "fast"}, "fast"),
        ({"skip_input": True}, "equal"),
    ],
)
def test_wrong_options_are_named(layer, options, word):
    with pytest.raises(ValueError, match=word):
        layer(4, 5, 1, 1, **options)


def test_a_library_that_is_not_there(library):
    with pytest.raises(_cudnn.LibraryError, match="nowhere"):
        _cudnn.Lstm("/nowhere/libcudnn.so.9", library, 4, 4, 1, 1)


def test_wrong_arrays_and_released_layers_are_named(layer):
    lstm = layer(4, 4, 1, 1)
    for call in (lstm.forward, lambda: lstm.replay(True), lambda: lstm.keep_on_host(True)):
        with pytest.raises(RuntimeError, match="load"):
            call()
    with pytest.raises(ValueError, match="h0"):
        lstm.load(*[np.zeros(3) if i == 1 else a for i, a in enumerate(problem(4, 4, 1, 1))])
    lstm.release()
    with pytest.raises(RuntimeError, match="released"):
        lstm.forward()


def test_timing_and_memory(layer):
    lstm = layer(4, 4, 2, 3)
    lstm.load(*problem(4, 4, 2, 3))
    assert len(lstm.time_each(3)) == 3
    assert min(lstm.time_each(2)) > 0
    assert lstm.time_queued(3) > 0
    assert lstm.memory() == {
        "weights": 4 * (16 * 8 + 32),
        "inputs": 4 * (24 + 16),
        "outputs": 4 * (24 + 16),
        "workspace": 1000,
    }


@in_a_graph_or_not
def test_the_device_times_every_call_by_itself(layer, fake, graph):
    arrays = problem(4, 4, 2, 3)
    lstm = layer(4, 4, 2, 3, graph=graph)
    lstm.load(*arrays)
    spans = lstm.time_device(3)
    assert len(spans) == 3
    assert min(spans) > (1_000_000 if graph else 2_000_000)  # what the fake takes for a call
    assert lstm.time_device(0) == []
    assert error(lstm.outputs(), arrays) < 1e-5


def test_events_of_a_call_that_fails_are_freed(layer):
    lstm = layer(4, 4, 1, 1, algorithm="persist-static-small-h")
    lstm.load(*problem(4, 4, 1, 1))
    with pytest.raises(_cudnn.Unsupported, match="cudnnRNNForward"):
        lstm.time_device(1)


def test_versions(library):
    assert _cudnn.versions(library, library) == {
        "cudnn": "9.19.0",
        "cudart": "13.0",
        "cuda_driver": "13.1",
    }


# --- lstm_bench/frameworks/deepbench/session.py over it


@pytest.fixture
def session(library, fake, monkeypatch):
    """Makes sessions of the row with these options, which are closed when the test ends."""
    monkeypatch.setattr(deepbench.libraries, "cudnn", lambda: (library, library))
    made = []

    def build(hidden=8, inputs="device", shape=None, **options):
        layer = problems.make(shape or Shape(hidden, 2, 3, hidden), seed=1)
        settings = Settings(device="cuda", inputs=inputs)
        made.append(deepbench.build(layer, SimpleNamespace(options=options), settings))
        return made[-1]

    yield build
    for built in made:
        built.close()


@pytest.mark.parametrize("inputs", ["pinned", "pageable"])
def test_a_row_copies_x_and_y_as_the_settings_have_it(session, fake, inputs):
    built = session(inputs=inputs, graph=True)
    assert inputs in built.inputs_from
    fake.fake_set_lost_copies(TO_HOST)
    built.call()
    built.wait()
    assert np.isnan(built.outputs()[0]).all()
    fake.fake_set_lost_copies(0)
    built.call()
    built.wait()
    assert error(built.outputs(), problems.make(Shape(8, 2, 3, 8), seed=1).single) < 1e-5


@pytest.fixture
def steady(monkeypatch):
    """Trials that a busy machine does not disturb; the second of an algorithm is in a graph."""
    took = {"standard": [2.0, 1.0], "persist-static": [1.5, 1.5], "persist-dynamic": [0.5, 0.5]}

    def trial(built, give_up_s):
        built.time_each(1)
        return took[built.path.split()[-1]].pop(0)

    monkeypatch.setattr(deepbench, "trial", trial)


def test_the_peak_of_best_is_that_of_what_was_tried(session, monkeypatch):
    tried = []
    made = deepbench.BaselineSession.__init__

    def init(self, *arguments):
        made(self, *arguments)
        tried.append(sum(self.memory.values()))

    monkeypatch.setattr(deepbench.BaselineSession, "__init__", init)
    best = session(choose="best")
    assert best.device_peak() >= max(tried) + min(tried)  # two are alive at a time
    assert best.device_peak() > sum(best.memory.values())


@pytest.mark.parametrize(("hidden", "tried"), [(8, "4"), (70, "2")])  # 70: STANDARD alone
def test_best_passes_over_what_is_fast_and_wrong_or_refused(session, fake, steady, hidden, tried):
    fake.fake_set_wrong(DYNAMIC)
    best = session(hidden=hidden, choose="best")
    assert best.path.endswith(f"standard, graph (fastest of {tried})")


@pytest.fixture
def trials(monkeypatch, tmp_path):
    """The candidates that are tried, with a GPU and a place to keep the fastest."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "gpu_name", lambda: "a GPU")
    tried, trial = [], deepbench.trial

    def counted(built, give_up_s):
        tried.append(built.path)
        return trial(built, give_up_s)

    monkeypatch.setattr(deepbench, "trial", counted)
    return tried


def test_what_was_fastest_once_is_built_at_once(session, steady, trials):
    first = session(choose="best")
    first.close()
    trials.clear()
    best = session(choose="best")
    assert best.path == first.path == "cuDNN 9.19.0 persist-dynamic (fastest of 6)"
    assert not trials, "and the others are freed: see `fake`"
    best.call()
    best.wait()
    assert np.isfinite(best.outputs()[0]).all()


def test_another_shape_gpu_or_library_is_tried_anew(session, library, trials, monkeypatch):
    def tried(**changes):
        trials.clear()
        session(choose="best", **changes).close()
        return bool(trials)

    assert tried()
    assert not tried()
    assert tried(hidden=16)
    monkeypatch.setattr(cache, "gpu_name", lambda: "another GPU")
    assert tried()
    versions = {"cudnn": "9.20.0", "cudart": "13.0", "cuda_driver": "13.1"}
    monkeypatch.setattr(deepbench, "_cudnn", lambda: (_cudnn, (library, library), versions))
    assert tried()
    assert not tried()


def test_what_is_kept_and_no_longer_runs_is_chosen_anew(session, trials):
    session(choose="best").close()
    (path,) = cache.folder("choices", "lstm-bench").iterdir()
    path.write_text(path.read_text().replace("persist-dynamic", "persist-static-small-h"))
    best = session(choose="best")
    assert "persist-static-small-h" not in best.path
    best.close()
    path.write_text("torn")
    trials.clear()
    session(choose="best").close()
    assert trials


def test_without_a_gpu_nothing_is_kept(session, trials, monkeypatch):
    monkeypatch.setattr(cache, "gpu_name", lambda: "")
    session(choose="best").close()
    assert not cache.folder("choices", "lstm-bench").exists()


def test_an_algorithm_that_would_compile_for_too_long_is_not_tried(session, monkeypatch):
    monkeypatch.setattr(deepbench, "DYNAMIC_MOST", 2)
    with pytest.raises(Unsupported, match=r"very long .* at a hidden size above 2"):
        session(algorithm="persist-dynamic")
    best = session(choose="best")
    assert "persist-dynamic" not in best.path


def test_an_error_in_standard_itself_is_raised(session, fake):
    fake.fake_set_limit(100)
    with pytest.raises(MemoryError):
        session(choose="best")
