"""Measures how deep the library lies under the caller's call: the functions between the two.

Python's frames are seen by `sys.setprofile`. The native ones are read off the stacks that a timer
takes of the calling thread (`deepbench_ext/stacks.cpp`). Calls enter the library in several places,
to convert weights for instance: what is kept is the shortest way that many stacks went, to the
function of the library that most of them lead to. What the compiler has inlined has no frame.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from lstm_bench.frameworks.pytorch import symbols
from lstm_bench.frameworks.pytorch.symbols import Symbol
from lstm_bench.model.demangle import readable
from lstm_bench.model.profile import CallDepth, Frame
from lstm_bench.model.units import gist
from lstm_bench.worker import native

EVERY_NS = 300_000
WATCHED_S = 1.0  # how long calls are watched, but for one that takes longer
OFTEN = 0.1  # share of the stacks that lead to one function of a library
PYTHON_CALLS = 15  # at most
INTERPRETER = re.compile(r"(lib)?python")  # its frames are Python's, which are counted by name
#: The files where PyTorch begins, and the files and names where it ends.
OURS = re.compile(r"libtorch_|libc10")
LIBRARY_FILE = re.compile(r"lib(cu|nv|openblas|mkl|arm_compute)")
LIBRARY = re.compile(
    r"dnnl|mkl_|cblas_|[sd]gemm_$|arm_compute::|fbgemm::|qnnpack::|pytorch_q|xnn_|cudnn|cublas|cu(da)?[A-Z]"
)
#: The first that fits a name; a name that none fits belongs to what called it.
LEVELS = (
    (
        "dispatcher",
        re.compile(r"at::(_ops|redispatch|autocast)::|c10::|.*\bwrapper_|.*VariableType::"),
    ),
    ("TorchScript", re.compile(r"torch::jit::")),
    ("C++ API", re.compile(r"torch::nn::")),
    ("binding", re.compile(r"torch::|pybind11::|THP")),
    ("ATen", re.compile(r"at::|ideep::")),
)


def measure(call: Callable[[], None], wait: Callable[[], None], python: bool = True) -> CallDepth:
    """Watch some hundred calls; without `python` the caller is not a Python one."""
    try:
        above = _python_frames(call, wait) if python else []
        chains = Counter(filter(None, map(chain, _stacks(call, wait))))
    except Exception as error:  # the profile stands without it
        return CallDepth(problem=f"{type(error).__name__}: {gist(error)}")
    if not chains:
        return CallDepth(problem="no stack led into a library")
    names, stacks = usual(chains), sum(chains.values())
    return CallDepth([*above, *levels(names)], chains[names], stacks)


def chain(stack: Iterable[Symbol]) -> tuple[str, ...]:
    """Cut a stack, outermost first, to PyTorch's functions and the library's first."""
    names: list[str] = []
    for file, raw in stack:
        name, base = readable(raw), Path(file).name
        if names and (LIBRARY_FILE.match(base) or LIBRARY.match(name)):
            return (*names, name or base)
        if names and INTERPRETER.match(base):
            continue  # PyTorch has called Python, which calls it again
        if names or OURS.match(base):
            names.append(name)
    return ()


def usual(chains: Counter[tuple[str, ...]]) -> tuple[str, ...]:
    """The shortest frequent way to the library's function that most stacks lead to."""
    entries: Counter[str] = Counter()
    for names, count in chains.items():
        entries[names[-1]] += count
    ((entry, most),) = entries.most_common(1)
    often = [c for c, n in chains.most_common() if c[-1] == entry and n >= OFTEN * most]
    return min(often, key=len)


def levels(names: tuple[str, ...]) -> list[Frame]:
    """The functions of a chain, the last of which is the library's, and what they belong to."""
    frames, level = [], "binding"
    for name in names[:-1]:
        level = next((known for known, fits in LEVELS if fits.match(name)), level)
        frames.append(Frame(level, name or "?"))
    return [*frames, Frame("library", names[-1])]


def _stacks(call: Callable[[], None], wait: Callable[[], None]) -> Iterable[list[Symbol]]:
    library = native.library("stacks.cpp", ["-lrt"])
    if code := library.stacks_start(ctypes.c_long(EVERY_NS)):
        raise OSError(code, "no timer for stacks")
    try:
        until = time.monotonic() + WATCHED_S
        while True:
            library.stacks_arm(1)
            call()
            library.stacks_arm(0)
            wait()
            if time.monotonic() >= until:
                break
    finally:
        count = library.stacks_stop()
    addresses = ctypes.POINTER(ctypes.c_size_t)()
    for place in range(count):
        depth = library.stacks_get(place, ctypes.byref(addresses))
        # A frame's address is where it goes on: behind the call, which may be its function's last.
        yield [symbols.at(address - 1) for address in reversed(addresses[:depth])]


def _python_frames(call: Callable[[], None], wait: Callable[[], None]) -> list[Frame]:
    """Inside of `call`: the frames of Python's in which most calls spend the most time."""
    slowest: Counter[tuple[str, ...]] = Counter()
    spent: Counter[tuple[str, ...]] = Counter()
    stack: list[str] = []
    last = time.perf_counter_ns()

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal last
        now = time.perf_counter_ns()
        spent[tuple(stack)] += now - last
        if event == "call":
            code = frame.f_code
            module = frame.f_globals.get("__name__", "?")
            stack.append(f"{module}.{getattr(code, 'co_qualname', code.co_name)}")
        elif event == "return" and stack:
            stack.pop()
        last = time.perf_counter_ns()

    until = time.monotonic() + WATCHED_S
    while not slowest or (time.monotonic() < until and sum(slowest.values()) < PYTHON_CALLS):
        spent.clear()
        stack.clear()
        last = time.perf_counter_ns()
        sys.setprofile(watch)
        try:
            call()
        finally:
            sys.setprofile(None)
        wait()
        slowest[spent.most_common(1)[0][0]] += 1
    ((names, _),) = slowest.most_common(1)
    theirs = itertools.dropwhile(lambda name: name.startswith("lstm_bench."), names)
    return [Frame("Python", name) for name in theirs]
