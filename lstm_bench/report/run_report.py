"""A run as a document: what was tested, what is fastest, every implementation, the noise.

One screen for people who scan; everything else is drawn with `--all`, and is always in JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench import features
from lstm_bench.analysis import noise, uncertainty
from lstm_bench.analysis import summary as summaries
from lstm_bench.analysis.noise import Floors, Noise
from lstm_bench.analysis.results import Run, references
from lstm_bench.model.feature import AddedColumn
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.shape_filter import chosen
from lstm_bench.model.types import (
    UNSEEN_GPU,
    LstmBenchError,
    Settings,
    Shape,
    from_json,
    kinds_of,
)
from lstm_bench.model.units import (
    at_some,
    clean,
    clipped,
    counted,
    error,
    over,
    percent,
    seconds,
    short,
    times,
)
from lstm_bench.report import fastest
from lstm_bench.report.document import Column, Document, Table, number, paragraph, text
from lstm_bench.runs.run_folders import resume_command

MAX_REASON_LINES = 12
MOST_SHAPES = 60  # in the table of the fastest
LESS_WORK = "*"  # the mark of unequal work
LESS_WORK_NOTE = (
    f"{LESS_WORK} does less work: the input is added to the gates without its projection"
)
DEFAULT = "+"  # the mark of what a user gets unasked
DEFAULT_NOTE = f"{DEFAULT} what its framework does unless you change a setting"
SHARED_NOTE = "implementations that ran the same code at a shape share its win"
WINS_NOTE = "wins: shapes where it is the fastest beyond the noise; same: within the noise"
PASSES_NOTE = "forward, backward: the passes of a training step, each waited for, where they part"
SOME_NOTE = "at N: over N shapes, as not all can be run"
ACCURACY_NOTE = "accuracy any: the fastest of all, whatever its error"
REFERENCE_NOTE = "faster in C++: by how much our C++ reference is, which shows what is possible"
MEMORY_NOTE = (
    "mem: the most that build and first call added at any shape, on the host with what the imported"
    " framework holds, where the run has it"
)
SHAPE_NOTE = (
    "shape: hidden,batch,timesteps, then the input size where it differs; of more than"
    f" {MOST_SHAPES} `lstm-bench report --html` has all"
)
MORE = "more: --all adds throughput, first call, every shape and all warnings; --html draws a page"

#: Warnings that may change what a reader believes, if they are about more than so many cells.
SERIOUS, MANY = ("disturbed", "throttled", "slow clock"), 0.05
LOST = ("not profiled", "no energy")  # somebody asked for it
FEW_LINES = 4  # of reasons why something is missing, in the short report

#: The remedy of each kind of warning; the kind is the text before the colon.
REMEDIES = {
    "not warm": "raise sampling.warmup_cap_s in the grid, or look for what else runs here",
    "uncertain": "allow more rounds (--rigorous, sampling.max_rounds), or close what else runs",
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


_TESTED = ["implementation", "status", "max_abs_error"]


def document(
    run: Run, metric: str = "latency", conditions: Sequence[str] = (), everything: bool = False
) -> Document:
    """One screen about all shapes, or some; `everything` draws the details too."""
    cells = run.cells if run.cells.empty else chosen(run.cells, conditions)
    result = about(run, cells, () if cells.empty else conditions, tested(cells))
    result.everything, result.main = everything, "implementations"
    result.facts |= {"metric": metric, "planned": run.plan.size, "left": run.left}
    if cells.empty:
        return result
    floors = run.floors(metric)  # of the whole run, always
    timed = summaries.times(cells, metric)
    if metric != "latency" and not len(timed.shapes):
        there = " there" if conditions else ""
        raise LstmBenchError(f"{run.name} has no {metric} times{there}; choose another --metric")
    won = fastest.contests(run, cells, metric, timed)
    ours = references(run, cells)
    own = won[won["accuracy"] != summaries.ANY]
    summary = summaries.summary(cells, timed, own, run.implementations)
    failures = summaries.failures(cells)
    measured = timed_cells(cells)
    wide = uncertainty.beyond(measured, floors, metric)
    warnings = warnings_of(measured, wide)
    result.facts |= {"noise": noise_facts(floors), "failures": failures.to_dict("records")}
    result.facts |= {"warnings": dict(warnings), "damaged_lines": run.damaged}
    if groups := fastest.by_group(run, cells, timed, won, metric):
        result.add(fastest.table(groups, metric, bool(ours)))
        result.add("\n".join(fastest.coverage_lines(cells, groups, won, metric)))
    added = [add(run, cells, metric) for add in features.behind("column-summary")]
    result.add(_table(run, timed, summary, won, ours, added, everything))
    result.add(paragraph(*_legend(run, summary, groups, metric, added)))
    result.add(noise_line(floors, metric), uncertain(len(measured), wide, metric))
    many = MANY * len(measured)
    serious = [(k, n) for k, n in warnings if k in LOST or (k in SERIOUS and n > many)]
    result.add(*(line.strip() for line in warning_lines(serious, len(measured))))
    most = MAX_REASON_LINES if everything else FEW_LINES
    result.add(paragraph(*failure_lines(failures, run, most), title="missing"))
    result.add(damage(run))
    if not everything:
        result.add(MORE)
    title = f"noise floor of {metric}, by how much 95% of A/A pairs differ"
    result.add_details(
        paragraph(*noise_lines(floors, metric), *pass_lines(run, metric), title=title),
        paragraph(*_details_legend(won), _paths(summary)),
        paragraph(*warning_lines(warnings, len(measured)), title="warnings"),
    )
    for accuracy, part in won.groupby("accuracy", sort=False):
        label = summaries.accuracy_label(accuracy)
        result.add_details(_fastest(part, metric, f"fastest in {label}"))
    if len(won):
        result.add_details(SHAPE_NOTE)
    for column in added:
        result.facts |= column.facts
        result.add_details(*column.details)
    return result


def about(run: Run, cells: pd.DataFrame, conditions: Sequence[str] = (), *lines: str) -> Document:
    """A document that begins with the run, and says which of its shapes it is about."""
    manifest = run.manifest
    result = Document(facts={"run": run.name, "machine": dict(manifest["machine"])})
    result.facts["settings"] = dict(manifest["plan"]["settings"])
    result.add("\n".join([heading(run), *lines]))
    if not cells.empty and cells["training"].nunique() > 1:
        result.add(
            "inference and training together: --pass training or --pass inference parts them"
        )
    if conditions:
        some, whole = (len(part[SHAPE].drop_duplicates()) for part in (cells, run.cells))
        result.add(f"only {' and '.join(conditions)}: {some} of {counted(whole, 'shape')}")
        result.facts["where"] = list(conditions)
    return result


def tested(cells: pd.DataFrame) -> str:
    """How many implementations were tested at which shapes, and what the checks said."""
    some = cells.loc[cells["status"].isin(("ok", "wrong")), [*_TESTED, *SHAPE]]
    if some.empty:
        return "nothing was measured yet" if cells.empty else "no cell has a time"
    names, shapes = some["implementation"].nunique(), some[SHAPE].drop_duplicates()
    ends = [(axis, {shapes[axis].min(): 0, shapes[axis].max(): 0}) for axis in SHAPE[:3]]
    sizes = ", ".join(f"{axis} {'-'.join(map(str, both))}" for axis, both in ends)
    what = f"{counted(names, 'implementation')} x {counted(len(shapes), 'shape')}: {sizes}"
    if wrong := int((some["status"] == "wrong").sum()):
        return f"{what}; {counted(wrong, 'output')} wrong"
    checked = int(some["max_abs_error"].notna().sum())
    done = "all outputs" if checked == len(some) else f"{checked} of {len(some)} outputs"
    return f"{what}; {done} checked"


def heading(run: Run) -> str:
    """The run, its machine, and whether it is whole."""
    line = machine_line(run.manifest["machine"], run.manifest["plan"]["settings"])
    return paragraph(f"{run.name}: {line}", incomplete(run))


def incomplete(run: Run) -> str:
    """How many planned cells are still to be measured; empty if none is."""
    planned = counted(run.plan.size, "planned cell")
    return f"not complete: {run.left} of {planned} still to be measured" if run.left else ""


def noise_facts(floors: Floors) -> list[dict[str, Any]]:
    """Floors of A/A pairs, and those that are used: of few pairs the widest."""
    own = {name: noise.applied(classes) for name, classes in floors.own.items()}
    used = noise.applied(floors)
    return [
        {
            "class": n.name,
            "floor": n.floor,
            "used": used[place],
            "pairs": n.pairs,
            "own": {name: by_class[place] for name, by_class in own.items()},
        }
        for place, n in enumerate(floors)
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
    notes = "".join(f", {note}" for note in from_json(Settings, settings).notes)
    return f"{where}, seed {settings.get('seed')}{notes}"


def noise_line(floors: Floors, metric: str = "latency") -> str:
    """The noise floor in one line; those that implementations have of their own are in it."""
    pairs = list(zip(floors, noise.applied(floors), strict=True))
    used = {duration.name: percent(floor) for duration, floor in pairs if duration.pairs}
    if not used:
        default = percent(noise.DEFAULT_FLOOR, 0)
        return f"noise of {metric} not measured: differences under {default} count as noise"
    shown = next(iter(used.values()))
    if len(set(used.values())) > 1:
        shown = ", ".join(f"{floor} at {name}" for name, floor in used.items())
    if floors.own:
        own = ", ".join(f"{name} {floor_span(classes)}" for name, classes in floors.own.items())
        shown = own + (f"; of others {shown}" if floors.others else "")
    return f"noise floor: {shown}; smaller differences are within noise"


def floor_span(*groups: Iterable[Noise]) -> str:
    """From the least to the largest floor of duration classes with pairs: `3.0% to 102%`."""
    used = [pair for group in groups for pair in zip(group, noise.applied(group), strict=True)]
    known = sorted(floor for duration, floor in used if duration.pairs)
    return " to ".join(dict.fromkeys(map(percent, known[:1] + known[-1:])))


def pass_lines(run: Run, metric: str) -> list[str]:
    """Says how far passes differ, which no A/A pair shows."""
    apart = noise.between_passes(run.cells, metric)
    if not len(apart):
        return []
    middle, most = percent(float(np.median(apart))), percent(noise.percentile_95(apart))
    count = counted(len(apart), "later measurement")
    line = f"from pass to pass, in fresh processes: {middle} in the median, 95% under {most}"
    return [f"  {line} ({count})"]


def noise_lines(
    floors: Floors, metric: str = "latency", names: Collection[str] | None = None
) -> list[str]:
    """One line per duration class that the run has; a class with few pairs says what is used.

    Then one for each implementation, or those of these names, that has a floor of its own.
    """
    lines = []
    for duration, used in zip(floors, noise.applied(floors), strict=True):
        if not duration.pairs:
            continue
        pairs = counted(duration.pairs, "pair")
        line = f"  {duration.name:>8}: {percent(duration.floor)} from {pairs}"
        if used != duration.floor:
            line += f", too few: {percent(used)} is used"
        if duration.called_different:
            line += f"; {duration.called_different} wrongly called different"
        lines.append(line)
    for name, classes in floors.own.items():
        if names is None or name in names:
            pairs = counted(sum(duration.pairs for duration in classes), "pair")
            lines.append(f"  {name}: {floor_span(classes)} from {pairs} of its own")
    default = percent(noise.DEFAULT_FLOOR, 0)
    return lines or [
        f"  no A/A pair has a {metric}; differences under {default} are called the same"
    ]


def uncertain(cells: int, wide: noise.Numbers, metric: str) -> str:
    """How many of so many cells vary by more than the noise floor, if any does, and by how much."""
    if not len(wide):
        return ""
    return (
        f"{len(wide)} of {counted(cells, 'cell')} uncertain: {metric} known to"
        f" {percent(float(np.median(wide)))} in the median, worse than the noise floor; verdicts"
        " account for it"
    )


def timed_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells with a time, A/A controls apart."""
    return cells[(cells["status"] == "ok") & (cells["copy"] == 1)]


def warnings_of(timed: pd.DataFrame, wide: noise.Numbers) -> list[tuple[str, int]]:
    """The kinds of warnings about these cells, most frequent first; `wide`: the uncertain ones."""
    kinds = kinds_of(timed["warnings"])
    kinds += [("uncertain", len(wide))] * bool(len(wide))
    return sorted(kinds, key=lambda kind: -kind[1])


def _table(
    run: Run,
    timed: summaries.Times,
    summary: pd.DataFrame,
    won: pd.DataFrame,
    references: Collection[str],
    added: Sequence[AddedColumn],
    everything: bool,
) -> Table:
    full = summaries.saturation(timed)
    rows = summary.rename(columns={"fastest": "fastest_shapes"}).to_dict("records")
    shapes = won.loc[won["verdict"] != "alone", "accuracy"].value_counts()
    for row in rows:
        row["default"] = row["implementation"] in run.defaults
        contested = shapes.get(summaries.accuracy(row["precision"]))
        competes = contested and row["ok"] and row["implementation"] not in references
        row["fastest_share"] = row["fastest_shapes"] / int(contested) if competes else None
        row |= {column.key: column.values.get(row["implementation"]) for column in added}
        row["saturates_at"], row["largest_batch"] = full.get(row["implementation"], (None, None))
    whole = (summary["ok"] == summary["cells"].max()).all()
    common = summary.attrs["shared_shapes"]
    device = summary["device_s"].notna().any()
    passes = summary["forward_s"].notna().any()
    columns = [
        (True, names(run)),
        (True, text("precision", "precision")),
        (everything or not whole, Column("ok", lambda row: f"{row['ok']}/{row['cells']}", True)),
        (True, over_shapes("latency", "latency_s", seconds, common)),
        (by_step(run), over_shapes("per step", "step_s", seconds, common)),
        *((passes, number(name, f"{name}_s", seconds)) for name in ("forward", "backward")),
        (everything, over_shapes("throughput", "throughput_s", seconds, common)),
        (everything, over_shapes("seq/s", "sequences_per_s", _rate, common)),
        (everything, over_shapes("TFLOP/s", "tflops", _rate, common)),
        (everything and bool(full), Column("saturates", _saturates, right=True)),
        (everything and device, number("device", "device_s", seconds)),
        (True, over_shapes(f"vs {clean(summary.attrs['baseline'] or '')}", "ratio", times, common)),
        *((bool(more.values), number(more.heading, more.key, more.show)) for more in added),
        (everything, number("fastest", "fastest_share", lambda share: percent(share, 0))),
        (everything, number("first call", "first_call_s", seconds)),
        (True, number("error", "max_abs_error", error)),
    ]
    return Table("implementations", rows, [column for shown, column in columns if shown])


def over_shapes(heading: str, key: str, show: Callable[[float], str], common: int) -> Column:
    """A mean over the shapes that all rows have; of a row with few over its own, which it says."""
    count = "ratio_shapes" if key == "ratio" else "shapes"
    return Column(heading, lambda row: at_some(show(row[key]), row[count], common), right=True)


def _rate(value: float) -> str:
    return "-" if math.isnan(value) else short(value)


def _saturates(row: Mapping[str, Any]) -> str:
    if row["largest_batch"] is None:
        return "-"
    return str(row["saturates_at"] or f">= {row['largest_batch']}")


def by_step(run: Run) -> bool:
    """True if the time per timestep says what the latency does not."""
    return run.plan.settings.state == "carried" and bool((run.cells["timesteps"] > 1).any())


def names(run: Run) -> Column:
    """The names of the rows, with their marks."""
    marks = _marks(run)

    def shown(name: str) -> str:
        return clipped(name, 25) + "".join(mark for mark, _, on in marks if name in on)

    return text("implementation", "implementation", shown)


def mark_notes(run: Run, rows: Iterable[str]) -> list[str]:
    """Explains the marks of these rows."""
    there = set(rows)
    return [note for _, note, on in _marks(run) if on & there]


def _marks(run: Run) -> list[tuple[str, str, set[str]]]:
    less = set(run.cells.loc[run.cells["computes"] != "lstm", "implementation"])
    return [(LESS_WORK, LESS_WORK_NOTE, less), (DEFAULT, DEFAULT_NOTE, run.defaults)]


def _legend(
    run: Run,
    summary: pd.DataFrame,
    groups: Sequence[Mapping[str, Any]],
    metric: str,
    added: Iterable[AddedColumn],
) -> list[str]:
    common, profiled = (summary.attrs[key] for key in ("shared_shapes", "profiled_shapes"))
    device = f"; device: over {over(profiled)}" if 0 < profiled < common else ""
    baseline = clean(summary.attrs["baseline"] or "")
    columns = (
        f"times: median over {over(common)}{device}; vs {baseline}: {metric} over its {metric},"
        " geometric mean; error: largest difference from float64"
    )
    return [
        columns * bool(baseline),  # without one there is no time
        PASSES_NOTE * bool(summary["forward_s"].notna().any()),
        WINS_NOTE * bool(groups),
        SOME_NOTE * bool((summary["ok"] < summary["cells"].max()).any()),
        *(f"{column.heading}: {column.note}" for column in added if column.values),
        ACCURACY_NOTE * any(row["accuracy"] == summaries.ANY for row in groups),
        REFERENCE_NOTE * any(row["reference"] for row in groups),
        *mark_notes(run, summary["implementation"]),
    ]


def _details_legend(won: pd.DataFrame) -> list[str]:
    return [
        "throughput: time per call when calls are queued; seq/s, TFLOP/s: by throughput;"
        " saturates: the batch from which on twice the sequences gain less than"
        f" {percent(summaries.LITTLE, 0)} seq/s, mean over the other sizes; first call: with"
        " compilation; fastest: share of the shapes at which it is the fastest that you can"
        " deploy in its class of accuracy (fp32, tf32, half, int8), and not within noise",
        SHARED_NOTE * any(len(own) > 1 for own in won["shared"]),
    ]


def _paths(summary: pd.DataFrame) -> str:
    """The code that really ran, and for whom."""
    users: dict[str, list[str]] = {}
    for name, paths in zip(summary["implementation"], summary["paths"], strict=True):
        if paths:
            key = paths[0] if len(paths) == 1 else f"{len(paths)} ways, by shape"
            users.setdefault(key, []).append(name)
    line = "; ".join(f"{path}: {', '.join(names)}" for path, names in users.items())
    return f"ran on {line}" if line else ""


def failure_lines(failures: pd.DataFrame, run: Run, most: int = MAX_REASON_LINES) -> list[str]:
    """Lists missing cells and why: a line for all rows that lost the same."""
    lines = []
    again = f"{_resume(run)} measures them again"
    keys = ["status", "where", "reason", "cells"]
    for (status, where, reason, cells), rows in failures.groupby(keys, sort=False):
        each = " each" if len(rows) > 1 else ""
        at = f" at {where}" if where else ""
        why = again if status == "interrupted" else reason
        lines.append(f"  {', '.join(rows['implementation'])}: {cells} {status}{each}{at}: {why}")
    more = (
        f"  ... {len(lines) - most} more with {'--all' if most == FEW_LINES else '--format json'}"
    )
    return lines[:most] + [more] * (len(lines) > most)


def warning_lines(kinds: Iterable[tuple[str, int]], total: int) -> list[str]:
    """Each kind of warning once, with how many cells it concerns and what to do."""
    cells = counted(total, "cell")
    return [
        f"  {n} of {cells} {kind}: {REMEDIES.get(kind, 'see the records')}" for kind, n in kinds
    ]


def damage(run: Run) -> str:
    """How many lines cannot be read: each is a cell that is lost."""
    lines = f"damaged: {counted(run.damaged, 'line')} of records.jsonl cannot be read"
    return f"{lines}; {_resume(run)} measures what is missing" if run.damaged else ""


def _resume(run: Run) -> str:
    """The command that goes on with a run."""
    folder = run.folder or Path("results", run.name)
    pythons = dict.fromkeys(run.plan.environments, "PATH")  # a folder does not say what to run
    return f"`{resume_command(folder, pythons)}`"


def _fastest(won: pd.DataFrame, metric: str, title: str) -> Table:
    """Shape by shape: the fastest, the next, and whether the difference is more than noise."""
    reference = won["reference_s"].notna().any()
    return Table(
        "fastest",
        won.to_dict("records"),
        (
            Column("shape", lambda row: shape_label(row), right=True),
            text("fastest", "fastest", fastest.short_name),
            number(metric, "fastest_s", seconds),
            number("error", "error", error),
            text("next", "next", fastest.short_name),
            number("its time", "next_s", seconds),
            Column("difference", _difference, right=True),
            *([number("C++ reference", "reference_s", seconds)] if reference else []),
        ),
        title,
        most=MOST_SHAPES,
    )


def shape_label(row: Mapping[str, Any]) -> str:
    return Shape.from_row(row[axis] for axis in SHAPE).label


def _difference(row: Mapping[str, Any]) -> str:
    if row["verdict"] == "alone":
        return "-"
    return times(row["ratio"]) if row["verdict"] == "slower" else str(row["verdict"])
