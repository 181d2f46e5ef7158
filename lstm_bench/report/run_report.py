"""A run as a document: its machine, its noise, every implementation, what failed and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench.analysis import noise
from lstm_bench.analysis import summary as summaries
from lstm_bench.analysis.noise import SHAPE, Noise
from lstm_bench.analysis.results import Run
from lstm_bench.model.shape_filter import chosen
from lstm_bench.model.types import UNSEEN_GPU, LstmBenchError, Shape, kinds_of
from lstm_bench.model.units import (
    clipped,
    counted,
    error,
    listed,
    over,
    percent,
    seconds,
    times,
    wrapped,
)
from lstm_bench.report.document import Column, Document, Table, number, text
from lstm_bench.runs.run_folders import resume_command

MAX_REASON_LINES = 12
MOST_SHAPES = 60  # in the table of the fastest
LESS_WORK = "*"  # the mark of unequal work
LESS_WORK_NOTE = (
    f"{LESS_WORK} does less work: the input is added to the gates without its projection"
)
SHARED_NOTE = "rows that ran the same code at a shape share its win"

#: What to do about a warning; what stands before the colon is its kind.
REMEDIES = {
    "not warm": "raise sampling.warmup_cap_s in the grid, or look for what else runs here",
    "not converged": "allow more rounds (--rigorous, sampling.max_rounds), or close what else runs",
    "disturbed": "close what else runs on this machine: `top` shows it",
    "hurried": "give --budget more time, or go without it",
    "capped": "raise sampling.cell_s in the grid to give slow cells more time",
    "two processes": "see the reason of the cell that took the worker down, above",
    "throttled": "the GPU held its clock down: cool it, or look at its power limit (nvidia-smi -q)",
    "slow clock": "the GPU was at its power limit, asleep before, or shared; use --rigorous",
    "fewer loads": "energy rests on the others; see the cells' warnings in the records",
    "second try": "nothing is missing; the worker's log in the run's logs folder says more",
    "no energy": "the times stand; `lstm-bench grid --resume --retry-failed` tries again",
    "not profiled": "the times stand; `lstm-bench grid --resume --retry-failed` tries again",
    "not checked again": "the times stand; see the worker's log in the run's logs folder",
    "not released": "the times stand; see the worker's log in the run's logs folder",
}


def document(
    run: Run,
    metric: str = "latency",
    shape_by_shape: bool = True,
    conditions: Sequence[str] = (),
) -> Document:
    """The whole summary, or that of some shapes; `shape_by_shape` adds who is fastest where."""
    result = Document(facts={"run": run.name, "machine": dict(run.manifest["machine"])})
    result.facts |= {"settings": dict(run.manifest["plan"]["settings"]), "metric": metric}
    result.facts |= {"planned": len(run.plan.all_cells()), "left": run.left}
    result.add(heading(run))
    if run.cells.empty:
        result.add("nothing was measured yet")
        return result
    floors = run.floors(metric)  # of the whole run, always
    cells = chosen(run.cells, conditions)
    if conditions:
        result.add(only(run, cells, conditions))
        result.facts["where"] = list(conditions)
    of = summaries.times(cells, metric)
    if metric != "latency" and not len(of.shapes):
        there = " there" if conditions else ""
        raise LstmBenchError(f"{run.name} has no {metric} times{there}; choose another --metric")
    won = summaries.contests(of, floors, metric)
    summary = summaries.summary(cells, of, won, run.implementations)
    result.facts["noise"] = noise_facts(floors)
    failures = summaries.failures(cells)
    result.facts["failures"] = failures.to_dict("records")
    told = cells.loc[cells["status"] == "ok", "warnings"]  # of others their reason is told
    result.facts["warnings"] = dict(kinds_of(told))
    result.facts["damaged_lines"] = run.damaged
    result.add(noise_text(run, metric), _table(summary, won))
    result.add("\n".join(_legend(summary, of, won, metric)))
    if best := _frameworks(run, cells, floors, metric):
        result.add(wrapped(best))
    for title, lines in (
        ("missing", failure_lines(failures, run)),
        ("warnings", warning_lines(told)),
        ("damaged", damage_lines(run)),
    ):
        if lines:
            result.add("\n".join([f"{title}:", *lines]))
    if shape_by_shape and len(won):
        for kind, part in won.groupby("precision", sort=False):
            result.add(_fastest(part, metric, f"fastest in {kind} precision"))
        result.add(_shape_note(int(won["precision"].value_counts().max())))
    return result


def only(run: Run, cells: pd.DataFrame, conditions: Sequence[str]) -> str:
    """Which shapes a report was asked for, and how many that are."""
    some, whole = (len(part[SHAPE].drop_duplicates()) for part in (cells, run.cells))
    return f"only {' and '.join(conditions)}: {some} of {counted(whole, 'shape')}"


def heading(run: Run) -> str:
    """The run, its machine, and whether it is whole."""
    line = machine_line(run.manifest["machine"], run.manifest["plan"]["settings"])
    planned = counted(len(run.plan.all_cells()), "planned cell")
    left = f"\nnot complete: {run.left} of {planned} still to be measured" if run.left else ""
    return f"{run.name}: {line}{left}"


def noise_facts(floors: Sequence[Noise]) -> list[dict[str, Any]]:
    """What A/A pairs differ by, and what is used: of few pairs the widest."""
    return [
        {"class": n.name, "floor": n.floor, "used": used, "pairs": n.pairs}
        for n, used in zip(floors, noise.applied(floors), strict=True)
    ]


def machine_line(machine: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The machine and the run's settings in one line."""
    gpus = machine.get("gpus") or []
    if settings.get("device") == "cuda":
        where = UNSEEN_GPU
        if gpus:
            where = f"{gpus[0].get('name')}, driver {gpus[0].get('driver')}"
    else:
        where = f"{machine.get('cpu')}, {counted(settings.get('threads', 0), 'thread')}"
    tf32 = "TF32 on" if settings.get("tf32") else "TF32 off"
    return f"{where}, {tf32}, seed {settings.get('seed')}"


def noise_text(run: Run, metric: str) -> str:
    told = [*noise_lines(run.floors(metric), metric), *pass_lines(run, metric)]
    lines = ["  " + line for line in told]
    return "\n".join(
        [f"noise floor of {metric}, from the run's A/A controls, round by round:", *lines]
    )


def pass_lines(run: Run, metric: str) -> list[str]:
    """What no A/A pair shows, as its two live in one process."""
    apart = noise.between_passes(run.cells, metric)
    if not len(apart):
        return []
    return [
        f"from pass to pass, in fresh processes: {percent(float(np.median(apart)))} in the median,"
        f" 95% under {percent(noise.percentile_95(apart))}"
        f"  ({counted(len(apart), 'later measurement')})"
    ]


def noise_lines(floors: Sequence[Noise], metric: str = "latency") -> list[str]:
    """One line per duration class that the run has; a class with few pairs says what is used."""
    lines = []
    for one, used in zip(floors, noise.applied(floors), strict=True):
        if not one.pairs:
            continue
        instead = "" if used == one.floor else f"; {percent(used)} is used"
        lines.append(
            f"{one.name:>8}: 95% of A/A differences under {percent(one.floor)}"
            f"  ({counted(one.pairs, 'pair')}{instead}, {one.called_different} called different)"
        )
    default = percent(noise.DEFAULT_FLOOR, 0)
    return lines or [f"no A/A pair has a {metric}; only differences beyond {default} are called"]


def _table(summary: pd.DataFrame, won: pd.DataFrame) -> Table:
    rows = summary.rename(columns={"fastest": "fastest_shapes"}).to_dict("records")
    shapes = won.loc[won["verdict"] != "alone", "precision"].value_counts()
    for row in rows:
        contested = shapes.get(summaries.kind_of(row["precision"]))
        competes = contested and row["ok"]
        row["fastest_share"] = row["fastest_shapes"] / int(contested) if competes else None
    columns = [
        names(set(summary.loc[summary["computes"] != "lstm", "implementation"])),
        text("precision", "precision"),
        Column("ok", lambda row: f"{row['ok']}/{row['cells']}", right=True),
        number("latency", "latency_s", seconds),
        number("throughput", "throughput_s", seconds),
        number("device", "device_s", seconds),
        number("ratio", "ratio", times),
        number("fastest", "fastest_share", lambda share: percent(share, 0)),
        number("first call", "first_call_s", seconds),
        number("error", "max_abs_error", error),
    ]
    if summary["device_s"].isna().all():
        columns = [column for column in columns if column.heading != "device"]
    return Table("implementations", rows, columns)


def names(less_work: Collection[str]) -> Column:
    """The names of the rows, marked where they do less work than the others."""

    def shown(name: str) -> str:
        return clipped(name, 25) + (LESS_WORK if name in less_work else "")

    return text("implementation", "implementation", shown)


def less_work(run: Run) -> set[str]:
    """The rows of a run that compute something else."""
    return set(run.cells.loc[run.cells["computes"] != "lstm", "implementation"])


def _legend(
    summary: pd.DataFrame, of: summaries.Times, won: pd.DataFrame, metric: str
) -> list[str]:
    common, profiled = (summary.attrs[key] for key in ("shared_shapes", "profiled_shapes"))
    device = f"; device: over {over(profiled)}" if 0 < profiled < common else ""
    baseline = summaries.baseline_of(of.names)
    shared = any(len(own) > 1 for own in won["shared"])
    columns = wrapped(
        f"times: median over {over(common)}{device}; ratio:"
        f" {metric} to that of {baseline}, geometric mean over the shapes of both; fastest:"
        " share of the shapes won beyond the noise among rows of like precision; error: largest"
        " difference from the float64 reference"
    )
    return [
        *([columns] if baseline else []),  # without one there is no time
        *([SHARED_NOTE] if shared else []),
        *([LESS_WORK_NOTE] if (summary["computes"] != "lstm").any() else []),
        *_path_lines(summary),
    ]


def _frameworks(run: Run, cells: pd.DataFrame, floors: Sequence[Noise], metric: str) -> str:
    """Who is the fastest of what a framework's user can have, where the bare library is there."""
    bare = [row.name for row in run.plan.implementations if row.framework == "deepbench"]
    own = cells[~cells["implementation"].isin(bare)]
    if own["implementation"].nunique() < 2 or len(own) == len(cells):
        return ""
    won = summaries.contests(summaries.times(own, metric), floors, metric)
    told = []
    for kind, part in won.groupby("precision", sort=False):
        name, count, sure = summaries.most_often(part)
        how = f"at {count} of {counted(len(part), 'shape')}, {sure} beyond the noise"
        if set(part["verdict"]) == {"alone"}:
            how = "the only one"
        told.append(f"{name} in {kind} precision ({how})")
    return f"most often the fastest of the frameworks' rows: {listed(told)}" if told else ""


def _path_lines(summary: pd.DataFrame) -> list[str]:
    """Which code really ran, and for whom."""
    users: dict[str, list[str]] = {}
    for row in summary.to_dict("records"):
        paths = row["paths"]
        if paths:
            key = paths[0] if len(paths) == 1 else f"{len(paths)} ways, by shape"
            users.setdefault(key, []).append(row["implementation"])
    line = "; ".join(f"{path}: {', '.join(names)}" for path, names in users.items())
    return [wrapped(f"ran on  {line}", 8)] if line else []


def failure_lines(failures: pd.DataFrame, run: Run) -> list[str]:
    """What is missing from a run, and why, wrapped."""
    lines: list[str] = []
    cut = failures["status"] == "interrupted"
    if cut.any():
        shapes = " ".join(dict.fromkeys(filter(None, failures.loc[cut, "where"])))
        left = counted(int(failures.loc[cut, "cells"].sum()), "cell")
        at = f" at {shapes}" if shapes else ""
        line = f"  {left} interrupted{at}: {_resume(run)} measures them again"
        lines += wrapped(line, 6).splitlines()
    alike: dict[tuple[Any, ...], list[str]] = {}  # rows that lost the same for the same reason
    for row in failures[~cut].to_dict("records"):
        why = tuple(row[key] for key in ("cells", "status", "where", "reason"))
        alike.setdefault(why, []).append(row["implementation"])
    for (cells, status, where, reason), names in alike.items():
        each = " each" if len(names) > 1 else ""
        at = f" at {where}" if where else ""
        line = f"  {', '.join(names)}: {cells} {status}{each}{at}: {reason}"
        lines += wrapped(line, 6).splitlines()
    more = f"  ... {counted(len(lines) - MAX_REASON_LINES, 'more line')} with --format json"
    return lines[:MAX_REASON_LINES] + ([more] if len(lines) > MAX_REASON_LINES else [])


def warning_lines(warnings: Iterable[Sequence[str]]) -> list[str]:
    """Each kind of warning once, with how many cells it concerns and what to do."""
    cells = list(warnings)
    return [
        wrapped(
            f"  {count} of {counted(len(cells), 'cell')} {kind}:"
            f" {REMEDIES.get(kind, 'see the records')}",
            6,
        )
        for kind, count in kinds_of(cells)
    ]


def damage_lines(run: Run) -> list[str]:
    """A line that cannot be read is a cell that is lost: never without a word."""
    if not run.damaged:
        return []
    lines, were = counted(run.damaged, "line"), "was" if run.damaged == 1 else "were"
    remedy = f"{_resume(run)} measures what is missing"
    text = f"  {lines} of records.jsonl cannot be read and {were} passed over; {remedy}"
    return [wrapped(text, 6)]


def _resume(run: Run) -> str:
    """What to type to go on with a run."""
    folder = run.folder or Path("results", run.name)
    pythons = dict.fromkeys(run.plan.environments, "PATH")  # a folder does not say what to run
    return f"`{resume_command(folder, pythons)}`"


def _fastest(won: pd.DataFrame, metric: str, title: str) -> Table:
    """Shape by shape: the fastest, the next, and whether the difference is more than noise."""
    return Table(
        "fastest",
        won.to_dict("records"),
        (
            Column("shape", lambda row: shape_label(row), right=True),
            text("fastest", "fastest", lambda name: clipped(name, 25)),
            number(metric, "fastest_s", seconds),
            text("next", "next", lambda name: clipped(name or "-", 25)),
            number("its time", "next_s", seconds),
            Column("difference", _difference, right=True),
        ),
        title,
        most=MOST_SHAPES,
    )


def shape_label(row: Mapping[str, Any]) -> str:
    return Shape(row["hidden"], row["batch"], row["timesteps"], row["input_size"]).label


def _difference(row: Mapping[str, Any]) -> str:
    if row["verdict"] == "alone":
        return "-"
    return times(row["ratio"]) if row["verdict"] == "slower" else str(row["verdict"])


def _shape_note(shapes: int) -> str:
    note = "shape: hidden,batch,timesteps, then the input size where it differs"
    if shapes > MOST_SHAPES:
        more = counted(shapes - MOST_SHAPES, "more shape")
        note += f"; `lstm-bench report --html` has {more}"
    return note
