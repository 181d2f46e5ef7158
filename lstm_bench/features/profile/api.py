"""`lstm_bench.profiles`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lstm_bench.features.profile import cells
from lstm_bench.runs.run_folders import find_run


def profiles(run: str | Path | None = None, results: str | Path = "results") -> pd.DataFrame:
    """The parts of calls of profiled cells, one row per kernel, copy, fill or operator.

    Columns: implementation, hidden, batch, timesteps, input_size, pass_number, copy, source, name,
    raw_name, kind, family, count, seconds, total_s, bytes; per call of the layer. Profiles that
    cannot be the truth, since records were lost, are left out.
    """
    return cells.profiles(find_run(results, run))
