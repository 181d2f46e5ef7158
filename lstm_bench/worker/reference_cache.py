"""The reference of the shape at hand: one worker computes it, all of them read it.

At the paper's largest shape it takes a minute and two gigabytes. It lies in memory that has no
name on any disk and goes with the last process that holds it, so a killed run leaves nothing.
"""

from __future__ import annotations

import math
import mmap
import os
from typing import TYPE_CHECKING

from lstm_bench.model.types import Shape

if TYPE_CHECKING:
    from lstm_bench.worker.problem import Answer


def put(file: int, answer: Answer) -> None:
    """Write an answer for the others."""
    os.ftruncate(file, 0)  # a worker that died may have begun
    with os.fdopen(os.dup(file), "r+b", buffering=0) as opened:
        opened.seek(0)
        for array in answer:
            view = array.data.cast("B")
            while view:
                view = view[opened.write(view) :]


def get(file: int, shape: Shape) -> Answer | None:
    """Read what another worker has written, without a copy; None if nobody has finished that."""
    import numpy as np

    sizes = _sizes(shape)
    values = [math.prod(size) for size in sizes]
    if os.fstat(file).st_size < 8 * sum(values):
        return None
    whole = np.frombuffer(mmap.mmap(file, 0, access=mmap.ACCESS_READ), dtype=np.float64)
    parts = np.split(whole, np.cumsum(values)[:-1])
    return tuple(part.reshape(size) for part, size in zip(parts, sizes, strict=True))


def _sizes(shape: Shape) -> list[tuple[int, ...]]:
    """The sizes of the arrays of an answer, in their order."""
    steps, rows, hidden = shape.timesteps, shape.batch, shape.hidden
    states: list[tuple[int, ...]] = [(shape.layers * shape.directions, rows, hidden)] * 2
    sizes = [(steps, rows, shape.directions * hidden), *states]
    if shape.training:
        sizes += [(steps, rows, shape.input_size), *states]
        for width in shape.widths:
            own = [(4 * hidden, width), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,)]
            sizes += own * shape.directions
    return sizes
