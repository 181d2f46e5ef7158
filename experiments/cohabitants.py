"""Does PyTorch's LSTM become slower by what else its process holds? Fresh processes in turns.

    python experiments/cohabitants.py [--processes 3] [--rounds 30] [H,B,T ...]

Every process builds `nn.LSTM`, on the GPU if there is one, and then does one thing more: nothing;
have its operators seen by PyTorch's old profiler, or by today's, of the CPU alone or whole, or its
kernels by lstm-bench's own use of CUPTI; capture a graph of a call; run the layer in half
precision, by TorchScript, by torch.compile or by our drop-in. `all` does all of that, where CUPTI,
which is detached, undoes what the profilers did. Then they take turns, in blocks of 10 ms. Printed:
the latency against the processes that did nothing more, of a kind and of each of its processes. In
a grid all implementations of PyTorch share a process.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from typing import Any

import numpy as np

from lstm_bench.report.document import Table, number, text

SHAPES = ["512,1,100", "256,16,25"]
WITH_GPU = ("CUPTI", "graph", "drop-in")
KINDS = {
    "nothing": "",
    "old profiler": """
for _ in range(30):
    with torch.autograd.profiler_legacy.profile(): layer(x, state)
""",
    "CPU profile": """
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]): layer(x, state)
""",
    "profile": "with torch.profiler.profile(): layer(x, state)",
    "CPU profiles": """
for _ in range(30):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]): layer(x, state)
""",
    "CUPTI": """
from lstm_bench.worker import cupti
cupti.collect(lambda: layer(x, state), wait, 3, 1)
""",
    "graph": """
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph): layer(x, state)
graph.replay()
""",
    "half": """
other = torch.nn.LSTM(hidden, hidden).to(device, torch.bfloat16 if device == "cpu" else torch.half)
other(x.to(other.weight_ih_l0.dtype))
""",
    "trace": "torch.jit.trace(layer, (x, state), check_trace=False)(x, state)",
    "compile": """
torch._dynamo.config.allow_rnn = True
torch.compile(torch.nn.LSTM(8, 8).to(device))(torch.randn(2, 1, 8, device=device))
""",
    "drop-in": """
from lstm_kernels import LSTM
LSTM.like(layer, "fp32")(x, state)
""",
}

WORKER = """
import json, sys, time, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cudnn.allow_tf32 = False
torch.set_num_threads(1)
wait = torch.cuda.synchronize if device == "cuda" else lambda: None
def called(seconds):
    took, end = [], time.perf_counter() + seconds
    while not took or start < end:
        start = time.perf_counter()
        layer(x, state)
        wait()
        took.append(time.perf_counter() - start)
    return sorted(took)[len(took) // 2]
with torch.inference_mode():
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, dict):
            hidden, batch, timesteps = asked["shape"]
            layer = torch.nn.LSTM(hidden, hidden).to(device).eval()
            x = torch.randn(timesteps, batch, hidden, device=device)
            state = tuple(torch.randn(1, batch, hidden, device=device) for _ in range(2))
            called(0.1)
            for more in asked["more"]:
                exec(more, globals())
            answer = called(0.1)
        else:
            called(0.003)
            answer = called(asked)
        print(json.dumps(answer), file=sys.__stdout__, flush=True)
"""


def ask(process: subprocess.Popen[str], what: Any) -> None:
    assert process.stdin
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()


def answered(process: subprocess.Popen[str]) -> Any:
    assert process.stdout
    answer = process.stdout.readline()
    if not answer:
        raise SystemExit("a process ended early: see what it said above")
    return json.loads(answer)


def has_gpu() -> bool:
    command = [sys.executable, "-c", "import torch; print(torch.cuda.is_available())"]
    return "True" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def measured(shape: str, kinds: dict[str, list[str]], processes: int, rounds: int) -> Any:
    """Logarithms of the latency, by process and round."""
    pipe, sizes = subprocess.PIPE, [int(size) for size in shape.split(",")]
    command = [sys.executable, "-c", WORKER]
    alive = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in [*kinds] * processes
    ]
    try:
        for process, more in zip(alive, [*kinds.values()] * processes, strict=True):
            ask(process, {"shape": sizes, "more": more})  # all of them set up at once
        for process in alive:
            answered(process)
        result = np.empty((len(alive), rounds))
        for turn in range(rounds):
            for place in random.sample(range(len(alive)), len(alive)):
                ask(alive[place], 0.01)
                result[place, turn] = answered(alive[place])
    finally:
        for process in alive:
            process.kill()
    return np.log(result)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=3, help="of each kind")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    given = parser.parse_args()
    gpu = has_gpu()
    kinds = {name: [more] for name, more in KINDS.items() if gpu or name not in WITH_GPU}
    kinds["all"] = [more for own in kinds.values() for more in own]
    for shape in given.shapes:
        logs = measured(shape, kinds, given.processes, given.rounds)
        levels = np.median(logs - np.median(logs, axis=0), axis=1).reshape(-1, len(kinds))
        ratios = np.exp(levels - np.median(levels[:, 0]))
        rows = [
            {
                "kind": name,
                "over": np.median(ratios[:, at]),
                "each": " ".join(f"{ratio:.2f}" for ratio in sorted(ratios[:, at])),
            }
            for at, name in enumerate(kinds)
        ]
        columns = (
            text("besides the layer", "kind"),
            number("latency over nothing", "over", lambda ratio: f"{ratio:.2f}x"),
            text("process by process", "each"),
        )
        print(f"{shape}: {np.exp(np.median(logs)) * 1e6:.0f} us a call")
        print(Table("cohabitants", rows, columns).drawn())


if __name__ == "__main__":
    main()
