"""lstm-bench: benchmark one LSTM layer, with checked outputs and measured noise.

import lstm_bench
cells = lstm_bench.load()                  # the newest run in results/, one row per cell
samples = lstm_bench.samples("my-run")     # one row per raw sample
profiles = lstm_bench.profiles("my-run")   # one row per kernel or operator of a profiled cell
advice = lstm_bench.advise("512,1,25")     # what to run at a shape, fastest first
layers = lstm_bench.layers(model, x)       # one row per LSTM of a PyTorch model
both = lstm_bench.machines("gpu", "cpu")   # one row per shape and run: which machine wins where
verdicts = lstm_bench.gate("base", "new")  # one row per verdict of `lstm-bench gate`
steps = lstm_bench.bisect("pytorch", {"2.12": "old/bin/python", "2.13": "new/bin/python"})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

    from lstm_bench.features.advise.api import advise as advise
    from lstm_bench.features.bisect.api import bisect as bisect
    from lstm_bench.features.gate.api import gate as gate
    from lstm_bench.features.profile.api import profiles as profiles
    from lstm_bench.features.your_model.in_worker import layers as layers

__version__ = "0.1.0"


def load(run: str | Path | None = None, results: str | Path = "results") -> pd.DataFrame:
    """A run as a tidy data frame, one row per cell; `run` is a name in `results`, or a folder.

    Columns: implementation, hidden, batch, timesteps, input_size, status, reason, latency_s,
    throughput_s, device_s, max_abs_error, and what the cell ran on and with. A/A controls have a
    `copy` above 1.
    """
    from lstm_bench.analysis import results as runs
    from lstm_bench.runs.run_folders import find_run

    return runs.load(find_run(results, run)).cells


def samples(run: str | Path | None = None, results: str | Path = "results") -> pd.DataFrame:
    """Every raw sample of a run: `metric` is latency (one call) or throughput (a block, per call).

    Columns: implementation, hidden, batch, timesteps, input_size, pass_number, copy, round,
    disturbed, metric, seconds.
    """
    from lstm_bench.analysis import results as runs
    from lstm_bench.runs.run_folders import find_run

    return runs.samples(find_run(results, run))


def machines(
    *runs: str | Path,
    results: str | Path = "results",
    metric: str = "latency",
    accuracy: str = "fp32",
    implementation: str | None = None,
    prices: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Runs of several machines at the shapes that all have, one row per shape and run.

    A run stands with its fastest implementation that can be deployed and is as accurate as
    `accuracy` (fp32, tf32, half, int8, any) or better, or with `implementation`. `prices` are per
    hour, by the name of the run.

    Columns: hidden, batch, timesteps, input_size, run, device_name, implementation, precision,
    seconds, ratio, verdict, wins, floor, energy_j; with `prices` also price, price_ratio,
    price_verdict and price_wins. `attrs["unlike"]` has what differs beside the machine.
    """
    from lstm_bench.analysis import kinds
    from lstm_bench.analysis import machines as whole

    loaded = {str(run): kinds.load_part(results, run) for run in runs}
    compared = whole.machines(loaded, metric, accuracy, implementation)
    table = whole.table(compared, prices)
    table.attrs["unlike"] = whole.unlike(compared)
    return table


def __getattr__(name: str) -> Any:
    """A function of a feature, such as `gate`."""
    import importlib

    known = name[0] != "_" and name != "features"
    function = importlib.import_module("lstm_bench.features").api(name) if known else None
    if function is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return function
