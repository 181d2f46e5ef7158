"""The driver's hold on a worker process."""

import sys

import pytest

from lstm_bench import supervisor
from lstm_bench.model import LstmBenchError, Settings
from lstm_bench.registry import FRAMEWORKS, Framework
from lstm_bench.supervisor import WorkerProcess


@pytest.fixture
def worker(tmp_path):
    process = WorkerProcess("fake", "fake", sys.executable, Settings(threads=2), tmp_path / "log")
    yield process
    process.kill()


def test_a_worker_answers_and_ends_when_its_pipe_closes(worker):
    hello = worker.ask("hello", 30)
    assert hello["versions"]["numpy"]
    worker.close()
    assert worker._child.returncode == 0


def test_an_unknown_request_is_answered_with_a_reason(worker):
    assert worker.ask("dance", 30)["status"] == "crashed"


def test_what_a_framework_prints_goes_to_the_log(worker):
    arguments = {
        "key": "k",
        "implementation": {
            "name": "f",
            "framework": "fake",
            "precision": "fp32",
            "module": "fake",
            "options": {"fault": "error"},
        },
        "shape": {"hidden": 2, "batch": 1, "timesteps": 1, "input_size": 2},
        "sampling": {},
    }
    assert "RuntimeError" in worker.ask("prepare", 30, **arguments)["reason"]
    assert "about to commit error" in worker.log_tail()


def test_the_worker_loads_the_drivers_own_copy_and_none_of_its_packages(tmp_path):
    command = [sys.executable, "-S", "-c", "import lstm_bench"]
    bootstrap = supervisor._BOOTSTRAP.replace("from lstm_bench.worker import main\nmain()", "")
    check = bootstrap + "print(package.__file__, [p for p in sys.path if 'site-packages' in p])"
    import subprocess

    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode != 0
    done = subprocess.run(
        [sys.executable, "-S", "-c", check, str(supervisor._PACKAGE)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.split() == [str(supervisor._PACKAGE / "__init__.py"), "[]"]


def test_workers_obey_the_thread_count_stop_spinning_soon_and_see_no_gpu_on_a_cpu_run(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.delenv("KMP_BLOCKTIME", raising=False)
    env = supervisor.environment(Settings(device="cpu", threads=3))
    assert env["OMP_NUM_THREADS"] == env["OPENBLAS_NUM_THREADS"] == "3"
    assert env["KMP_BLOCKTIME"] == "1"
    assert env["CUDA_VISIBLE_DEVICES"] == "-1"
    monkeypatch.setenv("KMP_BLOCKTIME", "50")
    assert supervisor.environment(Settings())["KMP_BLOCKTIME"] == "50"


def test_a_probe_finds_what_is_there_and_what_is_not():
    there = supervisor.probe(sys.executable, FRAMEWORKS["fake"])
    assert there["missing"] == []
    assert there["versions"]["numpy"]
    gone = Framework("x", ("no_such_module", "no_such.child"), ("no-such",), "")
    assert supervisor.probe(sys.executable, gone)["missing"] == ["no_such_module", "no_such.child"]


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/true", "/etc/passwd", "/"])
def test_an_interpreter_that_is_none_is_named(python):
    with pytest.raises(LstmBenchError, match="--python fake=" + python):
        supervisor.probe(python, FRAMEWORKS["fake"])


def test_a_framework_can_have_an_interpreter_of_its_own():
    chosen = {"tensorflow": "/tf/python", "pytorch": "/pt/python"}
    assert supervisor.interpreter("tensorflow", chosen) == "/tf/python"
    assert supervisor.interpreter("apex", chosen) == "/pt/python"
    assert supervisor.interpreter("fake", chosen) == sys.executable
