"""The limits of a machine: measured, kept, and a floor that nothing is below."""

import ctypes
import dataclasses
import json
from types import SimpleNamespace

import pytest
from cases import H200, compiler
from conftest import only_run

from lstm_bench.analysis import results
from lstm_bench.features.limits import in_worker as measuring
from lstm_bench.features.limits import measure as driver_limits
from lstm_bench.model.errors import LstmBenchError
from lstm_bench.runs import store
from lstm_bench.worker import native
from lstm_kernels.compiler import slowed

_limits = pytest.importorskip("lstm_bench._limits", reason="the extension was not built")


pytestmark = pytest.mark.xdist_group("limits")  # measured once

#: A layer that is really called, no longer than it must be.
REAL = {
    "hidden": 8,
    "implementations": ["deepbench"],
    "sampling": {"rounds": 3, "max_rounds": 3, "warmup_s": 0.01, "warmup_cap_s": 0.02},
}

# --- measuring


@pytest.fixture
def gpu(library, monkeypatch):
    """A GPU that does everything in 10 ns a round, and products of any size at once."""

    def time_product(paths, precision, size, calls):
        return {"device": {"fp16": 2.0, "bf16": 1.0, "tf32": 4.0}[precision]}

    monkeypatch.setattr(_limits, "time_product", time_product)
    device = H200 | {"registers": 65536, "l2_bytes": 1 << 20}
    tools = ([library] * 3, SimpleNamespace(cached=lambda *_: b"code"), device)
    monkeypatch.setattr(measuring, "toolbox", lambda: tools)
    monkeypatch.setattr(measuring, "FAR", 1 << 20)
    fake = ctypes.CDLL(library)
    fake.fake_set_late(0)
    yield fake
    fake.fake_set_late(0)


def test_a_gpu_is_measured_whole(gpu):
    actual = measuring.measure("cuda", 1)
    assert sorted(actual.exchange_s) == [1, 2, 4, 8, 16, 32, 64, 128, 132]
    assert actual.matrix_flops["half"] == 4 * actual.matrix_flops["tf32"] == 2 * 8192**3
    assert [level.name for level in actual.levels][1:] == ["L2", "HBM"]
    assert actual.levels[0].bytes == 132 * (4 * 65536 + H200["shared_bytes"])
    assert actual.taken_in >= actual.levels[1].bytes_per_s
    assert min(*actual.exchange_s.values(), *actual.cell_s.values(), actual.call_s) > 0


def test_a_wait_without_end_is_an_error(gpu):
    gpu.fake_set_late(1)
    with pytest.raises(_limits.LibraryError, match="shared with other work"):
        measuring.measure("cuda", 1)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100a"])
def test_the_kernels_compile_without_spilling(architecture):
    nvcc = compiler(architecture)
    code, log = nvcc.compile(str(native.sources() / "limits.cu"), {})
    assert all(f"limit_{name}".encode() in code for name in ("launch", "grid", "cluster", "read"))
    assert not slowed(log), log


@pytest.fixture(scope="module")
def cpu():
    """The limits of two threads of this machine."""
    return measuring.measure("cpu", 2)


def test_a_cpu_is_measured_with_the_threads_of_a_run(cpu):
    actual = cpu
    assert (actual.device, actual.cores, sorted(actual.exchange_s)) == ("cpu", 2, [1, 2])
    assert actual.vector_flops > 0
    rates = [level.bytes_per_s for level in actual.levels]
    assert rates == sorted(rates, reverse=True)
    known = measuring._caches(2)  # not every machine says what caches it has
    assert [level.name for level in actual.levels] == ([*known, "memory"] if known else ["caches"])


def cache(folder, level, size, cpus, kind="Unified"):
    folder.mkdir(parents=True)
    known = {"level": level, "type": kind, "size": f"{size}K", "shared_cpu_list": cpus}
    for name, value in known.items():
        (folder / name).write_text(f"{value}\n")


def test_caches_count_as_often_as_the_threads_can_have_them(tmp_path, monkeypatch):
    for cpu in range(4):  # two cores of two threads each
        own = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"
        folder = tmp_path / f"cpu{cpu}" / "cache"
        cache(folder / "index0", 1, 32, own, "Data")
        cache(folder / "index1", 1, 32, own, "Instruction")
        cache(folder / "index2", 2, 1024, own)
        cache(folder / "index3", 3, 8192, "0-3")
    monkeypatch.setattr(measuring, "CPUS", tmp_path)
    monkeypatch.setattr(measuring.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert measuring._caches(1) == {"L1": 32 << 10, "L2": 1 << 20, "L3": 8 << 20}
    assert measuring._caches(4) == {"L1": 64 << 10, "L2": 2 << 20, "L3": 8 << 20}


def test_without_sizes_of_caches_all_is_as_near_as_can_be(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "CPUS", tmp_path)
    assert [level.name for level in measuring.measure("cpu", 1).levels] == ["caches"]


# --- keeping


def test_a_run_keeps_the_limits_of_its_machine(lstm_bench, write_grid, tmp_path, monkeypatch, cpu):
    asked = []
    monkeypatch.setattr(driver_limits, "measure", lambda *of: asked.append(of[1:]) or cpu)
    done = lstm_bench("grid", write_grid(**REAL), "--threads", "2")
    assert done.returncode == 0, done.stderr
    assert asked == [("cpu", 2)] * 2  # when it starts, and when it is over
    assert results.load(only_run(tmp_path)).limits == cpu
    assert "over limit" in done.stdout


def test_the_best_of_both_times_counts(lstm_bench, write_grid, tmp_path, monkeypatch, cpu):
    """Neighbours that slow a machine down as a run starts must not lower its limits."""
    slower = [dataclasses.replace(each, bytes_per_s=each.bytes_per_s / 2) for each in cpu.levels]
    slow = dataclasses.replace(
        cpu,
        vector_flops=cpu.vector_flops / 2,
        exchange_s={n: 2 * s for n, s in cpu.exchange_s.items()},
        levels=tuple(slower),
    )
    for number, order in enumerate(((cpu, slow), (slow, cpu))):
        times = iter(order)
        monkeypatch.setattr(driver_limits, "measure", lambda *_, times=times: next(times))
        done = lstm_bench("grid", write_grid(**REAL), "--run", str(number))
        assert done.returncode == 0, done.stderr
        assert results.load(tmp_path / "results" / str(number)).limits == cpu


def test_limits_of_another_machine_count_for_nothing(cpu):
    faster = dataclasses.replace(cpu, vector_flops=2 * cpu.vector_flops)
    assert cpu.better(faster).vector_flops == faster.vector_flops
    more = dict.fromkeys((*cpu.exchange_s, cpu.cores + 1), 1e-07)
    for other in (
        dataclasses.replace(faster, device="cuda"),
        dataclasses.replace(faster, cores=cpu.cores + 1, exchange_s=more),
        None,
    ):
        assert cpu.better(other) == cpu


def test_a_second_measurement_that_fails_leaves_the_first(
    lstm_bench, write_grid, tmp_path, monkeypatch, cpu
):
    answers = iter([cpu])

    def measure(*_):
        for answer in answers:
            return answer
        raise LstmBenchError("limits: no compiler")

    monkeypatch.setattr(driver_limits, "measure", measure)
    done = lstm_bench("grid", write_grid(**REAL))
    assert (done.returncode, "limits" in done.stderr) == (0, False)
    assert results.load(only_run(tmp_path)).limits == cpu


def test_limits_of_a_leg_on_another_cpu_count_for_nothing(
    lstm_bench, write_grid, tmp_path, monkeypatch, cpu
):
    monkeypatch.setattr(driver_limits, "measure", lambda *_: cpu)
    assert lstm_bench("grid", write_grid(**REAL)).returncode == 0
    folder = only_run(tmp_path)
    faster = dataclasses.replace(cpu, vector_flops=2 * cpu.vector_flops).to_json()
    leg = {"wall_s": 1.0, "timed_s": 1.0, "machine": {"cpu": "another"}, "limits": faster}
    with (folder / "legs.jsonl").open("a") as legs:
        legs.write(json.dumps(leg) + "\n")
    assert results.load(folder).limits == cpu


def test_a_run_of_a_virtual_clock_has_none(lstm_bench, write_grid, tmp_path, monkeypatch):
    monkeypatch.setattr(driver_limits, "measure", lambda *_: pytest.fail("measured"))
    done = lstm_bench("grid", write_grid())
    assert done.returncode == 0, done.stderr
    assert results.load(only_run(tmp_path)).limits is None
    assert "over limit" not in done.stdout


def test_a_run_goes_on_without_limits_and_says_why(lstm_bench, write_grid, tmp_path, monkeypatch):
    def fail(*_):
        raise LstmBenchError("limits: no compiler")

    monkeypatch.setattr(driver_limits, "measure", fail)
    done = lstm_bench("grid", write_grid(**REAL))
    assert done.returncode == 0, done.stderr
    assert "! limits: no compiler: the report will not say how far the limit is" in done.stderr
    assert results.load(only_run(tmp_path)).limits is None


def test_an_interpreter_without_the_extension_is_named():
    with pytest.raises(LstmBenchError, match="/no/such/python"):
        driver_limits.measure({"deepbench": "/no/such/python"}, "cpu", 1)


def test_doctor_measures_the_limits_and_writes_them_as_a_run_keeps_them(typed, tmp_path):
    words = ("doctor", "--limits", "--device", "cpu", "--threads", "1")
    assert typed(*words, "--output", "limits.json").returncode == 0
    kept = json.loads((tmp_path / "limits.json").read_text())
    assert store.limits_of(kept).cores == 1


def test_doctor_prints_the_limits(lstm_bench, monkeypatch, cpu):
    monkeypatch.setattr(driver_limits, "measure", lambda *_: cpu)
    assert "multiply-adds, fp32" in lstm_bench("doctor", "--limits", "--device", "cpu").stdout
    assert lstm_bench("doctor", "--threads", "1").returncode == 2
