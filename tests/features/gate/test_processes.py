"""Differences between processes of the same code, and the conclusions that they allow."""

import numpy as np
import pytest
from builders import cells, row
from conftest import records

from lstm_bench.features.gate import processes

AT = (8, 1, 1, 8, 1, 1, "full", False)


def levels(*seconds, **more):
    """One cell in as many processes, two a pass."""
    return cells(
        *(
            row("a", s, copy=1 + n % 2, pass_number=1 + n // 2, process=n + 1, group="g", **more)
            for n, s in enumerate(seconds)
        )
    )


def test_the_two_of_an_aa_pair_run_in_different_processes(lstm_bench, write_grid, tmp_path):
    assert lstm_bench("grid", write_grid(passes=2, controls=1), "--run", "r").returncode == 0
    sample = records(tmp_path / "results" / "r")
    for number in (1, 2):
        mine = [r for r in sample if r["pass_number"] == number]
        first, second = ({r["process"] for r in mine if r["copy"] == copy} for copy in (1, 2))
        assert first
        assert second
        assert not first & second
    assert all(record["process"] for record in sample)


def test_two_runs_are_sampled_by_process_and_their_passes_by_their_mean():
    (sample,) = processes.of_runs(levels(1.0, 1.0), levels(2.0, 2.0, 4.0, 4.0), "latency", [AT])
    assert list(sample.new - sample.base[0]) == pytest.approx(np.log([2, 2, 4, 4]))
    assert list(sample.new_passes) == pytest.approx(np.log([2, 4]))
    assert (sample.count, sample.freedom, sample.separate) == (2, 1.0, True)


def test_in_turns_each_process_stands_beside_one_of_the_other_row():
    """A machine that is slower in the second pass slows both."""
    base, new = levels(1.0, 1.1, 5.0, 5.5), levels(2.0, 2.2, 10.0, 11.0)
    (sample,) = processes.in_turns(base, new, "latency", [AT])
    assert list(sample.new) == pytest.approx([np.log(2)] * 4)
    assert sample.error == pytest.approx(0.0, abs=1e-9)
    assert processes.twins(base, "latency") == pytest.approx([np.log(1.1)] * 2)


def test_what_two_processes_were_seen_to_differ_by_is_explained_and_half_as_much_again():
    assert processes.explained([0.001] * 200 + [0.4], 1e-3) == pytest.approx(0.6)


def test_the_bound_on_luck_holds_for_tossed_coins():
    """Cells toss a coin of any bias: all new processes are slow, all of the base are fast."""
    rng = np.random.default_rng(1)
    for bias in (0.2, 0.5, 0.8):
        slow = rng.random((200_000, 2, 2)) < bias
        differ = (slow[:, 0, 0] != slow[:, 0, 1]).mean()
        called = (~slow[:, 0].any(axis=1) & slow[:, 1].all(axis=1)).mean()
        pairs = np.where(np.arange(1000) < 1000 * differ, 0.3, 0.0)
        assert called <= 1.05 * processes.by_luck(list(pairs), 0.07, 2)
