"""Measures what a command wants: every command that measures calls `run`."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstm_bench.commands import options as common
from lstm_bench.driver.signals import Stop, held
from lstm_bench.model.errors import DONE, FAILED, LstmBenchError, Stopped
from lstm_bench.model.types import RETRYABLE

if TYPE_CHECKING:
    from lstm_bench.analysis.results import Run
    from lstm_bench.driver.context import MakeFollowUp, Outcome
    from lstm_bench.model.types import Cell, Record
    from lstm_bench.runs.choice import Chosen, RunOptions
    from lstm_bench.runs.plan import Plan

FAILURES = {"wrong", "oom", "timeout", "crashed"}


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The result of a run in this process."""

    folder: Path
    records: Sequence[Record]
    code: int  # to exit with
    interrupted: bool = False


def run(options: RunOptions, follow_ups: Sequence[MakeFollowUp] | None = None) -> RunResult:
    """Measure what the options say; unless `quiet`, show it, and what to type next.

    `follow_ups` take the place of those that the features have.
    """
    begun = time.monotonic()
    with held():
        from lstm_bench.driver import driver, machine, preflight
        from lstm_bench.runs.choice import choose

    chosen = choose(options, options.plan(machine.default_device(), machine.threads()))
    if chosen.manifest is not None:
        warn(preflight.same_circumstances(chosen.manifest, chosen.plan, chosen.folder))
    announce(options, chosen)
    left_out = options.skip_missing or options.dry_run
    missing = preflight.missing(chosen.plan, left_out, without_missing(chosen.new))
    if chosen.new:
        plan = dataclasses.replace(chosen.plan, absent=tuple(missing))
        chosen = dataclasses.replace(chosen, plan=plan)
    warn(*preflight.in_vain(chosen.plan))
    left = driver.pending(chosen.plan, chosen.records, options.retry_failed)
    if options.dry_run:
        try:
            preflight.device(chosen.plan)
        except LstmBenchError as error:
            warn(str(error))
        describe(chosen.plan, left, missing, options.budget_s)
        return RunResult(chosen.folder, chosen.records, DONE)
    preflight.device(chosen.plan)
    if chosen.records and not left:
        if not options.quiet:
            click.echo(complete(chosen))
        code = exit_code({record.status for record in chosen.records})
        return RunResult(chosen.folder, chosen.records, code)
    deadline = begun + options.budget_s if options.budget_s else None
    return _measured(options, chosen, missing, deadline, follow_ups)


def _measured(
    options: RunOptions,
    chosen: Chosen,
    missing: Mapping[str, str],
    deadline: float | None,
    follow_ups: Sequence[MakeFollowUp] | None,
) -> RunResult:
    with held():
        from lstm_bench.analysis import results
        from lstm_bench.driver import driver, machine, preflight
        from lstm_bench.driver.context import Context
        from lstm_bench.runs import nodes, run_folders, store

    plan, folder, stop = chosen.plan, chosen.folder, Stop(common.tell)

    def measure(
        cells: list[Cell], into: store.Sink, finished: Collection[str] = (), spare_s: float = 0.0
    ) -> Outcome:
        with common.alone(plan.settings.device), common.progress(options.quiet) as progress:
            left_s = None
            if deadline is not None:
                left_s = max(0.0, deadline - time.monotonic() - spare_s)
            context = Context(plan, into, progress, stop, left_s, missing, finished, follow_ups)
            return driver.run(context, cells)

    if options.results is None:
        with tempfile.TemporaryDirectory(prefix="lstm-bench-") as logs, stop:
            kept = store.MemoryStore(Path(logs))
            outcome = measure(plan.all_cells(), kept)
        code = exit_code({record.status for record in kept.records})
        code = stop.exit_code if outcome.interrupted else code
        return RunResult(folder, kept.records, code, outcome.interrupted)

    flags = ["--skip-missing"] * bool(missing) + ["--retry-failed"] * options.retry_failed
    again = run_folders.resume_command(folder, plan.environments, *flags)
    here, manifest = machine.fingerprint(), chosen.manifest
    opened, after_s = None, 0.0
    try:
        if manifest is None:
            before = time.monotonic()
            manifest = {
                "plan": plan.to_json(),
                "machine": here,
                "interpreters": preflight.interpreters(plan),
                "started_at": now(),
                **({} if options.quiet else _around(plan)),
            }
            if plan.settings.device == "cpu":  # the same is measured when the run is over
                after_s = time.monotonic() - before
            opened = store.Store.create(folder, manifest)
        else:
            opened = store.Store(folder)
        with opened as sink, stop:
            records = list(store.read_records(folder).values())  # it is ours, none comes any more
            cells = driver.pending(plan, records, options.retry_failed)
            if plan.shard:
                node, versions = nodes.here(), preflight.interpreters(plan)
                sink.sign = functools.partial(nodes.sign, node=node, machine=here)
                line = {"node": node, "machine": here, "interpreters": versions}
                sink.append_lines("nodes.jsonl", line)
            finished = {record.key for record in records if record.status == "ok"}
            outcome = measure(cells, sink, finished, after_s)
            measured_after: Mapping[str, Any] = {}
            if not (options.quiet or outcome.interrupted):
                measured_after, _ = preflight.around_run(plan, manifest)
            sink.append_lines("legs.jsonl", {**leg(outcome, here), **measured_after})
    except OSError as error:
        what = f"{folder}: {error.strerror or error}"
        if not (folder / "manifest.json").exists():
            remedy = "nothing is left of the run; choose another folder with --results"
            raise (LstmBenchError if opened is None else Stopped)(f"{what}; {remedy}") from None
        raise Stopped(f"{what}; what was finished is kept. Mend it, then `{again}`") from None
    if options.quiet:
        done = {record.status for record in store.read_records(folder).values()}
    else:
        done = tell(results.load(folder), folder, outcome, len(cells), again)
    code = stop.exit_code if outcome.interrupted else exit_code(done)
    return RunResult(folder, (), code, outcome.interrupted)


def exit_code(statuses: set[str]) -> int:
    """Return the exit code of a run whose cells have these statuses."""
    good = "ok" in statuses and not statuses & FAILURES
    return DONE if good else FAILED


def warn(*lines: str) -> None:
    for line in filter(None, lines):
        click.echo(f"! {line}", err=True)


def announce(options: RunOptions, chosen: Chosen) -> None:
    """Say that nothing was there to go on with."""
    if chosen.new and options.resume is not None and not options.quiet:
        nothing = f"nothing to resume in {options.results}"
        click.echo(f"{nothing}: starting {chosen.folder.name}", err=True)


def without_missing(new: bool) -> str:
    """Say what to type where a framework is missing."""
    named = ", or name what is here with --implementations" if new else ""
    return f"\nor go without: --skip-missing{named}"


def describe(
    plan: Plan, left: Sequence[Cell], missing: Mapping[str, str], budget_s: float | None
) -> None:
    """Print the plan of `--dry-run`."""
    from lstm_bench.report import dry_run

    common.write(dry_run.document(plan, left, missing, budget_s), "table", None)


def complete(chosen: Chosen) -> str:
    """Say that nothing is left of a run, and what could be measured again."""
    from lstm_bench.driver import driver
    from lstm_bench.model.units import counted

    again = ""
    if more := driver.pending(chosen.plan, chosen.records, retry_failed=True):
        again = (
            f"; --retry-failed measures {counted(len(more), 'cell')} again: those that failed,"
            " and the shapes that lost a profile or energy"
        )
    return f"{chosen.folder} is complete: nothing is left to measure{again}"


def leg(outcome: Outcome, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Describe this session for `legs.jsonl`."""
    times = {name: getattr(outcome, name) for name in ("wall_s", "timed_s", "spent_s", "places")}
    return {**times, "cells": outcome.finished, "note": outcome.note, "machine": machine}


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat()


def _around(plan: Plan) -> dict[str, Any]:
    """Have features measure this machine before a run, for its manifest."""
    from lstm_bench.driver import preflight

    with common.busy("measuring what this machine can do at best"):
        measured, lost = preflight.around_run(plan)
    warn(*lost)
    return measured


def tell(run: Run, folder: Path, outcome: Outcome, cells: int, again: str) -> set[str]:
    """Show what came out, how long it took, and what to type next; the statuses of all cells."""
    try:
        _show(run, folder, outcome, cells, again)
    except OSError:  # Ctrl-C goes to a pager or `tee` too, which may be gone first
        if not outcome.interrupted:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return set(run.cells["status"])


def _show(run: Run, folder: Path, outcome: Outcome, cells: int, again: str) -> None:
    with held():
        from lstm_bench.model.units import counted, percent, span, wrapped
        from lstm_bench.report import mixed_report
        from lstm_bench.runs import store

    def inside(timed_s: float, wall_s: float) -> str:
        return f", {percent(timed_s / (wall_s or 1e-9))} of it inside timed calls"

    common.write(mixed_report.document(run), "table", None)
    wall = outcome.wall_s * outcome.places or 1e-9
    parts = [f"{what} {percent(s / wall, 0)}" for what, s in outcome.spent_s.items()]
    if parts:  # otherwise nothing was begun
        at = f" at {counted(outcome.places, 'place')}" if outcome.places > 1 else ""
        click.echo(f"\n{span(outcome.wall_s)} in all{at}{inside(outcome.timed_s, wall)}")
        click.echo(wrapped(f"({', '.join(parts)})", 1))
    legs = store.read_legs(folder)
    if len(legs) > 1:  # it was resumed
        timed, busy = sum(leg.timed_s for leg in legs), sum(leg.wall_s * leg.places for leg in legs)
        before = counted(len(legs) - 1, "session")
        whole = span(sum(leg.wall_s for leg in legs))
        click.echo(f"with the {before} before it: {whole}{inside(timed, busy)}")
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
    """Say what to type after a run that is through; without a time there is nothing to show."""
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
    flag = "" if "--retry-failed" in again or not statuses & set(RETRYABLE) else " --retry-failed"
    remedy = f"Once they are mended: {again}{flag}; what can run here: lstm-bench list"
    return f"Nothing was measured, for the reasons above. {remedy}"
