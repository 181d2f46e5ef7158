"""Checks interpreters, frameworks and the machine before a run may write anything."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lstm_bench import features
from lstm_bench.driver import machine, worker_pool
from lstm_bench.frameworks import framework_of
from lstm_bench.model.framework import Framework
from lstm_bench.model.types import LstmBenchError
from lstm_bench.model.units import counted
from lstm_bench.runs.grid import check_environment
from lstm_bench.runs.plan import Plan


def environments(
    pythons: Iterable[str], option: str = "--python", version: str = ""
) -> dict[str, str]:
    """Parse the interpreters that `option` names, as FRAMEWORK=PATH or FRAMEWORK~VERSION=PATH.

    `version` is that of a framework without one.
    """
    paths: dict[str, str] = {}
    for entry in pythons:
        name, equals, path = entry.partition("=")
        if not path:
            empty = " without a path (is a variable of your shell empty?)" if equals else ""
            raise LstmBenchError(
                f"{option}: found {entry!r}{empty}, expected FRAMEWORK=PATH such as"
                " tensorflow=.venv-tensorflow/bin/python"
            )
        check_environment(name, path, option)
        name = f"{name}~{version}" if version and "~" not in name else name
        if name in paths:
            raise LstmBenchError(
                f"{option}: {name} stands twice; give each version a name, FRAMEWORK~NAME=PATH"
            )
        paths[name] = os.path.expanduser(path)  # a Path would lose the ./ that says where
    return paths


def _probed(plan: Plan) -> Iterator[tuple[Framework, str, dict[str, Any]]]:
    """Yield each framework of a plan, its interpreter, and what that has."""
    for framework in dict.fromkeys(map(framework_of, plan.implementations)):
        python = worker_pool.interpreter(framework.name, plan.environments)
        yield framework, python, worker_pool.probe(python, framework)


def interpreters(plan: Plan) -> dict[str, dict[str, Any]]:
    """Describe the interpreter and versions of each framework, for the manifest."""
    return {
        framework.name: {
            "python": answer["python"],
            "versions": answer["versions"],
            "path": python,
        }
        for framework, python, answer in _probed(plan)
    }


def missing(plan: Plan, skip: bool = False, remedy: str = "") -> dict[str, str]:
    """Frameworks that their interpreter lacks: an error, or with `skip` their cells' reason."""
    reasons = {
        framework.name: f"no {', '.join(answer['missing'])} in {python}: {framework.install}"
        for framework, python, answer in _probed(plan)
        if answer["missing"]
    }
    if reasons and not skip:
        text = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise LstmBenchError(text + remedy)
    return reasons


def device(plan: Plan) -> None:
    """Refuse a GPU run on a machine whose driver shows no GPU."""
    if plan.settings.device == "cuda" and not machine.has_gpu():
        raise LstmBenchError(
            "--device cuda: the driver shows no GPU here, expected one; use --device cpu, or look"
            " at `nvidia-smi` and CUDA_VISIBLE_DEVICES"
        )


def in_vain(plan: Plan) -> list[str]:
    """Warnings about what was asked for and cannot be had here."""
    lines = []
    if plan.energy and not plan.energy_where and plan.settings.device == "cpu":
        lines.append("energy: it is read from an NVIDIA GPU, and this run is on a CPU: none")
    if plan.settings.device == "cpu" and plan.settings.threads > machine.threads():
        lines.append(
            f"{plan.settings.threads} threads on {counted(machine.threads(), 'core')}: they take"
            " turns, and cells may be marked as disturbed"
        )
    return lines


def same_circumstances(manifest: Mapping[str, Any], plan: Plan, folder: Path) -> str:
    """Refuse to go on with a run on another machine or with other versions: one run, one truth.

    Returns a warning where the GPU is another board of the same kind.
    """
    machines = (machine.fingerprint(), manifest["machine"])
    gpus = [fingerprint.get("gpus") or [] for fingerprint in machines]
    kinds = [[{**gpu, "uuid": ""} for gpu in boards] for boards in gpus]
    facts: dict[str, list[Any]] = {
        "cpu": [fingerprint.get("cpu") for fingerprint in machines],
        "gpus": kinds,
    }
    changes = [
        f"{k}: {then!r} then, {now!r} now" for k, (now, then) in facts.items() if now != then
    ]
    versions = manifest.get("interpreters", {})
    for name, answer in interpreters(plan).items():
        before = versions.get(name, {}).get("versions") or answer["versions"]
        if answer["versions"] and answer["versions"] != before:
            changes.append(f"{name}: {before} then, {answer['versions']} now")
    if changes:
        raise LstmBenchError(
            f"{folder} was started in other circumstances ({'; '.join(changes)});"
            " start a new run without --resume"
        )
    now, then = (boards[0].get("uuid") if boards else "" for boards in gpus)
    if not now or not then or now == then:
        return ""
    return (
        "this run began on another GPU of the same kind, and its host may be another too: rows are"
        " held against each other at a shape, which is measured here or there as a whole"
    )


def around_run(
    plan: Plan, manifest: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Have features measure this machine around a run; return the results, and what went wrong.

    Door `around_run`: function(plan, manifest) gives keys for the manifest before the run, when
    there is none yet, and for its leg after it; an error says what the run goes on without.
    """
    measured: dict[str, Any] = {}
    lost = []
    for measure in features.behind("around_run"):
        try:
            measured |= measure(plan, manifest)
        except LstmBenchError as error:
            lost.append(str(error))
    return measured, lost
