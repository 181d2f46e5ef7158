"""Random configurations of lstm_kernels.LSTM on a GPU, each held against nn.LSTM in float64.

    python experiments/layer_sweep.py [CONFIGURATIONS] [--seconds S] [--seed N]

40 hidden sizes from 1 to 2100, 1 to 5 layers, one direction or two, four precisions, batch 1 to
300, odd inputs, with states or without. Prints what is wrong, and how many calls ran on the kernels
and on nn.LSTM's path, by the reason; exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import time

import torch

import lstm_kernels

HIDDEN = [1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 32, 40, 48, 63, 64, 65, 80, 96, 100]
HIDDEN += [128, 131, 160, 192, 200, 256, 257, 300, 320, 384]
HIDDEN += [400, 512, 600, 640, 768, 800, 1000, 1024, 1280, 2100]
#: The largest difference, of the largest value or of 1, and for each layer after the first again.
TOLERANCES = {"fp32": 3e-6, "tf32": 4e-3, "fp16": 4e-3, "bf16": 3e-2}
KINDS = {"fp16": torch.float16, "bf16": torch.bfloat16}
MOST_STEPS = 400_000_000  # batch x timesteps x hidden x hidden x layers: float64 takes its time


def check(rng: random.Random) -> str:
    """What is wrong with one configuration; empty if nothing is."""
    hidden, layers, both = rng.choice(HIDDEN), rng.randint(1, 5), rng.random() < 0.4
    batch = rng.choice([1, 2, 3, 8, 16, 31, 64, 100, 200, 300])
    width = rng.choice([1, 3, 17, 40, hidden, rng.randint(1, 700)])
    precision, timesteps = rng.choice([*TOLERANCES]), rng.choice([1, 2, 7, 20, 50])
    while timesteps > 1 and batch * timesteps * hidden**2 * layers * (1 + both) > MOST_STEPS:
        timesteps = (timesteps + 1) // 2
    first, bias, states = rng.random() < 0.5, rng.random() < 0.9, rng.random() < 0.5
    kind = KINDS.get(precision, torch.float32)
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    layer = lstm_kernels.LSTM(
        *(width, hidden, layers, bias, first), bidirectional=both, device="cuda", dtype=kind
    )
    shape = (batch, timesteps, width) if first else (timesteps, batch, width)
    x, hx = torch.randn(shape, device="cuda", dtype=kind), None
    if states:
        h0, c0 = torch.randn((2, layers * (1 + both), batch, hidden), device="cuda", dtype=kind)
        hx = h0, c0
    try:
        y, (h, c) = layer(x, hx)
        lstm_kernels.synchronize()
    except Exception as error:
        return f"{layer} {shape} {precision}: {type(error).__name__}: {error}"
    precise = torch.nn.LSTM.forward
    double = copy.deepcopy(layer).double()
    want_y, (want_h, want_c) = precise(double, x.double(), hx and tuple(s.double() for s in hx))
    for name, got, want in (("y", y, want_y), ("h", h, want_h), ("c", c, want_c)):
        apart = float((got.double() - want).abs().max() / want.abs().max().clamp(min=1))
        if (
            got.shape != want.shape
            or got.dtype != kind
            or not apart <= TOLERANCES[precision] * layers
        ):
            return f"{layer} {shape} {precision}: {name} is {apart:.1e} off, {layer.explain(x, hx)}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("configurations", nargs="?", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    rng, start = random.Random(chosen.seed), time.monotonic()
    torch.manual_seed(chosen.seed)
    lstm_kernels.LSTM.plans = 1
    wrong = done = 0
    while done < chosen.configurations and time.monotonic() - start < chosen.seconds:
        with torch.no_grad():
            fault = check(rng)
        if fault:
            wrong += 1
            print(fault, flush=True)
        done += 1
    print(f"{done} configurations, {wrong} wrong; calls: {lstm_kernels.calls()}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
