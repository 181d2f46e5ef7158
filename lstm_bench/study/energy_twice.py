"""Energy per call in two runs of one grid: how well it repeats."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lstm_bench import energy_cells
from lstm_bench.energy_cells import NET_KNOWN, Drawn, fine_net
from lstm_bench.study import legs
from lstm_bench.study.section import code, table, text
from lstm_bench.study.subject import Runs, Subject
from lstm_bench.units import listed, percent, seconds

AGREE = 0.05  # two runs of a cell should
MOST_NAMED = 5

Pairs = Sequence[tuple[Drawn, Drawn]]  # a cell in two runs


def body(runs: Runs) -> list[str]:
    """Runs of the small grid two by two, as they were made; then the main one and its repeats."""
    two_by_two = zip(runs.energy[::2], runs.energy[1::2], strict=False)
    again = [(runs.paper, other) for other in runs.repeats if runs.paper]
    found = [
        (one, other, shared)
        for one, other in [*two_by_two, *again]
        if (shared := _shared(one, other))
    ]
    if not found:
        return []
    within = percent(AGREE, 0)
    heads = ["runs", "GPU", "idle", "figures", "at most", "ranges", "overlap", "time too"]
    return [
        "### How well it repeats",
        table([*heads, "net", "at most"], [_row(*two) for two in found]),
        text(
            f"Two runs of a cell should agree to {within}: in how many they do. Idle: power, in the"
            " median of either run. Figures: gross energy of cells that have a figure in both runs,"
            " and how far these are apart at most; ranges: gross energy of the others, which are"
            " estimates in one run or both, and in how many of these the two ranges overlap; time"
            " too: of all cells that do not agree, in how many the time per call does not either."
            f" Net: of cells in which the counter resolves it to {percent(NET_KNOWN, 0)} in both"
            " runs.",
            *(_named(one, other, shared) for one, other, shared in found),
        ),
    ]


def _shared(first: Subject, second: Subject) -> Pairs:
    sides = [
        {(one.record.implementation, one.record.shape): one for one in energy_cells.drawn(own)}
        for own in (energy_cells.firsts(first.records), energy_cells.firsts(second.records))
    ]
    return [(one, sides[1][key]) for key, one in sides[0].items() if key in sides[1]]


def _row(first: Subject, second: Subject, shared: Pairs) -> list[str]:
    figures, ranges = _with_figures(shared), [two for two in shared if not _has_figures(two)]
    return [
        f"{code(first.run.name)}, {code(second.run.name)}",
        _where(first, second),
        _idle(shared),
        _agree(_gross(figures)),
        _most(_gross(figures)),
        _agree(_gross(ranges)),
        _of(sum(_overlap(*two) for two in ranges), len(ranges)),
        _slow(shared),
        _agree(_net(shared)),
        _most(_net(shared)),
    ]


def _has_figures(two: tuple[Drawn, Drawn]) -> bool:
    return all(one.known for one in two)


def _with_figures(shared: Pairs) -> Pairs:
    return [two for two in shared if _has_figures(two)]


def _gross(of: Pairs) -> npt.NDArray[np.float64]:
    return np.array([b.gross_j / a.gross_j - 1 for a, b in of])


def _net(of: Pairs) -> npt.NDArray[np.float64]:
    """Where it is no estimate by the counter; it does not depend on the host's pace."""
    found = [(fine_net(a.energy), fine_net(b.energy)) for a, b in of]
    return np.array([b / a - 1 for a, b in found if a and b])


def _times(of: Pairs) -> npt.NDArray[np.float64]:
    """By how much the time per call differs, which the idle power is taken for."""
    both = [(a.record.throughput_s or np.nan, b.record.throughput_s or np.nan) for a, b in of]
    return np.array([second / first - 1 for first, second in both])


def _slow(of: Pairs) -> str:
    """In how many of the cells whose gross energy differs the time does so too."""
    too = np.abs(_times(of))[np.abs(_gross(of)) > AGREE] > AGREE
    return _of(int(too.sum()), too.size)


def _overlap(one: Drawn, other: Drawn) -> bool:
    (low, high), (least, most) = one.range_j, other.range_j
    return max(low, least) <= min(high, most)


def _agree(changes: npt.NDArray[np.float64]) -> str:
    return _of(int((np.abs(changes) <= AGREE).sum()), changes.size)


def _of(some: int, all_: int) -> str:
    return f"{some} of {all_}" if all_ else "-"


def _most(changes: npt.NDArray[np.float64]) -> str:
    return percent(float(np.abs(changes).max())) if changes.size else "-"


def _idle(of: Pairs) -> str:
    """Nothing where one side does not say."""
    sides = [
        [one.energy.idle_w for one in side if one.energy.idle_w] for side in zip(*of, strict=True)
    ]
    return (
        ", ".join(f"{statistics.median(side):.0f}" for side in sides) + " W" if all(sides) else "-"
    )


def _named(first: Subject, second: Subject, shared: Pairs) -> str:
    """Which cells differ though both have a figure, if they are few, and in which way."""
    figures = _with_figures(shared)
    far = [two for two, apart in zip(figures, _gross(figures), strict=True) if abs(apart) > AGREE]
    if not 0 < len(far) <= MOST_NAMED:
        return ""
    told = (
        f"{code(a.record.implementation)} at {a.record.shape.label}"
        f" ({a.energy.power_w:.0f} W and {b.energy.power_w:.0f} W,"
        f" {seconds(a.record.throughput_s)} and {seconds(b.record.throughput_s)} a call)"
        for a, b in far
    )
    names = f"{code(first.run.name)} and {code(second.run.name)}"
    return f"Figures of {names} that differ by more than {percent(AGREE, 0)}: {listed(told)}."


def _where(first: Subject, second: Subject) -> str:
    """Whether two runs had one GPU, as far as they tell."""
    one, other = (legs.boards(subject) for subject in (first, second))
    if None in one | other:
        return "not told"
    if one & other:
        return "the same" if len(one | other) == 1 else "several"
    return "another"
