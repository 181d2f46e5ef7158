"""A CUDA without a GPU for the tests, and a cache that they do not share."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest
from cases import compiled

from lstm_kernels import cache

HERE = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def nothing_is_chosen_for_later(monkeypatch):
    """As where no driver names a GPU: on one that has a GPU, tests would answer each other."""
    monkeypatch.setattr(cache, "gpu_name", lambda: "")


@pytest.fixture(scope="session")
def built_fake_cuda(tmp_path_factory):
    """A CUDA without a GPU; compiled by the first pytest worker that needs it, for all."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # the workers' common one
    built = folder / "libfake_cuda.so"
    with (folder / "libfake_cuda.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            compiled(HERE / "fake_cuda.cpp", built.with_suffix(".new"))
            built.with_suffix(".new").rename(built)
    return built


@pytest.fixture(scope="module")
def library(built_fake_cuda, tmp_path_factory):
    """A copy: a file of a module's own is a library with a state of its own."""
    return str(shutil.copy(built_fake_cuda, tmp_path_factory.mktemp("fake")))
