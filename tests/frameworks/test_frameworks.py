"""Every framework, really called: same work, right answers, the path as recorded."""

import contextlib
import functools
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace

import numpy as np
import pytest

from lstm_bench.driver.worker_pool import WorkerProcess
from lstm_bench.frameworks import FRAMEWORKS, IMPLEMENTATIONS
from lstm_bench.model.types import (
    CARRIED_CALLS,
    TOLERANCES,
    Sampling,
    Settings,
    Shape,
    Unsupported,
    to_json,
)
from lstm_bench.worker import amp
from lstm_bench.worker import problem as problems
from lstm_bench.worker.worker import Worker, _followed

pytestmark = [pytest.mark.frameworks, pytest.mark.xdist_group("frameworks")]

SETTINGS = Settings(device="cpu", threads=2)
#: A process has one Keras on one backend: here TensorFlow's, and those below in a pytest each.
APART = ("keras-torch", "keras-jax")
HERE = os.environ.get("LSTM_BENCH_TESTED_APART")
#: All that run on a CPU; the baseline has tests of its own, and `fake` computes nothing.
ROWS = [
    r
    for r in IMPLEMENTATIONS.values()
    if "cpu" in r.devices
    and (r.framework == HERE if HERE else r.framework not in ("deepbench", "fake", *APART))
]
#: Of the baseline those whose precision has tests nowhere else.
CHECKED = [*ROWS, *(IMPLEMENTATIONS[f"deepbench-{p}"] for p in ("bf16", "int8") if not HERE)]
SHAPES = [
    Shape(hidden=37, batch=5, timesteps=9, input_size=11),
    Shape(hidden=131, batch=1, timesteps=1, input_size=64),
    Shape(hidden=1, batch=1, timesteps=9, input_size=1),
]
_described = set()


def need(framework):
    for name in FRAMEWORKS[framework].requires:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    if framework == "libtorch" and not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("no C++ compiler")


def built(row, problem, settings=SETTINGS):
    need(row.framework)
    module = importlib.import_module(f"lstm_bench.frameworks.{row.module}.session")
    if row.module not in _described:
        _described.add(row.module)
        module.describe(settings)
    try:
        return module.build(problem, row, settings)
    except Unsupported as refused:
        if row.name not in PLAINLY or runs_plainly(row.name):
            raise
        pytest.skip(str(refused))


def autocast(torch, half):
    with torch.autocast("cpu", dtype=getattr(torch, half)):
        torch.nn.LSTM(8, 8)(torch.zeros(2, 1, 8))


def in_bf16(torch):
    torch.nn.LSTM(8, 8, dtype=torch.bfloat16)(torch.zeros(2, 1, 8, dtype=torch.bfloat16))


def in_int8(torch, engine):
    torch.backends.quantized.engine = engine
    layer = torch.nn.Sequential(torch.nn.LSTM(8, 8))
    made = torch.ao.quantization.quantize_dynamic(layer, {torch.nn.LSTM}, torch.qint8)
    made(torch.zeros(2, 1, 8))


def compiled(torch):
    with torch._dynamo.config.patch(allow_rnn=True):
        torch.compile(torch.nn.LSTM(8, 8), fullgraph=True)(torch.zeros(2, 1, 8))


#: What a machine may refuse, and the same in plain PyTorch, in each way that would do.
PLAINLY = {
    "pytorch-amp": [functools.partial(autocast, half=h) for h in ("bfloat16", "float16")],
    "pytorch-bf16": [in_bf16],
    "pytorch-int8": [functools.partial(in_int8, engine=e) for e in ("qnnpack", "x86", "fbgemm")],
    "pytorch-compile": [compiled],
}


@functools.cache
def runs_plainly(name):
    """Whether PyTorch itself, without this package, does on this CPU what the row does."""
    import torch

    for call in PLAINLY[name]:
        with contextlib.suppress(Exception), torch.inference_mode():
            call(torch)
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


def as_on_a_gpu(row):
    """A session on this CPU that takes its device for a GPU, and where it must wait for that."""
    session, on_gpu = built(row, problems.make(SHAPES[0], 1)), replace(SETTINGS, device="cuda")
    if row.framework == "pytorch":
        import torch

        made = type(session)(session.layer, session.x, session.state, row, on_gpu)
        return made, torch.cuda, "synchronize"
    import tensorflow as tf

    made = type(session)(session.layer, (session.x, *session.start), on_gpu, False)
    return made, tf.test.experimental, "sync_devices"


@pytest.mark.skipif(bool(HERE), reason="a framework of its own")
@pytest.mark.parametrize("name", ["pytorch", "tf-mode2"])
def test_on_a_gpu_a_session_waits_for_what_it_has_queued(name, monkeypatch):
    row, waits = IMPLEMENTATIONS[name], []
    _, module, function = as_on_a_gpu(row)
    monkeypatch.setattr(module, function, lambda: waits.append(function))
    session, *_ = as_on_a_gpu(row)
    session.call()
    assert not waits
    session.wait()
    assert waits == [function]


@pytest.mark.parametrize("row", CHECKED, ids=lambda r: r.name)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.label)
def test_every_implementation_gives_the_references_answer(row, shape):
    check = check_of(row, problems.make(shape, seed=3))
    assert check.passed, check.reason
    assert check.max_abs_error > 0


@pytest.mark.parametrize("row", CHECKED, ids=lambda r: r.name)
def test_carried_states_go_from_call_to_call_and_a_restart_begins_again(row):
    problem = problems.make(SHAPES[0], seed=3)
    session = built(row, problem, replace(SETTINGS, state="carried"))
    if not session.carries:
        pytest.skip(f"{row.name} carries no state")
    expected = problems.reference(problems.repeated(problem, CARRIED_CALLS), row.computes)
    for _ in range(2):  # the second starts where the first one left, unless it is restarted
        check = problems.check(_followed(session), expected, TOLERANCES[precision_of(session, row)])
        assert check.passed, check.reason


#: Whose `build` does on a CPU what it does on a GPU with x in pageable memory.
FROM_HOST = [r for r in ROWS if r.framework not in ("onnxruntime", "openvino")]


@pytest.mark.parametrize("row", FROM_HOST, ids=lambda r: r.name)
@pytest.mark.parametrize("state", ["fixed", "carried"])
def test_y_is_in_host_memory_when_x_was_there(row, state):
    problem = problems.make(SHAPES[0], seed=3)
    session = built(row, problem, replace(SETTINGS, inputs="pageable", state=state))
    assert "pageable" in session.inputs_from
    calls = CARRIED_CALLS if state == "carried" else 1
    expected = problems.reference(problems.repeated(problem, calls), row.computes)
    found = _followed(session) if calls > 1 else called(session)
    check = problems.check(found, expected, TOLERANCES[precision_of(session, row)])
    assert check.passed, check.reason
    assert session.memory["inputs"] < built(row, problem).memory["inputs"]
    assert session.path == built(row, problem).path


def called(session):
    session.call()
    session.wait()
    return session.outputs()


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
ONE_EACH = list({(r.framework, r.precision): r for r in reversed(CHECKED)}.values())


@pytest.mark.parametrize("row", ONE_EACH, ids=lambda r: r.name)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught_in_any_framework_and_precision(row, mistake):
    problem = problems.make(SHAPES[0], seed=3)
    broken = MISTAKES[mistake](replace(problem, _shared={}))
    has_no_number = "NaN" in mistake and row.precision == "int8"  # and may say so
    with contextlib.suppress(RuntimeError) if has_no_number else contextlib.nullcontext():
        assert not check_of(row, broken, truth=problem).passed


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_every_implementation_says_which_path_ran_and_what_it_holds(row):
    says_its_path_and_what_it_holds(row)


def says_its_path_and_what_it_holds(row):
    s = SHAPES[0]
    session = built(row, problems.make(s, seed=3))
    session.call()
    assert session.path
    assert "cuDNN" not in session.path  # on a CPU
    size = 2 if row.precision in ("fp16", "bf16") else 4
    weights, biases = 4 * s.hidden * (s.hidden + s.input_size), 4 * s.hidden
    held = session.memory["weights"]
    if row.precision == "int8":  # the biases are not, nor are scales, which are one a row at most
        assert weights + size * biases <= held <= weights + size * 6 * biases
    else:
        assert held in (size * (weights + biases), size * (weights + 2 * biases))  # added, or not
    inputs = s.timesteps * s.batch * s.input_size + 2 * s.batch * s.hidden
    assert session.memory["inputs"] == size * inputs
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


@pytest.mark.parametrize("module", ["pytorch", "tensorflow"])
def test_the_thread_count_is_obeyed_and_told(module):
    need(module)
    described = importlib.import_module(f"lstm_bench.frameworks.{module}.session")
    if module == "pytorch":  # TensorFlow's is fixed once it has run
        assert described.describe(Settings(threads=1))["threads"] == 1
    assert described.describe(SETTINGS)["threads"] == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_jax_starts_as_many_threads_as_it_is_given(threads, tmp_path):
    need("jax")
    settings = Settings(threads=threads)
    process = WorkerProcess("jax", "jax", sys.executable, settings, tmp_path / "log")
    assert process.ask("hello", 60, lambda: False).threads == threads
    process.kill()


@pytest.mark.parametrize(
    ("name", "path"), [("tf-mode2", "generic"), ("tf-xla", "XLA"), ("jax-scan", "XLA, loop")]
)
def test_what_xla_compiles_is_told_from_what_it_does_not(name, path):
    session = built(IMPLEMENTATIONS[name], problems.make(SHAPES[0], seed=3))
    session.call()
    assert session.path == path


def test_the_weights_for_jax_on_cudnn_are_laid_out_as_its_own_reference_reads_them(monkeypatch):
    need("jax")
    from jax.experimental import rnn

    def without_a_gpu(x, h, c, weights, lengths, **layer):
        sizes = (layer["input_size"], layer["hidden_size"], 1, False)
        return rnn.lstm_ref(
            x, h, c, *rnn.unpack_lstm_weights(weights, *sizes), seq_lengths=lengths, **layer
        )

    monkeypatch.setattr(rnn, "lstm", without_a_gpu)
    check = check_of(IMPLEMENTATIONS["jax-cudnn"], problems.make(SHAPES[1], seed=3))
    assert check.passed, check.reason


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
    with tempfile.TemporaryFile() as references:
        worker.pose(to_json(shape), "lstm", references.fileno(), False)
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
