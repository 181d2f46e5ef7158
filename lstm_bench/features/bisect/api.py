"""`lstm_bench.bisect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from lstm_bench.features.bisect import command
from lstm_bench.model.shape import parsed


def bisect(
    implementation: str,
    versions: Mapping[str, str | Path],
    shapes: Sequence[str] = (),
    grid: str | Path = "default",
    results: str | Path = "results",
    threshold: float = 0.07,
) -> pd.DataFrame:
    """Measure which version is the first slower one: one row per measurement, as they were made.

    `versions` has each version's interpreter, the oldest first. The last row, `what` is "border",
    is the first slower version, `b`, against the one before it, `a`, and its `verdict`; without a
    border nothing is slower. Columns: what, a, b, attempt, shapes, ratio, ratio_low, ratio_high,
    halfway, verdict, run.
    """
    plan = command.plan(implementation, str(grid), [parsed(shape) for shape in shapes])
    pythons = {version: str(path) for version, path in versions.items()}
    command.check(plan, pythons)
    search, runs = command.searched(
        plan, list(pythons), pythons.__getitem__, "latency", Path(results), threshold
    )
    return search.frame().assign(run=runs)
