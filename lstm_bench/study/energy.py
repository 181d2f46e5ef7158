"""Energy per call, by row."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple

import numpy as np
import numpy.typing as npt

from lstm_bench import energy_cells, energy_report, noise
from lstm_bench.energy_cells import NET_KNOWN, Drawn, Pair, fine_net
from lstm_bench.energy_report import ESTIMATE, gross_text, is_estimate, net_text
from lstm_bench.model import Record, Shape
from lstm_bench.study import legs, rules
from lstm_bench.study.section import Section, code, table, text
from lstm_bench.study.subject import Runs, Subject, missing, not_in
from lstm_bench.tables import Row
from lstm_bench.units import counted, listed, percent, seconds, times

UNKNOWN = "no row was measured twice: how well energy repeats is not known"
AGREE = 0.05  # two runs of a cell should
MOST_NAMED = 5
FEWEST_PAIRS, USUAL = 5, 0.05  # below so many A/A pairs, what docs/energy.md finds is used


Pairs = Sequence[tuple[Drawn, Drawn]]  # a cell in two runs


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
            " last column is a geometric mean. Net: what the GPU draws over idle"
            + (f" ({' to '.join(dict.fromkeys(idle))} W)" if idle else "")
            + " while calls run back to back; gross: net, and idle power for the time per call."
            " A range, by the lowest and the highest of rounds and loads, and"
            f" {code(ESTIMATE)}: an estimate in most cells of the row.",
            *_sentences(energy_report.doubts(own)),
            *_sentences(energy_report.repeats(pairs) or [UNKNOWN]),
            *_sentences(energy_report.problem_lines(own)),
        ),
        *(part for other in runs.energy[1:] for part in _again(runs.energy[0], other)),
        *(part for other in runs.repeats for part in _again(one, other)),
    ]
    return Section(title, body, told)


def _ratio_text(row: Row, value: float) -> str:
    """To two digits where the energy is."""
    if not is_estimate(row):
        return times(value)
    return f"{ESTIMATE}{value:.{1 if value < 10 else 0}f}x"


def _again(first: Subject, second: Subject) -> list[str]:
    """How far another run is from this one: in all cells, then where neither is an estimate."""
    sides = [
        {(one.record.implementation, one.record.shape): one for one in energy_cells.drawn(own)}
        for own in (energy_cells.firsts(first.records), energy_cells.firsts(second.records))
    ]
    both = [(one, sides[1][key]) for key, one in sides[0].items() if key in sides[1]]
    known = [(a, b) for a, b in both if a.known and b.known]
    if not both:
        return []
    marked = [(a, b) for a, b in both if not (a.known and b.known)]
    names = code(first.run.name), code(second.run.name)
    by_leg = {
        part.name: [two for two in known if astuple(two[0].record.shape) in part.shapes]
        for part in legs.parts(first, second)
    } or {"all": known}
    return [
        text(
            f"Gross energy of {names[1]} against {names[0]}, {_where(first, second)}: two runs of a"
            f" cell should agree to {percent(AGREE, 0)}, and {_agree(both)} of"
            f" {counted(len(both), 'cell')} do."
            + (" The table is of those in which neither run has an estimate." if known else ""),
        ),
        *(_figures(by_leg, known, names) if known else []),
        text(_estimates(marked, len(known)), _nets(both)),
    ]


def _figures(by_leg: Mapping[str, Pairs], known: Pairs, names: tuple[str, str]) -> list[str]:
    """How far cells are apart that have a figure in both runs."""
    heads = ["where", "cells", "median", "at most", f"over {percent(AGREE, 0)}", "time too"]
    return [
        table(
            [*heads, "idle power", "temperature"],
            [[where, *_apart(own)] for where, own in by_leg.items() if own],
        ),
        text(
            f"Median: below zero where {names[1]} takes less. Over {percent(AGREE, 0)}: cells that"
            " differ by more; time too: of these, the time per call does so too. Idle power, and"
            f" the temperature while cells were timed: in {names[0]}, in {names[1]} (medians).",
            _named(known),
        ),
    ]


def _estimates(marked: Pairs, known: int) -> str:
    """What becomes of cells of which a range is told, beside so many others."""
    if not marked:
        return ""
    far = np.abs(_changes(marked)) > AGREE
    slow = far & (np.abs(_times(marked)) > AGREE)
    ranges = [(a.range_j, b.range_j) for a, b in marked]
    overlap = sum(max(a[0], b[0]) <= min(a[1], b[1]) for a, b in ranges)
    cells = counted(len(marked), "other cell" if known else "cell")
    told = f"Of the {cells}, where it is an estimate, {far.sum()} differ by more than"
    told += f" {percent(AGREE, 0)}"
    if far.any():
        most = float(np.abs(_changes(marked)).max())
        told += (
            f", by up to {percent(most)}; in {slow.sum()} of these the time per call does so too"
        )
    return f"{told}. The ranges of the two runs overlap in {overlap}."


def _nets(both: Pairs) -> str:
    """How net energy agrees where it is no estimate, which does not depend on the host's pace."""
    pairs = [(fine_net(a.energy), fine_net(b.energy)) for a, b in both]
    change = np.array([abs(b / a - 1) for a, b in pairs if a and b])
    if not change.size:
        return ""
    return (
        f"Net energy, which the counter resolves to {percent(NET_KNOWN, 0)} in both runs in"
        f" {counted(change.size, 'cell')}, agrees to {percent(AGREE, 0)} in"
        f" {(change <= AGREE).sum()} of them; it differs by {percent(float(np.median(change)))} in"
        f" the median and {percent(float(change.max()))} at most."
    )


def _named(known: Pairs) -> str:
    """Which cells differ though neither is an estimate, if they are few, and in which way."""
    far = [two for two, change in zip(known, _changes(known), strict=True) if abs(change) > AGREE]
    if not 0 < len(far) <= MOST_NAMED:
        return ""
    told = (
        f"{code(a.record.implementation)} at {a.record.shape.label}"
        f" ({a.energy.power_w:.0f} W and {b.energy.power_w:.0f} W,"
        f" {seconds(a.record.throughput_s)} and {seconds(b.record.throughput_s)} a call)"
        for a, b in far
    )
    return f"Those over {percent(AGREE, 0)}: {listed(told)}."


def _where(first: Subject, second: Subject) -> str:
    """Whether two runs had one GPU, as far as they tell."""
    one, other = (legs.boards(subject) for subject in (first, second))
    if None in one | other or (one & other and len(one | other) > 1):
        return "on GPUs that may not be the same"
    return "on the same GPU" if one == other else "on another GPU of its kind"


def _agree(of: Pairs) -> int:
    return int((np.abs(_changes(of)) <= AGREE).sum())


def _changes(of: Pairs) -> npt.NDArray[np.float64]:
    return np.array([b.gross_j / a.gross_j - 1 for a, b in of])


def _apart(known: Pairs) -> list[str]:
    """By how much energy differs, and what the GPU was like."""
    change = _changes(known)
    apart, moved = np.abs(change) > AGREE, np.abs(_times(known)) > AGREE
    return [
        str(len(known)),
        percent(float(np.median(change))),
        percent(float(np.abs(change).max())),
        str(apart.sum()),
        str((apart & moved).sum()),
        _state([[a.energy.idle_w, b.energy.idle_w] for a, b in known], "W"),
        _state([[_warm(a), _warm(b)] for a, b in known], "C"),
    ]


def _times(known: Pairs) -> npt.NDArray[np.float64]:
    """By how much the time per call differs, which the idle power is taken for."""
    both = [(a.record.throughput_s or np.nan, b.record.throughput_s or np.nan) for a, b in known]
    return np.array([second / first - 1 for first, second in both])


def _warm(one: Drawn) -> float | None:
    return one.record.gpu.temperature_c if one.record.gpu else None


def _state(values: Sequence[Sequence[float | None]], unit: str) -> str:
    """What the GPU was like in either run, in the median; nothing where one does not say."""
    sides = [[v for v in side if v is not None] for side in zip(*values, strict=True)]
    if not all(sides):
        return "-"
    return ", ".join(f"{statistics.median(side):.0f} {unit}" for side in sides)


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
        told = f"the next, {code(ranked[1])}, takes {times(math.exp(apart.value))} as much gross"
        shaky = sum(not all(known[name, s] for name in ranked[:2]) for s in shapes)
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
        where = f"at {counted(len(shapes), 'shape')} with {steps} timesteps"
        sentences[-1] = sentences[-1].removesuffix(".") + f" ({where})."
    return " ".join(sentences) or "Too few rows have an energy to be held against each other."
