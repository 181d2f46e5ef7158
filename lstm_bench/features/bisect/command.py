"""`lstm-bench bisect`: the first of some versions that is slower."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lstm_bench.commands import options
from lstm_bench.model.errors import DONE, FAILED, LstmBenchError, Stopped

if TYPE_CHECKING:
    from lstm_bench.analysis.results import Run
    from lstm_bench.features.bisect.search import Bisection
    from lstm_bench.model.types import Shape
    from lstm_bench.runs.plan import Plan

PASSES = 2  # at least: how two processes of one version differ must show
MOST_CONTROLS = 100  # at a shape, as in a grid file


@click.command()
@click.argument("implementation")
@click.argument("versions", nargs=-1, required=True, metavar="VERSION[=PYTHON]...")
@click.option(
    "--make",
    metavar="PROGRAM",
    help="A program that makes {version} and prints the path of its interpreter last.",
)
@click.option(
    "--grid",
    "grid_file",
    default="default",
    metavar="GRID",
    show_default=True,
    help="The shapes and settings.",
)
@options.shape("Measure this shape instead of the grid's; repeatable.")
@options.device
@options.threads
@options.threshold("The least slowdown to search for, 7% or 0.07.")
@options.metric
@options.results
@click.option(
    "--resume", metavar="NAME", help="Go on with a search that was cut short and printed NAME."
)
@options.writing
def bisect(
    implementation: str,
    versions: Sequence[str],
    make: str | None,
    grid_file: str,
    shape: Sequence[Shape],
    device: str | None,
    threads: int | None,
    threshold: float,
    metric: str,
    results: Path,
    resume: str | None,
    form: str | None,
    output: str | None,
) -> None:
    """Find the first version of a framework that is slower.

    Give the VERSIONs in order, the oldest first. Each is measured in turns with the first one;
    the search takes about log2 of their number steps, then measures the border again.

    \b
      lstm-bench bisect pytorch 2.9=env-2.9/bin/python 2.10=env-2.10/bin/python 2.11=...
      lstm-bench bisect pytorch 2.9.0 2.10.0 2.11.0 --make './make.sh {version}' --shape 512,1,25

    VERSION is any name, such as that of a commit that PROGRAM builds. Every measurement is kept as
    a run of its own. Exit code: 0 the version was found, or nothing is slower; 1 not sure, or the
    search could not go on; 2 wrong usage.
    """
    from lstm_bench.features.bisect import report as bisect_report

    options.check_folder(output)
    pythons = _listed(versions)
    planned = plan(implementation, grid_file, shape, device, threads)
    check(planned, pythons, make)
    python_of = functools.cache(lambda version: pythons[version] or _made(str(make), version))
    if resume and not (results / f"{resume}-1" / "manifest.json").exists():
        raise LstmBenchError(
            f"--resume: found no {resume}-1 in {results}, expected a search's name"
        )
    search, runs = searched(planned, list(pythons), python_of, metric, results, threshold, resume)
    document = bisect_report.document(search, implementation, metric, runs, threshold)
    options.write(document, form, output)
    sys.exit(FAILED if search.doubts else DONE)


def searched(
    plan: Plan,
    versions: Sequence[str],
    python_of: Callable[[str], str],
    metric: str = "latency",
    results: Path = Path("results"),
    threshold: float = 0.07,
    resume: str | None = None,
) -> tuple[Bisection, list[str]]:
    """The search, and the run of each of its steps; the plan has the one row of interest.

    What a search by the name `resume` measured is taken as it is: it leads the same way again.
    """
    from lstm_bench.analysis import comparison
    from lstm_bench.features.bisect import search as bisection
    from lstm_bench.runs import run_folders

    (row,) = plan.implementations
    begun = resume or run_folders.new_run_name(results, f"bisect-{row.framework}")
    runs: list[str] = []

    def measure(a: str, b: str, attempt: int) -> comparison.Comparison:
        step = _pair(plan, {version: python_of(version) for version in (a, b)}, attempt)
        runs.append(f"{begun}-{len(runs) + 1}")
        again = f", again with {step.passes} passes" if attempt > 1 else ""
        click.echo(f"{runs[-1]}: {b} against {a}{again}", err=True)
        run = _measured(step, results / runs[-1])
        first, second = (row.name for row in step.implementations)
        for name, cells in run.cells.groupby("implementation", sort=False):
            if not (cells["status"] == "ok").any():
                why = "; ".join(dict.fromkeys(cells["status"] + ": " + cells["reason"]))
                raise Stopped(f"{name} could not be measured: {why}; leave that version out")
        floors = [run.floors(metric)]
        return comparison.compare(run.cells, first, second, metric, across=None, floors=floors)

    return bisection.search(versions, measure, threshold), runs


def _listed(versions: Sequence[str]) -> dict[str, str]:
    """The interpreter of each version; none where it is still to be made."""
    pythons: dict[str, str] = {}
    for entry in versions:
        version, _, python = entry.partition("=")
        if version in pythons:
            raise LstmBenchError(f"VERSION: {version} stands twice, expected each once")
        pythons[version] = os.path.expanduser(python)
    return pythons


def check(planned: Plan, pythons: Mapping[str, str], make: str | None = None) -> None:
    """Refuse names that are none, and versions without an interpreter that has the framework."""
    from lstm_bench.driver import preflight
    from lstm_bench.frameworks import VERSION

    for version, python in pythons.items():
        if not re.fullmatch(VERSION, version):
            raise LstmBenchError(
                f"VERSION: found {version!r}, expected a name such as 2.12.0: up to 40 letters,"
                " digits, '.', '_', '+' and '-', a letter or digit first"
            )
        if not python and not make:
            raise LstmBenchError(
                f"{version}: no interpreter is named, expected {version}=PYTHON such as"
                f" {version}=env-{version}/bin/python, or --make PROGRAM that makes it"
            )
    if len(pythons) < 2:
        raise LstmBenchError("VERSION: found one, expected two or more, the oldest first")
    with contextlib.suppress(ValueError):  # of a quotation without end
        if not make or "{version}" in " ".join(shlex.split(make)[1:]):
            make = None
    if make:
        raise LstmBenchError(
            f"--make: found {make!r}, expected a program and {{version}}, such as './make.sh"
            " {version}'"
        )
    preflight.missing(_in_versions(planned, {v: python for v, python in pythons.items() if python}))


def plan(
    implementation: str,
    grid_file: str,
    shape: Sequence[Shape],
    device: str | None = None,
    threads: int | None = None,
) -> Plan:
    """The plan for each version: one row at the grid's shapes, and nothing besides."""
    from lstm_bench.driver import machine
    from lstm_bench.runs import grid as grids

    file = grids.find(Path(grid_file))
    data = {**grids.read(file), "profile": False, "energy": False}
    given = {"device": device, "threads": threads}
    planned = grids.plan(
        data | {key: value for key, value in given.items() if value},
        file,
        device=machine.default_device(),
        threads=machine.threads(),
        shapes=shape,
        implementations=[implementation],
    )
    row = planned.implementations[0]  # the grid may ask for other numbers of threads too
    if row.version:
        raise LstmBenchError(f"found {row.name}, expected no version at it: {row.original}")
    return dataclasses.replace(planned, implementations=(row,))


def _pair(plan: Plan, pythons: Mapping[str, str], attempt: int) -> Plan:
    """Two versions in turns, with enough A/A controls for a noise floor; each attempt is longer."""
    from lstm_bench.analysis.noise import FEWEST_PAIRS

    passes = max(plan.passes, PASSES) * 2 ** (attempt - 1)
    plan = dataclasses.replace(_in_versions(plan, pythons), passes=passes)
    for controls in range(plan.controls, MOST_CONTROLS):
        more = dataclasses.replace(plan, controls=controls)
        if sum(cell.copy % 2 == 0 for cell in more.all_cells()) >= FEWEST_PAIRS:
            return more
    return plan


def _in_versions(plan: Plan, pythons: Mapping[str, str]) -> Plan:
    """The plan's row in each of these versions."""
    from lstm_bench.frameworks import in_version

    (row,) = plan.implementations
    rows = [dataclasses.replace(row, name=in_version(row, v), version=v) for v in pythons]
    environments = dict(zip([row.home for row in rows], pythons.values(), strict=True))
    name = f"bisect-{row.framework}"
    return dataclasses.replace(
        plan, name=name, implementations=tuple(rows), environments=environments
    )


def _measured(plan: Plan, folder: Path) -> Run:
    """A run of its own, as `grid` would leave it; one that is there already is gone on with."""
    from lstm_bench.analysis import results
    from lstm_bench.commands.run import run
    from lstm_bench.runs.choice import RunOptions

    asked = RunOptions(ready=plan, results=folder.parent, name=folder.name, resume="", quiet=True)
    session = run(asked)
    if session.interrupted:
        search = folder.name.rpartition("-")[0]
        click.echo(f"stopped; the same command with --resume {search} goes on", err=True)
        sys.exit(session.code)
    return results.load(folder)


def _made(command: str, version: str) -> str:
    """The interpreter that the user's program makes: the last line that it prints."""
    click.echo(f"making {version}", err=True)
    words = [word.replace("{version}", version) for word in shlex.split(command)]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        raise LstmBenchError(f"--make: {words[0]}: {error.strerror or error}") from None
    lines = done.stdout.split("\n") if not done.returncode else []
    path = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if not path or not os.access(path, os.X_OK):
        what = f"printed {path!r} last" if path else f"ended with exit code {done.returncode}"
        raise Stopped(
            f"--make for {version} {what}, expected the path of an interpreter as its last line"
        )
    return path
