"""Join the runs of parts of a grid into one run; runs that do not fit are refused.

Lines are copied as they are. If a merge is interrupted, the next one adds the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from lstm_bench.model.types import LstmBenchError, Record, to_json
from lstm_bench.runs import nodes, store
from lstm_bench.runs.nodes import Kind, Node
from lstm_bench.runs.plan import Plan
from lstm_bench.runs.run_folders import name_of


@dataclass(frozen=True)
class SourceRun:
    """A run that is to be merged."""

    folder: Path
    manifest: Mapping[str, Any]
    plan: Plan
    nodes: Mapping[str, Node]

    @property
    def kinds(self) -> set[Kind]:
        if self.nodes:
            return {nodes.kind_of_node(node, self.plan) for node in self.nodes.values()}
        return {nodes.kind_of(self.manifest["machine"], self.plan.settings)}


def read(folder: Path) -> SourceRun:
    manifest = store.read_manifest(folder)
    plan = Plan.from_json(manifest["plan"], str(folder))
    return SourceRun(folder, manifest, plan, nodes.read(folder))


def merge(sources: Sequence[SourceRun], into: Path, mixed: bool = False) -> tuple[int, int]:
    """Add to `into` what it lacks; return the number of records added, and of all its records."""
    there = (into / "manifest.json").exists()
    _check([*([read(into)] if there else []), *sources], mixed)
    lines = [_signed(source, mixed) for source in sources]
    merged = [(record.key, line) for record, line in _records(into)]
    _check_cells([into, *(source.folder for source in sources)], [merged, *lines])
    with _target(sources[0], into, there) as target:
        for name in ("samples.jsonl", "profiles.jsonl", "legs.jsonl"):
            _add(target, name, [store.read_lines(source.folder, name) for source in sources])
        _add(
            target, "nodes.jsonl", [map(msgspec.json.encode, _nodes_of(s, mixed)) for s in sources]
        )
        added = _add(target, "records.jsonl", [[line for _, line in own] for own in lines])
    return added, len(store.read_lines(into, "records.jsonl"))


def _check(sources: Sequence[SourceRun], mixed: bool) -> None:
    """Refuse runs of other grids, versions or devices than the first."""
    first = sources[0]
    for other in sources[1:]:
        mine, theirs = _facts(first, mixed), _facts(other, mixed)
        unlike = [
            f"{what}: {theirs[what]}, expected {mine[what]}"
            for what in mine
            if what in theirs and mine[what] != theirs[what]
        ]
        if not _whole(first.plan, mixed).same_work(_whole(other.plan, mixed)):
            unlike.insert(0, f"grid: another plan ({other.plan.name})")
        if unlike:
            remedy = "--mixed merges runs of unlike devices, and reports show them apart"
            raise LstmBenchError(
                f"{other.folder} does not belong to {first.folder}: {unlike[0]}; {remedy}"
            )


def _facts(run: SourceRun, mixed: bool) -> dict[str, str]:
    """Return the facts that must be the same in runs that are merged."""
    facts = {
        "frameworks that were missing": ", ".join(run.plan.absent) or "nothing",
        "version of lstm-bench": str(run.manifest["machine"].get("lstm_bench")),
    }
    if not mixed:
        facts["device"] = "; ".join(sorted(kind.label for kind in run.kinds))
        for framework, its in (run.manifest.get("interpreters") or {}).items():
            facts[f"version of {framework}"] = str(its.get("versions"))
    return facts


def _whole(plan: Plan, mixed: bool) -> Plan:
    """The plan of all parts; with `mixed`, without the machine's device and threads."""
    plan = replace(plan, shard=None)
    if mixed:
        settings = replace(plan.settings, device="", threads=0)
        plan = replace(plan, settings=settings)
    return plan


def _records(folder: Path) -> Iterator[tuple[Record, bytes]]:
    """The records of a run that can be read, with their lines."""
    for line in store.read_lines(folder, "records.jsonl"):
        with contextlib.suppress(*store.UNREADABLE):
            yield _DECODER.decode(line), line


_DECODER = msgspec.json.Decoder(Record)
_Lines = list[tuple[str, bytes]]  # the key of a cell, and its record


def _signed(source: SourceRun, mixed: bool) -> _Lines:
    """The readable records of a run, with their keys, as the merged run has them: with a node."""
    signed = []
    for record, line in _records(source.folder):
        node = _node_name(source, record.node, mixed)
        if node != record.node:
            line = msgspec.json.encode({**msgspec.json.decode(line), "node": node})
        signed.append((record.key, line))
    return signed


def _node_name(source: SourceRun, node: str, mixed: bool) -> str:
    """The name of a node in the merged run; with `mixed` a host may have several GPUs."""
    run = name_of(source.folder)
    return f"{run}:{node}" if mixed and node else node or run


def _nodes_of(source: SourceRun, mixed: bool) -> list[Node]:
    """The nodes of a run; a run on one machine is one node."""
    data = source.manifest
    own = (dict(data["machine"]), dict(data.get("interpreters") or {}), store.limits_of(data))
    nodes = list(source.nodes.values()) or [Node("", *own)]
    return [msgspec.structs.replace(n, node=_node_name(source, n.node, mixed)) for n in nodes]


def _check_cells(folders: Sequence[Path], lines: Sequence[_Lines]) -> None:
    """Refuse cells that two runs measured differently; a run may have gone on since a merge."""
    seen: dict[str, tuple[bytes, Path]] = {}
    for folder, own in zip(folders, lines, strict=True):
        known = {line for _, line in own}
        for key, line in dict(own).items():
            before, other = seen.setdefault(key, (line, folder))
            if before not in known:
                raise LstmBenchError(
                    f"{folder} and {other} both measured {key}; expected runs of different parts,"
                    " such as --shard 1/2 and --shard 2/2, or another --run"
                )


def _target(first: SourceRun, into: Path, there: bool) -> store.Store:
    if there:
        return store.Store(into)
    plan = replace(first.plan, shard=None)
    manifest = {**first.manifest, "plan": to_json(plan)}
    manifest.pop("format", None)
    return store.Store.create(into, manifest)


def _add(target: store.Store, name: str, files: Iterable[Iterable[bytes]]) -> int:
    """Add the lines of these files that the target lacks; return how many."""
    known = set(store.read_lines(target.folder, name))
    new = [line for line in dict.fromkeys(chain(*files)) if line not in known]
    if new:
        target.append_lines(name, *new)
    return len(new)
