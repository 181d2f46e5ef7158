"""The libraries that this process has loaded."""

from __future__ import annotations

import ctypes
from pathlib import Path

MAPS = Path("/proc/self/maps")


def path(name: str) -> str:
    """The first loaded file whose name begins so, such as `libcudnn.so`; empty if there is none."""
    try:
        lines = MAPS.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.split(None, 5)[-1] for line in lines if f"/{name}" in line), "")


def cudnn() -> str:
    """The version of the cuDNN that was loaded, by its own word; empty if none was."""
    loaded = path("libcudnn.so")
    try:
        return dotted(int(ctypes.CDLL(loaded).cudnnGetVersion())) if loaded else ""
    except (OSError, AttributeError):
        return ""


def dotted(version: int) -> str:
    """91900 is 9.19.0."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"
