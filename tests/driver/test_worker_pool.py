"""The driver's hold on a worker process."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import lstm_bench
import lstm_kernels
from lstm_bench.driver import worker_pool
from lstm_bench.driver.worker_pool import WorkerFailed, WorkerProcess
from lstm_bench.frameworks import FRAMEWORKS
from lstm_bench.frameworks.fake import session as fake
from lstm_bench.model.framework import Framework
from lstm_bench.model.types import (
    Implementation,
    LstmBenchError,
    Settings,
    Shape,
    Unsupported,
    to_json,
)
from lstm_bench.worker import worker as worker_module


def never():
    return False


@pytest.fixture
def worker(tmp_path):
    process = WorkerProcess("fake", "fake", sys.executable, Settings(threads=2), tmp_path / "log")
    yield process
    process.kill()


def test_a_worker_answers_and_ends_when_its_pipe_closes(worker):
    hello = worker.ask("hello", 30, never)
    assert hello.versions["numpy"]
    worker.close()
    assert worker._child.returncode == 0


def test_an_unknown_request_is_answered_with_a_reason(worker):
    assert worker.ask("dance", 30, never).status == "crashed"


def test_a_worker_loads_no_feature_for_requests_of_the_core():
    code = (
        "import sys\n"
        "from lstm_bench.model.types import Settings\n"
        "from lstm_bench.worker.worker import Worker\n"
        "worker = Worker('fake', Settings())\n"
        "for verb, fields in (('hello', {}), ('release', {'key': 'k'})):\n"
        "    worker.answer(verb, fields)\n"
        "print(*(name for name in sys.modules if 'in_worker' in name))"
    )
    words = worker_pool.with_package(sys.executable, code)
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == ""


def test_what_a_framework_prints_goes_to_the_log(worker):
    row = Implementation("f", "fake", "fp32", "fake", {"fault": "error"})
    arguments = {"key": "k", "implementation": to_json(row), "sampling": {}}
    arguments["shape"] = to_json(Shape(2, 1, 1, 2))
    assert "RuntimeError" in worker.ask("prepare", 30, never, **arguments).reason
    assert "about to commit error" in worker.log_tail()


CRASH = """I0000 a framework says something
Fatal Python error: Segmentation fault

Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 355 in wait

Current thread 0x00007f0000000000 (most recent call first):
{frames}
Extension modules: numpy._core._multiarray_umath, {modules} (total: 200)
"""
FRAMES = """  File "/x/cupti.py", line 130 in leave
  File "/x/cupti.py", line 76 in collect
"""


LAYER = '  File "/home/somebody/.venv/lib/python3.12/site-packages/keras/layer.py", line 1 in f\n'
SAYS = "I0000 a framework says something | Fatal Python error: Segmentation fault"


@pytest.mark.parametrize(
    ("frames", "modules", "tail"),
    [  # neither the list of modules, nor what another thread did
        (FRAMES, 400, SAYS + " | cupti.py leave < cupti.py collect"),
        ("  <no Python frame>\n", 400, SAYS),
        (FRAMES + 100 * LAYER, 1000, SAYS + " | cupti.py leave < cupti.py collect < layer.py f"),
    ],
)
def test_the_log_of_a_crash_ends_with_what_it_was_in(worker, frames, modules, tail):
    first = CRASH.format(frames=FRAMES.replace("leave", "hear"), modules="m")
    crash = CRASH.format(frames=frames, modules=modules * "m.odule, ")
    for before in ("", first):  # the last crash is shown
        worker.log.write_text(before + crash)
        assert worker.log_tail() == tail


def test_the_drivers_own_copy_is_loaded_and_nothing_else_put_on_the_path(tmp_path):
    python, option, code, *rest = worker_pool.with_package(
        sys.executable, "import lstm_bench; print(lstm_bench.__file__, sys.path == before)"
    )
    code = "import sys; before = list(filter(None, sys.path))\n" + code
    done = subprocess.run(
        [python, option, code, *rest], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.split() == [f"{worker_pool._PACKAGES[1]}/__init__.py", "True"]


def test_an_interpreter_that_has_neither_package_loads_the_drivers_own(tmp_path):
    venv.create(tmp_path / "bare")
    here = [str(Path(package.__file__).parent) for package in (lstm_bench, lstm_kernels)]
    code = "import lstm_bench as b, lstm_kernels.libraries as k; print(*b.__path__, k.__file__)"
    command = worker_pool.with_package(str(tmp_path / "bare/bin/python"), code)
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.split() == [here[0], f"{here[1]}/libraries.py"]


def test_a_probe_looks_into_this_copy_of_the_package_as_the_worker_does(tmp_path, monkeypatch):
    """It never loads none, as in a checkout that is not installed, nor another that is."""
    other = tmp_path / "lstm_bench"
    other.mkdir()
    (other / "__init__.py").touch()
    (other / "only_there.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    bare = tmp_path / "bare-python"  # without site-packages
    bare.write_text(f'#!/bin/sh\nexec {sys._base_executable} -S "$@"\n')
    bare.chmod(0o755)
    wanted = Framework("x", ("lstm_bench.worker.worker", "lstm_bench.only_there"), ("x",), "")
    assert worker_pool.probe(str(bare), wanted)["missing"] == ["lstm_bench.only_there"]


def test_an_interpreter_that_vanished_costs_a_cell_and_no_more(tmp_path):
    with pytest.raises(worker_pool.WorkerFailed, match="/no/python: No such file"):
        WorkerProcess("fake", "fake", "/no/python", Settings(), tmp_path / "log")


def test_workers_obey_the_thread_count_stop_spinning_soon_and_see_no_gpu_on_a_cpu_run(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.delenv("KMP_BLOCKTIME", raising=False)
    env = worker_pool.environment(Settings(device="cpu", threads=3))
    assert env["OMP_NUM_THREADS"] == env["OPENBLAS_NUM_THREADS"] == "3"
    assert env["KMP_BLOCKTIME"] == "1"
    assert env["CUDA_VISIBLE_DEVICES"] == "-1"
    assert env["ONEDNN_JIT_PROFILE"] == "0"  # no /tmp/perf-PID.map
    monkeypatch.setenv("KMP_BLOCKTIME", "50")
    assert worker_pool.environment(Settings())["KMP_BLOCKTIME"] == "50"


def test_a_probe_finds_what_is_there_and_what_is_not():
    there = worker_pool.probe(sys.executable, FRAMEWORKS["fake"])
    assert there["missing"] == []
    assert there["versions"]["numpy"]
    gone = Framework("x", ("no_such_module", "no_such.child"), ("no-such",), "")
    assert worker_pool.probe(sys.executable, gone)["missing"] == ["no_such_module", "no_such.child"]


def test_a_pipe_in_place_of_the_log_is_not_waited_for(tmp_path):
    log = tmp_path / "log"
    os.mkfifo(log)
    with pytest.raises(WorkerFailed, match="Illegal seek"):
        WorkerProcess("fake", "fake", sys.executable, Settings(), log)


def test_a_package_that_breaks_when_it_is_looked_into_is_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_one").mkdir()
    (tmp_path / "broken_one" / "__init__.py").write_text("raise AttributeError('torch is newer')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    broken = Framework("x", ("broken_one.amp",), ("no-such",), "")
    assert worker_pool.probe(sys.executable, broken)["missing"] == ["broken_one.amp"]


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/true", "/etc/passwd", "/"])
def test_an_interpreter_that_is_none_is_named(python):
    with pytest.raises(LstmBenchError, match=f"fake={python} .*no Python interpreter"):
        worker_pool.probe(python, FRAMEWORKS["fake"])


def test_a_framework_can_have_an_interpreter_of_its_own():
    chosen = {"tensorflow": "/tf/python", "pytorch": "/pt/python", "keras-jax": "/kj/python"}
    expected = {**chosen, "apex": "/pt/python", "keras-torch": "/pt/python", "fake": sys.executable}
    assert {name: worker_pool.interpreter(name, chosen) for name in expected} == expected


def test_a_log_that_grows_without_end_is_begun_anew(worker, monkeypatch):
    monkeypatch.setattr(worker_pool, "_MAX_LOG", 1000)
    worker.ask("hello", 60, never)
    for written, left in ((999, 999), (1001, 0)):
        worker.log.write_bytes(written * b"x")
        worker.ask("hello", 60, never)
        assert worker.log.stat().st_size == left


def test_nothing_is_taken_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "statistics.py").write_text("raise SystemExit(7)\n")
    (tmp_path / "a_framework").mkdir()
    monkeypatch.chdir(tmp_path)
    process = WorkerProcess("fake", "fake", sys.executable, Settings(threads=2), tmp_path / "log")
    assert process.ask("hello", 30, never).versions["numpy"]
    process.kill()
    wanted = Framework("x", ("a_framework",), ("x",), "")
    assert worker_pool.probe(sys.executable, wanted)["missing"] == ["a_framework"]


def test_every_framework_is_asked_for_numpy_which_its_worker_needs():
    assert all("numpy" in framework.requires for framework in FRAMEWORKS.values())


@pytest.mark.parametrize(
    "words",
    [
        "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 68719476736 bytes.",
    ],
    ids=["PyTorch on a CPU", "JAX"],
)
def test_out_of_memory_that_only_the_words_tell_is_no_crash(words):
    assert worker_module.failure(RuntimeError(words))["status"] == "oom"
    assert worker_module.failure(RuntimeError("something else"))["status"] == "crashed"


@pytest.mark.parametrize(("device", "woken"), [("cuda", 1), ("cpu", 0)])
def test_a_framework_that_takes_long_to_open_the_gpu_does_so_at_once(monkeypatch, device, woken):
    """The first cell reports what goes wrong in it."""
    calls = []

    def wake():
        calls.append(1)
        raise RuntimeError("no GPU answers")

    monkeypatch.setattr(fake, "wake", wake, raising=False)
    worker = worker_module.Worker("fake", Settings(device=device))
    worker.wake()
    assert len(calls) == woken
    assert worker.hello()["versions"]


def test_what_cannot_run_here_is_refused_when_it_is_asked(monkeypatch):
    def describe(settings):
        raise Unsupported("no such CPU")

    monkeypatch.setattr(fake, "describe", describe)
    worker = worker_module.Worker("fake", Settings())
    with pytest.raises(Unsupported, match="no such CPU"):
        worker.hello()
