"""Kill it anywhere: at every byte that it writes, and at random moments; nothing is lost.

`--kills 200` has more of the random ones.
"""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest
from conftest import start
from fakes import children, gone, handled, statuses, whole_lines

from lstm_bench.model.profile import Profile
from lstm_bench.model.types import Block, Record, Shape
from lstm_bench.runs import store

NAMES = ("one", "two")
SHAPES = range(1, 31)
FAKES = {name: {"process": name, "noise": 0.01} for name in NAMES}


def finished(run: Path) -> dict[tuple[object, ...], str]:
    return {key: status for key, status in statuses(run).items() if status == "ok"}


class Killed(BaseException):
    """Nobody expects it, so nobody tidies up."""


def cell(hidden, status="ok"):
    return Record("a", Shape(hidden, 1, 1, 1), 1, 1, status, group=f"group {hidden}")


def write_a_run(folder):
    """One line of every kind, and then some."""
    manifest = {"plan": {"name": "g"}, "machine": {}, "started_at": "2026-01-01"}
    with store.Store.create(folder, manifest) as sink:
        sink.append(cell(1), [Block(1, [10], 10, 1, 0.1, 0.1, 0)], Profile("fake", "cpu", 1))
        sink.append(cell(2, "crashed"), [])
        sink.append(cell(3), [Block(1, [20], 20, 1, 0.1, 0.1, 0)])
        sink.append_lines("legs.jsonl", {"wall_s": 1.0, "timed_s": 0.5})


@pytest.fixture
def disk(monkeypatch, tmp_path):
    """Every write and fsync of the store, in order, as (file, bytes or None)."""
    done, write, fsync = [], os.write, os.fsync

    def name(fd):
        return Path(os.readlink(f"/proc/self/fd/{fd}")).name

    def written(fd, data):
        done.append((name(fd), data))
        return write(fd, data)

    def flushed(fd):
        done.append((name(fd), None))
        return fsync(fd)

    monkeypatch.setattr(store.os, "write", written)
    monkeypatch.setattr(store.os, "fsync", flushed)
    return done


def test_every_line_is_on_the_disk_before_the_next_is_written(disk, tmp_path):
    """And the samples and the profile of a cell before the line that makes it finished."""
    write_a_run(tmp_path / "r")
    manifest, folder, *lines = disk
    assert (manifest, folder) == (("manifest.json.new", None), ("r", None))
    names = [name.removesuffix(".jsonl") for name, data in lines[::2]]
    assert names == ["samples", "profiles", "records", "records", "samples", "records", "legs"]
    assert lines[1::2] == [(name, None) for name, _ in lines[::2]]
    assert all(data.index(b"\n") == len(data) - 1 for _, data in lines[::2])


def test_a_run_that_is_torn_at_any_byte_can_be_read_and_goes_on(disk, tmp_path, monkeypatch):
    write_a_run(tmp_path / "r")
    manifest = (tmp_path / "r" / "manifest.json").read_bytes()
    lines = [(name, data) for name, data in disk if data]
    monkeypatch.setattr(store.os, "fsync", lambda fd: None)  # nobody pulls the plug
    folder = tmp_path / "torn"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(manifest)
    whole = dict.fromkeys(dict(lines), b"")
    for name, line in lines:
        for length in range(len(line) + 1):
            (folder / name).write_bytes(whole[name] + line[:length])
            if length == len(line):
                whole[name] += line
            actual = store.read_records(folder)
            assert len(actual) == whole["records.jsonl"].count(b"\n")
            sampled = [record.shape.hidden for record, _ in store.read_blocks(folder)]
            assert sampled == [
                n for n in (1, 3) if any(r.shape.hidden == n for r in actual.values())
            ]
            store.read_profiles(folder)
            with store.Store(folder):
                os.close(store._open_whole_lines(folder / name))  # as each is before it grows
            assert (folder / name).read_bytes() == whole[name]
    with store.Store(folder) as sink:
        sink.append(cell(4), [])
    assert len(store.read_records(folder)) == 4


@pytest.mark.parametrize("length", [0, 20, 10**6], ids=["before", "within", "after"])
def test_a_manifest_that_is_torn_is_none(tmp_path, monkeypatch, length):
    """The run has not begun: it can be begun."""

    def killed(fd):
        os.ftruncate(fd, min(length, os.fstat(fd).st_size))
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(store.os, "fsync", killed)
        patched.setattr(store.fcntl, "flock", lambda *_: None)  # it would go with its process
        with pytest.raises(Killed):
            write_a_run(tmp_path / "r")
    assert not (tmp_path / "r" / "manifest.json").exists()
    write_a_run(tmp_path / "r")
    assert len(store.read_records(tmp_path / "r")) == 3


def test_a_grid_that_is_killed_at_any_write_goes_on_to_the_same_end(
    lstm_bench, write_grid, tmp_path, monkeypatch
):
    grid = write_grid(fake=FAKES, implementations=list(NAMES), hidden=[3, 5], controls=1)
    lstm_bench("grid", grid, "--run", "undisturbed", "--profile")
    expected = statuses(tmp_path / "results" / "undisturbed")
    write, fatal = os.write, 0
    while True:
        run, left = tmp_path / "results" / f"killed-{fatal}", [fatal]

        def written(fd, data, left=left):
            left[0] -= 1
            if left[0] < 0:
                write(fd, data[: len(data) // 2])
                raise Killed
            return write(fd, data)

        with monkeypatch.context() as patched:
            patched.setattr(store.os, "write", written)
            try:
                lstm_bench("grid", grid, "--run", run.name, "--profile")
                break  # it has not so many writes
            except Killed:
                pass
        before = finished(run)
        assert lstm_bench("grid", "--resume", run.name).returncode == 0
        assert before.items() <= finished(run).items(), "a finished cell was lost"
        assert statuses(run) == expected
        fatal += 1
    assert fatal > 2 * len(expected)


@pytest.fixture
def grid(write_grid):
    return write_grid(fake=FAKES, implementations=list(NAMES), hidden=list(SHAPES), controls=1)


@pytest.fixture(scope="module")
def ends() -> dict[str, dict[tuple[object, ...], str]]:
    """Filled by the first who asks how a run that nobody disturbs ends."""
    return {}


@pytest.fixture
def undisturbed(grid, ends, lstm_bench, tmp_path):
    """How a run that nobody disturbs ends."""
    if "undisturbed" not in ends:
        assert lstm_bench("grid", grid, "--run", "undisturbed").returncode == 0
        ends["undisturbed"] = statuses(tmp_path / "results" / "undisturbed")
    return ends["undisturbed"]


def kill(process, workers, rng):
    """Kill the run, or only one of its workers."""
    if workers and rng.random() < 0.4:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)
    else:
        process.kill()


def wait_for_a_handler(process):
    """Python that is still starting does not end in order."""
    term = 1 << signal.SIGTERM - 1
    while process.poll() is None and not term & handled(process.pid):
        time.sleep(0.001)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_disturbed_at_random_moments_it_loses_no_finished_cell(
    lstm_bench, grid, undisturbed, request, tmp_path, number
):
    """Killed, or stopped: then it ends in order."""
    rng, kills = random.Random(number), request.config.getoption("--kills")
    done, arguments = True, []
    for times in range(kills if number == signal.SIGKILL else max(3, kills // 8)):
        if done:
            run = tmp_path / "results" / f"r{times}"
            arguments = ["grid", grid, "--run", run.name]
        process = start(tmp_path, *arguments)
        if number != signal.SIGKILL:
            wait_for_a_handler(process)
        time.sleep(rng.uniform(0.0, rng.choice((0.4, 1.5))))
        before, lines, workers = finished(run), whole_lines(run), children(process.pid)
        if number == signal.SIGKILL:
            kill(process, workers, rng)
        else:
            process.send_signal(number)
        _, errors = process.communicate(timeout=120)
        assert gone([process.pid, *workers]), "somebody was left behind"
        assert whole_lines(run)[: len(lines)] == lines, "what was written has changed"
        assert before.items() <= finished(run).items(), "a finished cell was lost"
        if number != signal.SIGKILL:
            assert process.returncode in (0, 128 + number, -number)
            assert "Traceback" not in errors or "Exception ignored" in errors  # as Python ends
        if (run / "manifest.json").exists():
            arguments = ["grid", "--resume", run.name, "--retry-failed"]
        done = finished(run) == undisturbed
    if (run / "manifest.json").exists():
        assert lstm_bench("grid", "--resume", run.name, "--retry-failed").returncode == 0
        assert statuses(run) == undisturbed
