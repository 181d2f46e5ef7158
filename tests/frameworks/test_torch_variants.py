"""PyTorch's own ways to run the layer: each is what its name says, and leaves the others alone."""

import signal
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from layers import SETTINGS, checked

from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.types import (
    CARRIED_CALLS,
    INPUTS,
    TOLERANCES,
    Settings,
    Shape,
    Unsupported,
)
from lstm_bench.worker import problem as problems
from lstm_bench.worker.timing import ProcessClock

torch = pytest.importorskip("torch")

from lstm_bench.frameworks.pytorch import base as torch_session  # noqa: E402
from lstm_bench.frameworks.pytorch import session as pytorch  # noqa: E402
from lstm_bench.frameworks.pytorch import variants  # noqa: E402

pytestmark = [pytest.mark.frameworks, pytest.mark.xdist_group("frameworks")]

PROBLEM = problems.make(Shape(hidden=16, batch=2, timesteps=9, input_size=8), seed=3)
ROWS = {name: row for name, row in IMPLEMENTATIONS.items() if row.framework == "pytorch"}
ONEDNN = "aten::mkldnn_rnn_layer"
onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN"
)

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="it needs a GPU")


def built(name, problem=PROBLEM, settings=SETTINGS, **options):
    row = IMPLEMENTATIONS[name]
    return pytorch.build(problem, replace(row, options={**row.options, **options}), settings)


def same_bits(first, second):
    pairs = zip(first.outputs(), second.outputs(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def right(session):
    return problems.check(session.outputs(), problems.reference(PROBLEM), TOLERANCES["fp32"]).passed


def test_an_answer_that_is_not_copied_to_the_host_is_wrong(monkeypatch):
    session = built("pytorch", settings=replace(SETTINGS, inputs="pageable"))
    with monkeypatch.context() as broken:
        broken.setattr(torch.Tensor, "copy_", lambda self, *_, **__: self)
        session.call()
    assert not right(session)
    session.call()
    assert right(session)


def operators_of(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        call()
    return {event.name for event in profiler.events()}


def test_apex_patches_pytorch_once_in_a_process(monkeypatch):
    """A further time it would wrap what it has wrapped, deeper with each shape."""
    calls = []
    module = types.ModuleType("apex")
    module.amp = types.SimpleNamespace(initialize=lambda *a, **more: calls.append((a, more)))
    monkeypatch.setitem(sys.modules, "apex", module)
    pytorch._cast_by_apex.cache_clear()
    for _ in range(2):
        session = built("pytorch-apex", settings=replace(SETTINGS, amp="fp16"))
        session.call()
        assert (session.precision, right(session)) == ("amp-fp16", True)
    assert calls == [(([],), {"opt_level": "O1", "verbosity": 0})]
    pytorch._cast_by_apex.cache_clear()


CALLS = {
    "a call": lambda session: session.call(),
    "a timed call": lambda session: session.time_each(1, ProcessClock()),
    "a queued call": lambda session: session.time_queued(1, ProcessClock()),
}


@onednn
@pytest.mark.parametrize("call", CALLS)
def test_native_runs_without_onednn_and_pytorch_beside_it_with_it(call):
    native, plain = built("pytorch-native"), built("pytorch")
    for _ in range(2):
        assert ONEDNN not in operators_of(lambda: CALLS[call](native))
        assert ONEDNN in operators_of(lambda: CALLS[call](plain))
    assert (native.path, plain.path) == ("generic", "oneDNN")
    assert ONEDNN not in {part.name for part in native.operators(1).parts}


@onednn
@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if "cpu" in row.devices])
def test_no_row_turns_onednn_off_for_the_others(name):
    try:
        built(name).call()
    except Unsupported:
        pass
    assert torch.backends.mkldnn.enabled
    assert built("pytorch").path == "oneDNN"


def test_the_library_behind_a_row_is_found_without_the_profiler_that_slows_launches(monkeypatch):
    def start(*_, **__):
        pytest.fail("torch.profiler was started")

    session = built("pytorch")
    monkeypatch.setattr(torch.autograd.profiler, "_prepare_profiler", start)
    with pytest.raises(pytest.fail.Exception):
        operators_of(session.call)
    assert session.path in ("oneDNN", "generic")
    monkeypatch.setattr(torch_session, "_Operators", None)  # as in a PyTorch that has no other
    assert session.path == "not known"


def test_tf32_is_set_and_read_back():
    for wanted in (True, False):
        assert pytorch.describe(replace(SETTINGS, tf32=wanted))["tf32"] is wanted


@pytest.fixture
def nothing_given_up(monkeypatch):
    monkeypatch.setattr(variants.Compile, "given_up", {})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # once, at most
def test_a_compilation_that_takes_too_long_is_unsupported_and_not_tried_again(nothing_given_up):
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(Unsupported, match=r"^torch.compile took more than 0.001 s for 9 timesteps"):
        built("pytorch-compile", cap_s=0.001)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before
    longer = problems.make(replace(PROBLEM.shape, timesteps=10), seed=3)
    for problem, timesteps in ((PROBLEM, 9), (longer, 10)):
        with pytest.raises(Unsupported, match=f"{timesteps} are not tried"):
            built("pytorch-compile", problem, cap_s=0.001)
    session = built("pytorch-compile")  # the process goes on
    session.call()
    assert right(session)
    session.close()


def test_a_compiled_layer_is_compiled_when_it_is_built_and_never_again():
    sessions = [built("pytorch-compile") for _ in range(2)]
    counted = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for session in sessions * 2:
        session.call()
        assert "aten::lstm" not in operators_of(session.call)  # what the plain layer calls
        assert session.path.endswith(", compiled")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == counted
    for session in sessions:
        session.close()


def test_a_compiler_that_runs_the_layer_as_it_is_is_found_out(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    with pytest.raises(Unsupported, match="ran the layer as it is"):
        built("pytorch-compile")


def test_a_compiler_that_fails_is_unsupported_with_its_reason(monkeypatch):
    def fail(*_):
        raise torch._dynamo.exc.TorchDynamoException("no g++ here\nmore")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: fail)
    with pytest.raises(Unsupported, match=r"torch.compile: no g\+\+ here$"):
        built("pytorch-compile")


def test_int8_without_an_engine_is_unsupported(monkeypatch):
    monkeypatch.setattr(torch.backends.quantized.__class__, "supported_engines", ["none"])
    with pytest.raises(Unsupported, match=r"built without .* for int8"):
        built("pytorch-int8")


@cuda
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("state", ["fixed", "carried"])
@pytest.mark.parametrize(
    "name", [n for n, row in ROWS.items() if row.options.get("way") == "graph"]
)
def test_a_graph_gives_the_bits_of_the_calls_that_it_replays(name, state, inputs):
    settings = Settings(device="cuda", state=state, inputs=inputs)
    settings = IMPLEMENTATIONS[name].settings_in(settings)
    assert pytorch.describe(settings)["tf32"] is settings.tf32
    graph, plain = (built(n, settings=settings) for n in (name, name.removesuffix("-graph")))
    assert graph.path == f"{plain.path}, graph"
    for _ in range(2):
        for _ in range(3):
            graph.call()
            plain.call()
            assert same_bits(graph, plain)
        graph.restart()
        plain.restart()


@cuda
def test_a_compiled_layer_keeps_its_answer_when_another_is_called():
    settings = Settings(device="cuda")
    pytorch.describe(settings)
    sessions = [built("pytorch-compile", settings=settings) for _ in range(2)]
    for session in sessions:
        session.call()
    assert all(right(session) for session in sessions)
    assert all(session.path == "generic, compiled, graph" for session in sessions)


@cuda
def test_a_compiled_layer_carries_its_states_on_a_gpu():
    settings = Settings(device="cuda", state="carried")
    pytorch.describe(settings)
    session = built("pytorch-compile", settings=settings)
    assert checked(session, session.row, PROBLEM, CARRIED_CALLS).passed
