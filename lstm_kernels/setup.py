"""Builds the extensions. Everything else about the package stands in pyproject.toml.

They are optional: without a compiler the package installs. None needs CUDA to build: its libraries
are opened at run time.
"""

import glob
import os

from pybind11.setup_helpers import Pybind11Extension
from setuptools import setup

ROOT = "src/lstm_kernels"


def extension(name: str, sources: list[str], flags: list[str]) -> Pybind11Extension:
    more = os.environ.get("LSTM_KERNELS_FLAGS", "").split()  # the sanitizers come in here
    headers = [
        f for kind in ("hpp", "inc") for f in glob.glob(f"{ROOT}/**/*.{kind}", recursive=True)
    ]
    # No -march: one build runs everywhere, and the CPU kernel chooses instructions as it starts.
    return Pybind11Extension(
        f"lstm_kernels.{name}",
        [f"{ROOT}/{source}" for source in sources],
        depends=sorted(headers),
        cxx_std=20,
        optional=True,
        # -g0: Python asks for debug symbols, which take a third of the time to compile.
        extra_compile_args=["-g0", "-ffp-contract=fast", "-Wall", "-Wextra", *flags, *more],
        extra_link_args=["-pthread", "-ldl", *more],
    )


if __name__ == "__main__":
    setup(
        ext_modules=[
            extension("_cpu", ["cpu/binding.cpp", "cpu/kernels.cpp", "cpu/phases.cpp"], ["-O3"]),
            extension("_gpu", ["gpu/host/layer.cpp"], ["-O2"]),
        ],
        options={"build_ext": {"parallel": True}},
    )
