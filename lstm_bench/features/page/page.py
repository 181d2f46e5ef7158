"""A run as one HTML file that needs nothing else: words, figures, tables, pairs, raw data.

Everything that a run says goes into one JSON object; the scripts beside this file draw from it.
Text of a run is never markup: it is escaped here, and set as text there. The page's own policy
forbids whatever is not its own script and style, and any request.

Features add to it by two doors: `section`, a function of a run that returns a document, or raises
`LstmBenchError` if it has nothing to say: its tables are shown; and `page_data`, a function of a
run that returns a name, data, and the script that finds the data under this name, or None.
"""

from __future__ import annotations

import base64
import hashlib
import html as markup
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench import features
from lstm_bench.analysis import noise, summary, uncertainty
from lstm_bench.analysis.comparison import Group, Statistic, clear
from lstm_bench.analysis.noise import METRICS, Floors
from lstm_bench.analysis.results import Run
from lstm_bench.features.page import findings, sections
from lstm_bench.features.page.instead import Card, Instead
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import TOLERANCES, plain
from lstm_bench.model.units import clean, over
from lstm_bench.report import fastest, run_report
from lstm_bench.report.colours import ink, on_dark, style_of
from lstm_bench.report.fastest import Compared
from lstm_bench.report.headline import floor_of, headline

_PARTS = ("base", "lead", "table", "charts", "winners", "compare", "page")
MOST_IMPLEMENTATIONS, MOST_SHAPES = 20, 2000  # beyond, only pairs with the baseline
MOST_GROUPED = 30_000  # pairs times shapes; beyond, only pairs with the baseline by axis
MOST_LINES = 8  # of a figure, until more are chosen
DIGITS = 7  # of a time; the noise begins at the third or fourth
LETTERS = {"faster": "f", "same": "s", "unsure": "u", "slower": "l"}

Place = Mapping[tuple[int, ...], int]  # of each shape


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def html(run: Run) -> str:
    """The page of a run, with what features add to it."""
    compared, lead = Compared(run, run.cells, "latency"), Instead(run)
    added = [its for add in features.behind("page_data") if (its := add(run))]
    drawn = data(run, compared, lead) | {name: plain(its) for name, its, _ in added}
    parts = [_asset(f"{name}.js") for name in _PARTS] + [script for *_, script in added]
    style, script = _asset("page.css"), "(() => {\n" + "\n".join(parts) + "})();\n"
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)};"
        " img-src data: blob:; base-uri 'none'; form-action 'none';"
        " require-trusted-types-for 'script'"
    )
    values = {
        "policy": policy,
        "style": style,
        "script": script,
        "name": _text(run.name),
        "subject": _text(findings.subject(run)),
        "lead_title": _text(lead.title),
        "lead": "\n".join(map(_card, lead.cards)),
        "lead_note": _text(lead.note),
        "findings": _items(findings.findings(run, compared)),
        "trust": _items(findings.trust(run)),
        "data": _inert(json.dumps(drawn, separators=(",", ":"))),
    }
    # in one pass: text of the run that looks like a placeholder stays what it is
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _asset("page.html"))


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _text(value: str) -> str:
    """Text as markup; what UTF-8 cannot hold becomes a question mark."""
    return markup.escape(value.encode("utf-8", "replace").decode())


def _items(sentences: Sequence[str]) -> str:
    return "\n".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)


def _card(card: Card) -> str:
    where = f"<b>{_text(card.at)}</b> <small>{_text(card.over)}:</small> " if card.at else ""
    return f"<li><p>{where}{_text(card.sentence)}</p></li>"


def _inert(text: str) -> str:
    """JSON that no HTML parser can mistake for markup; it is ASCII already."""
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def data(run: Run, compared: Compared, lead: Instead) -> dict[str, Any]:
    """All that the scripts draw from, columns as arrays, text by its place in `strings`."""
    cells = run.cells
    names = list(dict.fromkeys([*run.implementations, *cells["implementation"]]))
    shapes = cells[SHAPE].drop_duplicates().sort_values(SHAPE, ignore_index=True)
    place = {shape: i for i, shape in enumerate(shapes.itertuples(index=False, name=None))}
    timed = run_report.timed_cells(cells)
    metrics = [metric for metric in METRICS if timed[METRICS[metric][0]].notna().any()]
    columns, strings = _cells(cells, names, metrics)
    baseline = summary.baseline_of(summary.times(cells).names)
    return {
        "name": run.name,
        "metrics": metrics,
        "implementations": [_implementation(run, name) for name in names],
        "baseline": names.index(baseline) if baseline else None,
        "shapes": {axis: shapes[axis].tolist() for axis in SHAPE},
        "cells": columns,
        "strings": strings,
        "lead": {"cards": [_bars(card, names) for card in lead.cards]},
        "drawn": _drawn(run, lead, names, baseline),
        "overview": _overview(run),
        "winners": [*_winners(run, names, metrics, place)],
        "pairs": [*_pairs(compared, names, baseline, place)],
        "noise": {metric: _noises(run.floors(metric)) for metric in metrics},
        "facts": _facts(run),
        "sections": [*sections.sections(run)],
        "manifest": plain(run.manifest),
    }


def _implementation(run: Run, name: str) -> dict[str, Any]:
    """A row of the plan, as far as the page shows it, and its look on both backgrounds."""
    mine = run.cells[run.cells["implementation"] == name].iloc[0]
    its = style_of(name)
    dark = on_dark(its.colour)
    return {
        "name": name,
        "note": next((row.note for row in run.plan.implementations if row.name == name), ""),
        "precision": mine["precision"],
        "default": name in run.defaults,
        "work": mine["computes"],
        "light": [its.colour, ink(its.colour)],
        "dark": [dark, ink(dark)],
        "marker": its.marker,
        "dash": its.dash,
    }


def _cells(
    cells: pd.DataFrame, names: list[str], metrics: list[str]
) -> tuple[dict[str, Any], list[str]]:
    """The columns of all cells, and the strings that those of text point to."""
    texts = cells[["status", "precision", "path", "reason"]].astype(str)
    texts = texts.assign(warnings=["; ".join(marks) for marks in cells["warnings"]])
    strings = {text: n for n, text in enumerate(dict.fromkeys(texts.to_numpy().ravel()))}
    codes = {name: i for i, name in enumerate(names)}
    columns: dict[str, Any] = {
        "implementation": [codes[name] for name in cells["implementation"]],
        "shape": cells.groupby(SHAPE, sort=True).ngroup().tolist(),
        "pass": cells["pass_number"].tolist(),
        "copy": cells["copy"].tolist(),
        "rounds": cells["rounds"].tolist(),
        **{column: [strings[text] for text in texts[column]] for column in texts},
    }
    for column in (*(METRICS[m][0] for m in metrics), "first_call_s", "max_abs_error", "tolerance"):
        columns[column] = _numbers(cells[column], DIGITS)
    for metric in metrics:
        value, rounds = METRICS[metric]
        ends = uncertainty.intervals(cells[value], cells[rounds])
        for end, ratio in zip(("low", "high"), ends, strict=True):
            columns[f"{metric}_{end}"] = _numbers(ratio, 4)
    return columns, list(strings)


def _numbers(values: Any, digits: int) -> list[float | None]:
    listed = np.asarray(values, dtype=float).tolist()
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in listed]


def _overview(run: Run) -> dict[str, Any]:
    """One row per implementation."""
    won = fastest.contests(run, run.cells)
    own = won[won["accuracy"] != summary.ANY]
    table = summary.summary(run.cells, summary.times(run.cells), own, run.implementations)
    shapes = int(table.attrs["shared_shapes"])
    rows = table.drop(columns="paths").to_dict("records") if run.implementations else []
    return {"rows": plain(rows), "over": over(shapes), "shapes": shapes}


def _bars(card: Card, names: list[str]) -> list[Any]:
    return [{**asdict(bar), "implementation": names.index(bar.implementation)} for bar in card.bars]


def _drawn(run: Run, lead: Instead, names: list[str], baseline: str | None) -> list[int]:
    """The lines of a figure until a reader chooses: those of the first screen, then defaults."""
    first = [bar.implementation for card in lead.cards for bar in card.bars]
    usual = [name for name in names if name in run.defaults]
    order = dict.fromkeys([*first, baseline, *usual, *names])
    known = set(summary.times(run.cells).names)
    return [names.index(name) for name in order if name in known][:MOST_LINES]


def _winners(
    run: Run, names: list[str], metrics: list[str], place: Place
) -> Iterator[dict[str, Any]]:
    """The fastest deployable row of each shape, by metric and class of accuracy."""
    codes: dict[Any, int] = {name: i for i, name in enumerate(names)}
    for metric in metrics:
        contests = fastest.contests(run, run.cells, metric)
        for accuracy, won in contests.groupby("accuracy", sort=False):
            yield {
                "metric": metric,
                "accuracy": summary.accuracy_label(accuracy),
                "shape": _places(won, place),
                **{key: [*map(codes.get, won[key])] for key in ("fastest", "next", "reference")},
                "shared": [[codes[name] for name in own[1:]] for own in won["shared"]],
                **{key: _numbers(won[key], 4) for key in ("fastest_s", "ratio", "reference_s")},
                "error": _numbers(won["error"], 2),
                "verdict": won["verdict"].tolist(),
            }


def _places(shapes: pd.DataFrame, place: Place) -> list[int]:
    return [place[shape] for shape in shapes[SHAPE].itertuples(index=False, name=None)]


def _pairs(
    compared: Compared, names: list[str], baseline: str | None, place: Place
) -> Iterator[dict[str, Any]]:
    """Every pair in both orders, or with very much to compare only those with the baseline."""
    pairs = list(itertools.permutations(names, 2))
    if len(names) > MOST_IMPLEMENTATIONS or len(place) > MOST_SHAPES:
        pairs = [(a, b) for a, b in pairs if a == baseline]
    whole = len(pairs) * len(place) <= MOST_GROUPED
    for a, b in pairs:
        if not (pair := compared(a, b)):
            continue
        axes = SHAPE[:3] if whole or baseline in (a, b) else ()
        groups = [pair.group(), *(group for axis in axes for group in pair.along(axis))]
        floor = floor_of(pair)
        yield {
            "a": names.index(a),
            "b": names.index(b),
            "groups": [_group(group, floor) for group in groups],
            "left_out": list(pair.left_out.items()),
            "differs": pair.differs,
            "headline": headline(pair),
            "shape": _places(pair.shapes, place),
            "a_s": _numbers(pair.shapes["a_s"], 4),
            "ratio": _numbers(pair.shapes["ratio"], 4),
            # one letter each, as there are many
            "verdict": "".join(LETTERS[verdict] for verdict in pair.shapes["verdict"]),
        }


def _group(group: Group, floor: float) -> list[Any]:
    """Axis, label, shapes, ratio, MPE, counts of verdicts, whether it is beyond the noise."""
    counts = list(group.verdicts.values())
    ends = _stat(group.ratio), _stat(group.mpe)
    return [group.by, group.label, group.shapes, *ends, counts, clear(group, floor)]


def _stat(statistic: Statistic) -> list[float | None]:
    return _numbers((statistic.value, statistic.low, statistic.high), 4)


def _noises(floors: Floors) -> list[dict[str, Any]]:
    """The floors of all, then those that implementations have of their own."""
    starts = [0.0, *(upper for _, upper in noise.CLASSES[:-1])]
    return [
        {
            "implementation": name,
            "name": duration.name,
            "from": start,
            "pairs": duration.pairs,
            "own": duration.floor,
            "floor": used,
            "different": duration.called_different,
        }
        for name, classes in [(None, floors.classes), *floors.own.items()]
        for duration, start, used in zip(classes, starts, noise.applied(classes), strict=True)
    ]


def _facts(run: Run) -> list[Any]:
    """The manifest, in groups of labels and values."""
    plan, manifest = run.plan, run.manifest
    run_facts = {
        "run": run.name,
        "grid": plan.name,
        "started": str(manifest.get("started_at", "unknown"))[:19].replace("T", " "),
        "shapes": f"{run.shapes} of {len(plan.shapes)} planned",
        "passes": plan.passes,
        "A/A controls per shape": plan.controls_made,
        "cells with a time": f"{int((run.cells['status'] == 'ok').sum())} of {len(run.cells)}",
    }
    versions = {
        name: {"python": its.get("python"), **its.get("versions", {})}
        for name, its in (manifest.get("interpreters") or {}).items()
    }
    groups: dict[str, Mapping[str, Any]] = {
        "Run": run_facts,
        "Machine": manifest["machine"],
        "Versions": versions,
        "Settings": manifest["plan"]["settings"],
        "Sampling": manifest["plan"]["sampling"],
        "Tolerances": {name: f"{value:g}" for name, value in TOLERANCES.items()},
    }
    lines = {title: _lines(values) for title, values in groups.items()}
    return [[title, [[k, clean(v)] for k, v in own]] for title, own in lines.items() if own]


def _lines(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The keys and values that say something, as text: `warmup_cap_s` is `warmup cap (s)`."""
    known = {"cpu": "CPU", "gpus": "GPU", "lstm_bench": "lstm-bench", "amp": "AMP", "tf32": "TF32"}
    lines = []
    for key, value in values.items():
        label = known.get(str(key), clean(str(key)).removesuffix("_bytes"))
        if str(key).endswith("_bytes") and isinstance(value, (int, float)):
            value = f"{value / 2**30:.0f} GiB"
        if (text := _flat(value)) and key != "uuid":
            lines.append((re.sub("_s$", " (s)", label).replace("_", " "), text))
    return lines


def _flat(value: Any) -> str:
    """A value of the manifest in one line, a name before all else."""
    if isinstance(value, Mapping):
        name = str(value.get("name") or "")
        rest = _lines({key: own for key, own in value.items() if key != "name"})
        return ", ".join(filter(None, [name, *(f"{label} {text}" for label, text in rest)]))
    if isinstance(value, (list, tuple)):
        return "; ".join(map(_flat, value))
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else str(value)
