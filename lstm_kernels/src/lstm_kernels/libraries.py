"""Finding NVIDIA's libraries: in packages of the running environment, then on the system.

Nothing is linked; the paths found here are handed to what drives the libraries.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path

from lstm_kernels import Unsupported

CUDA_REMEDY = "pip install nvidia-cuda-runtime nvidia-cublas nvidia-cuda-nvrtc"
NVRTC_REMEDY = "pip install nvidia-cuda-nvrtc"

#: What pip calls the package that holds a library, where each has one of its own (CUDA 12).
_PACKAGES = {
    "cudnn": "cudnn",
    "cudart": "cuda_runtime",
    "cublas": "cublas",
    "cublasLt": "cublas",
    "nvrtc": "cuda_nvrtc",
}


def cuda() -> list[str]:
    """The paths of libcudart, libcuda and libcublas."""
    paths = [find("cudart"), "libcuda.so.1", find("cublas")]
    if not all(paths):
        raise Unsupported(
            f"libcudart or libcublas is neither here nor on the system: {CUDA_REMEDY}"
        )
    if path := find("cublasLt"):  # cuBLAS opens it by bare name
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return [str(path) for path in paths]


def nvrtc() -> str:
    """The path of NVRTC."""
    if path := find("nvrtc"):
        return path
    raise Unsupported(f"libnvrtc is neither here nor on the system: {NVRTC_REMEDY}")


def find(name: str) -> str | None:
    """A CUDA library as pip installs it (CUDA 13 in one folder), or as the toolkit does."""
    packages = [f"nvidia.{_PACKAGES[name]}", "nvidia.cu13"]
    if _cuda_major() == 13:
        packages.reverse()
    for package in packages:
        if found := in_package(package, f"lib/lib{name}.so.*"):
            return found
    homes = [os.environ.get(h) for h in ("CUDNN_HOME", "CUDNN_PATH", "CUDA_HOME", "CUDA_PATH")]
    folders = [Path(home, part) for home in homes if home for part in ("lib64", "lib")]
    return on_system(name, [*folders, Path("/usr/local/cuda/lib64")])


def _cuda_major() -> int | None:
    """The CUDA of the installed cuDNN package: the runtime beside it must be the same."""
    for major in (13, 12):
        try:
            importlib.metadata.version(f"nvidia-cudnn-cu{major}")
            return major
        except importlib.metadata.PackageNotFoundError:
            pass
    return None


def in_package(package: str, pattern: str) -> str | None:
    """The first file of an installed package that matches, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((str(p) for folder in folders for p in sorted(Path(folder).glob(pattern))), None)


def on_system(name: str, folders: Iterable[Path] = ()) -> str | None:
    """A library of the system: in one of the folders, or by the name that the loader knows."""
    for folder in folders:
        for path in sorted(folder.glob(f"lib{name}.so*"), reverse=True):
            return str(path)
    return ctypes.util.find_library(name)
