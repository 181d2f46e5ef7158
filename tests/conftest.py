"""The tests share these: small fake grids, and the command line as a user runs it."""

from __future__ import annotations

import functools
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, settings

#: Whoever else measures on this machine is not seen, nor warned of, by the tests; nor are those
#: that run beside them. It is set before the first import of the package.
_TOKEN = tempfile.TemporaryDirectory(prefix="lstm-bench-token-")
os.environ["LSTM_BENCH_TOKEN"] = f"{_TOKEN.name}/token"
os.environ.pop("PYTHONUNBUFFERED", None)  # it hides what is still to be written at the end

REPOSITORY = Path(__file__).resolve().parent.parent
#: `cases`: layers, and what they give in float64, as the tests of the library have them.
sys.path.append(str(REPOSITORY / "lstm_kernels" / "tests"))

from cases import compiled_once  # noqa: E402
from in_process import InProcess  # noqa: E402

from lstm_bench.analysis import results  # noqa: E402


def shipped_once(load: Callable[..., results.Run]) -> Callable[..., results.Run]:
    """Read each of the project's own runs once for all tests of a process: nobody changes them."""
    once = functools.cache(load)

    def read(folder: Path, metrics: Collection[str] = ("latency", "throughput", "device")) -> Any:
        own = folder.resolve().parent == REPOSITORY / "results"
        return (once if own else load)(folder, tuple(metrics))

    return read


results.load = shipped_once(results.load)  # before others import it by its name

from lstm_bench.cli import main  # noqa: E402
from lstm_bench.driver import worker_pool  # noqa: E402
from lstm_bench.features.limits import measure as limits  # noqa: E402
from lstm_bench.features.profile.in_worker import cupti  # noqa: E402
from lstm_bench.frameworks.fake import session as fake  # noqa: E402
from lstm_bench.model.errors import LstmBenchError  # noqa: E402
from lstm_bench.runs import grid  # noqa: E402
from lstm_bench.runs.plan import Plan  # noqa: E402
from lstm_kernels import cache  # noqa: E402

#: A grid that runs in a blink: virtual time, two shapes.
FAKE_GRID: dict[str, Any] = {
    "hidden": [3, 5],
    "batch": 2,
    "timesteps": 4,
    "implementations": ["fake"],
    "device": "cpu",
    "controls": 0,
    "sampling": {
        "rounds": 3,
        "max_rounds": 3,
        "warmup_s": 0.01,
        "warmup_cap_s": 0.1,  # of what never settles
        "timeout_s": 20,
    },
}


def plan_of(changes: dict[str, Any] | None = None, **options: Any) -> Plan:
    """The plan of a fake grid with some keys changed; a value of None leaves the key out."""
    data = {k: v for k, v in {**FAKE_GRID, **(changes or {})}.items() if v is not None}
    return grid.plan(data, Path("g.yaml"), device="cpu", threads=2, **options)


def interpreter(folder: Path, name: str, *lines: str) -> Path:
    """A Python of its own name, which does some more first."""
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", *lines, f'exec {sys.executable} "$@"\n']))
    path.chmod(0o755)
    return path


#: The same examples every time, however slow the machine; `--hypothesis-profile=long` tries other
#: ones each time, and fifty times as many.
slow = [HealthCheck.too_slow]
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=slow)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=slow)
settings.load_profile("same")


def at_most(examples: int) -> settings:
    """So many examples, or the profile's multiple of them."""
    return settings(max_examples=examples * settings().max_examples // 100)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=20, help="random kills in test_kill.py")
    parser.addoption("--cluster", action="store_true", help="start Ray clusters in test_ray.py")
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/ anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a whole text with a file of tests/golden, which `--update-golden` writes anew."""

    def check(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.write_text(text + "\n")
        assert (text + "\n").splitlines() == path.read_text().splitlines()

    return check


@pytest.fixture(autouse=True)
def nothing_is_chosen_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Act as if no driver named a GPU: on a machine with one, tests would answer each other."""
    monkeypatch.setattr(cache, "gpu_name", lambda: "")


@pytest.fixture
def write_grid(tmp_path: Path) -> Callable[..., Path]:
    """Write a fake grid with some keys changed; a value of None leaves the key out."""

    def write(name: str = "grid.yaml", **changes: Any) -> Path:
        data = {**FAKE_GRID, **changes}
        path = tmp_path / name
        path.write_text(yaml.safe_dump({k: v for k, v in data.items() if v is not None}))
        return path

    return write


@pytest.fixture
def quick_versions(in_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers in this process, as slow as what their interpreter sets."""

    class Scaled(InProcess):
        def __init__(self, name: str, module: str, python: str, *rest: Any, **named: Any):
            super().__init__(name, module, python, *rest, **named)
            script = "" if python == sys.executable else Path(python).read_text()
            self.scale = (script.partition("FAKE_SCALE=")[2].split() or ["1"])[0]

        def ask(self, *arguments: Any, **named: Any) -> Any:
            with pytest.MonkeyPatch.context() as patched:
                patched.setenv("LSTM_BENCH_FAKE_SCALE", self.scale)
                return super().ask(*arguments, **named)

    monkeypatch.setattr(worker_pool.Workers, "start", Scaled)


def unmeasured(*_: object) -> NoReturn:
    raise LstmBenchError("limits: not measured in tests")


@pytest.fixture
def in_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fakes answer in this process, unless the test is marked `processes`: it needs real ones."""
    if not request.node.get_closest_marker("processes"):
        monkeypatch.setattr(worker_pool.Workers, "start", InProcess)
        monkeypatch.setattr(fake, "_built", 0)  # as in a process that has just begun
        monkeypatch.setattr(gc, "collect", lambda: 0)  # slow beside pytest; fakes hold no memory
        monkeypatch.setattr(cupti, "find", lambda: "none.so")  # it sees no kernel of a fake
        monkeypatch.setattr(limits, "measure", unmeasured)  # it takes seconds; see test_limits.py


@pytest.fixture
def lstm_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: None
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Call the command line in an empty folder, in this process; what it raises is raised.

    `code` is the exit code that it must have.
    """

    def call(
        *arguments: object, code: int | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(tmp_path)
        words = [str(a) for a in arguments]
        done = CliRunner().invoke(
            main, words, prog_name="lstm-bench", catch_exceptions=False, **options
        )
        assert code in (None, done.exit_code), done.stdout + done.stderr
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)

    return call


@pytest.fixture
def typed(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line as a user does: a process of its own, its output into a pipe."""

    def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=300,
            **options,
        )

    return run


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "lstm_bench", *(str(a) for a in arguments)]


def start(cwd: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start the command line and go on; it leads a process group of its own."""
    return subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def records(run: Path) -> list[dict[str, Any]]:
    """A run's records as they stand in the file."""
    path = run / "records.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def only_run(folder: Path) -> Path:
    (run,) = (folder / "results").iterdir()
    return run


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A CUDA and a cuDNN without a GPU: a file of a module's own has a state of its own."""
    headers = f"-I{REPOSITORY}/lstm_kernels/src/lstm_kernels"
    built = compiled_once(tmp_path_factory, REPOSITORY / "tests/fake_cudnn.cpp", headers)
    return str(shutil.copy(built, tmp_path_factory.mktemp("fake")))
