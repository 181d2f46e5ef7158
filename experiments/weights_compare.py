"""The cost of comparing all weights on the GPU before a call, in a CUDA graph.

    python experiments/weights_compare.py [NAME ...]

Writes through `.data` and by replayed graphs leave no mark, so a layer that must see them has to
read its weights at each call. For the layers of real_layers.py, a line of JSON for each: the median
latency in a CUDA graph, in microseconds, of the layer alone, with the sum of all weights before it
(the least that a checksum takes: they are read once), and with their scalar product with a copy
(the least that a compare takes: both are read). Then the ratios' geometric means.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import torch
from real_layers import LAYERS, in_graph, timed_us

import lstm_kernels


def measured(name: str, *sizes: Any) -> dict[str, Any]:
    width, hidden, layers, directions, batch, timesteps, precision = sizes
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    like = {"device": "cuda", "dtype": torch.float16 if precision == "fp16" else torch.float32}
    layer = lstm_kernels.LSTM(width, hidden, layers, bidirectional=directions == 2, **like)
    x = torch.randn(timesteps, batch, width, **like)
    flat = torch.cat([weight.flatten() for weight in layer.parameters()])
    copy, result = flat.clone(), torch.empty((), **like)
    row: dict[str, Any] = {"layer": name, "MB": flat.numel() * flat.element_size() / 1e6}
    ways = {
        "alone": lambda: None,
        "sum": lambda: torch.sum(flat, 0, out=result),
        "product": lambda: torch.dot(flat, copy, out=result),
    }
    for way, read in ways.items():

        def call(read: Any = read) -> None:
            read()
            layer(x)

        row[way] = timed_us(in_graph(call)[0], calls=100)
    lstm_kernels.synchronize()
    if layer.explain(x).startswith("nn.LSTM"):
        raise RuntimeError(f"{name}: {layer.explain(x)}")
    return {key: round(v, 2) if isinstance(v, float) else v for key, v in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="only these layers")
    wanted = parser.parse_args().names
    rows = []
    for name, *sizes in LAYERS:
        if not wanted or name in wanted:
            with torch.no_grad():
                rows.append(measured(str(name), *sizes))
            print(json.dumps(rows[-1]), flush=True)
            torch.cuda.empty_cache()
    for way in ("sum", "product"):
        mean = statistics.geometric_mean(row[way] / row["alone"] for row in rows)
        print(f"with the {way}: {mean:.3f} times the latency")


if __name__ == "__main__":
    main()
