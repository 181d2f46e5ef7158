"""How many rounds it takes until two measurements of one thing agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstm_bench.model import Record, Shape
from lstm_bench.noise import Numbers
from lstm_bench.study.controls import CLOSE, LONG_S, WANTED
from lstm_bench.study.section import code, table, text
from lstm_bench.study.subject import Subject
from lstm_bench.units import counted, listed, percent

STEPS = (10, 25, 50, 100, 200, 400, 800)


@dataclass(frozen=True)
class Pair:
    """One cell that was measured twice in turns."""

    name: str
    shape: Shape
    cut: bool  # short: stopped before it was done
    change: Numbers  # of the second, round by round

    def apart(self, rounds: int) -> Numbers:
        """How far its stretches of so many rounds are off; it as a whole, where it has fewer."""
        size = min(rounds, len(self.change))
        stretches = self.change[: len(self.change) // size * size].reshape(-1, size)
        return np.asarray(np.abs(np.median(stretches, axis=1)))

    @property
    def whole(self) -> float:
        return float(np.median(self.change))

    def told(self) -> str:
        halves = np.array_split(self.change, 2)
        first, second = (percent(float(np.median(half))) for half in halves)
        return (
            f"{code(self.name)} at {self.shape.label} by {percent(self.whole)}"
            f" ({first} in the first half of its {len(self.change):,} rounds, {second} then)"
        )


def body(one: Subject) -> list[str]:
    """What more rounds bring, and which pairs stay apart whatever their rounds."""
    found = pairs(one.all_records)
    if not found:
        return []
    sampling = one.run.plan.sampling
    shapes = len({pair.shape for pair in found})
    cut, close = sum(pair.cut for pair in found), _close(found)
    steps = [n for n in STEPS if any(len(pair.change) > n for pair in found)]
    rows = [[str(n), *_row(found, n)] for n in steps]
    rows.append(["all", *_row(found, max(len(pair.change) for pair in found))])
    far = sorted((p for p in found if abs(p.whole) >= CLOSE), key=lambda p: -abs(p.whole))
    return [
        "### How many rounds it takes",
        text(
            f"In {code(one.run.name)} every row was measured twice, at {shapes} of"
            f" {counted(len(one.run.plan.shapes), 'planned shape')}, for {one.sampled} at most or"
            f" until the median of each was known to {percent(sampling.converged)}.",
            f"With all rounds {close} of the {counted(len(found), 'pair')} over 100 us agree to"
            f" {percent(CLOSE, 0)}, {percent(close / len(found), 0)}; {percent(WANTED, 0)} should.",
            f"{counted(cut, 'pair')} {'was' if cut == 1 else 'were'} cut short and"
            f" {'counts' if cut == 1 else 'count'} as far as measured."
            if cut
            else "",
        ),
        table(["rounds", f"under {percent(CLOSE, 0)}", "median", "most"], rows),
        text(
            "Every pair counts once: its rounds are cut into stretches of so many; one that was"
            " done sooner counts as it is. Most: the largest difference of a pair, on average over"
            " its stretches.",
            f"Still apart after all of them: {listed(pair.told() for pair in far)}." if far else "",
        ),
    ]


def short(one: Subject) -> str:
    """In a few words, for who has just read of the pairs of the main run."""
    found, most = pairs(one.all_records), one.run.plan.sampling.max_rounds
    if not found:
        return ""
    return (
        f"{_close(found)} of {len(found)} do in {code(one.run.name)}, after up to {most:,} rounds"
    )


def pairs(records: Sequence[Record]) -> list[Pair]:
    """The A/A pairs of longer calls, those that were cut short among them."""
    known = {_key(r, r.copy): r for r in records if r.status in ("ok", "interrupted")}
    found = []
    for second in known.values():
        first = known.get(_key(second, second.copy - 1)) if second.copy % 2 == 0 else None
        if first is None or (first.latency_s or 0.0) < LONG_S:
            continue
        both = zip(first.round_latency_s, second.round_latency_s, strict=False)
        change = np.array([b / a - 1 for a, b in both if a > 0])
        if len(change):
            cut = "interrupted" in (first.status, second.status)
            found.append(Pair(second.implementation, second.shape, cut, change))
    return sorted(found, key=lambda pair: (pair.name, pair.shape.label))


def _key(record: Record, copy: int) -> tuple[str, Shape, int, str, int]:
    return record.implementation, record.shape, record.pass_number, record.group, copy


def _close(found: Sequence[Pair]) -> int:
    return sum(abs(pair.whole) < CLOSE for pair in found)


def _row(found: Sequence[Pair], rounds: int) -> list[str]:
    apart = [pair.apart(rounds) for pair in found]
    means = [float(np.mean(one)) for one in apart]
    close = float(np.mean([np.mean(one < CLOSE) for one in apart]))
    return [percent(close, 0), percent(float(np.median(means))), percent(max(means))]
