"""Is a new run worse than its base? Every cell and every row, judged so that CI can rely on it.

A cell is slower if its rounds say that it is so by more than the threshold, and if neither chance
nor luck explains it:

- Two runs were not measured in turns. Their difference is taken to be as uncertain as that of two
  single rounds, however many rounds there are, as in shipped runs that were repeated.
- A process may be slower than another of the same code (see `processes`). So the difference must be
  beyond what two processes differ by, which A/A pairs and passes show; and of two runs beyond what
  the row's other shapes moved by. Or each side must have so many processes that luck does not
  divide them like this.

A cell is the same if it moved by less than the threshold, and if the noise is known and could not
hide twice the time. Whatever is neither is unsure, and then the comparison is not decided. So is a
cell that the base has as disturbed: marked so, by passes that disagree, or, of two runs with one
pass, by more than twice the time.

A row as a whole is slower if its geometric mean over shapes is, beyond what chance explains: at
every shape by itself, or as a drift that all of them share. All cells together may raise a false
alarm in 0.5% of comparisons, and all rows in as many.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from lstm_bench.analysis import kinds, results
from lstm_bench.analysis.noise import FEWEST_PAIRS, Floors
from lstm_bench.analysis.results import Run
from lstm_bench.features.gate import sides as gate_sides
from lstm_bench.features.gate.times import ALL, TIME, Entry, RowTimes
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.shape_filter import chosen
from lstm_bench.model.types import LstmBenchError, Shape

THRESHOLD = 0.07
ALARMS = 0.01  # the share of comparisons of unchanged things that may fail
LEAST_MEMORY = 64 << 20  # bytes: unchanged runs differ by half of that
TOTAL = "time since the first base"
FIRST = "first"  # the folder in a base's that keeps the first of the bases that it replaced
FAILING = ("slower", "larger")
COLUMNS = ["implementation", "against", "shape", "what", "base", "new", "ratio", "noise"]
COLUMNS += ["verdict", "rounds", "passes", "disturbed", "undecided", "fails"]

Sizes = tuple[int, ...]


def gate(
    base: Run,
    new: Run,
    rows: Mapping[str, str],
    threshold: float = THRESHOLD,
    metric: str = "latency",
    across: Sequence[str] = (),
    strict: bool = False,
    conditions: Sequence[str] = (),
) -> pd.DataFrame:
    """The verdicts of `judge` on two runs, or on rows of one; unlike things are refused.

    Where the base is one that replaced others, the time since the first of them is judged as well.
    """
    changed = gate_sides.changed_versions(base, new, rows)
    changes = [f"{what} ({a} and {b})" for what, (a, b) in changed.items() if what != "driver"]
    if changes and "versions" not in across:
        raise LstmBenchError(
            f"the two differ in versions: {', '.join(changes)}; to compare them all the same, add"
            " --across versions"
        )
    fields = tuple(what for what in across if what != "versions")
    later = chosen(new.cells, conditions, new.name)

    def judged(old: Run, earlier: pd.DataFrame) -> pd.DataFrame:
        floors = [run.floors(metric) for run in (old, new)]
        other = None if old is new else later
        return judge(earlier, other, rows, floors, threshold, metric, fields, strict)

    verdicts = judged(base, chosen(base.cells, conditions, base.name))
    if verdicts.empty:  # it would always pass
        names = dict.fromkeys((base.name, new.name))
        raise LstmBenchError(
            f"{' and '.join(names)}: found no cell with a time to judge;"
            " `lstm-bench report` has the reasons"
        )
    first = None if base is new else _first_base(base)
    if first is not None:
        total = judged(first, first.cells)
        total = total[total["what"] == TIME].assign(what=TOTAL, undecided=False)
        total["fails"] = total["verdict"] == "slower"
        verdicts = pd.concat([verdicts, total], ignore_index=True)
        verdicts.attrs["first"] = str(first.manifest.get("started_at", ""))
    return verdicts


def _first_base(base: Run) -> Run | None:
    """The first of the bases that this one and others before it replaced."""
    folder = base.folder / FIRST if base.folder else None
    if folder is None or not (folder / "manifest.json").is_file():
        return None
    return kinds.chosen(results.load(folder), base.part)


def judge(
    base: pd.DataFrame,
    new: pd.DataFrame | None,
    rows: Mapping[str, str],
    floors: Sequence[Floors],
    threshold: float = THRESHOLD,
    metric: str = "latency",
    across: tuple[str, ...] = (),
    strict: bool = False,
) -> pd.DataFrame:
    """One line per verdict; `fails` marks those that must not pass.

    `rows` has the row of the new run, and the row of the base that it is compared with. Without
    `new` both are of one run, measured in turns. `what` is time, output, device memory or host
    memory; `noise` the difference that chance explains, NaN where nobody measured it; `rounds` or
    `passes` what would settle an `unsure`; `disturbed` the side that was: base, new or both. A
    `shape` of "all" speaks of the row: the geometric mean of its times, its largest peak.
    """
    later = base if new is None else new
    entries: list[Entry] = []
    pairs: list[RowTimes] = []
    for mine, theirs in rows.items():
        names = {"implementation": mine, "against": theirs}
        old = base[base["implementation"] == theirs]
        now = later[later["implementation"] == mine]
        before, after = _statuses(old), _statuses(now)
        both = {sizes for sizes in before if before[sizes] == after.get(sizes) == "ok"}
        entries += [{**names, **entry} for entry in _lost(before, after)]
        if both:
            sides = _at(old, both), _at(now, both)
            entries += [{**names, **entry} for entry in _larger(*sides, threshold)]
            pair = RowTimes.from_sides(names, sides, new is None, floors, metric, across)
            pairs += [pair] if len(pair.logs) else []
    cells = sum(len(pair.logs) for pair in pairs)
    apart = [gap for pair in pairs for gap in pair.apart]
    for pair in pairs:
        if len(pair.apart) < FEWEST_PAIRS:  # then as the others'
            pair = dataclasses.replace(pair, apart=apart)
        own = pair.cells(threshold, ALARMS / 2 / cells)
        entries += own
        entries += pair.row(threshold, ALARMS / 2 / len(pairs), {cell["verdict"] for cell in own})
    judged = pd.DataFrame(entries, columns=COLUMNS)
    judged["disturbed"] = judged["disturbed"].fillna("")
    judged["undecided"] = (judged["verdict"] == "unsure") & (judged["shape"] != ALL)
    judged["fails"] = judged["verdict"].isin(FAILING) | (judged["what"] == "output")
    judged["fails"] |= strict & judged["undecided"]
    return judged


def _statuses(cells: pd.DataFrame) -> dict[Sizes, str]:
    """The worst status of a row at each shape, over its passes and controls."""
    rank = {"ok": 2, "wrong": 0}
    statuses: dict[Sizes, str] = {}
    for *sizes, status in cells[[*SHAPE, "status"]].itertuples(False, None):
        worst = statuses.get(tuple(sizes), "ok")
        statuses[tuple(sizes)] = min(worst, status, key=lambda word: rank.get(word, 1))
    return statuses


def _at(cells: pd.DataFrame, shapes: set[Sizes]) -> pd.DataFrame:
    """The cells of these shapes."""
    return cells[[sizes in shapes for sizes in cells[SHAPE].itertuples(False, None)]]


def _lost(before: Mapping[Sizes, str], after: Mapping[Sizes, str]) -> Iterator[Entry]:
    """The shapes at which only the base has a time, or only the new run a wrong output."""
    for sizes, was in before.items():
        now = after.get(sizes, "missing")
        if now != "ok" and (was == "ok" or (now == "wrong" != was)):
            yield {"shape": Shape.from_row(sizes).label, "what": "output", "verdict": now}


def _larger(base: pd.DataFrame, new: pd.DataFrame, threshold: float) -> Iterator[Entry]:
    """Peaks that grew: on the device at every shape, on the host the row's largest.

    A host's allocator keeps what it has: which shape is charged with it is a matter of order.
    """
    sides = [side[side["copy"] == 1] for side in (base, new)]
    device = pd.concat([side.groupby(SHAPE)["device_peak"].max() for side in sides], axis=1)
    peaks = [
        (Shape.from_row(at).label, "device memory", *both) for at, *both in device.itertuples()
    ]
    peaks.append((ALL, "host memory", *(side["host_peak"].max() for side in sides)))
    for shape, what, before, after in peaks:
        if before > 0 and after - before > max(threshold * before, LEAST_MEMORY):
            sizes = {"base": float(before), "new": float(after), "ratio": float(after / before)}
            yield {"shape": shape, "what": what, **sizes, "verdict": "larger"}
