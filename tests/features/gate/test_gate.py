"""The gate passes what is unchanged, fails what is worse, and refuses what does not compare."""

import json
import re
import shutil
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from conftest import REPOSITORY
from made_up import row, written

import lstm_bench as api
from experiments import gate_simulation
from lstm_bench.model.types import LstmBenchError
from lstm_bench.runs import grid as grids
from lstm_bench.runs.estimate import Estimate

SIZES = (8, 16, 32, 64, 128, 256)
MIB = 1 << 20


def rounds(seconds, spread=0.01, seed=1):
    """Ten rounds around a time, always the same ones."""
    noise = np.random.default_rng(seed).normal(0, spread, 10)
    return (seconds * np.exp(noise)).tolist()


def cells(name="pytorch", factor=1.0, at=None, spread=0.01, seed=1, luck=(), passes=1, **more):
    """A row at all sizes, in two processes a pass; `factor` slower, at one of them if `at` says so.

    `luck` is what each process in turn takes longer at size 256.
    """
    found = []
    for number in range(2 * passes):
        for place, hidden in enumerate(SIZES):
            slow = factor if at in (None, hidden) else 1.0
            slow *= luck[number] if luck and hidden == 256 else 1.0
            times = rounds(1e-3 * slow, spread, 1000 * seed + 10 * number + place)
            which = {"copy": 1 + number % 2, "pass_number": 1 + number // 2, "process": number + 1}
            found.append(
                row(name, float(np.median(times)), hidden, rounds=times, **{**which, **more})
            )
    return found


@pytest.fixture
def two(tmp_path):
    """Write a base and a new run."""

    def write(base, new):
        for name, rows in (("base", base), ("new", new)):
            shutil.rmtree(tmp_path / "results" / name, ignore_errors=True)
            written(tmp_path / "results" / name, *rows)

    return write


def with_versions(folder, **versions):
    """What `made_up.written` left, with versions."""
    path = folder / "records.jsonl"
    lines = [{**msgspec.json.decode(line), "versions": versions} for line in path.open("rb")]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def test_unchanged_runs_pass_and_the_first_lines_say_what_is_compared(lstm_bench, two):
    two(cells(), cells(seed=2))
    done = lstm_bench("gate", "base", "new")
    assert (done.returncode, done.stderr) == (0, "")
    first = ["base: run base, new: run new", "nothing differs but the time"]
    assert done.stdout.splitlines()[:2] == first
    assert "passed: 6 cells of 1 row" in done.stdout


def test_a_row_that_is_slower_everywhere_fails(lstm_bench, two):
    two(cells(), cells(factor=1.1, seed=2))
    done = lstm_bench("gate", "base", "new")
    assert done.returncode == 3
    assert "1 slower as a whole" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_a_single_slow_shape_fails_and_is_named(lstm_bench, two):
    two(cells(), cells(factor=1.5, at=64, seed=2))
    done = lstm_bench("gate", "base", "new", "--format", "json")
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert [(one["shape"], one["verdict"]) for one in found["failures"]] == [("64,1,1", "slower")]
    assert found["passed"] is False


def test_what_is_faster_or_slower_by_less_than_the_threshold_passes(lstm_bench, two):
    for factor in (0.6, 1.04):
        quiet = {"spread": 0.001, "passes": 3}
        two(cells(**quiet), cells(factor=factor, seed=2, **quiet))
        assert lstm_bench("gate", "base", "new", "--strict").returncode == 0
    assert lstm_bench("gate", "base", "new", "--threshold", "3%").returncode == 3


@pytest.mark.parametrize("status", ["wrong", "crashed", "unsupported", "missing"])
def test_a_cell_that_had_a_time_must_have_one(lstm_bench, two, status):
    two(cells(), [*cells(seed=2)[1:], row("pytorch", None, SIZES[0], status=status)])
    done = lstm_bench("gate", "base", "new")
    assert done.returncode == 3
    assert f"1 {status}" in done.stdout


def test_a_cell_or_a_row_that_is_not_there_any_more_fails(lstm_bench, two):
    two(cells(), [one for one in cells() if one.shape.hidden != 8])
    assert lstm_bench("gate", "base", "new").returncode == 3
    two([*cells(), *cells("other")], cells())
    done = lstm_bench("gate", "base", "new")
    assert (done.returncode, "6 missing" in done.stdout) == (3, True)
    assert lstm_bench("gate", "base", "new", "-i", "pytorch").returncode == 0


def test_what_failed_before_may_fail_again_but_not_become_wrong(lstm_bench, two):
    crashed = row("pytorch", None, 8)
    others = [one for one in cells() if one.shape.hidden != 8]
    two([*others, crashed], [*others, crashed])
    assert lstm_bench("gate", "base", "new").returncode == 0
    two([*others, crashed], [*others, row("pytorch", None, 8, status="wrong")])
    assert lstm_bench("gate", "base", "new").returncode == 3


def test_a_wrong_control_fails_and_a_missing_one_does_not(lstm_bench, two):
    without = [one for one in cells() if one.copy == 1 or one.shape.hidden != 8]
    two(cells(), [*without, row("pytorch", None, 8, status="wrong", copy=2)])
    assert lstm_bench("gate", "base", "new").returncode == 3
    two(cells(), without)
    assert lstm_bench("gate", "base", "new").returncode == 0


@pytest.mark.parametrize("where", ["host", "device"])
def test_memory_fails_by_the_threshold_and_by_64_mib(lstm_bench, two, where):
    for before, after, code in ((100, 150, 0), (100, 200, 3), (8000, 8200, 0), (200, 100, 0)):
        sides = [cells(memory={f"{where} peak": size * MIB}) for size in (before, after)]
        two(*sides)
        done = lstm_bench("gate", "base", "new")
        assert done.returncode == code
        assert (f"{where} memory" in done.stdout) == (code == 3)


def test_what_noise_explains_passes_is_listed_with_rounds_and_fails_if_strict(lstm_bench, two):
    two(cells(spread=0.2), cells(spread=0.2, factor=1.5, at=64))
    done = lstm_bench("gate", "base", "new", "--format", "json")
    assert done.returncode == 0
    listed = {one["shape"]: one["rounds"] for one in json.loads(done.stdout)["unsure"]}
    assert listed["64,1,1"] > 10
    assert lstm_bench("gate", "base", "new", "--strict").returncode == 3


def test_a_cell_that_is_unsure_leaves_it_undecided_in_every_format(lstm_bench, two, tmp_path):
    """1.75x slower in one pass at one shape, noise under 1%: nobody knows how processes differ."""
    one = {"spread": 0.005, "at": 8}
    two(cells(**one)[::6], cells(factor=1.75, seed=2, **one)[::6])
    done = lstm_bench("gate", "base", "new")
    assert done.returncode == 0
    assert done.stdout.splitlines()[2] == "not decided: 1 of 1 cell, up to 1.75x"
    assert "passed" not in done.stdout
    assert "unknown" in done.stdout
    assert "lstm-bench grid GRID --passes" in done.stdout
    facts = json.loads(lstm_bench("gate", "base", "new", "--format", "json").stdout)
    assert (facts["passed"], facts["decided"]) == (False, False)
    assert facts["unsure"][0]["noise"] is None
    lstm_bench("gate", "base", "new", "--output", "junit.xml")
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    (case,) = suite.iter("testcase")
    assert (suite.get("skipped"), suite.get("failures")) == ("1", "0")
    assert "1.75x; noise unknown" in case.find("skipped").get("message")
    assert lstm_bench("gate", "base", "new", "--strict").returncode == 3
    before = (tmp_path / "results/base/records.jsonl").read_bytes()
    done = lstm_bench("gate", "base", "new", "--update")
    assert (done.returncode, "base not updated" in done.stderr) == (0, True)
    assert (tmp_path / "results/base/records.jsonl").read_bytes() == before


def test_without_controls_the_noise_is_unknown_and_nothing_is_the_same(lstm_bench, two):
    alone = [[one for one in cells(seed=seed) if one.copy == 1] for seed in (1, 2)]
    for side in alone:
        for one in side:
            one.round_latency_s = one.round_latency_s[:4]
    two(*alone)
    done = lstm_bench("gate", "base", "new", "--format", "json")
    verdicts = [one for one in json.loads(done.stdout)["verdicts"] if one["shape"] != "all"]
    assert {(one["verdict"], one["noise"]) for one in verdicts} == {("unsure", None)}
    assert done.returncode == 0
    assert "not decided: 6 of 6 cells" in lstm_bench("gate", "base", "new").stdout


def test_a_noise_that_could_hide_twice_the_time_is_not_measurable_and_no_cell_is_the_same(
    lstm_bench, two
):
    """Whether it is known from rounds, or from processes of which one is three times as slow."""
    for more in ({"spread": 0.3}, {"luck": (1.0, 3.0)}):
        two(cells(**more), cells(**{**more, "seed": 2}))
        done = lstm_bench("gate", "base", "new", "--format", "json")
        verdicts = {one["shape"]: one for one in json.loads(done.stdout)["verdicts"]}
        assert verdicts["256,1,1"]["verdict"] == "unsure"
        assert verdicts["256,1,1"]["noise"] > 1
        assert "not measurable here" in lstm_bench("gate", "base", "new").stdout


def test_one_process_that_stands_out_leaves_other_cells_of_several_passes_decided(lstm_bench, two):
    two(cells(luck=(1.0,) * 7 + (3.0,), passes=4), cells(passes=4, seed=2))
    done = lstm_bench("gate", "base", "new", "--format", "json")
    verdicts = {one["shape"]: one["verdict"] for one in json.loads(done.stdout)["verdicts"]}
    assert {word for shape, word in verdicts.items() if shape != "256,1,1"} == {"same"}


def test_what_is_much_faster_but_not_for_sure_is_not_the_same(lstm_bench, two):
    two(cells(process=0), cells(process=0, factor=1 / 1.8, seed=2))
    done = lstm_bench("gate", "base", "new", "--format", "json")
    words = {one["verdict"] for one in json.loads(done.stdout)["verdicts"] if one["shape"] != "all"}
    assert words == {"unsure"}


def disturbed_base(passes=1, luck=()):
    """A base that was disturbed by 100x at size 256 in its first pass, or as `luck` says."""
    return cells(luck=luck or (100.0,) * 2 + (1.0,) * (2 * passes - 2), passes=passes)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("at", [None, 256])
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_base_that_was_disturbed_is_named_and_hides_nothing(lstm_bench, two, passes, at, factor):
    two(disturbed_base(passes), cells(factor=factor, at=at, seed=2, passes=passes))
    done = lstm_bench("gate", "base", "new", "--format", "json")
    found = json.loads(done.stdout)
    verdicts = {one["shape"]: one for one in found["verdicts"]}
    assert (verdicts["256,1,1"]["verdict"], verdicts["256,1,1"]["disturbed"]) == ("unsure", "base")
    everywhere = (factor, at) == (2.0, None)
    others = {one["verdict"] for shape, one in verdicts.items() if shape != "256,1,1"}
    assert others <= ({"slower", "unsure"} if everywhere else {"same"})
    assert verdicts["all"]["verdict"] == ("slower" if everywhere else "same")
    assert (found["passed"], found["decided"]) == (False, False)
    text = lstm_bench("gate", "base", "new").stdout
    assert "base disturbed at 1 cell of run base: pytorch 256,1,1 (" in text


def test_a_disturbed_control_of_the_base_leaves_the_other_shapes_decided(lstm_bench, two):
    two(disturbed_base(luck=(100.0, 1.0)), cells(seed=2))
    done = lstm_bench("gate", "base", "new")
    assert "not decided: 1 of 6 cells, down to 0.01" in done.stdout


def test_a_base_that_was_marked_as_disturbed_is_not_the_same_but_what_is_slower_than_it_fails(
    lstm_bench, two
):
    warning = "disturbed: other processes used 1.5 cores while this was measured"
    two(cells(warnings=[warning]), cells(seed=2))
    assert "base disturbed at 6 cells" in lstm_bench("gate", "base", "new").stdout
    two(cells(warnings=[warning]), cells(factor=2.0, at=64, seed=2))
    assert "1 slower" in lstm_bench("gate", "base", "new").stdout


def test_a_row_whose_cells_are_all_slower_is_slower_as_a_whole(lstm_bench, tmp_path):
    """By so unlike factors that their mean is in doubt."""
    new = [
        one
        for place, hidden in enumerate(SIZES)
        for one in cells("pytorch~new", 1.2 * 2**place, seed=2, group="g")
        if one.shape.hidden == hidden
    ]
    written(tmp_path / "results" / "both", *cells(group="g"), *new)
    done = lstm_bench("gate", "both", "--format", "json")
    words = {one["shape"]: one["verdict"] for one in json.loads(done.stdout)["verdicts"]}
    assert set(words.values()) == {"slower"}
    assert "all" in words


@pytest.mark.parametrize(("measured", "found"), [(9, "3 of 12 planned cells"), (0, "is empty")])
@pytest.mark.parametrize("side", ["base", "new"])
def test_a_run_that_lacks_planned_cells_is_refused_with_what_resumes_it(
    lstm_bench, two, tmp_path, side, measured, found
):
    two(cells(), cells(seed=2))
    folder = tmp_path / "results" / side
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["plan"] |= {"controls": 1, "environments": {"fake": "/new/python"}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(lines[:measured]))
    done = lstm_bench("gate", "base", "new")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{side}: " in done.stderr
    assert found in done.stderr
    assert f"lstm-bench grid --resume {side} --python fake=/new/python" in done.stderr


def test_a_missing_row_hints_at_another_name(lstm_bench, two):
    two(cells("pytorch"), cells("pytorch-2.13"))
    done = lstm_bench("gate", "base", "new")
    assert (done.returncode, "--as NEW=pytorch" in done.stdout) == (3, True)
    done = lstm_bench("gate", "base", "new", "-i", "pytorch-2.13")
    assert (done.returncode, "--as NEW=BASE" in done.stderr) == (2, True)


def test_one_slow_process_is_unsure_and_the_passes_that_would_tell_are_named(lstm_bench, two):
    """In the base one process of two is slow by luck, in the new run both are."""
    two(cells(luck=(1.0, 1.25)), cells(luck=(1.25, 1.25), seed=2))
    done = lstm_bench("gate", "base", "new", "--format", "json")
    assert done.returncode == 0
    (told,) = json.loads(done.stdout)["unsure"]
    assert (told["shape"], told["rounds"]) == ("256,1,1", None)
    assert f"grid GRID --passes {told['passes']:.0f}`" in lstm_bench("gate", "base", "new").stdout


def test_as_many_passes_as_were_named_tell_luck_from_a_slowdown(lstm_bench, two):
    luck = (1.25, 1.0) * 4
    two(cells(luck=(1.0, 1.25)), cells(luck=(1.25, 1.25), seed=2))
    done = lstm_bench("gate", "base", "new", "--format", "json")
    passes = int(json.loads(done.stdout)["unsure"][0]["passes"])
    two(cells(luck=luck, passes=passes), cells(luck=luck[::-1], seed=2, passes=passes))
    assert lstm_bench("gate", "base", "new").returncode == 0
    slower = cells(luck=luck, seed=2, factor=1.15, at=128, passes=passes)
    two(cells(luck=luck, passes=passes), slower)
    done = lstm_bench("gate", "base", "new", "--format", "json")
    assert [one["shape"] for one in json.loads(done.stdout)["failures"]] == ["128,1,1"]


def test_controls_that_shared_a_process_do_not_show_how_processes_differ(lstm_bench, two):
    """Nor does a run without controls: below twice as slow it can't be known."""
    for factor, code in ((1.5, 0), (2.5, 3)):
        two(cells(process=0), cells(process=0, factor=factor, at=64, seed=2))
        assert lstm_bench("gate", "base", "new").returncode == code


def test_what_other_processes_disturbed_cannot_fail_but_is_told(lstm_bench, two):
    warning = "disturbed: other processes used 1.5 cores while this was measured"
    two(cells(), cells(factor=2.0, warnings=[warning]))
    done = lstm_bench("gate", "base", "new")
    assert done.returncode == 0
    assert "new disturbed at 6 cells of run new: pytorch 8,1,1 (" in done.stdout
    assert "not decided: 6 of 6 cells, up to 2.0" in done.stdout
    assert lstm_bench("gate", "base", "new", "--strict").returncode == 3


def test_two_rounds_are_never_sure(lstm_bench, two):
    two([row("a", 1.0, rounds=[1.0] * 2)], [row("a", 3.0, rounds=[3.0] * 2)])
    done = lstm_bench("gate", "base", "new")
    assert (done.returncode, "not decided: 1 of 1 cell, up to 3.00x" in done.stdout) == (0, True)


def test_other_threads_are_refused_unless_they_are_named(lstm_bench, two):
    two(cells(threads=1), cells(threads=2))
    done = lstm_bench("gate", "base", "new")
    assert (done.returncode, "--across threads" in done.stderr) == (2, True)
    assert lstm_bench("gate", "base", "new", "--across", "threads").returncode == 0


def test_other_versions_are_refused_unless_they_are_named_and_stand_in_the_first_line(
    lstm_bench, two, tmp_path
):
    two(cells(), cells(seed=2))
    for name, version in (("base", "2.12.0"), ("new", "2.13.0")):
        with_versions(tmp_path / "results" / name, torch=version)
    done = lstm_bench("gate", "base", "new")
    assert done.returncode == 2
    assert "torch (2.12.0 and 2.13.0)" in done.stderr
    assert "--across versions" in done.stderr
    done = lstm_bench("gate", "base", "new", "--across", "versions")
    assert (done.returncode, done.stdout.splitlines()[1]) == (0, "differs: torch 2.12.0 -> 2.13.0")


def test_settings_and_machine_that_changed_are_told(lstm_bench, two, tmp_path):
    two(cells(), cells(seed=2))
    path = tmp_path / "results" / "new" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["plan"]["sampling"] = {"rounds": 20}
    manifest["machine"]["environment"] = {"OMP_NUM_THREADS": "1"}
    path.write_text(json.dumps(manifest))
    first = lstm_bench("gate", "base", "new").stdout.splitlines()[1]
    assert "rounds 10 -> 20" in first
    assert "$OMP_NUM_THREADS none -> 1" in first


def test_two_versions_in_one_run_are_held_against_each_other(lstm_bench, tmp_path):
    rows = [*cells("pytorch~old", seed=2, group="g"), *cells(factor=1.5, group="g")]
    written(tmp_path / "results" / "both", *rows)
    assert lstm_bench("gate", "both").returncode == 3
    assert lstm_bench("gate", "both", "--as", "pytorch~old=pytorch").returncode == 0
    assert lstm_bench("gate", "both", "both", "-i", "pytorch").returncode == 3


def test_a_row_may_have_another_name_in_the_base(lstm_bench, two):
    two(cells("a"), cells("b", factor=1.5))
    assert lstm_bench("gate", "base", "new", "--as", "b=a").returncode == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["base"], "expected two, `lstm-bench gate BASE NEW`"),
        (["base", "gone"], "no run 'gone'"),
        (["base", "new", "-i", "pytorhc"], "did you mean 'pytorch'"),
        (["base", "new", "--as", "pytorch"], "expected two rows"),
        (["base", "new", "--as", "x=pytorch"], "'x' is not in new"),
        (["base", "new", "--threshold", "7"], "expected a share such as 7%"),
        (["base", "new", "--threshold", "much"], "expected a share such as 7%"),
        (["base", "new", "--shape", "9,9,9"], "9,9,9: not in base"),
        (["base", "new", "--update", "-i", "pytorch"], "only a part is judged"),
        (["base", "base", "--update"], "found one run"),
        (["base", "new", "--output", "x.pdf"], "found .pdf"),
    ],
)
def test_bad_input_is_told_with_what_to_type(lstm_bench, two, words, told):
    two(cells(), cells(seed=2))
    done = lstm_bench("gate", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_a_gate_without_a_cell_does_not_pass(lstm_bench, two):
    two([row("a", None)], [row("a", None)])
    done = lstm_bench("gate", "base", "new")
    assert (done.returncode, "no cell with a time" in done.stderr) == (2, True)
    done = lstm_bench("gate", "base")
    assert (done.returncode, "--as NEW=BASE" in done.stderr) == (2, True)


def test_junit_has_a_case_for_every_row_at_every_shape(lstm_bench, two, tmp_path):
    two([*cells(), *cells("<b>")], [*cells(factor=1.5, at=64), *cells("<b>", seed=2)])
    done = lstm_bench("gate", "base", "new", "--output", "junit.xml")
    assert done.returncode == 3
    assert "FAILED" in done.stderr
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    names = [(case.get("classname"), case.get("name")) for case in suite.iter("testcase")]
    assert {(row, f"{h},1,1") for row in ("pytorch", "<b>") for h in SIZES} <= set(names)
    assert len(set(names)) == len(names) == int(suite.get("tests"))
    failed = [
        case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None
    ]
    assert (failed, suite.get("failures")) == (["64,1,1"], "1")


def test_a_pull_request_gets_what_fails_first(lstm_bench, two):
    two([*cells(), *cells("b")], [*cells(factor=1.5, at=64), *cells("b", seed=2)])
    text = lstm_bench("gate", "base", "new", "--format", "github").stdout
    assert text.index("### failures") < text.index("### time by row")
    assert "64,1,1 | slower" in text


def test_update_replaces_the_base_only_where_the_gate_passes(lstm_bench, two, tmp_path):
    base, new = tmp_path / "results" / "base", tmp_path / "results" / "new"
    two(cells(), cells(factor=1.5))
    before = (base / "records.jsonl").read_bytes()
    done = lstm_bench("gate", "base", "new", "--update")
    assert (done.returncode, "not updated" in done.stderr) == (3, True)
    assert (base / "records.jsonl").read_bytes() == before
    done = lstm_bench("gate", "base", "new", "--update", "--force")
    assert (done.returncode, "base updated" in done.stderr) == (3, True)
    assert (base / "records.jsonl").read_bytes() == (new / "records.jsonl").read_bytes() != before
    two(cells(), cells(seed=2))
    assert lstm_bench("gate", "base", "new", "--update").returncode == 0
    assert (base / "records.jsonl").read_bytes() == (new / "records.jsonl").read_bytes()
    assert sorted(path.name for path in base.parent.iterdir()) == ["base", "new"]


def test_slowdowns_of_several_updates_add_up_and_fail(lstm_bench, two, tmp_path):
    """Each is below the threshold: 5% after 5%."""
    quiet = {"spread": 0.001}
    base, new = tmp_path / "results" / "base", tmp_path / "results" / "new"
    two(cells(**quiet), cells(factor=1.05, seed=2, **quiet))
    done = lstm_bench("gate", "base", "new", "--update")
    assert (done.returncode, "base updated" in done.stderr) == (0, True)
    shutil.rmtree(new)
    written(new, *cells(factor=1.05**2, seed=3, **quiet))
    assert not api.gate("base", "new", base.parent, strict=True)["undecided"].any()
    done = lstm_bench("gate", "base", "new", "--update")
    assert (done.returncode, "base not updated" in done.stderr) == (3, True)
    assert "FAILED: 6 cells of 1 row; 1 slower as a whole since the first base" in done.stdout
    assert "since the first base, measured 2026-01-01" in done.stdout
    total = json.loads(lstm_bench("gate", "base", "new", "--format", "json").stdout)["total"]
    assert total[0]["ratio"] == pytest.approx(1.05**2, abs=0.003)
    done = lstm_bench("gate", "base", "new", "--update", "--force")  # accepted: a new first base
    assert (done.returncode, "base updated" in done.stderr) == (3, True)
    assert lstm_bench("gate", "base", "new", "--strict").returncode == 0
    assert not (base / "first").exists()


def test_the_first_base_stays_the_first_over_many_updates(lstm_bench, two, tmp_path):
    two(cells(), cells(seed=2))
    before = (tmp_path / "results/base/records.jsonl").read_bytes()
    for _ in range(3):
        assert lstm_bench("gate", "base", "new", "--update", "--force").returncode == 0
    first = tmp_path / "results/base/first"
    assert (first / "records.jsonl").read_bytes() == before
    assert sorted(path.name for path in first.iterdir()) == ["manifest.json", "records.jsonl"]
    assert "since the first base" in lstm_bench("gate", "base", "new").stdout


def test_shipped_runs_that_were_repeated_are_not_slower():
    results = REPOSITORY / "results"
    for base, new in (("h200-repeat", "h200-paper"), ("h200-energy-1", "h200-energy-2")):
        found = api.gate(base, new, results)
        assert not found.loc[found["what"] == "time", "fails"].any()


def test_the_python_api_gives_one_line_per_verdict(two, tmp_path):
    two(cells(), cells(factor=1.5, at=64))
    found = api.gate("base", "new", tmp_path / "results")
    assert list(found.loc[found["fails"], "shape"]) == ["64,1,1"]
    assert len(found) == len(SIZES) + 1
    with pytest.raises(LstmBenchError, match="gate BASE NEW"):
        api.gate("base", results=tmp_path / "results")


def test_the_sample_grid_of_the_docs_is_planned_for_two_minutes(tmp_path):
    page = (REPOSITORY / "docs/how-to/gate-in-ci.md").read_text()
    (sample,) = re.findall(r"```yaml\n(shapes:.*?)```", page, re.S)
    path = tmp_path / "ci.yaml"
    path.write_text(sample)
    against = {"pytorch~base": "python3"}
    plan = grids.plan(grids.read(path), path, device="cpu", threads=2, against=against)
    assert Estimate(plan).run_s(plan.all_cells()) <= 120


def test_simulated_runs_pass_unchanged_and_fail_slower():
    """More pairs, which take long, are experiments/gate_simulation.py's business."""
    found = gate_simulation.simulated(gate_simulation.HOSTS[3], 3)
    assert found["unchanged"] == 0
    assert (found["row 10%"], found["shape 20%"], found["wrong"]) == (1, 1, 1)


@pytest.mark.parametrize("host", gate_simulation.HOSTS, ids=lambda host: host.name)
def test_no_simulated_slowdown_of_twice_the_time_passes_or_is_called_the_same(host):
    found = gate_simulation.simulated(host, 1)
    assert {case: share for case, share in found.items() if "misled" in case and share} == {}
