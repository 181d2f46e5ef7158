"""Measure how long `report` and `compare` take on a run of 100,000 records, and how much memory.

python experiments/large_run.py [RECORDS]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from lstm_bench.model.types import Check, Record, Shape, to_json

NAMES = [f"row-{n}" for n in range(10)]
LOAD = "import sys, lstm_bench; lstm_bench.load(sys.argv[1])"
REPORTS = (["report"], ["report", "--mpe"], ["compare", "row-1", "row-2"])


def write(folder: Path, records: int) -> None:
    rng = random.Random(1)
    rows = [{"name": n, "framework": "fake", "precision": "fp32", "module": "fake"} for n in NAMES]
    shapes = [
        Shape(1 + n % 100, 1 + n // 100, 10, 1 + n % 100)
        for n in range(records // (len(NAMES) + 1))
    ]
    plan = {
        **{"name": "large", "shapes": list(map(to_json, shapes)), "implementations": rows},
        **{"settings": {"device": "cpu", "threads": 2, "seed": 1}, "sampling": {}},
        **{"passes": 1, "controls": 1, "environments": {}},
    }
    folder.mkdir(parents=True)
    manifest = {"plan": plan, "machine": {"cpu": "made up"}, "started_at": "2026-01-01"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with (folder / "records.jsonl").open("wb") as file:
        for number, shape in enumerate(shapes):
            base = rng.lognormvariate(-6, 1)
            cells = [(name, 1) for name in NAMES] + [(NAMES[number % len(NAMES)], 2)]
            for name, copy in cells:
                true_s = base * (1 + 0.1 * NAMES.index(name))
                rounds = [true_s * rng.gauss(1, 0.01) for _ in range(10)]
                record = Record(name, shape, 1, copy, "ok", framework="fake", precision="fp32")
                record.device, record.threads, record.path = "cpu", 2, "made up"
                record.latency_s, record.throughput_s = sorted(rounds)[5], sorted(rounds)[4]
                record.round_latency_s, record.round_throughput_s = rounds, rounds[::-1]
                record.rounds, record.calls = len(rounds), 200
                record.first_call_s = record.build_s = 0.1
                record.check = Check(1e-7, 1e-6, 5e-5, True)
                record.memory, record.versions = {"weights": 1, "inputs": 1}, {"fake": "1"}
                record.warnings, record.group = ["not converged: made up"], str(number)
                record.finished_at = f"2026-01-01T{number:08}"
                file.write(msgspec.json.encode(record) + b"\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", type=int, nargs="?", default=100_000)
    records = parser.parse_args().records
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "large"
        write(run, records)
        lines = {"load": ["-c", LOAD, str(run)]}
        for report in REPORTS:
            lines[" ".join(report)] = ["-m", "lstm_bench", *report, "--run", str(run)]
        for name, line in lines.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *line], check=True, stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - start
            most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
            print(f"{name:24s} {seconds:5.1f} s, at most {most:.0f} MiB so far")


if __name__ == "__main__":
    main()
