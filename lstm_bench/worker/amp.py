"""Chooses the precision that AMP casts to: the grid's, or the first that a small call proves."""

from __future__ import annotations

import functools
from collections.abc import Callable

from lstm_bench.model.types import Settings, Shape, Unsupported
from lstm_bench.worker import problem as problems
from lstm_bench.worker.problem import Problem

#: Frameworks cast to bf16 on a CPU by default. Some CPUs run fp16 alone.
ON_A_CPU = ("bf16", "fp16")


def precision(
    settings: Settings, call: Callable[[Problem, str], object], training: bool = False
) -> str:
    """`fp16` or `bf16`; `call` runs the layer of a small problem in the one it is given."""
    if settings.amp != "auto":
        return settings.amp
    return "fp16" if settings.device == "cuda" else _proven(call, training)


@functools.cache
def _proven(call: Callable[[Problem, str], object], training: bool) -> str:
    refused = []
    small = problems.make(Shape(8, 2, 2, 8, training=training), seed=1)
    for name in ON_A_CPU:
        try:
            call(small, name)
            return name
        except Exception as error:  # every framework has its own for this
            refused.append(str(error) if isinstance(error, Unsupported) else f"{name}: {error}")
    raise Unsupported("AMP runs in no half precision here: " + "; ".join(refused))
