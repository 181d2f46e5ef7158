"""`lstm-bench doctor --limits`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from lstm_bench.commands import options


def _limits(given: Mapping[str, Any]) -> bool:
    """Measure and show what this machine can do at best, if that is asked for."""
    from lstm_bench.driver import machine, preflight
    from lstm_bench.features.limits import measure, report

    threads, form, output = (given[name] for name in ("threads", "form", "output"))
    if not given["limits"]:
        if threads or form or output:
            raise click.UsageError("--threads, --format and --output go with --limits")
        return False
    pythons, where = preflight.environments(given["pythons"]), options.device_for(given["device"])
    with options.alone(where), options.busy("measuring"):
        limits = measure.measure(pythons, where, threads or machine.threads())
    options.write(report.document(limits), form, output)
    return True


_FLAG = click.option(
    "--limits", is_flag=True, help="Only measure what this machine can do at best, in seconds."
)
DOCTOR = options.Added((_FLAG, options.threads, options.writing), _limits)
