"""`lstm-bench grid`: measure a grid of shapes."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lstm_bench.commands import options
from lstm_bench.driver.signals import Stop, held
from lstm_bench.model.errors import DONE, FAILED
from lstm_bench.model.types import RETRYABLE, UNFINISHED, LstmBenchError, Stopped

if TYPE_CHECKING:
    from lstm_bench.analysis.results import Run
    from lstm_bench.driver.context import Outcome
    from lstm_bench.model.types import Cell, Record, Shape
    from lstm_bench.runs.plan import Plan

FAILURES = {"wrong", "oom", "timeout", "crashed"}


@click.command()
@click.argument("grid_file", metavar="[GRID]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--run",
    "run_name",
    metavar="NAME",
    help="Name the run, default: grid and time; with --resume: go on with it if it is there.",
)
@options.results
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Go on with RUN, or the newest; of GRID with its newest, or start one if there is none.",
)
@click.option(
    "--retry-failed",
    is_flag=True,
    help="With --resume: measure again what failed, and shapes that lost energy or a profile.",
)
@options.shape("Measure this shape, instead of the file's or without a file; repeatable.")
@click.option(
    "-i",
    "--implementations",
    multiple=True,
    metavar="A,B",
    help="Only these, instead of the file's; ROW@1: ROW on one thread, in turns; repeatable.",
)
@options.device
@options.threads
@options.inputs
@options.python
@click.option(
    "--against",
    "others",
    multiple=True,
    metavar="FRAMEWORK[~NAME]=PATH",
    help="Measure its rows under this interpreter too, in turns, as ROW~NAME; NAME: other.",
)
@click.option("--skip-missing", is_flag=True, help="Go without frameworks that are not installed.")
@click.option(
    "--passes",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Measure everything so often, each time in fresh processes.",
)
@click.option("--fast", is_flag=True, help="5 to 8 rounds, a short warm-up, one load for energy.")
@click.option("--rigorous", is_flag=True, help="At least 30 rounds.")
@click.option("--deepbench", is_flag=True, help="Queue 100 calls for throughput, as DeepBench.")
@click.option(
    "--profile", is_flag=True, help="Then take each cell's calls apart, kernel by kernel."
)
@click.option("--energy", is_flag=True, help="Then measure energy per call (GPU, by NVML).")
@click.option("--budget", metavar="TIME", help="Take so long, within 10%: 90s, 10m, 2h.")
@click.option(
    "--shard", metavar="N/OF", help="Only part N of OF, such as 3/8; `merge` joins the parts."
)
@click.option(
    "--ray",
    "ray_address",
    is_flag=False,
    flag_value="",
    metavar="[ADDRESS]",
    help="Spread the shapes over a Ray cluster; without an address, over this machine's GPUs.",
)
@click.option(
    "--per-device", is_flag=True, help="With --ray: the whole grid on every kind of device."
)
@click.option(
    "--runtime-env",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With --ray: Ray's runtime_env for all nodes, as YAML or JSON.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and an estimate; run nothing.")
def grid(
    grid_file: Path | None,
    run_name: str | None,
    results: Path,
    resume: str | None,
    retry_failed: bool,
    shape: Sequence[Shape],
    implementations: Sequence[str],
    device: str | None,
    threads: int | None,
    inputs: str | None,
    pythons: Sequence[str],
    others: Sequence[str],
    skip_missing: bool,
    passes: int | None,
    fast: bool,
    rigorous: bool,
    deepbench: bool,
    profile: bool,
    energy: bool,
    budget: str | None,
    shard: str | None,
    ray_address: str | None,
    per_device: bool,
    runtime_env: Path | None,
    dry_run: bool,
) -> None:
    """Measure every implementation at every shape of a grid.

    GRID is a file, or one of the project's grids, which are found from any folder: smoke, default,
    devices, paper, kernel, ladder, energy, noise, deepbench.

    \b
      lstm-bench grid grids/smoke.yaml --dry-run        what would run, and how long
      lstm-bench grid grids/default.yaml --budget 3m    as much as fits
      lstm-bench grid grids/paper.yaml -i pytorch,pytorch-amp --profile
      lstm-bench grid --shape 320,4,60                  one shape, as the default grid would
      lstm-bench grid paper -i pytorch --against pytorch~new=.venv-new/bin/python
      lstm-bench grid --resume                          after Ctrl-C, a crash or a power cut
      lstm-bench grid grids/paper.yaml --resume         the same, or its start: for a job script
      lstm-bench grid paper --ray auto                  over all nodes of a Ray cluster
      lstm-bench grid paper --run paper --shard 3/8     a part of it, for a job array

    Results go to results/<run>/ in the current folder. Exit code: 0 done or out of budget, 1 some
    cells failed, none could run or the run could not go on, 2 wrong usage, 130 interrupted (143 by
    SIGTERM).
    """
    begun = time.monotonic()
    with held():
        from lstm_bench.driver import driver, machine, preflight
        from lstm_bench.runs import grid as grids

    if fast and rigorous:
        raise click.UsageError("--fast and --rigorous exclude each other")
    if resume and resume.endswith((".yaml", ".yml")) and grid_file is None:
        grid_file, resume = Path(resume), ""  # `--resume GRID`: the word was meant as the grid
    if ray_address and grid_file is None and grids.find(Path(ray_address)).is_file():
        grid_file, ray_address = Path(ray_address), ""  # `--ray GRID`, likewise
    if grid_file is None and resume is None and not shape:
        raise click.UsageError("expected a grid, such as grids/default.yaml, --shape or --resume")
    if retry_failed and resume is None:
        raise click.UsageError("--retry-failed goes with --resume")
    if ray_address is None and (per_device or runtime_env):
        raise click.UsageError("--per-device and --runtime-env go with --ray")
    if ray_address is not None and shard:
        raise click.UsageError("--shard is for those without --ray, which divides a grid itself")
    budget_s = _duration(budget) if budget else None
    against = preflight.against(others)
    environments = {**preflight.environments(pythons), **against}
    if ray_address is not None:
        environments = {name: _everywhere(path) for name, path in environments.items()}
        against = {name: environments[name] for name in against}
    make_plan = None
    if grid_file is not None or shape:
        file, data = _grid(grid_file, shape)
        given = {"device": device, "threads": threads, "inputs": inputs, "passes": passes}
        given |= {"profile": profile, "energy": energy}
        data.update({key: value for key, value in given.items() if value})
        make_plan = functools.partial(
            grids.plan,
            data,
            file,
            shapes=shape,
            implementations=_split(implementations) if implementations else None,
            environments=environments,
            against=against,
            sampling=_sampling_flags(data, fast, rigorous, deepbench),
        )
    changes = (implementations, device, threads, inputs, passes, fast, rigorous, deepbench)
    if make_plan is None and any((*changes, profile, energy, shard)):
        raise click.UsageError("--resume takes the run's own plan; it cannot be changed")
    if resume is not None and run_name and (resume or make_plan is None):
        raise click.UsageError(f"--run names a new run; to go on with one: --resume {run_name}")
    name = None if run_name is None else preflight.run_name(run_name)
    wanted = Wanted(results, resume, name, environments, skip_missing, retry_failed, budget_s)
    if ray_address is not None:
        from lstm_bench.features.cluster import command as cluster

        own = make_plan is not None and data.get("device", "auto") == "auto"
        cluster.grid(ray_address, runtime_env, make_plan, wanted, per_device, own, dry_run)
    plan = None
    if make_plan:
        plan = make_plan(device=machine.default_device(), threads=machine.threads())
        plan = _sharded(plan, shard)
    chosen = choose(wanted, plan)
    plan, folder, records, new = chosen.plan, chosen.folder, chosen.records, chosen.manifest is None
    if chosen.manifest is not None:
        preflight.same_circumstances(chosen.manifest, plan, folder)
        if other := preflight.another_board(chosen.manifest):
            click.echo(f"! {other}", err=True)
    missing = preflight.missing(plan, skip_missing or dry_run, without(new))
    if new:
        plan = dataclasses.replace(plan, absent=tuple(missing))
    for warning in preflight.in_vain(plan, energy):
        click.echo(f"! {warning}", err=True)
    left = driver.pending(plan, records, retry_failed)
    if dry_run:
        try:
            preflight.device(plan)
        except LstmBenchError as error:
            click.echo(f"! {error}", err=True)
        describe(plan, left, missing, budget_s)
        return
    preflight.device(plan)
    if records and not left:
        click.echo(complete(chosen))
        sys.exit(exit_code({record.status for record in records}))
    deadline = begun + budget_s if budget_s else None
    _run(plan, folder, missing, retry_failed, deadline, new)


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What was asked for, beside the plan."""

    results: Path
    resume: str | None  # None: a new run; empty: whichever fits
    name: str | None
    environments: Mapping[str, str]
    skip_missing: bool
    retry_failed: bool
    budget_s: float | None


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A run to begin or to go on with."""

    plan: Plan
    folder: Path
    manifest: Mapping[str, Any] | None = None  # of one that goes on
    records: Sequence[Record] = ()


def choose(wanted: Wanted, plan: Plan | None) -> Chosen:
    """The run that was meant: a new one of the plan, or one that is there."""
    from lstm_bench.driver import preflight
    from lstm_bench.runs import run_folders, store
    from lstm_bench.runs.plan import Plan

    results, name = wanted.results, wanted.name
    if name and plan and plan.shard:
        name = shard_name(name, plan.shard)
    old = None
    if wanted.resume is not None:
        old = _to_resume(results, wanted.resume or name, plan, bool(wanted.resume))
    if old is None:
        assert plan is not None
        new = name or run_folders.new_run_name(results, plan.name)
        if plan.shard and not name:
            new = shard_name(new, plan.shard)
        folder = results / new
        if (folder / "manifest.json").exists():
            again = run_folders.resume_command(folder, plan.environments)
            raise LstmBenchError(f"{folder} holds a run; `{again}` goes on with it")
        if wanted.resume is not None:
            click.echo(f"nothing to resume in {results}: starting {folder.name}", err=True)
        return Chosen(plan, folder)
    manifest = store.read_manifest(old)
    stored = Plan.from_json(manifest["plan"], str(old))
    if plan and not plan.same_work(stored):
        instead = "choose another --run name" if wanted.name else "leave --resume out"
        raise LstmBenchError(
            f"{old} was started with another plan than this command's; go on with"
            f" `{run_folders.resume_command(old, wanted.environments)}`, or {instead}"
        )
    pythons = {**(plan.environments if plan else {}), **wanted.environments}
    plan = preflight.resumed(stored, pythons, old)
    return Chosen(plan, old, manifest, list(store.read_records(old).values()))


def without(new: bool) -> str:
    """What to type where a framework is missing."""
    named = ", or name what is here with --implementations" if new else ""
    return f"\nor go without: --skip-missing{named}"


def describe(
    plan: Plan, left: Sequence[Cell], missing: Mapping[str, str], budget_s: float | None
) -> None:
    """For `--dry-run`."""
    from lstm_bench.report import dry_run

    options.write(dry_run.document(plan, left, missing, budget_s), "table", None)


def complete(chosen: Chosen) -> str:
    """That nothing is left of a run, and what could be measured again."""
    from lstm_bench.driver import driver
    from lstm_bench.model.units import counted

    told = ""
    if more := driver.pending(chosen.plan, chosen.records, retry_failed=True):
        told = (
            f"; --retry-failed measures {counted(len(more), 'cell')} again: those that failed,"
            " and the shapes that lost a profile or energy"
        )
    return f"{chosen.folder} is complete: nothing is left to measure{told}"


def shard_name(name: str, shard: tuple[int, int]) -> str:
    return f"{name}-shard-{shard[0]}-of-{shard[1]}"


def _sharded(plan: Plan, text: str | None) -> Plan:
    """The plan of `--shard 3/8`."""
    if text is None:
        return plan
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    number, of = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= of:
        raise LstmBenchError(f"--shard: found {text!r}, expected a part such as 3/8: part 3 of 8")
    if of > len(plan.shapes):
        raise LstmBenchError(
            f"--shard: found {of} parts of {len(plan.shapes)} shapes; expected as many at most"
        )
    return dataclasses.replace(plan, shard=(number, of))


def _everywhere(path: str) -> str:
    """An interpreter's path as other folders and nodes can use it."""
    return os.path.abspath(path) if os.sep in path else path


def _grid(path: Path | None, shapes: Sequence[Shape]) -> tuple[Path, dict[str, Any]]:
    """The grid's file and what it says; without a file, what the default grid does at a shape."""
    from lstm_bench.runs import grid as grids

    if path is None:
        sizes = shapes[0].label.replace(",", "-")
        name = f"shape-{sizes}" if len(set(shapes)) == 1 else "shapes"
        found = grids.shipped()["default"]
        return found, {**grids.read(found), "name": name}
    found = grids.find(path)
    if found != path:
        click.echo(f"{path} is {found}", err=True)
    return found, grids.read(found)


def _to_resume(results: Path, name: str | None, plan: Plan | None, must: bool) -> Path | None:
    """The run of that name, else the newest: of that plan, if there is one; None: start it.

    `must`: a run of that name has to be there.
    """
    from lstm_bench.runs import run_folders, store
    from lstm_bench.runs.plan import Plan

    if plan is None or must:
        return run_folders.find_run(results, name)
    if name:
        return results / name if (results / name / "manifest.json").exists() else None
    runs = run_folders.runs_of(results, plan.name)
    plans = (Plan.from_json(store.read_manifest(run)["plan"], str(run)) for run in runs)
    same = (run for run, its in zip(runs, plans, strict=True) if plan.same_work(its))
    return next(same, runs[0] if runs and not plan.shard else None)


def _run(
    plan: Plan,
    folder: Path,
    missing: dict[str, str],
    retry_failed: bool,
    deadline: float | None,
    new: bool,
) -> NoReturn:
    """Measure, show, say what to type next, and exit."""
    with held():
        from lstm_bench.analysis import results
        from lstm_bench.driver import driver, machine, preflight
        from lstm_bench.driver.context import Context
        from lstm_bench.features.cluster.node import Signing
        from lstm_bench.runs import nodes, run_folders, store

    flags = ["--skip-missing"] if missing else []
    flags += ["--retry-failed"] if retry_failed else []
    again = run_folders.resume_command(folder, plan.environments, *flags)
    stop = Stop(options.tell)
    records: list[Record] = []
    opened = None
    here = machine.fingerprint()
    limits_s = 0.0
    try:
        if new:
            before = time.monotonic()
            limits = _limits(plan)
            if plan.settings.device == "cpu":  # they are measured once more at the end
                limits_s = time.monotonic() - before
            manifest = {
                "plan": plan.to_json(),
                "machine": here,
                "interpreters": preflight.interpreters(plan),
                "limits": limits,
                "started_at": now(),
            }
            opened = store.Store.create(folder, manifest)
        else:
            opened = store.Store(folder)
            records = list(store.read_records(folder).values())  # it is ours, none comes any more
        cells = driver.pending(plan, records, retry_failed)
        with (
            opened as sink,
            stop,
            options.alone(plan.settings.device),
            options.progress() as progress,
        ):
            finished = {record.key for record in records if record.status == "ok"}
            into: store.Sink = sink
            if plan.shard:
                into = Signing(sink, nodes.here(), here)
                versions = preflight.interpreters(plan)
                sink.append_nodes([{"node": into.node, "machine": here, "interpreters": versions}])
            budget_s = None
            if deadline is not None:
                budget_s = max(0.0, deadline - time.monotonic() - limits_s)
            run_context = Context(plan, into, progress, stop, budget_s, missing, finished)
            outcome = driver.run(run_context, cells)
            sink.append_leg({**leg(outcome, here), "limits": _limits_after(plan, folder, outcome)})
    except OSError as error:
        what = f"{folder}: {error.strerror or error}"
        if not (folder / "manifest.json").exists():
            remedy = "nothing is left of the run; choose another folder with --results"
            raise (LstmBenchError if opened is None else Stopped)(f"{what}; {remedy}") from None
        raise Stopped(f"{what}; what was finished is kept. Mend it, then `{again}`") from None
    run = results.load(folder)
    try:
        tell(run, folder, outcome, len(cells), again)
    except OSError:  # Ctrl-C goes to a pager or `tee` too, which may be gone first
        if not outcome.interrupted:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if outcome.interrupted:
        sys.exit(stop.exit_code)
    sys.exit(exit_code(set(run.cells["status"])))


def leg(outcome: Outcome, machine: Mapping[str, Any]) -> dict[str, Any]:
    """What this session did, for `legs.jsonl`."""
    times = {name: getattr(outcome, name) for name in ("wall_s", "timed_s", "spent_s", "places")}
    return {**times, "cells": outcome.finished, "note": outcome.note, "machine": machine}


def now() -> str:
    import datetime

    return datetime.datetime.now(datetime.timezone.utc).isoformat()


def _limits(plan: Plan) -> dict[str, Any] | None:
    """What this machine can do at best, for the manifest; None if nobody can tell."""
    from lstm_bench.features.limits import measure as limits

    if all(row.framework.startswith("fake") for row in plan.implementations):
        return None  # its clock is none of this machine's
    try:
        with options.busy("measuring what this machine can do at best"):
            found = limits.measure(plan.environments, plan.settings.device, plan.settings.threads)
    except LstmBenchError as error:
        click.echo(f"! {error}: the report will not say how far the limit is", err=True)
        return None
    return found.to_json()


def _limits_after(plan: Plan, folder: Path, outcome: Outcome) -> dict[str, Any] | None:
    """What a CPU can do at best, once more: its neighbours may have come or gone meanwhile."""
    from lstm_bench.features.limits import measure as limits
    from lstm_bench.runs import store

    known = store.read_manifest(folder).get("limits")
    if plan.settings.device != "cpu" or outcome.interrupted or not known:
        return None
    try:
        found = limits.measure(plan.environments, plan.settings.device, plan.settings.threads)
    except LstmBenchError:  # then those of the start stand alone
        return None
    return found.to_json()


def tell(run: Run, folder: Path, outcome: Outcome, cells: int, again: str) -> None:
    """What came out, how long it took, and what to type next."""
    with held():
        from lstm_bench.model.units import counted, percent, span, wrapped
        from lstm_bench.report import mixed_report
        from lstm_bench.runs import store

    options.write(mixed_report.document(run), "table", None)
    wall = outcome.wall_s * outcome.places or 1e-9
    parts = [f"{what} {percent(s / wall, 0)}" for what, s in outcome.spent_s.items()]
    if parts:  # else nothing was even begun
        at = f" at {counted(outcome.places, 'place')}" if outcome.places > 1 else ""
        click.echo(f"\n{span(outcome.wall_s)} in all{at}{_inside(outcome.timed_s, wall)}")
        click.echo(wrapped(f"({', '.join(parts)})", 1))
    legs = store.read_legs(folder)
    if len(legs) > 1:  # it was resumed
        wall, timed = sum(leg.wall_s for leg in legs), sum(leg.timed_s for leg in legs)
        busy = sum(leg.wall_s * leg.places for leg in legs)
        before = counted(len(legs) - 1, "session")
        click.echo(f"with the {before} before it: {span(wall)}{_inside(timed, busy)}")
    if outcome.note:
        click.echo(f"\n! {outcome.note}")
    if outcome.interrupted or outcome.out_of_budget:
        why = "Interrupted" if outcome.interrupted else "The budget is used up"
        left = f"{outcome.left} of {counted(cells, 'cell')} left" if outcome.left else ""
        single = f"no A/A controls at {counted(outcome.single, 'shape')}" if outcome.single else ""
        rest = ", ".join(filter(None, [left, single]))
        click.echo(f"\n{why}: {rest}. Go on: {again}")
    else:
        click.echo(f"\n{_next(run, folder, again)}")


def _next(run: Run, folder: Path, again: str) -> str:
    """What to type after a run that is through; there is nothing to show if nothing has a time."""
    from lstm_bench.runs import run_folders

    statuses = set(run.cells["status"])
    if "ok" in statuses:
        this = shlex.join(["--run", run_folders.name_of(folder), *run_folders.elsewhere(folder)])
        then = [f"lstm-bench report {this} --html page.html"]
        timed = set(run.cells.loc[run.cells["status"] == "ok", "implementation"])
        if len(timed) > 1:
            rows = [row for row in run.plan.implementations if row.version and row.name in timed]
            pairs = [f"{row.original} {row.name}" for row in rows if row.original in timed]
            then.append(f"lstm-bench compare {next(iter(pairs), 'A B')} {this}")
            if pairs:
                this = this.removeprefix("--run ")
                then.append(f"lstm-bench gate {this} --across versions")
        return "Next: " + "\n      ".join(then)
    nothing = "Nothing was measured, for the reasons above."
    if statuses & {*RETRYABLE, *UNFINISHED}:
        flag = " --retry-failed"
        more = flag if statuses & set(RETRYABLE) and flag not in again else ""
        return f"{nothing} Once they are mended: {again}{more}"
    if statuses == {"unsupported"}:
        return f"{nothing} What can run here: lstm-bench list"
    return nothing


def _inside(timed_s: float, wall_s: float) -> str:
    from lstm_bench.model.units import percent

    return f", {percent(timed_s / (wall_s or 1e-9))} of it inside timed calls"


def exit_code(statuses: set[str]) -> int:
    """By what became of the cells."""
    good = "ok" in statuses and not statuses & FAILURES
    return DONE if good else FAILED


def _duration(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)", text.strip())
    if not match or float(match[1]) <= 0:
        raise LstmBenchError(f"--budget: found {text!r}, expected a time such as 90s, 10m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600}[match[2]]


def _sampling_flags(
    data: Mapping[str, Any], fast: bool, rigorous: bool, deepbench: bool
) -> dict[str, Any]:
    """What the flags put in place of what the grid file says."""
    flags: dict[str, Any] = {}
    if fast:
        flags.update(rounds=5, max_rounds=8, warmup_s=0.02, warmup_cap_s=1.0, loads=1)
    if rigorous:
        stated = data.get("sampling")
        for name in ("rounds", "max_rounds"):  # never less than the file has, nor than 30
            value = stated.get(name) if isinstance(stated, Mapping) else None
            least = flags.get("rounds", 30)
            flags[name] = max(value, least) if isinstance(value, int) else least
    if deepbench:
        flags.update(queued_calls=100)
    return flags


def _split(given: Sequence[str]) -> list[str]:
    return [name.strip() for names in given for name in names.split(",")]
