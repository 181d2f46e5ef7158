"""The study: the same bytes every time, words that the data choose, a line for what is missing."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from made_up_profiles import cell, run_of
from made_up_study import HIDDEN, SHAPES, at, busy, by_batch, cells_of, either

from lstm_bench.comparison import clear
from lstm_bench.energy import Energy
from lstm_bench.intervals import Statistic
from lstm_bench.study import (
    amp,
    choice,
    controls,
    energy,
    findings,
    headroom,
    legs,
    limits,
    page,
    projection,
    rounds,
    rules,
    subject,
    table2,
    verdicts,
    what_ran,
)
from lstm_bench.study.rules import HOLDS, HOLDS_NOT, UNKNOWN
from lstm_bench.study.subject import Runs, Subject

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("same", "framework", "word", "told"),
    [
        (1.5, 1.6, HOLDS, "Most of PyTorch's gap"),
        (1.1, 3.0, HOLDS_NOT, "Less than half"),
        (lambda s: 1.2 * either(s) ** 0.5, 2.0, UNKNOWN, "cannot be told"),
        (1.5, 1.0, "", "not clearly slower"),
    ],
)
def test_the_share_of_work_that_is_not_done(tmp_path, same, framework, word, told):
    """`same` and `framework` are times in units of the row that skips the projection."""
    scale = framework
    factors = {"deepbench-skip": 1 / scale}
    factors["deepbench"] = (lambda s: same(s) / scale) if callable(same) else same / scale
    one = Subject(run_of(tmp_path / "h200-paper", *cells_of(factors)))
    assert projection.Gap(one).word == word
    short = projection.section(Runs(paper=one)).short
    assert told in short
    assert ("of the gap" in short) == (word in (HOLDS, HOLDS_NOT))


def test_the_shares_of_a_gap_add_up():
    assert projection.share(2.0, 2.0) == "50%"
    assert projection.share(1.5, 0.9) == "all"
    assert projection.share(0.9, 1.5) == "none"
    assert projection.share(1.1, 0.5) == "no gap"


def test_what_became_of_a_value_of_the_paper():
    assert table2.change(Statistic(-0.5, -0.6, -0.4), -0.53) == "as then"
    assert table2.change(Statistic(-0.1, -0.2, -0.05), -0.53) == "the same sign, smaller"
    assert table2.change(Statistic(-9.0, -12.0, -7.0), -1.8) == "the same sign, larger"
    assert table2.change(Statistic(0.3, 0.2, 0.4), -0.13).startswith("turned round")
    assert table2.change(Statistic(0.0, -0.1, 0.1), -0.53) == "no clear sign now"


def test_a_promise_is_broken_only_beyond_chance():
    assert rules.promised(95, 100, 0.95) == rules.promised(93, 100, 0.95) == HOLDS
    assert rules.promised(80, 100, 0.95) == HOLDS_NOT
    assert rules.promised(0, 0, 0.95) == UNKNOWN


def test_cells_without_a_time_are_grouped_by_cause():
    assert what_ran.cause("unsupported", "cuDNN: CUDNN_STATUS_NOT_SUPPORTED") == "refused by cuDNN"
    own = "cuDNN takes very long to compile PERSIST_DYNAMIC's kernels; not tried"
    assert what_ran.cause("unsupported", own) == f"not tried ({own.partition(';')[0]})"
    assert what_ran.cause("unsupported", "runs on cuda only") == "not supported here"
    assert what_ran.cause("oom", "") == "out of memory"
    assert what_ran.cause("timeout", "") == "over the time limit"


def test_the_winning_algorithm_is_read_off_the_path():
    found = headroom.algorithm("cuDNN 9.19.0 persist-static-small-h, graph (fastest of 8)")
    assert found == ("small-h", True)
    assert headroom.algorithm("cuDNN 9.19.0 persist-dynamic") == ("dynamic", False)
    assert headroom.algorithm("oneDNN") == ("unknown", False)


def test_what_to_use_names_the_fastest_and_what_the_library_would_gain(tmp_path):
    factors = {"tf-mode0": at(0, 2.0, 0.5), "deepbench-best": 0.25}
    one = Subject(run_of(tmp_path / "h200-paper", *cells_of(factors)))
    lines = choice.section(Runs(paper=one)).body[1].splitlines()
    row = next(line for line in lines if "1000" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    won = "pytorch, tf-mode0 at 1024"
    assert cells == ["1", "1000", won, won, "2.83x", "-", "-", "-"]


def test_half_precision_is_advised_where_it_pays(tmp_path):
    one = Subject(run_of(tmp_path / "h200-paper", *cells_of({"pytorch-half": by_batch(1.1, 0.5)})))
    found = choice.section(Runs(paper=one))
    told = "(2.00x to 2.00x) faster at batch 64 and 256 and 1.10x (1.10x to 1.10x) and 1.10x"
    assert told in " ".join(found.short.split())
    rows = [line.strip("| ").split("|") for line in found.body[1].splitlines()[2:]]
    assert {row[0].strip(): row[-1].strip() for row in rows} == {
        **dict.fromkeys(("1", "16"), "0.91x"),
        **dict.fromkeys(("64", "256"), "2.00x"),
    }
    assert {row[0].strip(): row[2].strip() for row in rows} == {
        **dict.fromkeys(("1", "16"), "pytorch"),
        **dict.fromkeys(("64", "256"), "pytorch-half"),
    }


def test_without_a_row_in_fp32_half_precision_is_what_to_use(tmp_path):
    cells = [one for one in cells_of({"pytorch-half": 0.5}) if one[0].implementation != "pytorch"]
    one = Subject(run_of(tmp_path / "h200-paper", *cells))
    first = choice.section(Runs(paper=one)).body[1].splitlines()[2]
    assert [cell.strip() for cell in first.strip("|").split("|")][2:4] == ["pytorch-half", "-"]


def test_what_the_noise_does_not_tell_apart_is_in_brackets(tmp_path):
    one = Subject(run_of(tmp_path / "h200-paper", *cells_of({"tf-mode0": 1.001})))
    assert "(pytorch)" in choice.section(Runs(paper=one)).body[1]


def with_energy(factors, spread=0.0):
    """200 W in pytorch, 300 W in others, 120 W idle; the rounds of some are spread by so much."""
    found = []
    for record, _ in cells_of(factors):
        name, time_s = record.implementation, record.latency_s
        power = 200.0 if name == "pytorch" else 300.0
        record.energy = Energy(power, 120.0, 0.5, 5, 100, time_s)
        record.throughput_s = time_s
        apart = spread if record.shape.hidden == HIDDEN[0] else 0.0
        record.round_throughput_s = [time_s * (1 + apart * (n % 3 - 1)) for n in range(21)]
        record.framework = "pytorch" if name.startswith("pytorch") else "tensorflow"
        found.append((record, None))
    return found


@pytest.mark.parametrize(
    ("factor", "told"),
    [(2.0, "takes 3.00x as much"), (either, "not clearly less")],
)
def test_the_least_energy_is_named_if_it_is_clear(tmp_path, factor, told):
    run = run_of(tmp_path / "h200-paper", *with_energy({"tf-mode0": factor}))
    assert told in energy.section(Runs(paper=Subject(run))).short


def test_energy_says_how_well_it_repeats_and_what_is_an_estimate(tmp_path):
    run = run_of(tmp_path / "h200-paper", *with_energy({"tf-mode0": 2.0}, spread=0.10))
    text = " ".join(energy.section(Runs(paper=Subject(run))).written().split())
    assert "In 16 of 32 cells gross is an estimate, which two runs on one GPU need not" in text
    assert "Of 8 A/A pairs without an estimate, gross differs by 0.4%" in text
    assert "of 8 A/A pairs with one, gross differs by 0.4%" in text


def test_where_the_least_energy_is_an_estimate_is_said(tmp_path):
    run = run_of(tmp_path / "h200-paper", *with_energy({"tf-mode0": 2.0}, spread=0.10))
    told = energy.section(Runs(paper=Subject(run))).short
    assert "takes 3.00x as much gross (an estimate at 8 shapes)" in told
    few = [one for one in with_energy({"tf-mode0": 2.0}, 0.10) if one[0].shape.hidden == HIDDEN[0]]
    told = energy.section(Runs(paper=Subject(run_of(tmp_path / "h200-few", *few)))).short
    assert "takes ~3.0x as much gross (an estimate throughout)" in " ".join(told.split())


def test_idle_power_is_told_as_a_range_if_rows_differ_in_it(tmp_path):
    cells = with_energy({"tf-mode0": 2.0})
    text = energy.section(Runs(paper=Subject(run_of(tmp_path / "a", *cells)))).written()
    assert "draws over idle (120 W)" in " ".join(text.split())
    for record, _ in cells:
        record.energy.idle_w += 5.0 if record.implementation == "tf-mode0" else 0.0
    text = energy.section(Runs(paper=Subject(run_of(tmp_path / "b", *cells)))).written()
    assert "draws over idle (120 to 125 W)" in " ".join(text.split())


def test_energy_of_two_runs_of_the_small_grid_comes_first(tmp_path):
    """The cells whose rounds spread are told apart."""
    again = with_energy({"tf-mode0": 2.0}, spread=0.10)
    for record, _ in again:
        record.energy.power_w *= 1.2 if record.shape.hidden == HIDDEN[0] else 1.0
    two = (with_energy({"tf-mode0": 2.0}), again)
    runs = [Subject(run_of(tmp_path / f"h200-energy-{n}", *own)) for n, own in enumerate(two, 1)]
    paper = Subject(run_of(tmp_path / "h200-paper", *with_energy({"tf-mode0": 2.0})))
    text = " ".join(energy.section(Runs(paper=paper, energy=tuple(runs))).written().split())
    told = "| 120, 120 W | gross, a figure | 16 | 16 | 0.0% | 0.0% |"
    assert f"| `h200-energy-1`, `h200-energy-2` | not told {told}" in text
    assert "| gross, a range | 16 | 0 | 20.0% | 20.0% |" in text
    assert "| net | 32 | 16 | 16.7% | 50.0% |" in text
    assert "The two ranges overlap in 0 of 16 cells" in text
    assert "the time per call does so too in 0 of 16." in text


def test_runs_of_the_small_grid_are_held_against_each_other_two_by_two(tmp_path):
    """The second two draw less than the first two, as another GPU may: within two nothing does."""
    runs = []
    for n in range(1, 6):
        own = with_energy({"tf-mode0": 2.0})
        for record, _ in own:
            record.energy.power_w *= 1.0 if n < 3 else 0.9
        runs.append(Subject(run_of(tmp_path / f"h200-energy-{n}", *own)))
    paper = Subject(run_of(tmp_path / "h200-paper", *with_energy({"tf-mode0": 2.0})))
    text = " ".join(energy.section(Runs(paper=paper, energy=tuple(runs))).written().split())
    told = "| not told | 120, 120 W | gross, a figure | 32 | 32 | 0.0% | 0.0% |"
    assert f"| `h200-energy-1`, `h200-energy-2` {told}" in text
    assert f"| `h200-energy-3`, `h200-energy-4` {told}" in text
    told = "| not told | 120, 120 W | gross, a figure | 32 | 0 | -10.0% | 10.0% |"
    assert f"| `h200-energy-1`, `h200-energy-3` {told}" in text
    assert "`h200-energy-2`, `h200-energy-3`" not in text
    assert "`h200-energy-4`, `h200-energy-5`" not in text


def test_runs_for_energy_have_a_line_of_their_own_only_if_cells_are_missing(tmp_path):
    paper = Subject(run_of(tmp_path / "h200-paper", *with_energy({"tf-mode0": 2.0})))
    whole, short = with_energy({"tf-mode0": 2.0}), with_energy({"tf-mode0": 2.0})
    short[-1][0].status, short[-1][0].latency_s = "oom", None
    runs = [
        Subject(run_of(tmp_path / f"h200-energy-{n}", *own))
        for n, own in enumerate((whole, short), 1)
    ]
    text = " ".join(what_ran.section(Runs(paper=paper, energy=tuple(runs))).written().split())
    assert "| `h200-energy-1` |" in text
    assert "- `h200-energy-1`: " not in text
    assert "- `h200-energy-2`: kind of machine and versions as in `h200-paper`" in text
    assert "Without a time, controls included: 1 out of memory." in text


def test_estimates_whose_ranges_overlap_are_counted(tmp_path):
    """The rounds take 30% longer, and the load as long as before."""
    again = with_energy({"tf-mode0": 2.0}, spread=0.10)
    for record, _ in again:
        record.throughput_s *= 1.3
        record.round_throughput_s = [1.3 * one for one in record.round_throughput_s]
    two = (with_energy({"tf-mode0": 2.0}, spread=0.10), again)
    runs = [Subject(run_of(tmp_path / f"h200-energy-{n}", *own)) for n, own in enumerate(two, 1)]
    paper = Subject(run_of(tmp_path / "h200-paper", *with_energy({"tf-mode0": 2.0})))
    text = " ".join(energy.section(Runs(paper=paper, energy=tuple(runs))).written().split())
    assert "| gross, a figure | 16 | 0 | 15.0% | 18.0% |" in text
    assert "| gross, a range | 16 | 0 | 15.0% | 18.0% |" in text
    assert "| net | 32 | 32 | 0.0% | 0.0% |" in text
    assert "The two ranges overlap in 16 of 16 cells" in text
    assert "the time per call does so too in 32 of 32." in text


def test_two_runs_of_estimates_alone_are_told_too(tmp_path):
    def estimates():
        found = with_energy({"tf-mode0": 2.0}, spread=0.10)
        return [(record, p) for record, p in found if record.shape.hidden == HIDDEN[0]]

    runs = [Subject(run_of(tmp_path / f"h200-energy-{n}", *estimates())) for n in (1, 2)]
    paper = Subject(run_of(tmp_path / "h200-paper", *with_energy({"tf-mode0": 2.0})))
    text = " ".join(energy.section(Runs(paper=paper, energy=tuple(runs))).written().split())
    assert "| gross, a range | 16 | 16 | 0.0% | 0.0% |" in text
    assert "gross, a figure" not in text


def test_the_figures_that_are_furthest_apart_are_named_if_they_do_not_agree(tmp_path):
    again = with_energy({"tf-mode0": 2.0})
    near, far = [r for r, _ in again if r.implementation == "tf-mode0"][:2]
    near.energy.power_w, far.energy.power_w = 270.0, 250.0
    two = (with_energy({"tf-mode0": 2.0}), again)
    runs = [Subject(run_of(tmp_path / f"h200-energy-{n}", *own)) for n, own in enumerate(two, 1)]
    paper = Subject(run_of(tmp_path / "h200-paper", *with_energy({"tf-mode0": 2.0})))
    text = " ".join(energy.section(Runs(paper=paper, energy=tuple(runs))).written().split())
    where = f"`tf-mode0` at {far.shape.label} (300 W and 250 W, 2 ms and 2 ms a call)"
    names = "`h200-energy-1` and `h200-energy-2`"
    assert f"The figures of {names} that are furthest apart: {where}." in text
    assert "| gross, a figure | 32 | 30 |" in text
    near.energy.power_w, far.energy.power_w = 296.0, 290.0
    runs[1] = Subject(run_of(tmp_path / "near" / "h200-energy-2", *again))
    text = " ".join(energy.section(Runs(paper=paper, energy=tuple(runs))).written().split())
    assert "furthest apart" not in text


def test_cells_that_ran_another_algorithm_are_not_held_against_each_other(tmp_path):
    sides = []
    for name, path in (("h200-energy-1", "standard, graph"), ("h200-energy-2", "persist-static")):
        own = with_energy({"tf-mode0": 2.0})
        own[0][0].path = f"cuDNN 9 {path}"
        own[1][0].path = "cuDNN 9.1" if name.endswith("1") else "cuDNN 9.2"
        sides.append(Subject(run_of(tmp_path / name, *own)))
    paper = Subject(run_of(tmp_path / "h200-paper", *with_energy({"tf-mode0": 2.0})))
    text = " ".join(energy.section(Runs(paper=paper, energy=tuple(sides))).written().split())
    assert "| gross, a figure | 31 | 31 |" in text
    told = "Left out of `h200-energy-1` and `h200-energy-2`: 1 cell that ran another algorithm."
    assert told in text


@pytest.mark.parametrize(("value", "told"), [(1.04, "~1.0x"), (9.87, "~9.9x"), (24.1, "~24x")])
def test_the_ratio_of_an_estimate_has_two_digits(value, told):
    assert energy._ratio_text({"estimates": 2, "cells": 3}, value) == told


@pytest.mark.parametrize(
    ("uuids", "told"),
    [
        (("GPU-1", "GPU-1"), "the same"),
        (("GPU-1", "GPU-2"), "another"),
        ((None, "GPU-2"), "not told"),
        (("GPU-1", None), "not told"),
    ],
)
def test_energy_of_two_runs_says_whether_they_had_one_gpu(tmp_path, uuids, told):
    both = []
    for name, uuid in zip(("h200-paper", "h200-repeat"), uuids, strict=True):
        run = run_of(tmp_path / name, *with_energy({"tf-mode0": 2.0}))
        run.manifest["machine"]["gpus"] = [{"name": "H200", "driver": "1", "uuid": uuid}]
        both.append(Subject(run))
    section = energy.section(Runs(paper=both[0], repeats=(both[1],)))
    assert f"| `h200-paper`, `h200-repeat` | {told} |" in " ".join(section.written().split())


@pytest.mark.parametrize(
    ("uuids", "other", "told"),
    [
        (("GPU-1", "GPU-1"), "GPU-1", "the same"),
        (("GPU-1", "GPU-2"), "GPU-1", "several"),
        (("GPU-1", "GPU-2"), "GPU-3", "another"),
        (("GPU-1", None), "GPU-1", "not told"),
        (("GPU-2",), "GPU-1", "several"),  # the first was killed
    ],
)
def test_a_run_that_was_resumed_had_the_gpus_of_its_legs(tmp_path, uuids, other, told):
    both = []
    for name, uuid in (("h200-paper", "GPU-1"), ("h200-repeat", other)):
        run = run_of(tmp_path / name, *with_energy({"tf-mode0": 2.0}))
        run.manifest["machine"]["gpus"] = [{"name": "H200", "driver": "1", "uuid": uuid}]
        both.append(Subject(run))
    legs = [
        {"wall_s": 1.0, "timed_s": 0.5, "machine": {"gpus": [{"uuid": uuid}]} if uuid else {}}
        for uuid in uuids
    ]
    lines = "".join(json.dumps(leg) + "\n" for leg in legs)
    (tmp_path / "h200-paper" / "legs.jsonl").write_text(lines)
    section = energy.section(Runs(paper=both[0], repeats=(both[1],)))
    assert f"| `h200-paper`, `h200-repeat` | {told} |" in " ".join(section.written().split())
    alone = " ".join(energy.section(Runs(paper=both[0])).written().split())
    assert ("The run had several GPUs" in alone) == (uuids != ("GPU-1", "GPU-1"))


@pytest.mark.parametrize(
    ("uuids", "limit", "told"),
    [
        (("GPU-1", "GPU-1"), "H200 (1 GPU of it), one driver", "; GPU 1;"),
        (("GPU-1", "GPU-23456789-ab"), "H200 (2 GPUs of it), one", "; GPUs 1 and 23456789;"),
        (("GPU-1", None), "H200 (at least 1 GPU of it)", "; GPUs 1 and others that it does not"),
        ((None, None), "H200, one driver", ""),
    ],
)
def test_a_kind_of_machine_may_be_several_gpus(tmp_path, uuids, limit, told):
    run = run_of(tmp_path / "h200-paper", *cells_of({}))
    run.manifest["machine"] |= {"gpus": [{"name": "H200", "driver": "1", "uuid": uuids[0]}]}
    run.manifest["machine"]["git"] = "abc"
    legs = [{"wall_s": 1.0, "timed_s": 0.5, "machine": {"gpus": [{"uuid": u}]}} for u in uuids]
    lines = "".join(json.dumps(leg) + "\n" for leg in legs)
    (tmp_path / "h200-paper" / "legs.jsonl").write_text(lines)
    runs = Runs(paper=Subject(run))
    assert f"One kind of machine: {limit}" in " ".join(limits.section(runs).written().split())
    text = " ".join(what_ran.section(runs).written().split())
    assert f"{told} revision abc" in text if told.endswith(";") else told in text
    assert ("; GPU" in text) == bool(told)


def test_energy_is_held_against_that_of_a_second_run(tmp_path):
    one = Subject(run_of(tmp_path / "h200-paper", *with_energy({"tf-mode0": 2.0})))
    warmer = with_energy({"tf-mode0": 2.0})
    for record, _ in warmer:
        record.energy.power_w *= 1.1
        record.energy.idle_w *= 1.1
    other = Subject(run_of(tmp_path / "h200-repeat", *warmer))
    text = " ".join(energy.section(Runs(paper=one, repeats=(other,))).written().split())
    told = "| 120, 132 W | gross, a figure | 32 | 0 | 10.0% | 10.0% |"
    assert f"| `h200-paper`, `h200-repeat` | not told {told}" in text
    assert "| net | 32 | 0 | 10.0% | 10.0% |" in text


def in_legs(cells, days):
    """The same cells, each shape as if measured within a minute of the day that `days` gives."""
    for record, _ in cells:
        day, minute = days((record.shape.hidden, record.shape.batch, record.shape.timesteps))
        record.group = f"{record.shape.label} 202601{day:02d}T10{minute:02d}00.000000"
        record.finished_at = f"2026-01-{day:02d}T10:{minute:02d}:50+00:00"
    return cells


def by_hidden(shape):
    """The small ones on one day, the large ones on the next."""
    return 1 + HIDDEN.index(shape[0]), SHAPES.index(shape)


def one_day(shape):
    return 1, SHAPES.index(shape)


def test_a_run_that_was_resumed_later_is_held_against_another_leg_by_leg(tmp_path):
    """Slower in one leg and faster in the other: over all shapes that would be nothing."""
    results, profiles = tmp_path / "results", {"pytorch": busy(0.95), "tf-mode0": busy(0.2)}
    run_of(results / "h200-paper", *in_legs(cells_of({"tf-mode0": 2.0}, profiles), one_day))
    run_of(results / "h200-repeat", *in_legs(cells_of({"tf-mode0": at(0, 1.6, 2.5)}), by_hidden))
    text = " ".join(part_of(built(results), "Does it repeat").split())
    assert "`h200-repeat`, leg 1 | GPU-bound | 8 | 0.0% |" in text
    assert "| host-bound | 8 | -20.0% | 20.0% |" in text
    assert "| host-bound | 8 | 25.0% | 25.0% |" in text
    assert "| `tf-mode0` / `pytorch` | 16 | 2.00x | 2.00x | 0.0% | -20.0% | 25.0% |" in text
    assert ", and in one leg by up to 25.0%." in text
    assert "`h200-repeat` has 2 legs, with a break between them, of 8 and 8 shapes." in text
    short = " ".join(part_of(built(results), "In short").split())
    assert (
        "In `h200-repeat`, another run, 16 of 32 cells are within the noise floor; in the median"
        " GPU-bound cells differ by 0.0% and host-bound cells differ by 22.5%."
    ) in short


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (one_day, one_day, []),
        (one_day, by_hidden, ["`b`, leg 1", "`b`, leg 2"]),
        (by_hidden, one_day, ["`a`, leg 1", "`a`, leg 2"]),
        (by_hidden, by_hidden, ["`a`, leg 1 and `b`, leg 1", "`a`, leg 2 and `b`, leg 2"]),
    ],
)
def test_whichever_run_was_resumed_its_legs_are_named(tmp_path, first, second, names):
    subjects = [
        Subject(run_of(tmp_path / name, *in_legs(cells_of({}), days)))
        for name, days in (("a", first), ("b", second))
    ]
    parts = legs.parts(*subjects)
    assert [part.name for part in parts] == names
    assert sum(len(part.shapes) for part in parts) == (len(SHAPES) if names else 0)


def test_a_cell_that_is_measured_again_later_moves_its_shape_to_no_other_leg(tmp_path):
    cells = in_legs(cells_of({"tf-mode0": 2.0}), one_day)
    cells[0][0].group = f"{cells[0][0].shape.label} 20260103T100000.000000"
    cells[0][0].finished_at = "2026-01-03T10:00:50+00:00"
    assert legs.sizes(Subject(run_of(tmp_path / "a", *cells))) == [len(SHAPES)]


def test_shapes_that_take_long_to_fail_begin_no_leg(tmp_path):
    """Half an hour in which every row of some shapes runs into its time limit."""
    cells = in_legs(cells_of({}), lambda shape: (1, 3 * SHAPES.index(shape)))
    for record, _ in cells:
        if 4 <= SHAPES.index((record.shape.hidden, record.shape.batch, record.shape.timesteps)) < 9:
            record.status, record.latency_s = "timeout", None
    assert legs.sizes(Subject(run_of(tmp_path / "a", *cells))) == [len(SHAPES) - 5]


@pytest.mark.parametrize(("days", "told"), [(one_day, False), (by_hidden, True)])
def test_legs_of_the_main_run_are_a_limit(tmp_path, days, told):
    run_of(tmp_path / "h200-paper", *in_legs(cells_of({}), days))
    assert ("It was measured in 2 legs" in part_of(built(tmp_path), "Limits")) == told


def test_a_second_run_says_whether_the_paper_is_judged_alike(tmp_path):
    results = tmp_path / "results"
    run_of(results / "h200-paper", *cells_of({"tf-mode0": 2.0}))
    run_of(results / "h200-repeat", *cells_of({"tf-mode0": 2.1}))
    text = " ".join(part_of(built(results), "In short").split())
    assert "judges 1 of 1 finding of the paper as `h200-paper` does." in text
    shutil.rmtree(results / "h200-repeat")
    run_of(results / "h200-repeat", *cells_of({"tf-mode0": 0.5}))
    text = " ".join(part_of(built(results), "In short").split())
    claim = "PyTorch beats TensorFlow's mode 0 (holds here, does not hold there)"
    assert "judges 0 of 1 finding of the paper as" in text
    assert f"does. Not so: {claim}." in text


def test_runs_that_do_not_say_when_have_no_legs(tmp_path):
    subjects = [Subject(run_of(tmp_path / name, *cells_of({}))) for name in "ab"]
    assert legs.parts(*subjects) == []
    assert legs.wall_s(subjects[0].records) == 0


def test_a_mean_of_differences_that_contradicts_the_mean_of_ratios_is_told(tmp_path):
    """Now 2.2 times as long, now a third: slower by MPE, faster by the geometric mean."""
    for factor, told in ((at(0, 2.2, 1 / 3), True), (2.2, False), (1 / 3, False)):
        folder = tmp_path / str(told) / str(factor)
        one = Subject(run_of(folder, *cells_of({"pytorch-amp": factor})))
        text = table2.section(Runs(paper=one)).written()
        assert ("In the column H200 MPE and geometric mean" in text) == told
        assert ("opposite ways for `pytorch-amp`" in " ".join(text.split())) == told


def test_the_paper_is_held_against_what_its_deepbench_ran(tmp_path):
    factors = {"deepbench-skip": 0.5, "deepbench": 1.0}
    one = Subject(run_of(tmp_path / "h200-paper", *cells_of(factors)))
    made = table2.section(Runs(paper=one))
    told = "2.00x the time (MPE -1.00, in the paper -0.53; against the same work 1.00x)"
    assert f"PyTorch takes {told}" in made.short
    assert "`pytorch` against `deepbench-skip`: by MPE the same sign, larger" in made.written()
    assert "`pytorch` against `deepbench`:" not in made.written()


def test_a_run_that_is_noisier_does_not_excuse_that_it_differs(tmp_path):
    results = tmp_path / "results"
    run_of(results / "h200-paper", *cells_of({"tf-mode0": 2.0}))
    loud = cells_of({"tf-mode0": 2.5})
    for record, _ in loud:
        if record.copy == 2:
            record.round_latency_s = [1.4 * one for one in record.round_latency_s]
    run_of(results / "h200-repeat-1", *loud)
    assert "Not as well as within one run" in built(results)


def test_a_second_run_is_held_against_the_noise(tmp_path):
    results = tmp_path / "results"
    run_of(results / "h200-paper", *cells_of({"tf-mode0": 2.0}))
    run_of(results / "h200-repeat-1", *cells_of({"tf-mode0": 2.001}))
    assert "Yes: medians of two runs agree" in built(results)
    shutil.rmtree(results / "h200-repeat-1")
    run_of(results / "h200-repeat-1", *cells_of({"tf-mode0": 2.5}))
    assert "Not as well as within one run" in built(results)


def test_cells_that_wait_for_the_gpu_are_told_from_those_that_wait_for_the_host(tmp_path):
    results, profiles = tmp_path / "results", {"pytorch": busy(0.95), "tf-mode0": busy(0.2)}
    run_of(results / "h200-paper", *cells_of({"tf-mode0": 2.0}, profiles))
    run_of(results / "h200-repeat-1", *cells_of({"tf-mode0": 2.5}))
    text = part_of(built(results), "Does it repeat")
    assert "GPU-bound cells do, as well as" in text
    (line,) = [one for one in text.splitlines() if "GPU-bound |    16 |" in one]
    assert "16 (100%)" in line
    (line,) = [one for one in text.splitlines() if "host-bound |    16 |" in one]
    assert "0 (0%)" in line


def except_at_one(usual, there):
    return lambda shape: there if shape == SHAPES[0] else usual


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (2.0, "No verdict turned round. {} 16 times, 100.0%; 0 times it calls neither. It calls 0"),
        (1.0, "No verdict turned round. {} 0 times, 0.0%; 16 times it calls neither."),
        (
            0.5,
            "16 verdicts turned round in `h200-repeat`. {} 0 times, 0.0%; 0 times it calls",
        ),
        (
            except_at_one(2.0, 0.5),
            "1 verdict turned round in `h200-repeat`: `tf-mode0` {} 15 times, 93.8%",
        ),
    ],
)
def test_a_second_run_says_whether_verdicts_repeat(tmp_path, second, told):
    results = tmp_path / "results"
    run_of(results / "h200-paper", *cells_of({"tf-mode0": 2.0}))
    run_of(results / "h200-repeat", *cells_of({"tf-mode0": second}))
    text = " ".join(part_of(built(results), "Does it repeat").split())
    for words in told.split("{}"):
        assert words.strip() in text


def test_what_only_the_second_run_calls_is_told(tmp_path):
    results = tmp_path / "results"
    run_of(results / "h200-paper", *cells_of({"tf-mode0": except_at_one(2.0, 1.0)}))
    run_of(results / "h200-repeat", *cells_of({"tf-mode0": 2.0}))
    text = " ".join(part_of(built(results), "Does it repeat").split())
    assert "It calls 1 pair that `h200-paper` does not, 1 of the 1 that it calls `same`." in text


def test_verdicts_are_told_by_how_much_the_first_run_has_between_the_two():
    near = {"verdict_1": "slower", "ratio_1": 1.2, "verdict_2": "same", "ratio_2": 9.0}
    far = {"verdict_1": "faster", "ratio_1": 0.4, "verdict_2": "faster", "ratio_2": 0.99}
    pairs = pd.DataFrame([near, far, far])
    by_size = {row[0]: row[1:4] for row in verdicts.rows(pairs)}
    assert by_size["1.10x to 1.25x"] == ["1", "1", "0"]
    assert by_size["2.00x or more"] == ["2", "2", "2"]
    assert by_size["1.00x to 1.10x"] == ["0", "0", "0"]
    assert "66.7% again (0 of 1 below 1.25x), and none the other way" in verdicts.short(pairs)


def test_the_ratios_of_a_second_run_stand_beside_those_of_the_first(tmp_path):
    """Whichever way round the two rows come."""
    results = tmp_path / "results"
    run_of(results / "h200-paper", *cells_of({"tf-mode0": 2.0, "deepbench": 0.5}))
    run_of(results / "h200-repeat", *cells_of({"tf-mode0": 2.4, "deepbench": 0.5}))
    text = " ".join(part_of(built(results), "Does it repeat").split())
    assert "| `tf-mode0` / `pytorch` | 16 | 2.00x | 2.40x | 20.0% |" in text
    assert "| `pytorch` / `deepbench` | 16 | 2.00x | 2.00x | 0.0% |" in text
    assert "20.0% at most (`tf-mode0` / `deepbench`: 4.00x here, 4.80x there)" in text


@pytest.mark.parametrize(("rounds", "told"), [(20, True), (100, False)])
def test_few_rounds_make_a_limit(tmp_path, rounds, told):
    run_of(tmp_path / "h200-paper", *cells_of({"tf-mode0": 2.0}))
    manifest = tmp_path / "h200-paper" / "manifest.json"
    plan = json.loads(manifest.read_text())
    plan["plan"]["sampling"]["max_rounds"] = rounds
    manifest.write_text(json.dumps(plan))
    limits = " ".join(part_of(built(tmp_path), "Limits").split())
    assert ("rounds are few for that" in limits) == told


def test_a_run_that_was_stopped_is_not_judged_by_its_time(tmp_path):
    cells = cells_of({"tf-mode0": 2.0})
    for record, _ in cells:
        record.timed_s = 1.0
    whole = Subject(run_of(tmp_path / "h200-paper", *cells))
    leg = {"wall_s": 50.0, "timed_s": 48.0, "spent_s": {"rounds": 49.0}, "cells": len(cells)}
    (tmp_path / "h200-paper" / "legs.jsonl").write_text(json.dumps(leg) + "\n")
    told = " ".join(what_ran.section(Runs(paper=whole)).written().split())
    assert "`h200-paper` does as well as that." in told
    manifest = tmp_path / "h200-paper" / "manifest.json"
    planned = json.loads(manifest.read_text())
    planned["plan"]["shapes"].append({"hidden": 7, "batch": 7, "timesteps": 7, "input_size": 7})
    manifest.write_text(json.dumps(planned))
    told = " ".join(what_ran.section(subject.read(tmp_path)).written().split())
    assert "No run does as well as that, of those that are whole." in told


def test_a_verdict_that_turned_round_is_named_with_both_ratios(tmp_path):
    results = tmp_path / "results"
    run_of(results / "h200-paper", *cells_of({"tf-mode0": 2.0}))
    run_of(results / "h200-repeat", *cells_of({"tf-mode0": except_at_one(2.0, 0.5)}))
    text = " ".join(part_of(built(results), "Does it repeat").split())
    assert (
        "round in `h200-repeat`: `tf-mode0` over `pytorch` at 128,1,10 (2.00x here, 0.50x there)."
        in text
    )


@pytest.mark.parametrize(
    ("timed_s", "why"),
    [(60.0, "of a cut shape only the driver knows"), (90.0, "more than rounds took is too much")],
)
def test_time_inside_calls_is_the_drivers_if_it_can_be(tmp_path, timed_s, why):
    cells = cells_of({"tf-mode0": 2.0})
    for record, _ in cells:
        record.timed_s = 1.0
    folder = tmp_path / "h200-paper"
    run_of(folder, *cells)
    leg = {"wall_s": 100.0, "timed_s": timed_s, "spent_s": {"rounds": 70.0}, "cells": len(cells)}
    (folder / "legs.jsonl").write_text(json.dumps(leg) + "\n")
    one = subject.read(tmp_path).paper
    assert one
    own = float(len(cells))
    assert what_ran.time_of(one) == (100.0, timed_s if timed_s < 70 else own), why


def test_noise_is_told_by_what_a_call_waits_for(tmp_path):
    cells = cells_of({"tf-mode0": 2.0}, {"pytorch": busy(0.95), "tf-mode0": busy(0.2)})
    twin = [
        (cell("tf-mode0", (h, b, t), 2.1e-3, round_latency_s=[2.1e-3] * 10, copy=2), None)
        for h, b, t in SHAPES
    ]
    one = Subject(run_of(tmp_path / "h200-paper", *cells, *twin))
    answer, *_, parts = controls.body([one])
    assert "No run does as well as that: `h200-paper` has 16 of 32, 50% (" in " ".join(
        answer.split()
    )
    rows = [[cell.strip() for cell in line.split("|")] for line in parts.splitlines()[2:]]
    assert [row[2:5] for row in rows] == [
        ["all", "32", "16 (50%)"],
        ["PyTorch", "16", "16 (100%)"],
        ["TensorFlow", "16", "0 (0%)"],
        ["GPU-bound", "16", "16 (100%)"],
        ["host-bound", "16", "0 (0%)"],
    ]


def test_a_quiet_run_is_called_one(tmp_path):
    one = Subject(run_of(tmp_path / "h200-paper", *cells_of({})))
    answer, *_ = controls.body([one])
    assert "does as well as that: `h200-paper` has 16 of 16, 100%" in " ".join(answer.split())


def twins(name, shape, changes, **more):
    """Both cells of an A/A pair; the second is off by so much, round by round."""
    second = [1e-3 * (1 + change) for change in changes]
    first = [1e-3] * len(second)
    return [
        (cell(name, shape, round_latency_s=first, **more), None),
        (cell(name, shape, round_latency_s=second, copy=2, **more), None),
    ]


def test_more_rounds_bring_two_measurements_of_one_thing_together(tmp_path):
    """Of 201 rounds the last is in no stretch of 10; a pair that is known after 20 is apart."""
    swings = twins("pytorch", (128, 1, 10), ([0.03] * 10 + [-0.03] * 10) * 10 + [0.0])
    stays = twins("tf-mode2", (128, 1, 10), [0.04] * 101 + [0.06] * 100, status="interrupted")
    sure = twins("deepbench", (128, 1, 10), [0.002] * 20)
    one = Subject(run_of(tmp_path / "h200-noise", *swings, *stays, *sure))
    _, answer, lines, told = (" ".join(part.split()) for part in rounds.body(one))
    assert (
        "2 of 3 (67%) pairs over 100 us agree to 1% with all of their rounds (21% to 94% of all"
        " such pairs, by that), round held against round; by the two medians alone 3 would. 95%"
        " should." in answer
    )
    assert "1 pair was cut short and counts as far as measured." in answer
    assert "| 10 | 0% | 4.0% | 5.0% |" in lines
    assert "| all | 50% | 2.0% | 4.0% |" in lines
    assert "Of the 2 pairs with 200 rounds or more" in told
    assert "Of 1 other pair, known sooner, 1 of 1 (100%) agree." in told
    apart = "`tf-mode2` at 128,1,10 by 4.0% (4.0% in the first half of its 201 rounds, 6.0% in the"
    assert apart in told
    assert "`pytorch`" not in told


def test_pairs_that_no_number_of_rounds_brings_together_are_named(tmp_path):
    """Short calls too; not one that is apart for half of the time only."""
    fixed = twins("deepbench", (128, 1, 10), [0.03, 0.02] * 40, latency=5e-5)
    moved = twins("tf-mode2", (128, 1, 10), [0.05] * 50 + [-0.01] * 30)
    close = twins("pytorch", (128, 1, 10), [0.005] * 80)
    one = Subject(run_of(tmp_path / "h200-noise", *fixed, *moved, *close))
    told = " ".join(rounds.body(one)[-1].split())
    assert "Of all 3 pairs, short calls included, 1 is apart by more than 1%" in told
    assert "neighbouring rounds: `deepbench` at 128,1,10 (2.5%)." in told


def test_how_far_the_builds_of_a_cell_are_apart_is_told(tmp_path):
    """Rounds take them in turns: of two, the second is 4% slower; of four, any may be."""
    two = twins("deepbench-graph", (128, 1, 10), [0.0] * 41, builds=2)
    for record, _ in two:
        swings = [1e-3 * (1 + 0.001 * (n * 7 % 41 - 20)) for n in range(20)]
        turns = [one for swing in swings for one in (swing, 1.04 * swing)]
        record.round_latency_s = [*turns, 9.0]  # the last turn was cut short
    four = twins("pytorch", (128, 1, 10), [0.0] * 24, builds=4)
    for record, _ in four:
        record.round_latency_s = [1e-3 * (1 + 0.01 * (n * n % 7)) for n in range(24)]
    lost = twins("tf-mode0", (128, 1, 10), [0.0] * 12, builds=2, status="interrupted")
    one = Subject(run_of(tmp_path / "h200-noise", *two, *four, *lost))
    told = " ".join(rounds.body(one)[-1].split())
    assert "Of 4 cells that were built several times, the slowest build is" in told
    assert (
        "Further apart than in all of 200 shuffles: `deepbench-graph` at 128,1,10 (4.0%) and"
        " `deepbench-graph` (twin) at 128,1,10 (4.0%)." in told
    )


def test_cells_that_a_budget_ended_are_counted(tmp_path):
    """Neither known, nor capped, nor at the last round."""
    open_, capped = "not converged: wide", "capped: 20 rounds in 3 s"
    ended = twins("pytorch", (128, 1, 10), [0.0] * 20, warnings=[open_], rounds=20)
    known = twins("deepbench", (128, 1, 10), [0.0] * 20, rounds=20)
    slow = twins("tf-mode2", (128, 1, 10), [0.0] * 20, warnings=[open_, capped], rounds=20)
    whole = twins("tf-mode0", (128, 1, 10), [0.0] * 30, warnings=[open_], rounds=30)
    one = Subject(run_of(tmp_path / "h200-noise", *ended, *known, *slow, *whole))
    assert one.run.plan.sampling.max_rounds == 30
    answer = " ".join(rounds.body(one)[1].split())
    assert "2 of 8 cells were ended sooner by `--budget`." in answer
    calm = Subject(run_of(tmp_path / "calm", *known, *slow, *whole))
    assert "--budget" not in rounds.body(calm)[1]


def test_short_calls_and_rows_without_a_twin_are_no_pairs(tmp_path):
    short = twins("deepbench", (128, 1, 10), [0.5] * 20, latency=5e-5)
    alone = [(cell("pytorch", (128, 1, 10), round_latency_s=[1e-3] * 20), None)]
    one = Subject(run_of(tmp_path / "h200-noise", *short, *alone))
    assert rounds.body(one) == []
    assert rounds.short(one) == ""


def built(results):
    return page.written(page.sections(subject.read(results)))


def part_of(text, title):
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_what_is_missing_costs_a_line(tmp_path):
    text = built(tmp_path)
    for title in ("What was run", "Which of the paper's findings hold", "Energy per call"):
        assert part_of(text, title).strip().startswith("The run `h200-paper` is not here;")
    assert "grids/paper.yaml --run h200-paper --profile" in " ".join(text.split())


def test_a_run_without_profiles_and_energy_says_which_flag_makes_them(tmp_path):
    factors = dict.fromkeys(amp.ROWS[1:], 2.0) | {"pytorch-amp": 0.5, "pytorch-half": 0.4}
    run_of(tmp_path / "h200-paper", *cells_of(factors))
    text = " ".join(built(tmp_path).split())
    assert "has no profiles of these rows; `lstm-bench grid grids/paper.yaml" in text
    assert "--energy` measures them." in text
    assert "The run `h200-deepbench` is not here" in text


def test_marks_of_few_shapes_say_where_they_are(tmp_path):
    found = cells_of({"deepbench": 1.0})
    for record, _ in found:
        open_ = ["not converged: wide"] if record.shape.batch == 1 else []
        hot = record.shape.hidden == 1024 and record.shape.batch == 256
        record.warnings = [*open_, *(["throttled: power cap", "throttled: again"] if hot else [])]
    run_of(tmp_path / "h200-paper", *found)
    told = " ".join(part_of(built(tmp_path), "What was run").split())
    assert "12 not converged and 6 throttled (at 1024,256,10; 1024,256,1000)." in told


def test_deepbench_s_own_shapes_have_intervals_and_say_that_no_profile_is_there(tmp_path):
    rows = {"deepbench-skip": either, "deepbench": 1.0}
    for name in ("h200-paper", "h200-deepbench"):
        run_of(tmp_path / name, *cells_of(rows))
    text = " ".join(built(tmp_path).split())
    assert re.search(r"`deepbench`: [\d.]+x \([\d.]+x to [\d.]+x\) is work", text)
    assert "The run is not profiled: which algorithm PyTorch ran is not known there." in text
    busy_rows = {"pytorch": busy(0.9), "deepbench": busy(0.9)}
    run_of(tmp_path / "seen" / "h200-deepbench", *cells_of(rows, busy_rows))
    run_of(tmp_path / "seen" / "h200-paper", *cells_of(rows))
    assert "which algorithm PyTorch ran" not in " ".join(built(tmp_path / "seen").split())


def test_a_run_that_is_not_whole_says_how_much_is_there(tmp_path):
    run_of(tmp_path / "h200-paper", *cells_of({}))
    manifest = tmp_path / "h200-paper" / "manifest.json"
    data = json.loads(manifest.read_text())
    data["plan"]["shapes"].append({"hidden": 7, "batch": 7, "timesteps": 7, "input_size": 7})
    manifest.write_text(json.dumps(data))
    assert f"{len(SHAPES)} of {len(SHAPES) + 1} planned shapes" in built(tmp_path)


def test_it_is_the_same_bytes_every_time(tmp_path):
    names = ("deepbench", "deepbench-skip", "deepbench-best", "pytorch-amp", "pytorch-half")
    factors = {name: 0.3 + 0.1 * place for place, name in enumerate((*names, *findings.MODES))}
    profiles = {name: busy(0.2) for name in ("pytorch", *factors)}
    run_of(tmp_path / "results" / "h200-paper", *cells_of(factors, profiles))
    files = []
    for seed in ("1", "2"):  # of hashes: no order of a set may show
        folder = tmp_path / seed
        command = [sys.executable, "-m", "lstm_bench.study", tmp_path / "results", folder]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        found = [path for path in folder.rglob("*") if path.is_file()]
        files.append({path.relative_to(folder): path.read_bytes() for path in found})
    assert files[0] == files[1]
    assert len(files[0]) == 4  # the page and three figures
    text = (tmp_path / "1" / "study.md").read_text()
    assert str(tmp_path) not in text
    assert all(f"({path})" in text for path in map(str, files[0]) if path.endswith(".svg"))


def test_without_a_folder_of_runs_no_page_is_written(tmp_path):
    (tmp_path / "study.md").write_text("the one there")
    command = [sys.executable, "-m", "lstm_bench.study", "--help", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "python -m lstm_bench.study [RESULTS] [DOCS]" in done.stderr
    assert (tmp_path / "study.md").read_text() == "the one there"


def test_the_page_in_the_tree_is_what_the_shipped_runs_say():
    """Nobody edits its numbers by hand: `make study` writes it."""
    assert (ROOT / "docs" / "study.md").read_text() == built(ROOT / "results")


def test_what_the_readme_says_of_the_study_is_in_it():
    readme, study = ((ROOT / name).read_text() for name in ("README.md", "docs/study.md"))
    found = part_of(readme, "What it found").split("\n- ")[1:]
    short = part_of(study, "In short").split("\n- ")[1:]
    assert len(found) == 4
    assert {one.split("\n\n")[0].strip() for one in found} <= {one.strip() for one in short}


def test_a_difference_is_told_as_everywhere_else(tmp_path):
    """The rules agree with what the page and `report` call clear."""
    run = run_of(tmp_path / "run", *cells_of({"tf-mode0": 1.2}))
    pair = Subject(run).pair("pytorch", "tf-mode0")
    assert clear(pair.whole, pair.floor)
    assert rules.is_slower(pair.whole, pair.floor) == HOLDS
