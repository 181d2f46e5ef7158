"""Has a process measure what this machine can do at best."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

import msgspec

from lstm_bench.driver import worker_pool
from lstm_bench.model.errors import LstmBenchError
from lstm_bench.model.limits import Limits
from lstm_bench.model.units import clipped
from lstm_bench.runs.plan import Plan

TIMEOUT_S = 120.0  # the first time on a GPU compiles
_CODE = """
import json, sys
from lstm_bench.model.types import Unsupported
from lstm_bench.features.limits import in_worker as limits
try:
    answer = limits.measure(sys.argv[1], int(sys.argv[2])).to_json()
except Unsupported as reason:
    answer = str(reason)
print(json.dumps(answer))
"""


def measure(environments: Mapping[str, str], device: str, threads: int) -> Limits:
    """The constants, by the interpreter that holds the C++ baseline; an error says what lacks."""
    python = worker_pool.interpreter(
        "persistent" if device == "cuda" else "deepbench", environments
    )
    command = worker_pool.with_package(python, _CODE, device, str(threads))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise LstmBenchError(f"limits: {python}: took longer than {TIMEOUT_S:g} s") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise LstmBenchError(f"limits: {python}: {error}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise LstmBenchError(f"limits: {python}: {clipped(lines[-1], 300)}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    if isinstance(answer, str):
        raise LstmBenchError(f"limits: {answer}")
    return msgspec.convert(answer, Limits, str_keys=True)


def around_run(plan: Plan, manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    """The limits before a run, and on a CPU after it too: neighbours come and go meanwhile."""
    if all(row.framework.startswith("fake") for row in plan.implementations):
        return {}  # its clock is not this machine's
    settings, again = plan.settings, manifest is not None
    if again and (settings.device != "cpu" or not (manifest or {}).get("limits")):
        return {}
    try:
        limits = measure(plan.environments, settings.device, settings.threads)
    except LstmBenchError as error:
        why = f"{error}: the report will not say how far the limit is"
        raise LstmBenchError(why) from None
    return {"limits": limits.to_json()}
