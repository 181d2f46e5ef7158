"""Whatever was written stays, whatever happened to the writer."""

import gzip
import json
import math
from dataclasses import replace

import builders
import msgspec
import numpy as np
import pandas as pd
import pytest

from lstm_bench.analysis import results
from lstm_bench.model.types import Block, LstmBenchError, Record, Shape
from lstm_bench.runs import run_folders, store

MANIFEST = {"plan": {"name": "g"}, "machine": {}, "started_at": "2026-01-01"}


def record(hidden=1, status="ok"):
    return Record("fake", Shape(hidden, 1, 1, hidden), 1, 1, status)


BLOCKS = [Block(1, [10, 11, 12], 33, 3, 0.1, 0.1, 0)]


def test_samples_belong_to_the_record_that_counts(tmp_path):
    early, late = record(1, "interrupted"), record(1)
    early.group, late.group = "first", "second"
    more = [Block(1, [20], 20, 1, 0.1, 0.1, 0)]
    with store.Store.create(tmp_path / "r", MANIFEST) as s:
        s.append(early, BLOCKS)
        s.append(late, more)
    assert list(store.read_blocks(tmp_path / "r")) == [(late, more)]


def test_a_run_of_a_newer_format_is_refused_with_a_word(tmp_path):
    store.Store.create(tmp_path / "r", {**MANIFEST, "format": 99}).close()
    with pytest.raises(LstmBenchError, match="written in format 99"):
        store.read_manifest(tmp_path / "r")


def test_a_torn_last_line_is_passed_over_and_cut_off(tmp_path):
    """However long it is; test_kill.py tears every byte of short ones."""
    with store.Store.create(tmp_path / "r", MANIFEST) as s:
        s.append(record(1), BLOCKS)
    path = tmp_path / "r" / "records.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b"x" * 200_000)
    assert len(store.read_records(tmp_path / "r")) == 1
    with store.Store(tmp_path / "r") as s:
        assert path.read_bytes() == whole
        s.append(record(2), [])
    assert len(store.read_records(tmp_path / "r")) == 2


def packed(folder):
    for path in folder.glob("*.jsonl"):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return folder


def test_a_run_that_gzip_packed_is_read_as_it_is_and_goes_on_unpacked(tmp_path):
    with store.Store.create(tmp_path / "r", MANIFEST) as s:
        s.append(record(1), BLOCKS)
        s.append(record(2, "interrupted"), [])
    folder = packed(tmp_path / "r")
    assert list(store.read_blocks(folder)) == [(record(1), BLOCKS)]
    with store.Store(folder) as s:
        s.append(record(2), [])
    assert [r.status for r in store.read_records(folder).values()] == ["ok", "ok"]
    assert sum(map(len, store.read_pieces(folder / "records.jsonl", Record))) == 3


@pytest.mark.parametrize("piece", [1, 300, 5000])
def test_a_run_that_is_read_in_pieces_is_whole(tmp_path, monkeypatch, piece):
    """However they are cut: lines are never lost or read twice."""
    rows = [
        builders.row(name, n * 1e-3, n, rounds=[n * 1e-3] * (n % 4), warnings=warnings)
        for n in range(1, 40)
        for name, warnings in (("a", []), ("b", ["capped: made up"]))
    ]
    folder = packed(builders.written(tmp_path / "r", *rows[:30]))
    lines = [msgspec.json.encode(row) for row in (*rows[30:], builders.row("a", 7.0, 1))]
    lines[10:10] = [b"damaged"]
    (folder / "records.jsonl").write_bytes(b"\n".join(lines) + b'\n{"torn')
    monkeypatch.setattr(store, "PIECE", piece)
    run = results.load(folder)
    assert run.damaged == 1
    expected = builders.cells(*rows[1:], builders.row("a", 7.0, 1))  # the last line of a cell wins
    pd.testing.assert_frame_equal(run.cells, expected)


@pytest.mark.parametrize(
    "change",
    [
        {"pass_number": -1},
        {"threads": 2**60},
        {"calls": "many"},
        {"shape": {"hidden": 0, "batch": 1, "timesteps": 1, "input_size": 1}},
        {"shape": {"hidden": 1}},
        {"memory": {"host peak": -1}},
    ],
)
def test_a_record_that_cannot_be_is_counted_as_damaged(tmp_path, change):
    folder = builders.written(tmp_path / "r", builders.row("a", 1.0))
    line = json.loads((folder / "records.jsonl").read_text())
    with (folder / "records.jsonl").open("a") as file:
        file.write(json.dumps(line | {"implementation": "b"} | change) + "\n")
    run = results.load(folder)
    assert run.damaged == 1
    assert list(run.cells["implementation"]) == ["a"]


def test_only_the_rounds_that_are_asked_for_are_read(tmp_path):
    folder = builders.written(tmp_path / "r", builders.row("a", 1.0))
    (cell,) = results.load(folder, ["throughput"]).cells.itertuples()
    assert (list(cell.round_latency_s), list(cell.round_throughput_s)) == ([], [1.0] * 10)


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda data: data[:-20], "cut short"),
        (lambda data: b"not packed at all", "not packed by gzip"),
        (lambda data: gzip.compress(b"0" * 5000), "over"),
    ],
)
def test_a_packed_file_that_cannot_be_read_is_named(tmp_path, monkeypatch, damage, word):
    monkeypatch.setattr(store, "MAX_UNPACKED", 4000)
    with store.Store.create(tmp_path / "r", MANIFEST) as s:
        s.append(record(1), BLOCKS)
    path = packed(tmp_path / "r") / "records.jsonl.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(LstmBenchError, match=f"records.jsonl.gz: {word}"):
        store.read_records(tmp_path / "r")


def test_a_records_file_that_is_a_folder_is_named(tmp_path):
    store.Store.create(tmp_path / "r", MANIFEST).close()
    (tmp_path / "r" / "records.jsonl").unlink(missing_ok=True)
    (tmp_path / "r" / "records.jsonl").mkdir()
    with pytest.raises(LstmBenchError, match=r"records.jsonl: cannot be read"):
        store.read_records(tmp_path / "r")


def test_the_newest_run_is_the_one_that_started_last(tmp_path):
    for name, started in (("a", "2026-01-02"), ("b", "2026-01-03"), ("c", "2026-01-01")):
        store.Store.create(tmp_path / name, {**MANIFEST, "started_at": started}).close()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{")
    assert run_folders.find_run(tmp_path, None).name == "b"
    assert run_folders.find_run(tmp_path, "a").name == "a"
    assert run_folders.find_run(tmp_path, str(tmp_path / "c")).name == "c"
    with pytest.raises(LstmBenchError, match="the newest there: b, a, c"):
        run_folders.find_run(tmp_path, "d")


def test_lines_are_strict_json_whatever_a_record_holds(tmp_path):
    odd = record(1)
    odd.latency_s, odd.throughput_s, odd.reason = math.nan, np.float64(0.25), "\u00e9\x1b\n"
    odd.memory, odd.timed_s = {"inputs": np.int64(3)}, math.inf
    with store.Store.create(tmp_path / "r", MANIFEST) as s:
        s.append(odd, BLOCKS)
        s.append(replace(odd, shape=Shape(2, 1, 1, 2), reason="half \udce9"), BLOCKS)
    lines = (tmp_path / "r" / "records.jsonl").read_text().splitlines()
    first, second = (json.loads(line, parse_constant=pytest.fail) for line in lines)
    assert (first["latency_s"], first["throughput_s"], first["timed_s"]) == (None, 0.25, None)
    assert (first["memory"], first["reason"]) == ({"inputs": 3}, "\u00e9\x1b\n")
    assert second["reason"] == "half \udce9"
    samples = (tmp_path / "r" / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["blocks"][0]["latency_ns"] for line in samples] == [[10, 11, 12]] * 2
