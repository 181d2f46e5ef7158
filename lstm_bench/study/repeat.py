"""Does it repeat: a second run of some of the shapes, held against the first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lstm_bench import noise
from lstm_bench.noise import SHAPE
from lstm_bench.study import findings, headlines, legs, rules, verdicts
from lstm_bench.study.section import Section, code, table, text
from lstm_bench.study.subject import GPU, Runs, Subject, missing
from lstm_bench.trust import measured
from lstm_bench.units import counted, listed, percent, single

FEW = 3  # findings that are worth a list
PROMISED = 0.95  # of differences lie under the noise floor: that is what it is


def section(runs: Runs) -> Section:
    title = "Does it repeat"
    if not runs.paper:
        return Section(title, [missing("h200-paper")])
    if not runs.repeats:
        return Section(
            title, [text("There is no second run to hold it against.", missing("h200-repeat"))]
        )
    rows, told, short = [], [], []
    words: defaultdict[str, list[str]] = defaultdict(list)
    for one in runs.repeats:
        cells, parts = against(runs.paper, one), legs.parts(runs.paper, one)
        rows.append([code(one.run.name), "all", *_figures(cells)])
        words["all"].append(_word(cells))
        for where, chosen in runs.paper.bottlenecks(cells).items():
            if chosen.any():
                rows.append(["", where, *_figures(cells[chosen])])
                words[where].append(_word(cells[chosen]))
        for part in parts:
            rows += _of_leg(runs.paper, part, cells[part.of(cells)])
        pairs = verdicts.both(runs.paper, one)
        ratios = headlines.headlines(pairs)
        by_leg = {part.brief: headlines.headlines(pairs[part.of(pairs)]) for part in parts}
        told += headlines.told(runs.paper, one, ratios, by_leg)
        told += verdicts.told(runs.paper, one, pairs)
        again = _findings(runs.paper, one)
        told += [again] if again else []
        short += [_short(runs.paper, one), headlines.short(ratios, by_leg)]
        short += [verdicts.short(pairs), again]
    heads = ["run", "where", "cells", "shift", "median", "95% under", "most", "within the floor"]
    body = [text(_answer(words), _whose(runs.paper, runs.repeats)), table(heads, rows)]
    body.append(
        text(
            "Difference of the medians of the same cell in two runs; shift: its median with its"
            " sign, below zero where the other run is faster; GPU-bound as under [noise](#noise)."
            " The noise floor is of two measurements in one run, in turns; between runs the"
            " machine, its clocks and its processes are others.",
            _resumed([runs.paper, *runs.repeats]),
            _sampled([runs.paper, *runs.repeats]),
            *map(_own_floors, runs.repeats),
        )
    )
    return Section(title, body + told, text(*short))


def _resumed(these: Sequence[Subject]) -> str:
    told = legs.told(*these)
    return f"{told} From leg to leg the machine may be another, too." if told else ""


def _findings(first: Subject, second: Subject) -> str:
    """Whether the second run judges the paper as the first does, each by all of its shapes."""
    both = list(zip(findings.findings(first), findings.findings(second), strict=True))
    judged = [two for two in both if {one.word for one in two} != {rules.UNKNOWN}]
    if not judged:
        return ""
    apart = [_two_words(*two) for two in judged if two[0].word != two[1].word]
    return text(
        f"{code(second.run.name)} judges {len(judged) - len(apart)} of"
        f" {counted(len(judged), 'finding')} of the paper as {code(first.run.name)} does.",
        f"Not so: {'; '.join(apart)}." if 0 < len(apart) <= FEW else "",
    )


def _two_words(first: findings.Finding, second: findings.Finding) -> str:
    return f"{first.claim} ({first.word} here, {second.word} there)"


def _of_leg(first: Subject, part: legs.Part, cells: pd.DataFrame) -> list[list[str]]:
    """The lines of one leg, by what its cells wait for."""
    found = [
        [where, *_figures(cells[chosen])]
        for where, chosen in first.bottlenecks(cells).items()
        if chosen.any()
    ] or [["all", *_figures(cells)]]
    return [[part.name if n == 0 else "", *line] for n, line in enumerate(found)]


def _sampled(these: Sequence[Subject]) -> str:
    """How much was measured of each; nothing where it was the same."""
    if single(one.sampled for one in these):
        return ""
    told = listed(f"{code(one.run.name)} {one.sampled}" for one in these)
    return f"Nor was the same amount measured: {told} at most."


def _own_floors(one: Subject) -> str:
    """How quiet the second run was by itself."""
    floors = listed(percent(used) for used in noise.applied(one.run.noise))
    return f"{code(one.run.name)} by itself has floors of {floors} by length of the call."


def _whose(first: Subject, others: Sequence[Subject]) -> str:
    """Whose rows the GPU-bound cells are."""
    found = pd.concat([against(first, one) for one in others], ignore_index=True)
    bound = found[first.bottlenecks(found)[GPU]]
    own = int(bound["implementation"].str.startswith("deepbench").sum())
    told = f"Of the GPU-bound cells {own} of {len(bound)} are the C++ baseline's."
    return told if len(bound) else ""


def _short(first: Subject, second: Subject) -> str:
    """By how much cells differ from run to run."""
    found = against(first, second)
    if found.empty:
        return ""
    told = [
        f"{name} cells differ by {percent(float(found['size'][chosen].median()))}"
        for name, chosen in first.bottlenecks(found).items()
        if chosen.any()
    ] or [f"they differ by {percent(float(found['size'].median()))}"]
    return (
        f"In {code(second.run.name)}, another run, {int(found['inside'].sum())} of"
        f" {counted(len(found), 'cell')} are within the noise floor; in the median"
        f" {listed(told)}."
    )


def against(first: Subject, second: Subject) -> pd.DataFrame:
    """Each common cell's |difference| of latency, and whether the first one's floor allows it."""
    keys = ["implementation", *SHAPE]
    sides = [measured(one.run.cells)[[*keys, "latency_s"]] for one in (first, second)]
    medians = [side.groupby(keys, sort=True)["latency_s"].median().reset_index() for side in sides]
    both = medians[0].merge(medians[1], on=keys, suffixes=("_1", "_2"))
    change = both["latency_s_2"] / both["latency_s_1"] - 1
    floor = noise.floor_at(first.run.noise, both["latency_s_1"])
    return both.assign(change=change, size=np.abs(change), inside=np.abs(change) <= floor)


def _figures(cells: pd.DataFrame) -> list[str]:
    size, inside = cells["size"].to_numpy(), int(cells["inside"].sum())
    if not len(size):
        return ["0", *["-"] * 5]
    ends = [
        float(cells["change"].median()),
        float(np.median(size)),
        noise.percentile_95(size),
        float(size.max()),
    ]
    share = f"{inside} ({percent(inside / len(size), 0)})"
    return [str(len(size)), *map(percent, ends), share]


def _word(cells: pd.DataFrame) -> str:
    return rules.promised(int(cells["inside"].sum()), len(cells), PROMISED)


def _answer(words: Mapping[str, list[str]]) -> str:
    """`words`: of all cells and of those that a bottleneck tells apart, run by run."""
    known = {where: {*told} - {rules.UNKNOWN} for where, told in words.items()}
    if not known["all"]:
        return "It cannot be told: the runs have no cell in common."
    if known["all"] == {rules.HOLDS}:
        return "Yes: medians of two runs agree as well as the noise floor of one run says."
    if known.get(GPU) == {rules.HOLDS}:
        return text(
            "GPU-bound cells do, as well as the noise floor of one run says. Of the others more"
            " differ than the floor allows."
        )
    return "Not as well as within one run: more cells differ than the noise floor allows."
