"""Sentences say what a run shows beyond its noise, and nothing else."""

import pytest

from grids import GRID, cell, grid, run_of
from lstm_bench.features.page import findings
from lstm_bench.features.page.findings import trust
from lstm_bench.model.types import Check
from lstm_bench.report import run_report
from lstm_bench.report.fastest import Compared


def sentences(run):
    said = findings.findings(run, Compared(run, run.cells, "latency"))
    return [*said, *trust(run)]


def told(run):
    return " ".join(sentences(run))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (
            {"deepbench": 1, "pytorch": 2, "tf-mode0": 3},
            "Of what you can deploy, pytorch (error 2e-06) is the",
        ),
        ({"pytorch": 1, "tf-mode0": 3}, "pytorch (error 2e-06) is the fastest at 8 of 8 shapes."),
        ({"pytorch": 1, "tf-mode0": 1.004}, "Nothing is clearly the fastest at any of 8 shapes."),
    ],
    ids=["reference", "all-deployable", "tie"],
)
def test_the_winner_of_what_can_be_deployed_is_named_with_its_shapes(times, expected):
    assert any(s.startswith(expected) for s in sentences(run_of(grid(times))))


def test_winners_are_named_of_each_class_that_has_a_contest_and_of_all():
    rows = {"tf-mode0": 1, "pytorch": 0.8, "pytorch-half": 0.5}
    text = told(run_of(grid(rows)))
    assert "In fp32, pytorch (error 2e-06) is the fastest at 8 of 8" in text
    assert "In any precision, pytorch-half (error 2e-06) is the fastest" in text
    assert "In half precision, pytorch-half" not in text  # it has nobody to beat in its class
    text = told(run_of(grid({**rows, "pytorch-amp": 0.4})))
    assert "In half precision, pytorch-amp (error 2e-06) is the fastest" in text


def leads(times):
    run = run_of(grid(times))
    return [*findings.leads(run, Compared(run, run.cells, "latency"))]


def test_the_best_row_of_each_framework_is_held_against_the_reference():
    times = {"deepbench": 1.5, "deepbench-best": 1, "tf-mode0": 6, "tf-mode1": 9}
    first, second, *_ = leads({**times, "pytorch": lambda shape: 8.4 if shape[1] == 1 else 1.3})
    assert first == (
        "PyTorch is 3.3x slower than the best of cuDNN: 8.4x at batch 1, 1.30x at batch 64."
    )
    assert second == "TensorFlow (tf-mode0) is 6.0x slower than the best of cuDNN."


def test_each_precision_has_a_reference_of_its_own():
    times = {"deepbench-best": 1, "pytorch": 2, "deepbench-fp16-best": 0.1, "pytorch-half": 0.3}
    assert leads(times)[:2] == [
        "PyTorch is 2.0x slower than the best of cuDNN.",
        "In half precision, PyTorch (pytorch-half) is 3.0x slower than the best of cuDNN.",
    ]


def test_without_a_reference_the_frameworks_are_compared_with_each_other():
    assert leads({"pytorch": 1, "tf-mode0": 3}) == [
        "TensorFlow (tf-mode0) is 3.0x slower than PyTorch."
    ]
    assert leads({"pytorch": 1}) == []


@pytest.mark.parametrize(
    ("name", "time", "sentence"),
    [
        ("tf-mode0", lambda s: 6 if s[2] == 10 else 24, "tf-mode0 is 12x slower"),  # their mean
        ("deepbench-best", 0.125, "deepbench-best is 8.0x faster"),
        ("pytorch", lambda s: 8.1 if s[1] == 1 else 1.5, "8.1x at batch 1, 1.50x at batch 64"),
        ("pytorch", 1.03, "No difference beyond the noise floor between pytorch and deepbench"),
        ("pytorch", 1.2, "pytorch is 1.20x slower"),
    ],
)
def test_a_row_costs_its_geometric_mean_against_the_baseline_beyond_the_noise(name, time, sentence):
    assert sentence in told(run_of(grid({"deepbench": 1, name: time}, floor=0.05)))


def test_one_round_at_one_shape_is_no_claim_however_large():
    rows = [cell("deepbench", 1e-3, rounds=1), cell("pytorch", 9e-3, rounds=1)]
    assert "9.0x" not in told(run_of(rows))
    assert "No clear difference between pytorch and deepbench" in told(run_of(rows))


def test_lower_precision_is_held_against_the_same_row_in_fp32_on_as_many_threads():
    times = {"deepbench": 1, "pytorch": 1, "pytorch-amp": 2, "pytorch-half": 0.5}
    times |= {"tf-mode0-amp": 7, "pytorch@1": 4, "pytorch-amp@1": 2}
    text = told(run_of(grid(times)))
    assert "pytorch-amp is 2.0x slower than pytorch." in text
    assert "pytorch-half is 2.0x faster than pytorch." in text
    assert "pytorch-amp@1 is 2.0x faster than pytorch@1." in text
    assert "tf-mode0-amp is" not in text  # its full precision was not measured


def test_less_work_is_never_called_faster():
    run = run_of(grid({"deepbench": 1, "deepbench-skip": 0.2, "pytorch": 2}))
    (only,) = [sentence for sentence in sentences(run) if "deepbench-skip" in sentence]
    assert only.startswith("Less work, so never fastest: deepbench-skip")


def test_failures_are_counted_with_their_kind_and_whose_they_are():
    rows = grid({"deepbench": 1, "pytorch": 2})
    rows += [cell("tf-mode1", status="oom", shape=s, reason="full") for s in GRID]
    assert "Without a time: 8 of 24 cells, 8 oom (tf-mode1 8)." in trust(run_of(rows))
    assert "None of 16 cells failed or was left out." in trust(run_of(rows[:24]))


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
    assert sentence in told(run_of(rows))


def test_the_largest_error_is_named_with_its_tolerance():
    rows = grid({"deepbench": 1, "pytorch": 2})
    rows[3].check = Check(4e-5, 4e-5, 5e-5, True)
    (sentence,) = (s for s in trust(run_of(rows)) if "float64" in s)
    assert "all outputs" in sentence
    assert f"4e-05 in fp32 ({rows[3].implementation}, tolerance 5e-05)" in sentence


def test_an_answer_that_is_wrong_or_was_not_checked_is_not_passed_over():
    rows = grid({"deepbench": 1, "pytorch": 2})
    assert findings.subject(run_of(rows)).endswith("; all outputs checked")
    rows[1].status = "wrong"
    assert findings.subject(run_of(rows)).endswith("; 1 output wrong")
    rows[1].status, rows[0].check = "ok", None
    assert "23 of 24 outputs" in told(run_of(rows))
    for row in rows:
        row.check = None
    assert "No output was checked" in told(run_of(rows))


def test_an_incomplete_or_damaged_run_says_so():
    shapes = [(*shape, shape[0]) for shape in GRID]
    run = run_of(grid({"deepbench": 1}, shapes=GRID[:6]), shapes=shapes, damaged=1)
    assert "4 of 16 planned cells still to be measured, controls counted." in told(run)
    assert "could not be read: 1 line." in told(run)
    assert "6 of 8 planned shapes" in findings.subject(run)


def test_a_run_whose_last_shape_was_cut_short_is_not_complete():
    rows = grid({"deepbench": 1})
    whole, never_begun = run_of(rows), run_of(rows[:-1])
    assert (whole.left, never_begun.left) == (0, 1)
    assert "not complete" not in told(whole) + run_report.heading(whole)
    rows[-1].status = "interrupted"
    for run in (never_begun, run_of(rows)):
        assert "not complete: 1 of 16 planned cells still to be measured" in told(run)
        assert "not complete: 1 of 16 planned cells still to" in run_report.heading(run)


def test_a_shape_without_any_time_does_not_count_as_measured():
    rows = grid({"deepbench": 1})
    for row in rows[-2:]:
        row.status, row.latency_s = "interrupted", None
    assert "1 implementation at 7 of 8 planned shapes on" in findings.subject(run_of(rows))


def test_warnings_are_counted_by_their_kind():
    rows = grid({"deepbench": 1})
    for row in rows[:3]:  # the second of them a control
        row.warnings = ["capped: 1 rounds in 0.8 s", "not warm: still moving"]
    assert "Warnings about 8 cells: 2 capped and 2 not warm." in trust(run_of(rows))


def test_a_run_with_nothing_to_compare_says_so():
    assert sentences(run_of(grid({"pytorch": 1})))[0].startswith("Only pytorch was measured")
    for rows in ([], [cell("pytorch", status="crashed", reason="boom")]):
        run = run_of(rows, shapes=[(8, 1, 10, 8)])
        assert sentences(run)[0].startswith("Nothing was measured")
        assert trust(run)
        assert findings.subject(run)


def test_a_cpu_run_names_the_processor_and_its_threads():
    rows = grid({"deepbench": 1, "pytorch": 2})
    for row in rows:
        row.device, row.threads = "cpu", 2
    run = run_of(rows, device="cpu", threads=2)
    assert "on A CPU, 2 threads;" in findings.subject(run)
    assert "GPU" not in told(run)


def test_two_that_share_no_shape_are_not_compared():
    rows = [cell("deepbench", 1e-3, (8, 1, 10)), cell("pytorch", 1e-3, (16, 1, 10))]
    assert not any(" than " in sentence for sentence in sentences(run_of(rows)))
