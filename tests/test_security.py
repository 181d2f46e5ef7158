"""Nothing let in: what lstm-bench will not do, whatever a grid or a run folder says."""

import ast
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import manifest, row, written
from conftest import REPOSITORY, start
from fake_nvml import FakeNvml
from fakes import children, wait_for_records

from lstm_bench.driver import machine_lock, worker_pool
from lstm_bench.model.types import LstmBenchError, Settings
from lstm_bench.runs import choice, store
from lstm_bench.runs.plan import Plan

SOURCES = sorted((REPOSITORY / "lstm_bench").rglob("*.py"))
FORBIDDEN_MODULES = {
    *("pickle", "marshal", "shelve", "socket", "socketserver", "http", "urllib", "ftplib"),
    *("smtplib", "requests", "xmlrpc", "telnetlib", "webbrowser"),
}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_no_source_file_pickles_evaluates_opens_a_shell_or_a_socket(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not {a.name.split(".")[0] for a in node.names} & FORBIDDEN_MODULES
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in FORBIDDEN_MODULES
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            owner = getattr(getattr(node.func, "value", None), "id", "")
            whole = f"{owner}.{name}" if isinstance(node.func, ast.Attribute) else name
            assert whole not in FORBIDDEN_CALLS, f"{whole} in line {node.lineno}"
            assert not any(k.arg == "shell" for k in node.keywords)
            if name == "load" and owner == "yaml":
                assert any(k.arg == "Loader" for k in node.keywords)


def test_the_yaml_loader_makes_no_objects(lstm_bench, tmp_path):
    (tmp_path / "g.yaml").write_text("hidden: !!python/object/apply:os.system ['touch made']\n")
    assert lstm_bench("grid", "g.yaml").returncode == 2
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "name", ["../x", "/tmp/x", "a/b", "..", ".", "", "\x00", "a\nb", "\u202e", "-x", "x" * 101]
)
def test_a_run_stays_in_the_results_folder(name):
    with pytest.raises(LstmBenchError, match="--run"):
        choice.run_name(name)


@pytest.mark.parametrize("name", ["records.jsonl", "samples.jsonl", "lock"])
def test_a_link_in_a_run_folder_is_not_written_through(tmp_path, name):
    target = tmp_path / "precious"
    target.write_text("precious, and no newline")
    folder = written(tmp_path / "r", row("a", 1.0))
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        store.Store(folder)
    assert target.read_text() == "precious, and no newline"


@pytest.mark.parametrize("what", ["run", "logs"])
def test_a_linked_folder_is_not_written_into(tmp_path, what):
    elsewhere = tmp_path / "elsewhere"
    if what == "run":
        written(elsewhere, row("a", 1.0))
        folder = tmp_path / "r"
        folder.symlink_to(elsewhere)
    else:
        elsewhere.mkdir()
        folder = written(tmp_path / "r", row("a", 1.0))
        (folder / "logs").symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    with pytest.raises(LstmBenchError, match="is a link"):
        store.Store(folder)
    assert sorted(elsewhere.rglob("*")) == before


def test_resuming_somebodys_run_runs_no_program_that_it_names(lstm_bench, write_grid, tmp_path):
    lstm_bench("grid", write_grid(), "--run", "r")
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    path = tmp_path / "results/r/manifest.json"
    data = json.loads(path.read_text())
    data["plan"]["environments"] = {"fake": str(trap)}
    path.write_text(json.dumps(data))
    assert f"--python fake={trap}" in lstm_bench("grid", "--resume", "r", code=2).stderr
    for arguments in (["report"], ["compare", "fake", "fake"], ["report", "--html", "x.html"]):
        lstm_bench(*arguments, "--run", "r")
    assert not (tmp_path / "sprung").exists()


def test_resuming_takes_rows_from_this_versions_table_only():
    data = manifest((row("pytorch", 1.0),))["plan"]
    data["implementations"][0] |= {"framework": "pytorch", "module": "os"}
    with pytest.raises(LstmBenchError, match="another row in this version"):
        choice.resumed(Plan.from_json(data, "r"), {}, Path("r"))
    data["implementations"][0] |= {"framework": "fake", "module": "os"}
    with pytest.raises(LstmBenchError, match="is no fake"):
        choice.resumed(Plan.from_json(data, "r"), {}, Path("r"))
    changes = [{"framework": name} for name in ("fake-/../../outside", "fakeX", "fake-")]
    for change in (*changes, {"framework": "fake", "version": "/../../outside"}):
        data["implementations"][0] |= {"module": "fake", **change}
        with pytest.raises(LstmBenchError, match="is no fake"):
            choice.resumed(Plan.from_json(data, "r"), {}, Path("r"))


def test_a_run_cannot_send_escape_sequences_to_the_terminal(lstm_bench, tmp_path):
    bad = "\x1b]0;owned\x07\x1b[2J"
    cell = row(f"a{bad}", 1.0, path=bad, warnings=[bad])
    lost = row("b", None, reason=bad)
    written(tmp_path / "results" / "r", cell, lost)
    for arguments in (
        ["report"],
        ["report", "--mpe"],
        ["compare", "b", "x"],
        ["compare", f"a{bad}", "b"],
        ["report", "--format", "csv"],
        ["report", "--format", "latex"],
        ["report", "--format", "json"],
    ):
        done = lstm_bench(*arguments)
        assert "\x1b" not in done.stdout + done.stderr, arguments
        assert "\x07" not in done.stdout + done.stderr


def test_who_measures_on_the_machine_is_named_to_whoever_comes(
    lstm_bench, write_grid, tmp_path, monkeypatch
):
    monkeypatch.setattr(machine_lock, "TOKEN", tmp_path / "token")
    with machine_lock.announced("cpu"):
        for words in (["grid", write_grid()], ["profile", "fake", "--shape", "3,2,4"]):
            done = lstm_bench(*words, "--device", "cpu", code=0)
            warning = f"another lstm-bench is measuring on this machine (process {os.getpid()})"
            assert warning in done.stderr


def test_the_token_of_the_machine_goes_with_its_holder(monkeypatch, tmp_path):
    monkeypatch.setattr(machine_lock, "TOKEN", tmp_path / "token")
    with machine_lock.announced("cpu") as first, machine_lock.announced("cpu") as second:
        assert first == []
        assert "another lstm-bench is measuring" in second[0]
    with machine_lock.announced("cpu") as third:
        assert third == []
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o666  # other users may hold it too


def test_others_on_the_gpu_are_warned_about(monkeypatch, tmp_path):
    monkeypatch.setattr(machine_lock, "TOKEN", tmp_path / "token")
    nvml = FakeNvml()
    nvml.processes = [SimpleNamespace(pid=pid) for pid in (7, 8)]
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with machine_lock.announced("cuda") as warnings:
        assert warnings == ["2 other processes on the GPU (7, 8): times will be disturbed"]


@pytest.mark.parametrize("name", ["records.jsonl", "manifest.json"])
@pytest.mark.parametrize("what", ["pipe", "endless"])
def test_a_pipe_or_a_device_in_a_run_folder_hangs_nobody(lstm_bench, tmp_path, name, what):
    folder = written(tmp_path / "results" / "r", row("a", 1.0))
    (folder / name).unlink()
    if what == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    for arguments in (["report"], ["report", "--run", "r"]):
        done = lstm_bench(*arguments)
        assert done.returncode in (0, 1, 2)
        assert "Traceback" not in done.stderr


def test_a_log_is_not_written_through_a_link(tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / "log").symlink_to(target)
    with pytest.raises(worker_pool.WorkerFailed, match="symbolic links"):
        worker_pool.WorkerProcess("fake", "fake", sys.executable, Settings(), tmp_path / "log")
    assert target.read_text() == "precious"


def test_what_is_pinned_is_pinned_exactly():
    files = ("requirements.txt", "requirements-tensorflow.txt", "requirements-openvino.txt")
    lines = [line for file in files for line in (REPOSITORY / file).read_text().splitlines()]
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert all("==" in pin for pin in pins)


def test_the_driver_listens_nowhere(write_grid, tmp_path):
    slow = write_grid(fake={"fake": {"real": True, "call_s": 0.002}}, hidden=list(range(1, 100)))
    process = start(tmp_path, "grid", slow, "--run", "r")
    wait_for_records(tmp_path / "results" / "r", process)
    sockets = []
    for pid in (process.pid, *children(process.pid)):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            try:
                sockets.append(os.readlink(fd).startswith("socket:"))
            except OSError:
                continue
    process.kill()
    process.communicate()
    assert sockets
    assert not any(sockets)
