"""Finding what the C++ baseline drives: OpenBLAS on a CPU, cuDNN on a GPU, and our own kernels.

The extensions link nothing: they get these paths. An error names what is missing together with the
command that installs it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Iterator
from typing import Any

import lstm_kernels
from lstm_bench.frameworks import FRAMEWORKS
from lstm_bench.model.types import Unsupported
from lstm_kernels.libraries import find, in_package, on_system

OPENBLAS_REMEDY = "pip install scipy-openblas32"
CUDA_REMEDY = "pip install nvidia-cudnn-cu13 nvidia-cuda-runtime nvidia-cublas nvidia-cuda-nvrtc"


@contextlib.contextmanager
def kernel_refusals() -> Iterator[None]:
    """Turn a refusal of `lstm_kernels` into one of the row that asked."""
    try:
        yield
    except lstm_kernels.Unsupported as reason:
        raise Unsupported(str(reason)) from None


def extension(name: str) -> Any:
    """An extension module, such as `lstm_bench._cudnn`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        remedy = FRAMEWORKS["deepbench"].install
        raise Unsupported(f"the C++ baseline was not built ({error}): {remedy}") from None


def openblas() -> str:
    """The path of OpenBLAS."""
    path = in_package("scipy_openblas32", "lib/libscipy_openblas.*") or on_system("openblas")
    if not path:
        raise Unsupported(f"OpenBLAS is neither here nor on the system: {OPENBLAS_REMEDY}")
    return path


class OpenBlas:
    """OpenBLAS, opened: its version, and its product of matrices by address.

    scipy-openblas32 prefixes its symbols, a system OpenBLAS does not.
    """

    def __init__(self, path: str):
        try:
            self._library = ctypes.CDLL(path)
            self.sgemm = ctypes.cast(self._symbol("cblas_sgemm"), ctypes.c_void_p).value
            config = self._symbol("openblas_get_config")
        except (OSError, AttributeError) as error:
            raise Unsupported(f"no OpenBLAS in {path}: {error}") from None
        config.restype = ctypes.c_char_p
        self.version = config().decode().split()[1]  # OpenBLAS 0.3.30 DYNAMIC_ARCH ...

    def in_one_thread(self) -> None:
        """The layer that calls it has threads of its own."""
        self._symbol("openblas_set_num_threads")(1)

    def _symbol(self, name: str) -> Any:
        prefixed = getattr(self._library, f"scipy_{name}", None)
        return prefixed or getattr(self._library, name)


def cudnn() -> tuple[str, str]:
    """The paths of libcudnn and libcudart."""
    paths = [find(name) for name in ("cudnn", "cudart")]
    if not all(paths):
        raise Unsupported(f"libcudnn or libcudart is neither here nor on the system: {CUDA_REMEDY}")
    # cuDNN opens these by bare name when it first needs them. Opened here by path, they are found
    # even where cuDNN and CUDA come from different places.
    for name in ("nvrtc", "cublasLt", "cublas"):
        if path := find(name):
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return str(paths[0]), str(paths[1])
