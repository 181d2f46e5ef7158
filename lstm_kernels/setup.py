"""Builds the native library. Everything else about the package stands in pyproject.toml.

It is C++ behind functions of C, so one build serves every Python. It is optional: without a
compiler the package installs, and says so. It needs no CUDA to build: CUDA's libraries are opened
at run time.

LSTM_KERNELS_TARGET=x86_64 or aarch64 has PyPI's `ziglang` build it for any Linux of that kind with
glibc 2.28 or newer, and tags the wheel for it. Else $CXX or c++ builds it for this machine.
"""

import glob
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError
from setuptools.modified import newer_group

ROOT = "src/lstm_kernels"
TARGET = os.environ.get("LSTM_KERNELS_TARGET", "")
ZIG = [sys.executable, "-m", "ziglang", "c++", "-target", f"{TARGET}-linux-gnu.2.28"]
COMPILER = ZIG if TARGET else shlex.split(os.environ.get("CXX", "")) or ["c++"]
MORE = shlex.split(os.environ.get("LSTM_KERNELS_FLAGS", ""))  # the sanitizers come in here
# No -march: one build runs everywhere, and the CPU kernel chooses instructions as it starts.
FLAGS = [
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-Wall",
    "-Wextra",
]


class Build(build_ext):
    """A shared library that knows nothing of Python."""

    def get_ext_filename(self, name: str) -> str:
        return f"{name.replace('.', '/')}.so"

    def build_extension(self, extension: Extension) -> None:
        built = Path(self.get_ext_fullpath(extension.name))
        if not newer_group([*extension.sources, *extension.depends], str(built)):
            return
        objects = [Path(self.build_temp, source).with_suffix(".o") for source in extension.sources]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self._compile, extension.sources, objects))
        built.parent.mkdir(parents=True, exist_ok=True)
        link = ["-shared", *(["-s"] if TARGET else []), *map(str, objects), "-pthread", "-ldl"]
        self._run(*COMPILER, *MORE, *link, "-o", str(built))

    def build_extensions(self) -> None:
        super().build_extensions()
        if not all(Path(self.get_ext_fullpath(e.name)).exists() for e in self.extensions):
            print(
                "lstm-kernels: the native library was not compiled: install a C++20 compiler"
                " (g++ 11 or newer) or the wheel; until then nn.LSTM itself computes all calls"
                " of a layer, and CpuLstm does not work",
                file=sys.stderr,
            )

    def _compile(self, source: str, to: Path) -> None:
        to.parent.mkdir(parents=True, exist_ok=True)
        self._run(*COMPILER, *FLAGS, *MORE, "-c", source, "-o", str(to))

    def _run(self, *words: str) -> None:
        try:
            subprocess.run(words, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompileError(str(error)) from None


class Wheel(bdist_wheel):
    """For every Python."""

    def get_tag(self) -> tuple[str, str, str]:
        machine = f"manylinux_2_28_{TARGET}" if TARGET else super().get_tag()[2]
        return "py3", "none", machine


if __name__ == "__main__":
    sources = [f"{ROOT}/{name}.cpp" for name in ("cpu/kernels", "cpu/phases", "native")]
    kinds = ("hpp", "inc")
    headers = [f for kind in kinds for f in glob.glob(f"{ROOT}/**/*.{kind}", recursive=True)]
    setup(
        ext_modules=[Extension("lstm_kernels._native", sources, depends=headers, optional=True)],
        cmdclass={"build_ext": Build, "bdist_wheel": Wheel},
        options={"build": {"build_base": f"build/{TARGET or 'here'}"}},
    )
