"""Is a new run worse than its base? Every cell and every row, judged so that CI can rely on it.

A cell is slower if its rounds say that it is so by more than the threshold, and if neither chance
nor luck explains it:

- Two runs were not measured in turns. Their difference is taken to be as uncertain as that of two
  single rounds, however many rounds there are, as in shipped runs that were repeated.
- A process may be slower than another of the same code (see `processes`). So the difference must be
  beyond what two processes differ by, which A/A pairs and passes show; and of two runs beyond what
  the row's other shapes moved by. Or each side must have so many processes that luck does not
  divide them like this.

A row as a whole is slower if its geometric mean over shapes is, beyond what chance explains: at
every shape by itself, or as a drift that all of them share. All cells together may raise a false
alarm in 0.5% of comparisons, and all rows in as many.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from lstm_bench.analysis import circumstances, noise, processes
from lstm_bench.analysis.comparison import Comparison, compare
from lstm_bench.analysis.intervals import FEWEST_SHAPES
from lstm_bench.analysis.noise import (
    FEWEST_PAIRS,
    FEWEST_ROUNDS,
    METRICS,
    SHAPE,
    Floors,
    Numbers,
    by_round,
)
from lstm_bench.analysis.processes import Sample
from lstm_bench.analysis.results import Run, versions
from lstm_bench.model.registry import guess
from lstm_bench.model.shape_filter import chosen
from lstm_bench.model.types import LstmBenchError, Shape

THRESHOLD = 0.07
ALARMS = 0.01  # the share of comparisons of unchanged things that may fail
LEAST_MEMORY = 64 << 20  # bytes: unchanged runs differ by half of that
COMMON = 0.5  # of what moves a cell from run to run may move the whole row: seen in shipped runs
SURE = 3.0  # standard errors
TENTH = 1.2816  # standard deviations from the middle to the tenth that is furthest out
DISTURBED = "disturbed: other processes"  # a warning that a neighbour was there all the time
ALL = "all"  # the shape of what is said of a whole row
FAILING = ("slower", "larger")
COLUMNS = ["implementation", "against", "shape", "what", "base", "new", "ratio", "noise"]
COLUMNS += ["verdict", "rounds", "passes", "disturbed", "fails"]

Entry = dict[str, Any]
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
    """The verdicts of `judge` on two runs, or on rows of one; unlike things are refused."""
    if "versions" not in across:
        refuse_versions(versions_differ(base, new, rows))
    runs = [base] if base is new else [base, new]
    cells = [chosen(run.cells, conditions, run.name) for run in runs]
    floors = [run.floors(metric) for run in runs]
    fields = tuple(what for what in across if what != "versions")
    other = None if base is new else cells[1]
    found = judge(cells[0], other, rows, floors, threshold, metric, fields, strict)
    if found.empty:  # it would always pass
        raise LstmBenchError(
            f"{' and '.join(run.name for run in runs)}: found no cell with a time to judge;"
            " `lstm-bench report` has the reasons"
        )
    return found


def same(first: Run, second: Run) -> bool:
    """Whether both are one run."""
    return len({run.folder.resolve() for run in (first, second) if run.folder}) == 1


def paired(base: Run, new: Run, names: Sequence[str], renamed: Sequence[str]) -> dict[str, str]:
    """Each row of the new run that is judged, and the base's that it is held against.

    Of one run alone, `pytorch` is held against `pytorch~old`, which `grid --against` measured.
    """
    rows = {}
    for text in renamed:
        mine, sign, theirs = text.partition("=")
        if not (mine and sign and theirs):
            raise LstmBenchError(
                f"--as: found {text!r}, expected two rows, as in pytorch-native=pytorch"
            )
        rows[mine] = theirs
    if not rows and base is new:
        own = base.implementations
        plain = {row: re.sub("~[^@]*", "", row) for row in own}  # pytorch~old@1: pytorch@1
        rows = {mine: row for row, mine in plain.items() if mine in own and mine != row}
        if not rows:
            raise LstmBenchError(
                f"found one run, {base.name}; expected two, `lstm-bench gate BASE NEW`, or two of"
                f" its rows, as in --as {'='.join(own[:2][::-1])}"
            )
    rows = rows or {row: row for row in base.implementations}
    if names:
        kept = rows if renamed or base is new else {row: row for row in names}
        rows = {mine: theirs for mine, theirs in kept.items() if mine in names}
    for theirs in rows.values():
        _check_row(theirs, base)
    for mine, theirs in rows.items():
        if mine != theirs:  # a row that the new run lost is a failure, a mistyped one is not
            _check_row(mine, new)
    return rows


def _check_row(name: str, run: Run) -> None:
    known = run.implementations
    if name not in known:
        raise LstmBenchError(
            f"{name!r} is not in {run.name}; it has: {', '.join(known) or 'nothing'}"
            f"{guess(name, known)}"
        )


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

    `rows` has the row of the new run, and the row of the base that it is held against. Without
    `new` both are of one run, measured in turns. `what` is time, output, device memory or host
    memory; `noise` the difference that chance explains; `rounds` or `passes` what would settle an
    `unsure`. What other processes `disturbed` is unsure at worst. A `shape` of "all" speaks of the
    row: the geometric mean of its times, its largest peak.
    """
    later = base if new is None else new
    entries: list[Entry] = []
    pairs: list[_Pair] = []
    for mine, theirs in rows.items():
        before, after = _statuses(base, theirs), _statuses(later, mine)
        names = {"implementation": mine, "against": theirs}
        entries += [{**names, **lost} for lost in _lost(before, after)]
        both = {sizes for sizes in before if before[sizes] == after.get(sizes) == "ok"}
        if both:
            sides = _part(base, theirs, both), _part(later, mine, both)
            entries += [
                {**names, **more}
                for more in _memory(_firsts(sides[0]), _firsts(sides[1]), threshold)
            ]
            pair = _Pair.of(names, sides, new is None, floors, metric, across)
            pairs += [pair] if len(pair.logs) else []
    cells = sum(len(pair.logs) for pair in pairs)
    apart = [one for pair in pairs for one in pair.apart]
    for pair in pairs:
        if len(pair.apart) < FEWEST_PAIRS:  # then as the others'
            pair = dataclasses.replace(pair, apart=apart)
        entries += pair.cells(threshold, ALARMS / 2 / cells)
        entries += pair.row(threshold, ALARMS / 2 / len(pairs))
    found = pd.DataFrame(entries, columns=COLUMNS)
    found["disturbed"] = found["disturbed"].eq(True)
    failing = (*FAILING, "unsure") if strict else FAILING
    found["fails"] = found["verdict"].isin(failing) | (found["what"] == "output")
    return found


@dataclasses.dataclass(frozen=True)
class _Pair:
    """A row held against its base."""

    names: dict[str, str]
    found: Comparison
    ratios: Numbers  # logarithms in lots of rounds, one row per shape
    error: Numbers  # of the logarithm of each shape's ratio, one standard deviation
    freedom: Numbers  # the values that the error is known from, less what they were used for
    disturbed: npt.NDArray[np.bool_]  # shapes whose time may be the neighbours' doing
    samples: list[Sample]  # of each shape, process by process
    apart: list[float]  # differences of two processes of the same cell
    passes: int  # of the side that has fewer

    @classmethod
    def of(
        cls,
        names: dict[str, str],
        sides: tuple[pd.DataFrame, pd.DataFrame],
        in_turns: bool,
        floors: Sequence[Floors],
        metric: str,
        across: tuple[str, ...],
    ) -> _Pair:
        whole, sides = sides, (_firsts(sides[0]), _firsts(sides[1]))
        cells, other = (pd.concat(sides), None) if in_turns else sides
        found = compare(
            cells, names["against"], names["implementation"], metric, other, across, floors
        )
        ratios = noise.in_lots(noise.log_ratios(found.a_rounds, found.b_rounds))
        lots = np.isfinite(ratios).sum(axis=1)
        sample = processes.in_turns if in_turns else processes.of_runs
        samples = sample(*whole, metric, _sizes(found.shapes))
        apart = [one for sample in samples for one in sample.differences]
        if in_turns:  # of two runs the samples have them
            apart += [one for side in whole for one in processes.twins(side, metric)]
        passes = min(side["pass_number"].nunique() for side in sides)
        more = samples, apart, passes
        if in_turns:
            none = np.zeros(len(lots), dtype=bool)  # both sides were alike in that
            with np.errstate(invalid="ignore", divide="ignore"):
                error = _deviation(ratios) / lots**0.5
            return cls(names, found, ratios, error, lots - 1.0, none, *more)
        (first, own), (second, theirs) = (_spread(side, metric, found.shapes) for side in sides)
        told = pd.concat(sides)
        marked = told[[any(one.startswith(DISTURBED) for one in own) for own in told["warnings"]]]
        places = set(_sizes(marked))
        disturbed = np.array([sizes in places for sizes in _sizes(found.shapes)], dtype=bool)
        freedom = own + theirs - 2.0
        return cls(names, found, ratios, np.hypot(first, second), freedom, disturbed, *more)

    @property
    def logs(self) -> Numbers:
        return np.asarray(np.log(self.found.shapes["ratio"].to_numpy()))

    @property
    def rounds(self) -> npt.NDArray[np.intp]:
        """How many both sides have in common, shape by shape."""
        ratios = noise.log_ratios(self.found.a_rounds, self.found.b_rounds)
        return np.asarray(np.isfinite(ratios).sum(axis=1))

    def cells(self, threshold: float, chance: float) -> list[Entry]:
        """The verdict at every shape."""
        shapes, logs, least = self.found.shapes, self.logs, np.log1p(threshold)
        floor = np.full(len(shapes), threshold)
        words = noise.verdicts(
            self.found.a_rounds, self.found.b_rounds, shapes["ratio"].to_numpy(), floor
        )
        by_chance = _quantile(self.freedom, chance) * self.error
        by_process, passes = self._processes(least, chance)
        explained = np.fmax(by_process, by_chance)
        called = np.isin(words, ("slower", "faster")) & (np.abs(logs) > explained)
        called &= ~self.disturbed
        open_ = (logs > least) | (self.rounds < FEWEST_ROUNDS)
        words = np.where(called, words, np.where(open_, "unsure", "same"))
        needed = self._needed(np.fmax(by_chance, least))
        passes = np.where((logs > by_process) & (self.rounds >= FEWEST_ROUNDS), np.nan, passes)
        rounds = np.where(np.isfinite(passes), np.nan, needed)
        times = shapes["a_s"], shapes["b_s"], shapes["ratio"]
        told = explained, words, rounds, passes, self.disturbed
        columns = zip(_sizes(shapes), *times, *told, strict=True)
        return [self._entry(Shape(*at).label, *rest) for at, *rest in columns]

    def _processes(self, least: float, chance: float) -> tuple[Numbers, Numbers]:
        """What processes explain at each shape; and the passes after which luck would not.

        One process may be as much slower than another as any two lie apart, and one run than
        another as the half of the shapes that moved least. Of many processes that are all on one
        side only the mean is in doubt.
        """
        one = processes.explained(self.apart, chance)
        if not self.found.in_turns and len(self.logs) >= FEWEST_SHAPES:
            quantile = float(_quantile(np.array([len(self.logs) - 1.0]), chance)[0])
            moved = quantile * noise.MAD * float(np.median(np.abs(self.logs)))
            one = max(one, min(moved, processes.UNKNOWN))
        each = [sample.count / self.passes for sample in self.samples]

        def lucky(count: int) -> bool:
            return processes.by_luck(self.apart, least, count) > chance

        enough = next(count for count in itertools.count(1) if not lucky(count))
        limits, passes = np.full(len(self.samples), one), np.full(len(self.samples), np.nan)
        for n, sample in enumerate(self.samples):
            if sample.count:
                passes[n] = max(np.ceil(enough / each[n]), self.passes + 1)
            if sample.count >= enough and sample.separate:
                quantile = float(_quantile(np.array([sample.freedom]), chance)[0])
                limits[n] = min(one, quantile * sample.error)
        return limits, passes

    def row(self, threshold: float, chance: float) -> list[Entry]:
        """The verdict over all shapes, where they are enough to know how far it may be off."""
        if len(self.logs) < FEWEST_SHAPES:
            return []
        logs, least = self.logs, np.log1p(threshold)
        mean, error = float(logs.mean()), float(logs.std(ddof=1)) / len(logs) ** 0.5
        explained = float(_quantile(np.array([len(logs) - 1.0]), chance)[0]) * error
        if np.isfinite(self.error).any():
            quantile = float(_quantile(np.array([np.nanmedian(self.freedom)]), chance)[0])
            explained = max(explained, quantile * COMMON * float(np.nanmedian(self.error)))
        word, rounds = "same", np.nan
        disturbed = bool(self.disturbed.mean() > 0.5)
        if abs(mean) > max(least, explained) and not disturbed:
            word = "slower" if mean > 0 else "faster"
        elif mean > least:
            word, rounds = "unsure", _more(float(np.median(self.rounds)), explained / mean)
        a_s, b_s = (float(np.exp(np.log(self.found.shapes[s]).mean())) for s in ("a_s", "b_s"))
        told = float(np.exp(mean)), explained, word, rounds, np.nan, disturbed
        return [self._entry(ALL, a_s, b_s, *told)]

    def _needed(self, limit: Numbers) -> list[float]:
        """How many rounds would settle each shape, as an error shrinks with their square root."""
        lots = np.isfinite(self.ratios).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            error = SURE * _deviation(self.ratios) / lots**0.5
            inside = self.logs <= limit
            share = np.where(inside, limit / self.logs, error / (self.logs - limit))
        return [_more(float(n), float(one)) for n, one in zip(self.rounds, share, strict=True)]

    def _entry(
        self,
        shape: str,
        base: float,
        new: float,
        ratio: float,
        explains: float,
        verdict: str,
        rounds: float,
        passes: float,
        disturbed: bool,
    ) -> Entry:
        times = {"shape": shape, "what": "time", "base": base, "new": new, "ratio": ratio}
        told = {"noise": float(np.expm1(explains)), "verdict": str(verdict)}
        wanted = verdict == "unsure" and not disturbed
        told |= {"rounds": rounds, "passes": passes} if wanted else {}
        told["disturbed"] = bool(disturbed)
        return {**self.names, **times, **told}


def _more(rounds: float, share: float) -> float:
    """Rounds after which an error is so many times smaller; at least one more."""
    if not np.isfinite(share):
        return np.nan
    return float(max(np.ceil(rounds * share**2), rounds + 1, FEWEST_ROUNDS))


def _quantile(freedom: Numbers, chance: float) -> Numbers:
    """How many standard deviations are exceeded by chance so rarely, by Student's distribution."""
    from scipy.special import stdtrit  # here, as loading it takes a while

    return np.asarray(stdtrit(np.maximum(freedom, 1.0), 1 - chance))


def _deviation(values: Numbers) -> Numbers:
    """Each row's standard deviation; NaN with fewer than two values."""
    there = np.isfinite(values)
    count = there.sum(axis=1)
    mean = np.where(there, values, 0.0).sum(axis=1) / count
    squares = np.where(there, (values - mean[:, None]) ** 2, 0.0).sum(axis=1)
    return np.asarray(np.where(count > 1, squares / (count - 1), np.nan) ** 0.5)


def _spread(side: pd.DataFrame, metric: str, shapes: pd.DataFrame) -> tuple[Numbers, Numbers]:
    """What chance may move each shape by, by how far its rounds lie apart; and how many there are.

    The tenth of them that is furthest out, either way, does not count. Of several passes each is
    known by as much; their median is off by less.
    """
    logs = np.sort(np.log(by_round(list(side[METRICS[metric][1]]))), axis=1)  # NaN goes last
    count = np.isfinite(logs).sum(axis=1)
    low, high = (_at(logs, share * (count - 1)) for share in (0.1, 0.9))
    place = {sizes: n for n, sizes in enumerate(_sizes(shapes))}
    mine = np.array([place.get(sizes, len(place)) for sizes in _sizes(side)], dtype=np.intp)

    def summed(values: Numbers) -> Numbers:
        return np.asarray(np.bincount(mine, values, len(place) + 1)[: len(place)])

    passes = summed(np.ones(len(mine)))
    return summed((high - low) / 2 / TENTH) / passes / passes**0.5, summed(count.astype(float))


def _at(ordered: Numbers, place: Numbers) -> Numbers:
    """The value of each row at a place between two of its values; NaN where there is none."""
    ordered = np.pad(ordered, ((0, 0), (0, 1)), constant_values=np.nan)
    rows, low = np.arange(len(ordered)), np.floor(np.maximum(place, 0.0)).astype(int)
    first, second = ordered[rows, low], ordered[rows, np.ceil(np.maximum(place, 0.0)).astype(int)]
    return np.asarray(first + (place - low) * (second - first))


def _sizes(shapes: pd.DataFrame) -> list[Sizes]:
    return list(zip(*(shapes[axis].tolist() for axis in SHAPE), strict=True))


def _part(cells: pd.DataFrame, name: str, shapes: set[Sizes]) -> pd.DataFrame:
    """The cells of a row at these shapes."""
    mine = cells[cells["implementation"] == name]
    return mine[[sizes in shapes for sizes in _sizes(mine)]]


def _firsts(cells: pd.DataFrame) -> pd.DataFrame:
    """Without controls."""
    return cells[cells["copy"] == 1]


def _statuses(cells: pd.DataFrame, name: str) -> dict[Sizes, str]:
    """How a row came out at each shape: the worst of its passes and controls."""
    rank = {"ok": 2, "wrong": 0}
    found: dict[Sizes, str] = {}
    mine = cells[cells["implementation"] == name]
    for at, status in zip(_sizes(mine), mine["status"], strict=True):
        found[at] = min(found.get(at, "ok"), status, key=lambda word: rank.get(word, 1))
    return found


def _lost(before: Mapping[Sizes, str], after: Mapping[Sizes, str]) -> list[Entry]:
    """Where the new run has no time and the base has one, or an output that is wrong by now."""
    lost = []
    for sizes, was in before.items():
        now = after.get(sizes, "missing")
        if now != "ok" and (was == "ok" or (now == "wrong" != was)):
            lost.append({"shape": Shape(*sizes).label, "what": "output", "verdict": now})
    return lost


def _memory(base: pd.DataFrame, new: pd.DataFrame, threshold: float) -> list[Entry]:
    """Peaks that grew: on the device at every shape, on the host the row's largest.

    A host's allocator keeps what it has: which shape is charged with it is a matter of order.
    """
    found = []
    known = (side[side["device_peak"].notna()] for side in (base, new))
    sides = [side.groupby(SHAPE)["device_peak"].max() for side in known]
    common = sides[0].index.intersection(sides[1].index)
    hosts = [side["host_peak"].max() for side in (base, new)]
    peaks = [
        *((Shape(*at).label, "device memory", sides[0][at], sides[1][at]) for at in common),
        (ALL, "host memory", *hosts),
    ]
    for shape, what, before, after in peaks:
        if before > 0 and after - before > max(threshold * before, LEAST_MEMORY):
            sizes = {"base": float(before), "new": float(after), "ratio": float(after / before)}
            found.append({"shape": shape, "what": what, **sizes, "verdict": "larger"})
    return found


def differences(base: Run, new: Run, rows: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """What the two ran with that is not the same in both: versions first, then the rest."""
    runs = [] if base is new else [base, new]
    return circumstances.differences(runs, _versions(base, new, rows))


def versions_differ(base: Run, new: Run, rows: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Frameworks, libraries and drivers that the rows had in another version each."""
    return circumstances.differences([], _versions(base, new, rows))


def _versions(base: Run, new: Run, rows: Mapping[str, str]) -> list[tuple[dict[str, str], ...]]:
    return [(versions(base, theirs), versions(new, mine)) for mine, theirs in rows.items()]


def refuse_versions(differ: Mapping[str, Sequence[str]]) -> None:
    """Two builds are compared only where that is what was asked for."""
    told = [f"{what} ({a} and {b})" for what, (a, b) in differ.items() if what != "driver"]
    if told:
        raise LstmBenchError(
            f"the two differ in versions: {', '.join(told)}; to hold them against each other, add"
            " --across versions"
        )
