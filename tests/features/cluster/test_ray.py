"""`grid --ray`: without Ray a word; with `--cluster`, clusters of this machine that lose nodes."""

import json
import os
import signal
import sys
import time
import types

import pytest
from conftest import start
from fakes import children, gone, whole_lines

GRID = {
    "hidden": list(range(3, 15)),
    "implementations": ["fake-a", "fake-b"],
    "fake": {"fake-a": {"build_s": 0.2}, "fake-b": {"build_s": 0.2, "process": "b"}},
    "controls": 1,
}


@pytest.mark.parametrize("words", [["--ray"], ["--ray", "auto"], ["--ray", "10.0.0.1:6379"]])
def test_without_ray_it_says_what_to_install(lstm_bench, write_grid, monkeypatch, tmp_path, words):
    monkeypatch.setitem(sys.modules, "ray", None)
    done = lstm_bench("grid", write_grid(), *words)
    assert done.returncode == 2
    assert "pip install 'lstm-bench[ray]'" in done.stderr
    assert not (tmp_path / "results").exists()


def test_an_address_without_a_cluster_is_told(lstm_bench, write_grid, monkeypatch, tmp_path):
    def refuse(**_):
        raise ConnectionError("nobody is there")

    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(init=refuse))
    done = lstm_bench("grid", write_grid(), "--ray", "127.0.0.1:1")
    assert done.returncode == 2
    assert "--ray 127.0.0.1:1: no Ray answers (ConnectionError: nobody is there)" in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.fixture
def nodes(request):
    """The address of a cluster of three nodes, and a way to kill one of them."""
    if not request.config.getoption("--cluster"):
        pytest.skip("with --cluster, or make test-cluster")
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    more = [cluster.add_node(num_cpus=2) for _ in range(3)]

    def kill():
        for raylet in more[-1].all_processes["raylet"]:
            os.kill(raylet.process.pid, signal.SIGKILL)

    yield cluster.address, kill
    cluster.shutdown()


def keys(run):
    lines = [json.loads(line) for line in whole_lines(run)]
    return {(r["implementation"], r["shape"]["hidden"], r["copy"]) for r in lines}


def wait_for(holds, seconds=120):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_killed_node_and_a_killed_driver_lose_nothing(nodes, typed, write_grid, tmp_path):
    address, kill = nodes
    grid = write_grid(**GRID)
    assert typed("grid", grid, "--run", "plain").returncode == 0
    results = tmp_path / "results"
    whole = typed("grid", grid, "--run", "whole", "--ray", address)
    assert whole.returncode == 0, whole.stderr
    assert keys(results / "whole") == keys(results / "plain")
    actual = [json.loads(line) for line in whole_lines(results / "whole")]
    assert len({record["node"] for record in actual}) == 3
    run = results / "killed"
    driver = start(tmp_path, "grid", grid, "--run", "killed", "--ray", address)
    wait_for(lambda: whole_lines(run))
    kill()
    seen = len(whole_lines(run))
    wait_for(lambda: len(whole_lines(run)) > seen or driver.poll() is not None)
    workers = [child for agent in agents() for child in children(agent)]
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    assert workers
    wait_for(lambda: not agents())
    assert gone(workers)
    kept = keys(run)
    again = typed("grid", "--resume", "killed", "--ray", address)
    assert again.returncode == 0, again.stderr
    assert kept <= keys(run) == keys(results / "plain")
    assert not agents()


def agents():
    """The processes of agents, by the name that Ray gives them."""
    actual = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().startswith(b"ray::RayAgent"):
                    actual.append(int(pid))
        except OSError:
            pass
    return actual


def test_all_nodes_are_examined_before_anything_is_written(nodes, typed, write_grid, tmp_path):
    address, _ = nodes
    done = typed("grid", write_grid(**GRID), "--ray", address, "--python", "fake=/no/python")
    assert done.returncode == 2
    assert "3 of 3 nodes cannot measure this grid" in done.stderr
    assert done.stderr.count("/no/python") >= 3
    assert not (tmp_path / "results").exists()


def test_each_kind_of_device_gets_a_run(nodes, typed, write_grid, tmp_path):
    address, _ = nodes
    done = typed(
        "grid", write_grid(**GRID), "--ray", address, "--per-device", "--run", "each", "--resume"
    )
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "results").iterdir()
    assert run.name.startswith("each-")
    assert len(keys(run)) == 36
