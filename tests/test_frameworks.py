"""Every framework, really called: same work, right answers, the path as recorded."""

import contextlib
import functools
import importlib
import importlib.util
import os
import shutil
import tempfile
from dataclasses import replace

import numpy as np
import pytest

from lstm_bench.model.registry import FRAMEWORKS, IMPLEMENTATIONS
from lstm_bench.model.types import TOLERANCES, Sampling, Settings, Shape, Unsupported, to_json
from lstm_bench.worker import problem as problems
from lstm_bench.worker.implementations import amp
from lstm_bench.worker.worker import Worker

pytestmark = [pytest.mark.frameworks, pytest.mark.xdist_group("frameworks")]

SETTINGS = Settings(device="cpu", threads=2)
#: All that run on a CPU; the baseline has tests of its own, and `fake` computes nothing.
ROWS = [
    r
    for r in IMPLEMENTATIONS.values()
    if "cpu" in r.devices and r.framework not in ("deepbench", "fake")
]
SHAPES = [
    Shape(hidden=16, batch=4, timesteps=6, input_size=16),
    Shape(hidden=7, batch=3, timesteps=5, input_size=11),
    Shape(hidden=1, batch=1, timesteps=1, input_size=1),
    Shape(hidden=13, batch=1, timesteps=9, input_size=2),
]
_described = set()


def built(row, problem, settings=SETTINGS):
    for name in FRAMEWORKS[row.framework].requires:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    if row.framework == "libtorch" and not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("no C++ compiler")
    module = importlib.import_module(f"lstm_bench.worker.implementations.{row.module}")
    if row.module not in _described:
        _described.add(row.module)
        module.describe(settings)
    try:
        return module.build(problem, row, settings)
    except Unsupported as refused:
        if row.name != "pytorch-amp" or autocast_runs():
            raise
        pytest.skip(str(refused))


@functools.cache
def autocast_runs():
    """Whether PyTorch itself, called plainly, runs an LSTM in any half precision on this CPU."""
    import torch

    for half in (torch.bfloat16, torch.float16):
        with contextlib.suppress(RuntimeError), torch.inference_mode():
            with torch.autocast("cpu", dtype=half):
                torch.nn.LSTM(8, 8)(torch.zeros(2, 1, 8))
            return True
    return False


def check_of(row, problem, truth=None):
    session = built(row, problem)
    session.call()
    session.wait()
    expected = problems.reference(truth or problem, row.computes)
    return problems.check(session.outputs(), expected, TOLERANCES[precision_of(session, row)])


def precision_of(session, row):
    return session.precision or row.precision_on(SETTINGS)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.label)
def test_every_implementation_gives_the_references_answer(row, shape):
    check = check_of(row, problems.make(shape, seed=3))
    assert check.passed, check.reason
    assert check.max_abs_error > 0


def swap_gates(w):
    i, f, g, o = np.split(w, 4)
    return np.concatenate([f, i, g, o])


MISTAKES = {
    "swapped input gates": lambda p: replace(p, w_ih=swap_gates(p.w_ih)),
    "swapped recurrent gates": lambda p: replace(p, w_hh=swap_gates(p.w_hh)),
    "dropped input bias": lambda p: replace(p, b_ih=0 * p.b_ih),
    "dropped recurrent bias": lambda p: replace(p, b_hh=0 * p.b_hh),
    "transposed weight": lambda p: replace(
        p, w_hh=np.concatenate([np.ascontiguousarray(b.T) for b in np.split(p.w_hh, 4)])
    ),
    "zero initial h": lambda p: replace(p, h0=0 * p.h0),
    "zero initial c": lambda p: replace(p, c0=0 * p.c0),
    "a NaN in the input": lambda p: replace(p, x=np.where(p.x == p.x.max(), np.nan, p.x)),
}


#: One row of each framework and precision: what is wrong is the same to all of them.
ONE_EACH = list({(r.framework, r.precision): r for r in reversed(ROWS)}.values())


@pytest.mark.parametrize("row", ONE_EACH, ids=lambda r: r.name)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught_in_any_framework_and_precision(row, mistake):
    problem = problems.make(SHAPES[0], seed=3)
    broken = MISTAKES[mistake](replace(problem, _shared={}))
    assert not check_of(row, broken, truth=problem).passed


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_every_implementation_says_which_path_ran_and_what_it_holds(row):
    says_its_path_and_what_it_holds(row)


def says_its_path_and_what_it_holds(row):
    session = built(row, problems.make(SHAPES[1], seed=3))
    session.call()
    assert session.path
    assert "cuDNN" not in session.path  # on a CPU
    size = 2 if row.precision in ("fp16", "bf16") else 4
    weights, biases = 4 * 7 * (7 + 11), 4 * 7
    held = session.memory["weights"]
    assert held in (size * (weights + biases), size * (weights + 2 * biases))  # added up, or not
    assert session.memory["inputs"] == size * (5 * 3 * 11 + 2 * 3 * 7)
    session.close()


def test_mode_1_and_mode_2_are_different_code_and_mode_0_on_a_cpu_is_mode_2():
    problem = problems.make(SHAPES[0], seed=3)
    products = {}
    for mode in (0, 1, 2):
        session = built(IMPLEMENTATIONS[f"tf-mode{mode}"], problem)
        session.call()
        graph = session.forward.get_concrete_function().graph.as_graph_def()
        nodes = [n for f in graph.library.function for n in f.node_def]
        products[mode] = sum(n.op == "MatMul" for n in nodes)
    assert products == {0: 2, 1: 8, 2: 2}


def test_the_thread_count_is_obeyed_and_told():
    for module in ("pytorch", "tensorflow"):
        if importlib.util.find_spec(FRAMEWORKS[module].requires[0]) is None:
            pytest.skip(f"{module} is not installed")
        described = importlib.import_module(f"lstm_bench.worker.implementations.{module}")
        if module == "pytorch":  # TensorFlow's is fixed once it has run
            assert described.describe(Settings(threads=1))["threads"] == 1
        assert described.describe(SETTINGS)["threads"] == 2


AMP_ROWS = [row for row in ROWS if row.precision == "amp"]


@pytest.mark.parametrize("row", AMP_ROWS, ids=lambda r: r.name)
def test_amp_runs_in_a_half_precision_and_says_which(row):
    session = built(row, problems.make(SHAPES[0], seed=3))
    session.call()
    assert session.precision in ("amp-fp16", "amp-bf16")


@pytest.mark.parametrize("half", ["fp16", "bf16"])
@pytest.mark.parametrize("row", AMP_ROWS, ids=lambda r: r.name)
def test_a_grid_can_force_the_precision_of_amp(row, half):
    problem = problems.make(SHAPES[0], seed=3)
    session = built(row, problem, replace(SETTINGS, amp=half))
    assert session.precision == f"amp-{half}"
    with contextlib.suppress(Unsupported):  # no CPU runs all of them
        session.call()
    if not hasattr(session, "result"):
        return
    check = problems.check(
        session.outputs(), problems.reference(problem), TOLERANCES[session.precision]
    )
    assert check.passed, check.reason


def test_the_worker_tells_the_precision_that_amp_ran_in_and_checks_to_it():
    row, shape = IMPLEMENTATIONS["pytorch-amp"], SHAPES[0]
    session = built(row, problems.make(shape, seed=3))
    worker = Worker("pytorch", SETTINGS)
    with tempfile.TemporaryFile() as shelf:
        worker.pose(to_json(shape), "lstm", shelf.fileno(), False)
    quick = to_json(Sampling(warmup_s=0.0, warmup_cap_s=0.0))
    reply = worker.prepare("key", to_json(row), to_json(shape), quick)
    assert reply["precision"] == session.precision
    assert reply["check"]["tolerance"] == TOLERANCES[session.precision]


def test_amp_takes_the_frameworks_default_and_what_runs_where_that_does_not():
    def runs(*halves):
        def call(_problem, half):
            if half not in halves:
                raise Unsupported(f"no {half} here")

        return call

    assert amp.precision(SETTINGS, runs("bf16", "fp16")) == "bf16"
    assert amp.precision(SETTINGS, runs("fp16")) == "fp16"
    assert amp.precision(replace(SETTINGS, device="cuda"), runs()) == "fp16"
    assert amp.precision(replace(SETTINGS, amp="bf16"), runs()) == "bf16"
    with pytest.raises(Unsupported, match="no bf16 here; no fp16 here"):
        amp.precision(SETTINGS, runs())


def test_amp_that_this_cpu_cannot_run_is_unsupported_with_the_frameworks_whole_word(monkeypatch):
    torch = pytest.importorskip("torch")
    row, problem = IMPLEMENTATIONS["pytorch-amp"], problems.make(SHAPES[0], seed=3)
    long = "could not create a primitive descriptor " + 30 * "for one reason or another "

    def refuse(*_: object) -> None:
        raise RuntimeError(f"{long}\nmore")

    monkeypatch.setattr(torch.nn.LSTM, "forward", refuse)
    with pytest.raises(Unsupported) as refused:
        built(row, problem, replace(SETTINGS, amp="fp16")).call()
    assert str(refused.value) == f"autocast to torch.float16 on this CPU: {long}"
