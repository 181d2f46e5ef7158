"""Every framework, really called: same work, right answers, the path as recorded."""

import contextlib
import importlib
import os
import subprocess
import sys
import tempfile
from dataclasses import replace

import pytest
from layers import (
    MISTAKES,
    SETTINGS,
    SHAPES,
    STACK_MISTAKES,
    STACKS,
    built,
    called,
    checked,
    need,
    says_its_path_and_what_it_holds,
)

from lstm_bench.driver.worker_pool import WorkerProcess
from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.types import (
    CARRIED_CALLS,
    TOLERANCES,
    Sampling,
    Settings,
    Unsupported,
    to_json,
)
from lstm_bench.worker import amp
from lstm_bench.worker import problem as problems
from lstm_bench.worker.worker import Worker

pytestmark = [pytest.mark.frameworks, pytest.mark.xdist_group("frameworks")]

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
#: The rows of the baseline whose precision has tests nowhere else.
CHECKED = [*ROWS, *(IMPLEMENTATIONS[f"deepbench-{p}"] for p in ("bf16", "int8") if not HERE)]
PROBLEM = problems.make(SHAPES[0], seed=3)

each_row = pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)


def right(session, row, problem=PROBLEM, calls=1):
    check = checked(session, row, problem, calls)
    assert check.passed, check.reason
    return check


@pytest.mark.parametrize("row", CHECKED, ids=lambda r: r.name)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.label)
def test_every_implementation_gives_the_references_answer(row, shape):
    problem = problems.make(shape, seed=3)
    assert right(built(row, problem), row, problem).max_abs_error > 0


def built_stack(row, problem):
    if row.name == "pytorch-compile" and problem.lengths():
        with pytest.raises(Unsupported, match="packed sequence"):
            built(row, problem)
        pytest.skip("it takes no packed sequence")
    try:
        return built(row, problem)
    except Unsupported as refused:
        if str(refused) != only_plainest(problem):
            raise
        pytest.skip(str(refused))


def only_plainest(problem):
    """The words of a framework that runs the plainest layer alone."""
    with pytest.raises(Unsupported) as refused:
        _ = problem.single
    return str(refused.value)


@each_row
@pytest.mark.parametrize("shape", STACKS[1:], ids=lambda s: s.label)
def test_every_implementation_runs_stacks_directions_and_lengths(row, shape):
    problem = problems.make(shape, seed=3)
    assert right(built_stack(row, problem), row, problem).max_abs_error > 0


@each_row
def test_every_implementation_runs_the_whole_of_a_stack_and_no_mistake_in_it_agrees(row):
    session = built_stack(row, problem := problems.make(STACKS[0], seed=3))
    assert right(session, row, problem).max_abs_error > 0
    answer = session.outputs()
    tolerance = TOLERANCES[session.precision or row.precision_on(SETTINGS)]
    for mistake, make in STACK_MISTAKES.items():
        expected = problems.reference(make(problem), row.computes)
        assert not problems.check(answer, expected, tolerance, problem.lengths()).passed, mistake


@pytest.mark.parametrize("row", CHECKED, ids=lambda r: r.name)
def test_carried_states_go_from_call_to_call_and_a_restart_begins_again(row):
    session = built(row, PROBLEM, replace(SETTINGS, state="carried"))
    if not session.carries:
        pytest.skip(f"{row.name} carries no state")
    right(session, row, calls=CARRIED_CALLS)


#: The rows whose `build` does on a CPU what it does on a GPU with x in pageable memory.
FROM_HOST = [r for r in ROWS if r.framework not in ("onnxruntime", "openvino")]


@pytest.mark.parametrize("row", FROM_HOST, ids=lambda r: r.name)
@pytest.mark.parametrize("state", ["fixed", "carried"])
def test_y_is_in_host_memory_when_x_was_there(row, state):
    session = built(row, PROBLEM, replace(SETTINGS, inputs="pageable", state=state))
    if "pageable" not in session.inputs_from:
        pytest.skip(f"{row.name} takes x from its device alone")
    right(session, row, calls=CARRIED_CALLS if state == "carried" else 1)
    plain = built(row, PROBLEM)
    assert session.memory["inputs"] < plain.memory["inputs"]
    assert session.path == plain.path


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


#: One row of each framework and precision: what is wrong is the same to all of them.
ONE_EACH = list({(r.framework, r.precision): r for r in reversed(CHECKED)}.values())


@pytest.mark.parametrize("row", ONE_EACH, ids=lambda r: r.name)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught_in_any_framework_and_precision(row, mistake):
    broken = MISTAKES[mistake](replace(PROBLEM, _shared={}))
    has_no_number = "NaN" in mistake and row.precision == "int8"  # and may say so
    with contextlib.suppress(RuntimeError) if has_no_number else contextlib.nullcontext():
        assert not checked(built(row, broken), row, PROBLEM).passed


@each_row
def test_every_implementation_says_which_path_ran_and_what_it_holds(row):
    says_its_path_and_what_it_holds(row)


def as_on_a_gpu(row):
    """A session on this CPU that takes its device for a GPU, and where it must wait for that."""
    session, on_gpu = built(row, problems.make(SHAPES[0], 1)), replace(SETTINGS, device="cuda")
    if row.framework == "pytorch":
        import torch

        made = type(session)(session.layer, session.x, session.state, row, on_gpu)
        return made, torch.cuda, "synchronize"
    import tensorflow as tf

    made = type(session)(session.stack, None, (session.x, *session.start), on_gpu, False)
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


@pytest.mark.parametrize(("mode", "products"), [(0, 2), (1, 8), (2, 2)])
def test_mode_1_and_mode_2_are_different_code_and_mode_0_on_a_cpu_is_mode_2(mode, products):
    session = built(IMPLEMENTATIONS[f"tf-mode{mode}"], PROBLEM)
    session.call()
    graph = session.forward.get_concrete_function().graph.as_graph_def()
    nodes = [n for f in graph.library.function for n in f.node_def]
    assert sum(n.op == "MatMul" for n in nodes) == products


@pytest.mark.parametrize("module", ["pytorch", "tensorflow"])
def test_the_thread_count_is_obeyed_and_reported(module):
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
def test_the_path_says_whether_xla_compiled_the_layer(name, path):
    session = built(IMPLEMENTATIONS[name], PROBLEM)
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
    row, problem = IMPLEMENTATIONS["jax-cudnn"], problems.make(SHAPES[1], seed=3)
    right(built(row, problem), row, problem)


@pytest.mark.parametrize("half", ["auto", "fp16", "bf16"])
@pytest.mark.parametrize("row", [r for r in ROWS if r.precision == "amp"], ids=lambda r: r.name)
def test_amp_runs_in_the_half_precision_that_the_grid_names_or_says_which(row, half):
    session = built(row, PROBLEM, replace(SETTINGS, amp=half))
    assert session.precision in ([f"amp-{half}"] if half != "auto" else ["amp-fp16", "amp-bf16"])
    try:
        called(session)
    except Unsupported:  # no CPU runs all of them
        assert half != "auto"
        return
    right(session, row)


def test_a_worker_reports_the_precision_that_amp_ran_in_and_checks_to_it():
    row, shape = IMPLEMENTATIONS["pytorch-amp"], SHAPES[0]
    session = built(row, PROBLEM)
    worker = Worker("pytorch", SETTINGS)
    with tempfile.TemporaryFile() as references:
        worker.pose(to_json(shape), "lstm", references.fileno())
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
    long = "could not create a primitive descriptor " + 30 * "for one reason or another "

    def refuse(*_: object) -> None:
        raise RuntimeError(f"{long}\nmore")

    monkeypatch.setattr(torch.nn.LSTM, "forward", refuse)
    with pytest.raises(Unsupported) as refused:
        built(IMPLEMENTATIONS["pytorch-amp"], PROBLEM, replace(SETTINGS, amp="fp16")).call()
    assert str(refused.value) == f"autocast to torch.float16 on this CPU: {long}"
