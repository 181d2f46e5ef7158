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
    from lstm_bench.model.types import Shape


KEPT = ("manifest", "records", "nodes")  # the first base's files that its times are read from


@click.command()
@click.argument("base")
@click.argument("new", required=False)
@click.option(
    "-i", "--implementation", "names", multiple=True, metavar="ROW,...", help="Judge only these."
)
@click.option(
    "--as",
    "renamed",
    multiple=True,
    metavar="NEW=BASE",
    help="Compare row NEW of the new run with row BASE of the base; repeatable.",
)
@click.option(
    "--base",
    "bases",
    multiple=True,
    metavar="ROW",
    help="For one run with two versions: the base; repeatable.",
)
@options.threshold("The share up to which slower passes.")
@click.option("--strict", is_flag=True, help="Fail also if the gate is not decided.")
@options.across("versions", *ACROSS)
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
@options.output
@click.option(
    "--update", is_flag=True, help="If the gate passes, put the new run in the base's place."
)
@click.option(
    "--force",
    is_flag=True,
    help="With --update: whatever the verdict; without a pass, as the first base too.",
)
def gate(
    base: str,
    new: str | None,
    names: Sequence[str],
    renamed: Sequence[str],
    bases: Sequence[str],
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
      lstm-bench gate both                 of `grid --against`: pytorch~new, or ~old, ~base, ~other
      lstm-bench gate both --base pytorch~2.12
      lstm-bench gate both --as pytorch-native=pytorch

    A row is slower if the difference exceeds the threshold and all that chance and the luck of
    processes explain, at a shape or over all shapes; memory must grow by the threshold and by 64
    MiB. The first lines say which side is which. The gate passes if no cell is unsure; else it is
    not decided (exit code 0, with --strict 3) and lists what would settle it. It refuses unlike
    devices, drivers, versions, states or inputs (exit code 2) unless --across names them.
    """
    from lstm_bench.features.gate import report as gate_report
    from lstm_bench.features.gate import sides as gate_sides
    from lstm_bench.features.gate import verdicts as analysis
    from lstm_bench.model.shape_filter import one_of

    options.check_folder(output)
    first = options.load(results, base)
    second = first if new is None else options.load(results, new)
    second = first if gate_sides.same(first, second) else second
    if update:
        if first is second:
            raise LstmBenchError(
                "--update: found one run; expected two, `lstm-bench gate BASE NEW`"
            )
        if (names or renamed or conditions or shape) and not force:
            raise LstmBenchError(
                "--update replaces all of the base, but only a part is judged; leave out --as,"
                " -i, --where, --pass and --shape, or add --force"
            )
    rows = gate_sides.paired(first, second, _split(names), _split(renamed), bases)
    for run in (first, second):
        options.check_shapes(run, shape)
    conditions = [*conditions, *one_of(shape)]
    verdicts = analysis.gate(first, second, rows, threshold, metric, across, strict, conditions)
    measured_first = verdicts.attrs.get("first", "")
    compared = gate_sides.Sides.compared(first, second, rows, measured_first)
    if form == "junit" or (not form and output and output.endswith(".xml")):
        written = gate_report.junit(verdicts, compared)
        options.write_file(Path(output), written + "\n") if output else click.echo(written)
    else:
        options.write(gate_report.document(verdicts, compared, threshold), form, output)
    if output:
        click.echo(gate_report.verdict(verdicts), err=True)
    failed, decided = bool(verdicts["fails"].any()), not verdicts["undecided"].any()
    if update and first.folder and second.folder:
        if force or (decided and not failed):
            accepted = failed or not decided or {*across} - {"versions"}
            _update(first.folder, second.folder, anew=bool(accepted))
        else:
            why = "the new run is worse" if failed else "it is not decided"
            kept = f"{first.folder} is as it was, as {why}"
            click.echo(f"base not updated: {kept}; --force replaces it", err=True)
    return GATED if failed else DONE


def _split(texts: Sequence[str]) -> list[str]:
    return [part for text in texts for part in text.split(",") if part]


def _update(base: Path, new: Path, anew: bool) -> None:
    """Put a copy of the new run where the base is, which stays until the copy is complete.

    The copy keeps the times of the first base, so that small slowdowns add up; unless `anew`.
    """
    from lstm_bench.features.gate.verdicts import FIRST

    place = base.resolve()
    fresh, old = (place.with_name(f".{place.name}.{what}.{os.getpid()}") for what in ("new", "old"))
    try:
        shutil.copytree(new, fresh, symlinks=True, ignore=shutil.ignore_patterns("lock", FIRST))
        if not anew:
            first = base / FIRST if (base / FIRST).is_dir() else base
            (fresh / FIRST).mkdir()
            for path in first.glob("*.json*"):
                if path.name.startswith(KEPT):
                    shutil.copy(path, fresh / FIRST, follow_symlinks=False)
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
