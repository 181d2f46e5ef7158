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
FEW_CALLS = 3  # in a block: of so few the first weighs much


@dataclass(frozen=True)
class Pair:
    """One cell that was measured twice in turns."""

    name: str
    shape: Shape
    cut: bool  # short: stopped before it was done
    calls: tuple[float, float]  # in a block of either side
    change: Numbers  # of the second, round by round

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
    def alike(self) -> bool:
        """Whether both sides were measured in the same way: of few calls the first weighs much."""
        return self.calls[0] == self.calls[1] or min(self.calls) > FEW_CALLS

    def apart(self, rounds: int) -> Numbers:
        """How far its stretches of so many rounds are off."""
        stretches = self.change[: len(self.change) // rounds * rounds].reshape(-1, rounds)
        return np.asarray(np.abs(np.median(stretches, axis=1)))

    def told(self) -> str:
        halves = np.array_split(self.change, 2)
        first, second = (percent(float(np.median(half))) for half in halves)
        unlike = "; with {:g} calls in a block against {:g}".format(*self.calls)
        return (
            f"{code(self.name)} at {self.shape.label} by {percent(self.whole)}"
            f" ({first} in the first half of its {len(self.change):,} rounds, {second} in the"
            f" second{'' if self.alike else unlike})"
        )


def body(one: Subject) -> list[str]:
    """What more rounds bring, and which pairs stay apart whatever their rounds."""
    found = pairs(one.all_records)
    if not found:
        return []
    sampling = one.run.plan.sampling
    shapes, cut = len({pair.shape for pair in found}), sum(pair.cut for pair in found)
    rows = [_row(str(n), own, n) for n in STEPS if (own := [p for p in found if p.rounds >= n])]
    rows.append(_row("all", found))
    far = sorted((pair for pair in found if not pair.close), key=lambda pair: -abs(pair.whole))
    return [
        "### How many rounds it takes",
        text(
            f"In {code(one.run.name)} every row was measured twice, at {shapes} of"
            f" {counted(len(one.run.plan.shapes), 'planned shape')}, until the median of each was"
            f" known to {percent(sampling.converged)}, for {sampling.cell_s:g} s of timed calls or"
            f" {sampling.max_rounds:,} rounds of {sampling.block_s * 1e3:g} ms at most.",
            f"{_share(found)} pairs over 100 us agree to {percent(CLOSE, 0)} with all of their"
            f" rounds; {percent(WANTED, 0)} should.",
            _unlike(found),
            f"{counted(cut, 'pair')} {'was' if cut == 1 else 'were'} cut short and"
            f" {'counts' if cut == 1 else 'count'} as far as measured."
            if cut
            else "",
        ),
        table(["rounds", "pairs", f"under {percent(CLOSE, 0)}", "median", "most"], rows),
        text(
            "Pairs: those that have so many rounds; one that is known soon has few. The rounds of"
            " each are cut into stretches of so many, and every pair counts once. Most: the largest"
            " difference of a pair, on average over its stretches.",
            f"Apart with all rounds: {listed(pair.told() for pair in far)}." if far else "",
        ),
    ]


def _unlike(found: Sequence[Pair]) -> str:
    """How many of them were not A/A pairs after all."""
    alike = [pair for pair in found if pair.alike]
    unlike = len(found) - len(alike)
    if not unlike:
        return ""
    rest = f"; of the others {_share(alike)} do" if alike else ""
    return (
        f"{counted(unlike, 'pair')} had not the same number of calls in the blocks of both sides,"
        f" so that more than noise may lie between them{rest}."
    )


def short(one: Subject) -> str:
    """In a few words, for who has just read of the pairs of the main run."""
    found = pairs(one.all_records)
    if not found:
        return ""
    most = max(pair.rounds for pair in found)
    return f"{_share(found)} do in {code(one.run.name)}, after up to {most:,} rounds"


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
            calls = _calls(first), _calls(second)
            found.append(Pair(second.implementation, second.shape, cut, calls, change))
    return sorted(found, key=lambda pair: (pair.name, pair.shape.label))


def _key(record: Record, copy: int) -> tuple[str, Shape, int, str, int]:
    return record.implementation, record.shape, record.pass_number, record.group, copy


def _calls(record: Record) -> float:
    return round(record.calls / max(record.rounds, 1), 1)


def _share(found: Sequence[Pair]) -> str:
    close = sum(pair.close for pair in found)
    return f"{close} of {len(found)} ({percent(close / len(found), 0)})"


def _row(title: str, found: Sequence[Pair], rounds: int | None = None) -> list[str]:
    apart = [pair.apart(rounds or pair.rounds) for pair in found]
    means = [float(np.mean(one)) for one in apart]
    close = float(np.mean([np.mean(one < CLOSE) for one in apart]))
    ends = [percent(float(np.median(means))), percent(max(means))]
    return [title, str(len(found)), percent(close, 0), *ends]
