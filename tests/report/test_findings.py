"""Sentences say what a run shows beyond its noise, and nothing else."""

import numpy as np
import pytest

from lstm_bench import frameworks as registry
from lstm_bench.analysis import results
from lstm_bench.model.types import Check, Implementation, Record, Sampling, Settings, Shape
from lstm_bench.report import findings, run_report
from lstm_bench.report.findings import trust
from lstm_bench.runs.plan import Plan

GPU = {"cpu": "A CPU", "gpus": [{"name": "A GPU", "driver": "1.2", "memory_bytes": 2**30}]}
PRECISIONS = {"amp": "amp-fp16", "fp16": "fp16", "fp32": "fp32"}


def cell(name, seconds=None, shape=(8, 1, 10), copy=1, rounds=10, status="ok", **more):
    """One line of a run; its rounds go up and down by a tenth of a percent."""
    hidden, batch, timesteps = shape
    planned = planned_row(name)
    known = {
        "precision": PRECISIONS[planned.precision],
        "computes": planned.computes,
        "device": "cuda",
        "group": str(shape),
    }
    if status == "ok":
        spread = 1 + 0.001 * np.cos(np.arange(rounds) * 2.0 + len(name) + copy)
        known |= {
            "latency_s": seconds,
            "throughput_s": seconds * 0.9,
            "first_call_s": 0.1,
            "rounds": rounds,
            "round_latency_s": list(seconds * spread),
            "round_throughput_s": list(0.9 * seconds * spread),
            "check": Check(2e-6, 2e-6, 5e-5, True),
        }
    sizes = Shape(hidden, batch, timesteps, hidden)
    return Record(name, sizes, 1, copy, status, **{**known, **more})


def planned_row(name):
    """A row of the table, on as many threads as its name says; else a fake."""
    if name.partition("@")[0] in registry.IMPLEMENTATIONS:
        return registry.find(name, "here")
    return Implementation(name, "fake", "fp32", "fake", note=name)


def run_of(rows, name="a-run", machine=GPU, shapes=None, damaged=0, **settings):
    """A run of these lines, planned as they came out."""
    names = list(dict.fromkeys(row.implementation for row in rows))
    planned = [planned_row(n) for n in names]
    sizes = {(r.shape.hidden, r.shape.batch, r.shape.timesteps, r.shape.input_size) for r in rows}
    plan = Plan(
        "grid",
        tuple(Shape(*s) for s in shapes or sorted(sizes)),
        tuple(planned),
        Settings(**{"device": "cuda", **settings}),
        Sampling(),
    )
    manifest = {"plan": plan.to_json(), "machine": machine, "started_at": "2026-11-15T01:02:03"}
    return results.Run(name, manifest, results.frame(rows, machine), damaged)


GRID = [(h, b, t) for h in (8, 16) for b in (1, 64) for t in (10, 20)]


def grid(times, floor=0.01, shapes=GRID):
    """Every implementation at every shape, and A/A pairs that differ by about `floor`."""
    rows = []
    for place, shape in enumerate(shapes):
        scale = 0.002 * shape[0] * shape[2]
        for name, factor in times.items():
            factor = factor(shape) if callable(factor) else factor
            rows.append(cell(name, scale * factor, shape))
            if name == next(iter(times)):
                off = floor * (1 if place % 2 else -1)
                rows.append(cell(name, scale * factor * (1 + off), shape, copy=2))
    return rows


def sentences(run):
    return [*findings.findings(run), *trust(run)]


def told(run):
    return " ".join(sentences(run))


def test_the_winner_is_named_with_its_shapes():
    run = run_of(grid({"deepbench": 1, "pytorch": 1.5, "tf-mode0": 3}))
    assert findings.findings(run)[0] == (
        "Of what you can deploy, pytorch (error 2e-06) is the fastest at 8 of 8 shapes."
    )


def test_without_a_reference_everything_can_be_deployed():
    run = run_of(grid({"pytorch": 1, "tf-mode0": 3}))
    assert findings.findings(run)[0] == "pytorch (error 2e-06) is the fastest at 8 of 8 shapes."


def lead(times):
    run = run_of(grid(times))
    return findings.lead_sentences(run, findings.leads(run, findings.Pairs(run)))


def test_the_first_sentence_is_how_far_a_framework_is_from_the_reference():
    def pytorch(shape):
        return 8.4 if shape[1] == 1 else 1.3

    times = {
        "deepbench": 1.5,
        "deepbench-best": 1,
        "pytorch": pytorch,
        "tf-mode0": 6,
        "tf-mode1": 9,
    }
    first, second, last = lead(times)
    assert first == (
        "PyTorch is 3.3x slower than the best of cuDNN: 8.4x at batch 1, 1.30x at batch 64."
    )
    assert second == "TensorFlow (tf-mode0) is 6.0x slower than the best of cuDNN."
    assert last.startswith("The best of cuDNN is our C++ reference")


def test_each_precision_has_a_reference_of_its_own():
    times = {"deepbench-best": 1, "pytorch": 2, "deepbench-fp16-best": 0.1, "pytorch-half": 0.3}
    assert lead(times)[:2] == [
        "PyTorch is 2.0x slower than the best of cuDNN.",
        "In half precision, PyTorch (pytorch-half) is 3.0x slower than the best of cuDNN.",
    ]


def test_without_a_reference_the_frameworks_are_compared_with_each_other():
    assert lead({"pytorch": 1, "tf-mode0": 3}) == [
        "TensorFlow (tf-mode0) is 3.0x slower than PyTorch."
    ]
    assert lead({"pytorch": 1}) == []


def test_a_tie_has_no_winner():
    run = run_of(grid({"pytorch": 1, "tf-mode0": 1.004}))
    assert findings.findings(run)[0] == "Nothing is clearly the fastest at any of 8 shapes."


def test_the_winners_are_told_of_each_class_that_has_a_contest_and_of_all():
    rows = {"tf-mode0": 1, "pytorch": 0.8, "pytorch-half": 0.5}
    first, second = findings.findings(run_of(grid(rows)))[:2]
    full = "In fp32, pytorch (error 2e-06) is the fastest at 8 of 8 shapes."
    assert first == full
    # a row alone has nobody to beat in its class
    assert second.startswith("In any precision, pytorch-half (error 2e-06) is the fastest")
    first, second, third = findings.findings(run_of(grid({**rows, "pytorch-amp": 0.4})))[:3]
    assert first == full
    assert second.startswith("In half precision, pytorch-amp (error 2e-06) is the fastest")
    assert third.startswith("In any precision, pytorch-amp (error 2e-06) is the fastest")


def test_a_framework_costs_its_geometric_mean_against_the_baseline():
    factors = dict(zip(GRID, (6, 24) * 4, strict=True))
    run = run_of(grid({"deepbench": 1, "tf-mode0": lambda shape: factors[shape]}))
    (sentence,) = (s for s in findings.findings(run) if s.startswith("TensorFlow"))
    assert sentence.startswith("TensorFlow compared with deepbench: tf-mode0 12x slower")


def test_what_is_faster_is_told_as_faster():
    run = run_of(grid({"deepbench": 1, "deepbench-best": 0.125}))
    expected = "The other C++ implementations compared with deepbench: deepbench-best 8.0x faster"
    assert any(s.startswith(expected) for s in findings.findings(run))


@pytest.mark.parametrize(("factor", "claimed"), [(1.03, False), (1.2, True)])
def test_a_difference_within_the_noise_is_no_claim(factor, claimed):
    run = run_of(grid({"deepbench": 1, "pytorch": factor}, floor=0.05))
    assert ("pytorch 1.20x slower" in told(run)) is claimed
    assert ("no clear difference, pytorch takes" in told(run)) is not claimed


def test_one_round_at_one_shape_is_no_claim_however_large():
    rows = [cell("deepbench", 1e-3, rounds=1), cell("pytorch", 9e-3, rounds=1)]
    assert "9.0x slower" not in told(run_of(rows))
    assert "no clear difference" in told(run_of(rows))


def test_the_batch_is_told_where_it_matters():
    run = run_of(grid({"deepbench": 1, "pytorch": lambda s: 8.1 if s[1] == 1 else 1.5}))
    assert "pytorch by batch: 8.1x slower at batch 1, 1.50x slower at batch 64" in told(run)


def test_another_mix_of_shapes_is_not_taken_for_the_batch():
    shapes = [(h, 1, 10) for h in (8, 16, 24, 32)] + [(h, 64, 20) for h in (8, 16, 24, 32)]
    run = run_of(grid({"deepbench": 1, "pytorch": lambda s: s[2] / 10}, shapes=shapes))
    assert "by batch" not in told(run)


def test_lower_precision_is_compared_with_the_same_row_in_fp32():
    times = {"deepbench": 1, "pytorch": 1, "pytorch-amp": 2, "pytorch-half": 0.5, "tf-mode0-amp": 7}
    sentences = findings.findings(run_of(grid(times)))
    amp = next(s for s in sentences if s.startswith("AMP"))
    half = next(s for s in sentences if s.startswith("Half precision"))
    assert "pytorch-amp 2.0x slower" in amp
    assert "tf-mode0-amp" not in amp  # its full precision was not measured
    assert "pytorch-half 2.0x faster" in half


def test_less_work_is_never_called_faster():
    run = run_of(grid({"deepbench": 1, "deepbench-skip": 0.2, "pytorch": 2}))
    mentions = [s for s in sentences(run) if "deepbench-skip" in s]
    (only,) = mentions
    assert only.startswith("deepbench-skip does less work")


def test_failures_are_counted_with_their_kind_and_whose_they_are():
    rows = grid({"deepbench": 1, "pytorch": 2})
    rows += [cell("tf-mode1", status="oom", shape=s, reason="full") for s in GRID]
    assert "8 of 24 cells have no time: 8 oom (tf-mode1 8)." in trust(run_of(rows))
    assert "None of 16 cells failed or was left out." in trust(run_of(rows[:24]))


def test_the_noise_floor_is_told_by_class():
    (sentence,) = (s for s in trust(run_of(grid({"deepbench": 1}, 0.02))) if "Noise" in s)
    assert sentence == (
        "Noise floor: 2% for calls of at least 1 ms. Smaller differences are within noise."
    )


def test_the_noise_floor_of_few_pairs_is_the_one_that_verdicts_use():
    run = run_of(grid({"pytorch": 1, "tf-mode0": 3}, floor=0.001, shapes=GRID[:2]))
    assert (
        "Noise floor: 5% for calls of at least 1 ms. Smaller differences are within noise; it"
        " rests on few pairs." in trust(run)
    )


def test_a_class_with_few_pairs_is_told_with_the_floor_that_it_borrows():
    short = [cell("pytorch", 5e-5, (4, 1, 1), copy) for copy in (1, 2)]
    run = run_of([*grid({"pytorch": 1, "tf-mode0": 3}, floor=0.02), *short])
    assert "Noise floor: 2% for calls under 100 us and 2% for calls of at least 1 ms" in told(run)


def test_without_controls_the_noise_is_not_known():
    rows = [row for row in grid({"deepbench": 1, "pytorch": 2}) if row.copy == 1]
    assert any("its noise is not known" in s for s in trust(run_of(rows)))


def test_the_largest_error_is_told_with_its_tolerance():
    rows = grid({"deepbench": 1, "pytorch": 2})
    rows[3].check = Check(4e-5, 4e-5, 5e-5, True)
    (sentence,) = (s for s in trust(run_of(rows)) if "float64" in s)
    assert sentence.startswith("Every output was checked")
    assert f"4e-05 in fp32 ({rows[3].implementation}, tolerance 5e-05)" in sentence


def test_a_wrong_output_is_in_the_subject():
    rows = grid({"deepbench": 1, "pytorch": 2})
    assert findings.subject(run_of(rows)).endswith("; all outputs checked")
    rows[0].status = "wrong"
    assert findings.subject(run_of(rows)).endswith("; 1 output wrong")


def test_an_answer_without_a_check_is_not_passed_over():
    rows = grid({"deepbench": 1, "pytorch": 2})
    rows[0].check = None
    assert any(s.startswith("23 of 24 outputs were checked") for s in trust(run_of(rows)))
    for row in rows:
        row.check = None
    assert any(s.startswith("No output was checked") for s in trust(run_of(rows)))


def test_an_incomplete_or_damaged_run_says_so():
    planned = [(*shape, shape[0]) for shape in GRID]
    run = run_of(grid({"deepbench": 1}, shapes=GRID[:6]), shapes=planned, damaged=1)
    assert "4 of 16 planned cells are still to be measured, controls counted." in told(run)
    assert "1 line of the run could not be read and was left out." in told(run)
    assert "6 of 8 planned shapes" in findings.subject(run)


def test_a_run_whose_last_shape_was_cut_short_is_not_complete():
    rows = grid({"deepbench": 1})
    whole, never_begun = run_of(rows), run_of(rows[:-1])
    assert (whole.left, never_begun.left) == (0, 1)
    assert "not complete" not in told(whole) + run_report.heading(whole)
    rows[-1].status = "interrupted"
    for run in (never_begun, run_of(rows)):
        assert "not complete: 1 of 16 planned cells is still to be measured" in told(run)
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


def test_one_implementation_is_compared_with_nothing():
    (sentence,) = findings.findings(run_of(grid({"pytorch": 1})))
    assert sentence.startswith("Only pytorch was measured")


@pytest.mark.parametrize("rows", [[], [cell("pytorch", status="crashed", reason="boom")]])
def test_nothing_measured_is_said_and_breaks_nothing(rows):
    run = run_of(rows, shapes=[(8, 1, 10, 8)])
    assert findings.findings(run) == ["Nothing was measured: no cell of this run has a time."]
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
    assert findings.Pairs(run_of(rows))("deepbench", "pytorch") is None
    assert sentences(run_of(rows))


def test_the_same_run_always_gives_the_same_words():
    rows = grid({"deepbench": 1, "pytorch": 1.5, "pytorch-amp": 0.7})
    assert sentences(run_of(rows)) == sentences(run_of(rows))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.00x"),
        (1.07, "1.07x"),
        (1.999, "2.0x"),
        (8.14, "8.1x"),
        (9.96, "10x"),
        (216, "216x"),
    ],
)
def test_a_factor_has_two_digits(value, text):
    assert findings.factor(value) == text


def test_lower_precision_is_compared_on_the_same_number_of_threads():
    times = {"pytorch": 1, "pytorch-amp": 0.5, "pytorch@1": 4, "pytorch-amp@1": 2}
    text = told(run_of(grid(times)))
    assert "pytorch-amp 2.0x faster" in text
    assert "pytorch-amp@1 2.0x faster" in text
