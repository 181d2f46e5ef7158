"""Builds the C++ baseline. Everything else about the package stands in pyproject.toml.

The extensions are optional: without a compiler the package installs and works without them. None
links OpenBLAS, cuDNN or CUDA; headers of the latter two are looked for here, and where they are not
found the module is built all the same, to say what was missing.
"""

import glob
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from pybind11.setup_helpers import Pybind11Extension
from setuptools import setup

HEADERS = ["cudnn.h", "cuda.h", "cuda_runtime_api.h", "crt/host_defines.h"]


def include_folders() -> Iterator[str]:
    """Where CUDA and cuDNN headers may lie, the most deliberate choice first."""
    yield os.environ.get("CUDNN_INCLUDE_DIR", "")
    for name in ("CUDNN_HOME", "CUDNN_PATH", "CUDA_HOME", "CUDA_PATH"):
        if name in os.environ:
            yield os.path.join(os.environ[name], "include")
    # The building environment, and the one that asked for the build: pip's isolation parts them.
    paths = sysconfig.get_paths(vars={"base": sys.prefix, "platbase": sys.prefix})
    for folder in dict.fromkeys([*sys.path, paths["purelib"], paths["platlib"]]):
        pattern = os.path.join(folder or ".", "nvidia", "*", "include")
        yield from sorted(glob.glob(pattern), reverse=True)
    yield "/usr/local/cuda/include"
    yield "/opt/cuda/include"
    yield f"/usr/include/{sysconfig.get_config_var('MULTIARCH')}"


def cuda_includes() -> list[str]:
    """The first folder that has each header; what only the compiler may find is left to it."""
    folders = [folder for folder in include_folders() if folder]
    found = [next((f for f in folders if Path(f, header).is_file()), None) for header in HEADERS]
    return [f"-isystem{folder}" for folder in dict.fromkeys(found) if folder]


def extension(name: str, sources: list[str], flags: list[str]) -> Pybind11Extension:
    more = os.environ.get("DEEPBENCH_FLAGS", "").split()  # the sanitizers come in here
    headers = sorted(glob.glob("deepbench_ext/*.hpp") + glob.glob("deepbench_ext/*.inc"))
    # No -march: one build runs everywhere, and the CPU kernel chooses instructions as it starts.
    return Pybind11Extension(
        name,
        [f"deepbench_ext/{source}" for source in sources],
        depends=headers,
        cxx_std=20,
        optional=True,
        # -g0: Python asks for debug symbols, which take a third of the time to compile.
        extra_compile_args=["-g0", "-ffp-contract=fast", "-Wall", "-Wextra", *flags, *more],
        extra_link_args=["-pthread", "-ldl", *more],
    )


if __name__ == "__main__":
    setup(
        ext_modules=[
            extension(
                "lstm_bench._openblas",
                ["openblas.cpp", "kernels.cpp", "phases.cpp", "limits.cpp"],
                ["-O3"],
            ),
            extension("lstm_bench._cudnn", ["cudnn.cpp"], ["-O2", *cuda_includes()]),
            extension("lstm_bench._persistent", ["persistent.cpp"], ["-O2", *cuda_includes()]),
        ],
        options={"build_ext": {"parallel": True}},
    )
