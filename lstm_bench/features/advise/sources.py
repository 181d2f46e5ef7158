"""The runs that can say what to run at a shape, the best of them first."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from lstm_bench.analysis import kinds, results, summary
from lstm_bench.analysis.choice import rank
from lstm_bench.analysis.noise import floor_at
from lstm_bench.analysis.results import REFERENCES, Run
from lstm_bench.features.advise import estimate
from lstm_bench.frameworks import IMPLEMENTATIONS, find, framework_of
from lstm_bench.model.errors import LstmBenchError
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.suggest import guess
from lstm_bench.model.types import Implementation, Shape
from lstm_bench.model.units import counted, listed
from lstm_bench.report.fastest import base_of
from lstm_bench.runs import nodes, store
from lstm_bench.runs.nodes import Kind
from lstm_bench.runs.run_folders import SHIPPED, START, find_run, newest, split_part

DEFAULT = Path("results")
QUIET = 2  # times the noise of the quietest run: up to there more rows are worth more
MOST_RUNS = 50  # runs read for an answer
#: Why a run goes before the next, in the order of `ranked`.
REASONS = (
    *("it has rows that can be deployed", "it is of this machine", "it has what you run now"),
    *("it has the shape itself", "it has newer versions", "it has the fastest row"),
    *("it has less noise", "it has more rows", "it is newer"),
)


class NoAnswer(LstmBenchError):
    """No run says anything of a shape; to measure these rows would."""

    def __init__(self, text: str, rows: Sequence[str] = ()):
        super().__init__(text)
        self.rows = rows


@dataclass(frozen=True)
class Source:
    """The times of a run at a shape; of one outside of its sizes, those at the nearest."""

    run: Run
    times: summary.Times
    shape: Shape
    near: tuple[Shape, ...]  # the shape itself, or those that its times are worked out from
    outside: str  # the size that the run does not reach
    seconds: dict[str, float]  # of every row that has a time there
    rows: list[str]  # those that can be deployed
    now: str  # what runs now
    lacks: str  # the row that a user gets without any setting, if that is another

    @property
    def measured(self) -> bool:
        return self.near == (self.shape,)

    @property
    def device(self) -> str:
        """The GPU by its name, or the processor and its threads."""
        return nodes.kind_of(self.run.manifest["machine"], self.run.plan.settings).brief

    @functools.cached_property
    def precisions(self) -> dict[str, str]:
        return precisions_of(self.times)

    @functools.cached_property
    def accuracy(self) -> dict[str, str]:
        return {name: summary.accuracy(each) for name, each in self.precisions.items()}

    @functools.cached_property
    def planned(self) -> dict[str, Implementation]:
        return {row.name: row for row in self.run.plan.implementations}

    @property
    def real(self) -> bool:
        return not all(_is_fake(self.planned.get(name)) for name in self.rows)

    def floor(self, *names: str) -> float:
        """The widest noise floor of these rows there."""
        times = [self.seconds[name] for name in names]
        return float(max(floor_at(self.run.floors("latency"), times, names)))

    @functools.cached_property
    def excess(self) -> float:
        """The noise by which what runs now is slower than the same code in finer arithmetic."""
        mine, now = self.planned.get(self.now), self.seconds[self.now]
        if mine is None:
            return 0.0
        coarseness, code = rank(self.accuracy[self.now]), (mine.home, mine.options, mine.threads)
        rows = (row for name in self.rows if (row := self.planned.get(name)))
        finer = (row for row in rows if rank(summary.accuracy(row.precision)) < coarseness)
        alike = [row.name for row in finer if (row.home, row.options, row.threads) == code]
        return now / min(map(self.seconds.__getitem__, alike), default=now) - 1

    @functools.cached_property
    def gains(self) -> dict[str, float]:
        """How many times faster than now each row is that is no less exact."""
        coarsest = rank(self.accuracy[self.now])
        rows = [name for name in self.rows if rank(self.accuracy[name]) <= coarsest]
        return {name: self.seconds[self.now] / self.seconds[name] for name in rows}

    @functools.cached_property
    def noise(self) -> float:
        """The error of the times that decide."""
        fastest = max(self.gains, key=self.gains.__getitem__, default=self.now)
        return max(self.floor(self.now, fastest), self.excess)

    def lacks_the_fastest(self, others: Iterable[Source]) -> bool:
        """Return whether another run has a row that this lacks, faster beyond the noise."""
        best = max(self.gains.values(), default=1.0) * (1 + self.noise)
        return any(
            gain > best * (1 + other.noise)
            for other in others
            if other.now == self.now
            for name, gain in other.gains.items()
            if name not in self.seconds
        )

    @functools.cached_property
    def versions(self) -> dict[str, list[list[int]]]:
        """The versions of the framework of each row, as numbers that can be compared."""
        known = self.run.versions
        return {
            name: [
                list(map(int, re.findall(r"\d+", known[name].get(part, "").partition("+")[0])))
                for part in framework_of(self.planned[name]).distributions
            ]
            for name in self.rows
            if name in known and name in self.planned
        }


def precisions_of(times: summary.Times) -> dict[str, str]:
    """The precision of each row, as it ran."""
    facts = times.cells.drop_duplicates("implementation")
    return dict(zip(facts["implementation"], facts["precision"], strict=True))


def _is_fake(row: Implementation | None) -> bool:
    return row is not None and row.framework.split("-")[0] == "fake"


def read(run: Run, shape: Shape, now: str | None = None) -> Source:
    """Read the times of a run at a shape; refuse a run without one that can be deployed."""
    run = alike(run, shape)
    times, able = summary.times(run.cells), deployable(run)
    device = run.plan.settings.device
    if not len(times.shapes):
        raise NoAnswer(
            f"{run.name} has no times of such layers: there is nothing to advise from; measure"
            f" them: `{command(run, shape, rows := measurable(able, device))}`",
            rows,
        )
    outside, (places, _) = estimate.outside(times.shapes, shape), estimate.near(times.shapes, shape)
    near = tuple(Shape.from_row(times.shapes.loc[place, SHAPE]) for place in places)
    near = near[:1] if outside else near
    every = map(float, estimate.seconds_at(times, near[0] if outside else shape))
    known = dict(zip(times.names, every, strict=True))
    seconds = {n: known[n] for n in run.implementations if not math.isnan(known.get(n, math.nan))}
    rows = [name for name in able if name in seconds]
    if not rows:
        rows = measurable(able, device)
        raise NoAnswer(
            f"{run.name} has no time of anything that can be deployed at"
            f" {listed(each.label for each in near)}; measure it:"
            f" `{command(run, shape, rows)}`",
            rows,
        )
    if now and now not in seconds:
        has = guess(now, seconds) or f"; it has: {', '.join(seconds)}"
        raise LstmBenchError(f"--now: {run.name} has no time of {now!r} at {shape.label}{has}")
    base = now or base_of(run, rows)
    lacks = "" if now or base in run.defaults else _usual(run, base)
    return Source(run, times, shape, near, outside, seconds, rows, base, lacks)


def alike(run: Run, shape: Shape) -> Run:
    """The run with only the shapes that have the layers, directions and lengths of this one."""
    same = [run.cells[axis] == getattr(shape, axis) for axis in SHAPE[4:]]
    cells = run.cells[np.logical_and.reduce(same)]
    part = replace(run, cells=cells)
    vars(part)["left"] = run.left  # of the whole run
    return run if len(cells) == len(run.cells) else part


def _usual(run: Run, name: str) -> str:
    """The row that its framework runs without any setting; empty if there is none."""
    framework = next((row.framework for row in run.plan.implementations if row.name == name), "")
    rows = (row for row in IMPLEMENTATIONS.values() if row.framework == framework)
    device = run.plan.settings.device
    return next((row.name for row in rows if device in row.default_on), "")


def refusal(sources: Sequence[Source], elsewhere: str = "") -> NoAnswer:
    """The error for a shape outside of what these runs measured, with the command for it."""
    source = sources[0]
    run, shape = source.run, source.shape
    rows = measurable(deployable(run), run.plan.settings.device)
    others = sum(each.device == source.device for each in sources[1:])
    more = f"; {counted(others, 'other run')} of that device end before it too" if others else ""
    return NoAnswer(
        f"{shape.label} is outside of what {run.name} measured: {source.outside}{more}; nothing is"
        f" guessed there. Measure it: `{command(run, shape, rows)}`{elsewhere}",
        rows,
    )


def deployable(run: Run) -> list[str]:
    """The rows that do the whole work and that a program can use; fakes where all are."""
    planned = {row.name: row for row in run.plan.implementations}
    computes = dict(zip(run.cells["implementation"], run.cells["computes"], strict=True))
    rows = {name: planned.get(name) for name in run.implementations if computes[name] == "lstm"}
    able = [name for name, row in rows.items() if not row or row.framework not in REFERENCES]
    return [name for name in able if not _is_fake(rows[name])] or able


def measurable(names: Iterable[str], device: str) -> list[str]:
    """The rows among these that `lstm-bench grid` knows by name; if none, all that could win.

    It knows no row that a grid file scripts, and none of another version without an interpreter.
    """
    rows = []
    for name in names:
        with contextlib.suppress(LstmBenchError):
            rows.append(find(name, ""))
    able = [row.name for row in rows if not row.version and not _is_fake(row)]
    every = (row for row in IMPLEMENTATIONS.values() if row.framework not in REFERENCES)
    every = (row for row in every if device in row.devices and not _is_fake(row))
    return able or [row.name for row in every if row.precision in ("fp32", "tf32")]


def command(run: Run, shape: Shape, names: Iterable[str], *flags: str) -> str:
    """The command that measures these rows at a shape."""
    words = ["lstm-bench", "grid", "--shape", shape.label, "-i", ",".join(names)]
    return shlex.join([*words, "--device", run.plan.settings.device, *flags])


@dataclass(frozen=True)
class Search:
    """The runs of a device that have an answer for a shape."""

    sources: list[Source]  # the best first; behind those with an answer those that do not reach it
    asked: int = 0  # how many have an answer; none of one that the user chose
    why: str = ""  # the first goes before the second
    devices: tuple[str, ...] = ()  # others that have an answer
    note: str = ""
    asked_for: bool = True  # the device or the run, by the user

    @property
    def peers(self) -> list[Source]:
        """The other runs of the device of the first."""
        first, *others = self.sources
        return [source for source in others if source.device == first.device]


def search(
    folder: Path,
    shape: Shape,
    here: Kind,
    device: str | None = None,
    now: str | None = None,
    name: str | None = None,
) -> Search:
    """Ask all runs of a device, by default of this machine's kind, or the one of that name.

    Refuses if none has an answer. The project's own are asked where the default folder has none.
    """
    if name:
        name, part = split_part(folder, name)
        run = kinds.chosen(results.load(find_run(folder, name)), part)
        return Search([read(run, shape, now)])
    pools = [folder]
    if folder == DEFAULT and SHIPPED.resolve() != folder.resolve():
        pools.append(SHIPPED)
    able: list[Source] = []
    distant: list[Source] = []
    refused: list[LstmBenchError] = []
    others: dict[str, None] = {}
    note = ""
    for pool in pools:
        asked: list[Source] = []
        for run in _runs(pool, shape):
            kind = nodes.kind_of(run.manifest["machine"], run.plan.settings)
            mine = fits(kind, device or here.device)
            try:
                source = read(run, shape, now if mine else None)
            except LstmBenchError as error:
                refused += [error] if mine else []
                continue
            if mine:
                (distant if source.outside else asked).append(source)
            elif source.real and not source.outside:
                others[source.device] = None
        if asked and not any(source.real for source in able):
            able += asked
            note = f"from the project's own runs, {SHIPPED}" if pool is not folder else ""
    if not able:
        elsewhere = f"; it has an answer with {' or '.join(map(flag, others))}" if others else ""
        if refused and (now or not distant):
            raise refused[0]
        if distant:
            raise refusal(distant, elsewhere)
        where, rows = " or ".join(map(str, pools)), measurable([], here.device)
        if elsewhere:
            raise NoAnswer(f"no run on {device or here.device!r} in {where}{elsewhere}", rows)
        own = f"; the project's own runs: --results {SHIPPED}" if SHIPPED.is_dir() else ""
        raise NoAnswer(f"no run in {where}; {START}{own}", rows)
    ranks, able = _ranked(able, here.brief)
    keys = zip(REASONS, ranks[0], ranks[min(1, len(ranks) - 1)], strict=False)
    why = next((reason for reason, key, other in keys if key != other), REASONS[-1])
    return Search([*able, *distant], len(able), why, tuple(others), note, bool(device))


def flag(device: str) -> str:
    """How to ask for a device."""
    return f"--device {shlex.quote(device.removeprefix('NVIDIA '))}"


def fits(kind: Kind, device: str) -> bool:
    """Return whether --device may mean this kind: cpu, gpu or cuda, or a part of its name."""
    general = "cuda gpu" if kind.device == "cuda" else "cpu"
    return device.lower() in f"{general} {kind.brief}".lower()


def _runs(folder: Path, shape: Shape) -> Iterator[Run]:
    """The runs of a folder by kind of device: those with the shape first, then the newest."""
    sizes = asdict(shape)
    paths = newest(folder)
    has = {path: sizes in store.read_manifest(path)["plan"].get("shapes", ()) for path in paths}
    for path in sorted(paths, key=lambda path: not has[path])[:MOST_RUNS]:
        with contextlib.suppress(LstmBenchError):  # a run that cannot be read says nothing
            yield from kinds.parts(results.load(path, ["latency"]))


def _ranked(sources: list[Source], here: str) -> tuple[list[tuple[float, ...]], list[Source]]:
    """Runs with an answer, the best first, and what they were ranked by; see REASONS."""
    latest: dict[str, list[list[int]]] = {}
    for source in sources:
        for name, version in source.versions.items():
            latest[name] = max(version, latest.get(name, version))

    def first(source: Source) -> tuple[bool, ...]:
        older = sum(version < latest[name] for name, version in source.versions.items())
        keys = source.real, source.device == here, not source.lacks, source.measured
        return (*(not key for key in keys), 2 * older > len(source.rows))

    best = min(map(first, sources))
    rivals = [source for source in sources if first(source) == best]
    least = min(source.noise for source in rivals)

    def rank(source: Source) -> tuple[float, ...]:
        lacks = source.lacks_the_fastest(rivals)
        return (*first(source), lacks, source.noise > QUIET * least, -len(source.rows))

    sources = sorted(sources, key=rank)
    return list(map(rank, sources)), sources
