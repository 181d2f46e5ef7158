"""How far do processes of the same PyTorch lie apart, and why? Fresh processes in turns.

    python experiments/process_luck.py [--processes 6] [--rounds 20] [H,B,T ...]

Every process builds the layer twice. All of them take turns, one thread each, in blocks of 12 ms.
`plain` is as anyone starts Python; `keep` tells glibc's allocator to keep the memory that it has
(MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_); `fixed` goes without random addresses. Printed:
what a kind takes against all others, by how much (one standard deviation) its processes differ, and
two builds in one process; and the page faults of a call, process by process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from typing import Any

import numpy as np

KEEP = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "plain": ([], {}),
    "keep": ([], KEEP),
    "fixed": (["setarch", "-R"], {}),
}
SHAPES = ["64,1,10", "128,1,50", "256,1,10", "256,16,10"]

WORKER = """
import json, resource, sys, time, torch
torch.set_num_threads(1)
def built(hidden, batch, timesteps):
    state = (torch.randn(1, batch, hidden), torch.randn(1, batch, hidden))
    return torch.nn.LSTM(hidden, hidden).eval(), torch.randn(timesteps, batch, hidden), state
def called(layer, x, state, seconds):
    took, end = [], time.perf_counter() + seconds
    while not took or start < end:
        start = time.perf_counter()
        layer(x, state)
        took.append(time.perf_counter() - start)
    return sorted(took)
with torch.inference_mode():
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, list):
            layers = [built(*asked) for _ in range(2)]
            answer = [len(called(*layer, 0.15)) for layer in layers]
        else:
            called(*layers[asked], 0.003)
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            took = called(*layers[asked], 0.012)
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
            answer = [took[len(took) // 2], faults / len(took)]
        print(json.dumps(answer), flush=True)
"""


def started(kind: str) -> subprocess.Popen[str]:
    before, variables = KINDS[kind]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **variables}
    command, pipe = [*before, sys.executable, "-c", WORKER], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)


def asked(process: subprocess.Popen[str], what: Any) -> Any:
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def measured(processes: list[subprocess.Popen[str]], shape: list[int], rounds: int) -> Any:
    """Seconds and page faults of a call, by process, build and round."""
    for process in processes:
        asked(process, shape)
    result = np.empty((2, len(processes), 2, rounds))
    order = [(p, build) for p in range(len(processes)) for build in range(2)]
    for number in range(rounds):
        random.shuffle(order)
        for p, build in order:
            result[:, p, build, number] = asked(processes[p], build)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    given = parser.parse_args()
    kinds = [kind for kind in KINDS if all(map(shutil.which, KINDS[kind][0][:1]))]
    names = kinds * given.processes
    processes = [started(kind) for kind in names]
    for shape in given.shapes:
        sizes = [int(size) for size in shape.split(",")]
        seconds, faults = measured(processes, sizes, given.rounds)
        logs = np.log(seconds) - np.median(np.log(seconds), axis=(0, 1))
        levels, per_call = np.median(logs, axis=2), np.median(faults, axis=2)
        print(f"{shape}: {np.median(seconds) * 1e6:.0f} us a call")
        for kind in kinds:
            mine = [n for n, name in enumerate(names) if name == kind]
            own = levels[mine]
            apart = own.mean(axis=1).std(ddof=1)
            builds = np.sqrt(np.mean((own[:, 0] - own[:, 1]) ** 2) / 2)
            words = " ".join(f"{each:.0f}" for each in per_call[mine, 0])
            print(
                f"  {kind:5} {np.expm1(own.mean()):+6.1%}; processes differ by {apart:.1%},"
                f" builds by {builds:.1%}; page faults {words}"
            )
    for process in processes:
        process.communicate()


if __name__ == "__main__":
    main()
