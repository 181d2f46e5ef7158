"""Does it repeat: a second run of some of the shapes, held against the first."""

from __future__ import annotations

import numpy as np

from lstm_bench import noise
from lstm_bench.noise import SHAPE
from lstm_bench.study import rules
from lstm_bench.study.section import Section, code, table, text
from lstm_bench.study.subject import Runs, Subject, missing
from lstm_bench.trust import measured
from lstm_bench.units import percent

PROMISED = 0.95  # of differences lie under the noise floor: that is what it is


def section(runs: Runs) -> Section:
    title = "Does it repeat"
    if not runs.paper:
        return Section(title, [missing("h200-paper")])
    if not runs.repeats:
        return Section(
            title, [text("There is no second run to hold it against.", missing("h200-repeat"))]
        )
    found = [(one, against(runs.paper, one)) for one in runs.repeats]
    rows, words = [], []
    for one, (size, floor) in found:
        inside = int((size <= floor).sum())
        words.append(rules.promised(inside, len(size), PROMISED))
        rows.append([code(one.run.name), str(len(size)), *_figures(size, inside)])
    heads = ["run", "cells", "median", "95% under", "most", "within the floor"]
    body = [_answer(words), table(heads, rows)]
    body.append(
        text(
            "Difference of the medians of the same cell in two runs. The noise floor is of two"
            " measurements in one run, in turns; between runs the machine, its clocks and its"
            " processes are others."
        )
    )
    return Section(title, body)


def against(first: Subject, second: Subject) -> tuple[noise.Numbers, noise.Numbers]:
    """Each common cell's |difference| of latency, and the floor it is promised to stay under."""
    keys = ["implementation", *SHAPE]
    sides = [measured(one.run.cells)[[*keys, "latency_s"]] for one in (first, second)]
    medians = [side.groupby(keys, sort=True)["latency_s"].median().reset_index() for side in sides]
    both = medians[0].merge(medians[1], on=keys, suffixes=("_1", "_2"))
    size = np.abs(both["latency_s_2"] / both["latency_s_1"] - 1).to_numpy()
    floors = [noise.floor_at(one.run.noise, both["latency_s_1"]) for one in (first, second)]
    return size, np.maximum(*floors)


def _figures(size: noise.Numbers, inside: int) -> list[str]:
    if not len(size):
        return ["-"] * 4
    ends = [float(np.median(size)), float(np.percentile(size, 95)), float(size.max())]
    return [*map(percent, ends), f"{inside} ({percent(inside / len(size), 0)})"]


def _answer(words: list[str]) -> str:
    if rules.HOLDS_NOT in words:
        return "Not as well as within one run: more cells differ than the noise floor allows."
    if set(words) == {rules.HOLDS}:
        return "Yes: medians of two runs agree as well as the noise floor of one run says."
    return "It cannot be told: the runs have no cell in common."
