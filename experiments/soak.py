"""Does a long run stay as light as a short one? A grid of fakes, watched from outside.

    python experiments/soak.py [SECONDS]

Runs `fake` cells for an hour, then stops the grid as Ctrl-C would. Prints, along the way, the
memory and the open files of driver and workers and how many cells a second were finished; then what
one append to the store costs while its file grows to 50,000 records.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from lstm_bench.model.types import Block, Record, Shape
from lstm_bench.runs.store import Store

LINES = 12  # of the table


def grid() -> dict[str, object]:
    fakes = {f"fake-{n}": {"process": f"p{n}", "noise": 0.01} for n in range(2)}
    shapes = [[h, b, t] for h in range(1, 51) for b in range(1, 51) for t in range(1, 14)]
    sampling = {"rounds": 20, "max_rounds": 30}
    return {
        "shapes": shapes,
        "implementations": list(fakes),
        "fake": fakes,
        "device": "cpu",
        "controls": 1,
        "sampling": sampling,
    }


def processes(driver: int) -> list[int]:
    """The driver and its workers."""
    result = [driver]
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == driver:
            result.append(int(status.parent.name))
    return result


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20


def lines_of(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0


def watch(seconds: float, folder: Path) -> None:
    (folder / "soak.yaml").write_text(yaml.safe_dump(grid()))
    command = [sys.executable, "-m", "lstm_bench", "grid", "soak.yaml", "--run", "soak"]
    with (folder / "out").open("w") as out:
        driver = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
    started, before = time.monotonic(), 0
    print("minutes   cells  cells/s   driver MiB  files   workers MiB  files")
    for line in range(LINES):
        time.sleep(max(0.0, started + seconds * (line + 1) / LINES - time.monotonic()))
        cells = lines_of(folder / "results/soak/records.jsonl")
        own, *workers = processes(driver.pid)
        files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (own, *workers)]
        memory = [resident_mib(pid) for pid in (own, *workers)]
        print(
            f"{(time.monotonic() - started) / 60:7.1f} {cells:7d} "
            f"{(cells - before) / (seconds / LINES):8.1f} {memory[0]:12.1f} {files[0]:6d}"
            f" {'+'.join(f'{m:.1f}' for m in memory[1:]):>13s} {'+'.join(map(str, files[1:])):>6s}",
            flush=True,
        )
        before = cells
    driver.send_signal(signal.SIGINT)
    print(f"stopped: exit code {driver.wait(60)}")


def appends(folder: Path, count: int = 50_000) -> None:
    blocks = [Block(n, [1000] * 20, 20000, 20, 0.1, 0.1, 0) for n in range(10)]
    manifest: dict[str, Any] = {"plan": {}, "machine": {}}
    costs = []
    with Store.create(folder / "appends", manifest) as store:
        for number in range(count):
            record = Record("fake", Shape(number + 1, 1, 1, 1), 1, 1, "ok")
            start = time.perf_counter()
            store.append(record, blocks)
            costs.append(time.perf_counter() - start)
    tenth = count // 10
    first, last = costs[:tenth], costs[-tenth:]
    print(
        f"append, fsync included: median {statistics.median(first) * 1e3:.2f} ms for the first"
        f" {tenth} records, {statistics.median(last) * 1e3:.2f} ms for the last {tenth} of {count}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seconds", type=float, nargs="?", default=3600.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="lstm-bench-soak-") as folder:
        watch(seconds, Path(folder))
        appends(Path(folder))


if __name__ == "__main__":
    main()
