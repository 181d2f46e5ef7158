"""The native library: one layer on a GPU or a CPU, in C++ behind functions of C, by ctypes.

Other threads of Python run while a function of it works. native.cpp says what each does.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Iterable, Sequence
from ctypes import byref, c_char, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lstm_kernels import Unsupported
from lstm_kernels.halves import Array

PATH = Path(__file__).with_name("_native.so")
REMEDY = (
    "reinstall lstm-kernels with a C++20 compiler (g++ 11 or newer) on the PATH, or from its wheel;"
    " nn.LSTM itself computes all calls meanwhile"
)
ABSENT = f"the native library was not built: {REMEDY}"
ARRAYS = ("x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh")


class LibraryError(RuntimeError):
    """A call of one of NVIDIA's libraries failed, or there is none."""


_ERRORS = (Unsupported, MemoryError, LibraryError, ValueError, RuntimeError)


@functools.cache
def library() -> ctypes.CDLL:
    """The library, opened."""
    try:
        opened = ctypes.CDLL(str(PATH))
    except OSError as error:
        unopened = f"the native library does not open ({error}): {REMEDY}"
        raise Unsupported(unopened if PATH.exists() else ABSENT) from None
    opened.lstm_error.restype = opened.lstm_instruction_set.restype = c_char_p
    opened.lstm_gpu_stack_run.argtypes = opened.lstm_stack_run.argtypes = [c_char_p]  # as bytes
    opened.lstm_stack_bytes.restype = c_size_t
    return opened


def _check(status: int) -> None:
    if status:
        raise _ERRORS[status - 1](library().lstm_error().decode(errors="replace"))


def _do(name: str, *arguments: Any) -> None:
    _check(getattr(library(), f"lstm_{name}")(*arguments))


def _get(name: str, kind: Any, *arguments: Any) -> Any:
    """What a function leaves where its last argument points."""
    result = kind()
    _do(name, *arguments, byref(result))
    return result


def kernels() -> dict[str, str]:
    """The instruction set that the CPU kernels of each precision use here."""
    names = _get("kernel_names", c_char_p * 3)
    return dict(zip(("fp32", "bf16", "int8"), (name.decode() for name in names), strict=True))


def instruction_sets() -> list[str]:
    """What LSTM_BENCH_ISA may be on this CPU, from the least to the most."""
    names = map(library().lstm_instruction_set, range(20))
    return [name.decode() for name in names if name]


def device(libraries: Sequence[str]) -> dict[str, int]:
    """What the kernels need to know of GPU 0."""
    names = ("major", "minor", "multiprocessors", "shared_bytes", "registers", "l2_bytes")
    return dict(zip(names, _get("device", c_int * 6, libraries[0].encode()), strict=True))


class Launch(ctypes.Structure):
    """How a kernel of a plan runs."""

    _fields_: ClassVar[Any] = [
        *((name, c_int) for name in ("cluster", "blocks", "threads", "share")),
        *((name, c_size_t) for name in ("shared_bytes", "exchange_bytes")),
    ]


def resident(libraries: Sequence[str], code: bytes, launch: Launch) -> int:
    """How many teams of a plan run at the same time."""
    return int(_get("resident", c_int, _paths(libraries), code, byref(launch)).value)


def _paths(libraries: Sequence[str]) -> Any:
    return (c_char_p * 3)(*map(str.encode, libraries))


def _at(arrays: Sequence[Array]) -> tuple[Any, Any]:
    """Where arrays lie, which must live on, and their bytes."""
    addresses, sizes = zip(*((array.ctypes.data, array.nbytes) for array in arrays), strict=True)
    return (c_void_p * len(arrays))(*addresses), (c_size_t * len(arrays))(*sizes)


class Lstm:
    """A layer until it is released."""

    _handle: c_void_p | None = None

    def __init__(self, kind: str, sizes: Iterable[int], dtype: str, *how: Any):
        self.hidden, self.input_size, self.batch, self.timesteps = sizes
        self.dtype = dtype  # of x, states and outputs, as they are stored
        self._handle = _get(f"on_{kind}", c_void_p, (c_int * 4)(*sizes), *how)

    @property
    def handle(self) -> c_void_p:
        if self._handle is None:
            raise RuntimeError("this Lstm was released")
        return self._handle

    def carry(self, h0: Array, c0: Array) -> None:
        """Have each call start where the one before ended, and the next one from these."""
        states = [np.ascontiguousarray(state, self.dtype) for state in (h0, c0)]
        _do("carry", self.handle, *_at(states))

    def forward(self) -> None:
        """One call; on a GPU it returns when the work is queued."""
        _do("forward", self.handle)

    def wait(self) -> None:
        """Wait for all calls so far."""
        _do("wait", self.handle)

    def time_each(self, calls: int) -> list[int]:
        """Nanoseconds that a caller waits for each call."""
        return list(_get("time_each", c_int64 * max(calls, 0), self.handle, calls))

    def time_queued(self, calls: int) -> int:
        """Nanoseconds of calls back to back."""
        return int(_get("time_queued", c_int64, self.handle, calls).value)

    def outputs(self) -> tuple[Array, Array, Array]:
        """y, h and c of the last call, as they are stored."""
        state = self.batch, self.hidden
        y, h, c = (
            np.empty(shape, self.dtype) for shape in ((self.timesteps, *state), state, state)
        )
        _do("outputs", self.handle, _at([y, h, c])[0])
        return y, h, c

    def memory(self) -> dict[str, int]:
        """Bytes that it holds."""
        names = ("weights", "inputs", "outputs", "workspace")
        return dict(zip(names, _get("memory", c_size_t * 4, self.handle), strict=True))

    def release(self) -> None:
        """Give its memory back."""
        handle, self._handle = self._handle, None
        if handle:
            library().lstm_release(handle)

    __del__ = release


class CpuLstm(Lstm):
    """One layer on a CPU.

    `sgemm` is the address of a cblas_sgemm for the input products; `plan` the parts of the batch,
    those of the units, and the timesteps of an input product.
    """

    def __init__(
        self,
        *sizes: int,
        threads: int = 1,
        skip_input: bool = False,
        precision: str = "fp32",
        sgemm: int | None = None,
        plan: tuple[int, int, int] | None = None,
    ):
        how = threads, skip_input, precision.encode(), c_void_p(sgemm), plan and (c_int * 3)(*plan)
        super().__init__("cpu", sizes, "float32", *how)

    def load(self, *arrays: Array) -> None:
        """Take x, h0, c0, w_ih, w_hh, b_ih and b_hh as PyTorch has them, of any type and order."""
        states, weights = (self.batch, self.hidden), 4 * self.hidden
        shapes = [(self.timesteps, self.batch, self.input_size), states, states]
        shapes += [(weights, self.input_size), (weights, self.hidden), (weights,), (weights,)]
        for name, array, shape in zip(ARRAYS, arrays, shapes, strict=True):
            if array.shape != shape:
                raise ValueError(f"{name}: expected shape {shape}, found {array.shape}")
        floats = [np.ascontiguousarray(array, np.float32) for array in arrays]
        _do("load_on_cpu", self.handle, _at(floats)[0])

    def phases(self, calls: int) -> dict[str, float]:
        """Seconds of a call by phase, on the thread that calls."""
        names = ("input product", "recurrent product", "cell", "wait")
        return dict(zip(names, _get("phases", c_double * 4, self.handle, calls), strict=True))

    def plan(self) -> list[int]:
        """Parts of the batch, parts of the units, timesteps per input product."""
        return list(_get("plan", c_int * 3, self.handle))


def cpu_path(sizes: Sequence[int], precision: str, *call: int) -> str:
    """The instruction set and the threads for timesteps, batch and threads of a call."""
    text = ctypes.create_string_buffer(100)
    how = (c_int * 5)(*sizes), precision.encode(), (c_int * 3)(*call)
    _do("stack_path", *how, text, c_size_t(len(text)))
    return text.value.decode()


class CpuStack:
    """The layers and directions of an nn.LSTM on a CPU, for calls of any size.

    `sizes` are input, hidden, layers, directions and 1 or 0 for bias; `weights` float32 in the
    order of nn.LSTM's parameters, which are copied.
    """

    _handle: c_void_p | None = None

    def __init__(self, sizes: Sequence[int], weights: Sequence[Array], precision: str):
        arrays = [np.ascontiguousarray(weight, np.float32) for weight in weights]
        at = (c_int * 5)(*sizes), precision.encode(), _at(arrays)[0]
        self._handle = _get("stack", c_void_p, *at)
        self._run, self.number = library().lstm_stack_run, self._handle.value
        self.bytes = int(library().lstm_stack_bytes(self._handle))  # of packed weights

    def run(self, *where: int) -> None:
        """A call on a caller's arrays, in time order.

        `where` are the addresses x, h0, c0, y, h, c and those of the sequences at each timestep (0:
        zeros, and all), timesteps, batch, threads, and 1 where arrays are bfloat16.
        """
        if status := self._run(STACK_RUN(self.number, *where)):
            _check(status)

    def __del__(self) -> None:
        if self._handle:
            library().lstm_stack_free(self._handle)


class Stream:
    """A stack on a CPU that keeps its states; `lstm_kernels.h` says what each function does."""

    _handle: c_void_p | None = None

    def __init__(self, sizes: Sequence[int], weights: Sequence[Array], precision: str):
        at = (c_int * 5)(*sizes), precision.encode(), _at(weights)[0]
        self._handle = _get("stream_create", c_void_p, *at)
        self._run = library().lstm_stream_run

    def reset(self, batch: int, *states: Array | None) -> None:
        """From these states or from zeros."""
        at = (None if state is None else c_void_p(state.ctypes.data) for state in states)
        _do("stream_reset", self._handle, batch, *at)

    def run(self, x: Array, timesteps: int, threads: int, y: Array) -> None:
        """One call on contiguous float32 arrays."""
        if status := self._run(self._handle, _address(x), timesteps, threads, _address(y)):
            _check(status)

    def state(self, h: Array, c: Array) -> None:
        """Copy the states."""
        _do("stream_state", self._handle, *(c_void_p(state.ctypes.data) for state in (h, c)))

    def __del__(self) -> None:
        if self._handle:
            library().lstm_stream_destroy(self._handle)


def _address(array: Array) -> Any:
    """Where an array lies; `array.ctypes.data` takes 2 us."""
    try:
        return byref(c_char.from_buffer(array))  # type: ignore[arg-type]
    except TypeError:  # it must not be written to
        return c_void_p(array.__array_interface__["data"][0])


STACK_RUN = struct.Struct("12q").pack
GPU_STACK_RUN = struct.Struct("20q").pack  # a struct that ctypes fills takes ten times as long


class LayerWeights(ctypes.Structure):
    """Where the weights of a layer lie on the GPU, and their scales; see gpu_stack.hpp."""

    _fields_: ClassVar[Any] = [
        *((name, c_void_p) for name in ("w_ih", "few_w_ih", "weights", "bias")),
        ("w_ih_bytes", c_size_t),
        ("scale", c_float),
        ("input_scale", c_float),
    ]


class GpuStack:
    """The layers and directions of an nn.LSTM on a GPU by a plan, for calls of any size.

    `sizes` are input, hidden, layers and directions; `code` is that of the plan's kernel, of the
    input product, and of the product for at most `few_rows` vectors. Weights are the caller's.
    """

    _handle: c_void_p | None = None

    def __init__(
        self,
        libraries: Sequence[str],
        sizes: Sequence[int],
        code: tuple[bytes, bytes, bytes],
        storage: str,
        projection: str,
        few_rows: int,
        launch: Launch,
        weights: Sequence[LayerWeights],
    ):
        texts = storage.encode(), projection.encode()
        at = (c_int * 4)(*sizes), _paths(libraries), *code, *texts, few_rows, byref(launch)
        given = (LayerWeights * len(weights))(*weights)
        self._handle = _get("gpu_stack", c_void_p, *at, given)
        self._run, self.number = library().lstm_gpu_stack_run, self._handle.value

    def scratch(self, rows: int, exchange_bytes: int) -> int:
        """Bytes that a call of so many vectors wants as scratch."""
        sizes = c_int64(rows), c_size_t(exchange_bytes)
        return int(_get("gpu_stack_scratch", c_size_t, self._handle, *sizes).value)

    def run(self, *call: int) -> None:
        """Queue a call; its numbers and addresses are those of `GpuCall` in gpu_stack.hpp."""
        if status := self._run(GPU_STACK_RUN(self.number, *call)):
            _check(status)

    def __del__(self) -> None:
        if self._handle:
            library().lstm_gpu_stack_free(self._handle)


class GpuLstm(Lstm):
    """One layer on a GPU by a plan, which `code` was compiled for; `product` multiplies x."""

    def __init__(
        self,
        libraries: Sequence[str],
        code: bytes,
        product: bytes,
        *sizes: int,
        storage: str,
        projection: str,
        launch: Launch,
    ):
        texts = storage.encode(), projection.encode()
        how = _paths(libraries), code, product, *texts, byref(launch)
        super().__init__("gpu", sizes, "float32" if storage == "fp32" else "uint16", *how)

    def load(self, *arrays: Any) -> None:
        """Take x, h0, c0, w_ih, weights, bias as the plan wants them, and the scales of weights."""
        given = [np.ascontiguousarray(array) for array in arrays[:6]]
        _do("load_on_gpu", self.handle, *_at(given), *map(c_float, arrays[6:]))

    def time_device(self, calls: int) -> list[int]:
        """Nanoseconds of each call by the clock of the device."""
        return list(_get("time_device", c_int64 * max(calls, 0), self.handle, calls))

    def replay(self, on: bool) -> None:
        """From here on replay calls as a CUDA graph, or not."""
        _do("replay", self.handle, on)

    def keep_on_host(self, pinned: bool) -> None:
        """From here on x and y lie in host memory: each call copies both."""
        _do("keep_on_host", self.handle, pinned)
