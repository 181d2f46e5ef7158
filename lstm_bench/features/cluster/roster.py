"""The nodes of a cluster that may measure a grid, and what is wrong with all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lstm_bench import __version__
from lstm_bench.features.cluster.cluster import Place
from lstm_bench.features.cluster.node import Examined, NodeShare
from lstm_bench.model.errors import LstmBenchError
from lstm_bench.model.types import Record, Shape
from lstm_bench.model.units import counted
from lstm_bench.runs.nodes import Kind, Node, kind_of, kind_of_node
from lstm_bench.runs.plan import Plan


@dataclass(frozen=True)
class ClusterNode:
    """A node as the engine knows it."""

    id: str
    name: str
    cpus: float
    gpus: int


@dataclass
class Roster:
    """The places to measure at, and the machines behind them."""

    places: list[Place] = field(default_factory=list)
    machines: dict[str, Examined] = field(default_factory=dict)  # by node
    missing: dict[str, str] = field(default_factory=dict)  # frameworks that some node lacks
    idle: list[str] = field(default_factory=list)  # nodes without such a device

    @property
    def kinds(self) -> list[Kind]:
        return sorted({place.kind for place in self.places})

    def only(self, kinds: Iterable[Kind]) -> Roster:
        """The places of these kinds."""
        kept = [place for place in self.places if place.kind in kinds]
        nodes = {place.share.node for place in kept}
        others = sorted({place.share.node for place in self.places} - nodes)
        machines = {name: machine for name, machine in self.machines.items() if name in nodes}
        return replace(self, places=kept, machines=machines, idle=[*self.idle, *others])

    def lines(self) -> list[str]:
        """The nodes of each kind."""
        lines = []
        for kind in self.kinds:
            names = list(dict.fromkeys(p.share.node for p in self.places if p.kind == kind))
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            lines.append(f"{kind.label}: {', '.join(names[:8])}{more}")
        return lines


def roster(
    nodes: Sequence[ClusterNode],
    examined: Mapping[str, Examined | str],
    plan: Plan,
    skip_missing: bool = False,
    each_its_own: bool = False,
    remedy: str = "",
) -> Roster:
    """The places of a cluster; `each_its_own`: a node with a GPU measures there, others on the CPU.

    A node that cannot measure the grid stops the run before it begins, as a framework does that is
    not installed: a grid must not silently be measured elsewhere than was meant.
    """
    chosen, faults = Roster(), {}
    for node in nodes:
        answer = examined[node.name]
        device = plan.settings.device
        if each_its_own:
            device = "cuda" if node.gpus else "cpu"
        if device == "cuda" and not node.gpus:
            chosen.idle.append(node.name)
            continue
        if wrong := _faults(answer, node, device, skip_missing):
            faults[node.name] = wrong
        elif isinstance(answer, Examined):
            chosen.places += _places(node, answer, plan, device)
            chosen.machines[node.name] = answer
            chosen.missing |= answer.missing
    for name, wrong in _unlike_versions(chosen).items():
        faults.setdefault(name, []).extend(wrong)
    if faults:
        lines = [f"  {name}: {fault}" for name, wrong in faults.items() for fault in wrong]
        share = f"{len(faults)} of {counted(len(nodes), 'node')}"
        raise LstmBenchError("\n".join([f"{share} cannot measure this grid:", *lines]) + remedy)
    if not chosen.places:
        raise LstmBenchError(
            f"--ray: found {counted(len(nodes), 'node')}, none with a GPU and a CPU; expected some"
            " for --device cuda; use --device cpu, or add nodes with `ray start --address`"
        )
    return chosen


def _faults(
    answer: Examined | str, node: ClusterNode, device: str, skip_missing: bool
) -> list[str]:
    if isinstance(answer, str):
        return [answer]
    wrong = list(answer.faults)
    version = answer.machine.get("lstm_bench")
    if version != __version__:
        wrong.append(f"lstm-bench {version} in {answer.python}, expected {__version__} as here")
    gpus = {(gpu.get("name"), gpu.get("driver")) for gpu in answer.machine.get("gpus") or []}
    if device == "cuda" and not gpus:
        wrong.append(f"Ray counts {counted(node.gpus, 'GPU')}, the driver shows none there")
    if device == "cuda" and len(gpus) > 1:
        names = ", ".join(sorted(str(name) for name, _ in gpus))
        wrong.append(
            f"unlike GPUs ({names}); start a Ray node for each kind, with CUDA_VISIBLE_DEVICES"
        )
    if not skip_missing:
        wrong += [f"{name}: {reason}" for name, reason in answer.missing.items()]
    return wrong


def _places(node: ClusterNode, answer: Examined, plan: Plan, device: str) -> list[Place]:
    """All of a node's CPUs, or each of its GPUs with its share of them."""
    shares = node.gpus if device == "cuda" else 1
    threads = max(1, int(answer.machine["threads"]) // shares)
    settings = replace(plan.settings, device=device)
    if plan.all_threads:
        settings = replace(settings, threads=threads)
    kind = kind_of(answer.machine, settings)
    cpus = node.cpus if device == "cpu" else max(1, node.cpus // shares)
    return [
        Place(node.id, NodeShare(node.name, number, shares), kind, settings.threads, cpus)
        for number in range(shares)
    ]


def _unlike_versions(chosen: Roster) -> dict[str, list[str]]:
    """Nodes of one kind whose frameworks are not of one version."""
    faults: dict[str, list[str]] = {}
    first: dict[tuple[Kind, str], tuple[str, Any]] = {}
    for place in chosen.places:
        name = place.share.node
        for framework, answer in chosen.machines[name].interpreters.items():
            versions = answer.get("versions")
            known = first.setdefault((place.kind, framework), (name, versions))
            if versions != known[1] and place.share.number == 0:
                line = f"{framework}: {versions}, expected {known[1]} as on {known[0]}"
                faults.setdefault(name, []).append(line)
    return faults


def known_kinds(
    manifest: Mapping[str, Any], nodes: Mapping[str, Node], plan: Plan
) -> dict[Kind, dict[str, Any]]:
    """The kinds that a run was measured on, each with its interpreters."""
    if not nodes:
        kind = kind_of(manifest["machine"], plan.settings)
        return {kind: dict(manifest.get("interpreters") or {})}
    return {kind_of_node(node, plan): node.interpreters for node in nodes.values()}


def resumed(nodes: Roster, known: Mapping[Kind, Mapping[str, Any]], where: str) -> Roster:
    """The places that may go on with a run: of its kinds, with its versions."""
    kept = nodes.only(known)
    if not kept.places:
        then = "; ".join(kind.label for kind in known)
        now = "; ".join(kind.label for kind in nodes.kinds)
        raise LstmBenchError(
            f"{where} was measured on {then}; expected such a node, found {now}; start a new run"
            " without --resume"
        )
    changes = []
    for place in kept.places:
        for framework, answer in kept.machines[place.share.node].interpreters.items():
            before = known[place.kind].get(framework, {}).get("versions")
            if before and answer.get("versions") and answer["versions"] != before:
                node = place.share.node
                changes.append(f"{node}: {framework}: {before} then, {answer['versions']} now")
    if changes:
        raise LstmBenchError(
            f"{where} was started in other circumstances ({'; '.join(dict.fromkeys(changes))});"
            " start a new run without --resume"
        )
    return kept


def measured_on(
    records: Iterable[Record], nodes: Mapping[str, Node], plan: Plan, otherwise: Kind
) -> dict[Shape, Kind]:
    """The kind of device that the times of each shape are from."""
    kinds = {name: kind_of_node(node, plan) for name, node in nodes.items()}
    return {r.shape: kinds.get(r.node, otherwise) for r in records if r.status == "ok"}
