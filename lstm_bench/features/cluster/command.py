"""`lstm-bench grid --ray`: the same grid over the nodes of a cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstm_bench.commands import options as common
from lstm_bench.commands import run as command
from lstm_bench.driver.signals import Stop, held
from lstm_bench.model.errors import LstmBenchError, Stopped

if TYPE_CHECKING:
    from lstm_bench.features.cluster.cluster import Job, Part
    from lstm_bench.features.cluster.ray_cluster import RayEngine
    from lstm_bench.features.cluster.roster import Roster
    from lstm_bench.model.types import Cell
    from lstm_bench.runs.choice import Chosen, RunOptions
    from lstm_bench.runs.nodes import Kind
    from lstm_bench.runs.plan import Plan


@dataclasses.dataclass
class Folder:
    """A run that a cluster fills, and what is left of it."""

    chosen: Chosen
    roster: Roster  # the nodes that may measure it
    cells: list[Cell]
    kinds: Mapping[Any, Kind]  # of shapes that were begun
    kind: Kind | None = None  # of device that it is for; None: all of the roster's
    again: str = ""  # the command that goes on with it


def grid(options: RunOptions, given: Mapping[str, Any]) -> int | None:
    """Examine all nodes, choose the runs, measure and show them; None without `--ray`."""
    address, per_device = given["ray"], given["per_device"]
    if address is None:
        if per_device or given["runtime_env"]:
            raise click.UsageError("--per-device and --runtime-env go with --ray")
        return None
    if options.shard:
        raise click.UsageError("--shard is for those without --ray, which divides a grid itself")
    with held():
        from lstm_bench.features.cluster import ray_cluster
        from lstm_bench.features.cluster.roster import roster
        from lstm_bench.runs.choice import choose

    absolute = {  # for other folders and nodes
        name: os.path.abspath(path) if os.sep in path else path
        for name, path in options.environments.items()
    }
    against = {name: absolute[name] for name in options.against}
    options = dataclasses.replace(options, environments=absolute, against=against)
    with ray_cluster.connected(address, _runtime_env(given["runtime_env"])) as engine:
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
        nodes = roster(
            engine.nodes,
            examined,
            plan,
            options.skip_missing or options.dry_run,
            per_device and (options.grid or {}).get("device", "auto") == "auto",
            command.without_missing(first is None or first.new),
        )
        folders = [_folder(first, nodes, options)] if first else _per_kind(options, plan, nodes)
        for folder in folders:
            folder.again = _again(address, folder.chosen, options)
        _announce(folders, nodes, per_device)
        left = [folder for folder in folders if folder.cells]
        if options.dry_run:
            for folder in folders:
                plan = folder.chosen.plan
                command.describe(plan, folder.cells, nodes.missing, options.budget_s)
            return 0
        for folder in folders:
            if not folder.cells:
                click.echo(command.complete(folder.chosen))
        if left:
            return _measure(engine, left, nodes.missing, options.budget_s)
        return command.exit_code({r.status for folder in folders for r in folder.chosen.records})


GRID = common.Added(
    (
        click.option(
            "--ray",
            is_flag=False,
            flag_value="",
            metavar="[ADDRESS]",
            help="Spread the shapes over a Ray cluster; without an address, over this machine's"
            " GPUs.",
        ),
        click.option(
            "--per-device",
            is_flag=True,
            help="With --ray: the whole grid on every kind of device.",
        ),
        click.option(
            "--runtime-env",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="With --ray: Ray's runtime_env for all nodes, as YAML or JSON.",
        ),
    ),
    grid,
    word="ray",
)


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


def _folder(chosen: Chosen, nodes: Roster, options: RunOptions) -> Folder:
    """A run for these nodes; one that goes on stays with its kinds of device."""
    from lstm_bench.driver import driver
    from lstm_bench.features.cluster import roster
    from lstm_bench.features.cluster.cluster import plan_at
    from lstm_bench.runs.nodes import read

    plan, kinds = chosen.plan, {}
    if chosen.manifest is None:
        settings = plan_at(plan, nodes.places[0]).settings
        plan = dataclasses.replace(plan, settings=settings, absent=tuple(nodes.missing))
    else:
        known = read(chosen.folder)
        before = roster.known_kinds(chosen.manifest, known, plan)
        nodes = roster.resumed(nodes, before, str(chosen.folder))
        kinds = roster.measured_on(chosen.records, known, plan, next(iter(before)))
    cells = driver.pending(plan, chosen.records, options.retry_failed)
    # where its kind of device is gone, a shape that was begun is measured again, all passes of it
    again = {c.shape for c in cells if c.shape in kinds and kinds[c.shape] not in nodes.kinds}
    if again:
        wanted = {*cells, *(c for c in plan.all_cells() if c.shape in again)}
        cells = [c for c in plan.all_cells() if c in wanted]
    kinds = {shape: kind for shape, kind in kinds.items() if shape not in again}
    return Folder(dataclasses.replace(chosen, plan=plan), nodes, cells, kinds)


def _per_kind(options: RunOptions, plan: Plan, nodes: Roster) -> list[Folder]:
    """A run for each kind of device, named after it."""
    from lstm_bench.features.cluster.cluster import plan_at
    from lstm_bench.runs import run_folders
    from lstm_bench.runs.choice import choose

    assert options.results is not None
    base = options.name or run_folders.new_run_name(options.results, plan.name)
    folders = []
    for kind, name in _named(nodes.kinds).items():
        mine = nodes.only([kind])
        own = dataclasses.replace(plan, settings=plan_at(plan, mine.places[0]).settings)
        there = dataclasses.replace(options, name=f"{base}-{name}")
        chosen = choose(there, own)
        command.announce(there, chosen)
        folders.append(dataclasses.replace(_folder(chosen, mine, options), kind=kind))
    return folders


def _named(kinds: Sequence[Kind]) -> dict[Kind, str]:
    """Each kind with a name that a folder can have."""
    names: dict[Kind, str] = {}
    for kind in kinds:
        slug = re.sub(r"[^a-z0-9]+", "-", kind.name.lower()).strip("-")[:40] or kind.device
        same = sum(name.startswith(slug) for name in names.values())
        names[kind] = f"{slug}-{same + 1}" if same else slug
    return names


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
def _opened(engine: RayEngine, folders: Sequence[Folder]) -> Iterator[list[tuple[Folder, Part]]]:
    """The runs on disk, with the nodes that will measure them."""
    from lstm_bench.features.cluster.cluster import Part, plan_at
    from lstm_bench.runs.store import Store

    by_kind = {
        place.kind: (place, plan_at(folder.chosen.plan, place))
        for folder in folders
        for place in folder.roster.places
    }
    with common.busy("measuring what these machines can do at best"):
        answers = engine.around_run(list(by_kind.values()))
    around = {}
    for kind, (known, lost) in zip(by_kind, answers, strict=True):
        around[kind] = known
        command.warn(*lost)
    with contextlib.ExitStack() as stack:
        opened = []
        for folder in folders:
            chosen, machines = folder.chosen, folder.roster.machines
            of_node = {place.share.node: around[place.kind] for place in folder.roster.places}
            about = {
                name: {"machine": node.machine, "interpreters": node.interpreters, **of_node[name]}
                for name, node in machines.items()
            }
            if chosen.new:
                first = next(iter(about.values()))
                manifest = {"plan": chosen.plan.to_json(), **first, "started_at": command.now()}
                sink = stack.enter_context(Store.create(chosen.folder, manifest))
            else:
                sink = stack.enter_context(Store(chosen.folder))
            sink.append_nodes([{"node": name, **line} for name, line in about.items()])
            opened.append((folder, Part(chosen.plan, sink, folder.kind)))
        yield opened


def _measure(
    engine: RayEngine,
    folders: Sequence[Folder],
    missing: Mapping[str, str],
    budget_s: float | None,
) -> int:
    """Measure, show, say what to type next; the exit code."""
    with held():
        from lstm_bench.analysis import results
        from lstm_bench.features.cluster import cluster

    places = [place for folder in folders for place in folder.roster.places]
    engine.use(list(dict.fromkeys(places)), missing)
    stop = Stop(common.tell, "stopping; the shapes at hand are measured again by --resume")
    kept = "what was finished is kept"
    try:
        with _opened(engine, folders) as opened, stop, common.progress() as progress:
            work = [job for folder, part in opened for job in _jobs(folder, part)]
            outcome = cluster.run(engine, work, progress, stop, budget_s)
            for folder, part in opened:
                machine = next(iter(folder.roster.machines.values())).machine
                part.sink.append_leg(command.leg(outcome, machine))
    except OSError as error:
        what = f"{folders[0].chosen.folder}: {error.strerror or error}"
        raise Stopped(f"{what}; {kept}. Mend it, then `{folders[0].again}`") from None
    statuses = set()
    for folder in folders:
        run = results.load(folder.chosen.folder)
        own = dataclasses.replace(outcome, left=run.left)
        at = folder.chosen.folder
        statuses |= command.tell(run, at, own, len(folder.cells), folder.again)
    if len(folders) > 1:
        names = " ".join(folder.chosen.folder.name for folder in folders)
        click.echo(f"      lstm-bench compare {names}")
    if outcome.interrupted:
        return stop.exit_code
    if outcome.stopped:
        raise Stopped(f"{outcome.stopped}; {kept}. Then `{folders[0].again}`")
    return command.exit_code(statuses)


def _jobs(folder: Folder, part: Part) -> list[Job]:
    from lstm_bench.features.cluster import cluster

    finished = {r.key for r in folder.chosen.records if r.status == "ok"}
    return cluster.jobs(part, folder.cells, finished, folder.kinds)


def _again(address: str, chosen: Chosen, options: RunOptions) -> str:
    from lstm_bench.runs import run_folders

    flags = ["--ray", *([address] if address else [])]
    flags += ["--skip-missing"] * options.skip_missing + ["--retry-failed"] * options.retry_failed
    return run_folders.resume_command(chosen.folder, chosen.plan.environments, *flags)
