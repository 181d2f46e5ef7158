"""`lstm-bench merge`: the parts of a grid, measured by several jobs, as one run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from lstm_bench.commands import options
from lstm_bench.model.errors import LstmBenchError
from lstm_bench.model.units import counted


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--run", "run_name", metavar="NAME", help="Name the merged run; default: its shards'."
)
@click.option("--mixed", is_flag=True, help="Merge runs of unlike devices too.")
@options.results
def merge(runs: Sequence[str], run_name: str | None, mixed: bool, results: Path) -> None:
    """Join runs of parts of one grid into one run; merge again to add later parts.

    \b
      lstm-bench grid paper --run paper --shard 1/2     on one machine
      lstm-bench grid paper --run paper --shard 2/2     on another
      lstm-bench merge results/paper-shard-*            into the run paper

    It refuses runs of another grid, version or device, and two that measured the same cell.
    The runs stay as they are and keep the logs of their workers.
    """
    from lstm_bench.runs import choice, run_folders
    from lstm_bench.runs import merge as merging

    folders = [run_folders.find_run(results, name) for name in runs]
    name = choice.run_name(run_name) if run_name else _common(folders)
    into = results / name
    if into.resolve() in [folder.resolve() for folder in folders]:
        raise LstmBenchError(f"--run {name}: is one of the runs; expected a name of its own")
    sources = [merging.read(folder) for folder in folders]
    try:
        added, whole = merging.merge(sources, into, mixed)
    except OSError as error:
        raise options.cannot_write(into, error) from None
    new = f"{counted(added, 'record')} added" if added else "nothing new"
    click.echo(f"{into}: {new}, {counted(whole, 'record')} in all")
    shards = {source.plan.shard for source in sources if source.plan.shard}
    parts = max((shard[1] for shard in shards), default=0)
    lacking = [f"{n}/{parts}" for n in range(1, parts + 1) if (n, parts) not in shards]
    if lacking and added:
        click.echo(f"! not among them: --shard {', '.join(lacking)}", err=True)
    this = ["--run", name, *run_folders.elsewhere(into)]
    click.echo(f"Next: lstm-bench report {' '.join(this)}")


def _common(folders: Sequence[Path]) -> str:
    """The name that the runs of shards have in common."""
    names = {re.sub(r"-shard-\d+-of-\d+$", "", folder.resolve().name) for folder in folders}
    own = {folder.resolve().name for folder in folders}
    if len(names) != 1 or names & own:
        raise LstmBenchError(
            "merge: the runs have no name in common but for -shard-N-of-OF; name the merged run"
            " with --run NAME"
        )
    return names.pop()
