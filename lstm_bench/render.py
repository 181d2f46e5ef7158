"""Answers as text: tables that fit 100 columns, units that people read."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import tabulate

from lstm_bench import analysis
from lstm_bench.analysis import Noise
from lstm_bench.model import Cell, Record
from lstm_bench.plan import Plan, guess_call_s, guess_cell_s, guess_s

tabulate.MIN_PADDING = 0  # columns as narrow as their contents: tables must fit a page
WIDTH = 100
MAX_REASON_LINES = 12
LESS_WORK = {"lstm": "", "lstm-skip-input": "*"}  # the mark of unequal work


def seconds(value: float | None) -> str:
    """A duration with three digits and its unit."""
    if value is None or math.isnan(value):
        return "-"
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")):
        scaled = float(f"{value * factor:.3g}")  # rounded first: 999.7 us is 1 ms
        if scaled >= 1:
            return f"{scaled:g} {unit}"
    return "0 s"


def span(value: float) -> str:
    """A length of time to wait: 45 s, 3 min 20 s, 2 h 5 min."""
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None or math.isnan(value) else f"{100 * value:.{digits}f}%"


def table(rows: Sequence[dict[str, Any]] | pd.DataFrame, form: str = "simple") -> str:
    """Rows of one shape as a table; `form` is any of tabulate's."""
    data = rows.to_dict("records") if isinstance(rows, pd.DataFrame) else list(rows)
    if not data:
        return "(nothing)"
    right = [i for i, key in enumerate(data[0]) if isinstance(data[0][key], _Number)]
    align = ["right" if i in right else "left" for i in range(len(data[0]))]
    text = tabulate.tabulate(
        data, headers="keys", tablefmt=form, colalign=align, disable_numparse=True
    )
    return str(text)


class _Number(str):
    """A cell that lines up on the right."""


def summary_table(summary: pd.DataFrame) -> str:
    """The table of all implementations."""
    rows = []
    for row in summary.to_dict("records"):
        against = "-" if math.isnan(row["ratio"]) else f"{row['ratio']:.2f}x"
        rows.append(
            {
                "implementation": clipped(row["implementation"], 25) + LESS_WORK[row["computes"]],
                "precision": row["precision"],
                "ok": _Number(f"{row['ok']}/{row['cells']}"),
                "latency": _Number(seconds(row["latency_s"])),
                "throughput": _Number(seconds(row["throughput_s"])),
                "ratio": _Number(against),
                "fastest": _Number(row["fastest"]),
                "first call": _Number(seconds(row["first_call_s"])),
                "error": _Number(_error(row["max_abs_error"])),
            }
        )
    return table(rows)


def path_lines(summary: pd.DataFrame) -> list[str]:
    """Which code really ran, and for whom."""
    users: dict[str, list[str]] = {}
    for row in summary.to_dict("records"):
        paths = row["paths"]
        if paths:
            key = paths[0] if len(paths) == 1 else f"{len(paths)} ways, by shape"
            users.setdefault(key, []).append(row["implementation"])
    text = "; ".join(f"{path}: {', '.join(names)}" for path, names in users.items())
    return [wrapped(f"ran on  {text}", 8)] if text else []


def wrapped(text: str, indent: int) -> str:
    """Text folded to the width of a page; hyphens in names are no place to fold."""
    return textwrap.fill(
        text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False
    )


def clipped(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _error(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.0e}"


def noise_lines(noise: Iterable[Noise]) -> list[str]:
    """One line per duration class that the run has."""
    lines = []
    for one in noise:
        if one.pairs:
            lines.append(
                f"{one.name:>8}: 95% of A/A differences under {percent(one.floor)}"
                f"  ({one.pairs} pair{'s' * (one.pairs > 1)},"
                f" verdict calls {one.called_different} different)"
            )
    return lines or ["no A/A pair was measured; differences stand without their noise"]


def failure_lines(failures: pd.DataFrame) -> list[str]:
    """What is missing, and why, wrapped."""
    lines: list[str] = []
    for row in failures.to_dict("records"):
        text = f"{row['implementation']}: {row['cells']} {row['status']}: {row['reason']}"
        lines += wrapped("  " + text, 6).splitlines()
    return lines[:MAX_REASON_LINES] + (["..."] if len(lines) > MAX_REASON_LINES else [])


#: What to do about a warning; the first word of a warning is its kind.
REMEDIES = {
    "not warm": "raise sampling.warmup_cap_s in the grid, or look for what else runs here",
    "not converged": "use --rigorous, or close what else runs on this machine",
    "disturbed": "close what else runs on this machine; `lstm-bench doctor` measures its noise",
    "capped": "raise sampling.cell_s in the grid to give slow cells more time",
    "two processes": "see the reason of the cell that took the worker down, above",
    "not checked again": "the times stand; see the worker's log in the run's logs folder",
}


def warning_lines(records: Iterable[Record]) -> list[str]:
    """Each kind of warning once, with how many cells it concerns and what to do."""
    kinds = Counter(w.split(":")[0] for r in records for w in r.warnings)
    return [
        f"  {count} cell{'s' if count > 1 else ''} {kind}: {REMEDIES.get(kind, 'see the records')}"
        for kind, count in kinds.most_common()
    ]


def machine_line(machine: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The machine and the run's settings in one line."""
    gpus = machine.get("gpus") or []
    if settings.get("device") == "cuda" and gpus:
        where = f"{gpus[0]['name']}, driver {gpus[0]['driver']}"
    else:
        where = f"{machine.get('cpu')}, {settings.get('threads')} threads"
    tf32 = "TF32 on" if settings.get("tf32") else "TF32 off"
    return f"{where}, {tf32}, seed {settings.get('seed')}"


def plan_text(plan: Plan, cells: Sequence[Cell], missing: Mapping[str, str]) -> str:
    """What `--dry-run` says: the plan, the cells that are left, an estimate."""
    s, sampling = plan.settings, plan.sampling
    rows = []
    for row in plan.implementations:
        mine = [c for c in cells if c.implementation == row.name]
        calls = [guess_call_s(row, shape, s) for shape in plan.shapes]
        note = missing.get(row.framework, "")
        if s.device not in row.devices:
            note = f"needs {' or '.join(row.devices)}"
        rows.append(
            {
                "implementation": row.name,
                "precision": row.precision_on(s),
                "cells": _Number(len(mine)),
                "a call, about": f"{seconds(min(calls))} to {seconds(max(calls))}",
                "in all, about": span(sum(guess_cell_s(plan, c) for c in mine)),
                "note": note[:30],
            }
        )
    labels = [shape.label for shape in plan.shapes]
    more = f" ... {len(labels) - 24} more" if len(labels) > 24 else ""
    shapes = "shapes (hidden,batch,timesteps): " + "  ".join(labels[:24]) + more
    return "\n".join(
        [
            f"{plan.name}: {len(plan.shapes)} shapes x {len(plan.implementations)} implementations"
            f" + {plan.controls} A/A controls a shape, passes: {plan.passes}",
            f"on {s.device}, {s.threads} threads, TF32 {'on' if s.tf32 else 'off'},"
            f" AMP in {s.amp}, {sampling.rounds} to {sampling.max_rounds} rounds",
            "",
            table(rows),
            "",
            textwrap.fill(shapes, WIDTH),
            "",
            f"{len(cells)} cells, about {span(guess_s(plan, cells))}"
            " (a guess, within a factor of two). Nothing was run.",
        ]
    )


def run_text(name: str, manifest: Mapping[str, Any], records: Sequence[Record]) -> str:
    """A run's table with its machine, its noise, what is missing and what to mind."""
    if not records:
        return f"{name}: nothing was measured yet"
    cells = analysis.frame(records)
    order = [row.name for row in Plan.from_json(manifest["plan"], name).implementations]
    baseline, summary = analysis.baseline_of(cells), analysis.summary(cells, order)
    shared = summary.attrs["shared_shapes"]
    lines = [
        f"{name}: {machine_line(manifest['machine'], manifest['plan']['settings'])}",
        "noise floor of latency, from the run's A/A controls:",
        *("  " + line for line in noise_lines(analysis.noise(analysis.control_pairs(cells)))),
        "",
        summary_table(summary),
        "",
        wrapped(
            f"latency, throughput, first call: median over the {shared} shapes that all rows have;"
            f" ratio: latency to that of {baseline or 'none'}, geometric mean over the shapes of"
            " both; fastest: shapes won beyond the noise; error: largest difference from the"
            " float64 reference",
            0,
        ),
        *(
            ["* does less work: the input is added to the gates without its projection"]
            if (summary["computes"] != "lstm").any()
            else []
        ),
        *path_lines(summary),
    ]
    for title, part in (
        ("missing", failure_lines(analysis.failures(cells))),
        ("warnings", warning_lines(records)),
    ):
        if part:
            lines += ["", f"{title}:", *part]
    return "\n".join(lines)


def fastest_text(records: Sequence[Record]) -> str:
    """Shape by shape: the fastest, the next, and whether the difference is more than noise."""
    rows = [
        {
            "shape": _Number(w.shape.label),
            "fastest": clipped(w.fastest, 18),
            "latency": _Number(seconds(w.latency_s)),
            "next": clipped(w.next or "-", 18),
            "its time": _Number(seconds(w.next_latency_s)),
            "difference": w.verdict,
        }
        for w in analysis.winners(analysis.frame(records))
    ]
    return table(rows) + "\n\nshape: hidden,batch,timesteps, then the input size where it differs"
