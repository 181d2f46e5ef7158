"""What is looked at before a run may write anything: names, interpreters, frameworks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lstm_bench import supervisor
from lstm_bench.grid import check_environment
from lstm_bench.model import LstmBenchError
from lstm_bench.plan import Plan
from lstm_bench.registry import Framework, framework_of


def run_name(name: str) -> str:
    """A run's name, which becomes a folder's."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise LstmBenchError(
            f"--run: found {name!r}, expected a name of letters, digits, '.', '-' and '_'"
        )
    return name


def environments(pythons: Iterable[str]) -> dict[str, str]:
    """The interpreters that `--python FRAMEWORK=PATH` names."""
    found = {}
    for entry in pythons:
        name, equals, path = entry.partition("=")
        if not equals or not path:
            raise LstmBenchError(
                f"--python: found {entry!r}, expected FRAMEWORK=PATH such as"
                " tensorflow=.venv-tensorflow/bin/python"
            )
        check_environment(name, path, "--python")
        found[name] = str(Path(path).expanduser())
    return found


def interpreters(plan: Plan) -> dict[str, dict[str, Any]]:
    """Each framework's interpreter and versions, for the manifest."""
    found = {}
    for framework in _frameworks(plan):
        answer = _probe(plan, framework)
        found[framework.name] = {"python": answer["python"], "versions": answer["versions"]}
    return found


def missing(plan: Plan, skip: bool) -> dict[str, str]:
    """Frameworks that their interpreter lacks: an error, or with `skip` their cells' reason."""
    found = {}
    for framework in _frameworks(plan):
        lacks = _probe(plan, framework)["missing"]
        if lacks:
            python = supervisor.interpreter(framework.name, plan.environments)
            found[framework.name] = f"{python} has no {', '.join(lacks)}: {framework.install}"
    if found and not skip:
        name, reason = next(iter(found.items()))
        raise LstmBenchError(
            f"{name}: {reason}\n"
            "or go without: --skip-missing, or name what is here with --implementations"
        )
    return found


def _frameworks(plan: Plan) -> list[Framework]:
    return list(
        {framework_of(row).name: framework_of(row) for row in plan.implementations}.values()
    )


def _probe(plan: Plan, framework: Framework) -> dict[str, Any]:
    return supervisor.probe(supervisor.interpreter(framework.name, plan.environments), framework)
