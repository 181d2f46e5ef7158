"""The gate passes what is unchanged, fails what is worse, and refuses what does not compare."""

import json
import re
import shutil
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from builders import row, written
from conftest import REPOSITORY

import lstm_bench as api
from experiments import gate_simulation
from lstm_bench.model.types import LstmBenchError
from lstm_bench.runs import grid as grids
from lstm_bench.runs.estimate import Estimate

SIZES = (8, 16, 32, 64, 128, 256)
MIB = 1 << 20
NEIGHBOUR = ["disturbed: other processes used 1.5 cores while this was measured"]


def rounds(seconds, spread=0.01, seed=1):
    """Ten rounds around a time, always the same ones."""
    noise = np.random.default_rng(seed).normal(0, spread, 10)
    return (seconds * np.exp(noise)).tolist()


def cells(name="pytorch", factor=1.0, at=None, spread=0.01, seed=1, luck=(), passes=1, **more):
    """A row at all sizes, in two processes a pass; `factor` slower, at one of them if `at` says so.

    `luck` is what each process in turn takes longer at size 256.
    """
    made = []
    for number in range(2 * passes):
        for place, hidden in enumerate(SIZES):
            slow = factor if at in (None, hidden) else 1.0
            slow *= luck[number] if luck and hidden == 256 else 1.0
            times = rounds(1e-3 * slow, spread, 1000 * seed + 10 * number + place)
            which = {"copy": 1 + number % 2, "pass_number": 1 + number // 2, "process": number + 1}
            made.append(
                row(name, float(np.median(times)), hidden, rounds=times, **{**which, **more})
            )
    return made


@pytest.fixture
def two(tmp_path):
    """Write a base and a new run."""

    def write(base, new):
        for name, rows in (("base", base), ("new", new)):
            shutil.rmtree(tmp_path / "results" / name, ignore_errors=True)
            written(tmp_path / "results" / name, *rows)

    return write


@pytest.fixture
def gate(lstm_bench, two):
    """The exit code, and the facts, of a gate; of two runs that are written first."""

    def judged(*runs, flags=(), words=("base", "new")):
        if runs:
            two(*runs)
        done = lstm_bench("gate", *words, *flags, "--format", "json")
        facts = json.loads(done.stdout) if done.stdout else {"error": done.stderr}
        for verdict in facts.get("verdicts", ()):
            if verdict["what"] == "time":
                facts[verdict["shape"]] = verdict
        failing = facts.get("failures", ())
        facts["failing"] = [f"{cell['shape']} {cell['verdict']}" for cell in failing]
        return done.returncode, facts

    return judged


def at_shapes(facts):
    """The verdicts on time at single shapes."""
    verdicts = [cell for cell in facts["verdicts"] if cell["what"] == "time"]
    return {cell["shape"]: cell["verdict"] for cell in verdicts if cell["shape"] != "all"}


def test_unchanged_runs_pass_and_the_first_lines_say_what_is_compared(lstm_bench, two):
    two(cells(), cells(seed=2))
    done = lstm_bench("gate", "base", "new")
    assert (done.returncode, done.stderr) == (0, "")
    first = ["base: run base, new: run new", "nothing differs but the time"]
    assert done.stdout.splitlines()[:2] == first
    assert "passed: 6 cells of 1 row" in done.stdout


def test_a_row_or_a_single_shape_that_is_slower_fails_and_is_named(gate, lstm_bench):
    code, facts = gate(cells(), cells(factor=1.1, seed=2))
    assert (code, facts["failing"][0], facts["passed"]) == (3, "all slower", False)
    code, facts = gate(cells(), cells(factor=1.5, at=64, seed=2))
    assert (code, facts["failing"]) == (3, ["64,1,1 slower"])
    assert max(map(len, lstm_bench("gate", "base", "new").stdout.splitlines())) <= 100


def test_the_ratio_is_that_of_the_figures_beside_it(lstm_bench, two):
    two([row("a", 330.6e-6)], [row("a", 931.4e-6)])  # 2.82 unless rounded first
    text = lstm_bench("gate", "base", "new").stdout
    assert re.search(r"331 us  931 us +2.81x", text)
    assert "2.82" not in text
    sizes = [[row("a", 1.0, memory={"host peak": int(s * MIB)})] for s in (100.49, 249.51)]
    two(*sizes)  # 2.483
    assert re.search(r"100 MiB  250 MiB +2.50x", lstm_bench("gate", "base", "new").stdout)


def test_what_is_faster_or_slower_by_less_than_the_threshold_passes(gate):
    for factor in (0.6, 1.04):
        quiet = {"spread": 0.001, "passes": 3}
        runs = cells(**quiet), cells(factor=factor, seed=2, **quiet)
        assert gate(*runs, flags=["--strict"])[0] == 0
    assert gate(flags=["--threshold", "3%"])[0] == 3


@pytest.mark.parametrize("status", ["wrong", "crashed", "unsupported", "missing"])
def test_a_cell_that_had_a_time_must_have_one(gate, status):
    new = [*cells(seed=2)[1:], row("pytorch", None, SIZES[0], status=status)]
    code, facts = gate(cells(), new)
    assert (code, facts["failing"]) == (3, [f"8,1,1 {status}"])


def test_a_cell_or_a_row_that_is_not_there_any_more_fails(gate):
    without = [cell for cell in cells() if cell.shape.hidden != 8]
    assert gate(cells(), without)[1]["failing"] == ["8,1,1 missing"]
    code, facts = gate([*cells(), *cells("other")], cells())
    assert (code, len(facts["failing"])) == (3, 6)
    assert gate(flags=["-i", "pytorch"])[0] == 0


def test_what_failed_before_may_fail_again_but_not_become_wrong(gate):
    crashed = row("pytorch", None, 8)
    others = [cell for cell in cells() if cell.shape.hidden != 8]
    assert gate([*others, crashed], [*others, crashed])[0] == 0
    wrong = row("pytorch", None, 8, status="wrong")
    assert gate([*others, crashed], [*others, wrong])[1]["failing"] == ["8,1,1 wrong"]


def test_a_wrong_control_fails_and_a_missing_one_does_not(gate):
    without = [cell for cell in cells() if cell.copy == 1 or cell.shape.hidden != 8]
    wrong = row("pytorch", None, 8, status="wrong", copy=2)
    assert gate(cells(), [*without, wrong])[0] == 3
    assert gate(cells(), without)[0] == 0


@pytest.mark.parametrize("where", ["host", "device"])
def test_memory_fails_by_the_threshold_and_by_64_mib(gate, where):
    for before, after, larger in ((100, 150, 0), (100, 200, 1), (8000, 8200, 0), (200, 100, 0)):
        sides = [cells(memory={f"{where} peak": size * MIB}) for size in (before, after)]
        code, facts = gate(*sides)
        kinds = {cell["what"] for cell in facts.get("failures", ())}
        assert (code, kinds) == (3 * larger, {f"{where} memory"} if larger else set())


def test_what_noise_explains_passes_is_listed_with_rounds_and_fails_if_strict(gate):
    code, facts = gate(cells(spread=0.2), cells(spread=0.2, factor=1.5, at=64))
    assert (code, facts["passed"]) == (0, False)
    assert {cell["shape"]: cell["rounds"] for cell in facts["unsure"]}["64,1,1"] > 10
    assert gate(flags=["--strict"])[0] == 3


def test_a_cell_that_is_unsure_leaves_it_undecided_in_every_format(gate, lstm_bench, two, tmp_path):
    """1.75x slower in one pass at one shape, noise under 1%: nobody knows how processes differ."""
    quiet = {"spread": 0.005, "at": 8}
    code, facts = gate(cells(**quiet)[::6], cells(factor=1.75, seed=2, **quiet)[::6])
    assert (code, facts["passed"], facts["decided"]) == (0, False, False)
    assert facts["unsure"][0]["noise"] is None
    done = lstm_bench("gate", "base", "new")
    assert done.stdout.splitlines()[2] == "not decided: 1 of 1 cell, up to 1.75x"
    assert "passed" not in done.stdout
    assert "lstm-bench grid GRID --passes" in done.stdout
    lstm_bench("gate", "base", "new", "--output", "junit.xml")
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    (case,) = suite.iter("testcase")
    assert (suite.get("skipped"), suite.get("failures")) == ("1", "0")
    assert "1.75x; noise unknown" in case.find("skipped").get("message")
    assert gate(flags=["--strict"])[0] == 3
    before = (tmp_path / "results/base/records.jsonl").read_bytes()
    done = lstm_bench("gate", "base", "new", "--update")
    assert (done.returncode, "base not updated" in done.stderr) == (0, True)
    assert (tmp_path / "results/base/records.jsonl").read_bytes() == before


def test_without_controls_the_noise_is_unknown_and_nothing_is_the_same(gate):
    alone = [[cell for cell in cells(seed=seed) if cell.copy == 1] for seed in (1, 2)]
    for cell in [*alone[0], *alone[1]]:
        cell.round_latency_s = cell.round_latency_s[:4]
    code, facts = gate(*alone)
    assert (code, facts["decided"], {*at_shapes(facts).values()}) == (0, False, {"unsure"})
    assert facts["8,1,1"]["noise"] is None


@pytest.mark.parametrize("more", [{"spread": 0.3}, {"luck": (1.0, 3.0)}])
def test_a_noise_that_could_hide_twice_the_time_is_not_measurable_and_no_cell_is_the_same(
    gate, lstm_bench, more
):
    """It is known from rounds, or from processes of which one is three times as slow."""
    _, facts = gate(cells(**more), cells(**{**more, "seed": 2}))
    assert facts["256,1,1"]["verdict"] == "unsure"
    assert facts["256,1,1"]["noise"] > 1
    assert "not measurable here" in lstm_bench("gate", "base", "new").stdout


def test_one_process_that_stands_out_leaves_other_cells_of_several_passes_decided(gate):
    _, facts = gate(cells(luck=(1.0,) * 7 + (3.0,), passes=4), cells(passes=4, seed=2))
    words = {word for shape, word in at_shapes(facts).items() if shape != "256,1,1"}
    assert words == {"same"}


def test_what_is_much_faster_but_not_for_sure_is_not_the_same(gate):
    _, facts = gate(cells(process=0), cells(process=0, factor=1 / 1.8, seed=2))
    assert {*at_shapes(facts).values()} == {"unsure"}


def disturbed_base(passes=1, luck=()):
    """A base that was disturbed by 100x at size 256 in its first pass, or as `luck` says."""
    return cells(luck=luck or (100.0,) * 2 + (1.0,) * (2 * passes - 2), passes=passes)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("at", [None, 256])
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_base_that_was_disturbed_is_named_and_hides_nothing(gate, lstm_bench, passes, at, factor):
    _, facts = gate(disturbed_base(passes), cells(factor=factor, at=at, seed=2, passes=passes))
    assert (facts["256,1,1"]["verdict"], facts["256,1,1"]["disturbed"]) == ("unsure", "base")
    everywhere = (factor, at) == (2.0, None)
    others = {word for shape, word in at_shapes(facts).items() if shape != "256,1,1"}
    assert others <= ({"slower", "unsure"} if everywhere else {"same"})
    assert facts["all"]["verdict"] == ("slower" if everywhere else "same")
    assert (facts["passed"], facts["decided"]) == (False, False)
    text = lstm_bench("gate", "base", "new").stdout
    assert "base disturbed at 1 cell of run base: pytorch 256,1,1 (" in text


def test_a_disturbed_control_of_the_base_leaves_the_other_shapes_decided(gate):
    _, facts = gate(disturbed_base(luck=(100.0, 1.0)), cells(seed=2))
    assert [cell["shape"] for cell in facts["verdicts"] if cell["undecided"]] == ["256,1,1"]


def marked(made, at):
    """The same cells, of which those at a size have the warning of a neighbour."""
    for cell in made:
        cell.warnings = NEIGHBOUR if at in (None, cell.shape.hidden) else []
    return made


@pytest.mark.parametrize("at", [None, 64])
def test_a_base_that_had_a_neighbour_is_not_the_same_but_what_is_slower_than_it_fails(gate, at):
    _, facts = gate(marked(cells(), at), cells(seed=2))
    assert (facts["64,1,1"]["verdict"], facts["64,1,1"]["disturbed"]) == ("unsure", "base")
    assert facts["8,1,1"]["verdict"] == ("same" if at else "unsure")
    _, facts = gate(marked(cells(), at), cells(factor=2.0, at=64, seed=2))
    assert facts["failing"] == ["64,1,1 slower"]


@pytest.mark.parametrize("at", [None, 64])
def test_a_new_run_that_had_a_neighbour_cannot_fail_but_is_named(gate, lstm_bench, at):
    code, facts = gate(cells(), marked(cells(factor=2.0, at=at, seed=2), at))
    assert (code, facts["decided"], facts["64,1,1"]["disturbed"]) == (0, False, "new")
    count = "1 cell" if at else "6 cells"
    text = lstm_bench("gate", "base", "new").stdout
    assert f"new disturbed at {count} of run new" in text
    assert gate(flags=["--strict"])[0] == 3


def test_a_row_whose_cells_are_all_slower_is_slower_as_a_whole(gate, tmp_path):
    """The factors are so unlike that their mean is in doubt."""
    new = [
        cell
        for place, hidden in enumerate(SIZES)
        for cell in cells("pytorch~new", 1.2 * 2**place, seed=2, group="g")
        if cell.shape.hidden == hidden
    ]
    written(tmp_path / "results" / "both", *cells(group="g"), *new)
    _, facts = gate(words=["both"])
    assert {*at_shapes(facts).values(), facts["all"]["verdict"]} == {"slower"}


@pytest.mark.parametrize(("measured", "message"), [(9, "3 of 12 planned cells"), (0, "12 of 12")])
@pytest.mark.parametrize("side", ["base", "new"])
def test_a_run_that_lacks_planned_cells_is_refused_with_what_resumes_it(
    lstm_bench, two, tmp_path, side, measured, message
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
    assert message in done.stderr
    assert f"lstm-bench grid --resume {side} --python fake=/new/python" in done.stderr


def test_a_missing_row_hints_at_another_name(lstm_bench, two):
    two(cells("pytorch"), cells("pytorch-2.13", factor=1.5))
    done = lstm_bench("gate", "base", "new")
    assert (done.returncode, "--as NEW=pytorch" in done.stdout) == (3, True)
    done = lstm_bench("gate", "base", "new", "-i", "pytorch-2.13")
    assert (done.returncode, "--as NEW=BASE" in done.stderr) == (2, True)
    done = lstm_bench("gate", "base", "new", "--as", "pytorch-2.13=pytorch")
    assert (done.returncode, "slower as a whole" in done.stdout) == (3, True)


def test_slow_processes_are_unsure_until_as_many_passes_tell_them_from_a_slowdown(gate, lstm_bench):
    """In the base one process of two is slow by luck, in the new run both are."""
    code, facts = gate(cells(luck=(1.0, 1.25)), cells(luck=(1.25, 1.25), seed=2))
    (open_,) = facts["unsure"]
    assert (code, open_["shape"], open_["rounds"]) == (0, "256,1,1", None)
    passes, luck = int(open_["passes"]), (1.25, 1.0) * 4
    assert f"grid GRID --passes {passes}`" in lstm_bench("gate", "base", "new").stdout
    base = cells(luck=luck, passes=passes)
    assert gate(base, cells(luck=luck[::-1], seed=2, passes=passes))[0] == 0
    slower = cells(luck=luck, seed=2, factor=1.15, at=128, passes=passes)
    assert gate(base, slower)[1]["failing"] == ["128,1,1 slower"]


def test_controls_that_shared_a_process_do_not_show_how_processes_differ(gate):
    """Nor does a run without controls: below twice as slow it can't be known."""
    for factor, code in ((1.5, 0), (2.5, 3)):
        assert gate(cells(process=0), cells(process=0, factor=factor, at=64, seed=2))[0] == code


def test_other_threads_are_refused_unless_they_are_named(gate):
    code, facts = gate(cells(threads=1), cells(threads=2))
    assert (code, "--across threads" in facts["error"]) == (2, True)
    assert gate(flags=["--across", "threads"])[0] == 0


def test_other_versions_are_refused_unless_they_are_named_and_stand_in_the_first_lines(
    gate, two, tmp_path
):
    two(cells(), cells(seed=2))
    for name, version in (("base", "2.12.0"), ("new", "2.13.0")):
        path = tmp_path / "results" / name / "records.jsonl"
        lines = [msgspec.json.decode(line) for line in path.open("rb")]
        lines = [msgspec.json.encode({**line, "versions": {"torch": version}}) for line in lines]
        path.write_bytes(b"\n".join(lines))
    code, facts = gate()
    assert (code, "torch (2.12.0 and 2.13.0)" in facts["error"]) == (2, True)
    assert "--across versions" in facts["error"]
    code, facts = gate(flags=["--across", "versions"])
    assert (code, facts["differs"]) == (0, {"torch": ["2.12.0", "2.13.0"]})


def test_settings_and_machine_that_changed_stand_in_the_first_lines(lstm_bench, two, tmp_path):
    two(cells(), cells(seed=2))
    path = tmp_path / "results" / "new" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["plan"]["sampling"] = {"rounds": 20}
    manifest["machine"]["environment"] = {"OMP_NUM_THREADS": "1"}
    path.write_text(json.dumps(manifest))
    first = lstm_bench("gate", "base", "new").stdout.splitlines()[1]
    assert "rounds 10 -> 20" in first
    assert "$OMP_NUM_THREADS none -> 1" in first


def test_two_versions_in_one_run_are_held_against_each_other(gate, tmp_path):
    rows = [*cells("pytorch~old", seed=2, group="g"), *cells(factor=1.5, group="g")]
    written(tmp_path / "results" / "both", *rows, *cells("other", group="g"))
    assert gate(words=["both"])[0] == 3
    assert gate(words=["both"], flags=["--as", "pytorch~old=pytorch"])[0] == 0
    assert gate(words=["both", "both"], flags=["-i", "pytorch"])[0] == 3
    rows = [*cells("pytorch~2.12", group="g"), *cells(group="g"), *cells("other", group="g")]
    written(tmp_path / "results" / "no-sides", *rows)
    for run, name in (("both", "other"), ("both", "pytorhc"), ("no-sides", "other")):
        code, facts = gate(words=[run], flags=["-i", name])  # not compared with itself
        assert (code, f"{name!r} is not compared" in facts["error"]) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["base"], "expected two, `lstm-bench gate BASE NEW`, or two of its rows, as in --as"),
        (["base", "gone"], "no run 'gone'"),
        (["base", "new", "-i", "pytorhc"], "did you mean 'pytorch'"),
        (["base", "new", "--as", "pytorch"], "expected two rows"),
        (["base", "new", "--as", "x=pytorch"], "'x' is not in new"),
        (["base", "new", "--threshold", "7"], "expected a share such as 7%"),
        (["base", "new", "--threshold", "much"], "expected a share such as 7%"),
        (["base", "new", "--shape", "9,9,9"], "9,9,9: not in base"),
        (["base", "new", "--update", "-i", "pytorch"], "only a part is judged"),
        (["base", "base", "--update"], "found one run"),
        (["base", "base", "--as", "pytorch=pytorch"], "which compares a row with itself"),
        (["base", "new", "--output", "x.pdf"], "found .pdf"),
    ],
)
def test_bad_input_is_refused_with_what_to_type(lstm_bench, two, words, message):
    two(cells(), cells(seed=2))
    done = lstm_bench("gate", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_gate_without_a_cell_does_not_pass(gate):
    code, facts = gate([row("a", None)], [row("a", None)])
    assert (code, "no cell with a time" in facts["error"]) == (2, True)


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
        outcome = api.gate(base, new, results)
        assert not outcome.loc[outcome["what"] == "time", "fails"].any()


def test_the_python_api_gives_one_line_per_verdict(two, tmp_path):
    two(cells(), cells(factor=1.5, at=64))
    outcome = api.gate("base", "new", tmp_path / "results")
    assert list(outcome.loc[outcome["fails"], "shape"]) == ["64,1,1"]
    assert len(outcome) == len(SIZES) + 1
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


#: Pairs of runs on a host; experiments/gate_simulation.py simulates more, which takes long.
SIMULATED = [(host, 3 if host.passes > 1 else 1) for host in gate_simulation.HOSTS]


@pytest.mark.parametrize(("host", "pairs"), SIMULATED, ids=[host.name for host, _ in SIMULATED])
def test_no_simulated_slowdown_of_twice_the_time_passes_or_is_called_the_same(host, pairs):
    outcome = gate_simulation.simulated(host, pairs)
    assert {case: share for case, share in outcome.items() if "misled" in case and share} == {}
    if host.passes > 1:  # as many as decide what is unchanged, and what is slower by less
        assert outcome["unchanged"] == 0
        assert (outcome["row 10%"], outcome["shape 20%"], outcome["wrong"]) == (1, 1, 1)
