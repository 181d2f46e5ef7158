"""Whole runs against each other: which machine is faster where, and what a call costs there.

A run stands with the fastest of its rows that can be deployed, shape by shape, or with one row.
Every two runs are compared as a row of two runs is: with the noise floors of both.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from lstm_bench import features
from lstm_bench.analysis import circumstances, noise, summary
from lstm_bench.analysis.choice import allowed
from lstm_bench.analysis.comparison import Comparison, compare
from lstm_bench.analysis.noise import METRICS
from lstm_bench.analysis.results import Run, references, versions
from lstm_bench.model.feature import AddedColumn
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.shape_filter import chosen
from lstm_bench.model.types import LstmBenchError
from lstm_bench.model.units import counted

#: In what whole runs may differ without a word of the user: machines are what is compared.
ACROSS = ("device", "driver", "threads", "precision")
MOST_RUNS = 26  # each has a letter
HOUR_S, MILLION = 3600, 1e6

TURNED = {"faster": "slower", "slower": "faster", "same": "same", "unsure": "unsure"}

Pairs = Mapping[tuple[int, int], Comparison]  # by the places of both runs, the lower first


@dataclass(frozen=True)
class Machines:
    """Runs by name, and what each has at the shapes that all of them have."""

    runs: Mapping[str, Run]
    metric: str
    accuracy: str
    implementation: str | None  # one row of all runs, or the best of each
    cells: Mapping[str, pd.DataFrame]  # the cells that stand for each run
    rows: Mapping[str, list[str]]  # the rows that could stand for each run
    had: Mapping[str, int]  # shapes that each run has anything for
    pairs: Pairs
    added: Mapping[str, list[AddedColumn]]  # the columns that features add for each run

    @property
    def names(self) -> list[str]:
        return list(self.runs)


def machines(
    runs: Mapping[str, Run],
    metric: str = "latency",
    accuracy: str = "fp32",
    implementation: str | None = None,
    conditions: Sequence[str] = (),
    across: Sequence[str] = (),
) -> Machines:
    """Hold runs against each other at the shapes that all of them have.

    `accuracy` is the least accurate class that will do. State that is carried is refused against
    state that is not, unless `across` has it.
    """
    if not 2 <= len(runs) <= MOST_RUNS:
        raise LstmBenchError(f"found {counted(len(runs), 'run')}, expected 2 to {MOST_RUNS}")
    allowed(accuracy)
    able = {
        name: _able(run, name, metric, accuracy, implementation, conditions)
        for name, run in runs.items()
    }
    own = {name: _fastest(cells, METRICS[metric][0]) for name, cells in able.items()}
    indexes = [pd.MultiIndex.from_frame(cells[SHAPE]).unique() for cells in own.values()]
    common = indexes[0]
    for index in indexes[1:]:
        common = common.intersection(index)
    if common.empty:
        has = (f"{name} has {_sizes(cells)}" for name, cells in own.items())
        raise LstmBenchError(
            f"no shape is common to all: {'; '.join(has)}; `lstm-bench grid devices` on every"
            " machine measures the same ones"
        )
    had = {name: len(index) for name, index in zip(own, indexes, strict=True)}
    own = {
        name: cells[pd.MultiIndex.from_frame(cells[SHAPE]).isin(common)]
        for name, cells in own.items()
    }
    named = [
        cells.assign(row=cells["implementation"], implementation=name)
        for name, cells in own.items()
    ]
    names = list(runs)
    pairs = {}
    for i, j in itertools.combinations(range(len(names)), 2):
        a, b = names[i], names[j]
        floors = [runs[a].floors(metric), runs[b].floors(metric)]
        pairs[i, j] = compare(named[i], a, b, metric, named[j], (*ACROSS, *across), floors)
    rows = {name: list(dict.fromkeys(cells["implementation"])) for name, cells in able.items()}
    added = {
        name: [add(run, own[name], metric) for add in features.behind("column-machines")]
        for name, run in runs.items()
    }
    return Machines(runs, metric, accuracy, implementation, own, rows, had, pairs, added)


def _able(
    run: Run,
    name: str,
    metric: str,
    accuracy: str,
    implementation: str | None,
    conditions: Sequence[str],
) -> pd.DataFrame:
    """The cells that a run may stand with: those of one row, or all that can be deployed."""
    cells = chosen(run.cells, conditions, name)
    good = (cells["status"] == "ok") & (cells["copy"] == 1) & cells[METRICS[metric][0]].notna()
    cells = cells[good]
    if implementation is not None:
        able, what = cells["implementation"] == implementation, implementation
    else:
        able = (cells["computes"] == "lstm") & ~cells["implementation"].isin(references(run))
        able &= cells["precision"].map(summary.accuracy).isin(allowed(accuracy))
        what = f"row of accuracy {accuracy}"
    if not able.any():
        known = ", ".join(dict.fromkeys(cells["implementation"])) or "nothing"
        raise LstmBenchError(f"{name} has no {what} with a {metric}; it has: {known}")
    return cells[able]


def _fastest(cells: pd.DataFrame, value: str) -> pd.DataFrame:
    """The cells of the fastest row of each shape, all of its passes."""
    keys = [*SHAPE, "implementation"]
    medians = cells.groupby(keys, as_index=False)[value].median()
    best = medians.sort_values(value, kind="stable").drop_duplicates(SHAPE)
    return cells.merge(best[keys], on=keys)


def _sizes(cells: pd.DataFrame) -> str:
    """`hidden 64, 128, batch 1, 16, timesteps 10`."""
    axes = SHAPE[:3]
    return ", ".join(f"{a} {', '.join(map(str, sorted(cells[a].unique())))}" for a in axes)


def table(sides: Machines, prices: Mapping[str, float] | None = None) -> pd.DataFrame:
    """One row per shape and run.

    Columns: hidden, batch, timesteps, input_size, run, device_name, implementation, precision,
    seconds, ratio, verdict, wins, floor, and those of features, such as energy_j; with `prices`
    per hour also price (of a million calls), price_ratio, price_verdict and price_wins. `ratio` is
    to the fastest run at the shape, whose verdict is "fastest"; `wins`: all others are slower
    beyond the noise.
    """
    shapes = sides.pairs[0, 1].shapes[SHAPE]
    seconds, ratio, verdict, wins = _ranked(sides.pairs, len(sides.runs))
    parts = []
    for place, (name, cells) in enumerate(sides.cells.items()):
        first = cells.drop_duplicates(SHAPE).set_index(SHAPE)
        first = first.reindex(pd.MultiIndex.from_frame(shapes))
        part = shapes.assign(run=name)
        for column in ("device_name", "implementation", "precision"):
            part[column] = first[column].to_numpy()
        part["seconds"], part["ratio"] = seconds[place], ratio[place]
        part["verdict"], part["wins"] = verdict[place], wins[place]
        floors = sides.runs[name].floors(sides.metric)
        part["floor"] = noise.floor_at(floors, seconds[place], part["implementation"].tolist())
        keys = list(part[["implementation", *SHAPE]].itertuples(index=False, name=None))
        for more in sides.added[name]:
            part[more.key] = [more.values.get(key, np.nan) for key in keys]
        parts.append(part)
    if prices:
        dear, by, words, cheapest = _ranked(priced(sides, prices).pairs, len(parts))
        for place, part in enumerate(parts):
            part["price"] = dear[place] / HOUR_S * MILLION
            part["price_ratio"], part["price_verdict"] = by[place], words[place]
            part["price_wins"] = cheapest[place]
    return pd.concat(parts, ignore_index=True).sort_values(SHAPE, kind="stable", ignore_index=True)


def priced(sides: Machines, prices: Mapping[str, float]) -> Machines:
    """The same comparison with the price of a call in place of its time.

    The noise is that of the times.
    """
    if set(prices) != set(sides.names) or not all(0 < price < np.inf for price in prices.values()):
        given = ", ".join(f"{name}={price:g}" for name, price in prices.items())
        wanted = ", ".join(f"{name}=2.50" for name in sides.names)
        raise LstmBenchError(f"prices per hour: found {given}, expected such as {wanted}")
    pairs = {}
    for (i, j), pair in sides.pairs.items():
        a, b = prices[sides.names[i]], prices[sides.names[j]]
        shapes = pair.shapes.assign(a_s=pair.shapes["a_s"] * a, b_s=pair.shapes["b_s"] * b)
        shapes["ratio"] = shapes["b_s"] / shapes["a_s"]
        rounds = pair.a_rounds * a, pair.b_rounds * b
        ratio, floor = (shapes[name].to_numpy() for name in ("ratio", "floor"))
        shapes["verdict"] = noise.verdicts(*rounds, ratio, floor)
        pairs[i, j] = dataclasses.replace(
            pair, shapes=shapes, a_rounds=rounds[0], b_rounds=rounds[1]
        )
    return dataclasses.replace(sides, pairs=pairs)


def _ranked(
    pairs: Pairs, count: int
) -> tuple[
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
    npt.NDArray[np.object_],
    npt.NDArray[np.bool_],
]:
    """Every run at every shape: its time, its ratio to the fastest, its verdict, if it wins."""
    shapes = len(pairs[0, 1].shapes)
    seconds = np.empty((count, shapes))
    words = np.full((count, count, shapes), "same", dtype=object)  # of the second against the first
    for (i, j), pair in pairs.items():
        seconds[i], seconds[j] = pair.shapes["a_s"], pair.shapes["b_s"]
        words[i, j] = pair.shapes["verdict"]
        words[j, i] = pair.shapes["verdict"].map(TURNED)
    fastest, every = seconds.argmin(axis=0), np.arange(shapes)
    verdict = np.stack([words[fastest, run, every] for run in range(count)])
    slower = (verdict == "slower").sum(axis=0) == count - 1
    verdict[fastest, every] = "fastest"
    return seconds, seconds / seconds.min(axis=0), verdict, (verdict == "fastest") & slower


def unlike(sides: Machines) -> dict[str, list[str]]:
    """How the setups of the runs differ beside the machine: versions and settings."""
    had = []
    for name, run in sides.runs.items():
        rows = dict.fromkeys(sides.cells[name]["implementation"])
        had.append({k: v for row in rows for k, v in versions(run, row).items()})
        had[-1]["precision"] = " and ".join(sorted(set(sides.cells[name]["precision"])))
    differing = circumstances.differences(list(sides.runs.values()), [had], machine=False)
    return {what: list(values) for what, values in differing.items()}
