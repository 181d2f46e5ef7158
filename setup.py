"""Builds the C++ baseline. Everything else about the package stands in pyproject.toml.

The extensions are optional: without a compiler the package installs and says what is missing. None
needs cuDNN or CUDA to build: they are opened at run time. What they share with our kernels comes
from `lstm_kernels/` in this repository.
"""

import glob
import os
import sys

from pybind11.setup_helpers import Pybind11Extension
from setuptools import find_packages, setup
from setuptools.command.build_ext import build_ext

MAPPED = ("lstm_bench.grids", "lstm_bench.kernels")  # by pyproject.toml
KERNELS = "lstm_kernels/src/lstm_kernels"


#: By extension: what goes without it.
WITHOUT = {
    "lstm_bench._cudnn": "the C++ baseline on a GPU",
    "lstm_bench._limits": "how far a time is from what the machine allows",
}


class Build(build_ext):
    """Says what is missing where an extension could not be compiled."""

    def build_extensions(self) -> None:
        super().build_extensions()
        lacking = [
            e.name for e in self.extensions if not os.path.exists(self.get_ext_fullpath(e.name))
        ]
        if lacking:
            missing = ", ".join(WITHOUT[name] for name in lacking)
            print(
                f"lstm-bench: {' and '.join(lacking)} not compiled: install a C++20 compiler"
                f" (g++ 11 or newer) or the wheel; missing: {missing}; all else works",
                file=sys.stderr,
            )


def extension(name: str, sources: list[str], flags: list[str]) -> Pybind11Extension:
    more = os.environ.get("DEEPBENCH_FLAGS", "").split()  # the sanitizers come in here
    places = ("deepbench_ext/*.hpp", "deepbench_ext/*.inc", f"{KERNELS}/**/*.hpp")
    headers = sorted(path for place in places for path in glob.glob(place, recursive=True))
    # No -march: one build runs everywhere, and chooses instructions as it starts.
    return Pybind11Extension(
        name,
        [f"deepbench_ext/{source}" for source in sources],
        include_dirs=[KERNELS],
        depends=headers,
        cxx_std=20,
        optional=True,
        # -g0: Python asks for debug symbols, which take a third of the time to compile.
        extra_compile_args=["-g0", "-ffp-contract=fast", "-Wall", "-Wextra", *flags, *more],
        extra_link_args=["-pthread", "-ldl", *more],
    )


if __name__ == "__main__":
    setup(
        packages=[*find_packages(include=["lstm_bench*"]), *MAPPED],
        ext_modules=[
            extension("lstm_bench._cudnn", ["cudnn.cpp"], ["-O2"]),
            extension("lstm_bench._limits", ["limits_binding.cpp", "limits.cpp"], ["-O3"]),
        ],
        cmdclass={"build_ext": Build},
        options={"build_ext": {"parallel": True}},
    )
