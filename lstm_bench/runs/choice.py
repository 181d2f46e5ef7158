"""Chooses the run of a command that measures: a new one, or one to go on with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lstm_bench.frameworks import VERSION, find
from lstm_bench.model.errors import LstmBenchError
from lstm_bench.model.types import Record, Shape
from lstm_bench.runs import grid as grids
from lstm_bench.runs import run_folders, store
from lstm_bench.runs.plan import Plan


@dataclass(frozen=True)
class RunOptions:
    """The options of `grid`, parsed: what to measure, how, and where to keep it.

    Every command that measures makes one. The plan is that of a grid, one that is `ready`, or with
    neither that of the run that is resumed.
    """

    grid: Mapping[str, Any] | None = None  # the keys of a grid file
    file: Path = Path()  # where they are from
    shapes: Sequence[Shape] = ()  # these and the next four go before the file
    implementations: Sequence[str] | None = None
    environments: Mapping[str, str] = field(default_factory=dict)
    against: Mapping[str, str] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    shard: tuple[int, int] | None = None
    ready: Plan | None = None

    results: Path | None = Path("results")  # None: nothing is kept
    name: str | None = None
    resume: str | None = None  # None: a new run; empty: whichever fits
    retry_failed: bool = False
    skip_missing: bool = False
    budget_s: float | None = None
    dry_run: bool = False
    quiet: bool = False  # the command shows the result itself

    def plan(self, device: str, threads: int) -> Plan | None:
        """The plan, where "auto" and "all" mean this device and so many threads."""
        if self.grid is None:
            return self.ready
        plan = grids.plan(
            self.grid,
            self.file,
            device=device,
            threads=threads,
            shapes=self.shapes,
            implementations=self.implementations,
            environments=self.environments,
            against=self.against,
            sampling=self.sampling,
        )
        if self.shard and self.shard[1] > len(plan.shapes):
            raise LstmBenchError(
                f"--shard: found {self.shard[1]} parts of {len(plan.shapes)} shapes; expected as"
                " many at most"
            )
        return replace(plan, shard=self.shard)


@dataclass(frozen=True)
class Chosen:
    """A run to begin or to go on with."""

    plan: Plan
    folder: Path
    manifest: Mapping[str, Any] | None = None  # the manifest of a run that goes on
    records: Sequence[Record] = ()

    @property
    def new(self) -> bool:
        return self.manifest is None


def choose(options: RunOptions, plan: Plan | None) -> Chosen:
    """The run that is meant: a new one of the plan, or one that is there."""
    results, name = options.results, options.name
    if results is None:
        assert plan is not None
        return Chosen(plan, Path())
    shard = f"-shard-{plan.shard[0]}-of-{plan.shard[1]}" if plan and plan.shard else ""
    name = f"{name}{shard}" if name else None
    old = None
    if options.resume is not None:
        old = _to_resume(results, options.resume or name, plan, bool(options.resume))
    if old is None:
        assert plan is not None
        folder = results / (name or run_folders.new_run_name(results, plan.name) + shard)
        if (folder / "manifest.json").exists():
            again = run_folders.resume_command(folder, plan.environments)
            raise LstmBenchError(f"{folder} holds a run; `{again}` goes on with it")
        return Chosen(plan, folder)
    manifest = store.read_manifest(old)
    stored = Plan.from_json(manifest["plan"], str(old))
    if plan and not plan.same_work(stored):
        instead = "choose another --run name" if name else "leave --resume out"
        raise LstmBenchError(
            f"{old} was started with another plan than this command's; go on with"
            f" `{run_folders.resume_command(old, options.environments)}`, or {instead}"
        )
    pythons = {**(plan.environments if plan else {}), **options.environments}
    plan = resumed(stored, pythons, old)
    return Chosen(plan, old, manifest, list(store.read_records(old).values()))


def _to_resume(results: Path, name: str | None, plan: Plan | None, must: bool) -> Path | None:
    """The run of that name, else the newest: of that plan, if there is one; None: start it.

    `must`: a run of that name has to be there.
    """
    if plan is None or must:
        return run_folders.find_run(results, name)
    if name:
        return results / name if (results / name / "manifest.json").exists() else None
    runs = run_folders.runs_of(results, plan.name)
    plans = (Plan.from_json(store.read_manifest(run)["plan"], str(run)) for run in runs)
    same = (run for run, its in zip(runs, plans, strict=True) if plan.same_work(its))
    return next(same, runs[0] if runs and not plan.shard else None)


def resumed(stored: Plan, given: Mapping[str, str], folder: Path) -> Plan:
    """The plan to go on with: the run's own, but nothing in its folder may choose what is run.

    A run folder may come from anybody. Its rows must be those of this version's table, and its
    interpreters must be named again.
    """
    where = f"{folder}/manifest.json"
    for row in stored.implementations:
        if row.framework.startswith("fake"):
            grids.check_script(dict(row.options), f"{where}, {row.name}")
            home = rf"fake(-[A-Za-z0-9]+)?(~{VERSION})?"
            if row.module != "fake" or not re.fullmatch(home, row.home):
                raise LstmBenchError(f"{where}: {row.name} is no fake")
        elif row != find(row.name, where):
            raise LstmBenchError(
                f"{folder}: {row.name} is another row in this version; start a new run"
            )
    if set(stored.environments) - set(given):
        again = run_folders.resume_command(folder, {**stored.environments, **given})
        raise LstmBenchError(
            f"{folder} was measured with interpreters of its own; name them again: {again}"
        )
    return replace(stored, environments=dict(given))


def run_name(name: str) -> str:
    """A run's name, which becomes a folder's."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise LstmBenchError(
            f"--run: found {name[:110]!r}, expected up to 100 letters, digits, '.', '-' and '_',"
            " a letter or digit first"
        )
    return name
