"""Disks that fill up, folders that vanish, writes that fail: a clear word, nothing half-written."""

import datetime
import errno
import itertools
import json
import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from conftest import records

from lstm_bench.commands import run
from lstm_bench.driver import cell, driver
from lstm_bench.model.types import Block, Record, Shape
from lstm_bench.runs import store

MANIFEST = {"plan": {"name": "g"}, "machine": {}, "started_at": "2026-01-01"}
BLOCKS = [Block(1, [10, 11, 12], 33, 3, 0.1, 0.1, 0)]


def record(hidden):
    return Record("fake", Shape(hidden, 1, 1, hidden), 1, 1, "ok")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 100 kB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mounted).returncode:
        pytest.skip("mounting a tmpfs takes root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_stops_a_run_which_goes_on_when_there_is_room(
    lstm_bench, write_grid, small_disk
):
    grid = write_grid(hidden=[1], batch=list(range(1, 81)), fake={"fake": {"noise": 0.1}})
    done = lstm_bench("grid", grid, "--results", small_disk, "--run", "r", code=1)
    assert "disk full" in done.stderr or "No space left" in done.stderr
    assert "what was finished is kept" in done.stderr
    assert "lstm-bench grid --resume r --results" in done.stderr
    assert 10 < len(records(small_disk / "r")) < 80  # every line can be parsed
    lstm_bench("report", "--run", small_disk / "r", code=0)
    assert list(store.read_blocks(small_disk / "r"))
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    lstm_bench("grid", "--resume", "r", "--results", small_disk, code=0)
    assert len({r["shape"]["batch"] for r in records(small_disk / "r")}) == 80


def test_a_read_only_folder_is_said_before_anything_runs(lstm_bench, write_grid, tmp_path):
    folder = tmp_path / "read-only"
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mounted).returncode:
        folder.chmod(0o555)
    try:
        done = lstm_bench("grid", write_grid(), "--results", folder, code=2)
        assert "choose another folder with --results" in done.stderr
        assert list(folder.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True)


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_write_that_fails_leaves_whole_lines(tmp_path, monkeypatch, call):
    with store.Store.create(tmp_path / "r", MANIFEST) as sink:
        sink.append(record(1), BLOCKS)

        def broken(fd, *data):
            if data:
                real(fd, data[0][:10])  # part of it reaches the disk
            raise OSError(errno.EIO, "Input/output error")

        real = getattr(os, call)
        with monkeypatch.context() as context:
            context.setattr(store.os, call, broken)
            with pytest.raises(OSError, match="Input/output"):
                sink.append(record(2), BLOCKS)
        sink.append(record(3), BLOCKS)
    for name in ("records.jsonl", "samples.jsonl"):
        for line in (tmp_path / "r" / name).read_text().splitlines():
            json.loads(line)
    assert [r.shape.hidden for r in store.read_records(tmp_path / "r").values()] == [1, 3]


def broken(folder):
    raise OSError(errno.EIO, "Input/output error")


def deleted(folder):
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        (broken, "Input/output error; what was finished is kept"),
        (deleted, "the run's folder was deleted"),
    ],
)
def test_a_disk_that_fails_amid_a_run_ends_it_with_a_word(
    lstm_bench, write_grid, tmp_path, monkeypatch, fail, words
):
    fsync, calls = os.fsync, itertools.count()

    def failing(fd):
        if next(calls) > 6:
            fail(tmp_path / "results" / "r")
        fsync(fd)

    grid = write_grid(hidden=list(range(1, 20)))
    monkeypatch.setattr(store.os, "fsync", failing)
    assert words in lstm_bench("grid", grid, "--run", "r", code=1).stderr


def test_a_clock_that_is_set_back_changes_no_measurement(
    lstm_bench, write_grid, tmp_path, monkeypatch
):
    """Durations come from the monotonic clock; the wall clock only labels."""
    hours = itertools.count()

    class Back(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.fromtimestamp(1.7e9 - 3600 * next(hours), tz)

    times = SimpleNamespace(datetime=Back, timezone=datetime.timezone)
    for module in (cell, driver, run):
        monkeypatch.setattr(module, "datetime", times)
    assert lstm_bench("grid", write_grid(), "--run", "r").returncode == 0
    first, second = records(tmp_path / "results" / "r")
    assert first["finished_at"] > second["finished_at"]  # it did go back
    assert [first["latency_s"], second["latency_s"]] == pytest.approx([0.001, 0.001])
