"""`report --energy`: what it shows, and what it says where nothing is known."""

import json

import pytest
from made_up import manifest, row

from lstm_bench import energy_report, results
from lstm_bench.energy import Energy
from lstm_bench.energy_report import joules
from lstm_bench.model import LstmBenchError, Record, Shape, to_json
from lstm_bench.telemetry import Telemetry

SHAPES = (Shape(64, 1, 10, 64), Shape(64, 8, 10, 64))


def cell(name, shape, gross=None, problem="", **more):
    energy = Energy(gross, gross and gross / 2, 300.0, 125.0, 0.35, 4, 100, 1e-3, problem)
    clock = Telemetry(3, 1980.0, 1755, 3201.0, 48, 300.0, 0.9, 1 << 30, more.pop("throttled", []))
    return Record(name, shape, 1, 1, "ok", latency_s=1e-3, energy=energy, gpu=clock, **more)


@pytest.fixture
def run_of(tmp_path):
    def made(*records):
        rows = tuple(row(r.implementation, 1e-3, r.shape.hidden, r.shape.batch) for r in records)
        (tmp_path / "manifest.json").write_text(json.dumps(manifest(rows)))
        lines = "".join(json.dumps(to_json(r)) + "\n" for r in records)
        (tmp_path / "records.jsonl").write_text(lines)
        return results.load(tmp_path)

    return made


def test_energy_is_the_median_over_the_shapes_that_all_rows_have(run_of):
    run = run_of(
        cell("a", SHAPES[0], 0.2),
        cell("a", SHAPES[1], 0.8),
        cell("b", SHAPES[0], 0.4),
        cell("b", SHAPES[1], None, "too short to measure: the energy counter moved 2 times"),
    )
    first, second = energy_report.table_rows(energy_report._measured(run), ["a", "b"])
    assert (first["gross_j"], first["net_j"], second["gross_j"]) == (0.2, 0.1, 0.4)
    assert (first["clock_mhz"], first["lowest_mhz"], first["temperature_c"]) == (1980, 1755, 48)


def test_a_cell_too_short_to_measure_is_counted_and_not_printed_as_a_number(run_of):
    run = run_of(
        cell("a", SHAPES[0], 0.2),
        cell("a", SHAPES[1], None, "too short to measure: the energy counter moved 2 times"),
    )
    text = energy_report.document(run).written("table")
    assert "1 cells: too short to measure" in text
    assert "200 mJ" in text


def test_throttling_is_told(run_of):
    run = run_of(cell("a", SHAPES[0], 0.2, throttled=["power cap"]))
    assert "1 cells: power cap" in energy_report.document(run).written("table")


def test_a_run_without_any_of_it_says_how_to_get_it(run_of):
    run = run_of(Record("a", SHAPES[0], 1, 1, "ok", latency_s=1e-3))
    with pytest.raises(LstmBenchError, match="lstm-bench grid GRID --energy"):
        energy_report.document(run)


def test_memory_alone_is_worth_a_table(run_of):
    record = Record("a", SHAPES[0], 1, 1, "ok", memory={"host peak": 3 << 20})
    text = energy_report.document(run_of(record)).written("table")
    assert "3.0 MiB" in text
    assert "gross" not in text.splitlines()[2]


def test_the_page_has_a_section_only_if_there_is_energy(run_of):
    assert energy_report.sections(run_of(Record("a", SHAPES[0], 1, 1, "ok"))) == []
    (section,) = energy_report.sections(run_of(cell("a", SHAPES[0], 0.2)))
    assert section["rows"] == [["a", 200.0, 100.0, 300.0, 1980.0, 48]]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (2.0716, "2.07 J"), (0.00123, "1.23 mJ"), (4e-7, "0 J"), (5e-6, "5 uJ")],
)
def test_joules(value, text):
    assert joules(value) == text
