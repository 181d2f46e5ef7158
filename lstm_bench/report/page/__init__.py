"""A run as one HTML file that needs nothing else: words, figures, tables, pairs, raw data.

Everything that a run says goes into one JSON object; the scripts in `page/` draw from it. Text of
a run is never markup: it is escaped here, and set as text there. The page's own policy forbids
whatever is not its own script and style, and any request.
"""

from __future__ import annotations

import base64
import hashlib
import html as markup
import importlib.resources
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from lstm_bench.analysis import noise, summary, uncertainty
from lstm_bench.analysis.comparison import Group, Statistic, clear
from lstm_bench.analysis.noise import METRICS, SHAPE, Floors
from lstm_bench.analysis.results import Run
from lstm_bench.model.types import TOLERANCES, plain
from lstm_bench.model.units import clean, over
from lstm_bench.report import fastest, findings
from lstm_bench.report.colours import ink, on_dark, style_of
from lstm_bench.report.headline import headline
from lstm_bench.report.instead import Card, Instead

_PARTS = ("base", "lead", "table", "charts", "winners", "compare", "advise", "page")
SCRIPTS = tuple(f"{name}.js" for name in _PARTS)
MOST_IMPLEMENTATIONS, MOST_SHAPES = 20, 2000  # beyond, only pairs with the baseline
MOST_GROUPED = 30_000  # pairs times shapes; beyond, only pairs with the baseline by axis
MOST_LINES = 8  # of a figure, until more are chosen
DIGITS = 7  # of a time; the noise begins at the third or fourth


class Section(TypedDict):
    """An extra table of the page."""

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]


def _asset(name: str) -> str:
    return (importlib.resources.files("lstm_bench.report.page") / name).read_text(encoding="utf-8")


METHOD = _asset("method.txt")


def html(
    run: Run,
    method: str = METHOD,
    sections: Sequence[Section] = (),
    advice: Mapping[str, Any] | None = None,
) -> str:
    """The page; `method` is the text of how it was measured, a paragraph per empty line.

    `advice` is what `report.advice.on_page` has of the run: it uses the page's own sections.
    """
    style = _asset("page.css")
    script = "(() => {\n" + "\n".join(map(_asset, SCRIPTS)) + "})();\n"
    pairs = findings.Pairs(run)
    lead = Instead(run)
    drawn = {**data(run, sections, pairs, lead), "advice": plain(advice)}
    says = findings.lead_sentences(run, findings.leads(run, pairs))
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
        "findings": _items([*says, *findings.findings(run, pairs)]),
        "trust": _items(findings.trust(run)),
        "method": "\n".join(f"<p>{_text(p)}</p>" for p in re.split(r"\n\s*\n", method.strip())),
        "data": _inert(json.dumps(drawn, separators=(",", ":"))),
    }
    # in one pass: text of the run that looks like a placeholder stays what it is
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], _asset("page.html"))


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


def data(
    run: Run, sections: Sequence[Section], pairs: findings.Pairs, lead: Instead
) -> dict[str, Any]:
    """All that the scripts draw from, columns as arrays, text by its place in `strings`."""
    cells = run.cells
    names = list(dict.fromkeys([*run.implementations, *cells["implementation"]]))
    shapes = cells[SHAPE].drop_duplicates().sort_values(SHAPE, ignore_index=True)
    place = {shape: i for i, shape in enumerate(shapes.itertuples(index=False, name=None))}
    measured = cells[(cells["status"] == "ok") & (cells["copy"] == 1)]
    metrics = [metric for metric in METRICS if measured[METRICS[metric][0]].notna().any()]
    floors = {metric: run.floors(metric) for metric in metrics}
    strings: dict[str, int] = {}
    baseline = summary.baseline_of(summary.times(cells).names)
    return {
        "name": run.name,
        "metrics": metrics,
        "implementations": [_implementation(run, name, cells) for name in names],
        "baseline": names.index(baseline) if baseline else None,
        "shapes": {axis: shapes[axis].tolist() for axis in SHAPE},
        "cells": _cells(cells, names, metrics, strings),
        "strings": list(strings),  # after the cells, which fill it
        "lead": {"cards": [_bars(card, names) for card in lead.cards]},
        "drawn": _drawn(run, lead, names, baseline),
        "overview": _overview(run),
        "winners": _winners(run, names, metrics, place),
        "pairs": _pairs(pairs, names, baseline, place),
        "noise": {metric: _noises(floors[metric]) for metric in metrics},
        "facts": _facts(run),
        "sections": plain(list(sections)),
        "manifest": plain(run.manifest),
    }


def _implementation(run: Run, name: str, cells: pd.DataFrame) -> dict[str, Any]:
    """A row of the plan, as far as the page shows it, and its look on both backgrounds."""
    mine = cells[cells["implementation"] == name].iloc[0]
    planned = next((row for row in run.plan.implementations if row.name == name), None)
    its = style_of(name)
    dark = on_dark(its.colour)
    return {
        "name": name,
        "note": planned.note if planned else "",
        "precision": mine["precision"],
        "default": name in run.defaults,
        "work": mine["computes"],
        "light": [its.colour, ink(its.colour)],
        "dark": [dark, ink(dark)],
        "marker": its.marker,
        "dash": its.dash,
    }


def _cells(
    cells: pd.DataFrame, names: list[str], metrics: list[str], strings: dict[str, int]
) -> dict[str, Any]:
    codes = {name: i for i, name in enumerate(names)}
    columns: dict[str, Any] = {
        "implementation": [codes[name] for name in cells["implementation"]],
        "shape": cells.groupby(SHAPE, sort=True).ngroup().tolist(),
        "pass": cells["pass_number"].tolist(),
        "copy": cells["copy"].tolist(),
        "rounds": cells["rounds"].tolist(),
    }
    for column in ("status", "precision", "path", "reason"):
        columns[column] = [strings.setdefault(str(text), len(strings)) for text in cells[column]]
    joined = ("; ".join(marks) for marks in cells["warnings"])
    columns["warnings"] = [strings.setdefault(text, len(strings)) for text in joined]
    for column in (*(METRICS[m][0] for m in metrics), "first_call_s", "max_abs_error", "tolerance"):
        columns[column] = _numbers(cells[column], DIGITS)
    for metric in metrics:
        value, rounds = METRICS[metric]
        for end, ratio in zip(
            ("low", "high"), uncertainty.intervals(cells[value], cells[rounds]), strict=True
        ):
            columns[f"{metric}_{end}"] = _numbers(ratio, 4)
    return columns


def _numbers(values: Any, digits: int) -> list[float | None]:
    listed = np.asarray(values, dtype=float).tolist()
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in listed]


def _overview(run: Run) -> dict[str, Any]:
    """One row per implementation."""
    of = summary.times(run.cells)
    won = fastest.contests(run, run.cells)
    own = won[won["accuracy"] != summary.ANY]
    table = summary.summary(run.cells, of, own, run.implementations)
    rows = table.drop(columns="paths").to_dict("records") if run.implementations else []
    return {
        "rows": plain(rows),
        "over": over(int(table.attrs["shared_shapes"])),
        "shapes": table.attrs["shared_shapes"],
    }


def _bars(card: Card, names: list[str]) -> list[Any]:
    return [
        {
            "implementation": names.index(bar.implementation),
            "role": bar.role,
            "seconds": _numbers([bar.seconds], DIGITS)[0],
            "gain": _numbers([bar.gain], DIGITS)[0],
        }
        for bar in card.bars
    ]


def _drawn(run: Run, lead: Instead, names: list[str], baseline: str | None) -> list[int]:
    """The lines of a figure until a reader chooses: those of the first screen, then defaults."""
    first = [bar.implementation for card in lead.cards for bar in card.bars]
    known = set(summary.times(run.cells).names)
    usual = [name for name in names if name in run.defaults]
    order = dict.fromkeys([*first, *([baseline] if baseline else []), *usual, *names])
    return [names.index(name) for name in order if name in known][:MOST_LINES]


def _winners(
    run: Run, names: list[str], metrics: list[str], place: Mapping[tuple[int, ...], int]
) -> list[dict[str, Any]]:
    """Who is fastest where of what can be deployed, by metric and class of accuracy."""
    codes: dict[Any, int] = {name: i for i, name in enumerate(names)}
    result = []
    for metric in metrics:
        found = fastest.contests(run, run.cells, metric)
        for accuracy, won in found.groupby("accuracy", sort=False):
            result.append(
                {
                    "metric": metric,
                    "accuracy": summary.said(accuracy),
                    "shape": [place[s] for s in won[SHAPE].itertuples(index=False, name=None)],
                    "fastest": [codes[name] for name in won["fastest"]],
                    "shared": [[codes[name] for name in own[1:]] for own in won["shared"]],
                    "next": [codes.get(name) for name in won["next"]],
                    "fastest_s": _numbers(won["fastest_s"], 4),
                    "error": _numbers(won["error"], 2),
                    "ratio": _numbers(won["ratio"], 4),
                    "verdict": won["verdict"].tolist(),
                    "reference": [codes.get(name) for name in won["reference"]],
                    "reference_s": _numbers(won["reference_s"], 4),
                }
            )
    return result


def _pairs(
    pairs: findings.Pairs,
    names: list[str],
    baseline: str | None,
    place: Mapping[tuple[int, ...], int],
) -> list[dict[str, Any]]:
    """Every ordered pair, or with very much to compare only those with the baseline."""
    ordered = list(itertools.permutations(names, 2))
    if len(names) > MOST_IMPLEMENTATIONS or len(place) > MOST_SHAPES:
        ordered = [pair for pair in ordered if pair[0] == baseline]
    whole = len(ordered) * len(place) <= MOST_GROUPED

    def groups(names: tuple[str, str]) -> list[Group]:
        pair = pairs(*names)
        if not pair:
            return []
        axes = SHAPE[:3] if whole or baseline in names else ()
        return [pair.whole, *(group for axis in axes for group in pair.of.along(axis))]

    once = {frozenset(pair): pair for pair in ordered}.values()  # the rest turns these round
    made = {names: groups(names) for names in once}
    result = []
    for a, b in ordered:
        if pair := pairs(a, b):
            of = pair.of
            own = made[a, b] if (a, b) in made else [group.turned() for group in made[b, a]]
            shapes = of.shapes[SHAPE].itertuples(index=False, name=None)
            result.append(
                {
                    "a": names.index(a),
                    "b": names.index(b),
                    "groups": [_group(group, pair.floor) for group in own],
                    "left_out": list(of.left_out.items()),
                    "differs": of.differs,
                    "headline": headline(of, pair.whole, pair.by_axis),
                    "shape": [place[shape] for shape in shapes],
                    "a_s": _numbers(of.shapes["a_s"], 4),
                    "ratio": _numbers(of.shapes["ratio"], 4),
                    # one letter each, as there are many: f, s, u, l (slower)
                    "verdict": "".join(LETTERS[v] for v in of.shapes["verdict"]),
                }
            )
    return result


LETTERS = {"faster": "f", "same": "s", "unsure": "u", "slower": "l"}


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
            "name": one.name,
            "from": start,
            "pairs": one.pairs,
            "own": one.floor,
            "floor": used,
            "different": one.called_different,
        }
        for name, classes in [(None, floors.classes), *floors.own.items()]
        for one, start, used in zip(classes, starts, noise.applied(classes), strict=True)
    ]


def _facts(run: Run) -> list[Any]:
    """What the manifest says, in groups of labels and values."""
    machine = dict(run.manifest["machine"])
    plan = run.plan
    interpreters = run.manifest.get("interpreters") or {}
    versions = {
        name: {"python": of.get("python"), **of.get("versions", {})}
        for name, of in interpreters.items()
    }
    run_facts = {
        "run": run.name,
        "grid": plan.name,
        "started": str(run.manifest.get("started_at", "unknown"))[:19].replace("T", " "),
        "shapes": f"{run.shapes} of {len(plan.shapes)} planned",
        "passes": plan.passes,
        "A/A controls per shape": plan.controls_made,
        "cells with a time": f"{int((run.cells['status'] == 'ok').sum())} of {len(run.cells)}",
    }
    groups: list[tuple[str, Mapping[str, Any]]] = [
        ("Run", run_facts),
        ("Machine", machine),
        ("Versions", versions),
        ("Settings", run.manifest["plan"]["settings"]),
        ("Sampling", run.manifest["plan"]["sampling"]),
        ("Tolerances", {name: f"{value:g}" for name, value in TOLERANCES.items()}),
    ]
    result = []
    for title, found in groups:
        told = [[_label(str(key)), clean(_flat(value, str(key)))] for key, value in found.items()]
        result.append([title, [one for one in told if one[1]]])
    return [[title, told] for title, told in result if told]


def _label(key: str) -> str:
    """A key of the manifest as words: `warmup_cap_s` is `warmup cap (s)`."""
    known = {"cpu": "CPU", "gpus": "GPU", "lstm_bench": "lstm-bench", "amp": "AMP", "tf32": "TF32"}
    key = known.get(key, clean(key).removesuffix("_bytes"))
    return re.sub("_s$", " (s)", key).replace("_", " ")


def _flat(value: Any, key: str = "") -> str:
    """A value of the manifest in one line."""
    if isinstance(value, Mapping):
        first = {"name": value["name"]} if "name" in value else {}
        told = ((_label(str(k)), _flat(v, str(k))) for k, v in {**first, **value}.items())
        return ", ".join(
            t if label == "name" else f"{label} {t}" for label, t in told if t and label != "uuid"
        )
    if isinstance(value, (list, tuple)):
        return "; ".join(_flat(v) for v in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if key.endswith("_bytes") and isinstance(value, (int, float)):
        return f"{value / 2**30:.0f} GiB"
    return "" if value is None else str(value)
