"""`lstm_bench.gate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from lstm_bench.analysis import kinds
from lstm_bench.features.gate import sides, verdicts


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
    """Judge two runs, or two rows of one, as `lstm-bench gate` does: one row per verdict.

    `rows` has a row of the new run and the one of the base that it is compared with. Columns:
    implementation, against, shape ("all": the whole row), what (time, output, device memory, host
    memory, time since the first base), base, new, ratio, noise, verdict, rounds, passes, disturbed,
    undecided, fails. Raises LstmBenchError if the two do not compare and `across` does not allow
    it.
    """
    first = kinds.load_part(results, base)
    second = first if new is None else kinds.load_part(results, new)
    second = first if sides.same(first, second) else second
    renamed = [f"{mine}={theirs}" for mine, theirs in (rows or {}).items()]
    pairs = sides.paired(first, second, list(implementations), renamed)
    return verdicts.gate(first, second, pairs, threshold, metric, across, strict)
