"""The profiles of a whole run or of one cell, as documents that show where the time went."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pandas as pd

from lstm_bench.analysis.results import Run
from lstm_bench.features.profile import cells as profiled_cells
from lstm_bench.features.profile.cells import Split, Splits
from lstm_bench.features.profile.families import FAMILIES
from lstm_bench.model.profile import Profile
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.shape_filter import chosen, shapes_of
from lstm_bench.model.types import LstmBenchError, Record, Shape
from lstm_bench.model.units import (
    clean,
    clipped,
    counted,
    over,
    percent,
    seconds,
    signed,
    size,
)
from lstm_bench.report import run_report
from lstm_bench.report.document import Document, Table, number, paragraph, text

NAME = 52  # characters of a kernel's name, less what further columns take
SHORT = {"recurrent GEMM": "rec GEMM", "input GEMM": "in GEMM", "persistent": "persist"}
#: Columns of the profiled calls, which profiling makes longer.
DISTORTED = (
    "gap: the GPU waits between two kernels",
    "around: before the first kernel and after the last",
    "rest: latency - busy - gap - around; negative: profiling slowed the call",
)
ADD_UP = ": columns need not add up; choose one shape with --shape"
LAUNCHING = "launching: share of a profiled call spent launching kernels"
COUNT, SHARE = "{:.4g}".format, "{:.0%}".format
#: The ladder's words about a row, by the key of its count or share.
COUNTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "kernels": ("kernels a call", "{:.0f}".format),
    "launches": ("launches a call", "{:.0f}".format),
    "active": ("of the time in kernels", "{:.0%}".format),
    "operators": ("operators a call", "{:.0f}".format),
}
UNPROFILED = "`lstm-bench grid GRID --profile` would count their kernels and operators"


def document(
    run: Run,
    top: int = 5,
    sort: str = "self",
    conditions: Sequence[str] = (),
    everything: bool = False,
) -> Document:
    """All profiles of a run: the split by row, its families, the first `top` parts of each row.

    `everything` adds the columns that profiling itself distorts.
    """
    cells = chosen(run.cells, conditions)
    shapes = shapes_of(cells) if conditions else None
    splits = profiled_cells.read(run, shapes)
    if not splits.good and not splits.left_out:
        here = "none of the chosen shapes was" if shapes is not None else "no cell of it was"
        raise LstmBenchError(
            f"{run.name}: {here} profiled, out of {counted(len(cells), 'cell')}; measure with"
            " `lstm-bench grid GRID --profile`"
        )
    result = run_report.about(run, cells, conditions)
    result.facts |= {"left_out": dict(splits.left_out), "cells": [_cell(s) for s in splits.good]}
    result.add(paragraph(*left_out(splits), missing(run, splits, shapes)))
    if splits.on_device:
        _add_device(result, splits.on_device, run, everything)
        _add_parts(result, splits.on_device, "time on the device", top, sort, run)
    if splits.on_host:
        _add_host(result, splits.on_host, run)
        _add_parts(result, splits.on_host, "own time", top, sort, run)
    return result


def cell_document(record: Record, profile: Profile, sort: str = "self", top: int = 15) -> Document:
    """One cell: what its time is made of, and its parts, the first `top` of them drawn."""
    split = Split(record, profile)
    path = f", {record.path}" if record.path else ""
    calls = f"{counted(profile.calls, 'call')} by {profile.source}"
    result = Document([f"{split.name} at {split.shape.label}{path}; {calls}"])
    result.facts = {**_cell(split), "source": profile.source, "problem": profile.problem}
    result.facts["warnings"] = record.warnings
    result.add(paragraph(*(f"! {warning}" for warning in record.warnings)))
    if profile.problem:
        result.add(f"not shown: {profile.problem}")
        _add_depth(result, profile)
        return result
    table = _parts(split, sort, top, by_launch=not split.of_host)
    result.main = table.name
    result.add(_split(split), table)
    if len(table.rows) > top:
        result.add(f"{len(table.rows) - top} more with --top, or --format json")
    _add_depth(result, profile)
    return result


def _add_depth(result: Document, profile: Profile) -> None:
    """The way from the caller's call into the library, level by level."""
    depth = profile.depth
    if depth is None:
        return
    if not depth.frames:
        result.add(f"call depth not measured: {depth.problem}")
        return
    rows = []
    for level, frames in itertools.groupby(depth.frames, key=lambda frame: frame.level):
        names = [frame.name for frame in frames]
        rows.append({"level": level, "frames": len(names), "names": names})
    columns = (
        text("level", "level"),
        number("frames", "frames"),
        text("outermost", "names", lambda names: _function(names[0])),
        text("innermost", "names", lambda names: _function(names[-1])),
    )
    between = counted(len(depth.frames) - 1, "frame")
    title = f"call depth: {between} between the call and the library's {depth.frames[-1].name}"
    result.add(
        Table("depth", rows, columns, title),
        f"{depth.stacks} of {depth.of} stacks that reached a library went this way",
    )
    result.facts["depth_stacks"] = {"this_way": depth.stacks, "all": depth.of}


def _function(name: str) -> str:
    """The name without obvious namespaces, and without angle brackets and their contents."""
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    return clipped(short_name(clean(name)).removeprefix("torch.nn.modules."), 36)


def _add_device(
    result: Document,
    splits: Sequence[Split],
    run: Run,
    everything: bool,
) -> None:
    cells, common = profiled_cells.shared(splits)
    rows = profiled_cells.device_rows(cells)
    names = run_report.names(run)
    times = [
        names,
        number("busy", "busy_s", seconds),
        number("host", "host_s", seconds),
        number("latency", "latency_s", seconds),
        number("kernels", "kernels", COUNT),
        number("launches", "launches", COUNT),
    ]
    shares = [
        names,
        number("GPU active", "active", SHARE),
        number("data movement", "moving", SHARE),
        number("idle", "idle", SHARE),
    ]
    if everything:
        times += [
            number("gap", "gap_s", seconds),
            number("around", "around_s", seconds),
            number("rest", "unexplained_s", signed),
        ]
        shares += [number("launching", "launching", SHARE)]
    result.add(
        Table("where", rows, times, "where the time of a call goes"),
        paragraph(
            "busy: the GPU works; host: the caller waits while the GPU is idle; medians"
            f" over {over(common)}{ADD_UP if common > 1 else ''}",
            *(DISTORTED if everything else ()),
            *run_report.mark_notes(run, (split.name for split in cells)),
        ),
        Table("shares", rows, shares, "shares of the latency"),
        paragraph(
            "GPU active: a kernel ran; data movement: only copies or fills ran; idle:"
            f" nothing ran; means over {over(common)}",
            LAUNCHING if everything else "",
        ),
    )
    result.add(*sources(splits), check(splits), stretched(splits))


def _add_host(result: Document, splits: Sequence[Split], run: Run) -> None:
    cells, common = profiled_cells.shared(splits)
    result.add(
        Table(
            "operators_where",
            profiled_cells.host_rows(cells),
            (
                run_report.names(run),
                text("by", "source", lambda source: clipped(source, 24)),
                number("latency", "latency_s", seconds),
                number("profiled", "wall_s", seconds),
                number("in parts", "parts_s", seconds),
                number("calls", "calls", COUNT),
                number("memory", "bytes", size),
            ),
            "where the time of a call goes, on the CPU",
        ),
        paragraph(
            f"medians over {over(common)}; in parts: own time of all operators or phases, added up"
            " over threads; calls, memory: per call of the layer"
        ),
        *run_report.mark_notes(run, (split.name for split in cells)),
    )
    result.add(check(splits))


def _add_parts(
    result: Document, splits: Sequence[Split], what: str, top: int, sort: str, run: Run
) -> None:
    """The families of every row, and the first parts of each at one shape."""
    rows = profiled_cells.family_rows(profiled_cells.shared(splits)[0])
    families = (number(SHORT.get(f, f), f, _there, sparse=True) for f in FAMILIES)
    columns = [run_report.names(run), *families]
    result.add(Table("families", rows, columns, f"{what} by family, mean over the same shapes"))
    if any(row["GEMM"] for row in rows):
        result.add("GEMM: input and recurrent products together, where they cannot be told apart")
    shape = profiled_cells.middle(splits)
    result.add(
        paragraph(
            f"largest parts of each implementation by {sort}, at {shape.label} where it has that"
            f" shape; share: of the {what} of all parts"
        )
    )
    for split in profiled_cells.examples(splits):
        result.add(_parts(split, sort, top, f"{split.name} at {split.shape.label}"))


def _parts(split: Split, sort: str, top: int, title: str = "", by_launch: bool = False) -> Table:
    """The columns that the parts of this cell have anything in."""
    rows, host = profiled_cells.part_rows(split, sort, by_launch), split.of_host
    total, memory = (any(row[key] is not None for row in rows) for key in ("total_s", "bytes"))
    width = NAME - 6 * (total + memory) - 22 * by_launch
    columns = [
        text("name", "name", lambda name: clipped(short_name(clean(name)), width)),
        text("family", "family"),
        number("calls" if host else "count", "count", COUNT),
        number("self" if host else "time", "self_s", seconds),
        number("total", "total_s", seconds, sparse=True),
        number("share", "share", SHARE),
        *([number("memory" if host else "bytes", "bytes", size)] if memory else []),
    ]
    if by_launch:
        columns += [number("grid", "grid", _sizes), number("block", "block", _sizes)]
        columns += [number("regs", "registers")]
    return Table("parts", rows, columns, title, most=top)


def sources(splits: Sequence[Split]) -> list[str]:
    """The rows whose kernels CUPTI did not see, the profiler that did, and why."""
    names: dict[tuple[str, str], dict[str, None]] = {}
    for split in splits:
        if split.profile.instead:
            names.setdefault((split.profile.source, split.profile.instead), {})[split.name] = None
    return [
        f"{', '.join(rows)}: by {source} instead of CUPTI; {clean(why)}"
        for (source, why), rows in names.items()
    ]


def stretched(splits: Sequence[Split]) -> str:
    """Cells whose kernels took longer when they were watched than the whole call otherwise."""
    cells = [split for split in splits if split.stretched]
    if not cells:
        return ""
    names = ", ".join(dict.fromkeys(split.name for split in cells))
    return (
        f"{counted(len(cells), 'cell')} of {names}: busy exceeds the latency, because kernels of a"
        " CUDA graph run slower when profiled; these cells count as busy all the time"
    )


def check(splits: Sequence[Split]) -> str:
    """How many profiled calls took longer or less long than timed ones, and what that means."""
    long = [s for s in splits if s.latency_s > profiled_cells.LONG_S and s.profile.wall_s]
    apart = [abs(s.slowed) for s in long if abs(s.slowed) > profiled_cells.DIFFERS]
    if not long:
        return ""
    cells = f"{counted(len(long), 'cell')} over {seconds(profiled_cells.LONG_S)}"
    if not apart:
        return f"profiled calls took as long as timed ones in all {cells}"
    doubt = "parts" if long[0].of_host else "gaps"
    return (
        f"{len(apart)} of {cells} took more than {percent(profiled_cells.DIFFERS, 0)} longer or"
        f" shorter when profiled ({percent(statistics.median(apart), 0)} in the median,"
        f" {percent(max(apart), 0)} at most): their {doubt} are not those of a timed call"
    )


def missing(run: Run, splits: Splits, shapes: Collection[Shape] | None) -> str:
    """How many cells have times but were not profiled."""
    cells = run_report.timed_cells(run.cells)
    sizes = cells[SHAPE].itertuples(index=False, name=None)
    wanted = sum(shapes is None or Shape.from_row(s) in shapes for s in sizes)
    count = wanted - splits.of_timed
    return f"not profiled: {counted(count, 'cell')} with times" if count > 0 else ""


def left_out(splits: Splits) -> list[str]:
    """How many profiles are not shown, by reason."""
    return [
        f"{counted(count, 'profile')} left out: {clean(reason)}"
        for reason, count in splits.left_out.most_common()
    ]


def _split(split: Split) -> Table:
    """Takes the latency apart, piece by piece."""
    profile = split.profile
    pieces: list[tuple[str, float | None, float | None, str]]
    pieces = [("latency", split.latency_s, None, "how long the caller waits")]
    if split.of_host:
        share = split.parts_s / split.latency_s
        meaning = "own time of all operators or phases, in profiled calls"
        pieces.append(("in parts", split.parts_s, share, meaning))
    else:
        launches = f"in {COUNT(profile.launches)} launches of {COUNT(profile.kernels)} kernels"
        pieces += [
            ("busy", split.busy_s, 1 - split.idle, "the device works"),
            ("- kernels", profile.kernel_s, split.active, "a kernel runs"),
            (
                "- movement",
                split.moving * split.latency_s,
                split.moving,
                "only copies or fills run",
            ),
            ("host", split.host_s, split.idle, "the caller waits while the device is idle"),
            ("gap", split.gap_s, None, "idle between two kernels, in the profiled calls"),
            ("launching", profile.launch_s, split.launching, launches),
        ]
    if profile.wall_s is not None:
        pieces.append(("profiled", profile.wall_s, None, _slowed(split)))
    rows = [dict(zip(("piece", "time_s", "share", "meaning"), p, strict=True)) for p in pieces]
    columns = (
        text("piece", "piece"),
        number("time", "time_s", seconds),
        number("share", "share", SHARE),
        text("what it is", "meaning"),
    )
    return Table("split", rows, columns)


def _slowed(split: Split) -> str:
    if split.slowed != split.slowed:  # no latency to compare it with
        return "a profiled call"
    word = "slower" if split.slowed >= 0 else "faster"
    return f"a profiled call, {percent(abs(split.slowed), 0)} {word}"


def _cell(split: Split) -> dict[str, Any]:
    """The figures of one cell, for JSON."""
    own = ("latency_s", "busy_s", "gap_s", "host_s", "around_s", "unexplained_s")
    more = ("device", "calls", "wall_s", "launch_s", "kernels", "launches", "moved_bytes")
    return {
        "implementation": split.name,
        "shape": split.shape.label,
        **{key: getattr(split, key) for key in own},
        **{key: getattr(split.profile, key) for key in more},
        "families_s": split.by_family,
    }


def short_name(name: str) -> str:
    """A kernel's name without what all of them have: return types, namespaces."""
    name = re.sub(r"^(std::enable_if<.*?>::type|void) ", "", name)
    return re.sub(
        r"\b(at::native|tensorflow|functor|std|Eigen|internal|c10)::|\(anonymous namespace\)::",
        "",
        name,
    )


def _there(share: float) -> str:
    return percent(share, 0) if share else "-"


def _sizes(sizes: Sequence[int]) -> str:
    """A grid or a block without the dimensions that are one at its end: 16x4, 256."""
    return re.sub(r"(x1)+$", "", "x".join(map(str, sizes)))


# --- for the ladder


def why_slower(run: Run, cells: pd.DataFrame, base: str) -> tuple[dict[str, str], str]:
    """`1250 kernels a call against 104`: what a row does in a call, and what the base does."""
    splits = profiled_cells.read(run, shapes_of(cells))
    device = profiled_cells.device_rows(profiled_cells.shared(splits.on_device)[0])
    host = profiled_cells.host_rows(profiled_cells.shared(splits.on_host)[0])
    counts = {row["implementation"]: row for row in device}
    counts |= {row["implementation"]: {"operators": row["calls"] or 0.0} for row in host}
    than = counts.get(base, {})
    reasons = {}
    for name, own in counts.items():
        words = [
            f"{shown(own[key])} {what}" + (f" against {shown(than[key])}" if key in than else "")
            for key, (what, shown) in COUNTS.items()
            if key in own and not (key == "launches" and own[key] == own["kernels"])
        ]
        reasons[name] = "; ".join(words)
    return reasons, UNPROFILED
