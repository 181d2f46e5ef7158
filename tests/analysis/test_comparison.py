"""B against A: the paper's table by hand, intervals against other people's code."""

import numpy as np
import pytest
from builders import MACHINE, cells, row, run
from scipy import stats

from lstm_bench.analysis import results
from lstm_bench.analysis.comparison import compare, doublings
from lstm_bench.analysis.noise import Floors, Noise
from lstm_bench.model.types import LstmBenchError, Settings
from lstm_bench.report import pair_report, paper_table

NO_NOISE = Floors((Noise(">= 1 ms", 9, 0.0, 0),) * 3)

#: Two shapes, in milliseconds. By hand, MPE(A vs B) = mean of (A - B) / A:
#: tf-mode0 vs tf-mode1        ((2-6)/2 + (4-8)/4) / 2        = (-2 - 1) / 2          = -1.5
#: tf-mode0 vs tf-mode2        ((2-4)/2 + (4-7)/4) / 2        = (-1 - 0.75) / 2       = -0.875
#: tf-mode1 vs tf-mode2        ((6-4)/6 + (8-7)/8) / 2        = (1/3 + 1/8) / 2       = +0.229166...
#: tf-mode0 vs tf-mode0-amp    ((2-2.5)/2 + (4-4.4)/4) / 2    = (-0.25 - 0.1) / 2     = -0.175
#: deepbench vs tf-mode0       ((0.2-2)/0.2 + (0.4-4)/0.4)/2  = (-9 - 9) / 2          = -9
#: deepbench vs pytorch        ((0.2-.3)/.2 + (.4-.5)/.4) / 2 = (-0.5 - 0.25) / 2     = -0.375
#: pytorch vs pytorch-amp      ((.3-.45)/.3 + (.5-.6)/.5) / 2 = (-0.5 - 0.2) / 2      = -0.35
#: deepbench vs pytorch-amp    ((.2-.45)/.2 + (.4-.6)/.4) / 2 = (-1.25 - 0.5) / 2     = -0.875
TIMES = {
    "deepbench": (0.2, 0.4),
    "pytorch": (0.3, 0.5),
    "pytorch-amp": (0.45, 0.6),
    "tf-mode0": (2.0, 4.0),
    "tf-mode1": (6.0, 8.0),
    "tf-mode2": (4.0, 7.0),
    "tf-mode0-amp": (2.5, 4.4),
}
BY_HAND = [-1.5, -0.875, (1 / 3 + 1 / 8) / 2, -0.175, -9.0, -0.375, -0.35, -0.875]


def paper_rows():
    for name, times in TIMES.items():
        precision = "amp-fp16" if name.endswith("amp") else "fp32"
        for hidden, milliseconds in zip((128, 256), times, strict=True):
            yield row(name, milliseconds / 1e3, hidden=hidden, precision=precision)


def test_the_papers_eight_pairs_come_out_in_order_and_as_worked_out_by_hand():
    actual = paper_table.document(run(*paper_rows())).tables[0].rows
    pairs = [(r["a"], r["b"]) for r in actual]
    assert pairs == [(a, b) for a, b, _ in paper_table.PAPER]
    assert [r["mpe"] for r in actual] == pytest.approx(BY_HAND)
    assert [r["shapes"] for r in actual] == [2] * 8


def test_the_ratio_is_the_geometric_mean():
    rows = [row("a", 1.0, hidden=h) for h in (1, 2, 3)]
    rows += [row("b", t, hidden=h) for h, t in ((1, 2.0), (2, 4.0), (3, 1.0))]
    assert compare(cells(*rows), "a", "b").group().ratio.value == pytest.approx(
        stats.gmean([2, 4, 1])
    )


def test_only_shapes_that_both_measured_count_and_the_rest_is_told():
    rows = [row("a", 1.0, hidden=h) for h in (1, 2, 3)]
    rows += [row("b", 2.0, hidden=1), row("b", None, hidden=2, status="oom")]
    rows += [row("b", 5.0, hidden=9)]
    actual = compare(cells(*rows), "a", "b")
    assert list(actual.shapes["hidden"]) == [1]
    assert actual.left_out == {"b oom": 1, "a not measured": 1, "b not measured": 1}


def test_shapes_without_the_metric_are_told_as_left_out():
    rows = [row("a", 1.0, hidden=h, device_s=0.5) for h in (1, 2, 3)]
    rows += [row("b", 1.0, hidden=h, device_s=0.5 if h == 1 else None) for h in (1, 2, 3)]
    actual = compare(cells(*rows), "a", "b", metric="device")
    assert list(actual.shapes["hidden"]) == [1]
    assert actual.left_out == {"b without device": 2}


def test_shapes_that_were_not_measured_in_turns_are_counted():
    rows = [row("a", 1.0, hidden=h, group="1") for h in (1, 2)]
    rows += [row("b", 40.0, hidden=1, group="1"), row("b", 40.0, hidden=2, group="2")]
    actual = compare(cells(*rows), "a", "b")
    assert (actual.apart, list(actual.shapes["verdict"])) == (1, ["slower", "unsure"])
    text = pair_report.document(actual, [run(*rows)]).written("table")
    assert "At 1 shape they were measured at different times" in text


def side(machine=None, settings=None, **more):
    return results.frame([row("a", 1.0, **more)], machine or MACHINE, Settings(**settings or {}))


def on_a_gpu(driver="1", **settings):
    machine = {"gpus": [{"name": "G", "driver": driver}]}
    return side(machine, settings, device="cuda")


@pytest.mark.parametrize(
    ("field", "first", "second"),
    [
        ("precision", side(), side(precision="amp-fp16")),
        ("work", side(), side(computes="other")),
        ("device", side(), side({**MACHINE, "cpu": "Another"})),
        ("driver", on_a_gpu(), on_a_gpu(driver="2")),
        ("state", side(), side(settings={"state": "carried"})),
        ("inputs", on_a_gpu(inputs="device"), on_a_gpu(inputs="pinned")),
    ],
)
def test_what_is_not_like_with_like_is_refused_and_the_field_is_named(field, first, second):
    with pytest.raises(LstmBenchError, match=f"differ in {field} .*--across {field}"):
        compare(first, "a", "a", other=second)
    pair = compare(first, "a", "a", other=second, across=(field,))
    assert (pair.differs, pair.in_turns) == ((field,), False)


def test_a_cpu_reads_its_inputs_where_they_lie():
    copied, there = (side(settings={"inputs": inputs}) for inputs in ("pinned", "device"))
    assert compare(copied, "a", "a", other=there).differs == ()


def test_a_name_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(LstmBenchError, match="'x' is not in the run; it has: a, b"):
        compare(cells(row("a", 1.0), row("b", 1.0)), "a", "x")


def test_a_metric_that_was_not_measured_is_refused():
    with pytest.raises(LstmBenchError, match="no device times"):
        compare(cells(row("a", 1.0), row("b", 1.0)), "a", "b", "device")


def test_very_many_values_are_told_by_doublings():
    assert doublings([1, 2, 3, 5, 9], most=5) == [(1, 1), (2, 2), (3, 3), (5, 5), (9, 9)]
    assert doublings([1, 2, 3, 5, 9, 17], most=5) == [(1, 1), (2, 3), (5, 5), (9, 9), (17, 17)]


def against_one(*rounds):
    """B against an A that takes a second in every round; a list of rounds for each shape."""
    rows = []
    for hidden, own in enumerate(rounds, 1):
        rows.append(row("a", 1.0, hidden=hidden, rounds=[1.0] * len(own)))
        rows.append(row("b", float(np.median(own)), hidden=hidden, rounds=list(own)))
    return compare(cells(*rows), "a", "b", floors=[NO_NOISE]).group()


def test_from_four_shapes_on_the_interval_is_students_over_shapes():
    logs = np.array([0.1, 0.3, 0.2, 0.5, -0.1])
    group = against_one(*([time] * 9 for time in np.exp(logs)))
    for actual, values in (
        (np.log([group.ratio.low, group.ratio.high]), logs),
        ([group.mpe.low, group.mpe.high], 1 - np.exp(logs)),
    ):
        expected = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
        assert list(actual) == pytest.approx(list(expected))


def test_the_interval_of_one_shape_is_students_over_its_rounds():
    logs = np.random.default_rng(5).normal(0.3, 0.02, 15)
    ratio = against_one(np.exp(logs)).ratio
    expected = stats.t.interval(0.95, 14, np.median(logs), stats.sem(logs))
    assert np.log([ratio.low, ratio.high]) == pytest.approx(expected, rel=1e-6)


def test_rounds_that_go_together_make_a_wider_interval_than_the_same_rounds_shuffled():
    rng = np.random.default_rng(8)
    pace = np.repeat(rng.normal(0, 0.1, 10), 10)  # ten rounds long, ten times
    actual = [against_one(np.exp(logs)).ratio for logs in (pace, rng.permuted(pace))]
    together, shuffled = (np.log(ratio.high / ratio.low) for ratio in actual)
    assert together > 1.5 * shuffled


def test_few_shapes_have_no_interval_narrower_than_the_noise_floor():
    floor = Floors((Noise(">= 1 ms", 9, 0.1, 0),) * 3)
    actual = cells(row("a", 1.0), row("b", 2.0))
    group = compare(actual, "a", "b", floors=[floor]).group()
    assert [group.ratio.low, group.ratio.high] == pytest.approx([2 / 1.1, 2 * 1.1])
    assert group.mpe.low < -1 < group.mpe.high


def test_the_noise_floor_is_the_same_whichever_of_two_is_the_measure():
    frame = cells(
        *(
            row(name, time, hidden=h, rounds=[time * (off if copy == 2 else 1)] * 10, copy=copy)
            for name, time, off in (("quiet", 5e-4, 1.001), ("loud", 5e-3, 1.2))
            for h in range(1, 7)
            for copy in (1, 2)
        )
    )
    there, back = compare(frame, "quiet", "loud"), compare(frame, "loud", "quiet")
    assert list(there.shapes["floor"]) == list(back.shapes["floor"])
    assert there.shapes["floor"].min() > 0.15


def test_all_rounds_of_two_runs_count_though_one_has_more():
    """The first twenty of the longer one happen to be as fast as the other's."""
    few = cells(row("a", 1.0, rounds=[1.0] * 20))
    many = cells(row("a", 0.5, rounds=[1.0] * 20 + [0.5] * 80))
    (verdict,) = compare(few, "a", "a", other=many).shapes["verdict"]
    assert verdict == "faster"


def test_medians_of_two_runs_that_differ_beyond_the_floor_are_not_called_the_same():
    first = cells(row("a", 1.0, rounds=[1.0] * 10))
    second = cells(row("a", 0.8, rounds=[1.0, 0.8] * 5))
    (verdict,) = compare(first, "a", "a", other=second).shapes["verdict"]
    assert verdict == "unsure"


@pytest.mark.parametrize(
    ("rounds", "group", "verdict"),
    [
        ([1.2] * 70, "1", "slower"),
        ([1.2] * 20 + [1.0] * 50, "1", "unsure"),  # the first was known after 20 rounds
        ([1.2] * 20 + [0.8] * 50, "1", "unsure"),
        ([1.0] * 20 + [1.2] * 50, "1", "unsure"),
        ([1.0] * 20, "2", "unsure"),  # a resumed cell: no common round
        ([9.0] * 20, "2", "unsure"),
    ],
)
def test_no_verdict_stands_beside_a_ratio_that_does_not_say_so(rounds, group, verdict):
    steady = row("a", 1.0, rounds=[1.0] * 20, group="1")
    other = row("b", float(np.median(rounds)), rounds=rounds, group=group)
    actual = compare(cells(steady, other), "a", "b")
    assert list(actual.shapes["verdict"]) == [verdict]
    assert actual.group().ratio.value == pytest.approx(np.median(rounds))


def test_an_mpe_never_says_that_the_slower_one_takes_no_time():
    """Student's interval of few and unlike shapes reaches beyond 1; the mean ratio does not."""
    rows = [row("a", 1.0, hidden=h) for h in range(1, 5)]
    rows += [row("b", float(4**h), hidden=h) for h in range(1, 5)]
    whole = compare(cells(*rows), "a", "b").group()
    assert whole.ratio.low > 1
    assert whole.mpe.value < whole.mpe.high == pytest.approx(1 - whole.ratio.low)
    assert whole.mpe.high < 0


@pytest.mark.parametrize(
    ("times", "apart", "expected"),
    [
        (
            (1.1, 9.0, 1.2, 30.0),
            0,
            "It depends on the shape: b is faster at 0 and slower at 4 of 4 shapes than a.",
        ),
        ((0.5, 2.0, 0.5, 2.0), 0, "It depends on the shape"),
        ((1.0, 1.0, 1.0, 1.0), 0, "No clear difference between b and a."),
        ((1.02, 1.02, 1.02, 1.021), 0, "No clear difference between b and a."),
        ((1.02,) * 4, 4, "No clear difference between b and a."),
    ],
)
def test_the_headline_does_not_contradict_the_shapes(times, apart, expected):
    """Measured `apart`, two have no common round: whatever they took, it is unsure."""
    rows = [row("a", 1.0, hidden=h, group="1") for h in range(1, 5)]
    rows += [
        row("b", time, hidden=h, group="2" if h <= apart else "1")
        for h, time in enumerate(times, 1)
    ]
    actual = compare(cells(*rows), "a", "b")
    assert expected in pair_report.document(actual, [run(*rows)]).written("table")


def test_two_are_held_to_the_noise_of_the_more_restless_of_them():
    rows = []
    for hidden in range(1, 13):
        for name, copies in (("calm", (1.0, 1.01)), ("restless", (1.2, 1.5)), ("plain", (1.1,))):
            rows += [row(name, t, hidden, copy=n) for n, t in enumerate(copies, start=1)]
    frame = cells(*rows)
    floors = {b: compare(frame, "calm", b).shapes for b in ("restless", "plain")}
    assert floors["restless"]["floor"].unique() == pytest.approx([0.25])
    assert set(floors["restless"]["verdict"]) == {"same"}
    assert floors["plain"]["floor"].unique() == pytest.approx([0.25])  # of its class: it has none
    assert compare(frame, "calm", "calm").shapes["floor"].unique() == pytest.approx([0.01])
