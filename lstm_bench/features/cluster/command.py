"""The options of `lstm-bench grid --ray`: the same grid over the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from lstm_bench.commands.options import Added, file
from lstm_bench.driver.signals import held

if TYPE_CHECKING:
    from lstm_bench.runs.choice import RunOptions


def grid(options: RunOptions, given: Mapping[str, Any]) -> int | None:
    """Measure on all nodes of a cluster; None without `--ray`."""
    if given["ray"] is None:
        if given["per_device"] or given["runtime_env"]:
            raise click.UsageError("--per-device and --runtime-env go with --ray")
        return None
    if options.shard:
        raise click.UsageError("--shard is for those without --ray, which divides a grid itself")
    with held():
        from lstm_bench.features.cluster import launch
    return launch.grid(options, given["ray"], given["per_device"], given["runtime_env"])


GRID = Added(
    (
        click.option(
            "--ray",
            is_flag=False,
            flag_value="",
            metavar="[ADDRESS]",
            help="Spread the shapes over a Ray cluster; without an address, over the GPUs of"
            " this machine.",
        ),
        click.option(
            "--per-device",
            is_flag=True,
            help="With --ray: measure the whole grid on every kind of device.",
        ),
        file("--runtime-env", "With --ray: Ray's runtime_env for all nodes, as YAML or JSON."),
    ),
    grid,
    word="ray",
)
