"""lstm-bench: benchmark one LSTM layer, with checked outputs and measured noise.

import lstm_bench
cells = lstm_bench.load()                  # the newest run in results/, one row per cell
samples = lstm_bench.samples("my-run")     # one row per raw sample
profiles = lstm_bench.profiles("my-run")   # one row per kernel or operator of a profiled cell
steps = lstm_bench.bisect("pytorch", {"2.12": "old/bin/python", "2.13": "new/bin/python"})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

__version__ = "0.1.0"


def load(run: str | Path | None = None, results: str | Path = "results") -> pd.DataFrame:
    """A run as a tidy data frame, one row per cell; `run` is a name in `results`, or a folder.

    Columns: implementation, hidden, batch, timesteps, input_size, status, reason, latency_s,
    throughput_s, device_s, max_abs_error, and what the cell ran on and with. A/A controls have a
    `copy` above 1.
    """
    from lstm_bench.analysis import results as runs

    return runs.load(_folder(run, results)).cells


def samples(run: str | Path | None = None, results: str | Path = "results") -> pd.DataFrame:
    """Every raw sample of a run: `metric` is latency (one call) or throughput (a block, per call).

    Columns: implementation, hidden, batch, timesteps, input_size, pass_number, copy, round,
    disturbed, metric, seconds.
    """
    from lstm_bench.analysis import results as runs

    return runs.samples(_folder(run, results))


def profiles(run: str | Path | None = None, results: str | Path = "results") -> pd.DataFrame:
    """What the calls of profiled cells are made of, one row per kernel, copy, fill or operator.

    Columns: implementation, hidden, batch, timesteps, input_size, pass_number, copy, source, name,
    raw_name, kind, family, count, seconds, total_s, bytes; per call of the layer. Profiles that
    cannot be the truth, since records were lost, are left out.
    """
    from lstm_bench.analysis import results as runs

    return runs.profiles(_folder(run, results))


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
    from pathlib import Path

    from lstm_bench.commands import bisect as command
    from lstm_bench.model.shape_filter import parsed

    plan = command.plan(implementation, str(grid), [parsed(shape) for shape in shapes])
    pythons = {version: str(path) for version, path in versions.items()}
    command.check(plan, pythons)
    found, runs = command.searched(
        plan, list(pythons), pythons.__getitem__, "latency", Path(results), threshold
    )
    return found.frame().assign(run=runs)


def _folder(run: str | Path | None, results: str | Path) -> Path:
    from pathlib import Path

    from lstm_bench.runs import run_folders

    return run_folders.find_run(Path(results), None if run is None else str(run))
