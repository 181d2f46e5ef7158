"""How long `report` and `compare` take on a run of 100,000 records, and how much memory.

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

NAMES = [f"row-{n}" for n in range(10)]
COMMANDS = (["report"], ["report", "--mpe"], ["compare", "row-1", "row-2"])


def write(folder: Path, records: int) -> None:
    rng = random.Random(1)
    shapes = records // (len(NAMES) + 1)
    rows = [{"name": n, "framework": "fake", "precision": "fp32", "module": "fake"} for n in NAMES]
    sizes = [
        {"hidden": 1 + n % 100, "batch": 1 + n // 100, "timesteps": 10, "input_size": 1 + n % 100}
        for n in range(shapes)
    ]
    plan = {
        **{"name": "large", "shapes": sizes, "implementations": rows, "sampling": {}},
        **{"settings": {"device": "cpu", "threads": 2, "seed": 1}},
        **{"passes": 1, "controls": 1, "environments": {}},
    }
    folder.mkdir(parents=True)
    manifest = {"plan": plan, "machine": {"cpu": "made up"}, "started_at": "2026-01-01"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with (folder / "records.jsonl").open("w") as file:
        for number, shape in enumerate(sizes):
            base = rng.lognormvariate(-6, 1)
            cells = [(name, 1) for name in NAMES] + [(NAMES[number % len(NAMES)], 2)]
            for name, copy in cells:
                true_s = base * (1 + 0.1 * NAMES.index(name))
                rounds = [true_s * rng.gauss(1, 0.01) for _ in range(10)]
                record = {
                    **{"implementation": name, "shape": shape, "pass_number": 1, "copy": copy},
                    **{"status": "ok", "reason": "", "framework": "fake", "computes": "lstm"},
                    **{"precision": "fp32", "device": "cpu", "threads": 2, "path": "made up"},
                    **{"latency_s": sorted(rounds)[5], "throughput_s": sorted(rounds)[4]},
                    **{"first_call_s": 0.1, "build_s": 0.1, "rounds": 10, "calls": 200},
                    **{"round_latency_s": rounds, "round_throughput_s": rounds[::-1]},
                    "check": {"max_abs_error": 1e-7, "tolerance": 5e-5, "passed": True},
                    **{"memory": {"weights": 1, "inputs": 1}, "versions": {"fake": "1"}},
                    **{"warnings": ["not converged: made up"], "group": str(number)},
                }
                file.write(json.dumps(record, separators=(",", ":")) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", type=int, nargs="?", default=100_000)
    records = parser.parse_args().records
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "large"
        write(run, records)
        for command in COMMANDS:
            line = [sys.executable, "-m", "lstm_bench", *command, "--run", str(run)]
            start = time.perf_counter()
            subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
            print(f"{' '.join(command):24s} {time.perf_counter() - start:.2f} s")
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
        print(f"{records} records, at most {most:.0f} MiB")


if __name__ == "__main__":
    main()
