"""Disks that fill up, folders that vanish, writes that fail: a clear word, nothing half-written."""

import errno
import json
import os
import shutil
import subprocess
import time

import pytest
from conftest import command, records, start

from lstm_bench.model.types import Block, Record, Shape
from lstm_bench.runs import store

MANIFEST = {"plan": {"name": "g"}, "machine": {}, "started_at": "2026-01-01"}
BLOCKS = [Block(1, [10, 11, 12], 33, 3, 0.1, 0.1, 0)]
LONG = {"fake": {"real": True, "call_s": 0.002}}


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


def test_a_full_disk_stops_the_run_and_what_was_written_stays_readable(
    typed, lstm_bench, write_grid, small_disk
):
    grid = write_grid(hidden=[1, 2, 3], batch=list(range(1, 101)), fake={"fake": {"noise": 0.1}})
    done = typed("grid", grid, "--results", small_disk, "--run", "r")
    assert done.returncode == 1
    assert "disk full" in done.stderr or "No space left" in done.stderr
    assert "what was finished is kept" in done.stderr
    assert "lstm-bench grid --resume r --results" in done.stderr
    assert "Traceback" not in done.stderr
    kept = records(small_disk / "r")  # parses every line
    assert 10 < len(kept) < 300
    assert lstm_bench("report", "--run", small_disk / "r").returncode == 0
    assert list(store.read_blocks(small_disk / "r"))


def test_a_run_that_ran_out_of_disk_goes_on_when_there_is_room(lstm_bench, write_grid, small_disk):
    grid = write_grid(hidden=[1], batch=list(range(1, 81)), fake={"fake": {"noise": 0.1}})
    assert lstm_bench("grid", grid, "--results", small_disk, "--run", "r").returncode == 1
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    done = lstm_bench("grid", "--resume", "r", "--results", small_disk)
    assert done.returncode == 0, done.stderr
    assert len({r["shape"]["batch"] for r in records(small_disk / "r")}) == 80


def test_a_read_only_folder_is_said_before_anything_runs(lstm_bench, write_grid, tmp_path):
    folder = tmp_path / "read-only"
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mounted).returncode:
        folder.chmod(0o555)
    try:
        done = lstm_bench("grid", write_grid(), "--results", folder)
        assert done.returncode == 2
        assert "choose another folder with --results" in done.stderr
        assert list(folder.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True)


def test_a_folder_that_is_deleted_under_the_run_ends_it(write_grid, tmp_path):
    grid = write_grid(fake=LONG, hidden=list(range(1, 200)))
    process = start(tmp_path, "grid", grid, "--run", "r")
    run = tmp_path / "results" / "r"
    while len(records(run)) < 1:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    shutil.rmtree(run)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the run's folder was deleted" in errors
    assert "Traceback" not in errors


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


def test_an_fsync_that_fails_ends_the_run_with_a_word(write_grid, tmp_path):
    code = (
        "import os, sys\n"
        "from lstm_bench.cli import main\n"
        "real, calls = os.fsync, []\n"
        "def broken(fd):\n"
        "    calls.append(fd)\n"
        "    if len(calls) > 6: raise OSError(5, 'Input/output error')\n"
        "    real(fd)\n"
        "os.fsync = broken\n"
        "main()\n"
    )
    line = command("grid", write_grid(hidden=list(range(1, 20))), "--run", "r")
    done = subprocess.run(
        [line[0], "-c", code, *line[3:]], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "Input/output error; what was finished is kept" in done.stderr
    assert "Traceback" not in done.stderr
    assert records(tmp_path / "results" / "r")


def test_a_clock_that_is_set_back_changes_no_measurement(tmp_path, write_grid):
    """Durations come from the monotonic clock; the wall clock only labels."""
    code = (
        "import datetime as d\n"
        "import pandas\n"  # which does not like to be loaded with another datetime
        "from lstm_bench.cli import main\n"
        "class Back(d.datetime):\n"
        "    hours = 0\n"
        "    @classmethod\n"
        "    def now(cls, tz=None):\n"
        "        cls.hours += 1\n"
        "        return d.datetime.fromtimestamp(1.7e9 - 3600 * cls.hours, tz)\n"
        "d.datetime = Back\n"
        "main()\n"
    )
    line = command("grid", write_grid(), "--run", "r")
    done = subprocess.run(
        [line[0], "-c", code, *line[3:]], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = records(tmp_path / "results" / "r")
    assert [r["status"] for r in found] == ["ok", "ok"]
    assert found[0]["finished_at"] > found[1]["finished_at"]  # it did go back
    assert all(r["latency_s"] == pytest.approx(0.001) for r in found)
