"""The table of implementations: data, one row each.

To add a variant, add a row. To add a framework, add a `Framework`, a file in
`worker/implementations/` and its rows; `lstm-bench list` and the grid's name check follow.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lstm_bench.model.types import Implementation, LstmBenchError


@dataclass(frozen=True)
class Framework:
    """What an implementation needs in the interpreter of its worker."""

    name: str
    requires: tuple[str, ...]  # importable modules
    distributions: tuple[str, ...]  # whose versions are worth recording
    install: str  # the one command that would make it run


FRAMEWORKS = {
    f.name: f
    for f in (
        Framework(
            "deepbench",
            ("lstm_bench._openblas", "numpy"),
            ("scipy-openblas32",),
            "reinstall lstm-bench with a C++20 compiler (g++ 11 or newer) on the PATH",
        ),
        Framework(
            "persistent",
            ("lstm_bench._persistent", "numpy"),
            ("nvidia-cuda-nvrtc", "nvidia-cublas"),
            "reinstall lstm-bench with a C++20 compiler (g++ 11 or newer) on the PATH",
        ),
        Framework("pytorch", ("torch", "numpy"), ("torch",), "pip install torch numpy"),
        Framework(
            "libtorch",
            ("torch", "numpy"),
            ("torch",),
            "pip install torch numpy, and a C++20 compiler (g++ 11 or newer) on the PATH",
        ),
        Framework(
            "apex",
            ("torch", "apex.amp", "numpy"),
            ("torch", "apex"),
            "build an NVIDIA apex from before amp left it; pytorch-amp is its heir",
        ),
        Framework(
            "tensorflow",
            ("tensorflow", "numpy"),
            ("tensorflow", "keras"),
            "pip install tensorflow",
        ),
        Framework("fake", ("numpy",), ("numpy",), "pip install numpy"),
    )
}


def _tensorflow(mode: int, precision: str, note: str) -> Implementation:
    return Implementation(
        name=f"tf-mode{mode}" + ("-amp" if precision == "amp" else ""),
        framework="tensorflow",
        module="tensorflow",
        precision=precision,
        options={"mode": mode},
        note=note,
    )


def _deepbench(suffix: str, note: str, **options: Any) -> Implementation:
    return Implementation(
        name="deepbench" + suffix,
        framework="deepbench",
        module="deepbench",
        precision="tf32" if suffix.startswith("-tf32") else options.get("precision", "fp32"),
        options=options,
        computes="lstm-skip-input" if options.get("skip_input") else "lstm",
        devices=("cpu", "cuda") if suffix in ("", "-skip") else ("cuda",),
        note=note,
    )


def _persistent(suffix: str, precision: str, note: str) -> Implementation:
    return Implementation(
        name="persistent" + suffix,
        framework="persistent",
        module="persistent",
        precision=precision,
        options={"precision": precision},
        devices=("cuda",),
        note=note,
    )


IMPLEMENTATIONS = {
    row.name: row
    for row in (
        _deepbench("", "C++ over cuDNN (STANDARD) or OpenBLAS: the baseline"),
        _deepbench("-skip", "what DeepBench runs: no input projection", skip_input=True),
        _deepbench("-persist-static", "cuDNN PERSIST_STATIC", algorithm="persist-static"),
        _deepbench("-persist-dynamic", "cuDNN PERSIST_DYNAMIC", algorithm="persist-dynamic"),
        _deepbench("-graph", "STANDARD replayed as a CUDA graph", graph=True),
        _deepbench("-best", "the fastest of cuDNN's algorithms, in a graph or not", choose="best"),
        _deepbench("-tf32", "STANDARD with TF32 allowed"),
        _deepbench("-tf32-best", "the fastest with TF32 allowed", choose="best"),
        _deepbench("-fp16", "STANDARD in half precision", precision="fp16"),
        _deepbench("-fp16-best", "the fastest in half precision", precision="fp16", choose="best"),
        _persistent("", "fp32", "kernels of our own, as accurate as fp32"),
        _persistent("-tf32", "tf32", "the same, factors rounded as TF32 rounds them"),
        _persistent("-fp16", "fp16", "the same in half precision"),
        _persistent("-bf16", "bf16", "the same in bfloat16"),
        Implementation(
            "pytorch", "pytorch", "fp32", "pytorch", note="torch.nn.LSTM; cuDNN on a GPU"
        ),
        Implementation(
            "pytorch-amp", "pytorch", "amp", "pytorch", note="torch.autocast around each call"
        ),
        Implementation(
            "pytorch-half",
            "pytorch",
            "fp16",
            "pytorch",
            devices=("cuda",),
            note="weights and input in half precision; no casts in the call",
        ),
        Implementation(
            "libtorch",
            "libtorch",
            "fp32",
            "libtorch",
            note="torch::nn::LSTM called and timed in C++; compiled at first use",
            default_on=("cpu",),
        ),
        Implementation(
            "libtorch-tf32",
            "libtorch",
            "tf32",
            "libtorch",
            devices=("cuda",),
            note="the same with TF32 allowed, as LibTorch has it by default",
            default_on=("cuda",),
        ),
        Implementation(
            "pytorch-apex",
            "apex",
            "amp",
            "pytorch",
            options={"apex": True},
            devices=("cuda",),
            note="apex.amp, opt level O1, as the paper used it",
        ),
        _tensorflow(0, "fp32", "Keras LSTM on cuDNN; on a CPU the same code as mode 2"),
        _tensorflow(1, "fp32", "Keras LSTM, implementation=1: eight small products a step"),
        _tensorflow(2, "fp32", "Keras LSTM, implementation=2: two larger products a step"),
        _tensorflow(0, "amp", "mode 0 under a mixed dtype policy"),
        _tensorflow(1, "amp", "mode 1 under a mixed dtype policy"),
        _tensorflow(2, "amp", "mode 2 under a mixed dtype policy"),
        Implementation(
            "fake", "fake", "fp32", "fake", note="no framework: scripted answers, times and faults"
        ),
    )
}

#: The rows of the paper, in its order; what a grid without `implementations:` runs.
PAPER = (
    "deepbench",
    "pytorch",
    "pytorch-amp",
    "tf-mode0",
    "tf-mode1",
    "tf-mode2",
    "tf-mode0-amp",
    "tf-mode1-amp",
    "tf-mode2-amp",
)


def find(
    name: str, where: str, fakes: Mapping[str, Mapping[str, Any]] | None = None
) -> Implementation:
    """The row called `name`; `fakes` adds rows that a grid file scripts.

    `pytorch@1` is the row `pytorch` on the CPU with one thread, wherever the run is.
    """
    fakes = fakes or {}
    if name in fakes:
        script = dict(fakes[name])
        process = script.pop("process", "")
        base = IMPLEMENTATIONS["fake"]
        framework = f"fake-{process}" if process else "fake"
        precision = script.pop("precision", base.precision)
        return replace(base, name=name, framework=framework, precision=precision, options=script)
    if name in IMPLEMENTATIONS:
        return IMPLEMENTATIONS[name]
    plain, _, threads = name.rpartition("@")
    if plain in (*fakes, *IMPLEMENTATIONS) and re.fullmatch(r"[1-9]\d{0,3}", threads):
        return replace(find(plain, where, fakes), name=name, threads=int(threads))
    raise LstmBenchError(
        f"{where}: no implementation is called {name!r}{nearest(name, [*IMPLEMENTATIONS, *fakes])}"
        " (`lstm-bench list` shows all)"
    )


def framework_of(implementation: Implementation) -> Framework:
    """The framework row; scripted fakes may live in worker processes of their own."""
    if implementation.framework.startswith("fake-"):
        return replace(FRAMEWORKS["fake"], name=implementation.framework)
    if implementation.framework not in FRAMEWORKS:
        raise LstmBenchError(
            f"{implementation.name}: FRAMEWORKS in lstm_bench/model/registry.py has no"
            f" {implementation.framework!r}{guess(implementation.framework, FRAMEWORKS)}"
        )
    return FRAMEWORKS[implementation.framework]


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'pytorch-amp'?`, or the whole list where nothing is near."""
    known = list(known)
    return guess(name, known) or "; expected one of " + ", ".join(known)


def guess(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'pytorch-amp'?`, or nothing."""
    close = difflib.get_close_matches(str(name), list(known), n=2, cutoff=0.6)
    return "; did you mean " + " or ".join(repr(c) for c in close) + "?" if close else ""
