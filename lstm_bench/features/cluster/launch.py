"""`lstm-bench grid --ray`: examines the nodes, chooses the runs, measures and shows them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import yaml

from lstm_bench.analysis import results
from lstm_bench.commands import options as common
from lstm_bench.commands import run as command
from lstm_bench.driver import driver
from lstm_bench.driver.signals import Stop
from lstm_bench.features.cluster import cluster, ray_cluster
from lstm_bench.features.cluster import roster as rosters
from lstm_bench.features.cluster.cluster import Target, plan_at
from lstm_bench.features.cluster.ray_cluster import RayEngine
from lstm_bench.features.cluster.roster import Roster
from lstm_bench.model.errors import LstmBenchError, Stopped
from lstm_bench.model.types import Cell, Shape
from lstm_bench.runs import nodes as stored_nodes
from lstm_bench.runs import run_folders
from lstm_bench.runs.choice import Chosen, RunOptions, choose
from lstm_bench.runs.nodes import Kind
from lstm_bench.runs.plan import Plan
from lstm_bench.runs.store import Store


@dataclass
class Folder:
    """A run that a cluster fills, and what is left of it."""

    chosen: Chosen
    roster: Roster  # the nodes that may measure it
    cells: list[Cell]
    kinds: Mapping[Shape, Kind]  # of shapes that were begun
    kind: Kind | None = None  # the kind of device that it is for; None: all kinds of the roster
    again: str = ""  # the command that goes on with it


def grid(options: RunOptions, address: str, per_device: bool, runtime_env: Path | None) -> int:
    """Examine all nodes, choose the runs, measure and show them."""
    absolute = {  # for other folders and nodes
        name: os.path.abspath(path) if os.sep in path else path
        for name, path in options.environments.items()
    }
    against = {name: absolute[name] for name in options.against}
    options = replace(options, environments=absolute, against=against)
    with ray_cluster.connected(address, _runtime_env(runtime_env)) as engine:
        gpus = any(node.gpus for node in engine.nodes)
        threads = max((int(node.cpus) for node in engine.nodes), default=1)
        plan = options.plan("cuda" if gpus else "cpu", threads)
        first = None
        if not per_device:
            first = choose(options, plan)
            command.announce(options, first)
            plan = first.plan
        elif plan is None or (options.resume is not None and not options.name):
            raise click.UsageError("--per-device makes a run for each kind: give GRID and --run")
        assert plan is not None
        with common.busy("examining the nodes"):
            examined = engine.examined(plan)
        nodes = rosters.roster(
            engine.nodes,
            examined,
            plan,
            options.skip_missing or options.dry_run,
            per_device and (options.grid or {}).get("device", "auto") == "auto",
            command.without_missing(first is None or first.new),
        )
        folders = [_folder(first, nodes, options)] if first else _per_kind(options, plan, nodes)
        flags = ["--ray", *([address] if address else [])]
        flags += ["--skip-missing"] * options.skip_missing
        flags += ["--retry-failed"] * options.retry_failed
        for folder in folders:
            chosen = folder.chosen
            folder.again = run_folders.resume_command(
                chosen.folder, chosen.plan.environments, *flags
            )
        _announce(folders, nodes, per_device)
        if options.dry_run:
            for folder in folders:
                plan = folder.chosen.plan
                command.describe(plan, folder.cells, nodes.missing, options.budget_s)
            return 0
        for folder in folders:
            if not folder.cells:
                click.echo(command.complete(folder.chosen))
        if left := [folder for folder in folders if folder.cells]:
            return _measure(engine, left, nodes.missing, options.budget_s)
        return command.exit_code({r.status for folder in folders for r in folder.chosen.records})


def _runtime_env(path: Path | None) -> dict[str, Any] | None:
    """Ray's own description of an environment, which Ray checks."""
    if path is None:
        return None
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise LstmBenchError(f"--runtime-env {path}: cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise LstmBenchError(
            f"--runtime-env {path}: found no mapping, expected keys such as `pip: [torch]`"
        )
    return data


def _folder(chosen: Chosen, nodes: Roster, options: RunOptions) -> Folder:
    """A run for these nodes; one that goes on stays with its kinds of device."""
    plan, kinds = chosen.plan, {}
    if chosen.manifest is None:
        settings = plan_at(plan, nodes.places[0]).settings
        plan = replace(plan, settings=settings, absent=tuple(nodes.missing))
    else:
        known = stored_nodes.read(chosen.folder)
        before = rosters.known_kinds(chosen.manifest, known, plan)
        nodes = rosters.resumed(nodes, before, str(chosen.folder))
        kinds = rosters.measured_on(chosen.records, known, plan, next(iter(before)))
    cells = driver.pending(plan, chosen.records, options.retry_failed)
    # where its kind of device is gone, a shape that was begun is measured again, all passes of it
    again = {c.shape for c in cells if c.shape in kinds and kinds[c.shape] not in nodes.kinds}
    if again:
        wanted = {*cells, *(c for c in plan.all_cells() if c.shape in again)}
        cells = [c for c in plan.all_cells() if c in wanted]
    kinds = {shape: kind for shape, kind in kinds.items() if shape not in again}
    return Folder(replace(chosen, plan=plan), nodes, cells, kinds)


def _per_kind(options: RunOptions, plan: Plan, nodes: Roster) -> list[Folder]:
    """A run for each kind of device, named after it."""
    assert options.results is not None
    base = options.name or run_folders.new_run_name(options.results, plan.name)
    names: list[str] = []
    folders = []
    for kind in nodes.kinds:
        slug = re.sub(r"[^a-z0-9]+", "-", kind.name.lower()).strip("-")[:40] or kind.device
        same = sum(name.startswith(slug) for name in names)
        names.append(f"{slug}-{same + 1}" if same else slug)
        mine = nodes.only([kind])
        own = replace(plan, settings=plan_at(plan, mine.places[0]).settings)
        there = replace(options, name=f"{base}-{names[-1]}")
        chosen = choose(there, own)
        command.announce(there, chosen)
        folders.append(replace(_folder(chosen, mine, options), kind=kind))
    return folders


def _announce(folders: Sequence[Folder], nodes: Roster, per_device: bool) -> None:
    for line in nodes.lines():
        click.echo(line, err=True)
    used = {place.share.node for folder in folders for place in folder.roster.places}
    if idle := [*nodes.idle, *(name for name in nodes.machines if name not in used)]:
        command.warn(f"not used, of another kind of device: {', '.join(idle)}")
    kinds = {kind for folder in folders for kind in folder.roster.kinds}
    if len(kinds) > 1 and not per_device:
        command.warn(
            f"{len(kinds)} kinds of device: each shape is measured on one of them, and reports"
            " show them apart; --per-device measures the whole grid on each"
        )


@contextlib.contextmanager
def _opened(engine: RayEngine, folders: Sequence[Folder]) -> Iterator[list[Target]]:
    """The runs on disk, with the nodes that will measure them."""
    by_kind = {
        place.kind: (place, plan_at(folder.chosen.plan, place))
        for folder in folders
        for place in folder.roster.places
    }
    with common.busy("measuring what these machines can do at best"):
        answers = engine.around_run(list(by_kind.values()))
    around = dict(zip(by_kind, (known for known, _ in answers), strict=True))
    command.warn(*(line for _, lost in answers for line in lost))
    with contextlib.ExitStack() as stack:
        targets = []
        for folder in folders:
            chosen, roster = folder.chosen, folder.roster
            of_node = {place.share.node: around[place.kind] for place in roster.places}
            about = {
                name: {"machine": node.machine, "interpreters": node.interpreters, **of_node[name]}
                for name, node in roster.machines.items()
            }
            if chosen.new:
                first = next(iter(about.values()))
                manifest = {"plan": chosen.plan.to_json(), **first, "started_at": command.now()}
                sink = stack.enter_context(Store.create(chosen.folder, manifest))
            else:
                sink = stack.enter_context(Store(chosen.folder))
            sink.append_lines("nodes.jsonl", *({"node": n, **line} for n, line in about.items()))
            targets.append(Target(chosen.plan, sink, folder.kind))
        yield targets


def _measure(
    engine: RayEngine,
    folders: Sequence[Folder],
    missing: Mapping[str, str],
    budget_s: float | None,
) -> int:
    """Measure, show, say what to type next; the exit code."""
    places = [place for folder in folders for place in folder.roster.places]
    engine.use(list(dict.fromkeys(places)), missing)
    stop = Stop(common.tell, "stopping; the shapes at hand are measured again by --resume")
    kept = "what was finished is kept"
    try:
        with _opened(engine, folders) as targets, stop, common.progress() as progress:
            work = []
            for folder, target in zip(folders, targets, strict=True):
                finished = {r.key for r in folder.chosen.records if r.status == "ok"}
                work += cluster.jobs(target, folder.cells, finished, folder.kinds)
            outcome = cluster.Dispatch(engine, work, progress, stop, budget_s).run()
            for folder, target in zip(folders, targets, strict=True):
                machine = next(iter(folder.roster.machines.values())).machine
                target.sink.append_lines("legs.jsonl", command.leg(outcome, machine))
    except OSError as error:
        what = f"{folders[0].chosen.folder}: {error.strerror or error}"
        raise Stopped(f"{what}; {kept}. Mend it, then `{folders[0].again}`") from None
    statuses = set()
    for folder in folders:
        at = folder.chosen.folder
        run = results.load(at)
        own = replace(outcome, left=run.left)
        statuses |= command.tell(run, at, own, len(folder.cells), folder.again)
    if len(folders) > 1:
        names = " ".join(folder.chosen.folder.name for folder in folders)
        click.echo(f"      lstm-bench compare {names}")
    if outcome.interrupted:
        return stop.exit_code
    if outcome.stopped:
        raise Stopped(f"{outcome.stopped}; {kept}. Then `{folders[0].again}`")
    return command.exit_code(statuses)
