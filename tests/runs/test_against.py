"""`grid --against`: two interpreters' versions of a framework, measured in turns in one run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import cells, manifest, row
from conftest import REPOSITORY, interpreter, plan_of, records

from lstm_bench import frameworks as registry
from lstm_bench.analysis import results
from lstm_bench.driver import worker_pool
from lstm_bench.features.page import findings
from lstm_bench.model.types import LstmBenchError, to_json
from lstm_bench.report import fastest
from lstm_bench.runs.plan import Plan

HERE = sys.executable


def test_another_version_of_a_row_is_the_row_in_a_worker_and_an_interpreter_of_its_own():
    plain, other = (registry.find(name, "x") for name in ("pytorch", "pytorch~2.12.0+cpu"))
    assert other == replace(plain, name=other.name, version="2.12.0+cpu")
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
    done = lstm_bench("grid", write_grid(), "--run", "r", "--against", f"fake={other}", code=0)
    assert started == {"fake": HERE, "fake~other": str(other)}
    actual = records(tmp_path / "results/r")
    groups = {name: {r["group"] for r in actual if r["implementation"] == name} for name in started}
    assert len(groups["fake"]) == 2  # a shape each
    assert groups["fake"] == groups["fake~other"]
    assert "lstm-bench compare fake fake~other --run r" in done.stdout
    written = json.loads((tmp_path / "results/r/manifest.json").read_text())
    assert written["interpreters"].keys() == {"fake", "fake~other"}


def test_compare_shows_where_versions_and_pythons_differ(lstm_bench, write_grid, tmp_path):
    lstm_bench("grid", write_grid(), "--run", "r", "--against", f"fake={HERE}")
    path = tmp_path / "results/r/records.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["implementation"] == "fake~other":
            line["versions"]["numpy"] = "0.9"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    path = tmp_path / "results/r/manifest.json"
    data = json.loads(path.read_text())
    data["interpreters"]["fake~other"]["python"] = "3.99.1"
    path.write_text(json.dumps(data))
    done = lstm_bench("compare", "fake", "fake~other", "--format", "json", code=0)
    differ = json.loads(done.stdout)["versions_differ"]
    assert (differ["numpy"][1], differ["python"][1]) == ("0.9", "3.99.1")


def test_an_interpreter_beside_is_found_by_its_dot(lstm_bench, write_grid, tmp_path):
    interpreter(tmp_path, "beside")
    lstm_bench("grid", write_grid(), "--against", "fake=./beside", code=0)


def test_a_dry_run_lists_both_and_where_the_other_is(lstm_bench, write_grid):
    done = lstm_bench("grid", write_grid(), "--against", f"fake~old={HERE}", "--dry-run", code=0)
    assert "fake~old  " in done.stdout
    assert f"fake~old is {HERE}" in " ".join(done.stdout.split())


def test_a_run_goes_on_once_its_interpreters_are_named_again(lstm_bench, write_grid, tmp_path):
    words = ("--run", "r", "--against", f"fake={HERE}")
    lstm_bench("grid", write_grid(), *words)
    path = tmp_path / "results/r/records.jsonl"
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:2]))
    refused = lstm_bench("grid", "--resume", "r", code=2)
    assert f"--python 'fake~other={HERE}'" in refused.stderr
    assert lstm_bench("grid", "--resume", "r", "--against", f"fake={HERE}").returncode == 0
    assert len({(r["implementation"], str(r["shape"])) for r in records(path.parent)}) == 4
    path.write_text("".join(whole[:2]))
    assert lstm_bench("grid", "--resume", "r", "--python", f"fake~other={HERE}").returncode == 0
    assert len(records(path.parent)) == 4
    path.write_text("".join(whole[:2]))
    assert lstm_bench("grid", write_grid(), *words, "--resume").returncode == 0
    assert len(records(path.parent)) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fake"], "expected FRAMEWORK=PATH"),
        (["fake="], "found 'fake=' without a path"),
        (["fake~new="], "found 'fake~new=' without a path"),
        (["=python3"], "no framework is called ''"),
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
    assert message in " ".join(lstm_bench("grid", write_grid(), *flags, code=2).stderr.split())
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
    made = results.Run("r", data, cells(*rows))
    words = " ".join(findings.findings(made, fastest.Compared(made, made.cells, "latency")))
    assert "between pytorch-amp and pytorch." in words
    assert "between pytorch-amp~new and pytorch~new." in words


# which of two versions is the base, for `gate`

SIDES = {"": "base", "~old": "base", "~base": "base", "~other": "base", "~new": "new"}
UNNAMED = ("~2.12", "~2.13", "~2.12.0+cpu")


def test_the_docs_show_no_name_but_those_that_are_tested_below():
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    shown = re.findall(r"--against [a-z]+(~[^=\s`\]]+)?=", "".join(p.read_text() for p in pages))
    assert {"~new", ""} <= set(shown) <= {*SIDES, *UNNAMED}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of runs of two versions, once they were measured."""
    return tmp_path_factory.mktemp("measured")


@pytest.fixture
def in_versions(lstm_bench, write_grid, tmp_path, quick_versions, measured):
    """Have a run `r` of fakes in two versions, one three times as slow; what `grid` printed."""

    def measure(name, slow):
        scale = interpreter(tmp_path, "slow", "export LSTM_BENCH_FAKE_SCALE=3.0")
        paths = {"plain": HERE, "other": HERE, slow: scale}
        names = ["fake", "fake-b"]
        fakes = {row: {"noise": 0.01, "call_s": 0.002} for row in names}
        grid = write_grid(implementations=names, fake=fakes, controls=2)
        words = ["--python", f"fake={paths['plain']}", "--against", f"fake{name}={paths['other']}"]
        kept = measured / f"{name}-{slow}"
        if not kept.exists():
            done = lstm_bench("grid", grid, "--run", "r", *words, code=0)
            shutil.move(tmp_path / "results", kept)
            (kept / "printed").write_text(done.stdout)
            (kept / "folder").write_text(str(tmp_path))
        shutil.copytree(kept / "r", tmp_path / "results/r")
        path = tmp_path / "results/r/manifest.json"
        measured_in = (kept / "folder").read_text()
        path.write_text(path.read_text().replace(measured_in, str(tmp_path)))
        return (kept / "printed").read_text()

    return measure


@pytest.mark.parametrize("name", SIDES)
def test_a_planted_slowdown_fails_under_every_name_that_says_which_side_is_the_base(
    lstm_bench, in_versions, tmp_path, name
):
    in_versions(name, slow="other" if SIDES[name] == "new" else "plain")
    done = lstm_bench("gate", "r", code=3)
    assert "FAILED: 4 cells of 2 rows; 4 slower" in done.stdout
    other = f"fake{name or '~other'}"
    base, new = ("fake", other) if SIDES[name] == "new" else (other, "fake")
    first = " ".join(done.stdout.partition("nothing differs")[0].split())
    assert first.startswith(f"base: {base} and {base.replace('fake', 'fake-b')} (numpy ")
    assert f" new: {new} and {new.replace('fake', 'fake-b')} (numpy " in first
    assert first.endswith(", slow)")  # from here
    assert HERE in first.partition("new: ")[0]
    sides = json.loads(lstm_bench("gate", "r", "--format", "json").stdout)["sides"]
    assert [side["new"]["interpreter"] for side in sides] == [str(tmp_path / "slow")] * 2
    plan = json.loads((tmp_path / "results/r/manifest.json").read_text())["plan"]
    assert plan["bases"][new] == base


def test_the_recipe_of_the_docs_ends_with_the_exit_code_that_it_says(tmp_path):
    """Pasted into a shell, as a reader would."""
    page = (REPOSITORY / "docs/how-to/gate-in-ci.md").read_text()
    (block,) = re.findall(r"```sh\n(cat > slow.yaml.*?)```", page, re.DOTALL)
    interpreter(tmp_path, "lstm-bench", 'set -- -m lstm_bench "$@"')
    known = {**os.environ, "PATH": f"{tmp_path}:{Path(HERE).parent}:{os.environ['PATH']}"}
    for script, code in ((block, 3), (block.replace("0.006", "0.002").replace("slow", "same"), 0)):
        run = ["sh", "-c", script]
        done = subprocess.run(run, cwd=tmp_path, env=known, capture_output=True, text=True)
        assert done.stdout.endswith(f"exit code {code}\n"), done.stderr
    assert "It ends with `exit code 3`" in page


@pytest.mark.parametrize("name", UNNAMED)
def test_a_name_that_is_no_side_is_refused_with_both_commands(lstm_bench, in_versions, name):
    in_versions(name, slow="other")
    done = lstm_bench("gate", "r")
    assert (done.returncode, done.stdout) == (2, "")
    commands = [shlex.split(line) for line in done.stderr.splitlines() if line.startswith("  ")]
    assert [words[:4] for words in commands] == [["lstm-bench", "gate", "r", "--base"]] * 2
    codes = {words[-1]: lstm_bench(*words[1:]).returncode for words in commands}
    assert codes == {"fake": 3, f"fake{name}": 0}


def test_the_next_command_after_two_versions_is_the_gate(lstm_bench, in_versions):
    printed = in_versions("~new", slow="other")
    (line,) = (line for line in printed.splitlines() if "lstm-bench gate" in line)
    assert lstm_bench(*shlex.split(line)[1:]).returncode == 3


def test_a_run_from_before_sides_were_recorded_has_those_of_its_names(
    lstm_bench, in_versions, tmp_path
):
    in_versions("~new", slow="other")
    path = tmp_path / "results/r/manifest.json"
    data = json.loads(path.read_text())
    del data["plan"]["bases"]
    for interpreters in data["interpreters"].values():
        del interpreters["path"]
    path.write_text(json.dumps(data))
    assert lstm_bench("gate", "r").returncode == 3
    again = ["--python", f"fake={HERE}", "--against", f"fake~new={HERE}"]
    assert "is complete" in lstm_bench("grid", "grid.yaml", "--run", "r", "--resume", *again).stdout


def test_a_version_that_is_older_on_the_new_side_is_warned_about(lstm_bench, in_versions, tmp_path):
    in_versions("~new", slow="other")
    path = tmp_path / "results/r/records.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for newer, warned in (("~new", False), ("", True)):
        for line in lines:
            name = line["implementation"]
            line["versions"]["numpy"] = "2.13.0" if name.endswith("~new") == bool(newer) else "2.9"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = lstm_bench("gate", "r", "--across", "versions", code=3)
        assert ("! the new side has older versions (numpy 2.13.0 -> 2.9)" in done.stdout) == warned


def test_three_versions_need_a_base_and_each_other_one_is_compared_with_it(
    lstm_bench, write_grid, quick_versions
):
    others = [word for name in ("old", "new") for word in ("--against", f"fake~{name}={HERE}")]
    lstm_bench("grid", write_grid(), "--run", "r", *others)
    assert "--base 'fake~new'" in lstm_bench("gate", "r", code=2).stderr
    done = lstm_bench("gate", "r", "--base", "fake~old", "--format", "json")
    rows = [(side["base"]["row"], side["new"]["row"]) for side in json.loads(done.stdout)["sides"]]
    assert rows == [("fake~old", "fake"), ("fake~old", "fake~new")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["r", "--base", "fkae"],
            "--base: found 'fkae', expected one of several versions of a row",
        ),
        (["r", "--base", ""], "--base: found '', expected"),
        (["r", "r2", "--base", "fake"], "found two runs"),
        (["r", "--base", "fake", "--as", "fake=fake~new"], "--as, which names it too"),
        (["r2", "--base", "fake"], "found one run, r2; expected two"),
    ],
)
def test_a_base_that_is_none_is_refused(lstm_bench, in_versions, write_grid, words, message):
    in_versions("~new", slow="other")
    lstm_bench("grid", write_grid("r2.yaml"), "--run", "r2")
    done = lstm_bench("gate", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


def test_rows_of_one_run_are_chosen_by_either_name(lstm_bench, in_versions):
    in_versions("~new", slow="other")
    for names in ("fake", "fake~new"):
        done = lstm_bench("gate", "r", "-i", names)
        assert (done.returncode, "2 cells of 1 row" in done.stdout) == (3, True)
