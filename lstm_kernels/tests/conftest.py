"""A CUDA without a GPU for the tests, and a cache that they do not share."""

import shutil
from pathlib import Path

import pytest
from cases import compiled_once

from lstm_kernels import cache


@pytest.fixture(autouse=True)
def nothing_is_chosen_for_later(monkeypatch):
    """As where no driver names a GPU: on one that has a GPU, tests would answer each other."""
    monkeypatch.setattr(cache, "gpu_name", lambda: "")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A copy of the fake: a file of a module's own is a library with a state of its own."""
    built = compiled_once(tmp_path_factory, Path(__file__).parent / "fake_cuda.cpp")
    return str(shutil.copy(built, tmp_path_factory.mktemp("fake")))
