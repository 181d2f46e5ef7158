"""The nodes that measured a run, and the kind of device that each of them is.

Only cells of one kind are compared: the same GPU with the same driver behind the same processor,
or the same processor with as many threads.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from lstm_bench.model.limits import Limits
from lstm_bench.model.types import UNSEEN_GPU, Record, Settings
from lstm_bench.model.units import counted
from lstm_bench.runs import store
from lstm_bench.runs.plan import Plan


class Node(msgspec.Struct):
    """A line of `nodes.jsonl`; the last line of a node wins."""

    node: str
    machine: dict[str, Any]  # like that of a manifest
    interpreters: dict[str, dict[str, Any]] = {}
    limits: Limits | None = None

    def __post_init__(self) -> None:
        """Refuse a machine that no manifest could have."""
        msgspec.convert(self.machine, store.Machine, str_keys=True)


@dataclass(frozen=True, order=True)
class Kind:
    """The facts that must be equal for two cells to be compared."""

    device: str  # cpu or cuda
    gpu: str
    driver: str
    cpu: str
    threads: int  # 0 on a GPU, where the processor waits

    @property
    def name(self) -> str:
        return self.gpu if self.device == "cuda" else self.cpu

    @property
    def label(self) -> str:
        if self.device == "cuda":
            return f"{self.gpu}, driver {self.driver}, host {self.cpu}"
        return self.brief

    @property
    def brief(self) -> str:
        """The GPU, or the processor and its threads."""
        return self.gpu or f"{self.cpu}, {counted(self.threads, 'thread')}"


def kind_of(machine: Mapping[str, Any], settings: Settings) -> Kind:
    """The kind of a machine, as a manifest or a node describes it."""
    gpu = (machine.get("gpus") or [{}])[0]
    cpu = str(machine.get("cpu") or "unknown processor")
    if settings.device == "cuda":
        return Kind("cuda", gpu.get("name") or UNSEEN_GPU, str(gpu.get("driver") or "-"), cpu, 0)
    return Kind("cpu", "", "", cpu, settings.threads)


def kind_of_node(node: Node, plan: Plan) -> Kind:
    """The kind of a node, with all of its threads where the grid says so."""
    settings = plan.settings
    if plan.all_threads:
        settings = replace(settings, threads=int(node.machine.get("threads") or settings.threads))
    return kind_of(node.machine, settings)


def read(folder: Path) -> dict[str, Node]:
    """The nodes of a run by name; none of a run on one machine."""
    return {node.node: node for node in store.read_all(folder / "nodes.jsonl", Node) if node}


def here() -> str:
    """The name of this machine."""
    return platform.node() or "unnamed"


def sign(record: Record, node: str, machine: Mapping[str, Any]) -> None:
    """Note in a record where it was measured."""
    record.node, record.device_name = node, str(machine["cpu"])
    if record.device == "cuda" and machine["gpus"]:
        gpu = machine["gpus"][0]
        record.device_name, record.driver = str(gpu["name"]), str(gpu["driver"])
