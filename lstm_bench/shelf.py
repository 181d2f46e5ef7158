"""The reference of the shape at hand: one worker computes it, all of them read it.

At the paper's largest shape it takes a minute and two gigabytes. It lies in memory that has no
name on any disk and goes with the last process that holds it, so a killed run leaves nothing.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Any

from lstm_bench.model import Shape

if TYPE_CHECKING:
    from lstm_bench.problem import Answer


class Shelf:
    """The driver's side: one place per kind of work, and whether it is filled for a shape."""

    def __init__(self, kinds: set[str]):
        self.fds = {kind: os.memfd_create("lstm-bench-reference") for kind in sorted(kinds)}
        self._filled: dict[str, Shape] = {}

    def place(self, kind: str, shape: Shape) -> dict[str, Any]:
        """What a worker is told: where, and whether it is already there."""
        filled = self._filled.get(kind) == shape
        if not filled:
            self._filled.pop(kind, None)  # what is laid down next may be cut short
        return {"shelf": self.fds[kind], "filled": filled}

    def filled(self, kind: str, shape: Shape) -> None:
        self._filled[kind] = shape

    def close(self) -> None:
        for fd in self.fds.values():
            os.close(fd)
        self.fds = {}


def put(fd: int, answer: Answer) -> None:
    """A worker's side: lay an answer down for the others."""
    os.ftruncate(fd, 0)
    os.ftruncate(fd, sum(array.nbytes for array in answer))
    with os.fdopen(os.dup(fd), "r+b", buffering=0) as file:
        file.seek(0)
        for array in answer:
            view = array.data.cast("B")
            while view:
                view = view[file.write(view) :]


def get(fd: int, shape: Shape) -> Answer:
    """Look at what another worker has laid down; it is not copied."""
    import numpy as np

    whole = np.frombuffer(mmap.mmap(fd, 0, access=mmap.ACCESS_READ), dtype=np.float64)
    state = shape.batch * shape.hidden
    output, h, c = np.split(whole, [state * shape.timesteps, state * (shape.timesteps + 1)])
    sizes = (shape.batch, shape.hidden)
    return output.reshape(shape.timesteps, *sizes), h.reshape(sizes), c.reshape(sizes)
