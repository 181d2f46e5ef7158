"""What `report` and `compare` say, from runs of every kind of incompleteness."""

import dataclasses
import json
import math
import re
import sys
from pathlib import Path

import pytest
from made_up import cells, row, run, written

from lstm_bench import frameworks as registry
from lstm_bench.analysis import comparison, noise, results, summary
from lstm_bench.commands import options
from lstm_bench.model.types import LstmBenchError, Settings
from lstm_bench.model.units import clipped, gist
from lstm_bench.report import figures, pair_report, paper_table, run_report

GRID = [(h, b, t) for h in (64, 128) for b in (1, 16) for t in (10, 100)]


def whole(*names, factor=2.0):
    """Every name at every shape, each `factor` times slower than the one before."""
    return [
        row(name, 0.002 * factor**place, *shape, copy=copy)
        for place, name in enumerate(names)
        for shape in GRID
        for copy in (1, 2)
    ]


def compared(*rows, a="a", b="b"):
    made = run(*rows)
    return pair_report.document(comparison.compare(made.cells, a, b, across=None), [made])


def test_a_wrong_output_is_counted_in_the_first_lines():
    rows = [*whole("deepbench"), row("x", None, status="wrong", reason="h differs")]
    text = run_report.document(run(*rows)).written("table")
    assert "2 implementations x 9 shapes: " in text
    assert "; 1 output wrong\n" in text
    assert "outputs checked" not in text


def test_the_report_has_machine_noise_implementations_and_failures():
    rows = [*whole("deepbench", "pytorch"), row("x", None, status="oom", reason="no room")]
    text = run_report.document(run(*rows), everything=True).written("table")
    assert "Test CPU, 2 threads" in text
    assert "2 implementations x 8 shapes: hidden 64-128, batch 1-16, timesteps 10-100" in text
    assert "all outputs checked" in text
    assert "noise floor: 0.0%; smaller differences are within noise" in text
    assert ">= 1 ms: 0.0% from 16 pairs" in text
    assert "x: 1 oom at 8,1,1: no room" in text
    line = next(line for line in text.splitlines() if line.startswith("pytorch"))
    assert "2.00x" in line
    line = next(line for line in text.splitlines() if line.startswith("deepbench "))
    assert line.split() == [
        *("deepbench", "fp32", "8/8", "2", "ms", "2", "ms", "4250", "0.00918", ">=", "16"),
        *("1.00x", "100%", "1", "s", "1e-07"),
    ]


def test_rates_stand_beside_the_throughput_and_say_where_a_row_saturates():
    """By hand: 8 B T H 2H operations; `full` gains 68%, then 0.3%, then 1% per doubling."""
    calls = {"full": (1e-3, 2e-3, 7.95e-3, 31.2e-3), "hungry": (1e-3, 2e-3, 4e-3, 8e-3)}
    calls |= {"slow": (1e-3, 12e-3, 48e-3, 192e-3)}  # 33% by a step of four doublings is little
    rows = [
        row(name, seconds, hidden, batch, 10)
        for name, times in calls.items()
        for batch, seconds in zip((1, 16, 64, 256), times, strict=True)
        for hidden in (64, 128)
    ]
    made = run(*rows, row("alone", 1e-3, 64, 1, 10))
    document = run_report.document(made, everything=True)
    table = next(one for one in document.tables if one.name == "implementations")
    headings = ("throughput", "seq/s", "TFLOP/s", "saturates")
    columns = [one for one in table.columns if one.heading in headings]
    assert tuple(one.heading for one in columns) == headings
    shown = {one["implementation"]: columns[-1].show(one) for one in table.rows}
    assert shown == {"full": "16", "hungry": ">= 256", "slow": "1", "alone": "-"}
    told = json.loads(run_report.document(made).written("json"))["implementations"]
    by_name = {one["implementation"]: one for one in told}
    ends = {name: (one["saturates_at"], one["largest_batch"]) for name, one in by_name.items()}
    assert ends == {
        **{"full": (16, 256), "hungry": (None, 256)},
        **{"slow": (1, 256), "alone": (None, None)},
    }
    cell = made.cells[(made.cells["implementation"] == "full") & (made.cells["batch"] == 16)].iloc[
        0
    ]
    assert cell["sequences_per_s"] == pytest.approx(16 / 2e-3)
    assert cell["tflops"] == pytest.approx(8 * 16 * 10 * 64 * 128 / 2e-3 / 1e12)
    less = cells(row("skip", 2e-3, 64, 16, 10, computes="lstm-skip-input"))
    assert less["tflops"][0] == pytest.approx(cell["tflops"] / 2)


def test_rows_that_lost_the_same_for_the_same_reason_share_a_line():
    lost = [row(name, None, status="unsupported", reason="cuda only") for name in ("x", "y")]
    text = run_report.document(run(*whole("a"), *lost, row("z", None, reason="died")))
    lines = text.written("table").splitlines()
    assert "  x, y: 1 unsupported each at 8,1,1: cuda only" in lines
    assert "  z: 1 crashed at 8,1,1: died" in lines


def with_reference(*rows):
    """A run whose rows named deepbench are of that framework."""
    made = run(*rows)
    for one in made.manifest["plan"]["implementations"]:
        one["framework"] = "deepbench" if one["name"].startswith("deepbench") else "fake"
    return made


def test_the_fastest_is_one_that_can_be_deployed_and_the_reference_stands_beside_it():
    made = with_reference(*whole("deepbench-best", "pytorch", "tf-mode0"), *whole("pytorch-half"))
    made.cells.loc[made.cells["implementation"] == "pytorch-half", "precision"] = "fp16"
    document = run_report.document(made)
    lines = [" ".join(line.split()) for line in document.written("table").splitlines()]
    assert "1 fp32 pytorch 4 of 4 4 ms 1e-07 tf-mode0 2.0x deepbench-best 2.0x" in lines
    half = "1 any pytorch-half 4 of 4 2 ms 1e-07 pytorch 2.0x deepbench-best same"
    assert half in lines
    facts = json.loads(document.written("json"))
    assert {(one["accuracy"], one["fastest"]) for one in facts["groups"]} == {
        ("fp32", "pytorch"),
        ("any", "pytorch-half"),
    }
    assert {(one["accuracy"], one["fastest"], one["reference"]) for one in facts["fastest"]} == {
        ("fp32", "pytorch", "deepbench-best"),
        ("half", "pytorch-half", None),
        ("any", "pytorch-half", "deepbench-best"),
    }


def test_in_a_narrow_terminal_what_goes_on_below_says_of_which_accuracy_it_is():
    made = with_reference(*whole("deepbench-best", "pytorch", "tf-mode0"))
    lines = run_report.document(made).written("table", 70).splitlines()
    told = [" ".join(line.split()) for line in lines]
    assert "batch accuracy faster in C++" in told
    assert "1 fp32 deepbench-best 2.0x" in told


def test_where_there_is_only_the_reference_it_competes_with_itself():
    text = run_report.document(with_reference(*whole("deepbench", "deepbench-best")))
    groups = json.loads(text.written("json"))["groups"]
    assert {(one["fastest"], one["next"], one["reference"]) for one in groups} == {
        ("deepbench", "deepbench-best", None)
    }


def test_where_one_alone_can_be_deployed_it_is_the_fastest_of_nothing():
    rows = [*whole("pytorch"), row("deepbench", None, *GRID[0])]
    assert (
        json.loads(run_report.document(with_reference(*rows)).written("json")).get("groups") is None
    )
    text = run_report.document(with_reference(*rows, *whole("deepbench"))).written("table")
    assert "fastest that you can deploy" in text  # beside the reference


def test_a_ratio_over_many_shapes_is_said_to_be_no_quotient_of_the_columns():
    text = " ".join(run_report.document(run(*whole("a", "b"))).written("table").split())
    assert "vs a: latency over its latency, geometric mean (not a quotient of medians)" in text
    one = run_report.document(run(row("a", 1.0), row("b", 2.0))).written("table")
    assert "quotient" not in one


def test_a_lead_within_the_noise_is_said_to_be():
    rows = [
        row(n, 0.002 * f, *s, copy=c)
        for n, f in (("a", 1), ("b", 1.01))
        for s in GRID
        for c in (1, 2)
    ]
    for one in rows:  # the two of a pair differ by two percent
        if one.copy == 2:
            one.latency_s *= 1.02
            one.round_latency_s = [1.02 * t for t in one.round_latency_s]
    text = run_report.document(run(*rows)).written("table")
    assert re.findall(r" (b|a) +same", text) == ["b", "b"]  # in both groups


def test_the_short_report_has_what_people_need_and_all_has_the_rest():
    rows = whole("deepbench", "pytorch")
    rows[0].warnings = ["capped: x"]
    made = run(*rows)
    short, everything = (
        run_report.document(made, everything=all_of_it) for all_of_it in (False, True)
    )
    text, more = short.written("table"), everything.written("table")
    for word in ("throughput", "first call", "capped", "fastest in fp32", ">= 1 ms"):
        assert word not in text.replace(run_report.MORE, "")
        assert word in more
    for form in ("json", "csv"):
        assert short.written(form) == everything.written(form)
    assert short.written("csv").startswith("implementation,")


def test_a_cell_is_uncertain_if_it_is_known_less_well_than_the_noise_floor():
    """Whatever its run stored: that it missed what was asked for says little."""
    quiet, loud = [0.010, 0.0101] * 5, [0.010, 0.013] * 5
    rows = [row("a", 0.010, hidden=h, copy=c, rounds=quiet) for h in range(1, 9) for c in (1, 2)]
    for one in rows:  # a noise floor of two percent
        if one.copy == 2:
            one.round_latency_s = [1.02 * t for t in one.round_latency_s]
        one.warnings = ["not converged: the interval of the median is wider than was asked"]
    document = run_report.document(run(*rows))
    assert "uncertain" not in document.written("table")
    assert json.loads(document.written("json"))["warnings"] == {}
    document = run_report.document(run(*rows, row("b", 0.0115, rounds=loud)), everything=True)
    text = document.written("table")
    assert "1 of 9 cells uncertain: latency known to 13.0% in the median" in text  # no controls
    assert "verdicts account for it" in " ".join(text.split())
    assert "not converged" not in text
    assert json.loads(document.written("json"))["warnings"] == {"uncertain": 1}


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_noise_floor_and_what_is_uncertain_are_lines_of_their_own(width):
    times = [(5e-5, 0.038), (5e-4, 0.018), (5e-3, 0.038)]
    rows = []
    for place, (time, off) in enumerate(times):
        for hidden in range(1, 7):
            loud = [time, 1.5 * time] * 5
            where = {"hidden": hidden, "batch": place + 1, "rounds": loud}
            rows += [row("a", 1.25 * time, **where), row("a", 1.25 * time, **where, copy=2)]
            rows[-1].round_latency_s = [(1 + off) * t for t in loud]
    lines = run_report.document(run(*rows)).written("table", width).splitlines()
    assert any(line.startswith("noise floor: 3.8%") for line in lines)
    assert any(line.startswith("18 of 18 cells uncertain") for line in lines)


def test_a_warning_about_many_cells_is_in_the_short_report_if_it_changes_what_to_believe():
    rows = whole("a", "b")
    for one in rows[:4]:  # two of them controls
        one.warnings = ["throttled: the clock fell", "capped: x"]
    text = run_report.document(run(*rows)).written("table")
    assert "2 of 16 cells throttled" in text
    assert "capped" not in text


def test_what_is_called_at_some_shapes_is_not_called_no_difference():
    """Two shapes, slower at one of them and the same at the other."""
    rows = [row(name, 0.002, 8, copy=c) for name in "ab" for c in (1, 2)]
    rows += [row("a", 0.002, 16, copy=c) for c in (1, 2)]
    rows += [row("b", 0.003, 16, copy=c) for c in (1, 2)]
    text = " ".join(compared(*rows).written("table").split())
    assert "b is slower than a at 1 of 2 shapes, faster at none. By latency, B / A = 1.22x" in text
    assert "Of 2 shapes b is faster at 0, slower at 1, the same at 1; 0 unsure." in text


def test_a_ratio_stands_beside_an_interval_in_its_own_unit():
    rounds = [0.001 * (1 + 0.01 * (n % 3)) for n in range(10)]
    rows = [row("a", 0.004, *shape, rounds=[4 * one for one in rounds]) for shape in GRID]
    rows += [row("b", 0.001, *shape, rounds=rounds) for shape in GRID]
    text = " ".join(compared(*rows).written("table").split())
    assert "b is 4.0x faster than a." in text
    assert "By latency, B / A = 0.25x (geometric mean, 95% interval 0.25 to 0.25" in text


def test_a_comparison_as_json_has_every_shape():
    made = json.loads(compared(row("a", 0.002), row("b", 0.004)).written("json"))
    (shape,) = made["shapes"]
    assert (shape["hidden"], shape["a_s"], shape["ratio"]) == (8, 0.002, 2.0)


def test_names_are_none_where_a_shape_has_one_row_only():
    """Whatever pandas makes of a column of names: None has to stay one."""
    made = run(row("a", 0.002, 8), row("a", 0.002, 16), row("b", 0.003, 16))
    found = summary.winners(summary.times(made.cells), made.noise)
    assert list(found["next"]) == [None, "b"]
    assert "-" in run_report.document(made).written("table")


def test_the_report_says_how_far_passes_differ():
    """Of two passes in fresh processes; what has one pass only tells nothing."""
    rows = [row("a", 0.002 * factor, pass_number=p) for p, factor in ((2, 1.1), (1, 1.0))]
    rows += [row("b", 0.003, pass_number=p) for p in (1, 2)] + [row("c", 0.003)]
    text = run_report.document(run(*rows), everything=True).written("table")
    assert "from pass to pass, in fresh processes: 5.0% in the median, 95% under 10.0%" in text
    assert "(2 later measurements)" in text
    text = run_report.document(run(row("a", 1.0)), everything=True).written("table")
    assert "from pass to pass" not in text


def test_the_report_says_that_lines_were_lost(tmp_path):
    folder = written(tmp_path / "r", row("a", 1.0), row("b", 1.0))
    with (folder / "records.jsonl").open("ab") as file:
        file.write(b'{"half": \n' + b"not json\n" + b'{"torn": ')
    found = results.load(folder)
    assert found.damaged == 2  # the torn last line may be a write that goes on right now
    assert "2 lines of records.jsonl cannot be read" in run_report.document(found).written("table")


def test_unequal_work_is_marked():
    rows = [*whole("deepbench"), row("deepbench-skip", 0.1, computes="lstm-skip-input")]
    text = run_report.document(run(*rows)).written("table")
    assert "deepbench-skip*" in text
    assert "* does less work" in text


@pytest.mark.parametrize("form", ["table", "github", "latex"])
def test_every_table_fits_a_page(form):
    names = ["deepbench-persist-dynamic", "deepbench", "deepbench-fp16-best", "tf-mode0-amp"]
    for document in (
        run_report.document(run(*whole(*names))),
        paper_table.document(run(*whole(*names)), [("deepbench", "deepbench-persist-dynamic")]),
        compared(*whole(*names), a=names[0], b=names[2]),
    ):
        lines = document.written(form).splitlines()
        if form == "table":
            assert max(map(len, lines)) <= 100


INCOMPLETE = {
    "nothing": [],
    "nothing that ran": [row("a", None), row("b", None)],
    "one implementation": [row("a", 1.0)],
    "one shape": [row("a", 1.0), row("b", 2.0)],
    "no common shape": [row("a", 1.0, hidden=1), row("b", 2.0, hidden=2)],
    "interrupted": [row("a", 1.0), row("b", 2.0, status="interrupted")],
    "few rounds": [row("a", 1.0, rounds=[1.0]), row("b", 2.0, rounds=[2.0, 2.1])],
    "no rounds": [row("a", 1.0, round_latency_s=[]), row("b", 2.0, round_latency_s=[])],
    "a time of zero": [row("a", 0.0), row("b", 2.0)],
}


@pytest.mark.parametrize("rows", INCOMPLETE.values(), ids=INCOMPLETE)
@pytest.mark.parametrize("form", ["table", "github", "csv", "json", "latex"])
@pytest.mark.filterwarnings("error")
def test_what_is_missing_breaks_no_table(rows, form):
    run_report.document(run(*rows)).written(form)
    paper_table.document(run(*rows)).written(form)
    names = {r.implementation for r in rows}
    if {"a", "b"} <= names:
        compared(*rows).written(form)


def test_a_shape_that_was_cut_short_is_one_line_that_says_how_to_go_on():
    cut = [row(n, 2.0, status="interrupted", reason=f"stopped after {n}") for n in "bcd"]
    text = run_report.document(run(row("a", 1.0), *cut)).written("table")
    (line,) = [one for one in text.splitlines() if "interrupted" in one]
    assert line.startswith("  3 cells interrupted at 8,1,1: `lstm-bench grid --resume ")


def test_a_pair_that_the_run_lacks_says_which_side():
    text = paper_table.document(run(row("deepbench", 1.0), row("pytorch", 2.0))).written("table")
    assert "deepbench, tf-mode0: left out: not in the run: tf-mode0" in text


def test_the_papers_values_stand_beside_ours():
    text = paper_table.document(run(*whole("deepbench", "pytorch"))).written("table")
    line = next(x for x in text.splitlines() if x.startswith("deepbench  pytorch "))
    assert "-0.53" in line
    assert "-1.00 [-1.00, -1.00]" in line


def test_the_papers_values_stand_beside_what_its_deepbench_ran_where_a_run_has_it():
    rows = (
        paper_table.document(run(*whole("deepbench", "deepbench-skip", "pytorch"))).tables[0].rows
    )
    beside = [(one["a"], one["paper"]) for one in rows if one["b"] == "pytorch"]
    assert beside[0] == ("deepbench-skip", pytest.approx(-0.53, abs=0.01))
    assert beside[1][0] == "deepbench"
    assert math.isnan(beside[1][1])


def test_a_cell_is_counted_once_however_often_it_was_warned_of():
    rows = [
        row("a", 1.0),
        row("a", 1.0, hidden=2),
        row("a", 1.0, hidden=3),
        row("a", None, hidden=4),
    ]
    rows[0].warnings = ["slow clock: 1500 MHz", "slow clock: 1600 MHz", "capped: x"]
    rows[1].warnings = rows[3].warnings = ["capped: x"]
    text = run_report.document(run(*rows), everything=True).written("table")
    assert "1 of 3 cells slow clock" in text
    assert "2 of 3 cells capped" in text  # of those with a time


def test_a_row_without_a_time_has_no_share_of_the_shapes():
    rows = [row("a", 1.0), row("b", 2.0), row("c", None)]
    table = json.loads(run_report.document(run(*rows)).written("json"))["implementations"]
    assert [one["fastest_share"] for one in table] == [1.0, 0.0, None]


def test_what_is_left_out_is_text_in_every_format():
    rows = [row("deepbench", 1.0), row("pytorch", None), row("pytorch", 1.0, hidden=2)]
    rows.append(row("deepbench", 1.0, hidden=2))
    text = paper_table.document(run(*rows)).written("csv")
    assert "pytorch crashed at 1" in text
    assert "{" not in text


def test_pairs_that_the_user_names_come_after_the_papers():
    rows = paper_table.document(run(*whole("a", "b")), [("a", "b")]).tables[0].rows
    assert (rows[8]["a"], rows[8]["b"], rows[8]["mpe"]) == ("a", "b", pytest.approx(-1.0))


def test_a_pair_across_precisions_is_marked():
    rows = [row("pytorch", 1.0), row("pytorch-amp", 1.0, precision="amp-fp16")]
    text = paper_table.document(run(*rows)).written("table")
    assert "pytorch-amp^" in text
    assert "^ the two differ in precision" in text
    assert "+" not in text  # elsewhere it marks what a user gets unasked


def test_a_comparison_answers_first():
    text = compared(*whole("a", "b")).written("table")
    assert "b is 2.0x slower than a.\nBy latency, B / A = 2.00x" in text
    assert "Of 8 shapes b is faster at 0, slower at 8, the same at 0; 0 unsure." in text
    assert text.index("slower than") < text.index("noise floor") < text.index("hidden")


def test_a_comparison_goes_along_every_axis_and_shows_where_each_wins():
    rows = whole("a", "b")
    for one in rows:  # b wins at batch 16, a at batch 1
        if one.implementation == "b" and one.shape.batch == 16:
            one.latency_s = 0.001
            one.round_latency_s = [0.001] * 10
    text = compared(*rows).written("table")
    for axis in ("hidden", "batch", "timesteps"):
        assert any(line.lstrip().startswith(f"{axis}  shapes") for line in text.splitlines())
    wins = next(x for x in text.splitlines() if x.split()[:1] == ["64"] and "A 2/2" in x)
    assert "B 2/2" in wins
    assert "largest wins of a" in text
    assert "largest wins of b" in text


def test_the_three_largest_wins_are_the_largest():
    rows = [row("a", 0.01, hidden=h) for h in range(1, 7)]
    rows += [row("b", 0.01 * h, hidden=h) for h in range(1, 7)]
    data = json.loads(compared(*rows).written("json"))
    assert [w["hidden"] for w in data["largest"]] == [6, 5, 4]
    assert {w["winner"] for w in data["largest"]} == {"a"}


def test_a_comparison_as_csv_is_one_tidy_table():
    lines = compared(*whole("a", "b")).written("csv").splitlines()
    assert lines[0].startswith("by,at,shapes,mpe,mpe_low,mpe_high,ratio")
    assert [line.split(",")[0] for line in lines[1:]] == [
        "all", "hidden", "hidden", "batch", "batch", "timesteps", "timesteps",
    ]  # fmt: skip


def test_two_runs_say_that_they_were_not_measured_in_turns():
    one, two = run(*whole("a")), run(*whole("a"))
    found = comparison.compare(one.cells, "a", "a", other=two.cells)
    assert "Measured in different runs" in pair_report.document(found, [one, two]).written("table")


def test_a_part_of_a_run_keeps_the_noise_of_the_whole():
    rows = [
        row("a", 0.01 * (1 + 0.3 * (c == 2)), hidden=h, copy=c)
        for h in range(9)
        if h
        for c in (1, 2)
    ]
    rows += [row("b", 0.011, hidden=h) for h in range(1, 9)]
    frame = cells(*rows)
    floors = [noise.floors(noise.controls(frame))]
    part = frame[(frame["hidden"] == 1) & (frame["copy"] == 1)]
    found = comparison.compare(part, "a", "b", floors=floors)
    assert list(found.shapes["verdict"]) == ["same"]


def test_a_report_of_some_shapes_keeps_the_noise_of_the_whole_run():
    rows = [row(n, t, hidden=h) for h in (1, 2) for n, t in (("a", 1.0), ("b", h))]
    rows += [row("a", 1.2, hidden=1, copy=2)]
    made = run(*rows)
    text = run_report.document(made, conditions=["hidden>=2"]).written("table")
    assert "only hidden>=2: 1 of 2 shapes" in text
    assert "noise floor: 20.0%" in text  # by the pair at the other shape
    facts = json.loads(run_report.document(made, conditions=["hidden=1"]).written("json"))
    assert (facts["where"], [one["hidden"] for one in facts["fastest"]]) == (["hidden=1"], [1])
    assert [one["ok"] for one in facts["implementations"]] == [1, 1]


def test_a_row_alone_in_its_class_has_no_share_of_wins():
    rows = [row("a", 2.0), row("b", 1.0), row("half", 0.1, precision="fp16")]
    told = json.loads(run_report.document(run(*rows)).written("json"))["implementations"]
    assert [one["fastest_share"] for one in told] == [0.0, 1.0, None]


def test_what_a_user_gets_unasked_is_marked_and_explained():
    made = run(*whole("a", "b", "c"))
    assert "+" not in run_report.document(made).written("table")
    made = run(*whole("a", "b", "c"))
    made.manifest["plan"]["implementations"][1]["default_on"] = ["cpu"]
    made.manifest["plan"]["implementations"][2]["default_on"] = ["cuda"]  # not here
    text = run_report.document(made).written("table")
    assert "\nb+ " in text
    assert text.count("+ what its framework does unless you change a setting") == 1
    told = json.loads(run_report.document(made).written("json"))["implementations"]
    assert [one["default"] for one in told] == [False, True, False]


def test_runs_of_before_have_their_marks_of_todays_registry(monkeypatch):
    known = dict(registry.IMPLEMENTATIONS)
    known["pytorch"] = dataclasses.replace(known["pytorch"], default_on=("cpu",))
    known["pytorch@1"] = dataclasses.replace(known["pytorch"], name="pytorch@1", threads=1)
    monkeypatch.setattr(results, "IMPLEMENTATIONS", known)
    made = run(*whole("pytorch", "pytorch@1", "stranger"))
    made.manifest["plan"]["implementations"][1]["threads"] = 1  # somebody asked for that
    assert made.defaults == {"pytorch"}


def test_tf32_is_a_rows_and_only_runs_of_before_had_it_on_for_all():
    made = run(*whole("a"))
    assert "TF32" not in run_report.heading(made)
    made.manifest["plan"]["settings"]["tf32"] = True
    assert "2 threads, TF32 on, seed 1" in run_report.heading(made)


def test_carried_state_is_in_the_first_line_and_time_is_told_per_step():
    fixed = run(row("a", 0.1, timesteps=10), row("b", 0.2, timesteps=10))
    assert "per step" not in run_report.document(fixed).written("table")
    made = run(row("a", 0.1, timesteps=10), row("b", 0.2, timesteps=10))
    made.manifest["plan"]["settings"]["state"] = "carried"
    text = run_report.document(made).written("table")
    assert "state carried from call to call" in text.splitlines()[0]
    assert " ".join(text[text.index("\na ") :].split()).startswith("a fp32 100 ms 10 ms 1.00x")
    one_step = run(row("a", 0.1), row("b", 0.2))
    one_step.manifest["plan"]["settings"]["state"] = "carried"
    assert "per step" not in run_report.document(one_step).written("table")  # it is the latency


def test_carried_and_fixed_state_are_compared_only_if_asked_to():
    fixed, carried = (
        results.frame([row("a", 1.0)], {}, Settings(state=state)) for state in ("fixed", "carried")
    )
    with pytest.raises(LstmBenchError, match="--across state"):
        comparison.compare(fixed, "a", "a", other=carried)
    found = comparison.compare(fixed, "a", "a", other=carried, across=("state",))
    assert found.differs == ("state",)


def test_where_x_lies_is_in_the_first_line_of_a_run_on_a_gpu():
    made = run(row("a", 0.1, device="cuda"), row("b", 0.2, device="cuda"))
    made.manifest["plan"]["settings"] |= {"device": "cuda", "inputs": "pinned"}
    text = run_report.document(made).written("table")
    assert text.splitlines()[0].endswith("seed 1, x and y in pinned host memory")
    assert "x and y in pinned host memory" in figures.about(made)
    for changes in ({"inputs": "device"}, {"inputs": "pinned", "device": "cpu"}):
        made.manifest["plan"]["settings"] |= changes
        assert "host memory" not in run_report.heading(made)


def test_what_is_copied_and_what_is_not_are_compared_only_if_asked_to():
    cell, fast = row("a", 1.0, device="cuda"), row("a@1", 1.0)  # on the CPU
    device, pinned = (
        results.frame([cell, fast], {}, Settings(inputs=one)) for one in ("device", "pinned")
    )
    with pytest.raises(LstmBenchError, match=r"inputs \(device and pinned\).*--across inputs"):
        comparison.compare(device, "a", "a", other=pinned)
    found = comparison.compare(device, "a", "a", other=pinned, across=("inputs",))
    assert found.differs == ("inputs",)
    assert comparison.compare(device, "a@1", "a@1", other=pinned).differs == ()
    anything = comparison.compare(pinned, "a", "a@1", across=None)
    assert "inputs" not in anything.differs  # a CPU reads x where it lies


def test_the_mpe_of_some_shapes_is_of_these():
    rows = [row("deepbench", 1.0, hidden=h) for h in (1, 2)]
    rows += [row("pytorch", 2.0 * h, hidden=h) for h in (1, 2)]
    table = paper_table.document(run(*rows), conditions=["hidden=2"]).tables[0].rows
    (found,) = [one for one in table if (one["a"], one["b"]) == ("deepbench", "pytorch")]
    assert (found["shapes"], found["mpe"]) == (1, pytest.approx(-3.0))


def test_long_text_is_cut_between_words():
    assert clipped("could not create a primitive descriptor", 30) == "could not create a..."
    assert clipped("could not create a", 18) == "could not create a"
    assert clipped("could not create a primitive", 21) == "could not create a..."
    assert clipped("deepbench-persist-static-small", 25) == "deepbench-persist-stat..."


def test_the_gist_of_an_error_is_its_first_line_in_whole_words():
    said = gist(RuntimeError("word " * 100 + "\nand a second line"))
    assert said.endswith("word...")
    assert len(said) <= 300
    assert gist(RuntimeError()) == ""


class Clock:
    """A timer that a test lets run out."""

    def __init__(self, seconds, call, args, kwargs):
        self.seconds, self.ring, self.state = seconds, lambda: call(*args, **kwargs), "new"
        Clock.last = self

    def start(self):
        self.state = "running"

    def cancel(self):
        self.state = "over"


def test_what_takes_longer_than_two_seconds_says_so_once_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("threading.Timer", Clock)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with options.busy("drawing the figures"):
        assert (Clock.last.seconds, Clock.last.state) == (2.0, "running")
        Clock.last.ring()
    assert Clock.last.state == "over"
    assert capsys.readouterr() == ("", "drawing the figures ...\n")


def test_nothing_is_said_where_nobody_looks(monkeypatch, capsys):
    monkeypatch.setattr("threading.Timer", Clock)
    with options.busy("drawing the figures"):
        assert Clock.last.state == "new"
    assert capsys.readouterr() == ("", "")


def test_the_papers_table_says_why_its_two_means_may_disagree():
    """Slower by MPE at one shape outweighs faster by the geometric mean at three."""
    rows = []
    for place, ratio in enumerate((0.5, 0.4, 0.5, 5.0)):
        rows += [row("pytorch", 1.0, hidden=place + 1), row("pytorch-amp", ratio, hidden=place + 1)]
    text = " ".join(paper_table.document(run(*rows)).written("table").split())
    assert "Slower by MPE and faster by B / A: pytorch, pytorch-amp (-0.60, 0.84x)." in text
    assert "a few slow shapes outweigh many fast ones" in text
    rows = [row("pytorch", 1.0), row("pytorch-amp", 2.0)]
    assert "outweigh" not in paper_table.document(run(*rows)).written("table")


def test_a_ratio_names_what_it_is_held_against():
    text = run_report.document(run(*whole("deepbench", "pytorch"))).written("table")
    assert "vs deepbench" in text
    assert "ratio" not in text


def test_two_runs_say_how_far_the_rows_drifted_that_both_have_alike(lstm_bench, tmp_path):
    for name, drift in (("monday", 1.0), ("friday", 1.45)):
        rows = [row(n, drift * s) for n, s in (("pytorch", 1.0), ("tf-mode0", 2.0))]
        written(tmp_path / "results" / name, *rows)
    two = ["compare", "pytorch", "pytorch", "--run", "monday", "--run", "friday"]
    text = " ".join(lstm_bench(*two).stdout.split())
    assert "a machine that drifts between them counts as a difference" in text
    assert "1 row that both have alike took 1.45x in the second" in text
    assert "lstm-bench grid" not in text


def test_threads_in_two_runs_are_sent_to_one_run(lstm_bench, tmp_path):
    for name, threads in (("one", 1), ("two", 2)):
        written(tmp_path / "results" / name, row("pytorch", 1.0 / threads, threads=threads))
    two = ["compare", "pytorch", "pytorch", "--run", "one", "--run", "two", "--across", "threads"]
    text = " ".join(lstm_bench(*two).stdout.split())
    assert "no row that both have alike shows how much" in text
    assert "In one run they take turns: `lstm-bench grid GRID -i pytorch,pytorch@1`." in text
    assert "ROW@1" in " ".join(lstm_bench("grid", "--help").stdout.split())


def test_the_scope_is_said_where_people_look(lstm_bench):
    scope = ("inference", "one layer", "one direction", "equal length")
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for text in (readme[:1500], lstm_bench("--help").stdout):
        assert all(word in text.lower() for word in scope)
