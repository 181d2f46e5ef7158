"""The rows of our layer in the place of nn.LSTM: what they measure, and what they refuse."""

from collections import Counter

import numpy as np
import pytest
from layers import checked

from lstm_bench.frameworks import IMPLEMENTATIONS, RENAMED, find, snippet
from lstm_bench.model.types import CARRIED_CALLS, INPUTS, Settings, Shape, Unsupported
from lstm_bench.report.colours import family_of, style_of
from lstm_bench.worker import problem as problems
from lstm_bench.worker.timing import ProcessClock

torch = pytest.importorskip("torch")

import lstm_kernels  # noqa: E402
from lstm_bench.frameworks.lstm_kernels import session as rows  # noqa: E402
from lstm_kernels import lstm  # noqa: E402

NAMES = [name for name, row in IMPLEMENTATIONS.items() if row.framework == "lstm-kernels"]
PROBLEM = problems.make(Shape(40, 3, 7, 24), seed=1)
CPU = Settings(device="cpu", threads=2)
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="it needs a GPU")


@pytest.fixture
def claimed(monkeypatch):
    """A layer that says its kernels take every call, on a CPU too; and who takes them really."""
    paths = Counter()
    monkeypatch.setattr(lstm.LSTM, "explain", lambda *_: "kernels: fp32, a plan")
    monkeypatch.setattr(lstm_kernels, "calls", lambda: dict(paths), raising=False)

    def forward(self, *inputs):
        paths[paths.path] += 1
        return torch.nn.LSTM.forward(self, *inputs)

    paths.path = "kernels"
    monkeypatch.setattr(lstm.LSTM, "forward", forward)
    return paths


def built(name="lstm-kernels", settings=CPU):
    return rows.build(PROBLEM, IMPLEMENTATIONS[name], settings)


def test_each_precision_has_a_row_as_called_and_one_in_a_graph():
    plain = ["lstm-kernels", "lstm-kernels-tf32", "lstm-kernels-half", "lstm-kernels-bf16"]
    graphs = [f"{name}-graph" for name in plain]
    assert sorted(NAMES) == sorted([*plain, *graphs, "lstm-kernels-int8"])
    for name in plain:
        row, graph = IMPLEMENTATIONS[name], IMPLEMENTATIONS[f"{name}-graph"]
        assert row.precision == graph.precision
        assert graph.devices == ("cuda",)
        assert [{**one.options} for one in (row, graph)] == [{}, {"way": "graph"}]
        assert all("LSTM.like(lstm)" in snippet(one, "cuda") for one in (row, graph))
        assert "CUDAGraph()" in snippet(graph, "cuda")


def test_a_layer_that_the_kernels_do_not_take_is_unsupported_with_their_reason(monkeypatch):
    monkeypatch.setattr(lstm.on_cpu, "missing", lambda: "the native library was not built")
    with pytest.raises(Unsupported, match=r"takes this call: the native library was not built"):
        built()


@pytest.mark.parametrize("name", [name for name in NAMES if "cpu" in IMPLEMENTATIONS[name].devices])
@pytest.mark.parametrize("lengths", ["", "7/1/4"])
@pytest.mark.parametrize("state", ["fixed", "carried"])
def test_on_a_cpu_the_kernels_themselves_give_the_right_answer(name, lengths, state):
    if lengths and state == "carried":
        pytest.skip("a grid refuses it")
    shape = Shape(40, 3, 7, 24, 2, 2, lengths) if lengths else Shape(40, 3, 7, 24)
    problem, row = problems.make(shape, seed=1), IMPLEMENTATIONS[name]
    session = rows.build(problem, row, Settings(device="cpu", threads=2, state=state))
    assert session.path.startswith({"lstm-kernels": "fp32"}.get(name, name[13:]))
    assert checked(session, row, problem, CARRIED_CALLS if state == "carried" else 1).passed
    assert len(session.time_each(2, ProcessClock())) == 2
    session.close()


def test_what_the_kernels_take_is_called_and_checked_and_says_its_plan(claimed):
    session = built()
    assert session.path == "fp32, a plan"
    assert checked(session, IMPLEMENTATIONS["lstm-kernels"], PROBLEM).passed
    assert len(session.time_each(2, ProcessClock())) == 2
    assert session.time_queued(2, ProcessClock()) > 0
    session.close()


@pytest.mark.parametrize("timed", ["time_each", "time_queued"])
def test_a_call_that_nn_lstm_took_is_no_time_of_the_kernels(claimed, timed):
    session = built()
    claimed.path = "an initial h above 32768"
    with pytest.raises(Unsupported, match="takes this call: an initial h above 32768"):
        getattr(session, timed)(1, ProcessClock())


def test_a_graph_of_calls_that_nn_lstm_took_is_refused(claimed, monkeypatch):
    def captured(self, *arguments):
        rows.KernelSession.__init__(self, *arguments)
        self.forward(self.x, self.state)

    monkeypatch.setattr(rows.Graph, "__init__", captured)
    assert built("lstm-kernels-graph").path == "fp32, a plan, graph"
    claimed.path = "a shape that is new while a graph is captured"
    with pytest.raises(Unsupported, match="new while a graph is captured"):
        built("lstm-kernels-graph")


def test_old_names_are_the_rows_that_measure_the_same():
    for old, new in RENAMED.items():
        assert find(old, "") == IMPLEMENTATIONS[new]
        assert find(f"{old}~other", "") == find(f"{new}~other", "")
        assert style_of(old) == style_of(new)
    assert family_of("lstm-kernels-tf32") == "lstm-kernels"
    assert family_of("pytorch-tf32~old@1") == "pytorch"


@cuda
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("state", ["fixed", "carried"])
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("-graph")])
def test_a_row_and_its_graph_give_the_same_right_bits(name, state, inputs):
    row = IMPLEMENTATIONS[name]
    settings = row.settings_in(Settings(device="cuda", state=state, inputs=inputs))
    rows.describe(settings)
    plain, graph = built(name, settings), built(f"{name}-graph", settings)
    calls = CARRIED_CALLS if state == "carried" else 1
    for session in (plain, graph):
        assert checked(session, row, PROBLEM, calls).passed
    assert plain.path.startswith({"half": "fp16"}.get(name[13:], name[13:] or "fp32"))
    assert graph.path == f"{plain.path}, graph"
    for one, other in zip(plain.outputs(), graph.outputs(), strict=True):
        assert np.array_equal(one, other)
    plain.time_each(1, ProcessClock())
