"""Where the time of calls went, as documents: a whole run's profiles, or one cell's."""

from __future__ import annotations

import itertools
import re
import shlex
import statistics
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pandas as pd

from lstm_bench.analysis import noise
from lstm_bench.analysis.results import Run
from lstm_bench.features.profile import cells as profiled_cells
from lstm_bench.features.profile.cells import Split, Splits
from lstm_bench.features.profile.families import FAMILIES
from lstm_bench.model.profile import Profile
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
from lstm_bench.runs import run_folders

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
MOST_RUNS = 5  # that are named where this one has nothing to show
#: What the ladder says of a row, by the key of its count or share.
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
    found = profiled_cells.read(run, shapes)
    if not found.good and not found.left_out:
        here = "none of the chosen shapes was" if shapes is not None else "no cell of it was"
        raise LstmBenchError(
            f"{run.name}: {here} profiled, out of {counted(len(cells), 'cell')}; measure with"
            f" `lstm-bench grid GRID --profile`{_others(run)}"
        )
    result = run_report.about(run, cells, conditions)
    result.facts |= {"left_out": dict(found.left_out), "cells": [_cell(s) for s in found.good]}
    result.add(paragraph(*left_out_lines(found), *without_lines(run, found, shapes), indent=2))
    if found.on_device:
        _add_device(result, found.on_device, top, sort, run, everything)
    if found.on_host:
        _add_host(result, found.on_host, top, sort, run)
    return result


def _others(run: Run) -> str:
    """Which runs beside this one are profiled, and what shows the newest; nothing if it is too."""
    found = run_folders.profiled(run.folder) if run.folder else []
    if not run.folder or not found or run.folder.resolve() in [one.resolve() for one in found]:
        return ""
    names = ", ".join(one.name for one in found[:MOST_RUNS])
    words = ["lstm-bench", "report", "--kernels", "--run", found[0].name]
    then = shlex.join([*words, *run_folders.elsewhere(found[0])])
    return f"; profiled are: {names}; `{then}`"


def cell_document(record: Record, profile: Profile, sort: str = "self", top: int = 15) -> Document:
    """One cell: what its time is made of, and its parts, the first `top` of them drawn."""
    one = Split(record, profile)
    path = f", {record.path}" if record.path else ""
    calls = f"{counted(profile.calls, 'call')} by {profile.source}"
    result = Document([paragraph(f"{one.name} at {one.shape.label}{path}; {calls}")])
    result.facts = {**_cell(one), "source": profile.source, "problem": profile.problem}
    result.facts["warnings"] = record.warnings
    result.add(paragraph(*(f"! {warning}" for warning in record.warnings), indent=2))
    if profile.problem:
        result.add(paragraph(f"not shown: {profile.problem}"))
        _add_depth(result, profile)
        return result
    table = _parts(one, sort, top, by_launch=not one.of_host)
    result.main = table.name
    result.add(_split(one), table)
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
        result.add(paragraph(f"call depth not measured: {depth.problem}"))
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
    """Without namespaces that are obvious, and without what is in angle brackets."""
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    return clipped(short_name(clean(name)).removeprefix("torch.nn.modules."), 36)


def _add_device(
    result: Document,
    splits: Sequence[Split],
    top: int,
    sort: str,
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
            *run_report.mark_notes(run, (one.name for one in cells)),
        ),
        Table("shares", rows, shares, "shares of the latency"),
        paragraph(
            "GPU active: a kernel ran; data movement: only copies or fills ran; idle:"
            f" nothing ran; means over {over(common)}",
            LAUNCHING if everything else "",
        ),
    )
    result.add(*map(paragraph, source_lines(splits)))
    result.add(*map(paragraph, check_lines(splits)))
    result.add(*map(paragraph, stretched_lines(splits)))
    _add_parts(result, splits, cells, "time on the device", top, sort, run)


def _add_host(result: Document, splits: Sequence[Split], top: int, sort: str, run: Run) -> None:
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
        *run_report.mark_notes(run, (one.name for one in cells)),
    )
    result.add(*map(paragraph, check_lines(splits)))
    _add_parts(result, splits, cells, "own time", top, sort, run)


def _add_parts(
    result: Document,
    splits: Sequence[Split],
    cells: Sequence[Split],
    what: str,
    top: int,
    sort: str,
    run: Run,
) -> None:
    """The families of every row, and the first parts of each at one shape."""
    rows = profiled_cells.family_rows(cells)
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
    for one in profiled_cells.examples(splits):
        result.add(_parts(one, sort, top, f"{one.name} at {one.shape.label}"))


def _parts(one: Split, sort: str, top: int, title: str = "", by_launch: bool = False) -> Table:
    """The columns that the parts of this cell have anything in."""
    rows, host = profiled_cells.part_rows(one, sort, by_launch), one.of_host
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


def source_lines(splits: Sequence[Split]) -> list[str]:
    """Whose kernels were not seen by CUPTI, by whom instead, and why."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in splits:
        if one.profile.instead:
            found.setdefault((one.profile.source, one.profile.instead), []).append(one.name)
    return [
        f"{', '.join(dict.fromkeys(names))}: by {source} instead of CUPTI; {clean(why)}"
        for (source, why), names in found.items()
    ]


def stretched_lines(splits: Sequence[Split]) -> list[str]:
    """Cells whose kernels took longer when they were watched than the whole call otherwise."""
    cells = [one for one in splits if one.stretched]
    if not cells:
        return []
    most = max(one.busy_s / one.latency_s - 1 for one in cells)
    names = ", ".join(dict.fromkeys(one.name for one in cells))
    return [
        f"{counted(len(cells), 'cell')} of {names}: busy exceeds the latency by up to"
        f" {percent(most, 0)}, because kernels of a CUDA graph run slower when profiled; these"
        " cells count as busy all the time"
    ]


def check_lines(splits: Sequence[Split]) -> list[str]:
    """Whether busy, gap and host add up: they do in the profiled call, if it took as long."""
    held = [
        s for s in splits if s.latency_s > profiled_cells.LONG_S and s.profile.wall_s is not None
    ]
    if not held:
        return []
    slower = [s.slowed for s in held if s.slowed > profiled_cells.DIFFERS]
    faster = [-s.slowed for s in held if s.slowed < -profiled_cells.DIFFERS]
    what, limit = counted(len(held), "cell"), percent(profiled_cells.DIFFERS, 0)
    over = f"over {seconds(profiled_cells.LONG_S)}"
    if not slower and not faster:
        return [f"profiled calls took as long as timed ones in all {what} {over}, to {limit}"]
    lines = []
    for values, word, meaning in (
        (slower, "slower", _STRETCHED[held[0].of_host]),
        (faster, "faster", "the host was faster while they were profiled"),
    ):
        if values:
            lines.append(
                f"{len(values)} of {what} {over} were {word} by more than {limit} when profiled"
                f" ({percent(statistics.median(values), 0)} in the median,"
                f" {percent(max(values), 0)} at most): {meaning}"
            )
    return lines


_STRETCHED = {
    False: "their gaps are too long; busy is right, except for CUDA graphs",
    True: "their parts are too long; read them as shares",
}


def without_lines(run: Run, found: Splits, shapes: Collection[Shape] | None) -> list[str]:
    """How many cells have times but were not profiled: a table must not miss them silently."""
    cells = run.cells[(run.cells["status"] == "ok") & (run.cells["copy"] == 1)]
    sizes = cells[noise.SHAPE].itertuples(index=False, name=None)
    chosen = [s for s in sizes if shapes is None or Shape(*map(int, s)) in shapes]
    missing = len(chosen) - found.of_timed
    if missing <= 0:
        return []
    return [
        f"{counted(missing, 'cell')} with times {'was' if missing == 1 else 'were'} not profiled"
    ]


def left_out_lines(found: Splits) -> list[str]:
    """How many profiles are not shown, by reason."""
    return [
        f"{counted(count, 'profile')} left out: {clean(reason)}"
        for reason, count in found.left_out.most_common()
    ]


def _split(one: Split) -> Table:
    """What the latency is made of, piece by piece."""
    profile = one.profile
    pieces: list[tuple[str, float | None, float | None, str]]
    pieces = [("latency", one.latency_s, None, "how long the caller waits")]
    if one.of_host:
        share = one.parts_s / one.latency_s
        meaning = "own time of all operators or phases, in profiled calls"
        pieces.append(("in parts", one.parts_s, share, meaning))
    else:
        launches = f"in {COUNT(profile.launches)} launches of {COUNT(profile.kernels)} kernels"
        pieces += [
            ("busy", one.busy_s, 1 - one.idle, "the device works"),
            ("- kernels", profile.kernel_s, one.active, "a kernel runs"),
            ("- movement", one.moving * one.latency_s, one.moving, "only copies or fills run"),
            ("host", one.host_s, one.idle, "the caller waits while the device is idle"),
            ("gap", one.gap_s, None, "idle between two kernels, in the profiled calls"),
            ("launching", profile.launch_s, one.launching, launches),
        ]
    if profile.wall_s is not None:
        pieces.append(("profiled", profile.wall_s, None, _slowed(one)))
    rows = [dict(zip(("piece", "time_s", "share", "meaning"), p, strict=True)) for p in pieces]
    columns = (
        text("piece", "piece"),
        number("time", "time_s", seconds),
        number("share", "share", SHARE),
        text("what it is", "meaning"),
    )
    return Table("split", rows, columns)


def _slowed(one: Split) -> str:
    if one.slowed != one.slowed:  # no latency to compare it with
        return "a profiled call"
    word = "slower" if one.slowed >= 0 else "faster"
    return f"a profiled call, {percent(abs(one.slowed), 0)} {word}"


def _cell(one: Split) -> dict[str, Any]:
    """The figures of one cell, for JSON."""
    own = ("latency_s", "busy_s", "gap_s", "host_s", "around_s", "unexplained_s")
    more = ("device", "calls", "wall_s", "launch_s", "kernels", "launches", "moved_bytes")
    return {
        "implementation": one.name,
        "shape": one.shape.label,
        **{key: getattr(one, key) for key in own},
        **{key: getattr(one.profile, key) for key in more},
        "families_s": one.by_family,
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
    found = {}
    for name, own in counts.items():
        words = [
            f"{shown(own[key])} {what}" + (f" against {shown(than[key])}" if key in than else "")
            for key, (what, shown) in COUNTS.items()
            if key in own and not (key == "launches" and own[key] == own["kernels"])
        ]
        found[name] = "; ".join(words)
    return found, UNPROFILED
