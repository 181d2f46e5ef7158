"""Kill it anywhere: 200 times SIGKILL, 50 times SIGINT and SIGTERM, and nothing is lost."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import command, start

KILLS, STOPS = 200, 50
NAMES = ("one", "two")
SHAPES = range(1, 31)
FAKES = {name: {"process": name, "noise": 0.01} for name in NAMES}


def status_of(pid: int) -> list[str]:
    """State, parent, process group, session; nothing for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def children(pid: int) -> list[int]:
    pids = (int(p.name) for p in Path("/proc").glob("[0-9]*"))
    return [child for child in pids if status_of(child)[1:2] == [str(pid)]]


def groups(pids: list[int]) -> set[str]:
    """The process groups that still have somebody in them, of those that `pids` led."""
    everybody = (status_of(int(p.name)) for p in Path("/proc").glob("[0-9]*"))
    living = {found[2] for found in everybody if found and found[0] != "Z"}
    return living & set(map(str, pids))


def gone(pids: list[int]) -> bool:
    """Whether all of these, and all that they started, are gone within a few seconds."""
    for _ in range(250):
        if not groups(pids):
            return True
        time.sleep(0.02)
    return False


def whole_lines(run: Path) -> list[bytes]:
    path = run / "records.jsonl"
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1].splitlines()


def statuses(run: Path) -> dict[tuple[object, ...], str]:
    """What every cell ended as; the last record counts."""
    return {
        (r["implementation"], *r["shape"].values(), r["copy"], r["pass_number"]): r["status"]
        for r in map(json.loads, whole_lines(run))
    }


def finished(run: Path) -> dict[tuple[object, ...], str]:
    return {key: status for key, status in statuses(run).items() if status == "ok"}


@pytest.fixture
def grid(write_grid):
    return write_grid(fake=FAKES, implementations=list(NAMES), hidden=list(SHAPES), controls=1)


@pytest.fixture
def undisturbed(grid, tmp_path):
    """What a run that nobody disturbs ends with."""
    line = command("grid", grid, "--run", "undisturbed")
    subprocess.run(line, cwd=tmp_path, capture_output=True, check=True)
    return statuses(tmp_path / "results" / "undisturbed")


def test_200_kills_at_random_moments_lose_no_finished_cell(grid, undisturbed, tmp_path):
    rng = random.Random(20210)
    kills = runs = 0
    while kills < KILLS:
        runs += 1
        run = tmp_path / "results" / f"r{runs}"
        arguments = ["grid", grid, "--run", run.name]
        while kills < KILLS:
            process = start(tmp_path, *arguments)
            time.sleep(rng.choice((rng.uniform(0.0, 0.4), rng.uniform(0.3, 1.2))))
            before, lines = finished(run), whole_lines(run)
            workers = children(process.pid)
            if workers and rng.random() < 0.4:
                try:
                    os.kill(rng.choice(workers), signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.communicate(timeout=120)
            else:
                process.kill()
                process.communicate()
            kills += 1
            assert gone(workers), "a worker outlived its driver"
            assert whole_lines(run)[: len(lines)] == lines, "what was written has changed"
            for line in whole_lines(run):
                json.loads(line)
            assert before.items() <= finished(run).items(), "a finished cell was lost"
            if (run / "manifest.json").exists():
                arguments = ["grid", "--resume", run.name, "--retry-failed"]
            if finished(run) == undisturbed:
                break
        if (run / "manifest.json").exists():
            line = command("grid", "--resume", run.name, "--retry-failed")
            subprocess.run(line, cwd=tmp_path, capture_output=True, check=True)
            assert statuses(run) == undisturbed
    assert kills == KILLS


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_stopped_at_25_random_moments_it_ends_in_order(grid, undisturbed, tmp_path, number, code):
    rng = random.Random(code)
    run = tmp_path / "results" / "r"
    arguments = ["grid", grid, "--run", "r"]
    for _ in range(STOPS // 2):
        process = start(tmp_path, *arguments)
        time.sleep(rng.uniform(0.3, 1.5))
        workers, before = children(process.pid), finished(run)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert "Traceback" not in errors
        assert gone([process.pid, *workers]), "somebody was left behind"
        assert before.items() <= finished(run).items()
        if process.returncode == 0:  # it was done before the signal came
            assert statuses(run) == undisturbed
            run = tmp_path / "results" / f"r{time.monotonic_ns()}"
            arguments = ["grid", grid, "--run", run.name]
            continue
        # a signal before Python has set up its handlers ends it the plain way
        assert process.returncode in (code, -number)
        if (run / "manifest.json").exists():
            arguments = ["grid", "--resume", run.name]
    if (run / "manifest.json").exists():
        line = command("grid", "--resume", run.name)
        subprocess.run(line, cwd=tmp_path, capture_output=True, check=True)
        assert statuses(run) == undisturbed
