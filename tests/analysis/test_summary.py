"""A run as a whole, against numbers that were worked out by hand."""

import math

import numpy as np
import pytest
from builders import cells, row

from lstm_bench.analysis import noise
from lstm_bench.analysis import summary as summaries
from lstm_bench.model.types import ACCURACY, TOLERANCES, Check


def winners(*rows):
    frame = cells(*rows)
    floors = noise.floors(noise.controls(frame))
    return summaries.winners(summaries.times(frame), floors).to_dict("records")


def summary(order, *rows):
    frame = cells(*rows)
    timed = summaries.times(frame)
    won = summaries.winners(timed, noise.floors(noise.controls(frame)))
    return summaries.summary(frame, timed, won, order).set_index("implementation")


def test_the_summary_is_the_hand_computed_one():
    table = summary(
        ["pytorch", "x"],
        *(row("pytorch", t, hidden=h) for h, t in ((1, 1.0), (2, 2.0), (3, 4.0))),
        *(row("x", t, hidden=h) for h, t in ((1, 2.0), (2, 1.0))),
        row("x", None, hidden=3, status="oom", reason="full"),
    )
    assert list(table["ok"]) == [3, 2]
    assert list(table["cells"]) == [3, 3]
    assert list(table["latency_s"]) == [1.5, 1.5]  # over the two shapes that both have
    assert list(table["fastest"]) == [1, 1]  # the third has nobody to beat
    assert table.loc["x", "ratio"] == pytest.approx(math.sqrt(2.0 * 0.5))
    assert table.loc["pytorch", "ratio"] == pytest.approx(1.0)


def test_the_raw_library_is_the_baseline_where_it_was_measured():
    assert summaries.baseline_of(["pytorch", "deepbench", "x"]) == "deepbench"
    assert summaries.baseline_of(["y", "x"]) == "x"
    assert summaries.baseline_of([]) is None


def test_the_winner_of_a_shape_is_named_with_the_next_and_the_noise():
    (actual,) = winners(
        row("a", 1.0),
        row("b", 1.5),
        row("c", 1.2),
        row("c", 1.212, copy=2),
        row("d", 0.1, computes="lstm-skip-input"),
    )
    assert (actual["fastest"], actual["next"], actual["verdict"]) == ("a", "c", "slower")
    assert actual["ratio"] == pytest.approx(1.2)


def contests(*rows):
    frame = cells(*rows)
    won = summaries.contests(summaries.times(frame), noise.floors(noise.controls(frame)))
    return won[["accuracy", "fastest", "next", "error"]].to_numpy().tolist()


def test_each_class_of_accuracy_has_a_winner_and_so_have_all_together():
    actual = contests(
        *(row("full", 4.0), row("full too", 5.0), row("tf32", 3.0, precision="tf32")),
        *(row("half", 1.0, precision="fp16"), row("amp", 2.0, precision="amp-fp16")),
        row("int8", 0.5, precision="int8", check=Check(0.02, 0.02, 0.1, True)),
    )
    assert actual == [
        ["fp32", "full", "full too", 1e-7],  # TF32 is faster and does not win fp32
        ["tf32", "tf32", None, 1e-7],
        ["half", "half", "amp", 1e-7],
        ["int8", "int8", None, 0.02],
        ["any", "int8", "half", 0.02],
    ]


def test_one_class_alone_is_told_once():
    assert contests(row("a", 1.0), row("b", 2.0)) == [["fp32", "a", "b", 1e-7]]


def test_a_precision_that_nobody_knows_is_a_class_apart():
    actual = contests(row("a", 2.0), row("b", 1.0, precision="fp8"))
    assert [each[:2] for each in actual] == [["fp32", "a"], ["unknown", "b"], ["any", "b"]]


def test_every_precision_that_is_checked_has_a_class():
    assert set(TOLERANCES) <= set(ACCURACY)


def test_the_error_is_the_winners_own_at_that_shape():
    rows = [row("a", 1.0, hidden=h, check=Check(h * 1e-6, h * 1e-6, 1e-4, True)) for h in (1, 2)]
    rows += [row("b", 2.0, hidden=h, check=Check(0.5, 0.5, 1.0, True)) for h in (1, 2)]
    assert [each[-1] for each in contests(*rows)] == [1e-6, 2e-6]


def test_memory_is_the_most_at_any_shape_and_start_up_the_median():
    """Allocators keep what they have: later cells of a process may add nothing."""
    peaks, builds = (5, 900, 0), (3.0, 1.0, 2.0)
    rows = [
        row("a", 1.0, hidden=h, timesteps=2, memory={"host peak": peaks[h]}, build_s=builds[h])
        for h in range(3)
    ]
    (actual,) = summary(["a"], *rows).to_dict("records")
    assert (actual["host_peak"], actual["build_s"], actual["step_s"]) == (900, 2.0, 0.5)
    assert math.isnan(actual["device_peak"])


def test_a_win_must_be_beyond_the_wider_floor_of_the_two():
    """The next one lies in a class of longer calls, which is noisier."""
    quiet = [row("q", 5e-4, hidden=n, copy=c) for n in range(20, 26) for c in (1, 2)]
    loud = [row("l", 5e-3 * c**0.1, hidden=n, copy=c) for n in range(30, 36) for c in (1, 2)]
    actual = winners(row("a", 0.98e-3), row("b", 1.03e-3), *quiet, *loud)
    (verdict,) = [each["verdict"] for each in actual if each["hidden"] == 8]
    assert verdict == "same"


def test_device_times_are_of_shapes_at_which_all_that_have_any_have_one():
    rows = [row("a", 1.0, hidden=h, device_s=0.1 * h) for h in (1, 2, 3)]
    rows += [row("b", 2.0, hidden=h, device_s=0.1 if h == 1 else None) for h in (1, 2, 3)]
    table = summary(["a", "b"], *rows)
    assert list(table["device_s"]) == [0.1, 0.1]
    assert table.attrs["profiled_shapes"] == 1
    apart = [row("a", 1.0, hidden=1, device_s=0.1), row("a", 1.0, hidden=2)]
    apart += [row("b", 1.0, hidden=1), row("b", 1.0, hidden=2, device_s=0.1)]
    assert summary(["a", "b"], *apart)["device_s"].isna().all()


def test_a_cell_is_ok_whatever_it_was_not_measured_for():
    frame = cells(row("a", 1.0, hidden=1, device_s=0.5), row("a", 1.0, hidden=2))
    timed = summaries.times(frame, "device")
    won = summaries.winners(timed, noise.floors(noise.controls(frame)), "device")
    assert list(summaries.summary(frame, timed, won, ["a"])["ok"]) == [2]


def test_a_shape_that_failed_in_two_passes_is_named_once():
    rows = [row("a", None, hidden=h, batch=3 - h, pass_number=p) for h in (1, 2) for p in (1, 2)]
    rows += [row("a", 1.0, hidden=1, batch=1), row("a", 1.0, hidden=2, batch=2)]
    (actual,) = summaries.failures(cells(*rows)).to_dict("records")
    assert actual["where"] == "1,2,1  2,1,1"


def test_over_passes_the_median_pass_counts_not_the_luckiest():
    rows = []
    for number, (a, b) in enumerate([(1.00, 1.10), (1.30, 1.10), (1.35, 1.10)], 1):
        rows += [row("a", a, pass_number=number), row("b", b, pass_number=number)]
    (actual,) = winners(*rows)
    assert (actual["fastest"], actual["fastest_s"], actual["next_s"]) == ("b", 1.10, 1.30)


@pytest.mark.parametrize(
    "rows",
    [
        (row("a", 1.0), row("b", 1.01, rounds=[1.2] * 10 + [1.01] * 30)),  # beside its ratio
        (row("a", 1.0, group="1"), row("b", 1.5, group="2")),  # measured at another time
    ],
)
def test_a_winner_that_the_rounds_do_not_bear_out_is_unsure(rows):
    (actual,) = winners(*rows)
    assert (actual["fastest"], actual["verdict"]) == ("a", "unsure")


def test_a_win_below_the_noise_is_called_same():
    (actual,) = winners(row("a", 1.0), row("b", 1.01), row("c", 2.0), row("c", 2.1, copy=2))
    assert actual["verdict"] == "same"


def test_who_is_alone_has_nobody_to_beat():
    (actual,) = winners(row("a", 1.0))
    assert (actual["fastest"], actual["next"], actual["verdict"]) == ("a", None, "alone")
    assert winners(row("a", 1.0, computes="lstm-skip-input")) == []


def test_a_shape_that_only_unequal_work_has_measured_has_no_winner():
    actual = winners(row("a", 1.0, hidden=1), row("s", 1.0, hidden=2, computes="lstm-skip-input"))
    assert [w["hidden"] for w in actual] == [1]


def lost(*rows):
    return [
        (actual["cells"], actual["where"], actual["reason"])
        for actual in summaries.failures(cells(*rows)).to_dict("records")
    ]


def test_failures_are_grouped_with_their_reason():
    rows = [row("a", None, hidden=h, status="oom", reason="full") for h in (8, 9)]
    (actual,) = summaries.failures(cells(*rows, row("b", 1.0))).to_dict("records")
    assert actual == {
        **{"implementation": "a", "status": "oom", "cells": 2, "where": "8,1,1  9,1,1"},
        "reason": "full",
    }


def test_failures_that_differ_by_their_sizes_only_are_one_line():
    def refused(hidden, batch):
        reason = f"cuDNN: NOT_SUPPORTED (hidden {hidden}, batch {batch}, standard)"
        return row("a", None, hidden=hidden, batch=batch, status="unsupported", reason=reason)

    high = [refused(8, 1), refused(8, 2), refused(9, 1), refused(9, 2)]
    low = [row("a", 1.0, hidden=7, batch=1), row("a", 1.0, hidden=7, batch=2)]
    assert lost(*high, *low) == [(4, "hidden 8, 9", "cuDNN: NOT_SUPPORTED")]


def test_a_row_that_failed_everywhere_needs_no_list():
    rows = [row("a", None, hidden=h, status="missing", reason="no torch") for h in range(1, 9)]
    assert lost(*rows) == [(8, "", "no torch")]


def test_nothing_measured_breaks_nothing():
    for frame in (cells(), cells(row("a", None))):
        timed = summaries.times(frame)
        assert timed.seconds.size == 0
        won = summaries.winners(timed, noise.floors(noise.controls(frame)))
        assert len(won) == 0
        table = summaries.summary(frame, timed, won, ["a"])
        assert np.isnan(table.loc[0, "latency_s"])
