"""PyTorch and TensorFlow, really called: same work, right answers, the path as recorded."""

import importlib
import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from lstm_bench import problem as problems
from lstm_bench.model import TOLERANCES, Settings, Shape, Unsupported
from lstm_bench.registry import FRAMEWORKS, IMPLEMENTATIONS

pytestmark = [pytest.mark.frameworks, pytest.mark.xdist_group("frameworks")]

SETTINGS = Settings(device="cpu", threads=2)
ROWS = [
    r
    for r in IMPLEMENTATIONS.values()
    if r.framework in ("pytorch", "tensorflow") and "cpu" in r.devices
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
    module = importlib.import_module(f"lstm_bench.implementations.{row.module}")
    if row.module not in _described:
        _described.add(row.module)
        module.describe(settings)
    return module.build(problem, row, settings)


def check_of(row, problem, truth=None):
    session = built(row, problem)
    session.call()
    session.wait()
    expected = problems.reference(truth or problem, row.computes)
    return problems.check(session.outputs(), expected, TOLERANCES[row.precision_on(SETTINGS)])


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
    problem = problems.make(SHAPES[1], seed=3)
    session = built(row, problem)
    session.call()
    assert session.path in ("generic", "oneDNN")  # no cuDNN on a CPU
    weights = 4 * 7 * (7 + 11) + (2 if row.framework == "pytorch" else 1) * 4 * 7
    assert session.memory["weights"] == 4 * weights
    assert session.memory["inputs"] == 4 * (5 * 3 * 11 + 2 * 3 * 7)
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
        described = importlib.import_module(f"lstm_bench.implementations.{module}")
        if module == "pytorch":  # TensorFlow's is fixed once it has run
            assert described.describe(Settings(threads=1))["threads"] == 1
        assert described.describe(SETTINGS)["threads"] == 2


def test_amp_that_this_cpu_cannot_run_is_unsupported_with_the_frameworks_word(monkeypatch):
    torch = pytest.importorskip("torch")
    row, problem = IMPLEMENTATIONS["pytorch-amp"], problems.make(SHAPES[0], seed=3)

    def refuse(*_: object) -> None:
        raise RuntimeError("could not create a primitive descriptor\nmore")

    monkeypatch.setattr(torch.nn.LSTM, "forward", refuse)
    with pytest.raises(Unsupported, match=r"autocast to torch.float16 on this CPU: could not"):
        built(row, problem).call()
