"""The Python API, and the example of its page."""

import re
from dataclasses import fields
from pathlib import Path

import builders
import pytest
from builders import cells, row, written

import lstm_bench
from lstm_bench.model.types import Block, Check, Energy, LstmBenchError, Record, Shape, Telemetry
from lstm_bench.runs import store

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "python.md"
RECORDS = ROOT / "docs" / "reference" / "records.md"


def names_in(page: Path, after: str) -> set[str]:
    """The names in the left column of the first table after a line."""
    rows = page.read_text().partition(after)[2].lstrip().split("\n\n")[0].splitlines()[1:]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_page_of_the_api_lists_the_columns():
    listed = names_in(PAGE, "| column of `load` | meaning |")
    assert listed == set(cells(row("a", 1.0)).columns)


def test_the_page_of_the_format_lists_the_fields():
    assert names_in(RECORDS, "## records.jsonl\n") == {f.name for f in fields(Record)}
    assert names_in(RECORDS, "Each block:\n") == {f.name for f in fields(Block)}
    text = RECORDS.read_text()
    for part in (Shape, Check, Telemetry, Energy):
        assert [f.name for f in fields(part) if f"`{f.name}`" not in text] == []


def test_load_gives_one_row_per_cell(tmp_path):
    written(tmp_path / "results" / "r", row("a", 1.0), row("b", None, reason="why", status="oom"))
    loaded = lstm_bench.load("r", tmp_path / "results")
    assert list(loaded["implementation"]) == ["a", "b"]
    assert loaded.loc[0, "latency_s"] == 1.0
    assert (loaded.loc[1, "status"], loaded.loc[1, "reason"]) == ("oom", "why")


def test_load_takes_a_folder_or_the_newest_run(tmp_path, monkeypatch):
    folder = written(tmp_path / "results" / "r", row("a", 1.0))
    assert len(lstm_bench.load(folder)) == 1
    monkeypatch.chdir(tmp_path)
    assert len(lstm_bench.load()) == 1
    with pytest.raises(LstmBenchError, match="no run 'x'"):
        lstm_bench.load("x")


def test_samples_gives_every_sample(tmp_path):
    record = Record("a", Shape(8, 1, 1, 8), 1, 1, "ok", group="g")
    blocks = [Block(1, [1000, 2000], 4000, 2, 0.1, 0.1, 0), Block(2, [3000], 0, 0, 0.1, 0.1, 0)]
    folder = written(tmp_path / "results" / "r", row("a", 1.0))
    (folder / "records.jsonl").unlink()
    with store.Store(folder) as sink:
        sink.append(record, blocks)
    samples = lstm_bench.samples(folder)
    assert list(samples["seconds"]) == pytest.approx([1e-6, 2e-6, 2e-6, 3e-6])
    assert list(samples["metric"]) == ["latency", "latency", "throughput", "latency"]
    assert list(samples["round"]) == [1, 1, 1, 2]
    assert set(samples["hidden"]) == {8}


def test_a_run_without_samples_has_none(tmp_path):
    assert lstm_bench.samples(written(tmp_path / "r", row("a", 1.0))).empty


def test_the_examples_of_the_documentation_run(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert "pytorch / deepbench" in printed
    assert "Group(" in printed


def test_profiles_come_as_one_row_per_part_less_those_that_lost_records(tmp_path):
    well = builders.profile()
    bad = builders.profile(problem="the profiler lost 3 records")
    cell = builders.cell
    builders.profiled(tmp_path / "run", (cell("a"), well), (cell("b"), bad))
    actual = lstm_bench.profiles("run", tmp_path)
    assert set(actual["implementation"]) == {"a"}
    assert dict(zip(actual["family"], actual["count"], strict=True)) == {
        "recurrent GEMM": 10,
        "cell": 10,
        "input GEMM": 1,
    }
    assert actual["seconds"].sum() == pytest.approx(200e-6)


def test_a_run_without_profiles_gives_an_empty_frame_with_all_columns(tmp_path):
    builders.profiled(tmp_path / "run", (builders.cell("a"), None))
    actual = lstm_bench.profiles("run", tmp_path)
    assert actual.empty
    assert "family" in actual.columns
