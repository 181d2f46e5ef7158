"""The page in a real browser: nothing is fetched, everything can be used, nothing is injected."""

import csv
import dataclasses
import io
import itertools
import json
import math
import os
import random
import re
import shutil
from pathlib import Path

import pytest

from grids import cell, grid, run_of, shipped_page
from lstm_bench.analysis import summary
from lstm_bench.analysis.results import load
from lstm_bench.features.advise import advice, report, sources
from lstm_bench.features.advise import estimate as estimates
from lstm_bench.features.advise.on_page import on_page
from lstm_bench.features.page import page, sections
from lstm_bench.model.shape_filter import parsed
from lstm_bench.model.types import Shape, plain
from lstm_bench.report.document import Document, Table, number, text

REQUIRED = "REQUIRE_BROWSER" in os.environ  # CI: a browser that is missing is a failure there
if not REQUIRED:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright import sync_api  # noqa: E402

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
if not CHROMIUM and not REQUIRED:
    pytest.skip("no Chromium on the PATH or in $CHROMIUM", allow_module_level=True)

pytestmark = pytest.mark.xdist_group("browser")

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
ROOT = Path(__file__).parents[3]
SHAPES = [(h, b, t) for h in (8, 16) for b in (1, 16, 64) for t in (10, 20)]
TIMES = {
    "deepbench": 1,
    "deepbench-skip": 0.5,
    "deepbench-best": lambda shape: 0.25 if shape[1] == 1 else 1.2,
    "pytorch": 1.5,
    "pytorch-amp": 0.7,
}
AMP = "pytorch-amp"
TOTAL = len(SHAPES) * (len(TIMES) + 1) + 2  # controls, and two cells that failed
HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1>\"'&\u2028=1"

#: Every piece of text that can be seen, with its contrast to what is behind it.
CONTRASTS = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const level = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
    if (node.closest("script, .tip")) continue;
    const style = getComputedStyle(node);
    const drawn = node.namespaceURI.endsWith("svg");
    let back = behind(node);
    if (drawn && node.classList.contains("on") && !node.classList.contains("close")) {
      back = parse(getComputedStyle(node.parentNode.querySelector(".tile")).fill);
    }
    const levels = [parse(drawn ? style.fill : style.color), back].map(level).sort((a, b) => b - a);
    found.push([(levels[0] + 0.05) / (levels[1] + 0.05), walker.currentNode.data.trim()]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser.new_context(has_touch=True)
        browser.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    rows = grid(TIMES, shapes=SHAPES)
    rows += [cell("tf-mode1", status="oom", reason="no memory left", shape=s) for s in SHAPES[:2]]
    rows[0].warnings = ["capped: 3 rounds in 30 s"]
    path = tmp_path_factory.mktemp("page") / "page.html"
    run = run_of(rows, name="a run")
    path.write_text(page.html(run), encoding="utf-8")
    return path


@pytest.fixture
def open_page(browser, file):
    """Opens the page; at the end it must not have complained or asked for anything."""
    tabs, troubles, requests = [], [], []

    def go(path=file, width=1280, scheme="light"):
        tab = browser.new_page()
        tabs.append(tab)
        tab.set_default_timeout(5000)
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(color_scheme=scheme)
        tab.on("console", lambda m: troubles.append(m.text) if m.type != "log" else None)
        tab.on("pageerror", lambda error: troubles.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(path.as_uri())
        tab.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
        return tab

    yield go
    for tab in tabs:
        tab.close()
    assert troubles == []
    assert [r for r in requests if not r.startswith(("file:", "data:", "blob:"))] == []


OPEN_ALL = "document.querySelectorAll('details').forEach((node) => { node.open = true; })"


def test_an_input_of_its_own_size_stands_in_panels_and_tables(open_page, tmp_path):
    rows = grid({"deepbench": 1, "pytorch": 1.5}, shapes=SHAPES[:4])
    for row in rows:
        width = 64 if row.shape.timesteps == 10 else row.shape.hidden
        row.shape = dataclasses.replace(row.shape, input_size=width)
    path = tmp_path / "page.html"
    path.write_text(page.html(run_of(rows)), encoding="utf-8")
    tab = open_page(path)
    assert texts(tab, "#winners h4") == ["10 timesteps, input size 64", "20 timesteps"]
    tab.evaluate(OPEN_ALL)
    heads = [texts(table, "thead th") for table in tab.locator("table").all()]
    shapes = [line for line in heads if "timesteps" in " ".join(line) and "B is" in " ".join(line)]
    assert all("input" in " ".join(line) for line in shapes)
    assert shapes


def test_training_steps_have_panels_a_column_and_names_of_their_own(open_page, tmp_path):
    rows = [*grid(TIMES, shapes=SHAPES[:4]), *grid(TIMES, shapes=SHAPES[:4])]
    for row in rows[len(rows) // 2 :]:
        row.shape = dataclasses.replace(row.shape, training=True)
    path = tmp_path / "page.html"
    path.write_text(page.html(run_of(rows)), encoding="utf-8")
    tab = open_page(path)
    panels = ["10 timesteps", "10 timesteps, training", "20 timesteps", "20 timesteps, training"]
    assert texts(tab, "#winners h4") == panels
    tab.evaluate(OPEN_ALL)
    passes = column(tab, "pass")
    assert set(passes) == {"inference", "training"}
    tab.locator("#cell-table input[type=search]").fill("8,1,10 training")
    assert set(column(tab, "pass")) == {"training"}


def texts(tab, selector):
    return tab.locator(selector).all_inner_texts()


def column(tab, name, table="#cell-table"):
    heads = [text.strip() for text in texts(tab, f"{table} thead th")]
    return texts(tab, f"{table} tbody tr > :nth-child({heads.index(name) + 1})")


def choose(tab, label, value, within):
    tab.locator(within).get_by_label(label, exact=True).select_option(value)


def seconds(text):
    number, unit = text.split()
    return float(number) * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[unit]


def test_the_page_opens_from_disk_and_asks_for_nothing(open_page):
    tab = open_page()
    assert tab.title() == "a run - lstm-bench"
    assert tab.locator("#lines .series").count() == len(TIMES)
    assert tab.locator("#winners .tile").count() == len(SHAPES)


def test_its_own_policy_stops_a_script_that_is_not_its_own(browser, file, tmp_path):
    other = tmp_path / "other.html"
    text = file.read_text(encoding="utf-8")
    assert "<h1>" in text
    other.write_text(text.replace("<h1>", "<h1><script>window.hit = 1</script>"), encoding="utf-8")
    tab = browser.new_page()
    tab.goto(other.as_uri())
    assert tab.evaluate("window.hit") is None
    tab.close()


def test_every_column_sorts_and_what_is_missing_comes_last(open_page):
    tab = open_page()
    choose(tab, "Hidden size", "8", "#cell-table")
    clicked = tab.evaluate(
        """() => [...document.querySelectorAll("#cell-table thead button")].map((button) => {
          button.click();
          const rows = document.querySelectorAll("#cell-table tbody tr").length;
          return button.parentElement.ariaSort === "ascending" && rows > 1;
        })"""
    )
    assert len(clicked) >= 12
    assert all(clicked)
    tab.locator("#cell-table thead button", has_text="error").click()
    known = [text != "-" for text in column(tab, "error")]
    assert known == sorted(known, reverse=True)
    assert not all(known)


def test_filters_narrow_the_table_together(open_page):
    tab = open_page()
    choose(tab, "Implementation", "pytorch", "#cell-table")
    assert set(column(tab, "implementation")) == {"pytorch"}
    choose(tab, "Batch size", "16", "#cell-table")
    assert set(column(tab, "batch")) == {"16"}
    assert texts(tab, "#cell-table .pager .grow") == ["4 cells"]
    choose(tab, "Batch size", "", "#cell-table")
    choose(tab, "Implementation", "deepbench", "#cell-table")
    assert "deepbench #2" in column(tab, "implementation")
    tab.get_by_label("A/A controls").uncheck()
    assert set(column(tab, "implementation")) == {"deepbench"}
    choose(tab, "Implementation", "", "#cell-table")
    choose(tab, "Status", "oom", "#cell-table")
    assert set(column(tab, "implementation")) == {"tf-mode1"}


def test_free_text_finds_names_reasons_and_warnings(open_page):
    tab = open_page()
    search = tab.get_by_label("Text", exact=True)
    for words, name in (("MEMORY left", "tf-mode1"), ("capped", "deepbench"), ("amp", AMP)):
        search.fill(words)
        assert set(column(tab, "implementation")) == {name}
    search.fill("nothing has this")
    assert texts(tab, "#cell-table tbody tr") == ["Nothing to show."]


def test_a_page_of_the_table_holds_fifty_rows_and_can_be_turned(open_page):
    tab = open_page()
    following = tab.locator("#cell-table").get_by_role("button", name="Next")
    assert tab.locator("#cell-table tbody tr").count() == 50
    following.click()
    assert texts(tab, "#cell-table .pager .grow") == [f"51 to {TOTAL} of {TOTAL} cells"]
    assert following.is_disabled()


def test_the_pair_picker_shows_what_compare_found(open_page):
    tab = open_page()
    choose(tab, "A, the baseline", "deepbench", "#picker")
    choose(tab, "B, compared with A", "pytorch", "#picker")
    assert "pytorch is 1.50x slower than deepbench" in tab.inner_text(".headline")
    assert "slower at 12" in tab.inner_text("#picker .counts")
    groups = column(tab, "shapes with", "#picker div:has(> .scroll)")[:1]
    assert groups == ["all"]
    assert tab.locator("#picker figure .point").count() == len(SHAPES)
    tab.get_by_role("button", name="Swap A and B").click()
    assert "deepbench is 1.50x faster than pytorch" in tab.inner_text(".headline")


def test_a_pair_that_is_not_alike_carries_a_warning(open_page):
    tab = open_page()
    choose(tab, "B, compared with A", AMP, "#picker")
    assert "differ in precision" in tab.inner_text("#picker .warning")
    choose(tab, "B, compared with A", "deepbench-skip *", "#picker")
    assert "differ in what they compute" in tab.inner_text("#picker .warning")
    assert "do not do the same work" in tab.inner_text(".headline")
    choose(tab, "B, compared with A", "deepbench", "#picker")
    assert tab.inner_text(".headline") == "A and B are the same; choose two."


def test_the_figure_follows_its_controls(open_page):
    tab = open_page()
    assert tab.inner_text("#lines h3") == "Latency by batch size"
    assert tab.locator("#lines .point").count() == 3 * len(TIMES)
    label = tab.locator("#lines .point").first.get_attribute("aria-label")
    # deepbench: 2 us x hidden x timesteps, over hidden 8 and 16 and timesteps 10 and 20
    assert label.startswith("deepbench, batch size 1: 320 ms, 95% interval")
    assert label.endswith("median over 4 shapes")
    choose(tab, "Along", "hidden size", "#lines")
    choose(tab, "Time", "throughput (queued)", "#lines")
    assert tab.inner_text("#lines h3") == "Throughput by hidden size"
    assert tab.locator("#lines .point").count() == 2 * len(TIMES)
    choose(tab, "Batch size", "64", "#lines")
    assert "median over 2 shapes" in tab.locator("#lines .point").first.get_attribute("aria-label")


def test_hover_focus_and_tap_show_what_a_point_is(open_page):
    tab = open_page()
    tip = tab.locator("#lines .tip")
    tab.locator("#lines .point").nth(1).hover()
    assert "deepbench" in tip.inner_text()
    tab.mouse.move(5, 5)
    assert not tip.is_visible()
    tab.locator("#lines .point").first.focus()
    assert "batch size 1:" in tip.inner_text()
    tab.keyboard.press("Escape")
    assert not tip.is_visible()
    tab.locator("#winners .point").first.tap()
    assert tab.locator("#winners .tip").is_visible()


def test_the_keyboard_alone_reaches_everything(open_page):
    tab = open_page()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "content"
    tab.evaluate(
        """() => {
          window.stops = [];
          document.addEventListener("focusin", ({ target }) => {
            const section = target.closest("section");
            const ring = getComputedStyle(target).outlineStyle !== "none" || target.closest("svg");
            window.stops.push([section && section.id, target.localName, Boolean(ring)].join(" "));
          });
        }"""
    )
    for _ in range(120):
        tab.keyboard.press("Tab")
    seen = tab.evaluate("window.stops")
    assert not [stop for stop in seen if stop.endswith("false")]
    for stop in ("figures select", "figures button", "figures g", "cells button", "pairs select"):
        assert any(actual.startswith(stop) for actual in seen), stop
    assert any(actual.startswith("data-files button") for actual in seen)


def test_arrow_keys_walk_through_the_points_and_enter_works_keys(open_page):
    tab = open_page()
    tab.locator("#lines .point").first.focus()
    walked = []
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        tab.keyboard.press(key)
        walked.append(
            tab.evaluate("document.activeElement.getAttribute('aria-label')").split(":")[0]
        )
    assert walked == [
        "deepbench, batch size 16",
        "deepbench-skip *, batch size 16",
        "deepbench-skip *, batch size 1",
        "deepbench, batch size 1",
    ]
    key = tab.locator("#lines .legend button").first
    key.focus()
    tab.keyboard.press("Space")
    assert key.get_attribute("aria-pressed") == "false"
    head = tab.locator("#cell-table thead button").first
    head.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("#cell-table thead th").first.get_attribute("aria-sort") == "ascending"


def test_every_control_has_a_name_and_every_drawing_a_description(open_page):
    tab = open_page()
    nameless = tab.evaluate(
        """() => [...document.querySelectorAll("button, select, input, [role]")]
          .filter((node) => node.getAttribute("role") !== "status")
          .filter((node) => !(node.getAttribute("aria-label") || node.labels?.length
            || node.localName === "button" && node.textContent.trim()))
          .map((node) => node.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.parametrize(
    ("scheme", "ink"), [("light", "rgb(0, 0, 0)"), ("dark", "rgb(255, 255, 255)")]
)
def test_all_text_and_the_baseline_can_be_seen(open_page, scheme, ink):
    tab = open_page(scheme=scheme)
    line = tab.locator("#lines .series .line").first
    assert line.evaluate("(node) => getComputedStyle(node).stroke") == ink
    tab.evaluate(OPEN_ALL)
    levels = tab.evaluate(CONTRASTS)
    assert len(levels) > 300
    assert [level for level in levels if level[0] < 4.5] == []


@pytest.mark.parametrize("width", [360, 768])
def test_a_narrow_screen_scrolls_only_inside_tables_and_the_list_of_sections(open_page, width):
    tab = open_page(width=width)
    tab.evaluate(OPEN_ALL)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    wide = tab.evaluate(
        """() => [...document.querySelectorAll("body *")]
          .filter((node) => node.checkVisibility() && !node.closest(".scroll, .skip, caption, nav"))
          .filter((node) => node.getBoundingClientRect().right > innerWidth + 1)
          .map((node) => node.outerHTML.slice(0, 80))"""
    )
    assert wide == []


def test_paper_has_words_and_figures_on_white_and_no_controls(open_page):
    tab = open_page(scheme="dark")
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for selector in ("#summary li", "#lines svg.ink, #lines .series", "#winners .tile"):
        assert tab.locator(selector).first.is_visible()
    for selector in ("select", "input", ".button", "nav", "#cell-table"):
        assert not any(node.is_visible() for node in tab.locator(selector).all()), selector
    assert tab.pdf().startswith(b"%PDF")


def downloaded(tab, button):
    with tab.expect_download() as waiting:
        tab.get_by_role("button", name=button).click()
    name = waiting.value.suggested_filename
    with open(waiting.value.path(), encoding="utf-8", newline="") as file:
        return name, file.read()


def test_all_data_can_be_taken_away(open_page):
    tab = open_page()
    name, content = downloaded(tab, "Cells as CSV")
    assert name == "a-run-cells.csv"
    rows = list(csv.DictReader(io.StringIO(content)))
    assert len(rows) == TOTAL
    first = rows[0]
    assert (first["implementation"], first["hidden"], first["copy"]) == ("deepbench", "8", "1")
    assert float(first["latency_s"]) == pytest.approx(0.16)
    assert first["warnings"] == "capped: 3 rounds in 30 s"
    name, content = downloaded(tab, "Cells as JSON")
    assert name == "a-run-cells.json"
    cells = json.loads(content)
    assert len(cells) == TOTAL
    assert (cells[-1]["latency_s"], cells[-1]["reason"]) == (None, "no memory left")
    _, content = downloaded(tab, "Manifest")
    assert json.loads(content)["machine"]["gpus"][0]["name"] == "A GPU"


@pytest.fixture(scope="module")
def hostile_file(tmp_path_factory):
    rows = grid({HOSTILE: 1, "b" + HOSTILE: 2}, shapes=SHAPES)
    for row in rows:
        row.warnings, row.path = [HOSTILE], HOSTILE
    rows += [cell("-cmd", status=HOSTILE, reason="=" + HOSTILE), cell("@x", 1.0, reason="\tx")]
    columns = [text(HOSTILE, "name"), number("n", "n")]
    lines = [{"name": HOSTILE, "n": 1}, {"name": "b", "n": 2}]
    table = Table("more", lines, columns, HOSTILE)
    machine = {"cpu": HOSTILE, HOSTILE: HOSTILE, "gpus": [{"name": HOSTILE}]}
    run = run_of(rows, name=HOSTILE, machine=machine)
    path = tmp_path_factory.mktemp("hostile") / "page.html"
    made = sections.sections_of(Document(["", table, HOSTILE]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "sections", lambda run: made)
        path.write_text(page.html(run), encoding="utf-8")
    return path


def test_text_of_a_run_is_shown_and_never_acts(open_page, hostile_file):
    tab = open_page(hostile_file)
    tab.evaluate(OPEN_ALL)
    tab.evaluate("document.querySelectorAll('#cell-table thead button').forEach(b => b.click())")
    tab.locator("#lines .legend button").first.click()
    tab.locator("#lines .point").first.hover()
    tab.get_by_role("button", name="Swap A and B").click()
    assert tab.evaluate("window.hit") is None
    assert tab.locator("img").count() == 0
    assert tab.locator("script").count() == 2
    for place in (
        *("h1", ".subject", "#facts", "#extra h2", "#extra tbody", ".headline"),
        *("#lines .legend", "#lines .tip", "#cell-table tbody", "#overview tbody"),
    ):
        shown = tab.locator(place).first.inner_text()
        # a line separator in it may stand as it is or as a blank
        assert "".join(HOSTILE.split()) in "".join(shown.split()), place


def test_a_spreadsheet_takes_no_text_for_a_formula(open_page, hostile_file):
    name, text = downloaded(open_page(hostile_file), "Cells as CSV")
    assert re.fullmatch(r"[\w.-]+", name)
    rows = list(csv.reader(io.StringIO(text)))
    heads, cells = rows[0], rows[1:]
    assert all(len(row) == len(heads) for row in cells)
    for row in cells:
        for head, value in zip(heads, row, strict=True):
            if re.match(r"[=+\-@\t]", value):
                float(value)  # only a number may start so
            if head == "implementation" and value.endswith(("cmd", "@x")):
                assert value.startswith("'")
    assert any(value.startswith("'=") for row in cells for value in row)


def test_a_further_table_is_reached_from_the_top_and_sorts(open_page, hostile_file):
    tab = open_page(hostile_file)
    names = texts(tab, "#extra h2")
    assert names
    assert [name for name in texts(tab, "nav a") if name in names] == names
    tab.locator("nav a", has_text=names[-1]).click()
    assert tab.locator("#extra h2").last.evaluate("e => e.id") == tab.url.split("#")[1]
    head = tab.locator("#extra thead th", has_text="n").last
    head.get_by_role("button").click()
    head.get_by_role("button").click()
    assert texts(tab, "#extra tbody td") == ["2", "1"]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [cell("pytorch", 1e-3)],
        [cell("pytorch", status="crashed", reason="boom")],
        [cell("pytorch", 1e-3, (8, 1, 1)), cell("tf-mode0", 1e-3, (9, 1, 1))],
        [cell("__proto__", 1e-3, rounds=1), cell("constructor", 2e-3, rounds=1)],
    ],
    ids=["empty", "one", "failed", "apart", "names"],
)
def test_a_run_with_little_in_it_still_makes_a_page(open_page, tmp_path, rows):
    path = tmp_path / "page.html"
    run = run_of(rows, shapes=None if rows else [(8, 1, 10, 8)])
    path.write_text(page.html(run), encoding="utf-8")
    tab = open_page(path)
    assert tab.locator("#summary li").count() >= 2
    assert tab.get_by_role("button", name="Manifest").is_visible()


@pytest.mark.parametrize(
    ("accuracy", "shape"),  # each at a shape that was measured and at one between
    [
        *(("fp32", "512,1,100"), ("tf32", "700,2,30"), ("any", "300,20,60")),
        ("half", "1024,16,100"),
    ],
)
def test_a_shape_that_is_typed_gets_the_answer_of_advise(ladder_page, shape, accuracy):
    tab, run = ladder_page
    expected = advised(run, parsed(shape), accuracy)
    tab.get_by_label("Shape: hidden,batch,timesteps").fill(shape)
    choose(tab, "Accuracy, at least", accuracy, "#advice")
    text = tab.inner_text("#advice .answer")
    assert text.split(",")[0].split(".")[0] == report.sentence(expected).split(",")[0].split(".")[0]
    ties = [row["implementation"] for row in expected.choice.ties if row["verdict"] != "now"]
    assert ("A tie with" in text) == bool(ties)
    assert all(name in text for name in ties)
    rows = [row["implementation"] for row in expected.rows][:6]
    assert column(tab, "implementation", "#advice") == rows
    shown = [seconds(text) for text in column(tab, "latency", "#advice")]
    assert shown == pytest.approx([row["latency_s"] for row in expected.rows][:6], rel=0.006)
    verdicts = column(tab, "against pytorch-tf32", "#advice")
    marks = {expected.advised["implementation"]: ", advised"} if expected.choice.decided else {}
    assert (
        verdicts
        == [f"{row['verdict']}{marks.get(row['implementation'], '')}" for row in expected.rows][:6]
    )
    note = tab.locator("#advice .note").first.inner_text()
    assert ("was not measured" in note) != expected.source.measured
    assert tab.inner_text("#advice pre").strip() == expected.advised["code"].strip()


def advised(run, shape, accuracy):
    return advice.advise(sources.Search([sources.read(run, shape)]), accuracy)


@pytest.mark.parametrize("name", ["h200-ladder", "h200-devices", "cpu-x86"])
def test_the_page_decides_as_advise_does_at_many_shapes(browser, monkeypatch, name):
    """Times, choice, state, ties and verdicts, at measured shapes and between them: 200 in all."""
    run = load(ROOT / "results" / name)
    _, data, script = on_page(run)
    guesses = estimates.left_out(summary.times(run.cells))  # the same for every shape
    monkeypatch.setattr(estimates, "left_out", lambda _: guesses)
    sizes = zip(*data["shapes"], strict=True)
    ends = [(math.log(min(axis)), math.log(max(axis))) for axis in itertools.islice(sizes, 3)]
    draw = random.Random(1)
    shapes = [tuple(shape) for shape in data["shapes"][::3]]
    for _ in range(60):
        hidden, batch, timesteps = (round(math.exp(draw.uniform(*two))) for two in ends)
        shapes.append((hidden, batch, timesteps, hidden))
    assert len(shapes) >= 67
    asked = list(zip(shapes, itertools.cycle(("tf32", "half", "any")), strict=False))
    tab = browser.new_page()
    answers = tab.evaluate(
        f"""([advice, asked]) => {{
          const run = {{ advice }}, known = Number.isFinite;
          {script}
          return asked.map(([shape, accuracy]) => {{
            const of = adviceFor(shape, accuracy), name = (row) => row.name;
            return [of.found.map((row) => row.seconds), name(of.advised), name(of.candidate),
              of.state, of.ties.map(name), of.found.map((row) => [name(row), row.verdict])];
          }});
        }}""",
        [plain(data), [[list(shape), accuracy] for shape, accuracy in asked]],
    )
    tab.close()
    for (shape, accuracy), (times, *answer) in zip(asked, answers, strict=True):
        expected = advised(run, Shape(*shape), accuracy)
        choice = expected.choice
        assert times == pytest.approx([row["latency_s"] for row in expected.rows], rel=1e-6)
        rows = [[row["implementation"], row["verdict"]] for row in expected.rows]
        names = [row["implementation"] for row in (choice.row, choice.candidate)]
        ties = [row["implementation"] for row in choice.ties]
        assert answer == [*names, choice.state, ties, rows], (shape, accuracy)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("2048,1,100", "Outside of what was measured: hidden"),
        ("512,1,100,64", "Outside of what was measured: input over hidden"),
        ("512", "Type hidden,batch,timesteps"),
        ("0,1,1", "Type hidden,batch,timesteps"),
    ],
)
def test_nothing_is_guessed_on_the_page_either(ladder_page, typed, answer):
    tab, _ = ladder_page
    tab.get_by_label("Shape: hidden,batch,timesteps").fill(typed)
    assert tab.inner_text("#advice .answer").startswith(answer)
    assert tab.locator("#advice table").count() == 0


@pytest.fixture(scope="module")
def ladder_page(browser, tmp_path_factory):
    run, text = shipped_page("h200-ladder")
    path = tmp_path_factory.mktemp("ladder") / "page.html"
    path.write_text(text, encoding="utf-8")
    tab = browser.new_page()
    tab.set_default_timeout(5000)
    tab.goto(path.as_uri())
    yield tab, run
    tab.close()


#: The part of the first screen that a person sees before any scrolling.
IN_VIEW = """(selector) => [...document.querySelectorAll(selector)]
  .filter((node) => node.checkVisibility() && node.getBoundingClientRect().bottom <= innerHeight)
  .map((node) => node.innerText.replace(/\\s+/g, " "))"""


def test_the_first_screen_says_what_to_run_and_asks_for_the_shape(ladder_page):
    tab, _ = ladder_page
    tab.set_viewport_size({"width": 1280, "height": 800})
    tab.evaluate("scrollTo(0, 0)")
    cards = tab.evaluate(IN_VIEW, "#lead .cards > li")
    assert [card.split(" 6 shapes: ")[0] for card in cards] == [
        *("Batch 1", "Batch 16", "Batch 64", "Batch 256"),
    ]
    for card in cards:
        assert "You run plain PyTorch at" in card
        assert re.search(r"Run pytorch-(tf32-)?persistent:", card)
        assert "pytorch-tf32 you run this" in card
    assert len(tab.evaluate(IN_VIEW, "#advice input, #advice .answer")) == 2
    colours = tab.evaluate(
        """() => [...document.querySelectorAll("#lead .cards > li")]
          .map((card) => [...card.querySelectorAll(".bars i")])
          .map((bars) => bars.map((bar) => getComputedStyle(bar).backgroundColor))"""
    )
    assert all(len(set(card)) == len(card) > 1 for card in colours)


def test_on_a_telephone_the_first_screen_says_what_to_run(ladder_page):
    tab, _ = ladder_page
    tab.set_viewport_size({"width": 400, "height": 800})
    tab.evaluate("scrollTo(0, 0)")
    cards = tab.evaluate(IN_VIEW, "#lead .cards > li")
    assert len(cards) >= 2
    assert "Run pytorch-persistent: 6.5x faster" in cards[0]


def test_sentences_are_folded_until_somebody_asks(open_page):
    tab = open_page()
    assert not tab.locator("#summary li").first.is_visible()
    tab.locator("#summary summary").first.click()
    assert tab.locator("#summary li").first.is_visible()


def test_a_figure_begins_with_eight_lines_and_draws_more_when_they_are_chosen(ladder_page):
    tab, run = ladder_page
    tab.set_viewport_size({"width": 1280, "height": 800})
    assert tab.locator("#lines .series").count() == 8
    assert "8 of 33 rows drawn" in tab.inner_text("#lines .note")
    tab.locator("#lines .legend button", has_text="tf-xla").click()
    assert tab.locator("#lines .series").count() == 9
    tab.locator("#lines").get_by_role("button", name="Show all").click()
    assert tab.locator("#lines .series").count() == run.cells["implementation"].nunique()


def test_numbers_of_a_further_table_have_units_and_no_table_is_clipped(ladder_page):
    tab, _ = ladder_page
    tab.set_viewport_size({"width": 1280, "height": 800})
    ladder = "#extra section:first-child"
    assert column(tab, "latency", ladder)[0] == "94.5 us"
    assert column(tab, "vs pytorch-tf32", ladder)[0] == "0.11x"
    assert column(tab, "GPU mem", ladder)[0] == "1 GiB"
    wide = tab.evaluate(
        """() => ["#extra .scroll", "#overview .scroll"].map((box) => document.querySelector(box))
          .filter((box) => box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight)
          .length"""
    )
    assert wide == 0
