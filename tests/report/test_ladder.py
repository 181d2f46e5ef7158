"""`report --ladder`: every row by latency with what it costs, as a table, a section, a figure."""

import json
import math
import re

import pytest
from builders import cell, no_text_meets_another, profile, profiled, row, run, written

from lstm_bench.analysis import results
from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.types import LstmBenchError
from lstm_bench.report import colours, ladder, ladder_figure, run_report

PEAKS = {"host peak": 3 << 20, "device peak": 5 << 20}
MANY = [*IMPLEMENTATIONS, *(f"jax-{n}" for n in range(30))][:40]


@pytest.fixture(autouse=True)
def nothing_is_a_default(monkeypatch):
    """Unless a test says so."""
    monkeypatch.setattr(results, "IMPLEMENTATIONS", {})


def rung(name, latency, **more):
    """A cell that knows all its costs."""
    known = {"memory": PEAKS, "build_s": 2.0, "import_s": 1.5, "path": "fused"}
    return row(name, latency, **{**known, **more})


def run_of(*rows, defaults=(), state="fixed", frameworks=None):
    made = run(*rows)
    for planned in made.manifest["plan"]["implementations"]:
        planned["framework"] = (frameworks or {}).get(planned["name"], "fake")
        planned["default_on"] = ["cpu"] if planned["name"] in defaults else []
    made.manifest["plan"]["settings"]["state"] = state
    return made


def facts(made, **options):
    return json.loads(ladder.document(made, **options).written("json"))


def test_a_ladder_in_full(golden):
    rows = [rung(name, 2e-3, hidden=h) for name in ("pytorch", "noisy") for h in (1, 2, 3, 4)]
    rows += [rung("fast", 1e-3, hidden=h, precision="int8") for h in (1, 2, 3, 4)]
    rows += [rung("x", 5e-3, hidden=h, path="unrolled") for h in (1, 2, 3, 4)]
    rows += [rung("some", 1e-3, hidden=h) for h in (1, 2, 3)]
    rows += [rung("few", 1e-9, hidden=1), row("none", None, hidden=1)]
    for each in rows[4:8]:
        each.latency_s *= 1.01
    made = run_of(*rows, defaults=["pytorch"], frameworks={"pytorch": "pytorch"})
    golden("ladder", ladder.document(made).written("table", 100))


def test_rows_are_sorted_by_latency_and_have_what_each_costs():
    made = run_of(rung("slow", 2e-3), rung("fast", 1e-3, precision="int8"), rung("mid", 1.5e-3))
    actual = facts(made)
    assert [each["implementation"] for each in actual["ladder"]] == ["fast", "mid", "slow"]
    first = actual["ladder"][0]
    assert (first["latency_s"], first["accuracy"]) == (1e-3, "int8")
    assert first["ratio"] == pytest.approx(0.5)
    assert (first["host_peak"], first["import_s"], first["build_s"]) == (3 << 20, 1.5, 2.0)


def headings(made):
    return [column.heading for column in ladder.document(made).tables[0].columns]


def test_the_passes_of_a_training_step_stand_apart_where_a_row_knows_them():
    made = run_of(rung("whole", 3.0), rung("parted", 2.0, forward_s=0.5, backward_s=1.25))
    for report in (ladder.document(made), run_report.document(made)):
        shown = report.written("table")
        assert re.search(r"parted .* 500 ms +1.2\d? s", shown)
        assert re.search(r"whole .* - +- ", shown)
    plain = run_of(rung("a", 1.0), rung("b", 2.0))
    assert "backward" not in ladder.document(plain).written("table")
    assert "backward" not in run_report.document(plain).written("table")


def test_costs_that_no_row_knows_have_no_column():
    made = run_of(row("a", 1e-3), row("b", 2e-3))
    assert headings(made) == ["implementation", "class", "latency", "vs a", "error", "1st call"]


@pytest.mark.parametrize(
    ("rows", "defaults", "base"),
    [
        (("other", "pytorch", "pytorch-tf32"), ("other", "pytorch-tf32"), "pytorch-tf32"),
        (("other", "pytorch-half", "pytorch"), (), "pytorch"),
        (("first", "other"), ("other",), "other"),
        (("first", "other"), (), "first"),
    ],
)
def test_all_are_compared_with_what_most_users_run(rows, defaults, base):
    frameworks = {name: "pytorch" for name in rows if name.startswith("pytorch")}
    made = run_of(*(rung(n, 1e-3) for n in rows), defaults=defaults, frameworks=frameworks)
    assert facts(made)["base"] == base
    assert f"vs {base}" in headings(made)


def test_a_slower_row_is_named_with_the_path_that_it_took():
    rows = [rung("pytorch", 1e-3), rung("x", 5e-3, path="unrolled"), rung("fast", 0.5e-3)]
    assert facts(run_of(*rows))["slower"] == {"x": "5.0x: unrolled"}


def test_within_noise_nothing_is_slower():
    pair = [rung("pytorch", 1e-3), rung("pytorch", 1.2e-3, copy=2), rung("x", 1.1e-3)]
    actual = facts(run_of(*pair))
    assert (actual["slower"], actual["unclear"]) == ({}, {"x": "1.10x"})


def test_a_profile_says_why_a_row_is_slower(tmp_path):
    times = {"pytorch": (1e-3, 4), "x": (9e-3, 90)}
    rows = [
        (cell(name, latency=s, round_latency_s=[s] * 10), profile(kernels=count))
        for name, (s, count) in times.items()
    ]
    made = profiled(tmp_path / "run", *rows)
    assert "90 kernels a call against 4" in facts(made)["slower"]["x"]
    assert "grid GRID --profile" not in ladder.document(made).written("table")


def test_rows_that_lack_shapes_are_listed_with_those_they_lack():
    rows = [rung(name, 1e-3, hidden=h) for name in ("a", "b") for h in (1, 2, 3, 4)]
    rows += [rung("some", 1e-3, hidden=h) for h in (1, 2, 3)]
    made = run_of(*rows, rung("few", 1e-9, hidden=1), row("none", None, hidden=1))
    actual = facts(made)
    assert [each["implementation"] for each in actual["ladder"]] == ["a", "b", "some"]
    assert actual["lacking"] == {
        "some": "has no time at hidden 4 (1 of 4 shapes)",
        "few": "has no time at hidden 2, 3, 4 (3 of 4 shapes), 0.00x where it can",
        "none": "has no time at 4 of 4 shapes",
    }
    chosen = facts(made, conditions=["hidden=1"])
    assert chosen["ladder"][0]["implementation"] == "few"


def test_without_times_there_is_no_ladder():
    made = run_of(row("a", None))
    with pytest.raises(LstmBenchError, match="made-up has no times there"):
        ladder.document(made)
    assert ladder_figure.drawn(made) is None


def test_of_carried_state_the_time_of_a_step_is_shown():
    rows = [rung("a", 1e-3, timesteps=10), rung("b", 3e-3, timesteps=10)]
    table = ladder.document(run_of(*rows, state="carried")).tables[0]
    assert (table.columns[2].heading, table.columns[2].show(table.rows[0])) == (
        "per step",
        "100 us",
    )


def test_it_fits_a_page_with_the_longest_names():
    rows = [rung(name, 1.23e-3, precision="int8", import_s=0.123) for name in MANY]
    for state in ("fixed", "carried"):
        text = ladder.document(run_of(*rows, defaults=MANY, state=state)).written("table", 100)
        assert max(map(len, text.splitlines())) <= 100


def test_the_figure_has_a_point_for_each_row_in_its_style():
    rows = [rung("pytorch", 1e-3), rung("pytorch-half", 0.5e-3, precision="fp16")]
    figure = ladder_figure.drawn(run_of(*rows, rung("jax-scan", 2e-3), row("blank", 3e-3)))
    points = [(line.get_marker(), line.get_color()) for line in figure.axes[0].lines]
    styles = map(colours.style_of, ("jax-scan", "pytorch", "pytorch-half"))
    assert points == [(style.marker, style.colour) for style in styles]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["jax-scan, fp32", "pytorch, fp32", "pytorch-half, half"]
    assert any("Not known of blank." in text.get_text() for text in figure.texts)


def test_memory_of_the_host_is_drawn_where_there_is_no_gpu():
    rows = [rung("a", 1e-3, memory={"host peak": 0}), rung("b", 2e-3, memory={"host peak": 9**7})]
    (ax,) = ladder_figure.drawn(run_of(*rows)).axes
    assert ax.get_xlabel() == "peak memory on the host"


def test_one_row_is_no_ladder_to_draw():
    assert ladder_figure.drawn(run_of(rung("a", 1e-3))) is None
    assert ladder_figure.drawn(run_of(rung("a", 1e-3), rung("b", 1e-3)))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("count", [2, 40])
def test_no_text_of_the_figure_meets_another_or_leaves_it(count):
    peaks = [{"device peak": int(1e7 * 1.2**n)} for n in range(count)]
    rows = [rung(f"{MANY[n]}-long" * 4, 1e-4 * 1.3**n, memory=peaks[n]) for n in range(count)]
    figure = ladder_figure.drawn(run_of(*rows, defaults=[rows[0].implementation]))
    no_text_meets_another(figure)


def test_rows_without_an_entry_get_a_look_that_lasts_and_can_be_read():
    for name in [*MANY, "stranger", "keras-nobody", "openvino"]:
        look = colours.style_of(name)
        assert look == colours.style_of(name)
    assert colours.style_of("openvino").dash == ()


def test_a_run_on_disk_tells_its_costs(tmp_path):
    made = results.load(written(tmp_path / "r", rung("a", 1e-3)))
    (cell,) = made.cells.to_dict("records")
    assert (cell["build_s"], cell["import_s"], cell["device_peak"]) == (2.0, 1.5, 5 << 20)
    assert not math.isnan(cell["step_s"])
