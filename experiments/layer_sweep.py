"""Random configurations of lstm_kernels.LSTM, each held against nn.LSTM in float64.

    python experiments/layer_sweep.py [CONFIGURATIONS] [--processes N] [--log FILE] [--shard K/N]

40 hidden sizes from 1 to 2100, 1 to 5 layers, one direction or two, four precisions, batch 1 to
300, odd inputs and layouts, packed sequences, with states or without. nn.LSTM's forward raises
while a call runs that `explain` says the kernels take. A line of JSON for each configuration goes
to the log as it ends; a sweep that was cut goes on with its log. Prints what is wrong, and how many
calls ran on the kernels and on nn.LSTM's path, by the reason; exit code 1 if anything is wrong or
not done.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HIDDEN = [1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 32, 40, 48, 63, 64, 65, 80, 96, 100]
HIDDEN += [128, 131, 160, 192, 200, 256, 257, 300, 320, 384]
HIDDEN += [400, 512, 600, 640, 768, 800, 1000, 1024, 1280, 2100]
#: The largest difference, of the largest value or of 1, and for each layer after the first again;
#: a larger one is right where nn.LSTM's own is as large.
TOLERANCES = {"fp32": 3e-6, "tf32": 4e-3, "fp16": 4e-3, "bf16": 3e-2}
MOST_STEPS = 400_000_000  # batch x timesteps x hidden x hidden x layers: float64 takes its time
LIMIT_S = 90.0  # of one configuration with what it compiles, and of the start of a process
TOO_LARGE = "no kernel holds"  # how the reason begins where a layer does not fit


def checked(number: int, seed: int, device: str) -> dict[str, Any]:
    """One configuration: what it is, which path it took, and what is wrong with it."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence

    import lstm_kernels

    rng = random.Random(f"{seed} {number}")
    torch.manual_seed(rng.getrandbits(40))
    hidden, layers, both = rng.choice(HIDDEN), rng.randint(1, 5), rng.random() < 0.4
    batch = rng.choice([1, 2, 3, 8, 16, 31, 64, 100, 200, 300])
    width = rng.choice([1, 3, 17, 40, hidden, rng.randint(1, 700)])
    precision, timesteps = rng.choice([*TOLERANCES]), rng.choice([1, 2, 7, 20, 50])
    while timesteps > 1 and batch * timesteps * hidden**2 * layers * (1 + both) > MOST_STEPS:
        timesteps = (timesteps + 1) // 2
    first, bias, states = rng.random() < 0.5, rng.random() < 0.9, rng.random() < 0.5
    apart, alone = rng.random() < 0.2, batch == 1 and rng.random() < 0.5
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    sizes = (width, hidden, layers, bias, first)
    layer = lstm_kernels.LSTM(*sizes, bidirectional=both, device=device, dtype=kind)

    def made(*shape: int) -> torch.Tensor:
        """Random numbers, in one piece of memory or with gaps."""
        return torch.randn((*shape, 1 + apart), device=device, dtype=kind)[..., 0]

    sequences = () if alone else (batch,)
    x: Any = made(*((*sequences, timesteps) if first else (timesteps, *sequences)), width)
    if packed := not alone and rng.random() < 0.3:
        lengths = [timesteps, *(rng.randint(1, timesteps) for _ in range(batch - 1))]
        rng.shuffle(lengths)
        x = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=False)
    state = (layers * (1 + both), *sequences, hidden)
    hx = (made(*state), made(*state)) if states else None
    shape = [batch, timesteps, width] if packed else list(x.shape)
    about = {"number": number, "layer": str(layer), "x": shape, "precision": precision}
    about |= {"packed": packed}
    about |= {"states": states, "gaps": apart}
    start, plain = time.monotonic(), torch.nn.LSTM.forward
    before = lstm_kernels.calls()
    try:
        about["path"] = path = layer.explain(x, hx)
        if claimed := path.startswith("kernels: "):
            torch.nn.LSTM.forward = _refused
        y, (h, c) = layer(x, hx)
        if device == "cuda":
            lstm_kernels.synchronize()
    except Exception as error:
        if not claimed and _refuses(plain, layer, x, hx):
            return {**about, "ran": path.removeprefix("nn.LSTM: "), "refused": str(error)}
        return {**about, "fault": f"{type(error).__name__}: {error}", "broken": True}
    finally:
        torch.nn.LSTM.forward = plain
    (ran,) = Counter(lstm_kernels.calls()) - Counter(before)
    about |= {"ran": ran, "seconds": round(time.monotonic() - start, 2)}
    if claimed != (ran == "kernels"):
        return {**about, "fault": f"explain says {path}, and the call ran by {ran}"}
    double = torch.nn.LSTM(*sizes, bidirectional=both, device=device, dtype=torch.float64)
    double.load_state_dict(layer.state_dict())
    doubled = x._replace(data=x.data.double()) if packed else x.double()
    want_y, (want_h, want_c) = double(doubled, hx and tuple(s.double() for s in hx))
    if packed:
        y, want_y = y.data, want_y.data
    right, off = (("y", want_y), ("h", want_h), ("c", want_c)), 0.0
    for (name, want), got in zip(right, (y, h, c), strict=True):
        if (got.shape, got.dtype) != (want.shape, kind):
            return {**about, "fault": f"{name} is {got.dtype} {list(got.shape)}"}
        off = max(off, off_by(got, want))
        if not off <= TOLERANCES[precision] * layers:
            plain_y, (plain_h, plain_c) = plain(layer, x, hx)
            plain_y = plain_y.data if packed else plain_y
            theirs = max(
                off_by(got, want)
                for (_, want), got in zip(right, (plain_y, plain_h, plain_c), strict=True)
            )
            if not off <= 1.5 * theirs:
                return {**about, "fault": f"{name} is {off:.1e} off, nn.LSTM's {theirs:.1e}"}
    return {**about, "off": off}


def off_by(got: Any, want: Any) -> float:
    return float((got.double() - want).abs().max() / want.abs().max().clamp(min=1))


def _refuses(plain: Any, *arguments: Any) -> bool:
    """Whether nn.LSTM itself raises, as it does for states with gaps."""
    try:
        plain(*arguments)
    except RuntimeError:
        return True
    return False


def _refused(*_: Any) -> Any:
    raise AssertionError("explain says that the kernels take it, and nn.LSTM was called")


def work(numbers: list[int], seed: int, device: str) -> None:
    """Check these in this process, which ends where its GPU may be in a bad state."""
    import torch

    torch.set_num_threads(1)
    print("{}", flush=True)  # ready
    for number in numbers:
        with torch.no_grad():
            result = checked(number, seed, device)
        print(json.dumps(result), flush=True)
        if "broken" in result:
            return
        if device == "cuda":
            torch.cuda.empty_cache()


def supervise(numbers: list[int], chosen: argparse.Namespace, end: float) -> None:
    """Have these checked in another process, and in a new one after one that hangs or dies."""
    here = [sys.executable, __file__, "--seed", str(chosen.seed), "--device", chosen.device]
    while numbers and left(end):
        command = [*here, "--only", *map(str, numbers)]
        # Unbuffered: `select` sees nothing of what Python has read ahead.
        with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as child:
            assert child.stdout
            result: dict[str, Any] = {"ready": False}
            while numbers and "broken" not in result:
                there, _, _ = select.select([child.stdout], [], [], min(LIMIT_S, left(end)))
                if line := child.stdout.readline() if there else b"":
                    result = json.loads(line)
                elif not left(end):
                    break
                else:
                    child.kill()  # if it has not died
                    why = f"the process ended: {child.wait()}" if there else f"over {LIMIT_S:g} s"
                    result = {"number": numbers[0], "fault": why, "broken": True}
                if result:
                    keep(chosen.log, result)
                    del numbers[0]
            child.kill()


def left(end: float) -> float:
    """Seconds until then; at the end none."""
    return max(end - time.monotonic(), 0.0)


def keep(log: Path, result: dict[str, Any]) -> None:
    """A line of the log, written at once."""
    with log.open("a") as file:
        file.write(json.dumps(result) + "\n")
    if "fault" in result:
        print(json.dumps(result), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("configurations", nargs="?", type=int, default=500)
    parser.add_argument("--processes", type=int, default=12, help="side by side on the GPU")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so many")
    parser.add_argument("--log", type=Path, default=Path("layer-sweep.jsonl"))
    parser.add_argument("--shard", default="1/1", help="only part K of N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda", help="cpu: a trial of this script")
    parser.add_argument("--only", type=int, nargs="+", help="check these here, and print them")
    chosen = parser.parse_args()
    if chosen.only:
        work(chosen.only, chosen.seed, chosen.device)
        return 0
    os.environ["OMP_NUM_THREADS"] = "1"
    part, parts = map(int, chosen.shard.split("/"))
    mine = range(part - 1, chosen.configurations, parts)
    chosen.log.parent.mkdir(parents=True, exist_ok=True)
    chosen.log.touch()
    whole, end_of_line, _ = chosen.log.read_text().rpartition("\n")
    chosen.log.write_text(whole + end_of_line)  # without a line that was cut
    done = {each["number"] for each in results(chosen.log)}
    undone, end = [n for n in mine if n not in done], time.monotonic() + chosen.seconds
    shares = [undone[i :: chosen.processes] for i in range(chosen.processes)]
    with ThreadPoolExecutor(chosen.processes) as pool:
        list(pool.map(lambda share: supervise(share, chosen, end), shares))
    result = [each for each in results(chosen.log) if each["number"] in mine]
    wrong = sum("fault" in each for each in result)
    paths = Counter(each.get("ran", "a fault") for each in result)
    fit = sum(count for why, count in paths.items() if not why.startswith(TOO_LARGE))
    print(f"{len(result)} of {len(mine)} configurations, {wrong} wrong")
    print(f"{paths['kernels']} of {fit} calls that fit ran on the kernels")
    for why, count in paths.most_common():
        print(f"{count:5}  {why}")
    return 1 if wrong or len(result) < len(mine) else 0


def results(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
