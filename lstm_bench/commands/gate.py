"""`lstm-bench gate`: whether a new run may pass, for CI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstm_bench.commands import options
from lstm_bench.commands.compare import ACROSS
from lstm_bench.model.errors import DONE, GATED, LstmBenchError

if TYPE_CHECKING:
    from lstm_bench.analysis.results import Run
    from lstm_bench.model.types import Shape


@click.command()
@click.argument("base")
@click.argument("new", required=False)
@click.option(
    "-i", "--implementation", "names", multiple=True, metavar="ROW,...", help="Only these."
)
@click.option(
    "--as",
    "renamed",
    multiple=True,
    metavar="NEW=BASE",
    help="Hold this row of the new run against that one of the base; repeatable.",
)
@click.option(
    "--threshold",
    type=options.Share(),
    default="7%",
    show_default=True,
    help="What may pass as no slower.",
)
@click.option("--strict", is_flag=True, help="Fail also where it is unsure.")
@click.option(
    "--across",
    multiple=True,
    type=click.Choice(("versions", *ACROSS)),
    help="Compare although the two differ in this; repeatable.",
)
@options.results
@options.metric
@options.where
@options.shape("Only this shape; repeatable.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "github", "junit", "json", "csv", "latex"]),
    help="Default: table, or by FILE's name; .xml is junit.",
)
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write to a file.")
@click.option(
    "--update", is_flag=True, help="Where it passes, put the new run in the base's place."
)
@click.option("--force", is_flag=True, help="With --update: also where it fails.")
def gate(
    base: str,
    new: str | None,
    names: Sequence[str],
    renamed: Sequence[str],
    threshold: float,
    strict: bool,
    across: Sequence[str],
    results: Path,
    metric: str,
    conditions: Sequence[str],
    shape: Sequence[Shape],
    form: str | None,
    output: str | None,
    update: bool,
    force: bool,
) -> int:
    """Fail (exit code 3) where NEW is slower than BASE, takes more memory, is wrong or is missing.

    \b
      lstm-bench gate base new
      lstm-bench gate base new -i pytorch --threshold 5% --strict
      lstm-bench gate base new --across versions --format github --output summary.md
      lstm-bench gate base new --output junit.xml
      lstm-bench gate base new --update
      lstm-bench gate both                 of `grid --against`: pytorch against pytorch~old
      lstm-bench gate both --as pytorch-native=pytorch

    Slower is what exceeds the threshold and what chance and the luck of processes explain, at a
    shape or over all shapes of a row; memory must grow by the threshold and by 64 MiB. What is
    unsure passes and is listed, with the rounds or passes that would settle it. Unlike devices,
    drivers, versions, states or inputs are refused (exit code 2) unless --across names them.
    """
    from lstm_bench.analysis import gate as analysis
    from lstm_bench.model.shape_filter import one_of
    from lstm_bench.report import gate_report

    options.check_folder(output)
    first = options.load(results, base)
    second = first if new is None else options.load(results, new)
    second = first if analysis.same(first, second) else second
    if update:
        _check_update(first, second, [*names, *renamed, *conditions, *shape], force)
    rows = analysis.paired(first, second, _split(names), _split(renamed))
    for run in (first, second):
        options.check_shapes(run, shape)
    conditions = [*conditions, *one_of(shape)]
    found = analysis.gate(first, second, rows, threshold, metric, across, strict, conditions)
    in_turns = first is second
    differs = analysis.differences(first, second, rows)
    if form == "junit" or (not form and output and output.endswith(".xml")):
        written = gate_report.junit(found, differs, in_turns)
        options.write_file(Path(output), written + "\n") if output else click.echo(written)
    else:
        options.write(gate_report.document(found, differs, threshold, in_turns), form, output)
    if output:
        click.echo(gate_report.said(found), err=True)
    failed = bool(found["fails"].any())
    if update and first.folder and second.folder:
        _update(first.folder, second.folder, failed and not force)
    return GATED if failed else DONE


def _split(texts: Sequence[str]) -> list[str]:
    return [part for text in texts for part in text.split(",") if part]


def _check_update(base: Run, new: Run, part: Sequence[object], force: bool) -> None:
    if base is new:
        raise LstmBenchError("--update: found one run; expected two, `lstm-bench gate BASE NEW`")
    if part and not force:
        raise LstmBenchError(
            "--update replaces all of the base, but only a part is judged; leave out --as,"
            " -i, --where and --shape, or add --force"
        )


def _update(base: Path, new: Path, refused: bool) -> None:
    """Put a copy of the new run where the base is, which stays until the copy is complete."""
    if refused:
        click.echo(f"base not updated: {base} is as it was; --force replaces it", err=True)
        return
    place = base.resolve()
    fresh, old = (place.with_name(f".{place.name}.{what}.{os.getpid()}") for what in ("new", "old"))
    try:
        shutil.copytree(new, fresh, symlinks=True, ignore=shutil.ignore_patterns("lock"))
        place.rename(old)
        try:
            fresh.rename(place)
        except OSError:
            old.rename(place)
            raise
        shutil.rmtree(old)
    except OSError as error:
        raise options.cannot_write(base, error) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    click.echo(f"base updated: {base} now holds a copy of {new}", err=True)
