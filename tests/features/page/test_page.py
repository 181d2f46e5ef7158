"""The page as a file: whole, closed to the outside, the same every time, whatever the run holds."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grids import GRID, cell, grid, run_of, shipped_page
from lstm_bench import features
from lstm_bench.analysis import comparison, noise, results
from lstm_bench.features.page import page, sections
from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.median import median_interval
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import Check, Record, Shape
from lstm_bench.report import colours, run_report
from lstm_bench.report.document import Document, Table, number
from lstm_bench.report.document import text as text_column
from lstm_bench.runs import store

HOSTILE = (
    "</script><script>window.hit=1</script><img src=x onerror=hit=1>\"'&amp;\u2028\u2029{{script}}"
)
TIMES = {"deepbench": 1, "pytorch": 1.5, "pytorch-amp": 0.7}


@pytest.fixture(scope="module")
def run():
    rows = grid(TIMES)
    rows.append(cell("tf-mode1", status="oom", reason="no memory"))
    return run_of(rows)


@pytest.fixture(scope="module")
def text(run):
    return page.html(run)


def data_of(text):
    """The page's embedded data, as a browser reads them."""
    (actual,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(actual)


def assets():
    """The scripts, the style and the template, those of features among them."""
    folder = Path(page.__file__).parents[1]
    return {
        path.name: path.read_text(encoding="utf-8")
        for ending in ("js", "css", "html")
        for path in folder.glob(f"*/*.{ending}")
    }


def test_only_the_pages_own_script_and_style_may_act(text):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data: blob:"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


def test_the_page_loads_nothing(text):
    without_data = re.sub(r'(?s)id="data">.*?</script>', "", text)
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", without_data))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"\bsrc=|@import|url\(|<link(?![^>]*href=\"data:)", without_data)


def test_sources_set_no_style_and_never_turn_text_into_markup():
    assert not re.search(r"<[^>]*\s(style|on\w+)=", assets()["page.html"])
    unsafe = r"(inner|outer|insertAdjacent)HTML|document\.write|eval\(|Function\("
    for name, content in assets().items():
        assert not re.search(unsafe, content), name
        assert len(content.splitlines()) < 600, name


def document(heading, *rows):
    """A document with a feature's additions: a text, and a number to sort by."""
    columns = [text_column(heading, "name"), number("n", "n")]
    table = Table("more", [{"name": name, "n": n} for name, n in rows], columns, heading)
    return Document(["the run", table, heading])


def adding(monkeypatch, *documents, data=()):
    """The page gets these documents from features, and this data."""
    doors = {"section": [lambda run, made=made: made for made in documents], "page_data": data}
    monkeypatch.setattr(features, "behind", lambda door: doors.get(door, []))


def test_no_text_of_a_run_can_end_the_data(monkeypatch):
    adding(monkeypatch, document(HOSTILE, (HOSTILE, 1)))
    rows = [cell(HOSTILE, 1e-3, warnings=[HOSTILE], path=HOSTILE)]
    rows.append(cell("b", status=HOSTILE, reason=HOSTILE))
    machine = {"cpu": HOSTILE, HOSTILE: HOSTILE}
    run = run_of(rows, name=HOSTILE, machine=machine, device="cpu")
    text = page.html(run)
    assert text.count("<script") == 2
    assert text.count("</script>") == 2
    assert "<img" not in text
    assert not {"\u2028", "\u2029"} & set(re.search(r'(?s)id="data">(.*?)</script>', text)[1])
    data = data_of(text)
    assert data["name"] == data["implementations"][0]["name"] == HOSTILE
    assert data["manifest"]["machine"]["cpu"] == HOSTILE
    assert data["strings"].count(HOSTILE) == 1
    assert data["sections"][-1]["rows"][0][1] == ["1", 1]


def test_text_that_looks_like_a_placeholder_stays_text():
    text = page.html(run_of([cell("{{data}}", 1e-3)], name="{{script}}{{nothing}}"))
    assert "<h1>{{script}}{{nothing}}</h1>" in text


def test_half_a_surrogate_pair_breaks_nothing():
    run = run_of([cell("a", 1e-3)], name="x\ud800", machine={"cpu": "\udfff"}, device="cpu")
    text = page.html(run)
    assert data_of(text)["manifest"]["machine"]["cpu"] == "\udfff"
    text.encode("utf-8")


def test_the_same_run_gives_the_same_page_in_any_process():
    script = (
        "from grids import grid, run_of; import sys;"
        "from lstm_bench.features.page import page;"
        f"rows = grid({TIMES});"
        "rows[0].warnings = ['b: x', 'a: y', 'c: z'];"
        "sys.stdout.write(page.html(run_of(rows)))"
    )
    path = os.pathsep.join(sys.path)
    made = [
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            check=True,
        ).stdout
        for seed in "12"
    ]
    assert made[0] == made[1]
    assert made[0]


def test_every_cell_is_there_with_its_numbers(run, text):
    data = data_of(text)
    cells = data["cells"]
    assert {len(column) for column in cells.values()} == {len(run.cells)}
    for row, line in enumerate(run.cells.to_dict("records")):
        assert (
            data["implementations"][cells["implementation"][row]]["name"] == line["implementation"]
        )
        shape = cells["shape"][row]
        assert [data["shapes"][axis][shape] for axis in SHAPE] == [line[axis] for axis in SHAPE]
        assert data["strings"][cells["status"][row]] == line["status"]
        if line["status"] == "ok":
            assert cells["latency_s"][row] == pytest.approx(line["latency_s"], rel=1e-6)
        else:
            assert cells["latency_s"][row] is None


def test_a_metric_that_was_not_measured_is_not_offered(text):
    assert data_of(text)["metrics"] == ["latency", "throughput"]
    rows = grid(TIMES)
    for row in rows:
        row.device_s, row.round_device_s = row.latency_s / 2, [row.latency_s / 2] * 10
    assert data_of(page.html(run_of(rows)))["metrics"] == ["latency", "throughput", "device"]


def test_every_ordered_pair_has_the_statistics_of_compare(run, text):
    data = data_of(text)
    names = [row["name"] for row in data["implementations"]]
    actual = {(names[p["a"]], names[p["b"]]): p for p in data["pairs"]}
    assert set(actual) == {(a, b) for a in TIMES for b in TIMES if a != b}
    for (a, b), pair in actual.items():
        both = comparison.compare(run.cells, a, b, across=None)
        groups = [both.group(), *(g for axis in SHAPE[:3] for g in both.along(axis))]
        assert [(g[0], g[1], g[2]) for g in pair["groups"]] == [
            (g.by, g.label, g.shapes) for g in groups
        ]
        for mine, theirs in zip(pair["groups"], groups, strict=True):
            for numbers, statistic in ((mine[3], theirs.ratio), (mine[4], theirs.mpe)):
                expected = (statistic.value, statistic.low, statistic.high)
                assert numbers == pytest.approx(expected, rel=1e-3, abs=1e-9)
            assert mine[5] == list(theirs.verdicts.values())
            assert mine[6] == comparison.clear(theirs, float(both.shapes["floor"].median()))
        assert pair["ratio"] == pytest.approx(list(both.shapes["ratio"]), rel=1e-3)
        words_of = {"f": "faster", "s": "same", "u": "unsure", "l": "slower"}
        assert [words_of[letter] for letter in pair["verdict"]] == list(both.shapes["verdict"])
        assert pair["differs"] == list(both.differs)


def test_of_a_large_run_only_pairs_with_the_baseline_are_compared(run, monkeypatch):
    monkeypatch.setattr(page, "MOST_GROUPED", 1)
    data = data_of(page.html(run))
    by_size = {(p["a"], p["b"]): len(p["groups"]) > 1 for p in data["pairs"]}
    assert by_size == {(a, b): data["baseline"] in (a, b) for a, b in by_size}
    monkeypatch.setattr(page, "MOST_SHAPES", len(GRID) - 1)
    data = data_of(page.html(run))
    assert [pair["a"] for pair in data["pairs"]] == [data["baseline"]] * (len(TIMES) - 1)
    assert all(len(pair["groups"]) > 1 for pair in data["pairs"])


def test_winners_are_told_by_class_of_accuracy_and_as_the_report_has_them(text, run):
    data = data_of(text)
    classes = [(won["metric"], won["accuracy"]) for won in data["winners"]]
    words = ("fp32", "half precision", "any precision")
    assert classes == [(m, p) for m in ("latency", "throughput") for p in words]
    names = [row["name"] for row in data["implementations"]]
    assert {names[i] for i in data["winners"][0]["fastest"]} == {"pytorch"}  # can be deployed
    assert {names[i] for i in data["winners"][0]["reference"]} == {"deepbench"}
    assert {names[i] for i in data["winners"][1]["fastest"]} == {"pytorch-amp"}
    table = json.loads(run_report.document(run).written("json"))["implementations"]
    wins = {row["implementation"]: row["fastest_shapes"] for row in table}
    assert {row["implementation"]: row["fastest"] for row in data["overview"]["rows"]} == wins


def test_the_first_screen_is_what_to_run_with_plain_pytorch_in_the_picture(text):
    data = data_of(text)
    names = [row["name"] for row in data["implementations"]]
    roles = ["you run this", "less exact", "C++ reference"]
    for card in data["lead"]["cards"]:
        bars = {names[bar["implementation"]]: bar["role"] for bar in card}
        assert bars == dict(zip(("pytorch", "pytorch-amp", "deepbench"), roles, strict=True))
    order = ["What to run instead of plain PyTorch (pytorch)", "You run plain PyTorch at"]
    order += ['<div id="advice">', "<details", "pytorch is 1.50x slower than", "Noise floor"]
    assert sorted(order, key=text.index) == order


@pytest.mark.xdist_group("browser")  # whose tests need the same page
def test_the_tables_of_a_page_are_over_the_same_shapes():
    data = data_of(shipped_page("h200-ladder")[1])
    names = [row["name"] for row in data["implementations"]]
    drawn = {names[i] for i in data["drawn"]}  # until more are chosen
    assert {"pytorch-tf32", "pytorch-tf32-persistent", "deepbench"} <= drawn
    assert len(drawn) == 8 < len(names)
    ladder, rows = data["sections"][0], data["overview"]["rows"]
    assert "Medians over the 24 shapes" in ladder["notes"][0]
    assert data["overview"]["over"].startswith("the 24 shapes")
    heads = [heading for heading, _ in ladder["columns"]]
    place, error = heads.index("latency"), heads.index("error")
    shown = {row[0].rstrip("+"): row[place][1] for row in ladder["rows"]}
    latency = {row["implementation"]: row["latency_s"] for row in rows}
    assert {name: latency[name] for name in shown} == pytest.approx(shown)
    assert ladder["rows"][0][error] == ["2e-03", pytest.approx(2e-3, rel=0.5)]
    (compiled,) = [row for row in rows if row["implementation"] == "pytorch-compile"]
    assert compiled["shapes"] == 12  # which its line says


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("name", ["h200-ladder", "cpu-x86"])
def test_noise_floors_are_those_that_verdicts_use(name):
    run, text = shipped_page(name)
    shown = data_of(text)["noise"]["latency"]
    assert {line["implementation"] for line in shown} == {None, *run.noise.own}
    for line in shown:
        names = [line["implementation"]] if line["implementation"] else []
        (expected,) = noise.floor_at(run.noise, [line["from"] + 1e-6], names)
        assert line["floor"] == pytest.approx(expected)


def test_features_add_tables_data_and_scripts_and_any_may_be_gone(run, monkeypatch):
    data = [lambda run: ("more", {"of": run.name}, "let more;"), lambda run: None]
    adding(monkeypatch, document("gemm", ("a", 0.5)), data=data)
    text = page.html(run)
    shown = data_of(text)
    assert shown["sections"][1:] == [
        {
            "title": "Gemm",
            "notes": ["Gemm"],
            "columns": [["gemm", False], ["n", True]],
            "rows": [["a", ["0.5", 0.5]]],
        }
    ]
    assert shown["more"] == {"of": run.name}
    assert "let more;" in re.search(r"(?s)<script>(.*)</script>", text)[1]
    adding(monkeypatch)
    assert [section["title"] for section in data_of(page.html(run))["sections"]] == ["Ladder"]


def test_tables_of_one_name_are_one_with_the_texts_around_them():
    first, other = (document("doubt", (name, n)) for name, n in (("a", 1), ("b", None)))
    both = Document(["the run", "all shapes", *first.parts[1:2], *other.parts[1:]])
    (section,) = sections.sections_of(both)
    assert section["notes"] == ["All shapes", "Doubt"]
    assert section["columns"] == [["of", False], ["doubt", False], ["n", True]]
    assert section["rows"] == [["doubt", "a", ["1", 1]], ["doubt", "b", ["-", None]]]


def test_what_is_not_a_finite_number_becomes_null():
    rows = [cell("a", 1e-3, check=Check(float("inf"), 0.0, 5e-5, True))]
    run = run_of(rows, machine={"cpu": "x", "load": float("nan")})
    data = data_of(page.html(run))
    assert data["cells"]["max_abs_error"] == [None]
    assert data["manifest"]["machine"]["load"] is None


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [cell("pytorch", 1e-3)],
        [cell("pytorch", 1e-3, rounds=1), cell("tf-mode0", 2e-3, rounds=1)],
        [cell("pytorch", status="crashed", reason="boom"), cell("tf-mode0", status="missing")],
        [cell("pytorch", 1e-3), cell("tf-mode0", status="oom")],
        [cell("pytorch", 1e-3, (8, 1, 1)), cell("tf-mode0", 1e-3, (9, 1, 1))],
        [cell("pytorch", 1e-3), cell("pytorch", 1e-3, copy=2)],
        [cell("deepbench-skip", 1e-3), cell("deepbench-skip", 2e-3, (9, 1, 1))],
        [cell("__proto__", 1e-3), cell("constructor", 2e-3), cell("", 3e-3)],
        [cell("a", 1e-3, path="", precision=""), cell("b", 1e-3, precision="")],
    ],
    ids=[
        *("empty", "one", "one-round", "failed", "half-failed"),
        *("apart", "control", "less-work", "names", "bare"),
    ],
)
def test_any_run_has_a_page(rows):
    text = page.html(run_of(rows, shapes=None if rows else [(8, 1, 10, 8)]))
    data = data_of(text)
    assert len(data["cells"]["implementation"]) == len(rows)
    assert "</html>" in text


def test_an_implementation_that_is_not_in_the_plan_is_shown_all_the_same():
    run = run_of([cell("pytorch", 1e-3)])
    cells = results.frame([cell("pytorch", 1e-3), cell("stranger", 2e-3)], {})
    data = data_of(page.html(results.Run("r", run.manifest, cells)))
    assert [row["name"] for row in data["implementations"]] == ["pytorch", "stranger"]


def test_colours_are_those_of_the_figures_and_legible_on_both_backgrounds(text):
    for row in data_of(text)["implementations"]:
        look = colours.style_of(row["name"])
        assert (row["light"][0], row["marker"], tuple(row["dash"])) == (
            look.colour,
            look.marker,
            look.dash,
        )
    for look in colours.STYLES.values():
        assert colours.contrast(colours.on_dark(look.colour), colours.DARK) >= 3
        for ink, background in (
            (colours.ink(c), c) for c in (look.colour, colours.on_dark(look.colour))
        ):
            assert colours.contrast(ink, background) >= 4.5
    dark = {name: colours.on_dark(look.colour) for name, look in colours.STYLES.items()}
    greys = [dark[n] for n in ("deepbench", "deepbench-fp16", "deepbench-graph", "deepbench-skip")]
    assert len(set(greys)) == 4


def test_every_row_has_a_colour_of_its_own_by_the_contrast_of_wcag():
    seen = [colours.style_of(name).colour for name in IMPLEMENTATIONS if name != "fake"]
    assert len(set(seen)) == len(seen)
    assert colours.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert colours.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    pages = re.findall(r"--page: (#\w+);", assets()["page.css"])
    assert pages == [colours.LIGHT, colours.DARK]


def test_the_interval_of_a_cell_is_the_one_of_the_driver():
    rng = np.random.default_rng(1)
    rounds = [list(1 + rng.random(n)) for n in (1, 3, 5, 6, 10, 30)] + [[]]
    rows = [cell("a", 1.0, (n + 1, 1, 1), round_latency_s=r) for n, r in enumerate(rounds)]
    cells = data_of(page.html(run_of(rows)))["cells"]
    for place, times in enumerate(rounds):
        low, high = median_interval(times) if times else (None, None)
        assert cells["latency_low"][place] == (low and pytest.approx(low, rel=1e-3))
        assert cells["latency_high"][place] == (high and pytest.approx(high, rel=1e-3))


def test_memory_is_that_of_the_largest_shape_with_every_kind_that_some_row_has(monkeypatch):
    def record(name, hidden, **memory):
        memory = {kind.replace("_", " "): size for kind, size in memory.items()}
        return Record(name, Shape(hidden, 1, 1, hidden), 1, 1, "ok", memory=memory)

    def shown(*records):
        monkeypatch.setattr(store, "read_records", lambda folder: dict(enumerate(records)))
        made = sections.memory(results.Run("r", {}, None, folder=Path()))
        rows = [[c.show(row) for c in table.columns] for table in made.tables for row in table.rows]
        return rows, made.written("table")

    small, large = record("a", 8, weights=2**20, workspace=2**21), record("a", 16, weights=2**22)
    rows, text = shown(small, large, record("b", 8))
    assert rows == [["a", "16,1,1", "4 MiB", "-", "-", "-"]]
    assert "peak" not in text
    rows, text = shown(record("a", 8, host_peak=2**20), record("b", 8, device_by_NVML=2**30))
    assert [row[6:] for row in rows] == [["-", "1 MiB"], ["1 GiB", "-"]]
    assert "host peak: the most" in text
    assert "process by NVML" not in text
    assert shown(record("b", 8)) == ([], "")


def test_the_board_stands_in_the_manifest_and_not_among_the_facts():
    assert page._flat({"name": "A GPU", "uuid": "GPU-1", "driver": "1"}) == "A GPU, driver 1"


def test_a_page_of_both_passes_says_so_and_tells_their_shapes_apart():
    rows = [*grid(TIMES), *grid(TIMES)]
    for row in rows[len(rows) // 2 :]:
        row.shape = replace(row.shape, training=True)
    made = page.html(run_of(rows))
    assert "Inference and training, one LSTM layer" in made
    trained = data_of(made)["shapes"]["training"]
    assert sorted(trained) == [False] * (len(trained) // 2) + [True] * (len(trained) // 2)
    assert "Training, one LSTM layer" in page.html(run_of(rows[len(rows) // 2 :]))
