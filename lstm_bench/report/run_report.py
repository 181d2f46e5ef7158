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
from lstm_bench.analysis.noise import SHAPE, Floors, Noise
from lstm_bench.analysis.results import Run, references
from lstm_bench.model.feature import AddedColumn
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
    wrapped,
)
from lstm_bench.report import fastest
from lstm_bench.report.document import Column, Document, FrameRows, Table, number, paragraph, text
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
ACCURACY_NOTE = "accuracy any: the fastest of all, whatever its error"
REFERENCE_NOTE = "faster in C++: by how much our C++ reference is, which shows what is possible"
MEMORY_NOTE = (
    "mem: the most that build and first call added at any shape, on the host with what the imported"
    " framework holds, where the run has it"
)
MORE = "more: --all adds throughput, first call, every shape and all warnings; --html draws a page"

#: Warnings that may change what a reader believes, if they are about more than so many cells.
SERIOUS, MANY = ("disturbed", "throttled", "slow clock"), 0.05
LOST = ("not profiled", "no energy")  # somebody asked for it
FEW_LINES = 4  # of reasons why something is missing, in the short report

#: What to do about a warning; what stands before the colon is its kind.
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


def document(
    run: Run, metric: str = "latency", conditions: Sequence[str] = (), everything: bool = False
) -> Document:
    """One screen about all shapes, or some; `everything` draws the details too."""
    if run.cells.empty:
        result = about(run, run.cells, (), "nothing was measured yet")
    else:
        cells = chosen(run.cells, conditions)
        result = about(run, cells, conditions, tested(cells))
    result.everything, result.main = everything, "implementations"
    result.facts |= {"metric": metric, "planned": run.plan.size, "left": run.left}
    if run.cells.empty:
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
    measured = _measured(cells, metric)
    wide = uncertainty.beyond(measured, floors, metric)
    warnings = counted_warnings(measured, wide)
    result.facts |= {"noise": noise_facts(floors), "failures": failures.to_dict("records")}
    result.facts |= {"warnings": dict(warnings), "damaged_lines": run.damaged}
    if groups := fastest.by_group(run, cells, timed, won, metric):
        result.add(fastest.table(groups, metric, bool(ours)))
        result.add("\n".join(fastest.coverage_lines(cells, groups, won, metric)))
    added = [add(run, cells, metric) for add in features.behind("column-summary")]
    result.add(_table(run, timed, summary, won, ours, added, everything))
    result.add(paragraph(*_legend(run, summary, groups, metric, added)))
    # parts of their own: lines of one part are joined where the terminal is narrow
    result.add(paragraph(noise_line(floors, metric)))
    result.add(paragraph(*uncertain_lines(len(measured), wide, metric)))
    many = MANY * len(measured)
    serious = [(k, n) for k, n in warnings if k in LOST or (k in SERIOUS and n > many)]
    result.add(*(line.strip() for line in warning_lines(serious, len(measured))))
    most = MAX_REASON_LINES if everything else FEW_LINES
    result.add(paragraph(*failure_lines(failures, run, most), title="missing"))
    result.add(paragraph(*damage_lines(run), title="damaged", indent=6))
    if not everything:
        result.add(MORE)
    result.add_details(noise_text(run, metric))
    result.add_details("\n".join([*map(wrapped, _details_legend(won)), *_path_lines(summary)]))
    result.add_details(paragraph(*warning_lines(warnings, len(measured)), title="warnings"))
    for accuracy, part in won.groupby("accuracy", sort=False):
        result.add_details(
            _fastest(part, metric, f"fastest in {summaries.accuracy_label(accuracy)}")
        )
    if len(won):
        result.add_details(_shape_note(int(won["accuracy"].value_counts().max())))
    for column in added:
        result.facts |= column.facts
        result.add_details(*column.details)
    return result


def about(run: Run, cells: pd.DataFrame, conditions: Sequence[str] = (), *lines: str) -> Document:
    """A document that begins with the run, and says which of its shapes it is about."""
    manifest = run.manifest
    result = Document(facts={"run": run.name, "machine": dict(manifest["machine"])})
    result.facts["settings"] = dict(manifest["plan"]["settings"])
    result.add("\n".join([heading(run), *map(wrapped, lines)]))
    if conditions:
        some, whole = (len(part[SHAPE].drop_duplicates()) for part in (cells, run.cells))
        result.add(f"only {' and '.join(conditions)}: {some} of {counted(whole, 'shape')}")
        result.facts["where"] = list(conditions)
    return result


def tested(cells: pd.DataFrame) -> str:
    """What was tested: how many implementations at which shapes, and what the checks found."""
    some = cells[["implementation", *SHAPE, "status", "max_abs_error"]]
    both = some[some["status"].isin(("ok", "wrong"))]
    ok, wrong = (both[both["status"] == status] for status in ("ok", "wrong"))
    names, shapes = both["implementation"].nunique(), both[SHAPE].drop_duplicates()
    what = f"{counted(names, 'implementation')} x {counted(len(shapes), 'shape')}"
    if len(shapes):
        sizes = (f"{axis} {_span(shapes[axis])}" for axis in SHAPE[:3])
        what += f": {', '.join(sizes)}"
    if len(wrong):
        return f"{what}; {counted(len(wrong), 'output')} wrong"
    checked = int(ok["max_abs_error"].notna().sum())
    done = "all outputs" if checked == len(ok) else f"{checked} of {counted(len(ok), 'output')}"
    return f"{what}; {done} checked"


def _span(sizes: pd.Series[int]) -> str:
    low, high = sizes.min(), sizes.max()
    return f"{low}" if low == high else f"{low}-{high}"


def heading(run: Run) -> str:
    """The run, its machine, and whether it is whole."""
    line = machine_line(run.manifest["machine"], run.manifest["plan"]["settings"])
    planned = counted(run.plan.size, "planned cell")
    left = f"\nnot complete: {run.left} of {planned} still to be measured" if run.left else ""
    return f"{run.name}: {line}{left}"


def noise_facts(floors: Floors) -> list[dict[str, Any]]:
    """What A/A pairs differ by, and what is used: of few pairs the widest."""
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
    tf32 = ", TF32 on" if settings.get("tf32") else ""  # of the whole run: until it was a row's
    notes = "".join(f", {note}" for note in from_json(Settings, settings).notes)
    return f"{where}{tf32}, seed {settings.get('seed')}{notes}"


def noise_line(floors: Floors, metric: str = "latency") -> str:
    """The noise floor in one line; those that implementations have of their own are in it."""
    pairs = list(zip(floors, noise.applied(floors), strict=True))
    used = {one.name: percent(floor) for one, floor in pairs if one.pairs}
    if not used:
        default = percent(noise.DEFAULT_FLOOR, 0)
        return f"noise of {metric} not measured: differences under {default} count as noise"
    shown = next(iter(used.values()))
    if len(set(used.values())) > 1:
        shown = ", ".join(f"{floor} at {name}" for name, floor in used.items())
    if floors.own:
        shown = own_floors(floors) + (f"; of others {shown}" if floors.others else "")
    return f"noise floor: {shown}; smaller differences are within noise"


def own_floors(floors: Floors, show: Callable[[float], str] = percent) -> str:
    """`deepbench 4.5%, pytorch 3.0% to 102%`."""
    return ", ".join(f"{name} {_floor_span(own, show)}" for name, own in floors.own.items())


def _floor_span(classes: Sequence[Noise], show: Callable[[float], str] = percent) -> str:
    """From the least to the largest floor of the duration classes that there are."""
    used = zip(classes, noise.applied(classes), strict=True)
    known = sorted(floor for one, floor in used if one.pairs)
    return " to ".join(dict.fromkeys(show(floor) for floor in (known[0], known[-1])))


def noise_text(run: Run, metric: str) -> str:
    lines = [*noise_lines(run.floors(metric), metric), *pass_lines(run, metric)]
    return "\n".join(
        [
            f"noise floor of {metric}: by how much 95% of A/A pairs differ, the same implementation"
            " measured twice",
            *("  " + line for line in lines),
        ]
    )


def pass_lines(run: Run, metric: str) -> list[str]:
    """What no A/A pair shows, as its two are measured in turns."""
    apart = noise.between_passes(run.cells, metric)
    if not len(apart):
        return []
    return [
        f"from pass to pass, in fresh processes: {percent(float(np.median(apart)))} in the median,"
        f" 95% under {percent(noise.percentile_95(apart))}"
        f"  ({counted(len(apart), 'later measurement')})"
    ]


def noise_lines(
    floors: Floors, metric: str = "latency", names: Collection[str] | None = None
) -> list[str]:
    """One line per duration class that the run has; a class with few pairs says what is used.

    Then one for each implementation, or those of these names, that has a floor of its own.
    """
    lines = []
    for one, used in zip(floors, noise.applied(floors), strict=True):
        if not one.pairs:
            continue
        line = f"{one.name:>8}: {percent(one.floor)} from {counted(one.pairs, 'pair')}"
        if used != one.floor:
            line += f", too few: {percent(used)} is used"
        if one.called_different:
            line += f"; {one.called_different} wrongly called different"
        lines.append(line)
    for name, classes in floors.own.items():
        if names is None or name in names:
            pairs = counted(sum(one.pairs for one in classes), "pair")
            lines.append(f"{name}: {_floor_span(classes)} from {pairs} of its own")
    default = percent(noise.DEFAULT_FLOOR, 0)
    return lines or [f"no A/A pair has a {metric}; differences under {default} are called the same"]


def uncertain_lines(cells: int, wide: noise.Numbers, metric: str = "latency") -> list[str]:
    """How many of so many cells vary by more than the noise floor, if any does, and by how much."""
    if not len(wide):
        return []
    known = percent(float(np.median(wide)))
    return [
        f"{len(wide)} of {counted(cells, 'cell')} uncertain: {metric} known to {known} in the"
        " median, worse than the noise floor; verdicts account for it"
    ]


def _measured(cells: pd.DataFrame, metric: str = "latency") -> pd.DataFrame:
    """Cells with a time, A/A controls apart, and what warnings and uncertainty need of them."""
    columns = ["implementation", "status", "warnings", *noise.METRICS[metric]]
    return cells.loc[(cells["status"] == "ok") & (cells["copy"] == 1), columns]


def warnings_of(cells: pd.DataFrame, floors: Floors) -> list[tuple[str, int]]:
    """The kinds of warnings about cells with a time, controls apart, most frequent first."""
    own = _measured(cells)
    return counted_warnings(own, uncertainty.beyond(own, floors))


def counted_warnings(measured: pd.DataFrame, wide: noise.Numbers) -> list[tuple[str, int]]:
    """The kinds of warnings about these cells, most frequent first; `wide`: the uncertain ones."""
    kinds = kinds_of(measured["warnings"])
    kinds += [("uncertain", len(wide))] * bool(len(wide))
    return sorted(kinds, key=lambda one: -one[1])


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
    columns = [
        (True, names(run)),
        (True, text("precision", "precision")),
        (everything or not whole, Column("ok", lambda row: f"{row['ok']}/{row['cells']}", True)),
        (True, over_shapes("latency", "latency_s", seconds, common)),
        (by_step(run), over_shapes("per step", "step_s", seconds, common)),
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
    """Whether the time per timestep says what the latency does not."""
    return run.plan.settings.state == "carried" and bool((run.cells["timesteps"] > 1).any())


def names(run: Run) -> Column:
    """The names of the rows, with their marks."""
    marks = _marks(run)

    def shown(name: str) -> str:
        return clipped(name, 25) + "".join(mark for mark, _, on in marks if name in on)

    return text("implementation", "implementation", shown)


def mark_notes(run: Run, rows: Iterable[str]) -> list[str]:
    """What the marks of these rows mean."""
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
    apart = " (not a quotient of medians)" if common > 1 else ""
    columns = (
        f"times: median over {over(common)}{device}; vs {baseline}: {metric} over its {metric},"
        f" geometric mean{apart}; error: largest difference from float64"
    )
    wins = (
        "wins: shapes where it is the fastest beyond the noise, of its own; same: within the noise"
    )
    some = "at N: over N shapes, as not all can be run"
    reference = any(row["reference"] for row in groups)
    several = any(row["accuracy"] == summaries.ANY for row in groups)
    return [
        *([columns] if baseline else []),  # without one there is no time
        *([wins] if groups else []),
        *([some] if (summary["ok"] < summary["cells"].max()).any() else []),
        *(f"{column.heading}: {column.note}" for column in added if column.values),
        *([ACCURACY_NOTE] if several else []),
        *([REFERENCE_NOTE] if reference else []),
        *mark_notes(run, summary["implementation"]),
    ]


def _details_legend(won: pd.DataFrame) -> list[str]:
    if not len(won):
        return []
    shared = any(len(own) > 1 for own in won["shared"])
    return [
        "throughput: time per call when calls are queued; seq/s, TFLOP/s: by throughput;"
        " saturates: the batch from which on twice the sequences gain less than"
        f" {percent(summaries.LITTLE, 0)} seq/s, mean over the other sizes; first call: with"
        " compilation; fastest: share of the shapes at which it is the fastest that you can"
        " deploy in its class of accuracy (fp32, tf32, half, int8), and not within noise",
        *([SHARED_NOTE] if shared else []),
    ]


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


def failure_lines(failures: pd.DataFrame, run: Run, most: int = MAX_REASON_LINES) -> list[str]:
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
    where = "--all" if most < MAX_REASON_LINES else "--format json"
    more = f"  ... {counted(len(lines) - most, 'more line')} with {where}"
    return lines[:most] + ([more] if len(lines) > most else [])


def warning_lines(kinds: Iterable[tuple[str, int]], total: int) -> list[str]:
    """Each kind of warning once, with how many cells it concerns and what to do."""
    cells = counted(total, "cell")
    return [
        wrapped(f"  {count} of {cells} {kind}: {REMEDIES.get(kind, 'see the records')}", 6)
        for kind, count in kinds
    ]


def damage_lines(run: Run) -> list[str]:
    """A line that cannot be read is a cell that is lost: never without a word."""
    if not run.damaged:
        return []
    lines, were = counted(run.damaged, "line"), "was" if run.damaged == 1 else "were"
    remedy = f"{_resume(run)} measures what is missing"
    return [f"  {lines} of records.jsonl cannot be read and {were} passed over; {remedy}"]


def _resume(run: Run) -> str:
    """What to type to go on with a run."""
    folder = run.folder or Path("results", run.name)
    pythons = dict.fromkeys(run.plan.environments, "PATH")  # a folder does not say what to run
    return f"`{resume_command(folder, pythons)}`"


def _fastest(won: pd.DataFrame, metric: str, title: str) -> Table:
    """Shape by shape: the fastest, the next, and whether the difference is more than noise."""
    reference = won["reference_s"].notna().any()
    return Table(
        "fastest",
        FrameRows(won),
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
