"""NumPy: one product for the inputs of all steps, then one a step."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.linalg import _umath_linalg

from lstm_bench.model.types import Implementation, Settings, Unsupported
from lstm_bench.worker.problem import Answer, Array, Problem
from lstm_bench.worker.session import Session

ASK = "openblas_get_num_threads"  # by which name depends on who built NumPy
BLAS = (f"scipy_{ASK}64_", f"{ASK}64_", ASK, "MKL_Get_Max_Threads")


def describe(settings: Settings) -> dict[str, Any]:
    """Obey the run's settings, and say what this is; called once, before anything is built."""
    library = ctypes.CDLL(_umath_linalg.__file__)  # with the BLAS that NumPy multiplies by
    asked = [getattr(library, name)() for name in BLAS if hasattr(library, name)]
    threads = asked[0] if asked else 1  # NumPy itself has one
    return {"versions": {"numpy": np.__version__}, "threads": threads, "tf32": False}


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    """The layer with the problem's weights, on the device, ready to be called."""
    if row.precision != "fp32":
        raise Unsupported(f"NumPy has no fast {row.precision}")
    return NumpySession(problem)


class NumpySession(Session):
    path = "NumPy"  # what really runs; a library and its algorithm, if you can tell

    def __init__(self, problem: Problem):
        self.x, self.h0, self.c0, w_ih, w_hh, b_ih, b_hh = problem.single
        self.w_ih, self.w_hh, self.bias = w_ih.T.copy(), w_hh.T.copy(), b_ih + b_hh
        weights, inputs = (self.w_ih, self.w_hh, self.bias), (self.x, self.h0, self.c0)
        self.memory = {"weights": size(weights), "inputs": size(inputs)}

    def call(self) -> None:
        h, c, output = self.h0, self.c0, []
        for gates in self.x @ self.w_ih + self.bias:
            i, f, g, o = np.split(gates + h @ self.w_hh, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            output.append(h)
        self.result = np.stack(output), h[None], c[None]

    def outputs(self) -> Answer:
        return self.result


def sigmoid(v: Array) -> Array:
    return 0.5 * np.tanh(0.5 * v) + 0.5


def size(arrays: tuple[Array, ...]) -> int:
    return sum(array.nbytes for array in arrays)
