"""The library that runs is named by its own word, not by what a framework was built for."""

import ctypes

import pytest
from cases import compiled

from lstm_bench.worker import loaded_libraries


@pytest.fixture
def cudnn(tmp_path, monkeypatch):
    """The stand-in for cuDNN, loaded as a framework would; it says that it is 9.19."""
    source = tmp_path / "cudnn.cpp"
    source.write_text('extern "C" unsigned long cudnnGetVersion() { return 91900; }')
    path = compiled(str(source), tmp_path / "libcudnn.so.9")
    ctypes.CDLL(path)
    maps = tmp_path / "maps"
    maps.write_text(f"7f00-7f01 r-xp 00000000 fd:00 42    {path}\n7f02-7f03 rw-p 0 0 0 [stack]\n")
    monkeypatch.setattr(loaded_libraries, "MAPS", maps)
    return path


def test_a_path_may_have_blanks(tmp_path, monkeypatch):
    (tmp_path / "maps").write_text(
        "7f00-7f01 r-xp 00000000 fd:00 42    /my env/lib/libcudnn.so.9\n"
    )
    monkeypatch.setattr(loaded_libraries, "MAPS", tmp_path / "maps")
    assert loaded_libraries.path("libcudnn.so") == "/my env/lib/libcudnn.so.9"


def test_the_loaded_cudnn_says_which_it_is(cudnn):
    assert loaded_libraries.path("libcudnn.so") == cudnn
    assert loaded_libraries.cudnn() == "9.19.0"


@pytest.mark.parametrize("maps", [None, "", "7f00-7f01 r-xp 0 0 0 /usr/lib/libcudnn_ops.so.9\n"])
def test_none_is_named_where_none_is_loaded(tmp_path, monkeypatch, maps):
    if maps is not None:  # a system may have none
        (tmp_path / "maps").write_text(maps)
    monkeypatch.setattr(loaded_libraries, "MAPS", tmp_path / "maps")
    assert loaded_libraries.cudnn() == ""
