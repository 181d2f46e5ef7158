"""Warns of others that measure on this machine: two at once disturb each other."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from lstm_bench.driver import gpu


@contextlib.contextmanager
def announced(device: str) -> Iterator[list[str]]:
    """Hold this machine's token while measuring; yields what to warn about.

    A file that all users of the machine share, locked while we run: the lock goes with the process,
    however that ends. Where it cannot be had there is nothing to warn about.
    """
    warnings = []
    token = _token()
    try:
        if token >= 0 and not _locked(token):
            pid = os.pread(token, 20, 0).decode(errors="replace").strip()
            who = f" (process {pid})" if pid.isdigit() else ""
            warnings.append(
                f"another lstm-bench is measuring on this machine{who}: both will disturb each"
                " other; wait for it, or mind the noise floor"
            )
        with contextlib.closing(gpu.open_gauge(device)) as gauge:
            others = [process.pid for process in gauge.processes()]
        if others:
            warnings.append(
                f"{len(others)} other process{'es' * (len(others) > 1)} on the GPU"
                f" ({', '.join(map(str, others[:5]))}): times will be disturbed"
            )
        yield warnings
    finally:
        if token >= 0:
            os.close(token)


TOKEN = Path(os.environ.get("LSTM_BENCH_TOKEN", "/tmp/lstm-bench.lock"))  # one per machine


def _token() -> int:
    """The machine's token, opened for as much as we may: reading is enough to lock it."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    for mode in (os.O_RDWR | os.O_CREAT, os.O_RDWR, os.O_RDONLY):
        try:
            token = os.open(TOKEN, mode | flags, 0o666)
        except OSError:
            continue
        with contextlib.suppress(OSError):
            os.fchmod(token, 0o666)  # past the umask: it is everybody's
        return token
    return -1


def _locked(token: int) -> bool:
    try:
        fcntl.flock(token, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        os.ftruncate(token, 0)
        os.pwrite(token, str(os.getpid()).encode(), 0)
    return True
