"""LibTorch: compiled once, clear about what is missing; its answers: test_frameworks.py."""

import os
import shutil
import subprocess

import numpy as np
import pytest

from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.types import CARRIED_CALLS, Settings, Shape, Unsupported
from lstm_bench.worker import problem as problems
from lstm_bench.worker.timing import ProcessClock

pytest.importorskip("torch")
from lstm_bench.frameworks.libtorch import session as libtorch
from lstm_bench.worker import native
from lstm_kernels import cache

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.xdist_group("frameworks"),  # whose process has compiled it already
    pytest.mark.skipif(not shutil.which(os.environ.get("CXX", "g++")), reason="no C++ compiler"),
]
ROW = IMPLEMENTATIONS["libtorch"]
SHAPE = Shape(hidden=7, batch=3, timesteps=5, input_size=11)


def built(**settings):
    return libtorch.build(problems.make(SHAPE, seed=3), ROW, Settings(device="cpu", **settings))


def test_every_call_is_timed_and_called():
    session = built(state="carried")
    samples = session.time_each(3, ProcessClock())
    assert len(samples) == 3
    assert min(samples) > 0
    assert session.time_queued(CARRIED_CALLS - 3, ProcessClock()) > 0
    _, h, c = session.outputs()
    session.restart()
    for _ in range(CARRIED_CALLS):
        session.call()
    assert np.array_equal(session.outputs()[1], h)
    assert np.array_equal(session.outputs()[2], c)


def test_what_c_plus_plus_throws_is_an_exception_and_a_layer_can_be_closed_again():
    session = built()
    with pytest.raises(RuntimeError, match="undefined"):
        session.outputs()  # there was no call
    session.close()
    session.close()


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A source that compiles in no time, and a cache of its own."""
    functions = (
        f'extern "C" const char* layer_{verb}() {{ return nullptr; }}' for verb in libtorch.VERBS
    )
    (tmp_path / libtorch.SOURCE).write_text("\n".join(functions))
    monkeypatch.setattr(native, "sources", lambda: tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("change", ["source", "torch", "compiler"])
def test_what_changes_is_compiled_again(small, monkeypatch, change):
    libtorch._library()
    if change == "source":
        with (small / libtorch.SOURCE).open("a") as file:
            file.write("// more\n")
    elif change == "torch":
        monkeypatch.setattr(libtorch.torch, "__version__", "9.9")
    else:
        monkeypatch.setenv("CXX", "g++ -g")
    libtorch._library()
    assert len([*cache.folder("kernels", "lstm-bench").iterdir()]) == 2


@pytest.mark.parametrize("broken", [False, True])
def test_it_is_compiled_once_and_again_if_its_file_is_broken(small, monkeypatch, broken):
    libtorch._library()
    (compiled,) = cache.folder("kernels", "lstm-bench").iterdir()
    assert compiled.name.startswith("libtorch-")
    if broken:
        compiled.unlink()  # it is loaded: to write to it would break the process
        compiled.write_bytes(b"no library")
        libtorch._library()
    monkeypatch.setattr(subprocess, "run", None)  # nothing is compiled
    libtorch._library()


def test_without_a_place_to_keep_it_it_runs_all_the_same(small, monkeypatch):
    (small / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(small / "file"))
    assert not libtorch._library().layer_call()


def test_a_missing_compiler_is_named_with_what_brings_it(monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(Unsupported, match=r"/nowhere/c\+\+ is not on the PATH: .*g\+\+ 11"):
        built()


def test_missing_headers_are_named(monkeypatch):
    monkeypatch.setattr(libtorch, "HEADER", "torch/none.h")
    with pytest.raises(Unsupported, match=r"torch/none\.h is missing: pip install torch"):
        built()


def test_what_the_compiler_complains_about_is_told(small):
    (small / libtorch.SOURCE).write_text("int f() { return none; }")
    with pytest.raises(Unsupported, match=r"cannot compile libtorch\.cpp against torch.*none"):
        built()
