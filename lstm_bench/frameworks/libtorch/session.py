"""LibTorch: `torch::nn::LSTM` called and timed in C++, so that no Python is in between.

`deepbench_ext/libtorch.cpp` is compiled at first use against the torch that is installed. No ninja,
no nvcc and no header of CUDA's is needed.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lstm_bench.frameworks import FRAMEWORKS
from lstm_bench.frameworks.pytorch import call_depth
from lstm_bench.frameworks.pytorch import session as pytorch
from lstm_bench.frameworks.pytorch.base import TorchSession, kernels
from lstm_bench.frameworks.pytorch.session import allocated as allocated
from lstm_bench.model.profile import CallDepth
from lstm_bench.model.types import INPUTS, Implementation, Settings, Unsupported
from lstm_bench.worker import native
from lstm_bench.worker.problem import Answer, Array, Problem
from lstm_bench.worker.session import Session
from lstm_bench.worker.timing import Clock

SOURCE = "libtorch.cpp"
HEADER = "torch/csrc/api/include/torch/nn/modules/rnn.h"
TRAINS = True
VERBS = (
    *("new", "call", "forward", "backward", "wait", "restart"),
    *("time_each", "time_queued", "outputs", "delete"),
)


def describe(settings: Settings) -> dict[str, Any]:
    """Threads and TF32 are set by PyTorch itself: it is the same library in the same process."""
    return pytorch.describe(settings)


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    """The layer with the problem's weights, on the device, ready to be called."""
    return LibtorchSession(_library(), problem, settings)


class LibtorchSession(TorchSession):
    """A layer behind a pointer. To PyTorch's profiler and allocator it is like any other."""

    def __init__(self, library: ctypes.CDLL, problem: Problem, settings: Settings):
        self.library, self.problem, self.device = library, problem, settings.device
        given = [problem.x, problem.h0, problem.c0]
        self.memory = {
            "weights": sum(array.nbytes for array in problem.arrays),
            "inputs": sum(array.nbytes for array in given[settings.inputs != "device" :]),
        }
        s, lengths = problem.shape, problem.lengths() or []
        self.two_passes = s.training
        sizes = (s.hidden, s.batch, s.timesteps, s.input_size, s.layers, s.directions, s.training)
        shape = (ctypes.c_int64 * len(sizes))(*sizes)
        upstream = [_pointer(array) for array in problem.upstream] or [ctypes.c_void_p()] * 3
        arrays = [*map(_pointer, given), *upstream, *map(_pointer, problem.arrays)]
        self.layer = ctypes.c_void_p()
        self._ask(
            "new",
            *(ctypes.byref(self.layer), shape, (ctypes.c_void_p * len(arrays))(*arrays)),
            (ctypes.c_int64 * s.batch)(*lengths) if lengths else None,
            *(settings.device == "cuda", settings.state == "carried"),
            INPUTS.index(settings.inputs),
        )

    def call(self) -> None:
        self._ask("call", self.layer)

    def forward_pass(self) -> None:
        self._ask("forward", self.layer)

    def backward_pass(self) -> None:
        self._ask("backward", self.layer)

    def wait(self) -> None:
        self._ask("wait", self.layer)

    def restart(self) -> None:
        self._ask("restart", self.layer)

    def time_each(self, calls: int, clock: Clock) -> list[int]:
        nanoseconds = (ctypes.c_int64 * calls)()
        self._ask("time_each", self.layer, ctypes.c_int64(calls), nanoseconds)
        return list(nanoseconds)

    def time_queued(self, calls: int, clock: Clock) -> int:
        nanoseconds = ctypes.c_int64()
        self._ask("time_queued", self.layer, ctypes.c_int64(calls), ctypes.byref(nanoseconds))
        return nanoseconds.value

    def outputs(self) -> Answer:
        s = self.problem.shape
        output = np.empty((s.timesteps, s.batch, s.directions * s.hidden), np.float32)
        h, c = np.empty((2, s.layers * s.directions, s.batch, s.hidden), np.float32)
        answer = [output, h, c]
        if s.training:
            given = (self.problem.x, self.problem.h0, self.problem.c0, *self.problem.arrays)
            answer += map(np.empty_like, given)
        pointers = [_pointer(array) for array in answer]
        self._ask("outputs", self.layer, (ctypes.c_void_p * len(pointers))(*pointers))
        return tuple(answer)

    def depth(self) -> CallDepth:
        return call_depth.measure(self.call, self.wait, python=False)  # its caller is C++

    def close(self) -> None:
        layer, self.layer = self.layer, ctypes.c_void_p()
        self._ask("delete", layer)
        if self.device == "cuda":
            torch.cuda.empty_cache()

    @property
    def path(self) -> str:  # type: ignore[override]
        """The kernels behind the layer, read off the operators of a call."""
        return kernels(self.call)

    def _ask(self, verb: str, *arguments: Any) -> None:
        problem = getattr(self.library, f"layer_{verb}")(*arguments)
        if problem:
            text = problem.decode(errors="replace")
            kind = torch.cuda.OutOfMemoryError if "CUDA out of memory" in text else RuntimeError
            raise kind(text)


def _pointer(array: Array) -> ctypes.c_void_p:
    assert array.dtype == np.float32
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def _library() -> ctypes.CDLL:
    """Compile the source, or name what is missing and what brings it."""
    home = Path(torch.__file__).parent
    include, libraries = home / "include", home / "lib"
    if not (include / HEADER).is_file():
        remedy = FRAMEWORKS["libtorch"].install
        raise Unsupported(f"this torch has no headers, {include / HEADER} is missing: {remedy}")
    flags = [
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *("-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")),
        *(f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-ltorch_cpu", "-lc10"),
    ]
    library = native.library(SOURCE, flags, f"torch {torch.__version__}")
    for verb in VERBS:
        getattr(library, f"layer_{verb}").restype = ctypes.c_char_p
    return library
