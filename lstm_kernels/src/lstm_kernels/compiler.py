"""CUDA source to machine code, by NVRTC: it comes with PyTorch, needs no nvcc and no GPU.

What was compiled once is kept, under a name that says of what: source, constants, architecture and
NVRTC.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lstm_kernels import Unsupported, cache, libraries
from lstm_kernels.plans import Plan

SOURCES = Path(__file__).resolve().parent / "gpu"
HEADERS = ("numbers.cuh", "call.cuh", "halves.cuh", "step.cuh", "wgmma.cuh")
OPTIONS = ("--std=c++17", "--ptxas-options=-v")


class Compiler:
    """One NVRTC, for one architecture such as `sm_90a`."""

    def __init__(self, architecture: str):
        self.architecture = architecture
        path = libraries.nvrtc()
        for builtins in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")):
            try:
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)  # NVRTC looks by bare name
            except OSError:
                pass
        self.library = ctypes.CDLL(path)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    @property
    def options(self) -> tuple[str, ...]:
        """NVRTC itself keeps code since 12.9, and then says nothing of registers: not so here."""
        keeps = tuple(map(int, self.version.split("."))) >= (12, 9)
        return (*OPTIONS, "--no-cache") if keeps else OPTIONS

    def identity(self) -> str:
        """Of all kernels, as this compiler compiles them."""
        texts = [path.read_text() for path in sorted(SOURCES.rglob("*.cu*"))]
        text = "\0".join([*texts, self.architecture, self.version, *self.options])
        return hashlib.sha256(text.encode()).hexdigest()

    def fitted(self, plan: Plan) -> tuple[Plan, bytes]:
        """The plan with as many weights in registers as there is room for, and its machine code."""
        fitting: Plan | None = plan
        while fitting:
            if code := self.cached(fitting.source, fitting.constants, may_be_slow=False):
                return fitting, code
            fitting = fitting.with_fewer_held()
        raise Unsupported(f"{plan.label}: not enough registers on {self.architecture}")

    def fit_ahead(self, plans: Sequence[Plan]) -> None:
        """Have the code of all these plans kept, compiled on all cores."""

        def one(plan: Plan) -> None:
            with contextlib.suppress(Unsupported):  # said when it is used
                self.fitted(plan)

        with ThreadPoolExecutor() as pool:
            list(pool.map(one, plans))

    def cached(self, source: str, constants: Mapping[str, int], may_be_slow: bool = True) -> bytes:
        """The machine code of a file of `gpu/`, or of any other path, compiled if it never was.

        Empty where it has too few registers, and that may not be.
        """
        texts = self._texts(source)
        text = "\0".join([*texts, repr((sorted(constants.items()), may_be_slow))])
        text += "\0".join([self.architecture, self.version, *self.options])
        name = (
            f"{Path(source).stem}-{self.architecture}-{hashlib.sha256(text.encode()).hexdigest()}"
        )
        path = cache.folder("kernels") / name[:64]
        try:
            return path.read_bytes()
        except OSError:
            pass
        code, log = self.compile(source, constants)
        if slowed(log) and not may_be_slow:
            code = b""
        cache.write(path, code)
        return code

    def compile(self, source: str, constants: Mapping[str, int]) -> tuple[bytes, str]:
        """Machine code, and what the assembler says of registers."""
        nvrtc, program = self.library, ctypes.c_void_p()
        strings = ctypes.c_char_p * len(HEADERS)
        text, *headers_text = (one.encode() for one in self._texts(source))
        headers = strings(*headers_text)
        names = strings(*(name.encode() for name in HEADERS))
        options = [f"--gpu-architecture={self.architecture}", *self.options]
        options += [f"-D{name}={value}" for name, value in constants.items()]
        flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        self._check(
            nvrtc.nvrtcCreateProgram(
                ctypes.byref(program), text, source.encode(), len(HEADERS), headers, names
            ),
            source,
        )
        try:
            code = nvrtc.nvrtcCompileProgram(program, len(options), flags)
            log = self._get("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
            self._check(code, f"{source} for {self.architecture}\n{log}")
            return self._get("CUBIN", program), log
        finally:
            nvrtc.nvrtcDestroyProgram(ctypes.byref(program))

    def _get(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
        found = ctypes.create_string_buffer(size.value)
        self._check(getattr(self.library, f"nvrtcGet{what}")(program, found), what)
        return found.raw

    def _check(self, code: int, about: str) -> None:
        if code:
            self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
            name = self.library.nvrtcGetErrorString(code).decode()
            raise Unsupported(f"NVRTC {self.version}: {name} ({about})")

    @staticmethod
    def _texts(source: str) -> list[str]:
        """What is compiled: a source and all headers."""
        paths = [SOURCES / source, *(SOURCES / "include" / name for name in HEADERS)]
        return [path.read_text() for path in paths]


def slowed(log: str) -> bool:
    """Whether a kernel lacks registers: it moves some to memory, or waits for each product."""
    return any(map(int, re.findall(r"(\d+) bytes spill", log))) or "serialized" in log
