"""The limits of a machine: measured, kept, and a floor that nothing is below."""

import ctypes
import dataclasses
import json
from types import SimpleNamespace

import pytest
from conftest import compiled
from test_cudnn import headers
from test_persistent import H200, compiler

from lstm_bench.runs import store
from lstm_bench.worker import limits as measuring
from lstm_bench.worker.implementations import persistent

_persistent = pytest.importorskip("lstm_bench._persistent", reason="the extension was not built")
_openblas = pytest.importorskip("lstm_bench._openblas", reason="the extension was not built")


# --- measuring


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    built = tmp_path_factory.mktemp("fake") / "libfake_cuda.so"
    return compiled("fake_cuda.cpp", built, *headers())


@pytest.fixture
def gpu(library, monkeypatch):
    """A GPU that does everything in 10 ns a round, and products of any size at once."""
    if _persistent.absent_reason:
        pytest.skip(_persistent.absent_reason)

    def time_product(paths, precision, size, calls):
        return {"device": {"fp16": 2.0, "bf16": 1.0, "tf32": 4.0}[precision]}

    names = ("Launch", "time_limit", "Unsupported", "LibraryError")
    module = SimpleNamespace(**{name: getattr(_persistent, name) for name in names})
    module.time_product = time_product
    device = H200 | {"registers": 65536, "l2_bytes": 1 << 20}
    tools = (module, [library] * 3, SimpleNamespace(cached=lambda *_: b"code"), device)
    monkeypatch.setattr(persistent, "_tools", lambda: tools)
    monkeypatch.setattr(measuring, "FAR", 1 << 20)
    fake = ctypes.CDLL(library)
    fake.fake_set_late(0)
    yield fake
    fake.fake_set_late(0)


def test_a_gpu_is_measured_whole(gpu):
    found = measuring.measure("cuda", 1)
    assert sorted(found.exchange_s) == [1, 2, 4, 8, 16, 32, 64, 128, 132]
    assert found.matrix_flops["half"] == 4 * found.matrix_flops["tf32"] == 2 * 8192**3
    assert [level.name for level in found.levels][1:] == ["L2", "HBM"]
    assert found.levels[0].bytes == 132 * (4 * 65536 + H200["shared_bytes"])
    assert found.taken_in >= found.levels[1].bytes_per_s
    assert min(*found.exchange_s.values(), *found.cell_s.values(), found.call_s) > 0


def test_a_wait_without_end_is_an_error(gpu):
    gpu.fake_set_late(1)
    with pytest.raises(_persistent.LibraryError, match="shared with other work"):
        measuring.measure("cuda", 1)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100a"])
def test_the_kernels_compile_without_spilling(architecture):
    nvcc = compiler(architecture)
    code = nvcc.compile("limits.cu", {})
    assert all(f"limit_{name}".encode() in code for name in ("launch", "grid", "cluster", "read"))
    assert nvcc.spilled == 0, nvcc.log


def test_a_cpu_is_measured_with_the_threads_of_a_run():
    found = measuring.measure("cpu", 2)
    assert (found.device, found.cores, sorted(found.exchange_s)) == ("cpu", 2, [1, 2])
    assert found.vector_flops > 0
    rates = [level.bytes_per_s for level in found.levels]
    assert rates == sorted(rates, reverse=True)
    assert found.levels[-1].name == "memory"


def test_limits_survive_a_manifest():
    found = measuring.measure("cpu", 1)
    again = store.limits_of({"limits": json.loads(json.dumps(found.to_json()))})
    assert again == found
    assert dataclasses.replace(again, cores=2) != found
