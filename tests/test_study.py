"""The study: every number comes out of the shipped runs, and every page is what they say now."""

import gzip
import json
import math
import re
import statistics
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

from lstm_bench.analysis.results import load
from lstm_bench.features.profile import cells as profiled_cells
from study import counts, data, devices, drawings, findings, page
from study.figures import FIGURES
from study.numbers import Book
from study.runs import CPU_LAYER, DEEPBENCH, KERNEL, LADDER, MAIN, Stale, shipped
from study.runs import load as load_study
from study.tables import TABLES

pytestmark = pytest.mark.xdist_group("study")  # made once

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = (page.STUDY, page.README, page.DETAILS)
RATIO = re.compile(r"latency of (\S+) over ([\w-]+)(?:, batch (\d+))?(?:, at .*)?; geometric mean")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """All that `make study` writes, in another folder."""
    folder = tmp_path_factory.mktemp("study")
    page.write(folder)
    return folder


PAGES = [
    "docs/study.md",
    "study/notes/study.md",
    "study/numbers.json",
    "README.md",
    data.DICTIONARY,
    *counts.pages(),
]


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_are_what_the_shipped_runs_say(written, name):
    """Nobody edits their numbers by hand: `make study` fills them in."""
    assert (ROOT / name).read_bytes() == (written / name).read_bytes()


@pytest.mark.parametrize(
    "path",
    [*(f"docs/figures/study-{n}.svg" for n in FIGURES), devices.FIGURE, *drawings.DRAWINGS],
)
def test_the_figures_are_what_the_shipped_runs_say(written, path):
    shipped = (ROOT / path).read_text()
    if f"Matplotlib v{matplotlib.__version__}," not in shipped:
        pytest.skip("drawn by another version of Matplotlib")
    assert shipped == (written / path).read_text()


def test_the_table_of_all_cells_is_what_the_shipped_runs_say(written):
    kept, now = (gzip.decompress((at / data.TABLE).read_bytes()) for at in (ROOT, written))
    assert kept == now
    cells = pd.read_csv(ROOT / data.TABLE, keep_default_na=False, na_values=[""])
    assert set(cells["run"]) == set(shipped())
    times = latencies(MAIN)
    own = cells[(cells["run"] == MAIN) & (cells["copy"] == 1) & (cells["status"] == "ok")]
    assert len(own) == sum(map(len, times.values()))
    for row in own.itertuples():
        shown = times[row.implementation][row.hidden, row.batch, row.timesteps]
        assert row.latency_s == pytest.approx(shown, 1e-6)
    assert (cells["latency_s"] >= cells["limit_s"])[cells["limit_s"].notna()].all()
    assert not (cells["max_abs_error"] > cells["tolerance"])[cells["status"] == "ok"].any()


def latencies(run):
    """Seconds by implementation and (hidden, batch, timesteps), straight from the file."""
    actual = {}
    folder = ROOT / "results" / run
    opened = gzip.open if (folder / "records.jsonl.gz").exists() else open
    with opened(next(folder.glob("records.jsonl*")), "rt") as lines:
        for record in map(json.loads, lines):
            shape = tuple(record["shape"][axis] for axis in ("hidden", "batch", "timesteps"))
            if record["copy"] == 1 and record["status"] == "ok":
                actual.setdefault(record["implementation"], {})[shape] = record["latency_s"]
    return actual


def test_numbers_can_be_computed_from_the_records_by_hand():
    numbers = json.loads((ROOT / "study" / "numbers.json").read_text())
    by_run = {run: latencies(run) for run in (MAIN, LADDER, KERNEL, DEEPBENCH, CPU_LAYER)}
    ratios = 0
    for name, number in numbers.items():
        if actual := RATIO.fullmatch(number["how"]):
            b, a, batch = actual.groups()
            times = by_run[number["run"]]
            shapes = [s for s in times[a] if batch in (None, str(s[1]))]
            logs = [math.log(times[b][shape] / times[a][shape]) for shape in shapes]
            assert math.exp(statistics.fmean(logs)) == pytest.approx(number["value"], 1e-5), name
            ratios += 1
    assert ratios >= 20
    times = by_run[MAIN]
    assert numbers["cells"]["value"] == sum(map(len, times.values()))
    assert numbers["shapes"]["value"] == len(times["pytorch"])
    amp, half = times["pytorch-amp"], times["pytorch-half"]
    added = statistics.median(amp[shape] - half[shape] for shape in amp)
    assert numbers["amp_adds"]["value"] == pytest.approx(added, 1e-5)


def test_every_placeholder_is_known_and_nothing_is_made_for_nobody():
    used = set().union(*(page.used(path.read_text()) for path in TEMPLATES))
    kinds = {"": page.known(), "table": TABLES, "figure": FIGURES}
    assert used == {(kind, name) for kind, names in kinds.items() for name in names}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_page_has_a_number_that_nothing_checks(path):
    assert page.literals(path.read_text()) == []


@pytest.mark.parametrize(
    ("text", "actual"),
    [
        ("PyTorch is 2.5x faster, by 3%", ["2.5x", "3%"]),
        ("at batch 16, 64 and 256, hidden 128 to 1024, 100 timesteps", []),
        ("modes 1 and\n2 on an H200 in fp32 in 2021, 95% of them", []),
        ("`-1` in [Table 2](page.md#4) is {{mpe_tf}}", []),
    ],
)
def test_a_number_is_a_literal_unless_it_is_a_size_a_name_or_code(text, actual):
    assert page.literals(text) == actual


def test_a_sentence_whose_number_turned_round_is_refused():
    with pytest.raises(Stale, match="not above 1 beyond the noise"):
        Book().slower("claim", "pytorch", "tf-mode0")


def test_a_finding_holds_only_beyond_the_noise():
    assert findings.by_interval(1.1, 1.3, 1.04) == findings.HOLDS
    assert findings.by_interval(0.8, 1.03, 1.04) == findings.HOLDS_NOT
    assert findings.by_interval(1.0, 1.3, 1.04) == findings.OPEN
    words = (findings.HOLDS, findings.OPEN, findings.HOLDS_NOT)
    assert [findings.both(findings.HOLDS, word) for word in words] == list(words)


def test_the_page_can_be_read_in_five_minutes():
    assert len((ROOT / "docs" / "study.md").read_text().splitlines()) <= 300


def test_it_is_no_part_of_the_package():
    assert 'find_packages(include=["lstm_bench*"])' in (ROOT / "setup.py").read_text()
    imports = re.compile(r"^\s*(from|import) study\b", re.M)
    assert not [p for p in (ROOT / "lstm_bench").rglob("*.py") if imports.search(p.read_text())]


def test_counts_of_runs_stand_in_places_that_make_study_fills():
    """Nobody types how many cells a run has; by hand, straight from its file."""
    text = (ROOT / "results/README.md").read_text()
    typed = counts.PLACE.sub("", text)
    assert re.findall(r"\b[\d,]+ (?:cells?|controls?|shapes?|implementations?)\b", typed) == []
    assert {"results/README.md", "docs/explanation/limits.md"} <= {*counts.pages()}
    times = latencies("h200-deepbench")
    cells, shapes = sum(map(len, times.values())), len(set().union(*times.values()))
    shown = f"{shapes} shapes x {len(times)} implementations: {cells} cells and 71 controls"
    assert f"<!-- {{{{ran: h200-deepbench}}}} -->{shown}<!-- end -->" in text
    everything = pd.read_csv(ROOT / data.TABLE, low_memory=False)
    assert counts.measured("all") == f"{(everything['status'] == 'ok').sum():,}"
    for name in re.findall(r"`([^`]+)`", counts.unmeasured("all")):
        assert not (everything["implementation"].eq(name) & everything["status"].eq("ok")).any()


def test_a_place_that_nothing_fills_is_refused():
    with pytest.raises(Stale, match="found cell, expected one of before, "):
        counts.filled("<!-- {{cell: h200-paper}} -->816<!-- end -->")


def test_what_modes_wait_for_is_said_with_the_share_of_launch_calls_beside_it():
    """Idle time decides; the column `launching` of `report --kernels --all` stands beside it."""
    finding = next(f for f in findings.findings(load_study(MAIN)) if "prepare launches" in f.claim)
    shares = profiled_cells.device_rows(load_study(MAIN).splits)
    for row in shares:
        if row["implementation"] in ("tf-mode1", "tf-mode2"):
            assert f"{row['idle']:.0%}" in finding.here.split(", ")[0]
            assert f"{row['launching']:.0%}" in finding.here.split(", ")[1]


def test_every_shipped_run_is_listed():
    listed = re.findall(r"`([\w-]+)`", (ROOT / "results/README.md").read_text())
    assert {*shipped()} <= {*listed}


@pytest.mark.parametrize("run", shipped())
def test_the_shipped_runs_can_be_read(run):
    assert len(load(ROOT / "results" / run).cells)


KERNEL_DOC = ROOT / "study/notes/kernel.md"  # of which the article shows some
KERNEL_SIDES = [
    ("persistent", "deepbench-best"),
    ("persistent-tf32", "deepbench-tf32-best"),
    ("persistent-fp16", "deepbench-fp16-best"),
]


@pytest.mark.parametrize(("part", "run"), [(0, "h200-kernel"), (1, "h200-warpgroups")])
def test_the_tables_of_our_kernels_are_what_the_shipped_runs_measured(part, run):
    text = KERNEL_DOC.read_text().split("**For many sequences there is a newer family**")[part]
    cells = load(ROOT / "results" / run).cells
    lines = re.findall(r"^\| (\d+), (\d+), (\d+) \| (\d.*) \|$", text, re.M)
    at_100 = cells[cells["timesteps"] == 100]
    if part:
        at_100 = at_100[at_100["path"].str.startswith("warpgroups")]
    shapes = {tuple(map(str, sizes)) for sizes in at_100[["hidden", "batch", "timesteps"]].values}
    assert sorted(tuple(shape) for *shape, _ in lines) == sorted(shapes)
    for *shape, rest in lines:
        expected = []
        for pair in KERNEL_SIDES:
            ours, best = (latency(cells, name, *shape) for name in pair)
            expected += [f"{ours * 1e6:.0f}", f"{best * 1e6:.0f}", f"{best / ours:.2f}x"]
        assert rest.split(" | ") == expected


def test_what_the_article_on_our_kernels_shows_stands_in_the_note():
    article = (ROOT / "docs/explanation/kernel.md").read_text()
    note = KERNEL_DOC.read_text()
    shown = re.findall(r"^\| [^`].*\d.* \|$", article, re.M)
    assert len(shown) > 10
    assert [line for line in shown if line not in note.splitlines()] == []
    text = re.sub(r"^[|!].*$|`[^`]*`|\]\([^)]*\)", " ", article, flags=re.M)
    figures = {*re.findall(r"\b\d[\d,]*(?:\.\d+)?x|\b\d+\.\d+\b|\b\d[\d,]{2,}\b", text)}
    assert len(figures) > 10
    assert [number for number in sorted(figures) if number not in note] == []


def test_the_means_of_our_kernels_are_what_the_shipped_run_measured():
    text = KERNEL_DOC.read_text()
    cells = load(ROOT / "results" / "h200-kernel").cells
    times = cells[cells["copy"] == 1].pivot(
        index=["hidden", "batch", "timesteps"], columns="implementation", values="latency_s"
    )
    batch, timesteps = (times.index.get_level_values(axis) for axis in ("batch", "timesteps"))
    for label, which in {
        "**all 48 shapes**": batch > 0,
        "batch 1": batch == 1,
        "batch 16 and 64": (batch == 16) | (batch == 64),
        "batch 256": batch == 256,
        "10 timesteps": timesteps == 10,
        "1000 timesteps": timesteps == 1000,
    }.items():
        (shown,) = (line for line in text.splitlines() if line.startswith(f"| {label} |"))
        means = [
            np.exp(np.log(times[best] / times[ours])[which].mean().item())
            for ours, best in KERNEL_SIDES
        ]
        assert re.findall(r"[\d.]+x", shown) == [f"{mean:.2f}x" for mean in means]


def latency(cells, name, hidden, batch, timesteps):
    own = (cells["implementation"] == name) & (cells["copy"] == 1)
    at = (cells["hidden"] == int(hidden)) & (cells["batch"] == int(batch))
    (value,) = cells.loc[own & at & (cells["timesteps"] == int(timesteps)), "latency_s"]
    return value


def test_machines_are_compared_by_the_runs_made_for_it_once_two_are_there(tmp_path):
    assert devices.names(tmp_path) == devices.UNTIL_THEN
    for name in devices.RUNS[1:]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    assert devices.names(tmp_path) == devices.RUNS[1:]


def test_a_mean_over_some_of_the_shapes_says_so():
    book = Book()
    book.slower("some", "deepbench-best", "persistent", DEEPBENCH)
    assert ", at 20 of 37 shapes of the run; geometric mean" in book.entries["some"].how
    text = (ROOT / "study" / "notes" / "study.md").read_text()
    assert "over the 20 of 37 shapes up to hidden 1024" in " ".join(text.split())
