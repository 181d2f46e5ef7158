"""`bisect` names the first slower version, and its doubts."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import cells, row
from conftest import interpreter

import lstm_bench as api
from lstm_bench.analysis.comparison import Comparison, compare
from lstm_bench.features.bisect import report as bisect_report
from lstm_bench.features.bisect.search import ATTEMPTS, search

HERE = sys.executable
NAMES = [f"v{n}" for n in range(16)]


def measured(
    factor: Callable[[str, int], float], noise: float = 0.02, lost: str = ""
) -> Callable[[str, str, int], Comparison]:
    """Made-up comparisons; `factor` is what a version takes at a hidden size, in seconds / base."""
    rng = random.Random(7)

    def measure(a: str, b: str, attempt: int) -> Comparison:
        def cell(name: str, hidden: int, copy: int) -> object:
            call_s = hidden * 1e-5 * factor(name, hidden)
            rounds = [call_s * rng.gauss(1, noise) for _ in range(10 * 2 ** (attempt - 1))]
            middle = None if name == lost else sorted(rounds)[len(rounds) // 2]
            return row(name, middle, hidden, rounds=rounds, copy=copy)

        sizes, copies = (64, 128, 256), (1, 2)
        return compare(cells(*(cell(n, h, c) for n in (a, b) for h in sizes for c in copies)), a, b)

    return measure


def from_on(first: int, slowdown: float = 0.1) -> Callable[[str, int], float]:
    return lambda name, hidden: 1 + slowdown * (int(name[1:]) >= first)


@pytest.mark.parametrize("first", [1, 2, 7, 8, 15])
def test_a_slowdown_among_16_versions_is_found_wherever_it_begins(first):
    result = search(NAMES, measured(from_on(first)))
    assert (result.good, result.bad, result.doubts) == (f"v{first - 1}", f"v{first}", [])
    assert result.steps[0].what == "ends"
    assert (result.steps[-1].what, result.steps[-1].verdict) == ("border", "slower")
    assert len({step.b for step in result.steps if step.what == "middle"}) <= 4  # log2 of 16


def test_only_the_shapes_that_got_slower_count():
    def at_one_size(name: str, hidden: int) -> float:
        return 1.1 if hidden == 128 and int(name[1:]) >= 5 else 1.0

    result = search(NAMES, measured(at_one_size))
    assert (result.bad, result.doubts) == ("v5", [])
    assert {step.shapes for step in result.steps} == {1}


@pytest.mark.parametrize("slowdown", [0.0, -0.2, 0.05])
def test_nothing_is_searched_where_the_last_is_not_slower_than_the_threshold(slowdown):
    measure = measured(from_on(8, slowdown), noise=0.001)
    result = search(NAMES, measure)
    assert (result.good, result.bad, result.doubts) == ("", "", [])
    assert {step.what for step in result.steps} == {"ends"}
    assert search(NAMES, measure, threshold=0.02).bad == ("v8" if slowdown > 0 else "")


def test_a_slowdown_in_many_steps_is_no_border():
    result = search(NAMES, measured(lambda name, hidden: 1 + 0.02 * int(name[1:])))
    assert result.bad
    assert "several steps" in " ".join(result.doubts)


def test_a_version_in_the_middle_is_measured_longer_and_named():
    halfway = {0: 1.0, 1: 1.0488}  # the square root of 1.1

    result = search(NAMES[:3], measured(lambda name, hidden: halfway.get(int(name[1:]), 1.1)))
    tries = [step.attempt for step in result.steps if step.what == "middle"]
    assert tries == list(range(1, ATTEMPTS + 1))
    assert "v1 lies between slower and not slower" in result.doubts


def test_a_version_without_a_time_is_named():
    with pytest.raises(Exception, match="v7 against v0: no time"):
        search(NAMES, measured(from_on(8), lost="v7"))


# the command


def environments(folder: Path, count: int, first: int) -> dict[str, str]:
    """Interpreters of which those from number `first` on make every fake call a tenth longer."""
    return {
        f"1.{n}": str(
            interpreter(
                folder, f"python-{n}", f"export LSTM_BENCH_FAKE_SCALE={1.1 if n >= first else 1}"
            )
        )
        for n in range(count)
    }


def fakes(write_grid: Callable[..., Path]) -> Path:
    sampling = {"rounds": 8, "max_rounds": 8, "warmup_s": 0.01, "timeout_s": 60}
    return write_grid(
        sampling=sampling, implementations=["one"], fake={"one": {"call_s": 0.002, "noise": 0.02}}
    )


@pytest.mark.processes
def test_the_first_slower_of_some_environments_is_found(lstm_bench, write_grid, tmp_path):
    listed = [f"{name}={path}" for name, path in environments(tmp_path, 2, 1).items()]
    done = lstm_bench("bisect", "one", *listed, "--grid", fakes(write_grid), "--format", "json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["last_good"], facts["first_slower"], facts["doubts"]) == ("1.0", "1.1", [])
    last = facts["steps"][-1]
    assert (last["what"], last["a"], last["b"]) == ("border", "1.0", "1.1")
    again = lstm_bench("compare", "one~1.0", "one~1.1", "--run", last["run"])
    assert again.returncode == 0, again.stderr
    assert "slower than one~1.0" in again.stdout


@pytest.mark.usefixtures("quick_versions")
def test_a_command_makes_the_versions_that_are_needed_and_no_other(
    lstm_bench, write_grid, tmp_path
):
    environments(tmp_path, 5, 2)
    make = tmp_path / "make.sh"
    make.write_text(f"#!/bin/sh\necho $1 >>{tmp_path}/made\necho {tmp_path}/python-$1\n")
    make.chmod(0o755)
    names = [str(n) for n in range(5)]
    done = lstm_bench(
        "bisect", "one", *names, "--make", f"{make} {{version}}", "--grid", fakes(write_grid)
    )
    assert done.returncode == 0, done.stderr
    assert "2 is the first slower version" in done.stdout
    assert "Sure" in done.stdout
    assert (tmp_path / "made").read_text().split() == ["0", "4", "2", "1"]


@pytest.mark.usefixtures("quick_versions")
def test_python_gets_the_steps_as_a_data_frame(write_grid, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    versions = environments(tmp_path, 2, 1)
    steps = api.bisect("one", versions, grid=fakes(write_grid))
    assert list(steps["what"]) == ["ends", "border"]
    assert (steps["ratio_low"] <= steps["ratio"]).all()
    assert set(steps["verdict"]) == {"slower"}
    assert steps["run"].map(lambda name: (tmp_path / "results" / name).is_dir()).all()


def test_versions_that_do_not_differ_have_no_border(lstm_bench, write_grid):
    grid = write_grid()
    done = lstm_bench("bisect", "fake", f"a={HERE}", f"b={HERE}", "--grid", grid)
    assert done.returncode == 0, done.stderr
    assert "b is not more than 7% slower than a at any of 2 shapes" in done.stdout


def test_versions_in_another_precision_are_named():
    def measure(a: str, b: str, attempt: int) -> Comparison:
        rows = (row(n, s, precision=p) for n, s, p in ((a, 1.0, "amp-bf16"), (b, 2.0, "amp-fp16")))
        return compare(cells(*rows), a, b, across=None)

    result = search(["a", "b"], measure)
    runs = ["r"] * len(result.steps)
    document = bisect_report.document(result, "pytorch-amp", "latency", runs, 0.07)
    assert "versions differ in precision" in document.written("table")


def test_a_version_that_fails_is_named(lstm_bench, write_grid):
    grid = write_grid(fake={"bad": {"fault": "swap-gates"}})
    done = lstm_bench("bisect", "bad", f"a={HERE}", f"b={HERE}", "--grid", grid)
    assert done.returncode == 1
    assert "bad~a could not be measured: wrong" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fake", "a=p", "b=p", "--threshold", "x"], "found 'x', expected a share such as 7%"),
        (["fake", "a=p", "b=p", "--threshold", "0%"], "found '0%', expected a share"),
        (["fake", "a=p"], "found one, expected two or more"),
        (["fake", "a=p", "a=p"], "a stands twice"),
        (["fake", "a=p", "b"], "b: no interpreter is named, expected b=PYTHON"),
        (["fake", "a=p", "../b=p"], "found '../b', expected a name"),
        (["fake", "a", "b", "--make", "true"], "expected a program and {version}"),
        (["fake", "a", "b", "--make", "'x {version}"], "expected a program and {version}"),
        (["fake", "a", "b", "--make", "/nowhere/x {version}"], "--make: /nowhere/x: No such file"),
        (["fkae", "a=p", "b=p"], "no implementation is called 'fkae'"),
        (["fake~x", "a=p", "b=p"], "expected no version at it: fake"),
        (["fake", f"a={HERE}", "b=/nowhere/p", f"c={HERE}"], "fake~b=/nowhere/p"),
        (["fake", f"a={HERE}", "b=/bin/true", f"c={HERE}"], "no Python interpreter that runs"),
        (["fake", "a=p", "b=p", "--grid", "nothing"], "no such file"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    lstm_bench, write_grid, tmp_path, words, message
):
    grid = [] if "--grid" in words else ["--grid", write_grid()]
    done = lstm_bench("bisect", *words, *grid)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        ("sh -c 'exit 7' {version}", "ended with exit code 7"),
        ("echo /nowhere/{version}", "printed '/nowhere/a' last"),
    ],
)
def test_a_command_that_makes_nothing_stops_the_search(lstm_bench, write_grid, make, message):
    done = lstm_bench("bisect", "fake", "a", "b", "--make", make, "--grid", write_grid())
    assert done.returncode == 1
    assert f"--make for a {message}" in " ".join(done.stderr.split())


def test_a_search_that_was_cut_short_goes_on_with_what_it_measured(
    lstm_bench, write_grid, tmp_path
):
    words = ("bisect", "fake", f"a={HERE}", f"b={HERE}", "--grid", write_grid())
    assert lstm_bench(*words).returncode == 0
    (folder,) = (tmp_path / "results").iterdir()
    search, records = folder.name.removesuffix("-1"), folder / "records.jsonl"
    whole = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join(whole[: len(whole) // 2]))
    done = lstm_bench(*words, "--resume", search)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in records.open()]
    cells = {(r["implementation"], str(r["shape"]), r["pass_number"], r["copy"]) for r in lines}
    assert len(cells) == len(whole)
    before = records.read_bytes()
    assert lstm_bench(*words, "--resume", search).returncode == 0
    assert records.read_bytes() == before
    assert [*(tmp_path / "results").iterdir()] == [folder]
    for more, message in (
        (["--resume", "nothing"], "found no nothing-1"),
        (["--resume", search, "--shape", "9,1,1"], "another plan"),
    ):
        done = lstm_bench(*words, *more)
        assert (done.returncode, message in done.stderr) == (2, True)
