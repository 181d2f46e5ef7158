"""Layers of real models on a GPU: nn.LSTM and ours, both as called and both in a CUDA graph.

    python experiments/real_layers.py [NAME ...]

A line of JSON for each: microseconds (the median of 15 calls after two; packed: lengths from 0.3 to
1 of the timesteps), how far the outputs are apart, the seconds until the first answer; then the
geometric means. Exit code 1 if a call of ours took nn.LSTM's path or its outputs are too far from
nn.LSTM's. The layers are those of voice activity detection, speech, basecalling, OCR, diarisation,
text to speech and RL, by their sizes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils.rnn import pack_padded_sequence

import lstm_kernels

LAYERS = [  # name, input, hidden, layers, directions, batch, timesteps, precision
    ("vad-step", 128, 128, 1, 1, 1, 1, "fp32"),
    ("vad-chunk", 128, 128, 1, 1, 1, 32, "fp32"),
    ("rnnt-step", 640, 640, 1, 1, 1, 1, "fp32"),
    ("rnnt-step-16", 640, 640, 1, 1, 16, 1, "fp16"),
    ("rnnt-encoder", 240, 1024, 2, 1, 1, 200, "fp16"),
    ("basecall-hac", 384, 384, 5, 1, 256, 1666, "fp16"),
    ("basecall-fast", 96, 96, 5, 1, 512, 1666, "fp16"),
    ("basecall-sup", 768, 768, 5, 1, 256, 1000, "fp16"),
    ("tts", 640, 256, 1, 2, 1, 300, "fp32"),
    ("ocr", 256, 256, 2, 2, 16, 80, "fp32"),
    ("ocr-tf32", 256, 256, 2, 2, 16, 80, "tf32"),
    ("pyannote", 60, 128, 4, 2, 32, 589, "fp32"),
    ("pyannote-tf32", 60, 128, 4, 2, 32, 589, "tf32"),
    ("speech-5", 800, 800, 5, 2, 8, 400, "fp16"),
    ("r2d2", 512, 512, 1, 1, 64, 80, "fp32"),
    ("r2d2-tf32", 512, 512, 1, 1, 64, 80, "tf32"),
    ("language-model", 512, 2048, 1, 1, 16, 50, "fp16"),
]
#: How far nn.LSTM's outputs and ours may be apart, both of them rounded.
APART = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 2e-2}


def timed_us(call: Callable[[], Any], calls: int = 15, most_s: float = 2.0) -> float:
    """The median of some calls that are waited for."""
    call(), call()
    torch.cuda.synchronize()
    took: list[float] = []
    while len(took) < calls and sum(took) < most_s:
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        took.append(time.perf_counter() - start)
    return statistics.median(took) * 1e6


def in_graph(call: Callable[[], Any]) -> tuple[Callable[[], Any], Any]:
    """A call that replays it, and its outputs."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(), call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = call()
    return graph.replay, outputs


def measured(name: str, *sizes: Any) -> dict[str, Any]:
    width, hidden, layers, directions, batch, timesteps, precision = sizes
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    kind = torch.float16 if precision == "fp16" else torch.float32
    plain = torch.nn.LSTM(
        width, hidden, layers, bidirectional=directions == 2, device="cuda", dtype=kind
    )
    x = torch.randn(timesteps, batch, width, device="cuda", dtype=kind)
    row: dict[str, Any] = {"layer": name}
    row["nn.LSTM"] = timed_us(lambda: plain(x))
    row["nn.LSTM graph"] = timed_us(in_graph(lambda: plain(x))[0])
    before = lstm_kernels.calls()
    start = time.perf_counter()
    ours = lstm_kernels.LSTM.like(plain)
    y = ours(x)[0]
    lstm_kernels.synchronize()
    row["first_s"] = time.perf_counter() - start
    row["ours"] = timed_us(lambda: ours(x))
    replay, (again, _) = in_graph(lambda: ours(x))
    row["ours graph"] = timed_us(replay)
    lstm_kernels.synchronize()
    want = plain(x)[0].float()
    row["apart"] = max(float((each.float() - want).abs().max()) for each in (y, again))
    row["path"] = ours.explain(x)
    if directions == 2:
        lengths = torch.linspace(1.0, 0.3, batch).mul(timesteps).int().tolist()
        packed = pack_padded_sequence(x, lengths)
        row["nn.LSTM packed"] = timed_us(lambda: plain(packed))
        row["ours packed"] = timed_us(lambda: ours(packed))
    paths = set(Counter(lstm_kernels.calls()) - Counter(before))
    if paths != {"kernels"} or not row["apart"] <= APART[precision]:
        row["fault"] = ", ".join(paths - {"kernels"}) or "wrong"
    return {key: round(v, 6) if isinstance(v, float) else v for key, v in row.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="only these layers")
    wanted = parser.parse_args().names
    called, graphs, faults = [], [], 0
    for name, *sizes in LAYERS:
        if wanted and name not in wanted:
            continue
        with torch.no_grad():
            row = measured(str(name), *sizes)
        print(json.dumps(row), flush=True)
        faults += "fault" in row
        called.append(row["nn.LSTM"] / row["ours"])
        graphs.append(row["nn.LSTM graph"] / row["ours graph"])
        torch.cuda.empty_cache()
    means = map(statistics.geometric_mean, (called, graphs))
    print("as called {:.2f}x, in a graph {:.2f}x".format(*means), end="")
    print(f"; {len(called)} layers, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
