"""`grid --against`: two interpreters' versions of a framework, measured in turns in one run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import records
from made_up import cells, manifest, row
from test_grid import plan_of

from lstm_bench.analysis import results
from lstm_bench.driver import preflight, worker_pool
from lstm_bench.model import registry
from lstm_bench.model.types import LstmBenchError, to_json
from lstm_bench.report import findings
from lstm_bench.runs.plan import Plan

HERE = sys.executable


def interpreter(folder: Path, name: str, *lines: str) -> Path:
    """A Python of its own name, which does some more first."""
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", *lines, f'exec {HERE} "$@"\n']))
    path.chmod(0o755)
    return path


def test_another_version_of_a_row_is_the_row_in_a_worker_and_an_interpreter_of_its_own():
    plain, other = (registry.find(name, "x") for name in ("pytorch", "pytorch~2.12.0+cpu"))
    assert (other.name, other.framework, other.version) == (
        "pytorch~2.12.0+cpu",
        "pytorch",
        "2.12.0+cpu",
    )
    assert (other.options, other.precision, other.module) == (
        plain.options,
        plain.precision,
        plain.module,
    )
    assert plain.worker != other.worker
    assert registry.framework_of(other).requires == registry.framework_of(plain).requires
    python = worker_pool.interpreter(other.home, {"pytorch": "/new", other.home: "/old"})
    assert python == "/old"
    assert registry.find("pytorch~old@1", "x").worker == "pytorch~old@1"
    assert registry.find("pytorch-tf32~old", "x").worker == "pytorch~old+tf32"


def test_another_version_never_runs_under_the_first_ones_interpreter():
    with pytest.raises(LstmBenchError, match="--python pytorch~old=PATH"):
        worker_pool.interpreter("pytorch~old", {"pytorch": "/new"})


@pytest.mark.parametrize("name", ["pytorch~", "pytorch~../x", "pytorch~a b", "pytroch~old"])
def test_a_version_of_a_wrong_name_is_no_row(name):
    with pytest.raises(LstmBenchError, match="no implementation is called"):
        registry.find(name, "x")


def test_every_row_of_the_framework_stands_twice_and_no_other():
    names = ["pytorch", "pytorch-amp", "deepbench", "pytorch@1"]
    against = {"pytorch~other": "/o", "pytorch~third": "/t"}
    plan = plan_of(implementations=names, against=against)
    assert [r.name for r in plan.implementations] == [
        *("pytorch", "pytorch~other", "pytorch~third"),
        *("pytorch-amp", "pytorch-amp~other", "pytorch-amp~third", "deepbench"),
        *("pytorch@1", "pytorch~other@1", "pytorch~third@1"),
    ]
    assert plan.environments == against
    assert Plan.from_json(json.loads(json.dumps(plan.to_json())), "r") == plan


def test_a_grid_file_may_name_versions_itself():
    environments = {"pytorch~old": "/old"}
    plan = plan_of({"environments": environments}, implementations=["pytorch", "pytorch~old"])
    assert [r.home for r in plan.implementations] == ["pytorch", "pytorch~old"]
    assert plan.environments == environments


def test_both_are_measured_in_turns_each_under_its_own_interpreter(
    lstm_bench, write_grid, tmp_path, monkeypatch
):
    started = {}
    real = worker_pool.Workers.start

    def start(name, module, python, *more):
        started[name] = python
        return real(name, module, python, *more)

    monkeypatch.setattr(worker_pool.Workers, "start", staticmethod(start))
    other = interpreter(tmp_path, "other")
    done = lstm_bench("grid", write_grid(), "--run", "r", "--against", f"fake={other}")
    assert done.returncode == 0, done.stderr
    assert started == {"fake": HERE, "fake~other": str(other)}
    found = records(tmp_path / "results/r")
    groups = {name: {r["group"] for r in found if r["implementation"] == name} for name in started}
    assert len(groups["fake"]) == 2  # a shape each
    assert groups["fake"] == groups["fake~other"]
    assert "lstm-bench compare fake fake~other --run r" in done.stdout
    written = json.loads((tmp_path / "results/r/manifest.json").read_text())
    assert written["interpreters"].keys() == {"fake", "fake~other"}


def test_compare_tells_both_versions(lstm_bench, write_grid, tmp_path):
    lstm_bench("grid", write_grid(), "--run", "r", "--against", f"fake={HERE}")
    path = tmp_path / "results/r/records.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["implementation"] == "fake~other":
            line["versions"]["numpy"] = "0.9"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = lstm_bench("compare", "fake", "fake~other", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["versions_differ"]["numpy"][1] == "0.9"


def test_compare_tells_another_python(lstm_bench, write_grid, tmp_path):
    lstm_bench("grid", write_grid(), "--run", "r", "--against", f"fake={HERE}")
    path = tmp_path / "results/r/manifest.json"
    data = json.loads(path.read_text())
    data["interpreters"]["fake~other"]["python"] = "3.99.1"
    path.write_text(json.dumps(data))
    done = lstm_bench("compare", "fake", "fake~other", "--format", "json")
    assert json.loads(done.stdout)["versions_differ"]["python"][1] == "3.99.1"


def test_an_interpreter_beside_is_found_by_its_dot(lstm_bench, write_grid, tmp_path):
    interpreter(tmp_path, "beside")
    done = lstm_bench("grid", write_grid(), "--against", "fake=./beside")
    assert done.returncode == 0, done.stderr


def test_a_dry_run_lists_both_and_where_the_other_is(lstm_bench, write_grid):
    done = lstm_bench("grid", write_grid(), "--against", f"fake~old={HERE}", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "fake~old  " in done.stdout
    assert f"fake~old is {HERE}" in " ".join(done.stdout.split())


def test_a_run_goes_on_once_its_interpreters_are_named_again(lstm_bench, write_grid, tmp_path):
    words = ("--run", "r", "--against", f"fake={HERE}")
    lstm_bench("grid", write_grid(), *words)
    path = tmp_path / "results/r/records.jsonl"
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:2]))
    refused = lstm_bench("grid", "--resume", "r")
    assert refused.returncode == 2
    assert f"--python 'fake~other={HERE}'" in refused.stderr
    assert lstm_bench("grid", "--resume", "r", "--against", f"fake={HERE}").returncode == 0
    assert len({(r["implementation"], str(r["shape"])) for r in records(path.parent)}) == 4
    path.write_text("".join(whole[:2]))
    assert lstm_bench("grid", "--resume", "r", "--python", f"fake~other={HERE}").returncode == 0
    assert len(records(path.parent)) == 4
    path.write_text("".join(whole[:2]))
    assert lstm_bench("grid", write_grid(), *words, "--resume").returncode == 0
    assert len(records(path.parent)) == 4


def test_a_framework_that_the_other_interpreter_lacks_is_named(lstm_bench, write_grid, tmp_path):
    bare = interpreter(tmp_path, "bare", 'set -- -S "$@"', "unset PYTHONPATH")
    words = ("grid", write_grid(), "--run", "r", "--against", f"fake={bare}")
    done = lstm_bench(*words)
    assert done.returncode == 2
    assert f"fake~other: no numpy in {bare}" in done.stderr
    assert lstm_bench(*words, "--skip-missing").returncode == 0
    found = {(r["implementation"], r["status"]) for r in records(tmp_path / "results/r")}
    assert found == {("fake", "ok"), ("fake~other", "missing")}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fake"], "expected FRAMEWORK=PATH"),
        (["fake="], "expected FRAMEWORK=PATH"),
        (["fkae=python3"], "no framework is called 'fkae'; did you mean 'fake'"),
        (["fake~=python3"], "found '' behind fake~"),
        (["fake~a/b=python3"], "found 'a/b' behind fake~"),
        (["fake=/nowhere/python"], "fake~other=/nowhere/python"),
        (["fake=/bin/true"], "no Python interpreter that runs here"),
        (["jax=python3"], "--against jax: the grid has no row of it, expected one of fake"),
        (["fake=a", "fake=b"], "fake~other stands twice"),
    ],
)
def test_wrong_names_and_paths_are_refused_before_anything_is_written(
    lstm_bench, write_grid, tmp_path, words, message
):
    flags = [flag for word in words for flag in ("--against", word)]
    done = lstm_bench("grid", write_grid(), *flags)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "results").exists()


def test_findings_hold_a_lower_precision_against_fp32_of_the_same_version():
    full, other = 1.0, 4.0
    times = {"pytorch": full, "pytorch~new": other, "pytorch-amp": full, "pytorch-amp~new": other}
    rows = [
        row(name, s, hidden, precision="amp-bf16" if "amp" in name else "fp32")
        for name, s in times.items()
        for hidden in (8, 16, 32, 64)
    ]
    data = manifest(tuple(rows))
    data["plan"]["implementations"] = [to_json(registry.find(name, "x")) for name in times]
    told = " ".join(findings.findings(results.Run("r", data, cells(*rows))))
    assert "AMP compared with fp32: no clear difference" in told


def test_a_run_folder_cannot_choose_a_version_by_a_name_that_is_none():
    data = manifest((row("fake", 1.0),))["plan"]
    data["implementations"][0]["version"] = "/../../outside"
    with pytest.raises(LstmBenchError, match="is no fake"):
        preflight.resumed(Plan.from_json(data, "r"), {}, Path("r"))
