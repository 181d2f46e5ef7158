"""`report` and `compare`: facts in their data, and whole texts in tests/golden."""

import dataclasses
import itertools
import json
import math
import sys
from pathlib import Path

import pytest
from builders import cells, row, run, written

from lstm_bench import frameworks as registry
from lstm_bench.analysis import comparison, noise, results, summary
from lstm_bench.commands import options
from lstm_bench.model.units import clipped, gist
from lstm_bench.report import figures, pair_report, paper_table, run_report
from lstm_bench.report.document import FORMATS

GRID = [(h, b, t) for h in (64, 128) for b in (1, 16) for t in (10, 100)]


def whole(*names, factor=2.0, **more):
    """Every name at every shape, each `factor` times slower than the one before."""
    return [
        row(name, 0.002 * factor**place, *shape, copy=copy, **more)
        for place, name in enumerate(names)
        for shape in GRID
        for copy in (1, 2)
    ]


def compared(*rows, a="a", b="b"):
    made = run(*rows)
    return pair_report.document(comparison.compare(made.cells, a, b, across=None), [made])


def facts(document):
    return json.loads(document.written("json"))


def implementations(*rows, **how):
    actual = facts(run_report.document(run(*rows), **how))["implementations"]
    return {each["implementation"]: each for each in actual}


def one_line(document):
    return " ".join(document.written("table").split())


def with_reference(*rows):
    """A run whose rows named deepbench are of that framework."""
    made = run(*rows)
    for planned in made.manifest["plan"]["implementations"]:
        planned["framework"] = "deepbench" if planned["name"].startswith("deepbench") else "fake"
    return made


def everything():
    """A run with whatever a report has a line for."""
    rows = whole("deepbench", "pytorch", "tf-mode0")
    rows += whole("pytorch-half", precision="fp16", factor=1.0)
    rows += whole("deepbench-skip", computes="lstm-skip-input")[::2]
    rows += [row("pytorch", 0.0044, *GRID[0], pass_number=2)]
    rows += [row("loud", 0.006, *shape, rounds=[0.005, 0.007] * 5) for shape in GRID[:6]]
    rows += [row("loud", None, *shape, status="oom", reason="no room") for shape in GRID[6:]]
    for name in ("x", "y"):
        rows += [row(name, None, *GRID[0], status="unsupported", reason="cuda only")]
    rows += [row("wrong", None, *GRID[0], status="wrong", reason="h differs")]
    rows += [row(name, None, *GRID[1], status="interrupted") for name in ("x", "y")]
    for each in rows:
        each.path = "cuDNN (persistent)" if each.implementation.startswith("deep") else "fused"
    for each in rows[:12]:
        each.warnings = ["throttled: the clock fell", "capped: x"]
    rows[20].warnings = ["slow clock: 1500 MHz", "slow clock: 1600 MHz", "disturbed: by a"]
    made = with_reference(*rows)
    made.manifest["plan"]["implementations"][1]["default_on"] = ["cpu"]
    return dataclasses.replace(made, damaged=2)


@pytest.mark.parametrize("all_of_it", [False, True])
def test_a_report_in_full(golden, all_of_it):
    text = run_report.document(everything(), everything=all_of_it).written("table", 100)
    golden("report-all" if all_of_it else "report", text)


def test_the_papers_table_in_full(golden):
    made = everything()
    golden("mpe", paper_table.document(made, [("pytorch", "loud")]).written("table", 100))


def test_a_comparison_in_full(golden):
    rows = whole("a", "b")
    for each in rows:  # b wins at batch 16, a at batch 1
        if each.implementation == "b" and each.shape.batch == 16:
            each.latency_s = 0.001
            each.round_latency_s = [0.001] * 10
    golden("compare", compared(*rows, row("b", None, status="oom")).written("table", 100))


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
    table = next(each for each in document.tables if each.name == "implementations")
    (column,) = [each for each in table.columns if each.heading == "saturates"]
    shown = {each["implementation"]: column.show(each) for each in table.rows}
    assert shown == {"full": "16", "hungry": ">= 256", "slow": "1", "alone": "-"}
    ends = [(each["saturates_at"], each["largest_batch"]) for each in table.rows]
    assert ends == [(16, 256), (None, 256), (1, 256), (None, None)]
    cell = made.cells.query("implementation == 'full' and batch == 16").iloc[0]
    assert cell["sequences_per_s"] == pytest.approx(16 / 2e-3)
    assert cell["tflops"] == pytest.approx(8 * 16 * 10 * 64 * 128 / 2e-3 / 1e12)
    trained = row("full", 1.0, 64, 16, 10)  # slow, and three times the work
    trained.shape = dataclasses.replace(trained.shape, training=True)
    both = cells(*rows, trained)
    assert both["tflops"].iloc[-1] == pytest.approx(3 * cell["tflops"] * 2e-3)
    assert summary.saturation(summary.times(both))["full"] == (16, 256)
    less = cells(row("skip", 2e-3, 64, 16, 10, computes="lstm-skip-input"))
    assert less["tflops"][0] == pytest.approx(cell["tflops"] / 2)


def test_the_fastest_is_one_that_can_be_deployed_and_the_reference_stands_beside_it():
    made = with_reference(*whole("deepbench-best", "pytorch", "tf-mode0"), *whole("pytorch-half"))
    made.cells.loc[made.cells["implementation"] == "pytorch-half", "precision"] = "fp16"
    actual = facts(run_report.document(made))
    keys = ("accuracy", "fastest", "wins", "next", "ratio", "reference", "reference_ratio")
    groups = {
        tuple(group[key] for key in (*keys, "reference_beyond_noise")) for group in actual["groups"]
    }
    assert groups == {
        ("fp32", "pytorch", 4, "tf-mode0", 2.0, "deepbench-best", 2.0, True),
        ("any", "pytorch-half", 4, "pytorch", 2.0, "deepbench-best", 1.0, False),
    }
    assert {
        (each["accuracy"], each["fastest"], each["reference"]) for each in actual["fastest"]
    } == {
        ("fp32", "pytorch", "deepbench-best"),
        ("half", "pytorch-half", None),
        ("any", "pytorch-half", "deepbench-best"),
    }


def test_where_there_is_only_the_reference_it_competes_with_itself():
    groups = facts(run_report.document(with_reference(*whole("deepbench", "deepbench-best"))))
    assert {(each["fastest"], each["next"], each["reference"]) for each in groups["groups"]} == {
        ("deepbench", "deepbench-best", None)
    }


def test_where_one_alone_can_be_deployed_it_is_the_fastest_of_nothing():
    rows = [*whole("pytorch"), row("deepbench", None, *GRID[0])]
    assert "groups" not in facts(run_report.document(with_reference(*rows)))
    beside = run_report.document(with_reference(*rows, *whole("deepbench")))
    assert facts(beside)["groups"][0]["fastest"] == "pytorch"


def test_a_lead_within_the_noise_is_no_win():
    rows = whole("a", "b", factor=1.01)
    for each in rows:  # the two of a pair differ by two percent
        if each.copy == 2:
            each.latency_s *= 1.02
            each.round_latency_s = [1.02 * t for t in each.round_latency_s]
    groups = facts(run_report.document(run(*rows)))["groups"]
    assert [(each["fastest"], each["wins"], each["beyond_noise"]) for each in groups] == [
        ("a", 0, False)
    ] * 2


def test_the_data_are_the_same_however_much_is_drawn():
    short, long = (run_report.document(everything(), everything=on) for on in (False, True))
    for form in ("json", "csv"):
        assert short.written(form) == long.written(form)
    assert short.written("csv").startswith("implementation,")


def test_a_cell_is_uncertain_if_it_is_known_less_well_than_the_noise_floor():
    """Whatever its run stored: that it missed what was asked for says little."""
    quiet, loud = [0.010, 0.0101] * 5, [0.010, 0.013] * 5
    rows = [row("a", 0.010, hidden=h, copy=c, rounds=quiet) for h in range(1, 9) for c in (1, 2)]
    for each in rows:  # a noise floor of two percent
        if each.copy == 2:
            each.round_latency_s = [1.02 * t for t in each.round_latency_s]
        each.warnings = ["not converged: the interval of the median is wider than was asked"]
    assert facts(run_report.document(run(*rows)))["warnings"] == {}
    document = run_report.document(run(*rows, row("b", 0.0115, rounds=loud)), everything=True)
    assert facts(document)["warnings"] == {"uncertain": 1}
    text = one_line(document)
    assert "1 of 9 cells uncertain: latency known to 13.0% in the median" in text  # no controls
    assert "not converged" not in text


def test_warnings_count_cells_with_a_time_once_and_those_that_change_belief_are_always_drawn():
    rows = [row("a", 1.0, hidden=h) for h in (1, 2, 3)] + [row("a", None, hidden=4)]
    rows[0].warnings = ["slow clock: 1500 MHz", "slow clock: 1600 MHz", "capped: x"]
    rows[1].warnings = rows[3].warnings = ["capped: x"]
    document = run_report.document(run(*rows))
    assert facts(document)["warnings"] == {"slow clock": 1, "capped": 2}
    text = document.written("table")
    assert "1 of 3 cells slow clock" in text
    assert "capped" not in text


def test_a_ratio_stands_beside_an_interval_in_its_own_unit():
    rounds = [0.001 * (1 + 0.01 * (n % 3)) for n in range(10)]
    rows = [row("a", 0.004, *shape, rounds=[4 * each for each in rounds]) for shape in GRID]
    rows += [row("b", 0.001, *shape, rounds=rounds) for shape in GRID]
    text = one_line(compared(*rows))
    assert "b is 4.0x faster than a." in text
    assert "0.25x [0.25, 0.25]" in text


def test_a_comparison_as_json_has_every_shape():
    (shape,) = facts(compared(row("a", 0.002), row("b", 0.004)))["shapes"]
    assert (shape["hidden"], shape["a_s"], shape["ratio"]) == (8, 0.002, 2.0)


def test_names_are_none_where_a_shape_has_one_row_only():
    """Whatever pandas makes of a column of names: None has to stay one."""
    made = run(row("a", 0.002, 8), row("a", 0.002, 16), row("b", 0.003, 16))
    actual = summary.winners(summary.times(made.cells), made.noise)
    assert list(actual["next"]) == [None, "b"]
    assert "-" in run_report.document(made).written("table")


def test_lines_that_were_lost_are_counted(tmp_path):
    folder = written(tmp_path / "r", row("a", 1.0), row("b", 1.0))
    with (folder / "records.jsonl").open("ab") as file:
        file.write(b'{"half": \n' + b"not json\n" + b'{"torn": ')
    actual = results.load(folder)
    assert actual.damaged == 2  # the torn last line may be a write that goes on right now
    assert facts(run_report.document(actual))["damaged_lines"] == 2


@pytest.mark.parametrize("width", [100, None])
def test_every_table_fits_a_page(width):
    names = ["deepbench-persist-dynamic", "deepbench", "deepbench-fp16-best", "tf-mode0-amp"]
    for document in (
        run_report.document(run(*whole(*names))),
        paper_table.document(run(*whole(*names)), [("deepbench", "deepbench-persist-dynamic")]),
        compared(*whole(*names), a=names[0], b=names[2]),
    ):
        assert max(map(len, document.written("table", width).splitlines())) <= 100


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
@pytest.mark.filterwarnings("error")
def test_what_is_missing_breaks_no_table(rows):
    made = run(*rows)
    documents = [run_report.document(made), paper_table.document(made)]
    if {"a", "b"} <= {r.implementation for r in rows}:
        documents.append(compared(*rows))
    for document, form in itertools.product(documents, FORMATS):
        document.written(form)


# --- the paper's table


def pairs(made, *more, **how):
    rows = paper_table.document(made, *more, **how).tables[0].rows
    return {(each["a"], each["b"]): each for each in rows}


def test_the_papers_values_stand_beside_what_its_deepbench_ran_where_a_run_has_it():
    actual = pairs(run(*whole("deepbench", "pytorch")))["deepbench", "pytorch"]
    assert (actual["paper"], actual["mpe"]) == (pytest.approx(-0.53, abs=0.01), -1.0)
    actual = pairs(run(*whole("deepbench", "deepbench-skip", "pytorch")))
    assert actual["deepbench-skip", "pytorch"]["paper"] == pytest.approx(-0.53, abs=0.01)
    assert math.isnan(actual["deepbench", "pytorch"]["paper"])


def test_what_is_left_out_is_text_in_every_format():
    rows = [row("deepbench", 1.0), row("pytorch", None)]
    rows += [row(name, 1.0, hidden=2) for name in ("pytorch", "deepbench")]
    text = paper_table.document(run(*rows)).written("csv")
    assert "pytorch crashed at 1" in text
    assert "not in the run: tf-mode0" in text
    assert "{" not in text


def test_pairs_that_the_user_names_come_after_the_papers_and_say_if_they_are_unequal():
    half = whole("pytorch-amp", precision="amp-fp16")
    actual = pairs(run(*whole("a", "pytorch"), *half), [("a", "pytorch")])
    assert list(actual)[8] == ("a", "pytorch")
    assert actual["a", "pytorch"]["mpe"] == pytest.approx(-1.0)
    assert actual["pytorch", "pytorch-amp"]["unequal"] == ["precision"]


def test_the_mpe_of_some_shapes_is_of_these():
    rows = [row("deepbench", 1.0, hidden=h) for h in (1, 2)]
    rows += [row("pytorch", 2.0 * h, hidden=h) for h in (1, 2)]
    actual = pairs(run(*rows), conditions=["hidden=2"])["deepbench", "pytorch"]
    assert (actual["shapes"], actual["mpe"]) == (1, pytest.approx(-3.0))


# --- comparisons


def test_a_comparison_as_csv_is_one_tidy_table():
    lines = compared(*whole("a", "b")).written("csv").splitlines()
    assert lines[0].startswith("by,at,shapes,mpe,mpe_low,mpe_high,ratio")
    assert [line.split(",")[0] for line in lines[1:]] == [
        "all", "hidden", "hidden", "batch", "batch", "timesteps", "timesteps",
    ]  # fmt: skip


def test_a_part_of_a_run_keeps_the_noise_of_the_whole():
    rows = [
        row("a", 0.01 * (1 + 0.3 * (c == 2)), hidden=h, copy=c) for h in range(1, 9) for c in (1, 2)
    ]
    rows += [row("b", 0.011, hidden=h) for h in range(1, 9)]
    frame = cells(*rows)
    floors = [noise.floors(noise.controls(frame))]
    part = frame[(frame["hidden"] == 1) & (frame["copy"] == 1)]
    actual = comparison.compare(part, "a", "b", floors=floors)
    assert list(actual.shapes["verdict"]) == ["same"]


def test_a_report_of_some_shapes_keeps_the_noise_of_the_whole_run():
    rows = [row(n, t, hidden=h) for h in (1, 2) for n, t in (("a", 1.0), ("b", h))]
    made = run(*rows, row("a", 1.2, hidden=1, copy=2))
    document = run_report.document(made, conditions=["hidden>=2"])
    assert "only hidden>=2: 1 of 2 shapes" in document.written("table")
    actual = facts(document)
    assert actual["noise"][-1]["used"] == pytest.approx(0.2)  # by the pair at the other shape
    assert (actual["where"], [each["hidden"] for each in actual["fastest"]]) == (["hidden>=2"], [2])
    assert [each["ok"] for each in actual["implementations"]] == [1, 1]


def test_a_row_has_a_share_of_wins_only_where_it_competes():
    actual = implementations(row("a", 2.0), row("b", 1.0), row("half", 0.1, precision="fp16"))
    assert [each["fastest_share"] for each in actual.values()] == [0.0, 1.0, None]
    actual = implementations(row("a", 1.0), row("b", 2.0), row("c", None))
    assert [each["fastest_share"] for each in actual.values()] == [1.0, 0.0, None]


def test_what_a_user_gets_unasked_is_known():
    made = run(*whole("a", "b", "c"))
    made.manifest["plan"]["implementations"][1]["default_on"] = ["cpu"]
    made.manifest["plan"]["implementations"][2]["default_on"] = ["cuda"]  # not here
    document = run_report.document(made)
    assert [each["default"] for each in facts(document)["implementations"]] == [False, True, False]
    assert "\nb+ " in document.written("table")


def test_runs_of_before_have_their_marks_of_todays_registry(monkeypatch):
    known = dict(registry.IMPLEMENTATIONS)
    known["pytorch"] = dataclasses.replace(known["pytorch"], default_on=("cpu",))
    known["pytorch@1"] = dataclasses.replace(known["pytorch"], name="pytorch@1", threads=1)
    monkeypatch.setattr(results, "IMPLEMENTATIONS", known)
    made = run(*whole("pytorch", "pytorch@1", "stranger"))
    made.manifest["plan"]["implementations"][1]["threads"] = 1  # somebody asked for that
    assert made.defaults == {"pytorch"}


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, "2 threads, seed 1"),
        ({"state": "carried"}, "seed 1, state carried from call to call"),
        ({"device": "cuda", "inputs": "pinned"}, "seed 1, x and y in pinned host memory"),
        ({"device": "cuda", "inputs": "device"}, "seed 1"),
        ({"device": "cpu", "inputs": "pinned"}, "2 threads, seed 1"),
    ],
)
def test_the_first_line_has_what_is_unusual_in_a_runs_settings(settings, shown):
    made = run(row("a", 0.1), row("b", 0.2))
    made.manifest["plan"]["settings"] |= settings
    assert run_report.heading(made).endswith(shown)
    if "inputs" in settings:
        assert ("host memory" in figures.about(made)) == ("host memory" in shown)


def test_of_carried_state_the_time_of_a_step_is_shown():
    for state, timesteps, shown in (("fixed", 10, 0), ("carried", 10, 1), ("carried", 1, 0)):
        made = run(*(row(n, s, timesteps=timesteps) for n, s in (("a", 0.1), ("b", 0.2))))
        made.manifest["plan"]["settings"]["state"] = state
        (table,) = [t for t in run_report.document(made).tables if t.name == "implementations"]
        actual = [c.show(table.rows[0]) for c in table.columns if c.heading == "per step"]
        assert actual == ["10 ms"] * shown


def test_two_runs_say_how_far_the_rows_drifted_that_both_have_alike(lstm_bench, tmp_path):
    for name, drift in (("monday", 1.0), ("friday", 1.45)):
        rows = [row(n, drift * s) for n, s in (("pytorch", 1.0), ("tf-mode0", 2.0))]
        written(tmp_path / "results" / name, *rows)
    two = ["compare", "pytorch", "pytorch", "--run", "monday", "--run", "friday"]
    actual = json.loads(lstm_bench(*two, "--format", "json").stdout)
    assert (actual["in_turns"], actual["drift"]) == (False, [pytest.approx(1.45)])
    text = " ".join(lstm_bench(*two).stdout.split())
    assert "1 row that both have alike took 1.45x in the second" in text
    assert "lstm-bench grid" not in text


# --- what all commands share


def test_long_text_is_cut_between_words():
    assert clipped("could not create a primitive descriptor", 30) == "could not create a..."
    assert clipped("could not create a", 18) == "could not create a"
    assert clipped("could not create a primitive", 21) == "could not create a..."
    assert clipped("deepbench-persist-static-small", 25) == "deepbench-persist-stat..."


def test_the_gist_of_an_error_is_its_first_line_in_whole_words():
    words = gist(RuntimeError("word " * 100 + "\nand a second line"))
    assert words.endswith("word...")
    assert len(words) <= 300
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


@pytest.mark.parametrize("terminal", [True, False])
def test_what_takes_longer_than_two_seconds_says_so_once_in_a_terminal(
    monkeypatch, capsys, terminal
):
    monkeypatch.setattr("threading.Timer", Clock)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with options.busy("drawing the figures"):
        assert (Clock.last.seconds, Clock.last.state) == (2.0, "running" if terminal else "new")
        if terminal:
            Clock.last.ring()
    assert Clock.last.state == "over" or not terminal
    assert capsys.readouterr() == ("", "drawing the figures ...\n" if terminal else "")


def test_the_scope_is_said_where_people_look(lstm_bench):
    scope = ("inference", "one layer", "one direction", "equal length")
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for text in (readme[:1500], lstm_bench("--help").stdout):
        assert all(word in text.lower() for word in scope)
