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
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from lstm_bench.analysis import kinds, noise, results
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
from lstm_bench.analysis.results import Run
from lstm_bench.features.gate import processes
from lstm_bench.features.gate import sides as gate_sides
from lstm_bench.features.gate.processes import Sample
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
TIME, TOTAL = "time", "time since the first base"
FIRST = "first"  # the folder in a base's that keeps the first of the bases that it replaced
FAILING = ("slower", "larger")
COLUMNS = ["implementation", "against", "shape", "what", "base", "new", "ratio", "noise"]
COLUMNS += ["verdict", "rounds", "passes", "disturbed", "undecided", "fails"]

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
    """The verdicts of `judge` on two runs, or on rows of one; unlike things are refused.

    Where the base is one that replaced others, the time since the first of them is judged as well.
    """
    if "versions" not in across:
        gate_sides.refuse_versions(base, new, rows)

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
        verdicts = pd.concat([verdicts, total.assign(fails=total["verdict"] == "slower")])
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

    `rows` has the row of the new run, and the row of the base that it is held against. Without
    `new` both are of one run, measured in turns. `what` is time, output, device memory or host
    memory; `noise` the difference that chance explains, NaN where nobody measured it; `rounds` or
    `passes` what would settle an `unsure`; `disturbed` the side that was: base, new or both. A
    `shape` of "all" speaks of the row: the geometric mean of its times, its largest peak.
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
        own = pair.cells(threshold, ALARMS / 2 / cells)
        entries += own
        entries += pair.row(threshold, ALARMS / 2 / len(pairs), {cell["verdict"] for cell in own})
    found = pd.DataFrame(entries, columns=COLUMNS)
    found["disturbed"] = found["disturbed"].fillna("")
    found["undecided"] = (found["verdict"] == "unsure") & (found["shape"] != ALL)
    found["fails"] = found["verdict"].isin(FAILING) | (found["what"] == "output")
    found["fails"] |= strict & found["undecided"]
    return found


@dataclasses.dataclass(frozen=True)
class _Pair:
    """A row held against its base."""

    names: dict[str, str]
    found: Comparison
    ratios: Numbers  # logarithms in lots of rounds, one row per shape
    error: Numbers  # of the logarithm of each shape's ratio, one standard deviation
    freedom: Numbers  # the values that the error is known from, less what they were used for
    base_disturbed: npt.NDArray[np.bool_]  # shapes at which a side's time may be its neighbours'
    new_disturbed: npt.NDArray[np.bool_]
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
        passes = min(side["pass_number"].nunique() for side in sides)
        if in_turns:
            apart = [gap for sample in samples for gap in sample.differences]
            apart += [gap for side in whole for gap in processes.twins(side, metric)]
            neither = np.zeros(len(lots), dtype=bool)  # both sides were alike in that
            with np.errstate(invalid="ignore", divide="ignore"):
                error = _deviation(ratios) / lots**0.5
            more = neither, neither, samples, apart, passes
            return cls(names, found, ratios, error, lots - 1.0, *more)
        (first, own), (second, theirs) = (_spread(side, metric, found.shapes) for side in sides)
        bases, news = [s.base_passes for s in samples], [s.new_passes for s in samples]
        base_disturbed, new_disturbed = (
            _marked(side, found.shapes) | np.array([processes.disagree(levels) for levels in known])
            for side, known in zip(sides, (bases, news), strict=True)
        )
        once = np.array([len(levels) < 2 for levels in bases])
        base_disturbed |= once & (found.shapes["ratio"].to_numpy() < np.exp(-processes.UNKNOWN))
        sound = ~(base_disturbed | new_disturbed)
        apart = [g for sample in itertools.compress(samples, sound) for g in sample.differences]
        more = base_disturbed, new_disturbed, samples, apart, passes
        return cls(names, found, ratios, np.hypot(first, second), own + theirs - 2.0, *more)

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
        known = np.isfinite(self.apart).sum() >= FEWEST_PAIRS
        beyond, within = np.abs(logs) > explained, np.abs(logs) <= least
        enough = self.rounds >= FEWEST_ROUNDS
        slower = (words == "slower") & beyond & ~self.new_disturbed
        faster = (words == "faster") & beyond & ~self.base_disturbed
        same = within & enough & known & (explained <= processes.UNKNOWN) & ~self.base_disturbed
        words = np.select([slower, faster, same], ["slower", "faster", "same"], "unsure")
        hidden = ~known | (by_process > processes.UNKNOWN)
        by_luck = np.where(within, hidden, np.abs(logs) <= by_process) | ~enough
        passes = np.where(by_luck, passes, np.nan)
        rounds = np.where(np.isfinite(passes), np.nan, self._needed(by_chance, least))
        either = self.base_disturbed, self.new_disturbed
        sides = np.select([np.logical_and(*either), *either], ["both", "base", "new"], "")
        times = shapes["a_s"], shapes["b_s"], shapes["ratio"]
        more = explained if known else explained + np.nan, words, rounds, passes, sides
        columns = zip(_sizes(shapes), *times, *more, strict=True)
        return [self._entry(Shape(*at).label, *rest) for at, *rest in columns]

    def _processes(self, least: float, chance: float) -> tuple[Numbers, Numbers]:
        """What processes explain at each shape; and the passes after which luck would not.

        One process may be as much slower than another as any two lie apart, and one run than
        another as the half of the shapes that moved least. Of many processes that are all on one
        side, or whose middle has not moved, only the mean is in doubt.
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
            if sample.count >= enough and (sample.separate or abs(self.logs[n]) <= least):
                quantile = float(_quantile(np.array([sample.freedom]), chance)[0])
                limits[n] = min(one, quantile * sample.error)
        return limits, passes

    def row(self, threshold: float, chance: float, words: set[str]) -> list[Entry]:
        """The verdict over all shapes, where they are enough to know how far it may be off.

        `words` are the verdicts at the shapes. Those that were disturbed do not count, unless most
        of them were.
        """
        sound = ~(self.base_disturbed | self.new_disturbed)
        disturbed = bool(sound.mean() < 0.5)
        used = sound | disturbed
        logs, least = self.logs[used], np.log1p(threshold)
        if len(logs) < FEWEST_SHAPES:
            return []
        mean, error = float(logs.mean()), float(logs.std(ddof=1)) / len(logs) ** 0.5
        explained = float(_quantile(np.array([len(logs) - 1.0]), chance)[0]) * error
        if np.isfinite(self.error).any():
            quantile = float(_quantile(np.array([np.nanmedian(self.freedom)]), chance)[0])
            explained = max(explained, quantile * COMMON * float(np.nanmedian(self.error)))
        word, rounds = "unsure", np.nan
        if words in ({"slower"}, {"faster"}):
            (word,) = words
        elif abs(mean) > max(least, explained) and not disturbed:
            word = "slower" if mean > 0 else "faster"
        elif abs(mean) > least:
            rounds = _more(float(np.median(self.rounds)), explained / abs(mean))
        elif explained <= processes.UNKNOWN and not disturbed:
            word = "same"
        a_s, b_s = (
            float(np.exp(np.log(self.found.shapes[s][used]).mean())) for s in ("a_s", "b_s")
        )
        side = "base" if self.base_disturbed.mean() > self.new_disturbed.mean() else "new"
        side = side if disturbed else ""
        return [
            self._entry(ALL, a_s, b_s, float(np.exp(mean)), explained, word, rounds, np.nan, side)
        ]

    def _needed(self, by_chance: Numbers, least: float) -> list[float]:
        """How many rounds would settle each shape, as an error shrinks with their square root."""
        lots, size = np.isfinite(self.ratios).sum(axis=1), np.abs(self.logs)
        limit = np.fmax(by_chance, least)
        with np.errstate(invalid="ignore", divide="ignore"):
            error = SURE * _deviation(self.ratios) / lots**0.5
            share = np.where(size <= limit, limit / size, error / (size - limit))
            share = np.where(size <= least, by_chance / processes.UNKNOWN, share)
        return [_more(float(n), float(part)) for n, part in zip(self.rounds, share, strict=True)]

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
        disturbed: str,
    ) -> Entry:
        times = {"shape": shape, "what": TIME, "base": base, "new": new, "ratio": ratio}
        told = {"noise": float(np.expm1(explains)), "verdict": str(verdict)}
        wanted = verdict == "unsure" and not disturbed
        told |= {"rounds": rounds, "passes": passes} if wanted else {}
        return {**self.names, **times, **told, "disturbed": disturbed}


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


def _marked(side: pd.DataFrame, shapes: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """The shapes at which a neighbour was there all the time."""
    warned = [any(text.startswith(DISTURBED) for text in own) for own in side["warnings"]]
    places = set(_sizes(side[warned]))
    return np.array([sizes in places for sizes in _sizes(shapes)], dtype=bool)


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
