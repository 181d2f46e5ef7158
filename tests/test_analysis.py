"""Numbers that were worked out by hand, or by another library."""

import math

import numpy as np
import pytest

from lstm_bench import analysis
from lstm_bench.analysis import Pair
from lstm_bench.model import Check, Record, Shape


def record(name, latency, hidden=8, copy=1, status="ok", rounds=None, **more):
    r = Record(name, Shape(hidden, 1, 1, hidden), 1, copy, status, **more)
    if status == "ok":
        r.latency_s = r.throughput_s = latency
        r.round_latency_s = rounds or [latency] * 10
        r.check = Check(1e-7, 1e-7, 1e-5, True)
        r.first_call_s = 1.0
    return r


def pair(difference, latency=0.01, spread=0.0):
    rng = np.random.default_rng(int(abs(difference) * 1e6) + 1)
    first = latency * (1 + spread * rng.standard_normal(10))
    second = latency * (1 + difference) * (1 + spread * rng.standard_normal(10))
    return Pair("x", latency, difference, tuple(first), tuple(second))


def test_a_pair_is_an_implementation_and_its_copy_at_one_shape():
    records = [
        record("a", 2.0),
        record("a", 2.1, copy=2),
        record("a", 1.0, hidden=9),
        record("b", 1.0, copy=1),
        record("b", None, copy=2, status="crashed"),
    ]
    (found,) = analysis.control_pairs(analysis.frame(records))
    assert (found.implementation, found.latency_s) == ("a", 2.0)
    assert found.difference == pytest.approx(0.05)


def test_each_duration_class_has_a_noise_floor_of_its_own():
    pairs = [pair(d / 1000) for d in range(1, 22)] + [pair(0.5, latency=5e-5)]
    short, middle, long = analysis.noise(pairs)
    assert (short.pairs, short.floor) == (1, pytest.approx(0.5))
    assert (middle.pairs, middle.floor) == (0, None)
    assert (long.pairs, long.floor) == (21, pytest.approx(0.020))


def test_a_pair_that_stands_out_is_called_different_by_the_floor_of_the_others():
    quiet = [pair(0.001 * n) for n in range(20)]
    assert analysis.noise(quiet)[2].called_different <= 2  # no spread within: the hardest case
    assert analysis.noise([*quiet, pair(0.2)])[2].called_different >= 1


def test_what_was_not_measured_in_turns_is_no_pair():
    records = [record("a", 2.0, group="1"), record("a", 2.1, copy=2, group="2")]
    assert analysis.control_pairs(analysis.frame(records)) == []


def test_a_class_with_few_pairs_borrows_the_widest_floor():
    floors = analysis.noise(
        [*(pair(0.004, 5e-4) for _ in range(6)), *(pair(0.05) for _ in range(6))]
    )
    assert analysis.floor_at(floors, 5e-4) == pytest.approx(0.004)
    assert analysis.floor_at(floors, 5e-5) == pytest.approx(0.05)
    lonely = analysis.noise([pair(0.004, 5e-4), *(pair(0.05) for _ in range(6))])
    assert analysis.floor_at(lonely, 5e-4) == pytest.approx(0.05)
    assert lonely[1].called_different == 0


def test_few_rounds_decide_nothing():
    assert analysis.verdict([1.0] * 4, [2.0] * 4, floor=0.0) == "unsure"


def test_a_verdict_needs_more_than_the_noise_floor():
    one = [1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 0.99, 1.0, 1.0, 1.0]
    slower = [v * 1.05 for v in one]
    assert analysis.verdict(one, slower, floor=0.02) == "slower"
    assert analysis.verdict(slower, one, floor=0.02) == "faster"
    assert analysis.verdict(one, slower, floor=0.06) == "same"
    assert analysis.verdict(one, one, floor=0.0) == "same"
    assert analysis.verdict([], one, floor=0.0) == "unsure"


def test_a_difference_whose_interval_reaches_into_the_floor_is_unsure():
    one = [1.0] * 10
    other = [1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.01, 1.05, 1.03, 1.04]
    assert analysis.verdict(one, other, floor=0.001) == "slower"
    assert analysis.verdict(one, other, floor=0.03) == "unsure"


def test_a_verdict_is_unsure_where_the_rounds_disagree():
    one = [1.0] * 10
    other = [1.3, 0.8, 1.3, 0.8, 1.3, 1.3, 0.8, 1.3, 0.8, 1.3]
    assert analysis.verdict(one, other, floor=0.02) == "unsure"


def test_the_summary_is_the_hand_computed_one():
    records = [
        *(record("pytorch", t, hidden=h) for h, t in ((1, 1.0), (2, 2.0), (3, 4.0))),
        *(record("x", t, hidden=h) for h, t in ((1, 2.0), (2, 1.0))),
        record("x", None, hidden=3, status="oom", reason="full"),
        record("pytorch", 9.0, copy=2),
    ]
    table = analysis.summary(analysis.frame(records), ["pytorch", "x"]).set_index("implementation")
    assert list(table["ok"]) == [3, 2]
    assert list(table["cells"]) == [3, 3]
    assert list(table["latency_s"]) == [1.5, 1.5]  # over the two shapes that both have
    assert list(table["fastest"]) == [1, 1]  # the third has nobody to beat
    assert table.loc["x", "ratio"] == pytest.approx(math.sqrt(2.0 * 0.5))
    assert table.loc["pytorch", "ratio"] == pytest.approx(1.0)


def test_the_raw_library_is_the_baseline_where_it_was_measured():
    both = [record("pytorch", 1.0), record("deepbench", 1.0), record("x", 1.0)]
    assert analysis.baseline_of(analysis.frame(both)) == "deepbench"
    assert analysis.baseline_of(analysis.frame(both[2:])) == "x"
    assert analysis.baseline_of(analysis.frame([record("x", None, status="oom")])) is None


def test_the_winner_of_a_shape_is_named_with_the_next_and_the_noise():
    records = [
        record("a", 1.0),
        record("b", 1.5),
        record("c", 1.2),
        record("c", 1.212, copy=2),
        record("d", 0.1, computes="lstm-skip-input"),
    ]
    (found,) = analysis.winners(analysis.frame(records))
    assert (found.fastest, found.next, found.verdict) == ("a", "c", "1.20x")


def test_over_passes_the_median_pass_counts_not_the_luckiest():
    records = []
    for number, (a, b) in enumerate([(1.00, 1.10), (1.30, 1.10), (1.35, 1.10)], 1):
        for name, latency in (("a", a), ("b", b)):
            one = record(name, latency)
            one.pass_number = number
            records.append(one)
    (found,) = analysis.winners(analysis.frame(records))
    assert (found.fastest, found.latency_s, found.next_latency_s) == ("b", 1.10, 1.30)
    assert found.verdict == "unsure"  # one pass in three went the other way


def test_a_winner_that_was_measured_at_another_time_is_unsure():
    records = [record("a", 1.0, group="1"), record("b", 1.5, group="2")]
    (found,) = analysis.winners(analysis.frame(records))
    assert found.verdict == "unsure"


def test_a_win_below_the_noise_is_called_same():
    records = [record("a", 1.0), record("b", 1.01), record("c", 2.0), record("c", 2.1, copy=2)]
    (found,) = analysis.winners(analysis.frame(records))
    assert found.verdict == "same"


def test_failures_are_grouped_with_their_reason():
    records = [
        record("a", None, status="oom", reason="full"),
        record("a", None, hidden=9, status="oom", reason="full"),
        record("b", 1.0),
    ]
    (row,) = analysis.failures(analysis.frame(records)).to_dict("records")
    assert row == {"implementation": "a", "status": "oom", "cells": 2, "reason": "full"}


def test_nothing_measured_breaks_nothing():
    empty = analysis.frame([])
    assert analysis.control_pairs(empty) == []
    assert analysis.baseline_of(empty) is None
