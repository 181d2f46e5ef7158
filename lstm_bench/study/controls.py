"""How far two measurements of one thing in one run are apart: the noise that verdicts allow for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from lstm_bench import noise
from lstm_bench.study.section import code, reached_by, table, text
from lstm_bench.study.subject import GPU_BOUND, TITLES, Subject
from lstm_bench.units import counted, listed, percent

LONG_S = 1e-4  # A/A pairs of shorter calls are not counted in the share under CLOSE
CLOSE, WANTED = 0.01, 0.95  # of the pairs, WANTED shall differ by less than CLOSE


def body(subjects: Sequence[Subject]) -> list[str]:
    """The noise of some runs, the answer first."""
    floors = [row for one in subjects for row in _floors(one)]
    parts = [row for one in subjects for row in _parts(one)]
    bounds = (
        f"GPU-bound: the GPU is busy for at least {percent(GPU_BOUND, 0)} of a call; host-bound:"
        " all others. Only a profiled run tells them apart."
    )
    return [
        text(
            _answer(subjects),
            "A difference below the noise floor is never called one. The floor is that of all rows;"
            " where those of a framework are further apart, it is the test on their rounds that"
            " keeps noise from being called.",
        ),
        table(["run", "calls", "pairs", "95% under", "floor used", "called different"], floors, 2),
        text(
            "Called different: beyond the floor of the other pairs. Below, the pairs over 100 us"
            f" by whose row they are and by what a call waits for. {bounds}"
        ),
        table(
            ["run", "of", "pairs", f"under {percent(CLOSE, 0)}", "median", "95% under"], parts, 2
        ),
    ]


def _answer(subjects: Sequence[Subject]) -> str:
    """How many pairs are as close as they should be, run by run."""
    told, reached = [], []
    for one in subjects:
        close, long = close_pairs(one)
        if not long:
            continue
        run, share = code(one.run.name), percent(close / long, 0)
        shapes = counted(one.run.shapes, "shape")
        told.append(f"{run} has {close} of {long}, {share} ({shapes}, {one.sampled} at most)")
        if close >= WANTED * long:
            reached.append(code(one.run.name))
    wanted = (
        f"Of the A/A pairs of calls over 100 us {percent(WANTED, 0)} should differ by less than"
        f" {percent(CLOSE, 0)}."
    )
    if not told:
        return f"{wanted} There is none."
    medians = listed(str(_by_medians(one)) for one in subjects if close_pairs(one)[1])
    return (
        f"{wanted} {reached_by(reached)} as well as that: {'; '.join(told)}. Round is held against"
        f" round, as verdicts do it; by the two medians alone it would be {medians}."
    )


def apart(cells: pd.DataFrame) -> noise.Numbers:
    """By how much the two of each A/A pair of longer calls differ."""
    pairs = noise.controls(cells)
    return np.abs(pairs.difference[pairs.time_s >= LONG_S])


def close_pairs(one: Subject) -> tuple[int, int]:
    """A/A pairs of longer calls that differ by less than 1%, and all of them."""
    size = apart(one.run.cells)
    return int((size < CLOSE).sum()), len(size)


def _by_medians(one: Subject) -> int:
    """How many of them do by the medians of the two, which need not be of the same moments."""
    pairs = noise.controls(one.run.cells)
    return int((np.abs(pairs.ratio[pairs.time_s >= LONG_S] - 1) < CLOSE).sum())


def _floors(one: Subject) -> Iterator[list[str]]:
    """The run's noise floors by the length of a call; its name once."""
    name = code(one.run.name)
    for floor, used in zip(one.run.noise, noise.applied(one.run.noise), strict=True):
        shown = "-" if floor.floor is None else percent(floor.floor)
        different = f"{floor.called_different} of {floor.pairs}"
        yield [name, floor.name, str(floor.pairs), shown, percent(used), different]
        name = ""


def _parts(one: Subject) -> Iterator[list[str]]:
    """The longer pairs: all, then in two ways by kind."""
    cells, name = one.run.cells, code(one.run.name)
    framework = cells["implementation"].map(
        {row.name: row.framework for row in one.run.plan.implementations}
    )
    kinds = {
        "all": np.full(len(cells), True),
        **{title: (framework == key).to_numpy() for key, title in TITLES.items()},
        **one.bottlenecks(cells),
    }
    for kind, chosen in kinds.items():
        size = apart(cells[chosen])
        if len(size):
            close = int((size < CLOSE).sum())
            ends = [percent(float(np.median(size))), percent(noise.percentile_95(size))]
            share = f"{close} ({percent(close / len(size), 0)})"
            yield [name, kind, str(len(size)), share, *ends]
            name = ""


def short(one: Subject) -> str:
    """In a few words."""
    close, long = close_pairs(one)
    return (
        f"{close} of {counted(long, 'A/A pair')} over 100 us agree to {percent(CLOSE, 0)} round by"
        f" round, {_by_medians(one)} by their medians"
    )
