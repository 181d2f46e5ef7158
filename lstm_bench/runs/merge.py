"""Join the runs of parts of a grid into one run; runs that do not fit are refused.

Lines are copied as they are. If a merge is interrupted, the next one adds the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from lstm_bench.model.types import LstmBenchError, Record, to_json
from lstm_bench.model.units import counted
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
    _check(sources, mixed)
    there = into / "manifest.json"
    if there.exists():
        _check([read(into), *sources], mixed)
    lines = [_signed(source, mixed) for source in sources]
    _check_cells(sources, lines)
    with _target(sources[0], into, there.exists()) as target:
        _check_target(into, sources, lines)
        for name in ("samples.jsonl", "profiles.jsonl"):
            _add(target, name, [store.read_lines(s.folder, name) for s in sources])
        _add(target, "nodes.jsonl", [map(_node_line, _nodes_of(s, mixed)) for s in sources])
        _add(target, "legs.jsonl", [store.read_lines(s.folder, "legs.jsonl") for s in sources])
        added = _add(target, "records.jsonl", [[line for _, line in own] for own in lines])
    return added, len(store.read_lines(into, "records.jsonl"))


def _check(sources: Sequence[SourceRun], mixed: bool) -> None:
    """Refuse runs of other grids, versions or devices than the first."""
    first = sources[0]
    for other in sources[1:]:
        for what, mine, theirs in _unlike(first, other, mixed):
            raise LstmBenchError(
                f"{other.folder} does not belong to {first.folder}: {what}: {theirs}, expected"
                f" {mine}" + (_DEVICES if what == "device" else "")
            )


_DEVICES = "; --mixed merges all the same, and reports show the kinds of device apart"


def _unlike(first: SourceRun, other: SourceRun, mixed: bool) -> Iterable[tuple[str, str, str]]:
    mine, theirs = (_whole(source.plan, mixed) for source in (first, other))
    if not mine.same_work(theirs):
        yield "grid", f"the plan of {first.plan.name}", f"another plan ({other.plan.name})"
    absent = [", ".join(s.plan.absent) or "nothing" for s in (first, other)]
    versions = [str(s.manifest["machine"].get("lstm_bench")) for s in (first, other)]
    devices = ["; ".join(sorted(kind.label for kind in s.kinds)) for s in (first, other)]
    compared = {"frameworks that were missing": absent, "version of lstm-bench": versions}
    if not mixed:
        compared["device"] = devices
        ours, their = (s.manifest.get("interpreters") or {} for s in (first, other))
        for framework in ours.keys() & their.keys():
            known = [str(each[framework].get("versions")) for each in (ours, their)]
            compared[f"version of {framework}"] = known
    for what, (a, b) in compared.items():
        if a != b:
            yield what, a, b


def _whole(plan: Plan, mixed: bool) -> Plan:
    """The plan of all parts; with `mixed`, without the machine's device and threads."""
    plan = replace(plan, shard=None)
    if mixed:
        settings = replace(plan.settings, device="", threads=0)
        plan = replace(plan, settings=settings)
    return plan


def _read(line: bytes) -> Record | None:
    try:
        return _DECODER.decode(line)
    except store.UNREADABLE:
        return None


_DECODER = msgspec.json.Decoder(Record)
_Lines = list[tuple[str, bytes]]  # the key of a cell, and its record


def _signed(source: SourceRun, mixed: bool) -> _Lines:
    """The readable records of a run, with their keys, as the merged run has them: with a node."""
    signed = []
    for line in store.read_lines(source.folder, "records.jsonl"):
        if record := _read(line):
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


def _node_line(node: Node) -> bytes:
    limits = node.limits.to_json() if node.limits else None
    return msgspec.json.encode({**msgspec.structs.asdict(node), "limits": limits})


def _check_cells(
    sources: Sequence[SourceRun], lines: Sequence[Sequence[tuple[str, bytes]]]
) -> None:
    """Refuse cells that two runs measured differently."""
    seen: dict[str, tuple[bytes, Path]] = {}
    for source, own in zip(sources, lines, strict=True):
        for key, line in dict(own).items():
            before = seen.setdefault(key, (line, source.folder))
            if before[0] != line:
                raise LstmBenchError(
                    f"{source.folder} and {before[1]} both measured {key}; expected runs of"
                    " different parts, such as --shard 1/2 and --shard 2/2"
                )


def _check_target(into: Path, sources: Sequence[SourceRun], lines: Sequence[_Lines]) -> None:
    """Refuse to replace merged cells by those of another run."""
    read = ((_read(line), line) for line in store.read_lines(into, "records.jsonl"))
    merged = {record.key: line for record, line in read if record}
    for source, own in zip(sources, lines, strict=True):
        known = {line for _, line in own}
        for key in dict(own):
            if key in merged and merged[key] not in known:
                raise LstmBenchError(
                    f"{into} has {key} already, from another run than {source.folder}; expected"
                    " parts of one grid; merge into another --run"
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
        target.append_lines(name, new)
    return len(new)


def summary(added: int, whole: int, into: Path) -> str:
    """Say in a line what a merge did."""
    new = f"{counted(added, 'record')} added" if added else "nothing new"
    return f"{into}: {new}, {counted(whole, 'record')} in all"
