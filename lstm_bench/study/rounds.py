"""How many rounds it takes until two measurements of one thing agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstm_bench import noise
from lstm_bench.model import Record, Shape
from lstm_bench.noise import Numbers
from lstm_bench.study.controls import CLOSE, LONG_S, WANTED
from lstm_bench.study.section import code, table, text
from lstm_bench.study.subject import Subject
from lstm_bench.units import counted, listed, percent

STEPS = (10, 25, 50, 100, 200)
SEED, SHUFFLES = 20211, 200
MANY = STEPS[-1]  # rounds of a pair that is not known soon


@dataclass(frozen=True)
class Pair:
    """One cell that was measured twice in turns."""

    name: str
    shape: Shape
    cut: bool  # short: stopped before it was done
    change: Numbers  # of the second, round by round
    medians: float  # of the second's median, over all of its rounds

    @property
    def rounds(self) -> int:
        return len(self.change)

    @property
    def whole(self) -> float:
        return float(np.median(self.change))

    @property
    def close(self) -> bool:
        return abs(self.whole) < CLOSE

    @property
    def close_by_medians(self) -> bool:
        return abs(self.medians) < CLOSE

    @property
    def lasting(self) -> bool:
        """Whether it is apart all along: in every lot of its rounds, by half of that at least."""
        lots = [np.median(lot) for lot in np.array_split(self.change, noise.LOTS) if len(lot)]
        return not self.close and bool(min(lots) > CLOSE / 2 or max(lots) < -CLOSE / 2)

    def apart(self, rounds: int) -> Numbers:
        """How far its stretches of so many rounds are off."""
        stretches = self.change[: len(self.change) // rounds * rounds].reshape(-1, rounds)
        return np.asarray(np.abs(np.median(stretches, axis=1)))

    def told(self) -> str:
        halves = np.array_split(self.change, 2)
        first, second = (percent(float(np.median(half))) for half in halves)
        return (
            f"{code(self.name)} at {self.shape.label} by {percent(self.whole)}"
            f" ({first} in the first half of its {len(self.change):,} rounds, {second} in the"
            " second)"
        )


def body(one: Subject) -> list[str]:
    """What more rounds bring, and which pairs stay apart whatever their rounds."""
    found = pairs(one.all_records)
    if not found:
        return []
    sampling = one.run.plan.sampling
    shapes, cut = len({pair.shape for pair in found}), sum(pair.cut for pair in found)
    many = [pair for pair in found if pair.rounds >= MANY]
    soon = [pair for pair in found if pair.rounds < MANY]
    rows = [_row(str(n), many, n) for n in STEPS] + [_row("all", many)] if many else []
    medians = sum(pair.close_by_medians for pair in found)
    far = sorted((pair for pair in found if not pair.close), key=lambda pair: -abs(pair.whole))
    return [
        "### How many rounds it takes",
        text(
            f"In {code(one.run.name)} every row was measured twice, at {shapes} of"
            f" {counted(len(one.run.plan.shapes), 'planned shape')}, until the median of each was"
            f" known to {percent(sampling.converged)}, for {sampling.cell_s:g} s of timed calls or"
            f" {sampling.max_rounds:,} rounds of {sampling.block_s * 1e3:g} ms at most."
            + (f" Each was built {sampling.builds} times." if sampling.builds > 1 else ""),
            _hurried(one),
            f"{_share(found)} pairs over 100 us agree to {percent(CLOSE, 0)} with all of their"
            f" rounds ({_likely(found)} of all such pairs, by that), round held against round; by"
            f" the two medians alone {medians} would. {percent(WANTED, 0)} should.",
            f"{counted(cut, 'pair')} {'was' if cut == 1 else 'were'} cut short and"
            f" {'counts' if cut == 1 else 'count'} as far as measured."
            if cut
            else "",
        ),
        *(
            [table(["rounds", f"under {percent(CLOSE, 0)}", "median", "most"], rows)]
            if rows
            else []
        ),
        text(
            f"Of the {counted(len(many), 'pair')} with {MANY} rounds or more, each cut into"
            " stretches of so many; every pair counts once, with what its stretches are"
            " off on average. Median and most: over the pairs."
            if many
            else "",
            f"Of {counted(len(soon), 'other pair')}, known sooner, {_share(soon)} agree."
            if soon
            else "",
            f"Apart with all rounds: {listed(pair.told() for pair in far)}." if far else "",
            _lasting(pairs(one.all_records, shortest_s=0.0)),
            _builds(one.all_records),
        ),
    ]


def _hurried(one: Subject) -> str:
    """How many cells were ended before any of these, which only a budget does."""
    most = one.run.plan.sampling.max_rounds
    own = [r for r in one.all_records if r.status == "ok"]
    ended = sum(
        r.rounds < most
        and {"not converged", "capped"} & {w.split(":")[0] for w in r.warnings} == {"not converged"}
        for r in own
    )
    return f"{ended} of {len(own)} cells were ended sooner by {code('--budget')}." if ended else ""


def _lasting(found: Sequence[Pair]) -> str:
    """Which pairs are apart from their first rounds to their last."""
    own = [pair for pair in found if pair.lasting]
    if not own:
        return ""
    told = listed(
        f"{code(pair.name)} at {pair.shape.label} ({percent(pair.whole)})"
        for pair in sorted(own, key=lambda pair: -abs(pair.whole))
    )
    return (
        f"Of all {counted(len(found), 'pair')}, short calls included, {len(own)}"
        f" {'is' if len(own) == 1 else 'are'} apart by more than {percent(CLOSE, 0)}, and the same"
        f" way by more than {percent(CLOSE / 2)} in each of {noise.LOTS} lots of"
        f" neighbouring rounds: {told}. They are apart for as long as they were measured. Builds"
        " of one thing lie elsewhere in memory; whether that is why was not tried."
    )


def _builds(records: Sequence[Record]) -> str:
    """How far the builds of one cell are apart, whose rounds were taken in turns.

    The slowest of several medians is always slower than the fastest. So the rounds of a turn are
    also shuffled among the builds, which leaves what is noise alone.
    """
    rng = np.random.default_rng(SEED)
    found = []
    for record in records:
        turns = len(record.round_latency_s) // record.builds
        if record.builds > 1 and record.status == "ok" and turns:
            rounds = np.array(record.round_latency_s[: turns * record.builds])
            own = rounds.reshape(turns, record.builds)
            mixed = rng.permuted(np.broadcast_to(own, (SHUFFLES, *own.shape)), axis=2)
            found.append((_slowest(own), _slowest(mixed), record))
    if not found:
        return ""
    usual = percent(float(np.median([own for own, _, _ in found])))
    chance = percent(float(np.median([np.median(mixed) for _, mixed, _ in found])))
    far = [(float(own), record) for own, mixed, record in found if (mixed < own).all()]
    told = (
        listed(
            f"{code(record.implementation)}{' (twin)' if record.copy > 1 else ''} at"
            f" {record.shape.label} ({percent(own)})"
            for own, record in sorted(far, key=lambda one: -one[0])
        )
        if far
        else "none"
    )
    return (
        f"Of {counted(len(found), 'cell')} that were built several times, the slowest build is"
        f" {usual} slower than the fastest in the median, by the medians of their rounds; with the"
        f" rounds of a turn shuffled among the builds it is {chance}, so much is noise. Further"
        f" apart than in all of {SHUFFLES} shuffles: {told}."
    )


def _slowest(rounds: Numbers) -> Numbers:
    """By how much the slowest build is slower than the fastest; the last two axes: turn, build."""
    medians = np.median(rounds, axis=-2)
    return np.asarray(medians.max(axis=-1) / medians.min(axis=-1) - 1)


def short(one: Subject) -> str:
    """In a few words, for who has just read of the pairs of the main run."""
    found = pairs(one.all_records)
    if not found:
        return ""
    most = max(pair.rounds for pair in found)
    return f"{_share(found)} do in {code(one.run.name)}, after up to {most:,} rounds"


def pairs(records: Sequence[Record], shortest_s: float = LONG_S) -> list[Pair]:
    """The A/A pairs of calls that take so long, those that were cut short among them."""
    known = {_key(r, r.copy): r for r in records if r.status in ("ok", "interrupted")}
    found = []
    for second in known.values():
        first = known.get(_key(second, second.copy - 1)) if second.copy % 2 == 0 else None
        if first is None or (first.latency_s or 0.0) < shortest_s:
            continue
        both = zip(first.round_latency_s, second.round_latency_s, strict=False)
        change = np.array([b / a - 1 for a, b in both if a > 0])
        if len(change):
            cut = "interrupted" in (first.status, second.status)
            medians = (second.latency_s or 0.0) / (first.latency_s or 1.0) - 1
            found.append(Pair(second.implementation, second.shape, cut, change, medians))
    return sorted(found, key=lambda pair: (pair.name, pair.shape.label))


def _key(record: Record, copy: int) -> tuple[str, Shape, int, str, int]:
    return record.implementation, record.shape, record.pass_number, record.group, copy


def _likely(found: Sequence[Pair]) -> str:
    """Between which shares of pairs like these should agree: Wilson's 95% interval."""
    n, z = len(found), 1.96
    share = sum(pair.close for pair in found) / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return f"{percent(middle - half, 0)} to {percent(middle + half, 0)}"


def _share(found: Sequence[Pair]) -> str:
    close = sum(pair.close for pair in found)
    return f"{close} of {len(found)} ({percent(close / len(found), 0)})"


def _row(title: str, found: Sequence[Pair], rounds: int | None = None) -> list[str]:
    """What pairs are off after so many rounds, or after all of theirs."""
    apart = [pair.apart(rounds or pair.rounds) for pair in found]
    means = [float(np.mean(one)) for one in apart]
    close = float(np.mean([np.mean(one < CLOSE) for one in apart]))
    ends = [percent(float(np.median(means))), percent(max(means))]
    return [title, percent(close, 0), *ends]
