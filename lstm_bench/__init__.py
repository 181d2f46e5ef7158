"""lstm-bench: benchmark one LSTM layer, with checked outputs and measured noise.

import lstm_bench
cells = lstm_bench.load()                  # the newest run in results/, one row per cell
samples = lstm_bench.samples("my-run")     # one row per raw sample
profiles = lstm_bench.profiles("my-run")   # one row per kernel or operator of a profiled cell
advice = lstm_bench.advise("512,1,25")     # what to run at a shape, fastest first
both = lstm_bench.machines("gpu", "cpu")   # one row per shape and run: which machine wins where
verdicts = lstm_bench.gate("base", "new")  # one row per verdict of `lstm-bench gate`
steps = lstm_bench.bisect("pytorch", {"2.12": "old/bin/python", "2.13": "new/bin/python"})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from lstm_bench.analysis.results import Run

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
    """What to run at a shape, one row per implementation that may be deployed, fastest first.

    Columns: implementation, advised, accuracy, latency_s, speedup (over `now`), verdict, what it
    costs, and code. `memory` is in bytes; `device` is this machine's kind unless it is named, such
    as "h200". What else is known, such as whether that is decided, is in `attrs`.
    """
    from pathlib import Path

    from lstm_bench.driver import machine
    from lstm_bench.features.advise import advice, sources
    from lstm_bench.runs import grid

    asked, name = grid.typed(shape, "shape"), None if run is None else str(run)
    search = sources.search(Path(results), asked, machine.kind(), device, now, name)
    return advice.frame(advice.advise(search, accuracy, memory, without))


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
    from lstm_bench.analysis import machines as whole

    loaded = {str(run): _one_kind(run, results) for run in runs}
    found = whole.machines(loaded, metric, accuracy, implementation)
    table = whole.table(found, prices)
    table.attrs["unlike"] = whole.unlike(found)
    return table


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

    `rows` has a row of the new run and the one of the base that it is compared with. Columns:
    implementation, against, shape ("all": the whole row), what (time, output, device memory, host
    memory, time since the first base), base, new, ratio, noise, verdict, rounds, passes, disturbed,
    undecided, fails. Raises LstmBenchError if the two do not compare and `across` does not allow
    it.
    """
    from lstm_bench.features.gate import sides as gate_sides
    from lstm_bench.features.gate import verdicts as analysis

    first = _one_kind(base, results)
    second = first if new is None else _one_kind(new, results)
    second = first if gate_sides.same(first, second) else second
    renamed = [f"{mine}={theirs}" for mine, theirs in (rows or {}).items()]
    pairs = gate_sides.paired(first, second, list(implementations), renamed)
    return analysis.gate(first, second, pairs, threshold, metric, across, strict)


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

    from lstm_bench.features.bisect import command
    from lstm_bench.model.shape_filter import parsed

    plan = command.plan(implementation, str(grid), [parsed(shape) for shape in shapes])
    pythons = {version: str(path) for version, path in versions.items()}
    command.check(plan, pythons)
    found, runs = command.searched(
        plan, list(pythons), pythons.__getitem__, "latency", Path(results), threshold
    )
    return found.frame().assign(run=runs)


def _one_kind(run: str | Path, results: str | Path) -> Run:
    """A run on one kind of device, or that part of a mixed one: `mixed@H200`."""
    from pathlib import Path

    from lstm_bench.analysis import kinds
    from lstm_bench.analysis import results as runs
    from lstm_bench.runs import run_folders

    name, part = run_folders.split_part(Path(results), str(run))
    return kinds.chosen(runs.load(run_folders.find_run(Path(results), name)), part)


def _folder(run: str | Path | None, results: str | Path) -> Path:
    from pathlib import Path

    from lstm_bench.runs import run_folders

    return run_folders.find_run(Path(results), None if run is None else str(run))
