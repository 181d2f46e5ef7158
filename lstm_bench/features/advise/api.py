"""`lstm_bench.advise`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lstm_bench.driver import machine
from lstm_bench.features.advise import advice, report, sources
from lstm_bench.runs import grid


def advise(
    shape: str,
    now: str | None = None,
    accuracy: str | None = None,
    memory: float | None = None,
    run: str | Path | None = None,
    results: str | Path = "results",
    *,
    device: str | None = None,
    without: Sequence[str] = (),
) -> pd.DataFrame:
    """Advise what to run at a shape: one row per deployable implementation, fastest first.

    Columns: implementation, advised, accuracy, latency_s, speedup (over `now`), verdict, what it
    costs, and code. `memory` is in bytes; `device` is this machine's kind unless it is named, such
    as "h200". What else is known, such as whether that is decided, is in `attrs`.
    """
    asked, name = grid.named(shape, "shape"), None if run is None else str(run)
    search = sources.search(Path(results), asked, machine.kind(), device, now, name)
    return report.frame(advice.advise(search, accuracy, memory, without))
