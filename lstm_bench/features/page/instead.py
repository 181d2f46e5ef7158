"""The first screen of a page: what most users run, and what to run instead, by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lstm_bench.analysis import summary
from lstm_bench.analysis.choice import CLASSES, allowed, settled
from lstm_bench.analysis.noise import floor_at
from lstm_bench.analysis.results import REFERENCES, Run
from lstm_bench.frameworks import RENAMED
from lstm_bench.model.units import counted, factor, listed, seconds
from lstm_bench.report.fastest import (
    Compared,
    base_of,
    contestants,
    firsts,
    groups_of,
    ranked,
    size_label,
)

OURS = "lstm-kernels"  # the framework of our layer


@dataclass(frozen=True)
class Bar:
    """A row in the picture of some shapes."""

    implementation: str
    role: str
    seconds: float  # geometric mean over the shapes of the picture
    gain: float  # over the first bar


@dataclass(frozen=True)
class Card:
    """Advice for some shapes, and its picture: first what users run."""

    at: str  # such as `batch 16`; empty: all
    sentence: str
    over: str  # the shapes of the picture
    bars: list[Bar]


class Instead:
    """Holds what most users run against what is faster and no less exact, by a size."""

    def __init__(self, run: Run):
        self.run, self.times = run, summary.times(run.cells)
        self.now, self.plain, self.accuracy = "", "", summary.ANY
        self.cards: list[Card] = []
        ours, theirs = contestants(run, self.times, self.times.names)
        if not ours:
            return
        rows = self.times.cells.drop_duplicates("implementation").set_index("implementation")
        self.classes = {n: summary.accuracy(rows["precision"][n]) for n in self.times.names}
        frameworks = {row.name: row.framework for row in run.plan.implementations}
        self.now = base_of(run, ours)
        if frameworks.get(self.now) == "pytorch":
            self.plain = "plain PyTorch"
        elif self.now in run.defaults:
            self.plain = self.now
        if self.classes[self.now] in CLASSES:
            self.accuracy = self.classes[self.now]
        fine = allowed(self.accuracy)
        self.exact = [name for name in ours if self.classes[name] in fine]
        self.coarse = [name for name in ours if self.classes[name] not in fine]
        self.references = [name for name in theirs if self.classes[name] in fine]
        self.deployable = any(frameworks.get(name) not in REFERENCES for name in ours)
        self.compared = Compared(run, run.cells, "latency")
        self.won = summary.winners(self.times, run.floors("latency"), among=self.exact)
        axis, ranges = groups_of(self.times.shapes)
        batches = self.times.shapes["batch"]
        for at in ranges if axis else [(int(batches.min()), int(batches.max()))]:
            self._add(axis or "batch", at, f"{axis} {size_label(at)}" if axis else "")

    @property
    def title(self) -> str:
        """The title of the cards."""
        if not self.plain:
            return "What is the fastest"
        name = "" if self.plain == self.now else f" ({self.now})"
        return f"What to run instead of {self.plain}{name}"

    @property
    def note(self) -> str:
        """Explains the numbers of the cards, and where rows come from that no framework has."""
        exact = listed(allowed(self.accuracy), " or ")
        note = (
            f"Accuracy: {exact}. Latencies and factors: geometric means over these shapes. A C++"
            " reference shows what is possible and cannot be deployed."
        )
        planned = self.run.plan.implementations
        ours = {r.name for r in planned if r.framework == OURS or r.name in RENAMED}
        named = dict.fromkeys(bar.implementation for card in self.cards for bar in card.bars)
        if rows := [name for name in named if name in ours]:
            note += (
                f" {listed(rows)}: our drop-in. In a checkout: pip install ./lstm_kernels; then"
                " lstm_kernels.replace(model), see docs/how-to/use-the-kernel.md."
            )
        return note

    def _add(self, axis: str, at: tuple[int, int], label: str) -> None:
        inside = self.times.shapes[axis].between(*at).to_numpy()
        ranking = ranked(self.times, self.exact, inside)
        if not ranking:
            return
        users = bool(self.plain) and self.now in ranking
        first = self.now if users else ranking[0]
        others = [name for name in ranking if name != first]
        best = self._best(others, first, axis, at)
        roles = {first: "you run this" if users else "fastest"}
        roles |= {best: "run this"} if best else dict.fromkeys(others[:1], "next")
        main = list(roles)
        coarse = ranked(self.times, self.coarse, inside)
        less = next(self._faster(coarse, best or first, axis, at), "")
        roles |= {less: "less exact"} if less else {}
        roles |= dict.fromkeys(ranked(self.times, self.references, inside)[:1], "C++ reference")
        time = {name: self.times.seconds[:, self.times.names.index(name)] for name in roles}
        there = {name: inside & np.isfinite(own) for name, own in time.items()}
        over = np.logical_and.reduce([there[name] for name in main])
        over = over if over.any() else there[first]
        drawn = [name for name in roles if there[name][over].all()]
        mean = {name: float(np.exp(np.log(time[name][over]).mean())) for name in drawn}
        bars = [Bar(name, roles[name], mean[name], mean[first] / mean[name]) for name in drawn]
        shapes = counted(int(inside.sum()), "shape")
        shapes = shapes if over.sum() == inside.sum() else f"{int(over.sum())} of {shapes}"
        says = self._says(bars, best, others, axis, at)
        lost = summary.lacking(self.run.cells[self.run.cells[axis].between(*at)])
        named = [
            name for name in (self.now if self.plain else first, best or first) if name in lost
        ]
        says += "".join(f"; {name} {lost[name]}" for name in dict.fromkeys(named))
        self.cards.append(Card(label, f"{says}.", shapes, bars))

    def _says(
        self, bars: list[Bar], best: str, others: list[str], axis: str, at: tuple[int, int]
    ) -> str:
        """Says what to run at some shapes, and at how many of them that is the fastest."""
        first = bars[0]
        name, takes = first.implementation, seconds(first.seconds)
        place = self._place(best or name, axis, at)
        if first.role == "fastest":
            what = f"Run {name} at" if self.deployable else f"Nothing can be deployed; {name} takes"
            return f"{what} {takes}: {place}"
        now = f"You run {self.plain} at {takes}."
        if best:
            return f"{now} Run {best}: {factor(bars[1].gain)} faster, {place}"
        if not others:
            return f"{now} Nothing else as exact has a time"
        pair = self.compared(name, others[0])
        words = pair.group(axis, at).verdicts if pair else {}
        if words.get("faster"):
            sides = f"faster at {words['faster']} and slower at {words['slower']}"
            shapes = counted(sum(words.values()), "shape")
            return f"{now} It depends on the shape: {others[0]} is {sides} of {shapes}"
        if bars[1:] and words.get("unsure") and bars[1].gain > 1:
            return f"{now} Not decided: {others[0]} may be {factor(bars[1].gain)} faster"
        return f"{now} Keep it: nothing as exact is faster, {place}"

    def _place(self, name: str, axis: str, at: tuple[int, int]) -> str:
        """`the fastest at 5 of 6 shapes, tied at 1`: of those that it has."""
        won = self.won[self.won[axis].between(*at)]
        has = self.times.shapes[axis].between(*at).to_numpy()
        has = has & np.isfinite(self.times.seconds[:, self.times.names.index(name)])
        close = won["verdict"].isin(("same", "unsure"))
        ties = int((close & ((won["fastest"] == name) | (won["next"] == name))).sum())
        first, shapes = firsts(won)[name], counted(int(has.sum()), "shape")
        if ties and not first:
            return f"tied for the fastest at {ties} of {shapes}"
        return f"the fastest at {first} of {shapes}" + (f", tied at {ties}" if ties else "")

    def _best(self, names: list[str], than: str, axis: str, at: tuple[int, int]) -> str:
        """The fastest of the rows that beat another, a tie settled as `advise` does; or empty."""
        faster = list(self._faster(names, than, axis, at))
        if not faster:
            return ""
        inside, floors = self.times.shapes[axis].between(*at).to_numpy(), self.run.floors("latency")
        own = np.log(self.times.seconds[inside, self.times.names.index(faster[0])])
        times = {faster[0]: float(np.exp(np.nanmean(own)))}
        for name in faster[1:]:
            if ratio := self.compared.ratio(faster[0], name, axis, at)[0]:
                times[name] = times[faster[0]] * ratio
        rows = [
            {"implementation": name, "accuracy": self.classes[name], "verdict": "faster"}
            | {"latency_s": time}
            for name, time in times.items()
        ]

        def margin(*pair: str) -> float:
            return float(max(floor_at(floors, [times[name] for name in pair], pair)))

        return str(settled(rows, self.now, margin)[0]["implementation"])

    def _faster(self, names: list[str], than: str, axis: str, at: tuple[int, int]) -> Iterator[str]:
        """The rows among these that are faster than one, beyond the noise."""
        for name in names:
            ratio, sure, _ = self.compared.ratio(than, name, axis, at)
            if ratio and sure and ratio < 1:
                yield name
