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
            ("lstm_kernels._cpu", "numpy"),
            ("scipy-openblas32",),
            "pip install ./lstm_kernels . with a C++20 compiler (g++ 11 or newer) on the PATH",
        ),
        Framework(
            "persistent",
            ("lstm_kernels._gpu", "numpy"),
            ("nvidia-cuda-nvrtc", "nvidia-cublas"),
            "pip install ./lstm_kernels . with a C++20 compiler (g++ 11 or newer) on the PATH",
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
            "add a checkout of github.com/NVIDIA/apex at e13873d, the last with amp, to PYTHONPATH:"
            " there is nothing to build; pytorch-amp is its heir",
        ),
        Framework(
            "tensorflow",
            ("tensorflow", "numpy"),
            ("tensorflow", "keras"),
            "pip install tensorflow",
        ),
        Framework(
            "jax",
            ("jax", "numpy"),
            ("jax", "jaxlib"),
            "pip install jax, on a GPU 'jax[cuda13]'",
        ),
        Framework(
            "keras-torch",
            ("keras", "torch", "numpy"),
            ("keras", "torch"),
            "pip install keras torch",
        ),
        Framework(
            "keras-jax",
            ("keras", "jax", "numpy"),
            ("keras", "jax", "jaxlib"),
            "pip install keras jax, on a GPU keras 'jax[cuda13]'",
        ),
        Framework(
            "onnxruntime",
            ("onnxruntime", "onnx", "numpy"),
            ("onnxruntime", "onnxruntime-gpu", "onnx"),
            "pip install onnxruntime onnx; on a GPU onnxruntime-gpu onnx",
        ),
        Framework(
            "openvino",
            ("openvino", "numpy"),
            ("openvino",),
            "pip install openvino (on aarch64 it needs glibc 2.35 or newer)",
        ),
        Framework("fake", ("numpy",), ("numpy",), "pip install numpy"),
    )
}


CPU, CUDA, BOTH = ("cpu",), ("cuda",), ("cpu", "cuda")


def _tensorflow(name: str, precision: str, mode: int, note: str, **more: Any) -> Implementation:
    return Implementation(
        name=f"tf-{name}",
        framework="tensorflow",
        module="tensorflow",
        precision=precision,
        options={"mode": mode, **more.pop("options", {})},
        note=note,
        **more,
    )


def _deepbench(
    suffix: str, note: str, devices: tuple[str, ...] = CUDA, **options: Any
) -> Implementation:
    return Implementation(
        name="deepbench" + suffix,
        framework="deepbench",
        module="deepbench",
        precision="tf32" if suffix.startswith("-tf32") else options.get("precision", "fp32"),
        options=options,
        computes="lstm-skip-input" if options.get("skip_input") else "lstm",
        devices=devices,
        note=note,
    )


def _pytorch(
    suffix: str,
    note: str,
    precision: str = "fp32",
    devices: tuple[str, ...] = ("cpu", "cuda"),
    default_on: tuple[str, ...] = (),
    **options: Any,
) -> Implementation:
    tf32 = suffix.startswith("-tf32")
    return Implementation(
        name="pytorch" + suffix,
        framework="pytorch",
        module="pytorch",
        precision="tf32" if tf32 else precision,
        options=options,
        devices=CUDA if tf32 else devices,
        note=note,
        default_on=default_on,
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
        _deepbench("", "C++ over cuDNN (STANDARD); on a CPU kernels of our own", BOTH),
        _deepbench("-skip", "what DeepBench runs: no input projection", BOTH, skip_input=True),
        _deepbench("-bf16", "our kernels with bfloat16 weights and input", CPU, precision="bf16"),
        _deepbench(
            "-int8",
            "our kernels with int8 weights; inputs and states quantised in each call",
            CPU,
            precision="int8",
        ),
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
        _pytorch("", "torch.nn.LSTM in strict fp32; cuDNN on a GPU", default_on=CPU),
        _pytorch("-tf32", "TF32 allowed, as PyTorch does by default", default_on=CUDA),
        _pytorch("-amp", "torch.autocast around each call", "amp"),
        _pytorch(
            "-half", "weights and input in half precision; no casts in the call", "fp16", CUDA
        ),
        _pytorch("-bf16", "weights and input in bfloat16", "bf16"),
        _pytorch("-graph", "replayed as a CUDA graph", devices=CUDA, way="graph"),
        _pytorch("-tf32-graph", "the same with TF32 allowed", way="graph"),
        _pytorch("-half-graph", "the same in half precision", "fp16", CUDA, way="graph"),
        _pytorch(
            "-compile",
            "torch.compile; on a GPU all steps unrolled, mode reduce-overhead",
            way="compile",
            cap_s=30,
        ),
        _pytorch("-script", "torch.jit.script", way="script"),
        _pytorch("-trace", "torch.jit.trace", way="trace"),
        _pytorch("-persistent", "our kernels as a drop-in", devices=CUDA, way="persistent"),
        _pytorch("-tf32-persistent", "the same in TF32", way="persistent"),
        _pytorch("-native", "oneDNN off: PyTorch's own loop", devices=CPU, way="native"),
        _pytorch("-int8", "weights quantised by quantize_dynamic", "int8", CPU, way="int8"),
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
        _tensorflow("mode0", "fp32", 0, "Keras LSTM on cuDNN; on a CPU the same code as mode 2"),
        _tensorflow(
            "mode0-tf32",
            "tf32",
            0,
            "mode 0 with TF32 allowed",
            devices=("cuda",),
            default_on=("cuda",),
        ),
        _tensorflow(
            "mode1", "fp32", 1, "Keras LSTM, implementation=1: eight small products a step"
        ),
        _tensorflow(
            "mode2",
            "fp32",
            2,
            "Keras LSTM, implementation=2: two larger products a step",
            default_on=("cpu",),
        ),
        _tensorflow("xla", "fp32", 2, "mode 2 compiled by XLA", options={"xla": True}),
        _tensorflow("mode0-amp", "amp", 0, "mode 0 under a mixed dtype policy"),
        _tensorflow("mode1-amp", "amp", 1, "mode 1 under a mixed dtype policy"),
        _tensorflow("mode2-amp", "amp", 2, "mode 2 under a mixed dtype policy"),
        Implementation(
            "jax-scan",
            "jax",
            "fp32",
            "jax",
            default_on=("cpu",),
            note="lax.scan of the cell, compiled by XLA",
        ),
        Implementation(
            "jax-scan-tf32",
            "jax",
            "tf32",
            "jax",
            devices=("cuda",),
            default_on=("cuda",),
            note="the same with TF32 allowed",
        ),
        Implementation(
            "jax-cudnn",
            "jax",
            "fp32",
            "jax",
            options={"cudnn": True},
            devices=("cuda",),
            note="jax.experimental.rnn.lstm",
        ),
        Implementation(
            "keras-torch",
            "keras-torch",
            "fp32",
            "keras_torch",
            default_on=("cpu",),
            note="Keras LSTM on PyTorch: cuDNN on a GPU, else a Python loop",
        ),
        Implementation(
            "keras-jax",
            "keras-jax",
            "fp32",
            "keras_jax",
            default_on=("cpu",),
            note="Keras LSTM on JAX, under jit",
        ),
        Implementation(
            "onnxruntime",
            "onnxruntime",
            "fp32",
            "onnxruntime",
            devices=("cpu",),
            default_on=("cpu",),
            note="ONNX Runtime's LSTM operator",
        ),
        Implementation(
            "onnxruntime-int8",
            "onnxruntime",
            "int8",
            "onnxruntime",
            devices=("cpu",),
            note="the same after quantize_dynamic: int8 weights, inputs quantised in each call",
        ),
        Implementation(
            "onnxruntime-cuda",
            "onnxruntime",
            "fp32",
            "onnxruntime",
            devices=("cuda",),
            note="ONNX Runtime's CUDA provider, TF32 off; its inputs lie on the GPU",
        ),
        Implementation(
            "openvino",
            "openvino",
            "fp32",
            "openvino",
            devices=("cpu",),
            note="OpenVINO's LSTM sequence, in fp32 also where it would take half precision",
        ),
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


#: What another version of a framework may be called, such as 2.12.0+cpu.
VERSION = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}"
NEW_VERSIONS, BASE_VERSIONS = ("new",), ("old", "base", "other")  # what names say of the sides
_NAME = re.compile(rf"(?P<plain>.+?)(~(?P<version>{VERSION}))?(@(?P<threads>[1-9]\d{{0,3}}))?")


def find(
    name: str, where: str, fakes: Mapping[str, Mapping[str, Any]] | None = None
) -> Implementation:
    """The row called `name`; `fakes` adds rows that a grid file scripts.

    `pytorch@1` is the row `pytorch` on the CPU with one thread, wherever the run is. `pytorch~old`
    is the same row in another version of PyTorch, `pytorch~old@1` both.
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
    parts = _NAME.fullmatch(name)
    if parts and parts["plain"] in (*fakes, *IMPLEMENTATIONS):
        row = find(parts["plain"], where, fakes)
        threads, version = int(parts["threads"] or 0), parts["version"] or ""
        return replace(row, name=name, threads=threads, version=version)
    raise LstmBenchError(
        f"{where}: no implementation is called {name!r}{nearest(name, [*IMPLEMENTATIONS, *fakes])}"
        " (`lstm-bench list` shows all)"
    )


def in_version(row: Implementation, version: str) -> str:
    """The name of the same row in another version of its framework."""
    threads = f"@{row.threads}" if row.threads else ""
    return f"{row.name.removesuffix(threads)}~{version}{threads}"


def versions_of(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """By plain row, the rows that run it: `{"pytorch": {"": "pytorch", "old": "pytorch~old"}}`."""
    rows: dict[str, dict[str, str]] = {}
    for name in names:
        if parts := _NAME.fullmatch(name):
            threads = f"@{parts['threads']}" if parts["threads"] else ""
            rows.setdefault(parts["plain"] + threads, {})[parts["version"] or ""] = name
    return rows


def bases(names: Iterable[str]) -> dict[str, str]:
    """The base of each new row, where the names of versions say which is which."""
    clear = {}
    for rows in versions_of(names).values():
        new, old = (
            [row for version, row in rows.items() if version.lower() in side]
            for side in (NEW_VERSIONS, BASE_VERSIONS)
        )
        if "" in rows and old and not new and len(old) == 1:
            clear[rows[""]] = old[0]
        if "" in rows and new and not old:
            clear |= dict.fromkeys(new, rows[""])
    return clear


def framework_of(implementation: Implementation) -> Framework:
    """The framework row, by the name of what has an interpreter.

    Scripted fakes may live in worker processes of their own.
    """
    if implementation.framework.startswith("fake-"):
        return replace(FRAMEWORKS["fake"], name=implementation.home)
    if implementation.framework not in FRAMEWORKS:
        raise LstmBenchError(
            f"{implementation.name}: FRAMEWORKS in lstm_bench/model/registry.py has no"
            f" {implementation.framework!r}{guess(implementation.framework, FRAMEWORKS)}"
        )
    return replace(FRAMEWORKS[implementation.framework], name=implementation.home)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'pytorch-amp'?`, or the whole list where nothing is near."""
    known = list(known)
    return guess(name, known) or "; expected one of " + ", ".join(known)


def guess(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'pytorch-amp'?`, or nothing."""
    close = difflib.get_close_matches(str(name), list(known), n=2, cutoff=0.6)
    return "; did you mean " + " or ".join(repr(c) for c in close) + "?" if close else ""
