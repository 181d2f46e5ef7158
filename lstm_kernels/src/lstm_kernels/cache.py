"""What was compiled or found by trial once, kept on disk for the next process.

In `$XDG_CACHE_HOME/lstm-kernels`, else `~/.cache/lstm-kernels`; the benchmark keeps its own things
in `lstm-bench` beside it. Two processes may write it at once.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def folder(kind: str, package: str = "lstm-kernels") -> Path:
    """Where a package keeps things of a kind: `kernels` or `choices`."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, package, kind)


def write(path: Path, content: bytes) -> None:
    """Written aside and renamed: a reader sees all of it or nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    except OSError:
        pass  # no place to keep it: it is made again next time


class TuningCache:
    """What is fastest for something on this GPU; `about` has all that the answer depends on."""

    def __init__(self, about: Mapping[str, Any], package: str = "lstm-kernels"):
        gpu = gpu_name()
        self.about = json.dumps({"gpu": gpu, **about}, sort_keys=True)
        digest = hashlib.sha256(self.about.encode()).hexdigest()
        self.path = folder("choices", package) / f"{digest}.json" if gpu else None

    def read(self) -> dict[str, Any] | None:
        """What was chosen before; None: nothing."""
        try:
            entry = json.loads(self.path.read_bytes()) if self.path else {}
        except (OSError, ValueError):
            return None
        same = isinstance(entry, dict) and entry.get("about") == self.about
        return entry.get("choice") if same else None

    def write(self, choice: Mapping[str, Any]) -> None:
        if self.path:
            write(self.path, json.dumps({"about": self.about, "choice": choice}).encode())


@functools.cache
def gpu_name() -> str:
    """The first GPU of this process; empty without a driver."""
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0)
    failed = failed or driver.cuDeviceGetName(name, len(name), device)
    return "" if failed else name.value.decode(errors="replace")
