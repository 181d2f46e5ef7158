"""What a new batch size costs: the first call beside the second, and the memory of 200 sizes.

    python experiments/new_batches.py [--hidden 1024] [--precision fp32] [--sizes 200]

Prints the seconds of the very first call, and milliseconds by batch size where a first call took
most; then bytes that PyTorch holds after one size and after all. For an empty cache set
XDG_CACHE_HOME to a new folder.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from typing import Any

import torch

import lstm_kernels
from lstm_kernels.stack import TYPES


def milliseconds(layer: Any, x: torch.Tensor) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    layer(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--precision", default="fp32", choices=TYPES)
    parser.add_argument("--sizes", type=int, default=200)
    parser.add_argument("--timesteps", type=int, default=10)
    chosen = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = chosen.precision == "tf32"
    torch.set_grad_enabled(False)
    made = {"device": "cuda", "dtype": TYPES[chosen.precision]}
    layer = lstm_kernels.LSTM(chosen.hidden, chosen.hidden, **made)
    sizes = random.Random(1).sample(range(1, 301), chosen.sizes)

    def x_of(batch: int) -> torch.Tensor:
        return torch.zeros(chosen.timesteps, batch, chosen.hidden, **made)

    x = x_of(sizes[0])
    print(f"the very first call: {milliseconds(layer, x) / 1e3:.2f} s", flush=True)
    held = torch.cuda.memory_allocated()
    rows = []
    for batch in sizes[1:]:
        x = x_of(batch)
        first = milliseconds(layer, x)
        second = min(milliseconds(layer, x) for _ in range(3))
        rows.append((first - second, batch, first, second, layer.explain(x)))
    print("batch  first, ms  another, ms  path")
    for _, batch, first, second, path in sorted(rows, reverse=True)[:8]:
        print(f"{batch:5} {first:10.2f} {second:12.2f}  {path}")
    extra = sorted(row[0] for row in rows)
    print(f"a first call took {extra[len(extra) // 2]:.2f} ms more in the median")
    for thread in threading.enumerate():
        if thread.name == "lstm_kernels":
            thread.join()
    del x
    now = torch.cuda.memory_allocated()
    print(f"bytes in use after one size {held / 1e6:.0f} MB, after {len(sizes)} {now / 1e6:.0f} MB")
    print(lstm_kernels.calls())


if __name__ == "__main__":
    main()
