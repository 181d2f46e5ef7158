"""Test the cuDNN baseline on a real GPU: correct answers, no leaks, and the cost of the binding.

    python experiments/gpu_sweep.py sweep     every algorithm and precision against float64
    python experiments/gpu_sweep.py training  the same of training steps, at stacks too
    python experiments/gpu_sweep.py cycles    10,000 times prepare and release; a shape too large
    python experiments/gpu_sweep.py bare      a bare C++ loop against the binding, in turns

`--quick` does less of each. Exit code 1 when a result was wrong or memory was lost. Under
NVIDIA's memory checker: compute-sanitizer python experiments/gpu_sweep.py sweep --quick
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lstm_bench.frameworks.deepbench import libraries  # noqa: E402
from lstm_bench.frameworks.deepbench import session as deepbench  # noqa: E402
from lstm_bench.model.median import median_interval  # noqa: E402
from lstm_bench.model.types import (  # noqa: E402
    TOLERANCES,
    Implementation,
    Settings,
    Shape,
    Unsupported,
)
from lstm_bench.worker import problem as problems  # noqa: E402

#: hidden, batch, timesteps, input: odd, prime, 1, no multiple of 4 or 8, input unlike hidden
SHAPES = [
    *((1, 1, 1, 1), (1, 3, 5, 7), (7, 2, 3, 1), (3, 5, 1, 3), (5, 1, 9, 13), (13, 17, 4, 5)),
    *((31, 1, 8, 31), (64, 1, 1, 64), (64, 16, 10, 64), (97, 7, 6, 61), (127, 3, 5, 129)),
    *((128, 8, 12, 128), (192, 4, 8, 192), (250, 10, 7, 250), (257, 2, 5, 256), (1000, 3, 4, 512)),
    *((256, 1, 150, 256), (512, 16, 25, 512), (1024, 1, 25, 1024), (1024, 32, 100, 1024)),
    *((128, 16, 1000, 128), (2048, 2, 3, 2048)),
]
QUICK = SHAPES[:9]
#: One to three layers, both directions, sequences of one step and of all.
STACKS = [
    Shape(37, 5, 9, 11, layers=2, directions=2, lengths="9/1/4/9/8"),
    Shape(37, 5, 9, 11, lengths="1/9/2/3/5"),
    Shape(131, 1, 7, 64, layers=3, directions=2),
    Shape(1, 5, 9, 3, layers=3, directions=2, lengths="0.1-1"),
    Shape(128, 8, 20, 128, layers=2, lengths="0.3-1"),
]


def session(problem: problems.Problem, tf32: bool = False, **options: Any) -> Any:
    row = Implementation("deepbench", "deepbench", "fp32", "deepbench", options)
    return deepbench.build(problem, row, Settings(device="cuda", tf32=tf32))


def training(quick: bool) -> bool:
    """Every gradient of every training step; the input projection is always there."""
    shapes = [Shape(*sizes) for sizes in (QUICK if quick else SHAPES)] + STACKS
    return sweep(quick, [replace(shape, training=True) for shape in shapes])


def sweep(quick: bool, shapes: Sequence[Shape] = ()) -> bool:
    """Every shape, precision, algorithm, with and without graph and input projection."""
    counts = {"ok": 0, "refused": 0, "wrong": 0}
    worst: dict[str, float] = {}
    words: dict[str, set[str]] = {}
    for shape in shapes or [Shape(*sizes) for sizes in (QUICK if quick else SHAPES)]:
        problem = problems.make(shape, seed=1)
        for skip in [False, True] if shape.hidden == shape.input_size and not shapes else [False]:
            expected = problems.reference(problem, "lstm-skip-input" if skip else "lstm")
            cases = itertools.product(["fp32", "tf32", "fp16"], deepbench.ALGORITHMS, [False, True])
            for precision, algorithm, graph in cases:
                name = f"{precision} {algorithm}{' skip' if skip else ''}"
                options = {"algorithm": algorithm, "graph": graph, "skip_input": skip}
                options["precision"] = "fp16" if precision == "fp16" else "fp32"
                try:
                    built = session(problem, tf32=precision == "tf32", **options)
                    built.call()
                    built.call()  # a second call must not build on the first
                    answer, lengths = built.outputs(), problem.lengths()
                    check = problems.check(answer, expected, TOLERANCES[precision], lengths)
                    built.close()
                except (Unsupported, NotImplementedError) as refused:  # when built, or called
                    counts["refused"] += 1
                    word = str(refused).split(" (hidden")[0][:110]
                    words.setdefault(f"{name}: {word}", set()).add(f"{shape.hidden}")
                    continue
                counts["ok" if check.passed else "wrong"] += 1
                worst[name] = float(np.max([worst.get(name, 0.0), check.max_abs_error]))
                if not check.passed:
                    print(f"  WRONG {name}, graph {graph}, {shape.label}: {check.reason}")
    for name, error in worst.items():
        print(f"  {name:36s} worst error {error:.1e}")
    for word, hidden in words.items():
        print(f"  refused: {word}, hidden {' '.join(sorted(hidden, key=int))}")
    print(f"sweep: {counts}")
    return counts["wrong"] == 0


def cycles(quick: bool) -> bool:
    """Prepare and release, many times; then a shape that cannot fit, and the next one must run."""
    cudart = ctypes.CDLL(libraries.cudnn()[1])
    shape = Shape(64, 4, 5, 64)
    problem = problems.make(shape, seed=1)
    modes = [("standard", False), ("standard", True), ("persist-static", False)]
    modes.append(("persist-static", True))

    def free_bytes() -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
        return free.value

    def resident_kib() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    def cycle(algorithm: str, graph: bool) -> None:
        built = session(problem, algorithm=algorithm, graph=graph)
        built.call()
        built.wait()
        built.close()

    flat = True
    count = 100 if quick else 2500
    for mode in modes:
        for _ in range(200):
            cycle(*mode)
        device, host, start = free_bytes(), resident_kib(), time.perf_counter()
        for _ in range(count):
            cycle(*mode)
        lost, grown = device - free_bytes(), resident_kib() - host
        flat = flat and lost < 2**24 and grown < 2**13
        print(
            f"cycles: {mode[0]}{' in a graph' if mode[1] else ''}: {count} in"
            f" {time.perf_counter() - start:.0f} s, device memory {lost / 2**20:+.1f} MiB,"
            f" host memory {grown / 2**10:+.1f} MiB"
        )
    huge = replace(problem, shape=Shape(4096, 8192, 4000, 4096))
    try:
        session(huge)
        print("cycles: the huge shape fitted?")
        flat = False
    except MemoryError as error:
        print(f"cycles: too large, as it should be: {error}")
    cycle(*modes[0])
    return flat


def bare(quick: bool) -> bool:
    """Blocks of the bare loop and of the binding in turns: their difference is the binding.

    One process, blocks of milliseconds, and both opened anew a few times: the host's speed and the
    place of the buffers change more than the binding costs.
    """
    library = bare_library()
    openings, pairs = (2, 20) if quick else (8, 50)
    for sizes in [(512, 16, 25), (256, 1, 150), (1024, 64, 25)]:
        problem = problems.make(Shape(*sizes, sizes[0]), seed=1)
        ratios: dict[str, list[float]] = {"latency": [], "queued": []}
        medians: dict[str, list[float]] = {"latency": [], "queued": []}
        for _ in range(openings):
            built, other = session(problem), library.bare_open(*sizes)
            calls = max(5, int(0.005 / (built.time_each(20)[-1] / 1e9)))
            samples = (ctypes.c_longlong * calls)()
            for number in range(-5, pairs):  # the first few warm both up
                times: dict[str, tuple[float, float]] = {}
                for side in ("bare", "binding") if number % 2 else ("binding", "bare"):
                    if side == "bare":
                        library.bare_each(other, calls, samples)
                        each, queued = list(samples), library.bare_queued(other, calls)
                    else:
                        each, queued = built.time_each(calls), built.time_queued(calls)
                    times[side] = statistics.median(each), queued / calls
                if number >= 0:
                    for index, metric in enumerate(ratios):
                        a, b = times["bare"][index], times["binding"][index]
                        ratios[metric].append(b / a - 1)
                        medians[metric].append(a)
            built.close()
            library.bare_close(other)
        for metric, values in ratios.items():
            low, high = median_interval(values)
            print(
                f"bare {sizes} {metric}: bare {statistics.median(medians[metric]) / 1e3:.2f} us,"
                f" binding {statistics.median(values):+.2%} ({low:+.2%} to {high:+.2%}),"
                f" {len(values)} pairs of blocks"
            )
    return True


def bare_library() -> Any:
    """experiments/bare_cudnn.cpp, built against the libraries that the package finds."""
    paths = [str(Path(path).resolve()) for path in libraries.cudnn()]
    target = ROOT / "build" / "libbare_cudnn.so"
    target.parent.mkdir(exist_ok=True)
    flags = ["-std=c++17", "-O3", "-shared", "-fPIC", f"-I{ROOT}/deepbench_ext"]
    source = str(ROOT / "experiments/bare_cudnn.cpp")
    rpaths = [f"-Wl,-rpath,{Path(path).parent}" for path in paths]
    subprocess.run(["g++", *flags, source, "-o", str(target), *paths, *rpaths], check=True)
    library = ctypes.CDLL(str(target))
    library.bare_open.restype = ctypes.c_void_p
    library.bare_close.argtypes = [ctypes.c_void_p]
    library.bare_each.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    library.bare_queued.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.bare_queued.restype = ctypes.c_longlong
    return library


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["sweep", "training", "cycles", "bare"])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    parts: dict[str, Callable[[bool], bool]]
    parts = {"sweep": sweep, "training": training, "cycles": cycles, "bare": bare}
    good = parts[options.part](options.quick)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
