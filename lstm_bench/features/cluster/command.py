"""`lstm-bench grid --ray`: the same grid over the nodes of a cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lstm_bench.commands import options
from lstm_bench.commands.grid import (
    Chosen,
    Wanted,
    choose,
    complete,
    describe,
    exit_code,
    leg,
    now,
    tell,
    without,
)
from lstm_bench.driver.signals import Stop, held
from lstm_bench.model.errors import LstmBenchError, Stopped

if TYPE_CHECKING:
    from lstm_bench.driver.context import Outcome
    from lstm_bench.features.cluster.cluster import Job, Part, Place
    from lstm_bench.features.cluster.ray_cluster import RayEngine
    from lstm_bench.features.cluster.roster import Roster
    from lstm_bench.model.types import Cell
    from lstm_bench.runs.nodes import Kind
    from lstm_bench.runs.plan import Plan
    from lstm_bench.runs.store import Store


@dataclasses.dataclass
class Folder:
    """A run that a cluster fills, and what is left of it."""

    chosen: Chosen
    roster: Roster  # the nodes that may measure it
    kind: Kind | None  # of device that it is for; None: all of the roster's
    cells: list[Cell]
    kinds: Mapping[Any, Kind]  # of shapes that were begun


def grid(
    address: str,
    runtime_env: Path | None,
    make_plan: Callable[..., Plan] | None,
    wanted: Wanted,
    per_device: bool,
    each_its_own: bool,
    dry_run: bool,
) -> NoReturn:
    """Connect, examine all nodes, choose the runs, measure, tell and exit."""
    with held():
        from lstm_bench.features.cluster import ray_cluster
        from lstm_bench.features.cluster.roster import roster

    env = _runtime_env(runtime_env)
    with ray_cluster.connected(address, env) as engine:
        plan = None
        if make_plan:
            gpus = any(node.gpus for node in engine.nodes)
            threads = max((int(node.cpus) for node in engine.nodes), default=1)
            plan = make_plan(device="cuda" if gpus else "cpu", threads=threads)
        if per_device and (plan is None or (wanted.resume is not None and not wanted.name)):
            raise click.UsageError("--per-device makes a run for each kind: give GRID and --run")
        first = None if per_device else choose(wanted, plan)
        plan = first.plan if first else plan
        assert plan is not None
        with options.busy("examining the nodes"):
            examined = engine.examined(plan)
        found = roster(
            engine.nodes,
            examined,
            plan,
            wanted.skip_missing or dry_run,
            per_device and each_its_own,
            without(first is None or first.manifest is None),
        )
        folders = _per_kind(wanted, plan, found) if per_device else [_one(first, found, wanted)]
        _announce(folders, found, per_device)
        if dry_run:
            for folder in folders:
                describe(folder.chosen.plan, folder.cells, found.missing, wanted.budget_s)
            sys.exit()
        for folder in folders:
            if not folder.cells:
                click.echo(complete(folder.chosen))
        left = [folder for folder in folders if folder.cells]
        if not left:
            statuses = {r.status for folder in folders for r in folder.chosen.records}
            sys.exit(exit_code(statuses))
        _measure(engine, address, left, found, wanted)


def _runtime_env(path: Path | None) -> dict[str, Any] | None:
    """Ray's own description of an environment, which Ray checks."""
    import yaml

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


def _one(chosen: Chosen | None, found: Roster, wanted: Wanted) -> Folder:
    """One run for all nodes; one that goes on stays with its kinds of device."""
    from lstm_bench.driver import driver
    from lstm_bench.features.cluster import roster
    from lstm_bench.runs import nodes

    assert chosen is not None
    plan, kinds = chosen.plan, {}
    if chosen.manifest is None:
        settings = dataclasses.replace(plan.settings, device=found.kinds[0].device)
        if plan.all_threads:
            settings = dataclasses.replace(settings, threads=found.places[0].threads)
        plan = dataclasses.replace(plan, settings=settings, absent=tuple(found.missing))
    else:
        known = nodes.read(chosen.folder)
        before = roster.known_kinds(chosen.manifest, known, plan)
        found = roster.resumed(found, before, str(chosen.folder))
        kinds = roster.measured_on(chosen.records, known, plan, next(iter(before)))
    chosen = dataclasses.replace(chosen, plan=plan)
    cells = driver.pending(plan, chosen.records, wanted.retry_failed)
    # where its kind of device is gone, a shape that was begun is measured again, all passes of it
    again = {c.shape for c in cells if c.shape in kinds and kinds[c.shape] not in found.kinds}
    if again:
        wanted_cells = {*cells, *(c for c in plan.all_cells() if c.shape in again)}
        cells = [c for c in plan.all_cells() if c in wanted_cells]
    kinds = {shape: kind for shape, kind in kinds.items() if shape not in again}
    return Folder(chosen, found, None, cells, kinds)


def _per_kind(wanted: Wanted, plan: Plan, found: Roster) -> list[Folder]:
    """A run for each kind of device, named after it."""
    from lstm_bench.runs import run_folders

    base = wanted.name or run_folders.new_run_name(wanted.results, plan.name)
    folders = []
    for kind, name in _named(found.kinds).items():
        mine = found.of([kind])
        settings = dataclasses.replace(plan.settings, device=kind.device)
        if plan.all_threads:
            settings = dataclasses.replace(settings, threads=mine.places[0].threads)
        own = dataclasses.replace(plan, settings=settings)
        there = dataclasses.replace(wanted, name=f"{base}-{name}")
        folder = _one(choose(there, own), mine, wanted)
        folders.append(dataclasses.replace(folder, kind=kind))
    return folders


def _named(kinds: Sequence[Kind]) -> dict[Kind, str]:
    """Each kind with a name that a folder can have."""
    names: dict[Kind, str] = {}
    for kind in kinds:
        slug = re.sub(r"[^a-z0-9]+", "-", kind.name.lower()).strip("-")[:40] or kind.device
        same = sum(name.startswith(slug) for name in names.values())
        names[kind] = f"{slug}-{same + 1}" if same else slug
    return names


def _announce(folders: Sequence[Folder], found: Roster, per_device: bool) -> None:
    for line in found.lines():
        click.echo(line, err=True)
    used = {place.share.node for folder in folders for place in folder.roster.places}
    idle = [*found.idle, *(n for n in found.machines if n not in used)]
    if idle:
        click.echo(f"! not used, of another kind of device: {', '.join(idle)}", err=True)
    kinds = {kind for folder in folders for kind in folder.roster.kinds}
    if len(kinds) > 1 and not per_device:
        click.echo(
            f"! {len(kinds)} kinds of device: each shape is measured on one of them, and reports"
            " show them apart; --per-device measures the whole grid on each",
            err=True,
        )


@contextlib.contextmanager
def _opened(
    engine: RayEngine, folders: Sequence[Folder], missing: Mapping[str, str]
) -> Iterator[list[tuple[Folder, Part, Store]]]:
    """The runs on disk, with the nodes that will measure them."""
    from lstm_bench.features.cluster.cluster import Part
    from lstm_bench.runs import store

    limits = _limits(engine, folders)
    with contextlib.ExitStack() as stack:
        opened = []
        for folder in folders:
            chosen, machines = folder.chosen, folder.roster.machines
            by_node = {place.share.node: limits.get(place.kind) for place in folder.roster.places}
            lines = [
                {
                    "node": name,
                    "machine": one.machine,
                    "interpreters": one.interpreters,
                    "limits": by_node[name],
                }
                for name, one in machines.items()
            ]
            if chosen.manifest is None:
                first = {key: value for key, value in lines[0].items() if key != "node"}
                manifest = {"plan": chosen.plan.to_json(), **first, "started_at": now()}
                sink = stack.enter_context(store.Store.create(chosen.folder, manifest))
            else:
                sink = stack.enter_context(store.Store(chosen.folder))
            sink.append_nodes(lines)
            opened.append((folder, Part(chosen.plan, sink, folder.kind, missing), sink))
        yield opened


def _limits(engine: RayEngine, folders: Sequence[Folder]) -> dict[Kind, Any]:
    """What each kind of device can do at best, by one of its nodes; fakes need none."""
    from lstm_bench.features.cluster.cluster import plan_at

    places: dict[Kind, Place] = {}
    plans: dict[Kind, Plan] = {}
    for folder in folders:
        rows = folder.chosen.plan.implementations
        if all(row.framework.startswith("fake") for row in rows):
            continue
        for place in folder.roster.places:
            places.setdefault(place.kind, place)
            plans.setdefault(place.kind, plan_at(folder.chosen.plan, place))
    with options.busy("measuring what these machines can do at best"):
        found = engine.limits(list(places.values()), [plans[kind] for kind in places])
    known = {}
    for kind, limit in zip(places, found, strict=True):
        if isinstance(limit, str):
            click.echo(f"! {limit}: the report will not say how far the limit is", err=True)
        else:
            known[kind] = limit
    return known


def _measure(
    engine: RayEngine,
    address: str,
    folders: Sequence[Folder],
    found: Roster,
    wanted: Wanted,
) -> NoReturn:
    """Measure, show, say what to type next, and exit."""
    with held():
        from lstm_bench.analysis import results
        from lstm_bench.features.cluster import cluster

    places = [place for folder in folders for place in folder.roster.places]
    engine.use(list(dict.fromkeys(places)), found.missing)
    stop = Stop(options.tell, "stopping; the shapes at hand are measured again by --resume")
    try:
        with (
            _opened(engine, folders, found.missing) as opened,
            stop,
            options.progress() as progress,
        ):
            work = [job for folder, part, _ in opened for job in _jobs(folder, part)]
            outcome = cluster.run(engine, work, progress, stop, wanted.budget_s)
            for folder, _, sink in opened:
                machine = next(iter(folder.roster.machines.values())).machine
                sink.append_leg(leg(outcome, machine))
    except OSError as error:
        again = _again(address, folders[0], wanted)
        what = f"{folders[0].chosen.folder}: {error.strerror or error}"
        raise Stopped(f"{what}; what was finished is kept. Mend it, then `{again}`") from None
    statuses = set()
    for folder in folders:
        run = results.load(folder.chosen.folder)
        statuses |= set(run.cells["status"])
        own = _own(outcome, run.left)
        again = _again(address, folder, wanted)
        tell(run, folder.chosen.folder, own, len(folder.cells), again)
    if len(folders) > 1:
        names = " ".join(folder.chosen.folder.name for folder in folders)
        click.echo(f"      lstm-bench compare {names}")
    if outcome.interrupted:
        sys.exit(stop.exit_code)
    if outcome.stopped:
        again = _again(address, folders[0], wanted)
        raise Stopped(f"{outcome.stopped}; what was finished is kept. Then `{again}`")
    sys.exit(exit_code(statuses))


def _jobs(folder: Folder, part: Part) -> list[Job]:
    from lstm_bench.features.cluster import cluster

    finished = {r.key for r in folder.chosen.records if r.status == "ok"}
    return cluster.jobs(part, folder.cells, finished, folder.kinds)


def _own(outcome: Outcome, left: int) -> Outcome:
    """The outcome of one of several runs."""
    return dataclasses.replace(outcome, left=left)


def _again(address: str, folder: Folder, wanted: Wanted) -> str:
    from lstm_bench.runs import run_folders

    flags = ["--ray", *([address] if address else [])]
    flags += ["--skip-missing"] if wanted.skip_missing else []
    flags += ["--retry-failed"] if wanted.retry_failed else []
    chosen = folder.chosen
    return run_folders.resume_command(chosen.folder, chosen.plan.environments, *flags)
