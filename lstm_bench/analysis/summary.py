"""A run as a whole: pure functions on data frames, one row per cell."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from lstm_bench.analysis import noise
from lstm_bench.analysis.noise import METRICS, Floors, Numbers, by_round
from lstm_bench.frameworks import FRAMEWORKS
from lstm_bench.model.shape import PASSES, SHAPE
from lstm_bench.model.types import ACCURACY, Shape
from lstm_bench.model.units import counted

Codes = npt.NDArray[np.intp]
FEW = 3  # shapes that are worth a list
ENOUGH = 0.5  # share of shapes: with fewer, a row would leave the others little in common
REFUSED = ("unsupported", "oom")  # what an implementation cannot run
LITTLE = 0.1  # gain in sequences per second by twice the sequences: the device is full
ANY = "any"  # class of accuracy: the fastest whatever its error
#: Classes of accuracy as a sentence says them, where it does not say their name.
LABELS = {"tf32": "TF32", **{name: f"{name} precision" for name in ("half", "unknown", ANY)}}


@dataclass(frozen=True)
class Times:
    """Every measured cell's time, as a table of shapes by implementations (NaN: not measured).

    Over several passes a cell stands with its median, not with its luckiest pass.
    """

    shapes: pd.DataFrame  # one row per shape, sorted
    names: list[str]
    seconds: Numbers
    cells: pd.DataFrame  # what it was made of
    shape_of: Codes  # row of `seconds`, for each of `cells`
    name_of: Codes  # column


_COLUMNS = ["latency_s", "throughput_s", "device_s", "first_call_s", "build_s", "import_s"]
_COLUMNS += ["forward_s", "backward_s"]
_COLUMNS += ["step_s", "sequences_per_s", "tflops"]
_LARGEST = ["host_peak", "device_peak"]  # allocators keep what they have: later cells add little
_KEPT = ["implementation", *SHAPE, "pass_number", "group", "computes", "path", "max_abs_error"]
_KEPT += ["precision", *_COLUMNS, *_LARGEST]


def times(
    cells: pd.DataFrame, metric: str = "latency", among: pd.Series[bool] | None = None
) -> Times:
    """All cells of the metric that came out well, controls apart; `among`: only of these."""
    value, rounds = METRICS[metric]
    good = (cells["status"] == "ok") & (cells["copy"] == 1) & cells[value].notna()
    if among is not None:
        good &= among
    ok = cells.loc[good, [*_KEPT, rounds]]
    shape_of = ok.groupby(SHAPE, sort=True).ngroup().to_numpy()
    shapes = ok[SHAPE].drop_duplicates().sort_values(SHAPE, ignore_index=True)
    name_of, names = pd.factorize(ok["implementation"])
    medians = pd.Series(ok[value].to_numpy()).groupby([shape_of, name_of]).median()
    seconds = np.full((len(shapes), len(names)), np.nan)
    seconds[tuple(medians.index.codes if len(ok) else ([], []))] = medians.to_numpy()
    return Times(shapes, list(names), seconds, ok, shape_of, name_of)


def baseline_of(names: Sequence[str]) -> str | None:
    """The row that all others are held against: the raw library, else PyTorch, else any."""
    known = (f.name for f in FRAMEWORKS.values() if f.baseline)
    return next((name for name in known if name in names), min(names, default=None))


def summary(
    cells: pd.DataFrame,
    timed: Times,
    won: pd.DataFrame | None,
    order: Sequence[str],
    baseline: str | None = None,
) -> pd.DataFrame:
    """One row per implementation, in the given order: how fast, how right, how often, at what cost.

    Medians and ratios are over the shapes that all rows share, so that a row which refuses the
    large ones does not look fast. A row with half of the shapes or fewer has its own: `shapes` and
    `ratio_shapes` count them.
    """
    own = cells.loc[cells["copy"] == 1, ["implementation", "computes", "precision", "status"]]
    whole = shared_shapes(timed)
    there = np.isfinite(timed.seconds)
    own_shapes = ~there[whole].all(axis=0) if whole.any() else True
    use = there & (whole[:, None] | own_shapes)
    shared = use[timed.shape_of, timed.name_of]
    names = pd.Index(timed.names)
    medians = timed.cells.loc[shared, _COLUMNS].groupby(timed.name_of[shared]).median()
    medians[_LARGEST] = timed.cells[_LARGEST].groupby(timed.name_of).max()
    medians.index = names[medians.index]
    profiled = _profiled(timed, whole[timed.shape_of] if whole.any() else shared)
    device = timed.cells.loc[profiled, "device_s"].groupby(timed.name_of[profiled]).median()
    medians["device_s"] = device.set_axis(names[device.index])
    worst = timed.cells["max_abs_error"].groupby(timed.name_of).max().set_axis(names)
    good = own.loc[own["status"] == "ok", "implementation"].value_counts()
    counts = own["implementation"].value_counts()
    measured_first = own.iloc[np.argsort(own["status"] != "ok", kind="stable")]
    facts = measured_first.drop_duplicates("implementation").set_index("implementation")
    paths = timed.cells.drop_duplicates(["implementation", "path"])
    won_by = Counter[str]() if won is None else wins(won)
    baseline = baseline or baseline_of(timed.names)
    logs = dict(zip(timed.names, np.log(np.where(use, timed.seconds, np.nan)).T, strict=True))
    rows = []
    nothing = np.full(len(timed.shapes), np.nan)
    base = np.log(timed.seconds[:, timed.names.index(baseline)]) if baseline in logs else nothing
    for name in order:
        own_logs = logs.get(name, nothing)
        differences = (own_logs - base)[np.isfinite(own_logs - base)]
        rows.append(
            {
                "implementation": name,
                "computes": facts["computes"].get(name, "lstm"),
                "precision": facts["precision"].get(name, ""),
                "paths": sorted(paths.loc[paths["implementation"] == name, "path"]),
                "cells": int(counts.get(name, 0)),
                "ok": int(good.get(name, 0)),
                "shapes": int(np.isfinite(own_logs).sum()),
                **{column: medians[column].get(name, math.nan) for column in medians},
                "ratio": float(np.exp(differences.mean())) if len(differences) else math.nan,
                "ratio_shapes": len(differences),
                "fastest": won_by[name],
                "max_abs_error": worst.get(name, math.nan),
            }
        )
    result = pd.DataFrame(rows)
    result.attrs["baseline"] = baseline
    result.attrs["shared_shapes"] = int(whole.sum())
    result.attrs["profiled_shapes"] = len(np.unique(timed.shape_of[profiled]))
    return result


def shared_shapes(timed: Times) -> npt.NDArray[np.bool_]:
    """The shapes that all rows have, of rows that have more than half of all shapes."""
    there = np.isfinite(timed.seconds)
    enough = there.mean(axis=0) > ENOUGH if len(there) else there.any(axis=0)
    return np.asarray(there[:, enough if enough.any() else slice(None)].all(axis=1))


def saturation(timed: Times) -> dict[str, tuple[int | None, int]]:
    """The batch of each row from which on a doubling gains under `LITTLE`, and its largest batch.

    A gain is the geometric mean over all other sizes; None: the last gain is larger.
    """
    rates = (
        timed.cells["sequences_per_s"].groupby([timed.name_of, timed.shape_of]).median().dropna()
    )
    name, shape = (rates.index.get_level_values(level) for level in (0, 1))
    cells = timed.shapes.iloc[shape].assign(name=name, rate=np.log2(rates.to_numpy()))
    cells["doublings"] = np.log2(cells["batch"])
    others = ["name", "hidden", "timesteps", "input_size", "training"]
    cells = cells.sort_values([*others, "batch"], ignore_index=True)
    step = cells.groupby(others)[["rate", "doublings"]].diff()
    start = cells.groupby(others)["batch"].shift()
    saturates: dict[str, tuple[int | None, int]] = {}
    for number, own in (step["rate"] / step["doublings"]).groupby(cells["name"]):
        full, batch = None, cells.loc[own.index, "batch"]
        for at, gain in own.groupby(start).mean()[::-1].items():
            if gain >= np.log2(1 + LITTLE):
                break
            full = int(at)
        if batch.nunique() > 1:
            saturates[timed.names[number]] = (full, int(batch.max()))
    return saturates


def _profiled(timed: Times, shared: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The shared cells at whose shape all rows that have any device time have one."""
    there = timed.cells["device_s"].notna().to_numpy() & shared
    pairs = pd.DataFrame({"shape": timed.shape_of[there], "name": timed.name_of[there]})
    rows = pairs.groupby("shape")["name"].nunique()
    whole = rows.index[rows == pairs["name"].nunique()]
    return np.asarray(there & np.isin(timed.shape_of, whole))


def accuracy(precision: str) -> str:
    """The class of a precision: who may have the one may not want the other."""
    return ACCURACY.get(precision, "unknown")


def accuracy_label(accuracy: str) -> str:
    """A class of accuracy in a sentence, after "in"."""
    return LABELS.get(accuracy, accuracy)


def classes(timed: Times) -> dict[str, list[str]]:
    """The rows of each class of accuracy; `ANY` has all of them, where there are several."""
    rows = timed.cells.drop_duplicates("implementation")
    rows_of: dict[str, list[str]] = {name: [] for name in ACCURACY.values()}
    for name, precision in zip(rows["implementation"], rows["precision"], strict=True):
        rows_of.setdefault(accuracy(precision), []).append(name)
    rows_of = {name: names for name, names in rows_of.items() if names}
    return {**rows_of, ANY: timed.names} if len(rows_of) > 1 else rows_of


def contests(
    timed: Times,
    floors: Floors,
    metric: str = "latency",
    among: Mapping[str, Collection[str]] | None = None,
) -> pd.DataFrame:
    """The winners of each class of accuracy (`among`), shape by shape, and over all classes."""
    parts = [
        winners(timed, floors, metric, names).assign(accuracy=name)
        for name, names in (among or classes(timed)).items()
    ] or [winners(timed, floors, metric).assign(accuracy="")]
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def winners(
    timed: Times,
    floors: Floors,
    metric: str = "latency",
    among: Collection[str] | None = None,
) -> pd.DataFrame:
    """The fastest implementation of each shape among those that do the same work, and the next.

    Rows that ran the same code there, none of them slower beyond the noise, share the place:
    `shared` has them all, and the next is the first of the others. `verdict` is the next one's:
    "slower" is a win beyond the noise. `error` is the fastest one's, against float64.
    """
    computes = timed.cells.drop_duplicates("implementation").set_index("implementation")["computes"]
    asked = timed.names if among is None else among
    equal = [i for i, name in enumerate(timed.names) if computes[name] == "lstm" and name in asked]
    won = timed.shapes.assign(fastest="", fastest_s=np.nan, next=None, next_s=np.nan)
    if not equal:
        return won[:0].assign(ratio=np.nan, verdict="", shared=None, error=np.nan)
    seconds = np.pad(timed.seconds[:, equal], ((0, 0), (0, 1)), constant_values=np.nan)
    rows = np.arange(len(won))
    ranked = np.argsort(seconds, axis=1)  # NaN goes last
    columns, names = np.array([*equal, 0]), np.array([*timed.names, None], dtype=object)
    codes = _codes(timed)

    def stand(label: str, place: Codes) -> pd.DataFrame:
        """Write who has this place at each shape into `won`, and return the rounds of it."""
        column = ranked[rows, place]
        won[label + "_s"] = time = seconds[rows, column]
        # as objects: the text that pandas 3 would make of it has no None
        known = names[np.where(np.isnan(time), -1, columns[column])]
        won[label] = pd.Series(known, won.index, dtype=object)
        return _rounds_of(timed, columns[column], METRICS[metric][1])

    fastest = stand("fastest", np.zeros(len(won), dtype=np.intp))
    shared: list[tuple[str, ...]] = [(name,) for name in won["fastest"]]
    while True:
        place = np.array([min(len(own), len(equal)) for own in shared], dtype=np.intp)
        rounds = _in_turns(fastest, stand("next", place), len(won))
        won["ratio"] = won["next_s"] / won["fastest_s"]
        floor = noise.floor_at(floors, won["fastest_s"], won["fastest"].tolist())
        of_next = noise.floor_at(floors, won["next_s"], won["next"].tolist())
        both = np.maximum(floor, of_next)
        floor = np.where(won["next_s"].notna(), both, floor)
        won["verdict"] = noise.verdicts(*rounds, won["ratio"].to_numpy(), floor)
        won.loc[won["next"].isna(), "verdict"] = "alone"
        first, second = (
            codes[rows, columns[ranked[:, 0]]],
            codes[rows, columns[ranked[rows, place]]],
        )
        alike = won["verdict"].isin(("same", "unsure")) & (first == second) & (second >= 0)
        if not alike.any():
            break
        for row in np.flatnonzero(alike).tolist():
            shared[row] += (won["next"].iloc[row],)
    won["shared"] = shared
    worst = timed.cells["max_abs_error"].groupby([timed.shape_of, timed.name_of]).max()
    errors = np.full(timed.seconds.shape, np.nan)
    errors[tuple(worst.index.codes)] = worst.to_numpy()
    won["error"] = errors[rows, columns[ranked[:, 0]]]
    return won[won["fastest"].notna()].reset_index(drop=True)


def _codes(timed: Times) -> Codes:
    """A number for the code that ran, by shape and implementation; -1 where the path tells none."""
    number, paths = pd.factorize(timed.cells["path"])
    codes = {"": -1, "generic": -1}
    meant = [codes.setdefault(re.sub(r" \(.*\)$", "", path), len(codes)) for path in paths]
    by_shape = np.full(timed.seconds.shape, -1)
    by_shape[timed.shape_of, timed.name_of] = np.array(meant, dtype=int)[number]
    return by_shape


def wins(won: pd.DataFrame) -> Counter[str]:
    """At how many shapes each is the fastest beyond the noise, alone or with others."""
    return Counter(name for own in won.loc[won["verdict"] == "slower", "shared"] for name in own)


def _rounds_of(timed: Times, column: Codes, rounds: str) -> pd.DataFrame:
    """The rounds of one implementation per shape: `column` says which."""
    mine = timed.name_of == column[timed.shape_of]
    part = timed.cells.loc[mine, ["pass_number", "group", rounds]]
    return part.assign(row=timed.shape_of[mine]).rename(columns={rounds: "rounds"})


def _in_turns(first: pd.DataFrame, second: pd.DataFrame, shapes: int) -> tuple[Numbers, Numbers]:
    """Both sides' rounds, one row per shape, as far as they ran in turns.

    Cells of a resumed run may have been measured at different times: those have no common round.
    """
    both = first.merge(second, on=["row", "pass_number", "group"])
    sides = by_round(list(both["rounds_x"])), by_round(list(both["rounds_y"]))
    return join_passes(both["row"].to_numpy(), shapes, *sides)


def join_passes(
    row: Codes, shapes: int, first: Numbers, second: Numbers
) -> tuple[Numbers, Numbers]:
    """The rounds of all passes of a shape side by side; `row` says whose they are."""
    width = min(first.shape[1], second.shape[1])
    place = pd.Series(row).groupby(row).cumcount().to_numpy()
    passes = int(place.max(initial=0)) + 1
    joined = np.full((2, shapes, passes, width), np.nan)
    joined[0, row, place], joined[1, row, place] = first[:, :width], second[:, :width]
    flat = joined.reshape(2, shapes, passes * width)
    return flat[0], flat[1]


def failures(cells: pd.DataFrame) -> pd.DataFrame:
    """Counts missing cells, where and why: one row per implementation, status and reason."""
    own = cells.loc[cells["copy"] == 1, ["implementation", *SHAPE, "status", "reason"]]
    failed = own.loc[own["status"] != "ok"]
    keys = ["implementation", "status", failed["reason"].map(_gist)]
    rows = [
        [name, status, len(group), _where(group, own[own["implementation"] == name]), reason]
        for (name, status, reason), group in failed.groupby(keys, sort=False)
    ]
    return pd.DataFrame(rows, columns=["implementation", "status", "cells", "where", "reason"])


def lacking(cells: pd.DataFrame, metric: str = "latency") -> dict[str, str]:
    """Says where rows lack times that others have: `cannot run hidden 1280 (8 of 32 shapes)`.

    Shapes that nobody has a time of are no row's own.
    """
    own = cells[cells["copy"] == 1]
    timed = own[(own["status"] == "ok") & own[METRICS[metric][0]].notna()]
    shapes = timed[SHAPE].drop_duplicates().set_index(SHAPE, drop=False)
    lacks = {}
    for name, mine in own.groupby("implementation", sort=False):
        known = timed.loc[timed["implementation"] == name, SHAPE].drop_duplicates()
        lost = shapes.drop(pd.MultiIndex.from_frame(known))
        if len(lost):
            tried = mine.set_index(SHAPE)["status"]
            tried = tried[tried.index.isin(lost.index)]
            refused = len(tried) >= len(lost) and tried.isin(REFUSED).all()
            what = "cannot run" if refused else "has no time at"
            count = f"{len(lost)} of {counted(len(shapes), 'shape')}"
            where = _where(lost, shapes) if len(lost) < len(shapes) else ""
            lacks[str(name)] = f"{what} {where} ({count})" if where else f"{what} {count}"
    return lacks


def _gist(reason: str) -> str:
    """The reason without the sizes that the baseline adds, which differ from cell to cell."""
    return re.sub(r" \(hidden \d[^()]*\)$", "", reason)


def _where(lost: pd.DataFrame, own: pd.DataFrame) -> str:
    """The sizes that a row lost, if an axis tells; else the shapes, if they are few."""
    kept = own.drop(lost.index)
    for axis in SHAPE if len(kept) else ():
        sizes = sorted(set(lost[axis]))
        if not kept[axis].isin(sizes).any():
            if axis == "training":
                return f"pass {PASSES[sizes[0]]}"
            return f"{axis} {', '.join(map(str, sizes))}"
    shapes = lost[SHAPE].drop_duplicates().itertuples(index=False, name=None)
    labels = [Shape.from_row(shape).label for shape in shapes]
    return "" if len(labels) > FEW else "  ".join(labels)


def relative(shapes: pd.DataFrame) -> pd.DataFrame:
    """With an input as wide as the hidden state as size 0: the same along the hidden axis."""
    return shapes.assign(input_size=shapes.input_size.mask(shapes.input_size == shapes.hidden, 0))
