"""lstm-bench: benchmark one LSTM layer, with checked outputs and measured noise.

import lstm_bench
cells = lstm_bench.load()                  # the newest run in results/, one row per cell
samples = lstm_bench.samples("my-run")     # one row per raw sample
profiles = lstm_bench.profiles("my-run")   # one row per kernel or operator of a profiled cell
verdicts = lstm_bench.gate("base", "new")  # one row per verdict of `lstm-bench gate`
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


def gate(
    base: str | Path,
    new: str | Path | None = None,
    results: str | Path = "results",
    *,
    implementations: Sequence[str] = (),
    rows: Mapping[str, str] | None = None,
    threshold: float = 0.07,
    metric: str = "latency",
    across: Sequence[str] = (),
    strict: bool = False,
) -> pd.DataFrame:
    """What `lstm-bench gate` says of two runs, or of two rows of one: one row per verdict.

    `rows` has a row of the new run and the one of the base that it is held against. Columns:
    implementation, against, shape ("all": the whole row), what (time, output, device memory, host
    memory), base, new, ratio, noise, verdict, rounds, disturbed, fails. Raises LstmBenchError if
    the two do not compare and `across` does not allow it.
    """
    from lstm_bench.analysis import gate as analysis
    from lstm_bench.analysis import results as runs

    first = runs.load(_folder(base, results))
    second = first if new is None else runs.load(_folder(new, results))
    second = first if analysis.same(first, second) else second
    renamed = [f"{mine}={theirs}" for mine, theirs in (rows or {}).items()]
    pairs = analysis.paired(first, second, list(implementations), renamed)
    return analysis.gate(first, second, pairs, threshold, metric, across, strict)


def _folder(run: str | Path | None, results: str | Path) -> Path:
    from pathlib import Path

    from lstm_bench.runs import run_folders

    return run_folders.find_run(Path(results), None if run is None else str(run))
