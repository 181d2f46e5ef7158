"""Layers to compute, what they give in float64, and stand-ins for what a machine may lack."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from lstm_kernels import Unsupported, native
from lstm_kernels.compiler import Compiler

SOURCES = Path(__file__).resolve().parent.parent / "src" / "lstm_kernels"
H200 = {"major": 9, "minor": 0, "multiprocessors": 132, "shared_bytes": 232448}
A100 = {"major": 8, "minor": 0, "multiprocessors": 108, "shared_bytes": 166912}
#: Largest error of an output that is not fp32's: as the benchmark has them.
TOLERANCES = {"tf32": 1e-2, "fp16": 1e-2, "bf16": 6e-2, "int8": 1e-1}


def built_native():
    """`lstm_kernels.native`; skips where the library was not built."""
    try:
        native.library()
    except Unsupported as reason:
        pytest.skip(str(reason), allow_module_level=True)
    return native


def problem(hidden, inputs, batch, timesteps, seed=0, scale=1.0):
    """x, h0, c0, w_ih, w_hh, b_ih, b_hh: every one random, so that a forgotten one shows."""
    random = np.random.default_rng(seed)
    sizes = [
        (timesteps, batch, inputs),
        (batch, hidden),
        (batch, hidden),
        (4 * hidden, inputs),
        (4 * hidden, hidden),
        (4 * hidden,),
        (4 * hidden,),
    ]
    spread = [1, 1, 1, inputs**-0.5, hidden**-0.5, 1, 1]
    return [
        (scale * s * random.standard_normal(size)).astype(np.float32)
        for s, size in zip(spread, sizes, strict=True)
    ]


def reference(x, h, c, w_ih, w_hh, b_ih, b_hh, skip_input=False):
    """The same layer in float64, as the equations say it."""
    x, h, c, w_ih, w_hh, b_ih, b_hh = (
        a.astype(np.float64) for a in (x, h, c, w_ih, w_hh, b_ih, b_hh)
    )
    output = []
    for x_t in x:
        projected = np.tile(x_t, 4) if skip_input else x_t @ w_ih.T
        i, f, g, o = np.split(projected + b_ih + h @ w_hh.T + b_hh, 4, axis=1)
        # sigmoid by tanh: exp overflows where the answer does not
        i, f, o = (0.5 + 0.5 * np.tanh(gate / 2) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        output.append(h)
    return np.stack(output), h, c


def carried(lstm, arrays, calls=4):
    """What several calls give that carry their states on; twice, to see that they start afresh."""
    for _ in range(2):
        lstm.carry(*arrays[1:3])
        outputs = []
        for _ in range(calls):
            lstm.forward()
            lstm.wait()
            outputs.append(lstm.outputs()[0])
    return np.concatenate(outputs), *lstm.outputs()[1:]


def assert_carried(lstm, arrays, tolerance, calls=4):
    """Several calls that carry their states on are one over as many times the input."""
    found = carried(lstm, arrays, calls)
    right = reference(np.tile(arrays[0], (calls, 1, 1)), *arrays[1:])
    assert all(np.abs(a - b).max() < tolerance for a, b in zip(found, right, strict=True))


#: What packed weights may be off by: two halves of fp32, one of them, and shorter ones.
PACKED = pytest.mark.parametrize(
    ("split", "storage", "tolerance"),
    [(True, "fp32", 1e-6), (False, "fp32", 1e-3), (False, "fp16", 1e-3), (False, "bf16", 1e-2)],
)


def assert_every_weight_is_there_once(hidden, plans, sums, tolerance):
    """What the kernel of each plan adds up for one h, by `sums`, is the product: [gate][unit]."""
    rng = np.random.default_rng(1)
    w_hh = rng.uniform(-3, 3, (4 * hidden, hidden)).astype(np.float32)
    h = rng.uniform(-1, 1, hidden)
    right = w_hh.reshape(4, hidden, hidden).astype(np.float64) @ h
    assert plans
    for plan in plans:
        packed, scale = plan.pack(w_hh)
        got = sums(packed, plan, h) * scale
        assert np.abs(got[:, :hidden] - right).max() < tolerance * np.abs(right).max()
        assert not got[:, hidden:].any()  # padding


def compiler(architecture):
    """NVRTC for an architecture; skips where there is none."""
    try:
        return Compiler(architecture)
    except Unsupported as reason:
        pytest.skip(str(reason))


def compiled(source, built, *flags):
    """A library, built from a C++ file of the tests; skips where nothing builds."""
    command = os.environ.get("CXX", "g++")
    if not shutil.which(command):
        pytest.skip(f"no {command}")
    options = ["-std=c++20", "-O0", "-shared", "-fPIC", "-Wl,-Bsymbolic", *flags]  # it calls itself
    subprocess.run([command, *options, str(source), "-o", str(built)], check=True)
    return str(built)


def compiled_once(factory, source, *flags):
    """The same, by the first of pytest's workers that needs it, for all."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # the workers' common one
    built = folder / f"lib{Path(source).stem}.so"
    with built.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            compiled(source, built.with_suffix(".new"), *flags)
            built.with_suffix(".new").rename(built)
    return built
