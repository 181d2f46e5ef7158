"""The times of a row and of its base: how far chance and luck may move them, and what is slower."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from lstm_bench.analysis import noise
from lstm_bench.analysis.comparison import Comparison, compare
from lstm_bench.analysis.intervals import FEWEST_SHAPES
from lstm_bench.analysis.noise import FEWEST_PAIRS, METRICS, Floors, Numbers, by_round
from lstm_bench.features.gate import processes
from lstm_bench.features.gate.processes import Sample
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import FEWEST_ROUNDS, Shape

COMMON = 0.5  # share of a cell's change from run to run that may move its row: as in shipped runs
SURE = 3.0  # standard errors
TENTH = 1.2816  # standard deviations from the middle to the tenth that is furthest out
DISTURBED = "disturbed: other processes"  # a warning that a neighbour was there all the time
ALL = "all"  # the shape of a verdict on a whole row
TIME = "time"

Entry = dict[str, Any]
Flags = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class RowTimes:
    """The times of a row beside those of its base, shape by shape."""

    names: dict[str, str]
    pair: Comparison
    error: Numbers  # standard error of the logarithm of each ratio
    freedom: Numbers  # the values that the error is known from, less what they were used for
    disturbed: tuple[Flags, Flags]  # shapes at which the base's, the new side's time is in doubt
    samples: list[Sample]  # of each shape, process by process
    apart: list[float]  # differences of two processes of the same cell
    passes: int  # of the side that has fewer

    @classmethod
    def from_sides(
        cls,
        names: dict[str, str],
        sides: tuple[pd.DataFrame, pd.DataFrame],
        in_turns: bool,
        floors: Sequence[Floors],
        metric: str,
        across: tuple[str, ...],
    ) -> RowTimes:
        """Both sides at the shapes at which they have a time; `in_turns`: they are of one run."""
        first, second = (side[side["copy"] == 1] for side in sides)
        cells, other = (pd.concat([first, second]), None) if in_turns else (first, second)
        pair = compare(
            cells, names["against"], names["implementation"], metric, other, across, floors
        )
        sample = processes.in_turns if in_turns else processes.of_runs
        samples = sample(*sides, metric, list(pair.shapes[SHAPE].itertuples(False, None)))
        passes = min(side["pass_number"].nunique() for side in sides)
        if in_turns:
            apart = [gap for each in samples for gap in each.differences]
            apart += [gap for side in sides for gap in processes.twins(side, metric)]
            alike = np.zeros(len(samples), dtype=bool)  # a neighbour was there for both sides
            lots = np.isfinite(_in_lots(pair)).sum(axis=1)
            with np.errstate(divide="ignore"):
                error = _deviation(_in_lots(pair)) / lots**0.5
            return cls(names, pair, error, lots - 1.0, (alike, alike), samples, apart, passes)
        (error_a, count_a), (error_b, count_b) = (
            _spread(side, metric, pair.shapes) for side in (first, second)
        )
        base, new = (
            _marked(side, pair.shapes) | [processes.disagree(levels) for levels in known]
            for side, known in (
                (first, [each.base_passes for each in samples]),
                (second, [each.new_passes for each in samples]),
            )
        )
        once = np.array([len(each.base_passes) < 2 for each in samples])
        base |= once & (pair.shapes["ratio"].to_numpy() < np.exp(-processes.UNKNOWN))
        sound = itertools.compress(samples, ~(base | new))
        apart = [gap for each in sound for gap in each.differences]
        error, freedom = np.hypot(error_a, error_b), count_a + count_b - 2.0
        return cls(names, pair, error, freedom, (base, new), samples, apart, passes)

    @property
    def logs(self) -> Numbers:
        return np.asarray(np.log(self.pair.shapes["ratio"].to_numpy()))

    @property
    def rounds(self) -> npt.NDArray[np.intp]:
        """The number of rounds that both sides have, shape by shape."""
        ratios = noise.log_ratios(self.pair.a_rounds, self.pair.b_rounds)
        return np.asarray(np.isfinite(ratios).sum(axis=1))

    def cells(self, threshold: float, chance: float) -> list[Entry]:
        """The verdict at every shape."""
        pair, logs, least = self.pair, self.logs, np.log1p(threshold)
        base, new = self.disturbed
        ratio, floor = pair.shapes["ratio"].to_numpy(), np.full(len(logs), threshold)
        words = noise.verdicts(pair.a_rounds, pair.b_rounds, ratio, floor)
        by_chance = _quantile(self.freedom, chance) * self.error
        by_process, passes = self._processes(least, chance)
        explained = np.fmax(by_process, by_chance)
        known = np.isfinite(self.apart).sum() >= FEWEST_PAIRS
        beyond, within = np.abs(logs) > explained, np.abs(logs) <= least
        enough = self.rounds >= FEWEST_ROUNDS
        slower = (words == "slower") & beyond & ~new
        faster = (words == "faster") & beyond & ~base
        same = within & enough & known & (explained <= processes.UNKNOWN) & ~base
        words = np.select([slower, faster, same], ["slower", "faster", "same"], "unsure")
        hidden = ~known | (by_process > processes.UNKNOWN)
        by_luck = np.where(within, hidden, np.abs(logs) <= by_process) | ~enough
        passes = np.where(by_luck, passes, np.nan)
        rounds = np.where(np.isfinite(passes), np.nan, self._rounds_needed(by_chance, least))
        open_ = (words == "unsure") & ~(base | new)
        labels = [Shape.from_row(at).label for at in pair.shapes[SHAPE].itertuples(False, None)]
        columns = {"base": pair.shapes["a_s"], "new": pair.shapes["b_s"], "ratio": ratio}
        columns |= {"noise": np.expm1(explained) if known else np.nan, "verdict": words}
        columns |= {"rounds": np.where(open_, rounds, np.nan)}
        columns |= {"passes": np.where(open_, passes, np.nan)}
        columns |= {"disturbed": np.select([base & new, base, new], ["both", "base", "new"], "")}
        records = pd.DataFrame({"shape": labels, "what": TIME, **columns}).to_dict("records")
        return [{**self.names, **record} for record in records]

    def _processes(self, least: float, chance: float) -> tuple[Numbers, Numbers]:
        """The difference that processes explain at each shape, and the passes that rule out luck.

        One process may be as much slower than another as any two lie apart, and one run than
        another as the half of the shapes that moved least. Of many processes that are all on one
        side, or whose middle has not moved, only the mean is in doubt.
        """
        limit = processes.explained(self.apart, chance)
        if not self.pair.in_turns and len(self.logs) >= FEWEST_SHAPES:
            quantile = float(_quantile(len(self.logs) - 1.0, chance))
            moved = quantile * noise.MAD * float(np.median(np.abs(self.logs)))
            limit = max(limit, min(moved, processes.UNKNOWN))
        enough = next(
            count
            for count in itertools.count(1)
            if processes.by_luck(self.apart, least, count) <= chance
        )
        limits, passes = np.full(len(self.samples), limit), np.full(len(self.samples), np.nan)
        for n, sample in enumerate(self.samples):
            if sample.count:
                each = sample.count / self.passes
                passes[n] = max(np.ceil(enough / each), self.passes + 1)
            if sample.count >= enough and (sample.separate or abs(self.logs[n]) <= least):
                quantile = float(_quantile(sample.freedom, chance))
                limits[n] = min(limit, quantile * sample.error)
        return limits, passes

    def row(self, threshold: float, chance: float, words: set[str]) -> list[Entry]:
        """The verdict over all shapes, where they are enough to know how far it may be off.

        `words` are the verdicts at the shapes. Those that were disturbed do not count, unless most
        of them were.
        """
        base, new = self.disturbed
        disturbed = bool((base | new).mean() > 0.5)
        used = ~(base | new) | disturbed
        logs, least = self.logs[used], np.log1p(threshold)
        if len(logs) < FEWEST_SHAPES:
            return []
        mean, error = float(logs.mean()), float(logs.std(ddof=1)) / len(logs) ** 0.5
        explained = float(_quantile(len(logs) - 1.0, chance)) * error
        if np.isfinite(self.error).any():
            quantile = float(_quantile(np.nanmedian(self.freedom), chance))
            explained = max(explained, quantile * COMMON * float(np.nanmedian(self.error)))
        word, rounds = "unsure", np.nan
        if words in ({"slower"}, {"faster"}):
            (word,) = words
        elif abs(mean) > max(least, explained) and not disturbed:
            word = "slower" if mean > 0 else "faster"
        elif abs(mean) > least and not disturbed:
            rounds = float(_more(np.median(self.rounds), explained / abs(mean)))
        elif explained <= processes.UNKNOWN and not disturbed:
            word = "same"
        a_s, b_s = (np.exp(np.log(self.pair.shapes[s][used]).mean()) for s in ("a_s", "b_s"))
        side = ("base" if base.mean() > new.mean() else "new") if disturbed else ""
        times = {"base": float(a_s), "new": float(b_s), "ratio": float(np.exp(mean))}
        verdict = {"noise": float(np.expm1(explained)), "verdict": word, "rounds": rounds}
        return [{**self.names, "shape": ALL, "what": TIME, **times, **verdict, "disturbed": side}]

    def _rounds_needed(self, by_chance: Numbers, least: float) -> Numbers:
        """How many rounds would settle each shape, as an error shrinks with their square root."""
        lots, size = _in_lots(self.pair), np.abs(self.logs)
        limit = np.fmax(by_chance, least)
        with np.errstate(invalid="ignore", divide="ignore"):
            error = SURE * _deviation(lots) / np.isfinite(lots).sum(axis=1) ** 0.5
            share = np.where(size <= limit, limit / size, error / (size - limit))
            share = np.where(size <= least, by_chance / processes.UNKNOWN, share)
        return _more(self.rounds, share)


def _more(rounds: npt.ArrayLike, share: npt.ArrayLike) -> Numbers:
    """Rounds after which an error is so many times smaller; at least one more."""
    rounds, share = np.asarray(rounds, dtype=float), np.asarray(share, dtype=float)
    more = np.maximum(np.ceil(rounds * share**2), np.maximum(rounds + 1, FEWEST_ROUNDS))
    return np.where(np.isfinite(share), more, np.nan)


def _quantile(freedom: npt.ArrayLike, chance: float) -> Numbers:
    """How many standard deviations are exceeded by chance so rarely, by Student's distribution."""
    from scipy.special import stdtrit  # here, as loading it takes a while

    return np.asarray(stdtrit(np.maximum(freedom, 1.0), 1 - chance))


def _in_lots(pair: Comparison) -> Numbers:
    """The logarithms of new over base, in lots of neighbouring rounds, one row per shape."""
    return noise.in_lots(noise.log_ratios(pair.a_rounds, pair.b_rounds))


def _deviation(values: Numbers) -> Numbers:
    """Each row's standard deviation; NaN with fewer than two values."""
    return np.asarray(pd.DataFrame(values).std(axis=1).to_numpy())


def _spread(side: pd.DataFrame, metric: str, shapes: pd.DataFrame) -> tuple[Numbers, Numbers]:
    """How far chance may move each shape, as its rounds lie apart, and how many rounds there are.

    The tenth of them that is furthest out, either way, does not count. Of several passes each is
    known by as much; their median is off by less.
    """
    logs = pd.DataFrame(np.log(by_round(list(side[METRICS[metric][1]]))).T)
    low, high = logs.quantile([0.1, 0.9]).to_numpy()
    own = side[SHAPE].assign(error=(high - low) / 2 / TENTH, count=logs.count().to_numpy())
    passes = own.groupby(SHAPE)
    error, count = passes["error"].mean() / passes.size() ** 0.5, passes["count"].sum()
    places = pd.MultiIndex.from_frame(shapes[SHAPE])
    return error.reindex(places).to_numpy(), count.reindex(places).to_numpy(dtype=float)


def _marked(side: pd.DataFrame, shapes: pd.DataFrame) -> Flags:
    """The shapes at which a neighbour was there all the time."""
    warned = [any(text.startswith(DISTURBED) for text in own) for own in side["warnings"]]
    places = pd.MultiIndex.from_frame(side.loc[warned, SHAPE])
    return np.asarray(pd.MultiIndex.from_frame(shapes[SHAPE]).isin(places))
