"""Kill a node of a Ray cluster in the middle of a grid, then the driver, then resume: is all there?

python experiments/cluster_loss.py [GRID] [-i ROWS] [--nodes N]

The nodes are processes of this machine, each with all of its cores: times are worth nothing here,
the set of cells is what counts. Needs the extra `ray`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT_S = 900.0


def cells(run: Path) -> dict[str, str]:
    """The status of every cell by its key; the last record counts."""
    path = run / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    result = {}
    for record in (json.loads(line) for line in lines if line.endswith("\n")):
        shape = "-".join(map(str, record["shape"].values()))
        key = (record["implementation"], shape, record["pass_number"], record["copy"])
        result["/".join(map(str, key))] = record["status"]
    return result


def left_behind(before: set[int]) -> list[str]:
    """Agents and workers that were not there before."""
    result = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (path / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        ours = "lstm_bench.worker" in words or words.startswith("ray::RayAgent")
        if ours and int(path.name) not in before | {os.getpid()} and state != "Z":
            result.append(f"{path.name} {words[:100]}")
    return result


def processes() -> set[int]:
    return {int(path.name) for path in Path("/proc").glob("[0-9]*")}


def until(holds: Callable[[], bool], what: str) -> float:
    start = time.monotonic()
    while not holds():
        if time.monotonic() - start > LIMIT_S:
            raise SystemExit(f"waited {LIMIT_S:.0f} s for {what}")
        time.sleep(0.1)
    return time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("grid", nargs="?", default="default")
    parser.add_argument("-i", "--implementations", default="pytorch")
    parser.add_argument("--nodes", type=int, default=3)
    chosen = parser.parse_args()
    from ray.cluster_utils import Cluster

    before = processes()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder)
        base = [sys.executable, "-m", "lstm_bench", "grid"]
        flags = ["-i", chosen.implementations, "--fast", "--device", "cpu"]
        flags += ["--results", folder]

        def grid(*words: str, run: bool = True) -> Any:
            line = [*base, *words, "--results", folder]
            if not run:
                return subprocess.Popen(line, stdout=subprocess.DEVNULL, start_new_session=True)
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            print(f"  exit code {done.returncode}", *done.stderr.splitlines()[-3:], sep="\n    ")
            return done

        print("without Ray")
        start = time.monotonic()
        grid(chosen.grid, *flags, "--run", "plain")
        print(f"  {len(cells(results / 'plain'))} cells in {time.monotonic() - start:.0f} s")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        more = [cluster.add_node(num_cpus=os.cpu_count()) for _ in range(chosen.nodes)]
        address = cluster.address
        print(f"over {chosen.nodes} nodes")
        start = time.monotonic()
        grid(chosen.grid, *flags, "--run", "whole", "--ray", address)
        print(f"  {len(cells(results / 'whole'))} cells in {time.monotonic() - start:.0f} s")
        print("over the same nodes, with a node and the driver killed")
        run = results / "killed"
        cluster_run = grid(chosen.grid, *flags, "--run", "killed", "--ray", address, run=False)
        until(lambda: len(cells(run)) > 0, "the first shape")
        for each in more[-1].all_processes["raylet"]:
            os.kill(each.process.pid, signal.SIGKILL)
        seen = len(cells(run))
        print(f"  a node killed with SIGKILL after {seen} cells")
        until(lambda: len(cells(run)) > seen or cluster_run.poll() is not None, "another shape")
        seen = len(cells(run))
        os.kill(cluster_run.pid, signal.SIGKILL)
        cluster_run.wait()
        print(f"  the driver killed with SIGKILL after {seen} cells")
        gone = until(lambda: not left_behind(before), "the end of agents and workers")
        print(f"  no agent and no worker was left after {gone:.1f} s")
        kept = cells(run)
        grid("--resume", "killed", "--ray", address)
        cluster.shutdown()
        result = {name: cells(results / name) for name in ("plain", "whole", "killed")}
        for name, own in result.items():
            print(f"{name}: {len(own)} cells, {sum(s == 'ok' for s in own.values())} ok")
        print("same cells:", len({frozenset(own) for own in result.values()}) == 1)
        print("lost by the kills:", len([key for key in kept if key not in result["killed"]]))
    until(lambda: not left_behind(before), "the end of all processes")
    print("no process was left behind")


if __name__ == "__main__":
    main()
