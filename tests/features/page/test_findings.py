"""Sentences say what a run shows beyond its noise, and nothing else."""

import pytest

from grids import GRID, cell, grid, run_of
from lstm_bench.features.page import findings
from lstm_bench.features.page.findings import trust
from lstm_bench.report import run_report
from lstm_bench.report.fastest import Compared


def sentences(run):
    return [*findings.findings(run, Compared(run, run.cells, "latency")), *trust(run)]


def text_of(run):
    return " ".join(sentences(run))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (
            {"deepbench": 1, "pytorch": 2, "tf-mode0": 3},
            "Fastest of what you can deploy in fp32: pytorch at 8 of 8 shapes.",
        ),
        ({"pytorch": 1, "tf-mode0": 1.004}, "Fastest in fp32: none beyond the noise at 8 of 8"),
        ({"pytorch": 1, "tf-mode0": 3}, "Fastest in fp32: pytorch at 8 of 8 shapes."),
    ],
    ids=["reference", "tie", "all-deployable"],
)
def test_the_winner_of_what_can_be_deployed_is_named_with_its_shapes(times, expected):
    assert sentences(run_of(grid(times)))[0].startswith(expected)


def test_winners_are_named_of_each_class_that_has_a_contest_and_of_all():
    rows = {"tf-mode0": 1, "pytorch": 0.8, "pytorch-half": 0.5}
    text = text_of(run_of(grid(rows)))
    assert "Fastest in fp32: pytorch at 8 of 8" in text
    assert "Fastest in any precision: pytorch-half at 8" in text
    assert "Fastest in half precision" not in text  # it has nobody to beat in its class
    text = text_of(run_of(grid({**rows, "pytorch-amp": 0.4})))
    assert "Fastest in half precision: pytorch-amp at 8" in text


@pytest.mark.parametrize(
    ("name", "time", "sentence"),
    [
        ("tf-mode0", lambda s: 6 if s[2] == 10 else 24, "tf-mode0 is 12x slower"),  # their mean
        ("deepbench-best", 0.125, "deepbench-best is 8.0x faster"),
        ("pytorch", lambda s: 8.1 if s[1] == 1 else 1.5, "8.1x at batch 1, 1.50x at batch 64"),
        ("pytorch", 1.03, "No clear difference between pytorch and deepbench"),
        ("pytorch", 1.2, "pytorch is 1.20x slower"),
    ],
)
def test_a_row_costs_its_geometric_mean_against_the_baseline_beyond_the_noise(name, time, sentence):
    assert sentence in text_of(run_of(grid({"deepbench": 1, name: time}, floor=0.05)))


def test_one_round_at_one_shape_is_no_claim_however_large():
    rows = [cell("deepbench", 1e-3, rounds=1), cell("pytorch", 9e-3, rounds=1)]
    assert "9.0x" not in text_of(run_of(rows))
    assert "No clear difference between pytorch and deepbench" in text_of(run_of(rows))


def test_lower_precision_is_held_against_the_same_row_in_fp32_on_as_many_threads():
    times = {"deepbench": 1, "pytorch": 1, "pytorch-amp": 2, "pytorch-half": 0.5}
    times |= {"tf-mode0-amp": 7, "pytorch@1": 4, "pytorch-amp@1": 2}
    text = text_of(run_of(grid(times)))
    assert "pytorch-amp is 2.0x slower than pytorch." in text
    assert "pytorch-half is 2.0x faster than pytorch." in text
    assert "pytorch-amp@1 is 2.0x faster than pytorch@1." in text
    assert "tf-mode0-amp is" not in text  # its full precision was not measured


def test_less_work_is_never_called_faster():
    text = text_of(run_of(grid({"deepbench": 1, "deepbench-skip": 0.2, "pytorch": 2})))
    assert "deepbench-skip" not in text
    assert "does less work" in text


SHORT = [cell("pytorch", 5e-5, (4, 1, 1), copy) for copy in (1, 2)]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (grid({"deepbench": 1}, 0.02), "Noise floor: 2.0%; smaller"),
        (grid({"pytorch": 1, "tf-mode0": 3}, 0.001, GRID[:2]), "Noise floor: 5.0%"),
        (grid({"pytorch": 1}, 0.001, GRID[:2]), "it rests on few pairs."),
        ([*grid({"pytorch": 1}, 0.02), *SHORT], "Noise floor: 2.0%;"),
        (grid({"pytorch": 2})[::2], "Noise of latency not measured"),
    ],
    ids=["class", "few-pairs-as-verdicts", "few-pairs", "borrowed", "no-controls"],
)
def test_the_noise_floor_is_the_one_that_verdicts_use(rows, sentence):
    assert sentence in text_of(run_of(rows))


def test_an_answer_that_is_wrong_or_was_not_checked_is_not_passed_over():
    rows = grid({"deepbench": 1, "pytorch": 2})
    assert "; all outputs checked; on A GPU" in findings.subject(run_of(rows))
    rows[0].check = None
    assert "; 23 of 24 outputs checked" in findings.subject(run_of(rows))
    rows[1].status = "wrong"
    assert "; 1 output wrong" in findings.subject(run_of(rows))


def test_an_incomplete_or_damaged_run_says_so():
    shapes = [(*shape, shape[0]) for shape in GRID]
    run = run_of(grid({"deepbench": 1}, shapes=GRID[:6]), shapes=shapes, damaged=1)
    assert "Not complete: 4 of 16 planned cells still to be measured." in trust(run)
    assert "Damaged: 1 line of records.jsonl cannot be read" in text_of(run)


def test_a_run_whose_last_shape_was_cut_short_is_not_complete():
    rows = grid({"deepbench": 1})
    whole, never_begun = run_of(rows), run_of(rows[:-1])
    assert (whole.left, never_begun.left) == (0, 1)
    assert "ot complete" not in text_of(whole) + run_report.heading(whole)
    rows[-1].status = "interrupted"
    for run in (never_begun, run_of(rows)):
        assert "Not complete: 1 of 16 planned cells still to be measured." in trust(run)
        assert "not complete: 1 of 16 planned cells still to" in run_report.heading(run)


def test_failures_and_warnings_are_counted_by_their_kind():
    rows = grid({"deepbench": 1})
    for row in rows[:3]:  # the second of them a control
        row.warnings = ["capped: 1 rounds in 0.8 s", "not warm: still moving"]
    rows += [cell("tf-mode1", status="oom", shape=s, reason="full") for s in GRID]
    assert "Missing: tf-mode1: 8 oom: full." in trust(run_of(rows))
    assert "2 of 8 cells capped: " in text_of(run_of(rows))
    assert "2 of 8 cells not warm: " in text_of(run_of(rows))


def test_a_run_with_nothing_to_compare_says_so():
    assert sentences(run_of(grid({"pytorch": 1})))[0].startswith("Only pytorch was measured")
    for rows in ([], [cell("pytorch", status="crashed", reason="boom")]):
        run = run_of(rows, shapes=[(8, 1, 10, 8)])
        assert sentences(run)[0].startswith("Nothing was measured")
        assert trust(run)
        assert findings.subject(run)


def test_two_that_share_no_shape_are_not_compared():
    rows = [cell("deepbench", 1e-3, (8, 1, 10)), cell("pytorch", 1e-3, (16, 1, 10))]
    assert not any(" than " in sentence for sentence in sentences(run_of(rows)))
