"""Is this machine fit to measure on: what doctor finds, and what it makes of it."""

import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_nvml import FakeNvml

from lstm_bench.analysis import noise, results
from lstm_bench.commands.machine import doctor_
from lstm_bench.commands.run import run
from lstm_bench.driver import doctor, machine, preflight
from lstm_bench.frameworks import FRAMEWORKS, IMPLEMENTATIONS
from lstm_bench.model.types import LstmBenchError, Sampling, Settings
from lstm_bench.runs.choice import RunOptions


def package(site, name, files):
    """A distribution as pip leaves it: its files, metadata, and a list of the files it owns."""
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).touch()
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


@pytest.fixture
def python_with(tmp_path):
    """An interpreter that sees the packages of one folder."""

    def make(site):
        wrapper = tmp_path / "python"
        wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n')
        wrapper.chmod(0o755)
        return str(wrapper)

    return make


def test_two_cudnn_packages_in_one_environment_are_seen(tmp_path, python_with):
    site = tmp_path / "site"
    library = "nvidia/cudnn/lib/libcudnn.so.9"
    package(site, "nvidia-cudnn-cu12", [library, "nvidia/cudnn/lib/libcudnn_adv.so.9"])
    package(site, "nvidia-cudnn-cu13", [library, "nvidia/cudnn/include/cudnn.h"])
    package(site, "unrelated", [library])
    actual = doctor.clashes(python_with(site))
    assert actual == [(["nvidia-cudnn-cu12", "nvidia-cudnn-cu13"], 1)]
    package(tmp_path / "other", "nvidia-cudnn-cu13", [library])
    assert doctor.clashes(python_with(tmp_path / "other")) == []
    assert doctor.clashes("/no/such/python") == []


def survey(missing=()):
    return {
        name: {
            "missing": [m for m in framework.requires if m in missing],
            "versions": dict.fromkeys(framework.distributions, "1"),
            "interpreter": sys.executable,
        }
        for name, framework in FRAMEWORKS.items()
    }


def test_what_cannot_run_is_listed_with_what_would_change_it():
    actual = doctor.availability(IMPLEMENTATIONS.values(), survey(missing=("tensorflow",)), "cpu")
    lacks = {row.name: lack for row, lack in actual}
    assert lacks["pytorch"] == ""
    assert lacks["pytorch-half"] == "needs cuda"
    assert lacks["tf-mode0"] == f"no tensorflow here: {FRAMEWORKS['tensorflow'].install}"


def test_noise_is_measured_with_a_real_implementation_where_there_is_one():
    settings = Settings(threads=2)
    rows = doctor.availability(IMPLEMENTATIONS.values(), survey(), "cpu")
    assert doctor.noise_plan(rows, settings, {}).implementations[0].name == "pytorch"
    bare = survey(missing=("torch", "tensorflow", "lstm_kernels._native"))
    rows = doctor.availability(IMPLEMENTATIONS.values(), bare, "cpu")
    (row,) = doctor.noise_plan(rows, settings, {}).implementations
    assert row.name == "fake"
    assert row.options["real"]


def test_the_noise_run_yields_its_pairs_and_leaves_nothing_behind(monkeypatch):
    bare = survey(missing=("torch", "tensorflow", "lstm_kernels._native"))
    rows = doctor.availability(IMPLEMENTATIONS.values(), bare, "cpu")
    monkeypatch.setattr(doctor, "_PAIRS", 2)
    monkeypatch.setattr(doctor, "_SHAPES", doctor._SHAPES[:1])
    plan = doctor.noise_plan(rows, Settings(), {})
    quick = Sampling(rounds=3, max_rounds=3, warmup_s=0.01, warmup_cap_s=0.02, block_s=0.01)
    plan = replace(plan, sampling=quick)
    records = run(RunOptions(ready=plan, results=None, quiet=True)).records
    assert [r.status for r in records] == ["ok"] * 4
    assert len(noise.controls(results.frame(records))) == 2


def test_a_broken_pynvml_is_as_none(tmp_path, monkeypatch):
    (tmp_path / "pynvml.py").write_text("raise KeyError('pynvml')")
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(machine, "DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert (machine.gpus(), machine.default_device()) == ([], "cpu")
    (tmp_path / "nvidia0").touch()  # a driver's own file
    assert (machine.gpus(), machine.default_device()) == ([], "cuda")


def test_advice_names_the_governor_the_load_and_the_clash(monkeypatch):
    monkeypatch.setattr(machine, "governor", lambda: "powersave")
    monkeypatch.setattr(machine, "load", lambda: 99.0)
    monkeypatch.setattr(doctor, "clashes", lambda _: [(["a", "b"], 22)])
    text = "\n".join(doctor.advice(survey()))
    for word in ("powersave", "99.0", "a and b overwrite each other", "--python FRAMEWORK=PATH"):
        assert word in text
    monkeypatch.setattr(machine, "governor", lambda: "performance")
    monkeypatch.setattr(machine, "load", lambda: 0.0)
    monkeypatch.setattr(doctor, "clashes", lambda _: [])
    assert doctor.advice(survey()) == []


@pytest.fixture
def nvml(monkeypatch, tmp_path):
    """NVML that fails in a function, if any, on a machine whose /dev is `tmp_path`."""

    def install(function="", **more):
        actual = FakeNvml({function: "DriverNotLoaded"} if function else None, **more)
        monkeypatch.setitem(sys.modules, "pynvml", actual)
        monkeypatch.setattr(machine, "DEVICES", tmp_path)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return actual

    return install


@pytest.mark.parametrize("function", ["Init", "SystemGetDriverVersion", "DeviceGetName"])
def test_a_driver_that_fails_means_no_gpu_and_no_traceback(nvml, function):
    fake = nvml(f"nvml{function}")
    assert (machine.gpus(), machine.default_device()) == ([], "cpu")
    assert fake.open == 0


@pytest.mark.parametrize("there", [True, False])
def test_where_nvml_does_not_start_the_drivers_own_files_say_whether_there_is_a_gpu(
    monkeypatch, tmp_path, nvml, there
):
    nvml("nvmlInit")
    (tmp_path / "nvidiactl").touch()
    if there:
        (tmp_path / "nvidia0").touch()
    rows = doctor.availability(IMPLEMENTATIONS.values(), survey(), "cuda")
    assert [not lack for row, lack in rows if row.name == "pytorch"] == [there]
    output = CliRunner().invoke(doctor_, ["--no-noise", "--device", "cuda"]).output
    assert ("a GPU that NVML does not show: clocks, power and energy" in output) == there
    assert ("everything runs on the CPU" in output) != there
    assert (machine.gpus(), machine.default_device()) == ([], "cuda" if there else "cpu")
    plan = types.SimpleNamespace(settings=Settings(device="cuda"))
    if there:
        preflight.device(plan)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
        assert machine.default_device() == "cpu"
    else:
        with pytest.raises(LstmBenchError, match="the driver shows no GPU here"):
            preflight.device(plan)


def test_a_gpu_is_named_with_its_driver_unless_it_is_hidden(monkeypatch, nvml):
    nvml(without={"nvmlDeviceGetUUID"})  # this version does not show which board
    known = {"name": "NVIDIA H200", "memory_bytes": 2**37, "driver": "580.1", "uuid": ""}
    assert (machine.gpus()[0], machine.default_device()) == (known, "cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert machine.default_device() == "cpu"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({}, ""),
        ({"uuid": "GPU-2"}, "warned"),
        ({"uuid": None}, ""),  # of a run before boards were told apart
        ({"name": "NVIDIA H100", "uuid": "GPU-2"}, "refused"),
        ({"driver": "570.1"}, "refused"),
    ],
)
def test_a_run_goes_on_on_another_board_of_its_kind_with_a_word(monkeypatch, change, word):
    gpu = {"name": "NVIDIA H200", "memory_bytes": 2**37, "driver": "580.1", "uuid": "GPU-1"}
    monkeypatch.setattr(machine, "gpus", lambda: [gpu])
    then = {key: value for key, value in {**gpu, **change}.items() if value}
    manifest = {"machine": {"cpu": machine.cpu_model(), "gpus": [then]}, "plan": {"sampling": {}}}
    plan = types.SimpleNamespace(implementations=[])
    if word == "refused":
        with pytest.raises(LstmBenchError, match="other circumstances"):
            preflight.same_circumstances(manifest, plan, Path("results/r"))
        return
    warning = preflight.same_circumstances(manifest, plan, Path("results/r"))
    assert ("began on another GPU of the same kind" in warning) == (word == "warned")


@pytest.mark.parametrize(
    ("floor", "disturbed", "word"),
    [
        (0.01, 0, "quiet enough (expected under 2%)"),
        (0.01, 1, "quiet enough (expected under 2%)"),
        (0.03, 1, "noisy: close what else runs here (expected under 2%)"),
        (0.01, 2, "not quiet: 2 of 20 cells were disturbed; close what else runs here"),
        (None, 2, None),
    ],
)
def test_a_machine_that_others_use_is_not_quiet_however_alike_twins_are(floor, disturbed, word):
    marks = [["disturbed: by others", "disturbed: again"]] * disturbed
    records = [
        types.SimpleNamespace(warnings=own)
        for own in marks + [["not warm: 5 s"]] * (20 - disturbed)
    ]
    assert doctor.verdict(records, floor) == word


def test_sessions_that_cannot_be_described_do_not_run(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -SEGV $$\n")
    python.chmod(0o755)
    for broken, why in ((str(python), "exit code -11"), ("/no/such/python", "No such file")):
        assert f"{broken} does not load it: " in doctor.refusal(broken, "deepbench", "cpu")
        assert why in doctor.refusal(broken, "deepbench", "cpu")
    assert doctor.refusal(sys.executable, "deepbench", "cpu") == ""
    assert "does not load it" not in doctor.refusal(sys.executable, "persistent", "cuda")
