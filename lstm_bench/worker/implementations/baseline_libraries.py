"""Finding what the C++ baseline drives: packages of the running environment, then the system.

The extensions link nothing; the paths found here are handed to them. What is missing is said
together with the command that brings it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lstm_bench.model.registry import FRAMEWORKS
from lstm_bench.model.types import Unsupported

OPENBLAS_REMEDY = "pip install scipy-openblas32"
CUDA_REMEDY = "pip install nvidia-cudnn-cu13 nvidia-cuda-runtime nvidia-cublas nvidia-cuda-nvrtc"
NVRTC_REMEDY = "pip install nvidia-cuda-nvrtc"

#: What pip calls the package that holds a library, where each has one of its own (CUDA 12).
_PACKAGES = {
    "cudnn": "cudnn",
    "cudart": "cuda_runtime",
    "cublas": "cublas",
    "cublasLt": "cublas",
    "nvrtc": "cuda_nvrtc",
}


def extension(name: str) -> Any:
    """One of the extension modules."""
    try:
        return importlib.import_module(f"lstm_bench.{name}")
    except ImportError as error:
        remedy = FRAMEWORKS["deepbench"].install
        raise Unsupported(f"the C++ baseline was not built ({error}): {remedy}") from None


def openblas() -> str:
    """The path of OpenBLAS."""
    found = _in_package("scipy_openblas32", "lib/libscipy_openblas.*") or _on_system("openblas")
    if not found:
        raise Unsupported(f"OpenBLAS is neither here nor on the system: {OPENBLAS_REMEDY}")
    return found


def cudnn() -> tuple[str, str]:
    """The paths of libcudnn and libcudart."""
    paths = [_cuda(name) for name in ("cudnn", "cudart")]
    if not all(paths):
        raise Unsupported(f"libcudnn or libcudart is neither here nor on the system: {CUDA_REMEDY}")
    # cuDNN opens these by bare name when it first needs them. Opened here by path, they are found
    # even where cuDNN and CUDA come from different places.
    for name in ("nvrtc", "cublasLt", "cublas"):
        if path := _cuda(name):
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return str(paths[0]), str(paths[1])


def persistent() -> list[str]:
    """The paths of libcudart, libcuda and libcublas."""
    paths = [_cuda("cudart"), "libcuda.so.1", _cuda("cublas")]
    if not all(paths):
        raise Unsupported(
            f"libcudart or libcublas is neither here nor on the system: {CUDA_REMEDY}"
        )
    if path := _cuda("cublasLt"):  # cuBLAS opens it by bare name
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return [str(path) for path in paths]


def nvrtc() -> str:
    """The path of NVRTC."""
    if path := _cuda("nvrtc"):
        return path
    raise Unsupported(f"libnvrtc is neither here nor on the system: {NVRTC_REMEDY}")


def _cuda(name: str) -> str | None:
    """A CUDA library as pip installs it (CUDA 13 in one folder), or as the toolkit does."""
    packages = [f"nvidia.{_PACKAGES[name]}", "nvidia.cu13"]
    if _cuda_major() == 13:
        packages.reverse()
    for package in packages:
        if found := _in_package(package, f"lib/lib{name}.so.*"):
            return found
    homes = [os.environ.get(h) for h in ("CUDNN_HOME", "CUDNN_PATH", "CUDA_HOME", "CUDA_PATH")]
    folders = [Path(home, part) for home in homes if home for part in ("lib64", "lib")]
    return _on_system(name, [*folders, Path("/usr/local/cuda/lib64")])


def _cuda_major() -> int | None:
    """The CUDA of the installed cuDNN package: the runtime beside it must be the same."""
    for major in (13, 12):
        try:
            importlib.metadata.version(f"nvidia-cudnn-cu{major}")
            return major
        except importlib.metadata.PackageNotFoundError:
            pass
    return None


def _in_package(package: str, pattern: str) -> str | None:
    """The first file of an installed package that matches, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((str(p) for folder in folders for p in sorted(Path(folder).glob(pattern))), None)


def _on_system(name: str, folders: Iterable[Path] = ()) -> str | None:
    """A library of the system: in one of the folders, or by the name that the loader knows."""
    for folder in folders:
        for path in sorted(folder.glob(f"lib{name}.so*"), reverse=True):
            return str(path)
    return ctypes.util.find_library(name)
