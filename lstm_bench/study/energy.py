"""Energy per call, by row."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from lstm_bench import energy_cells, energy_report, noise
from lstm_bench.energy_cells import NET_KNOWN, Pair, fine_net
from lstm_bench.energy_report import ESTIMATE, gross_text, is_estimate, net_text
from lstm_bench.model import Record, Shape
from lstm_bench.study import energy_twice, legs, rules
from lstm_bench.study.section import Section, code, table, text
from lstm_bench.study.subject import Runs, missing, not_in
from lstm_bench.tables import Row
from lstm_bench.units import counted, listed, percent, times

UNKNOWN = "no row was measured twice: how well energy repeats is not known"
FEWEST_PAIRS, USUAL = 5, 0.05  # below so many A/A pairs, what docs/energy-repeats.md finds is used


def section(runs: Runs) -> Section:
    title = "Energy per call"
    one = runs.paper
    if not one:
        return Section(title, [missing("h200-paper")])
    own = energy_cells.firsts(one.records)
    shapes = energy_cells.shared_shapes(own)
    if not shapes:
        return Section(title, [not_in(one.run, "energy")])
    rows = energy_report.table_rows(own, one.run.implementations)
    known = [row for row in rows if row["gross_j"]]
    base = "pytorch" if any(row["implementation"] == "pytorch" for row in known) else ""
    shown = [
        [
            code(row["implementation"]),
            gross_text(row),
            net_text(row),
            f"{row['power_w']:.0f} W",
            _ratio_text(row, _against(own, base, row["implementation"], shapes)) if base else "-",
        ]
        for row in known
    ]
    pairs = energy_cells.pairs(one.records)
    told = _least(own, shapes, _noise(pairs))
    watts = [row["idle_w"] for row in known if row["idle_w"]]
    idle = [f"{end(watts):.0f}" for end in (min, max)] if watts else []
    body = [
        text(told),
        table(["row", "gross", "net", "power", "gross / pytorch"], shown),
        text(
            f"Medians over the {len(shapes)} shapes at which all of these rows have an energy; the"
            " last column is a geometric mean, which need not have the order of medians. Net: what"
            " the GPU draws over idle"
            + (f" ({' to '.join(dict.fromkeys(idle))} W)" if idle else "")
            + " while calls run back to back; gross: net, and idle power for the time per call."
            " A range, by the lowest and the highest of rounds and loads, and"
            f" {code(ESTIMATE)}: an estimate in most cells of the row.",
            *_sentences(energy_report.doubts(own)),
            *_sentences(energy_report.repeats(pairs) or [UNKNOWN]),
            *_sentences(energy_report.problem_lines(own)),
            "The run had several GPUs: energies of one shape are of one of them, those of two"
            " shapes need not be."
            if len(legs.boards(one)) > 1
            else "",
        ),
        *energy_twice.body(runs),
    ]
    return Section(title, body, told)


def _ratio_text(row: Row, value: float) -> str:
    """To two digits where the energy is."""
    if not is_estimate(row):
        return times(value)
    return f"{ESTIMATE}{value:.{1 if value < 10 else 0}f}x"


def _sentences(lines: Sequence[str]) -> list[str]:
    """Lines of the report as sentences."""
    return [f"{line[:1].upper()}{line[1:]}." for line in map(str.strip, lines)]


def _gross(records: Sequence[Record], name: str) -> dict[Shape, float]:
    found = energy_cells.drawn(r for r in records if r.implementation == name)
    return {one.record.shape: one.gross_j for one in found}


def _net(records: Sequence[Record], name: str) -> dict[Shape, float]:
    """Where the counter resolves it well."""
    found = energy_cells.drawn(r for r in records if r.implementation == name)
    return {one.record.shape: net for one in found if (net := fine_net(one.energy))}


def _against(records: Sequence[Record], a: str, b: str, shapes: set[Shape]) -> float:
    return math.exp(statistics.fmean(_logs(records, a, b, shapes)))


def _logs(
    records: Sequence[Record],
    a: str,
    b: str,
    shapes: set[Shape],
    of: Callable[[Sequence[Record], str], dict[Shape, float]] = _gross,
) -> list[float]:
    first, second = of(records, a), of(records, b)
    return [math.log(second[s] / first[s]) for s in sorted(shapes) if s in first and s in second]


def _noise(pairs: Sequence[Pair]) -> float:
    """What a difference in energy must be beyond."""
    gross = [pair.gross for pair in pairs]
    return noise.percentile_95(np.array(gross)) if len(gross) >= FEWEST_PAIRS else USUAL


def _least(records: Sequence[Record], shapes: set[Shape], floor: float) -> str:
    """Which row that a framework's user can have needs the least, in fp32 and in half."""
    sentences = []
    known = {
        (d.record.implementation, d.record.shape): d.known for d in energy_cells.drawn(records)
    }
    for kind, half in (("fp32", False), ("half precision", True)):
        rows = {
            r.implementation
            for r in records
            if r.framework != "deepbench" and ("16" in r.precision) == half and r.shape in shapes
        }
        total = {
            name: statistics.fmean(
                math.log(v) for s, v in _gross(records, name).items() if s in shapes
            )
            for name in sorted(rows)
            if _gross(records, name)
        }
        ranked = sorted(total, key=lambda name: (total[name], name))
        if len(ranked) < 2:
            continue
        apart = rules.mean(_logs(records, ranked[0], ranked[1], shapes))
        clear = rules.is_over(apart, math.log1p(floor)) == rules.HOLDS
        shaky = sum(not all(known[name, s] for name in ranked[:2]) for s in shapes)
        more = _ratio_text({"estimates": shaky, "cells": len(shapes)}, math.exp(apart.value))
        told = f"the next, {code(ranked[1])}, takes {more} as much gross"
        where = "throughout" if shaky == len(shapes) else f"at {counted(shaky, 'shape')}"
        told += f" (an estimate {where})" if shaky else ""
        net = _logs(records, ranked[0], ranked[1], shapes, _net)
        if net:
            more = f"{ESTIMATE}{math.exp(statistics.fmean(net)):.1f}x"
            where = f"at the {counted(len(net), 'shape')} where that is resolved to"
            told += f", {more} net of idle power {where} {percent(NET_KNOWN, 0)}"
        if not clear:
            told = f"not clearly less than {code(ranked[1])}"
        sentences.append(
            f"In {kind} {code(ranked[0])} takes the least energy of the frameworks' rows: {told}."
        )
    if sentences:
        steps = listed(str(t) for t in sorted({shape.timesteps for shape in shapes}))
        first = sentences[0][:1].lower() + sentences[0][1:]
        sentences[0] = f"At the {counted(len(shapes), 'shape')} with {steps} timesteps, {first}"
    return " ".join(sentences) or "Too few rows have an energy to be held against each other."
