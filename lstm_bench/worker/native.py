"""C++ source to a loaded library, by the compiler on the PATH; what was compiled once is kept."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lstm_bench.model.types import Unsupported
from lstm_kernels import cache

FLAGS = ("-std=c++20", "-O2", "-shared", "-fPIC")
REMEDY = "put a C++20 compiler (g++ 11 or newer) on the PATH"


def library(source: str, flags: Sequence[str] = (), against: str = "") -> ctypes.CDLL:
    """A file of `deepbench_ext/`, compiled if it never was; `against`: what else it needs."""
    compiler = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    path = sources() / source
    text = "\0".join([*compiler, *FLAGS, *flags, against, path.read_text()])
    name = f"{path.stem}-{hashlib.sha256(text.encode()).hexdigest()}.so"
    compiled = cache.folder("kernels", "lstm-bench") / name
    try:
        return ctypes.CDLL(str(compiled))
    except OSError:
        pass
    if not shutil.which(compiler[0]):
        raise Unsupported(f"no C++ compiler, {compiler[0]} is not on the PATH: {REMEDY}")
    with tempfile.TemporaryDirectory(prefix="lstm-bench-") as folder:
        made = Path(folder, name)
        words = [*compiler, *FLAGS, str(path), *flags, "-o", str(made)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            print(shlex.join(words), done.stderr, sep="\n", file=sys.stderr)
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            why = f"cannot compile {source}{against and f' against {against}'}"
            raise Unsupported(f"{compiler[0]} {why}: {(errors or ['it does not say why'])[0]}")
        cache.write(compiled, made.read_bytes())
        return ctypes.CDLL(str(made))


def sources() -> Path:
    """The folder of the sources: in an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    folders = (package / "kernels", package.parent / "deepbench_ext")
    return next(folder for folder in folders if (folder / "stacks.cpp").is_file())
