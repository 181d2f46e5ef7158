"""Compare the extra time of a call from host memory with plain copies of as many bytes.

    python experiments/host_copies.py                       three runs on a GPU, then the table
    python experiments/host_copies.py --shape 1024,256,100  what it does not know goes to `grid`
    python experiments/host_copies.py --runs A B C          of three runs that are there

The runs are of `host_copies.yaml` with x and y on the device, in pinned and in pageable memory. A
line for each cell: the bytes of x and y, by how much the call is longer than on the device, what
PyTorch takes for plain copies of them, the ratio of the two, the noise of the difference. It is
`resolved` where plain copies take over 1 ms and five times the noise; exit code 1 if the two differ
there by more than 15%.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lstm_bench.analysis import noise, results  # noqa: E402
from lstm_bench.model.shape import SHAPE  # noqa: E402
from lstm_bench.model.types import INPUTS, Shape  # noqa: E402
from lstm_bench.model.units import percent, seconds, signed, size  # noqa: E402

LEAST_S, TIMES_NOISE, AGREE = 1e-3, 5, 0.15
BYTES = {"fp16": (2, 2), "bf16": (2, 2), "amp-fp16": (4, 2)}  # of a value of x and of y; else 4
LINE = "{:15} {:20} {:9} {:>8} {:>11} {:>11} {:>6} {:>8}  {}"


@functools.cache
def copies_s(to_device: int, to_host: int, pinned: bool) -> float:
    """Seconds for copies of so many bytes there and back: the median of 10 and 0.2 s at least.

    In turns, as in a call: one copy alone would have its bytes in the CPU's cache.
    """
    x, y = (torch.ones(n, dtype=torch.uint8, pin_memory=pinned) for n in (to_device, to_host))
    on_device = x.to("cuda"), y.to("cuda")
    took: list[float] = []
    while len(took) < 13 or sum(took) < 0.2:
        torch.cuda.synchronize()
        start = time.perf_counter()
        on_device[0].copy_(x, non_blocking=True)
        y.copy_(on_device[1], non_blocking=True)
        torch.cuda.synchronize()
        took.append(time.perf_counter() - start)
    return statistics.median(took[3:])


def measured(kind: str, folder: Path, more: list[str]) -> Path:
    """The run of this kind, measured as far as it is not there."""
    name = f"host-{kind}"
    words = ["grid", str(ROOT / "experiments/host_copies.yaml"), "--inputs", kind, *more]
    words += ["--results", str(folder), "--run", name, "--resume"]
    subprocess.run([sys.executable, "-m", "lstm_bench", *words], cwd=ROOT)
    return folder / name


def timed(run: results.Run) -> dict[tuple[str, Shape], tuple[float, float, str]]:
    """The latency, its noise in seconds and the precision, by row and shape."""
    ok = run.cells[(run.cells["status"] == "ok") & (run.cells["copy"] == 1)]
    names, latency = list(ok["implementation"]), ok["latency_s"].to_numpy()
    floors = noise.floor_at(run.floors("latency"), latency, names) * latency
    shapes = [Shape.from_row(sizes) for sizes in ok[SHAPE].to_numpy()]
    values = zip(latency, floors, ok["precision"], strict=True)
    return dict(zip(zip(names, shapes, strict=True), values, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", nargs=3, type=Path, metavar="FOLDER")
    parser.add_argument("--results", type=Path, default=Path("results"), help="for new runs")
    chosen, more = parser.parse_known_args()
    folder = chosen.results.resolve()
    runs = chosen.runs or [measured(kind, folder, more) for kind in INPUTS]
    on_device, *others = (timed(results.load(run)) for run in runs)
    resolved = far = 0
    heads = ("shape", "row", "inputs", "x and y", "difference", "plain copy", "ratio", "noise")
    print(LINE.format(*heads, "").rstrip())
    for kind, cells in zip(INPUTS[1:], others, strict=True):
        for (row, shape), (latency_s, noise_s, precision) in cells.items():
            if (row, shape) not in on_device:
                continue
            device_s, device_noise_s, _ = on_device[row, shape]
            vectors, (of_x, of_y) = shape.batch * shape.timesteps, BYTES.get(precision, (4, 4))
            x, y = of_x * vectors * shape.input_size, of_y * vectors * shape.hidden
            expected_s = copies_s(x, y, kind == "pinned")
            noise_s, ratio = max(noise_s, device_noise_s), (latency_s - device_s) / expected_s
            clear = expected_s > max(LEAST_S, TIMES_NOISE * noise_s)
            wrong = clear and abs(ratio - 1) > AGREE
            resolved, far = resolved + clear, far + wrong
            times = (signed(latency_s - device_s), seconds(expected_s), f"{ratio:.2f}")
            verdict = "resolved, differs" if wrong else "resolved" if clear else ""
            words = (shape.label, row, kind, size(x + y), *times, seconds(noise_s), verdict)
            print(LINE.format(*words).rstrip())
    print(f"{resolved} resolved, {resolved - far} of them within {percent(AGREE, 0)}")
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
