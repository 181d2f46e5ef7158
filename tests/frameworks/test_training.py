"""A training step of every framework: the gradients are right, and no mistake in them passes.

On a GPU: `LSTM_BENCH_TRAINED_ON=cuda python -m pytest tests/frameworks/test_training.py`, by the
Python of each environment.
"""

import importlib
import os
import subprocess
import sys
import tempfile
from dataclasses import replace

import numpy as np
import pytest
from layers import SETTINGS, SHAPES, STACKS, built, checked, need, swap_gates, with_full_lengths

from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.types import TOLERANCES, Sampling, Shape, Unsupported, to_json
from lstm_bench.worker import gradient
from lstm_bench.worker import problem as problems
from lstm_bench.worker.timing import ProcessClock
from lstm_bench.worker.worker import Worker

pytestmark = [pytest.mark.frameworks, pytest.mark.xdist_group("frameworks")]

APART = ("keras-torch", "keras-jax")  # a process has one Keras on one backend
HERE = os.environ.get("LSTM_BENCH_TESTED_APART")
ON = os.environ.get("LSTM_BENCH_TRAINED_ON", "cpu")
TRAINED = ("pytorch", "libtorch", "tensorflow", "jax", *(["deepbench"] if ON == "cuda" else []))
ROWS = [
    row
    for row in IMPLEMENTATIONS.values()
    if ON in row.devices
    and row.precision != "int8"
    and row.computes == "lstm"
    and (row.framework == HERE if HERE else row.framework in TRAINED)
]
INFERENCE = ["onnxruntime", "openvino", "deepbench", "lstm-kernels", "pytorch-int8"]
#: What takes a second of compilation for each step and layer, and no lengths.
SMALL = Shape(5, 2, 4, 3, layers=2, directions=2)
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def trained(shape):
    return problems.make(replace(shape, training=True), seed=3)


def shapes_of(row):
    return [SHAPES[1]] if row.name == "pytorch-compile" else [*SHAPES, *STACKS]


def made(row, posed):
    """A session of the row; on a GPU some refuse a shape, and TF32 is set anew for each."""
    settings = row.settings_in(replace(SETTINGS, device=ON))
    if ON == "cpu":
        return built(row, posed, settings)
    need(row.framework)
    module = importlib.import_module(f"lstm_bench.frameworks.{row.module}.session")
    module.describe(settings)
    try:
        return module.build(posed, row, settings)
    except Unsupported as refused:
        pytest.skip(str(refused))


def tolerance_of(session, row):
    return TOLERANCES[session.precision or row.precision_on(SETTINGS)]


@pytest.mark.parametrize(
    ("row", "shape"),
    [(row, shape) for row in ROWS for shape in shapes_of(row)],
    ids=lambda value: getattr(value, "name", getattr(value, "label", "")),
)
def test_every_gradient_of_every_implementation_is_the_references(row, shape):
    posed = trained(shape)
    session = made(row, posed)
    try:
        check = checked(session, row, posed)
    except Unsupported as refused:  # cuDNN's persistent algorithms say so when they are called
        if ON == "cpu":
            raise
        pytest.skip(str(refused))
    assert check.passed, check.reason
    if session.two_passes:  # one after the other they do the same
        (times,) = session.time_passes(1, ProcessClock())
        assert min(times) > 0
        expected = problems.reference(posed)
        again = problems.check(
            session.outputs(), expected, tolerance_of(session, row), posed.lengths()
        )
        assert again.passed, again.reason


def of_one_step(posed, monkeypatch):
    """The answer of a row whose gradients of weights are those of one step, not of all."""
    through_time = gradient._through_time

    def last_alone(tape, *given):
        gates = through_time(tape, *given)
        gates[: -tape.h0.shape[0]] = 0
        return gates

    with monkeypatch.context() as patched:
        patched.setattr(gradient, "_through_time", last_alone)
        return problems.reference(posed)


def of_upstream(posed, change):
    """The answer of a row that takes the gradients of its outputs to be others."""
    changed = [array.copy() for array in posed.upstream]
    change(*changed)
    return problems.reference(replace(posed, upstream=tuple(changed)))


def walked_forwards(dy, dh, dc):
    half = dy.shape[2] // 2
    dy[:, :, half:] = dy[::-1, :, half:]


def no_gradient_passes(answer, expected, wrong, tolerance, lengths, places):
    """Each array at these places, put in the place of the right one, fails the check by name."""
    names = problems.names(expected)
    for place in places:
        given = [*expected[:3], *answer[3:]]
        given[place] = wrong(place)
        check = problems.check(tuple(given), expected, tolerance, lengths)
        assert not check.passed, names[place]
        assert names[place] in check.reason


@each_row
def test_no_mistake_in_a_gradient_passes_in_any_implementation(row, monkeypatch):
    posed = trained(SMALL if row.name == "pytorch-compile" else STACKS[0])
    session = made(row, posed)
    assert checked(session, row, posed).passed
    answer, expected = session.outputs(), problems.reference(posed)
    tolerance, lengths = tolerance_of(session, row), posed.lengths()
    weights = range(6, len(expected))

    def caught(wrong, places):
        no_gradient_passes(answer, expected, wrong, tolerance, lengths, places)

    alone = of_one_step(posed, monkeypatch)
    caught(lambda place: alone[place], weights)  # not accumulated over timesteps
    caught(lambda place: 2 * answer[place], weights)  # added to that of the call before
    caught(lambda place: swap_gates(answer[place]), weights)
    of_direction = [[*range(6 + 4 * place, 10 + 4 * place)] for place in range(4)]
    for one, other in ((0, 1), (2, 3)):  # exchanged directions
        pairs = dict(zip(of_direction[one], of_direction[other], strict=True))
        caught(lambda place, pairs=pairs: answer[pairs[place]], pairs)
    turned = of_upstream(posed, walked_forwards)
    caught(lambda place: turned[place], (3, *of_direction[3]))  # backwards in the wrong order
    for upstream, place in ((1, 4), (2, 5)):  # dh, dc of the last states
        dropped = of_upstream(posed, lambda *arrays, n=upstream: arrays[n].fill(0))
        caught(lambda _, dropped=dropped, place=place: dropped[place], (place,))
    caught(lambda place: np.zeros_like(answer[place]), range(3, len(expected)))
    if lengths:
        padded = problems.reference(with_full_lengths(posed))
        caught(lambda place: padded[place], range(3, len(expected)))


@pytest.mark.skipif(bool(HERE), reason="a framework of its own")
@pytest.mark.parametrize("name", INFERENCE)
def test_a_row_without_a_backward_pass_says_that_it_runs_inference_only(name):
    row = IMPLEMENTATIONS[name]
    need(row.framework)
    worker = Worker(row.module, SETTINGS)
    shape = to_json(Shape(8, 2, 3, 8, training=True))
    with pytest.raises(Unsupported, match="inference only"):
        worker.prepare("key", to_json(row), shape, to_json(Sampling()))


@pytest.mark.skipif(bool(HERE), reason="a framework of its own")
@pytest.mark.parametrize(("name", "parted"), [("pytorch-native", True), ("tf-mode2", False)])
def test_a_worker_checks_and_times_a_step_and_where_it_can_each_pass(name, parted):
    row = IMPLEMENTATIONS[name]
    need(row.framework)
    worker = Worker(row.module, SETTINGS)
    shape = to_json(Shape(37, 5, 9, 11, training=True))
    with tempfile.TemporaryFile() as references:
        worker.pose(shape, "lstm", references.fileno())
        sampling = to_json(Sampling(warmup_s=0.01))
        reply = worker.prepare("key", to_json(row), shape, sampling)
    assert reply["check"]["passed"]
    block = worker.measure("key", 1, sampling, 0.001)["block"]
    assert (block["forward_ns"] > 0, block["backward_ns"] > 0) == (parted, parted)
    assert worker.check("key")["check"]["passed"]
    worker.release("key")


@pytest.mark.parametrize("framework", [] if HERE else APART)
def test_all_this_holds_for_a_framework_that_needs_a_process_of_its_own(framework):
    need(framework)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", framework],
        env={**os.environ, "LSTM_BENCH_TESTED_APART": framework},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
