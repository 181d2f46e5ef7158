"""How well the time of each cell is known, and which cells vary more than the noise floor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lstm_bench.analysis.noise import METRICS, Floors, Numbers, by_round, floor_at
from lstm_bench.model.median import median_interval


def intervals(value: pd.Series[float], rounds: pd.Series[Any]) -> Numbers:
    """Both ends of the 95% interval of each cell's median, over the cell's own figure."""
    ordered = np.sort(by_round(list(rounds)), axis=1)  # NaN goes last
    counts = np.isfinite(ordered).sum(axis=1)
    ends = np.full((2, len(ordered)), np.nan)
    for count in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == count)
        ranks = median_interval(range(count))  # the interval of places gives the order statistics
        for end, rank in zip(ends, ranks, strict=True):
            end[rows] = ordered[rows, int(rank)]
    result: Numbers = ends / value.to_numpy(dtype=float)
    return result


def beyond(cells: pd.DataFrame, floors: Floors, metric: str = "latency") -> Numbers:
    """Half the interval of each measured cell that is known less well than the noise floor.

    The floor is what the run can tell apart: a cell as sure as that is sure enough, whatever
    precision the grid asked for.
    """
    value, rounds = METRICS[metric]
    own = cells[(cells["status"] == "ok") & cells[value].notna()]
    low, high = intervals(own[value], own[rounds])
    half = (high - low) / 2
    floor = floor_at(floors, own[value], own["implementation"].tolist())
    return np.asarray(half[half > floor])
