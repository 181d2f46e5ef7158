"""CUDA source to machine code, by NVRTC: it comes with PyTorch, needs no nvcc and no GPU.

What was compiled once is kept in `$XDG_CACHE_HOME/lstm-bench` (else `~/.cache`), under a name that
says of what: source, constants, architecture and NVRTC. Two processes may write it at once.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from lstm_bench.model.types import Unsupported
from lstm_bench.worker.implementations import baseline_libraries as libraries

HEADERS = ("lstm_call.cuh", "lstm_step.cuh")
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
        self.log = ""  # of the last compilation

    def cached(self, source: str, constants: Mapping[str, int]) -> bytes:
        """The machine code of a file of `deepbench_ext/`, compiled if it never was."""
        texts = [self._read(name) for name in (source, *HEADERS)]
        text = "\0".join([*texts, repr(sorted(constants.items()))])
        text += "\0".join([self.architecture, self.version, *OPTIONS])
        name = (
            f"{Path(source).stem}-{self.architecture}-{hashlib.sha256(text.encode()).hexdigest()}"
        )
        kept = cache() / name[:64]
        try:
            return kept.read_bytes()
        except OSError:
            pass
        code = self.compile(source, constants)
        keep(kept, code)
        return code

    def compile(self, source: str, constants: Mapping[str, int]) -> bytes:
        """Machine code; `log` then has what the assembler says of registers."""
        nvrtc, program = self.library, ctypes.c_void_p()
        strings = ctypes.c_char_p * len(HEADERS)
        headers = strings(*(self._read(name).encode() for name in HEADERS))
        names = strings(*(name.encode() for name in HEADERS))
        options = [f"--gpu-architecture={self.architecture}", *OPTIONS]
        options += [f"-D{name}={value}" for name, value in constants.items()]
        flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        text = self._read(source).encode()
        self._check(
            nvrtc.nvrtcCreateProgram(
                ctypes.byref(program), text, source.encode(), len(HEADERS), headers, names
            ),
            source,
        )
        try:
            code = nvrtc.nvrtcCompileProgram(program, len(options), flags)
            self.log = self._get("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
            self._check(code, f"{source} for {self.architecture}\n{self.log}")
            return self._get("CUBIN", program)
        finally:
            nvrtc.nvrtcDestroyProgram(ctypes.byref(program))

    @property
    def spilled(self) -> int:
        """Bytes that the last kernel moves between registers and memory for want of registers."""
        return sum(map(int, re.findall(r"(\d+) bytes spill", self.log)))

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
    def _read(source: str) -> str:
        return (sources() / source).read_text()


def sources() -> Path:
    """What is compiled at first use: in the package where it is installed, beside it else."""
    package = Path(__file__).resolve().parents[2]
    folders = (package / "kernels", package.parent / "deepbench_ext")
    return next(folder for folder in folders if (folder / HEADERS[0]).is_file())


def cache() -> Path:
    """Where what was compiled is kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "lstm-bench", "kernels")


def keep(path: Path, content: bytes) -> None:
    """Written aside and renamed: a reader sees all of it or nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    except OSError:
        pass  # no place to keep it: it is compiled again next time
