"""From records to answers: pure functions on data frames, one row per cell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lstm_bench.model import Record, Shape
from lstm_bench.timing import median_interval

#: Duration classes, each with a noise floor of its own: a fixed cost of the clock or of a context
#: switch weighs more on a short call.
CLASSES = (("< 100 us", 1e-4), ("< 1 ms", 1e-3), (">= 1 ms", math.inf))

FEWEST_ROUNDS = 5  # below, no interval means anything
FEWEST_PAIRS = 5  # below, a class has no noise floor that it can call its own

SHAPE = ["hidden", "batch", "timesteps", "input_size"]


def frame(records: Iterable[Record]) -> pd.DataFrame:
    """One row per cell, controls included (`copy` above 1)."""
    rows = [
        {
            "implementation": r.implementation,
            "hidden": r.shape.hidden,
            "batch": r.shape.batch,
            "timesteps": r.shape.timesteps,
            "input_size": r.shape.input_size,
            "pass_number": r.pass_number,
            "copy": r.copy,
            "status": r.status,
            "reason": r.reason,
            "latency_s": r.latency_s,
            "throughput_s": r.throughput_s,
            "device_s": r.device_s,
            "first_call_s": r.first_call_s,
            "max_abs_error": r.check.max_abs_error if r.check else None,
            "tolerance": r.check.tolerance if r.check else None,
            "precision": r.precision,
            "computes": r.computes,
            "path": r.path,
            "device": r.device,
            "threads": r.threads,
            "tf32": r.tf32,
            "rounds": r.rounds,
            "calls": r.calls,
            "outliers": r.outliers,
            "timed_s": r.timed_s,
            "round_latency_s": r.round_latency_s,
            "round_throughput_s": r.round_throughput_s,
            "warnings": r.warnings,
            "group": r.group,
        }
        for r in records
    ]
    result = pd.DataFrame(rows, columns=None if rows else ["implementation", "copy", "status"])
    for column in ("latency_s", "throughput_s", "device_s", "first_call_s", "max_abs_error"):
        if column in result:
            result[column] = pd.to_numeric(result[column])
    return result


@dataclass(frozen=True)
class Pair:
    """An implementation and its A/A control at one shape: the same code, measured twice."""

    implementation: str
    latency_s: float
    difference: float  # (A' - A) / A
    first: tuple[float, ...]  # round medians
    second: tuple[float, ...]


@dataclass(frozen=True)
class Noise:
    """The noise floor of one duration class."""

    name: str
    pairs: int
    floor: float | None  # of |A - A'| / A, 95th percentile; none without pairs
    called_different: int  # pairs that the verdict, with the floor of all other pairs, calls so


def control_pairs(cells: pd.DataFrame) -> list[Pair]:
    """Copies 1 and 2, 3 and 4, ... of an implementation at one shape in one pass."""
    if cells.empty:
        return []
    ok = cells[cells["status"] == "ok"]
    pairs = []
    for (name, *_), copies in ok.groupby(["implementation", *SHAPE, "pass_number"], sort=True):
        by_copy = {int(row["copy"]): row for _, row in copies.iterrows()}
        for copy in sorted(by_copy)[::2]:
            a, b = by_copy[copy], by_copy.get(copy + 1)
            if b is not None and a["group"] == b["group"]:  # else they were not measured in turns
                pairs.append(
                    Pair(
                        str(name),
                        float(a["latency_s"]),
                        float(b["latency_s"] / a["latency_s"] - 1),
                        tuple(a["round_latency_s"]),
                        tuple(b["round_latency_s"]),
                    )
                )
    return pairs


def noise(pairs: Sequence[Pair]) -> list[Noise]:
    """The run's noise floor by duration class, each class with its own pairs."""
    result = []
    lower = 0.0
    for name, upper in CLASSES:
        members = [p for p in pairs if lower <= p.latency_s < upper]
        different = 0
        for pair in members:
            # a pair is judged by the others of its class; where they are few, by all others
            others = [p for p in members if p is not pair]
            if len(others) < FEWEST_PAIRS:
                others = [p for p in pairs if p is not pair]
            floor = percentile_95([abs(p.difference) for p in others])
            if floor is not None:
                different += verdict(pair.first, pair.second, floor) in ("faster", "slower")
        floor = percentile_95([abs(p.difference) for p in members])
        result.append(Noise(name, len(members), floor, different))
        lower = upper
    return result


def percentile_95(values: Sequence[float]) -> float | None:
    return float(np.percentile(values, 95)) if len(values) else None


def verdict(first: Sequence[float], second: Sequence[float], floor: float) -> str:
    """What `second` is against `first`: faster, slower, same or unsure.

    Both were measured in the same rounds, so rounds are compared pairwise. A difference counts
    if the whole of its 95% interval is beyond the noise floor. Asking only that the interval
    leaves zero out calls too many A/A pairs different: a floor from twenty pairs is itself noisy.
    """
    rounds = min(len(first), len(second))
    if rounds < FEWEST_ROUNDS:
        return "unsure"
    ratios = [math.log(b / a) for a, b in zip(first[:rounds], second[:rounds], strict=True)]
    beyond = math.log1p(floor)
    if abs(float(np.median(ratios))) <= beyond:
        return "same"
    low, high = median_interval(ratios)
    if low > beyond:
        return "slower"
    return "faster" if high < -beyond else "unsure"


def baseline_of(cells: pd.DataFrame) -> str | None:
    """What all others are held against: the raw library if it is there, else PyTorch, else any."""
    ok = sorted(set(cells.loc[cells["status"] == "ok", "implementation"]))
    return next((name for name in ("deepbench", "pytorch") if name in ok), ok[0] if ok else None)


def summary(cells: pd.DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """One row per implementation, in the given order: how fast, how right, how often.

    Medians are over the shapes that all rows with any result share, so that a row which refuses
    the large ones does not look fast.
    """
    own = cells[cells["copy"] == 1]
    ok = own[own["status"] == "ok"]
    baseline = baseline_of(cells)
    times = ok.pivot_table("latency_s", index=SHAPE, columns="implementation", aggfunc="median")
    shared = times.dropna().index if len(times.dropna()) else times.index
    common = ok.set_index(SHAPE)
    common = common[common.index.isin(shared)]
    wins = Counter(w.fastest for w in winners(cells) if w.verdict.endswith("x"))
    rows = []
    for name in order:
        mine, good = own[own["implementation"] == name], ok[ok["implementation"] == name]
        here = common[common["implementation"] == name]
        ratio = math.nan
        if baseline in times and name in times:
            both = times[[name]].assign(base=times[baseline]).dropna()
            if len(both):
                ratio = float(np.exp(np.log(both[name] / both["base"]).mean()))
        rows.append(
            {
                "implementation": name,
                "computes": mine["computes"].iloc[0] if len(mine) else "lstm",
                "precision": mine["precision"].iloc[0] if len(mine) else "",
                "paths": sorted(set(good["path"])),
                "cells": len(mine),
                "ok": len(good),
                "latency_s": here["latency_s"].median(),
                "throughput_s": here["throughput_s"].median(),
                "ratio": ratio,
                "fastest": wins[name],
                "first_call_s": here["first_call_s"].median(),
                "max_abs_error": good["max_abs_error"].max(),
            }
        )
    result = pd.DataFrame(rows)
    result.attrs["shared_shapes"] = len(shared)
    return result


@dataclass(frozen=True)
class Winner:
    """The fastest implementation at one shape, and how sure that is."""

    shape: Shape
    fastest: str
    latency_s: float
    next: str | None
    next_latency_s: float | None
    verdict: str  # how many times slower the next is, or "same" or "unsure"


def winners(cells: pd.DataFrame) -> list[Winner]:
    """Shape by shape, among implementations that do the same work.

    Over several passes an implementation stands with its median, not with its luckiest pass.
    """
    floors = noise(control_pairs(cells))
    ok = cells[(cells["status"] == "ok") & (cells["copy"] == 1)]
    ok = ok[ok["computes"] == "lstm"] if len(ok) else ok
    result = []
    for sizes, here in ok.groupby(SHAPE, sort=True) if len(ok) else ():
        ranked = here.groupby("implementation")["latency_s"].median().sort_values()
        (best, best_s), *others = ranked.items()
        other, other_s = others[0] if others else (None, None)
        word = "-"
        if other:
            found = verdict(*in_turns(here, best, other), floor_at(floors, best_s))
            word = f"{other_s / best_s:.2f}x" if found == "slower" else found
        result.append(Winner(Shape(*map(int, sizes)), best, best_s, other, other_s, word))
    return result


def in_turns(cells: pd.DataFrame, a: str, b: str) -> tuple[list[float], list[float]]:
    """The rounds of two implementations at one shape, as far as both were measured in turns.

    Cells of a resumed run may have been measured at different times: those have no common round.
    """
    first: list[float] = []
    second: list[float] = []
    for _, group in cells.groupby(["pass_number", "group"], sort=True):
        rounds = dict(zip(group["implementation"], group["round_latency_s"], strict=True))
        pairs = list(zip(rounds.get(a, ()), rounds.get(b, ()), strict=False))
        first += [x for x, _ in pairs]
        second += [y for _, y in pairs]
    return first, second


def floor_at(floors: Sequence[Noise], latency_s: float) -> float:
    """The noise floor for a call of this length; a class with few pairs borrows the widest."""
    widest = max((n.floor for n in floors if n.floor is not None), default=0.0)
    own = next(n for n, (_, upper) in zip(floors, CLASSES, strict=True) if latency_s < upper)
    return own.floor if own.floor is not None and own.pairs >= FEWEST_PAIRS else widest


def failures(cells: pd.DataFrame) -> pd.DataFrame:
    """What is missing, and why: one row per implementation, status and reason."""
    failed = cells[(cells["status"] != "ok") & (cells["copy"] == 1)]
    if failed.empty:
        return pd.DataFrame(columns=["implementation", "status", "cells", "reason"])
    grouped = failed.groupby(["implementation", "status"], sort=False)["reason"]
    result = grouped.agg(cells="count", reason="first").reset_index()
    return result[["implementation", "status", "cells", "reason"]]
