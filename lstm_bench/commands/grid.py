"""`lstm-bench grid`: measure a grid of shapes."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstm_bench import features
from lstm_bench.commands import options
from lstm_bench.commands.run import run
from lstm_bench.driver.signals import held
from lstm_bench.model.errors import LstmBenchError

if TYPE_CHECKING:
    from lstm_bench.runs.choice import RunOptions


def _seconds(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)", (text or "").strip())
    if text and (not match or float(match[1]) <= 0):
        raise LstmBenchError(f"--budget: found {text!r}, expected a time such as 90s, 10m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600}[match[2]] if match else None


def _part(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    number, parts = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= parts:
        raise LstmBenchError(f"--shard: found {text!r}, expected a part such as 3/8: part 3 of 8")
    return number, parts


@click.command()
@click.argument("grid_file", metavar="[GRID]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--run",
    "run_name",
    metavar="NAME",
    help="The name of the run, default: grid and time; with --resume: go on with it if it exists.",
)
@options.results
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Go on with RUN or the newest run; with GRID: with its newest run, or start one.",
)
@click.option(
    "--retry-failed",
    is_flag=True,
    help="With --resume: measure failed cells again, and shapes that lost energy or a profile.",
)
@options.shape("Measure this shape, in place of those of the file or without a file; repeatable.")
@options.of_pass("Measure this, not the passes of the grid; repeatable.", multiple=True)
@click.option(
    "-i",
    "--implementations",
    "rows",
    multiple=True,
    metavar="A,B",
    help="Measure these, not those of the file; ROW@1: ROW on one thread, in turns; repeatable.",
)
@options.device
@options.threads
@options.inputs
@options.python
@click.option(
    "--against",
    "others",
    multiple=True,
    metavar="FRAMEWORK[~NAME]=PATH",
    help="Measure its rows under this interpreter too, in turns, as ROW~NAME; default NAME: other.",
)
@click.option("--skip-missing", is_flag=True, help="Leave out frameworks that are not installed.")
@click.option(
    "--passes",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Repeat the whole grid N times, each time in fresh processes.",
)
@click.option("--fast", is_flag=True, help="5 to 8 rounds, a short warm-up, one load for energy.")
@click.option("--rigorous", is_flag=True, help="At least 30 rounds.")
@click.option("--deepbench", is_flag=True, help="Queue 100 calls for throughput, as DeepBench.")
@click.option("--profile", is_flag=True, help="Take each cell's calls apart too, kernel by kernel.")
@click.option("--energy", is_flag=True, help="Measure energy per call too (GPU, by NVML).")
@click.option(
    "--budget",
    "budget_s",
    metavar="TIME",
    callback=_seconds,
    help="Stop after this time, within 10%: 90s, 10m, 2h.",
)
@click.option(
    "--shard",
    metavar="N/OF",
    callback=_part,
    help="Measure only part N of OF, such as 3/8; `merge` joins the parts.",
)
@options.of_features("options")
@click.option("--dry-run", is_flag=True, help="Print the plan and an estimate; run nothing.")
def grid(**given: Any) -> None:
    """Measure every implementation at every shape of a grid.

    GRID is a file, or one of the project's grids, which are found from any folder: smoke, default,
    devices, paper, kernel, ladder, training, energy, noise, deepbench,
    workloads.

    \b
      lstm-bench grid grids/smoke.yaml --dry-run        what would run, and how long
      lstm-bench grid grids/default.yaml --budget 3m    as much as fits
      lstm-bench grid grids/paper.yaml -i pytorch,pytorch-amp --profile
      lstm-bench grid --shape 320,4,60                  one shape, as the default grid would
      lstm-bench grid --shape 320,4,60 --pass training  forward and backward
      lstm-bench grid paper -i pytorch --against pytorch~new=.venv-new/bin/python
      lstm-bench grid --resume                          after Ctrl-C, a crash or a power cut
      lstm-bench grid grids/paper.yaml --resume         go on, or start: for a job script
      lstm-bench grid paper --ray auto                  over all nodes of a Ray cluster
      lstm-bench grid paper --run paper --shard 3/8     a part of it, for a job array

    Results go to results/<run>/ in the current folder. Exit code: 0 done or out of budget, 1 some
    cells failed, none could run or the run could not go on, 2 wrong usage, 130 interrupted (143 by
    SIGTERM).
    """
    # door `options`: `options.Added`, whose run(RunOptions, all that was typed) gives an exit code;
    # None: nothing was asked of it
    added = list(features.behind("options"))
    for name in ("resume", *(more.word for more in added)):
        word = given.get(name)
        if word and given["grid_file"] is None and _is_grid(word, name):
            given |= {"grid_file": Path(word), name: ""}  # `--resume GRID`, not a run of that name
    asked = parsed(given)
    for more in added:
        if (code := more.run(asked, given)) is not None:
            sys.exit(code)
    sys.exit(run(asked).code)


def _is_grid(word: str, option: str) -> bool:
    """Return whether the word behind an option was meant as the grid."""
    from lstm_bench.runs import grid as grids

    named = word.endswith((".yaml", ".yml"))
    return named or (option != "resume" and grids.find(Path(word)).is_file())


def parsed(given: Mapping[str, Any]) -> RunOptions:
    """Check what was typed, as far as that does not depend on what is there."""
    with held():
        from lstm_bench.driver import preflight
        from lstm_bench.runs import grid as grids
        from lstm_bench.runs.choice import RunOptions, run_name

    file, resume, shapes = given["grid_file"], given["resume"], given["shape"]
    if given["fast"] and given["rigorous"]:
        raise click.UsageError("--fast and --rigorous exclude each other")
    if file is None and resume is None and not shapes:
        raise click.UsageError("expected a grid, such as grids/default.yaml, --shape or --resume")
    if given["retry_failed"] and resume is None:
        raise click.UsageError("--retry-failed goes with --resume")
    against = preflight.environments(given["others"], "--against", "other")
    keys = {key: value for key, value in given.items() if key in grids.KEYS and value}
    if "pass" in keys:
        keys["pass"] = list(keys["pass"])
    thorough = [given[flag] for flag in ("fast", "rigorous", "deepbench")]
    data = None
    if file is not None:
        file, typed = grids.find(file), file
        if file != typed:
            click.echo(f"{typed} is {file}", err=True)
        data = {**grids.read(file), **keys}
    elif shapes:
        file, data = grids.at_shapes(shapes)
        data |= keys
    elif any((given["rows"], given["shard"], *keys, *thorough)):
        raise click.UsageError("--resume takes the run's own plan; it cannot be changed")
    name = given["run_name"]
    if resume is not None and name and (resume or data is None):
        raise click.UsageError(f"--run names a new run; to go on with one: --resume {name}")
    rows = [row.strip() for rows in given["rows"] for row in rows.split(",")]
    return RunOptions(
        grid=data,
        file=file or Path(),
        shapes=shapes,
        implementations=rows or None,
        environments={**preflight.environments(given["pythons"]), **against},
        against=against,
        sampling=sampling_flags(data or {}, *thorough),
        resume=resume,
        name=None if name is None else run_name(name),
        skip_missing=given["skip_missing"] or grids.skips_missing(data or {}, file or Path()),
        **{key: given[key] for key in ("results", "retry_failed", "shard", "budget_s", "dry_run")},
    )


def sampling_flags(
    data: Mapping[str, Any], fast: bool, rigorous: bool, deepbench: bool
) -> dict[str, Any]:
    """Return the keys that the flags put in place of the grid file's."""
    flags: dict[str, Any] = {}
    if fast:
        flags.update(rounds=5, max_rounds=8, warmup_s=0.02, warmup_cap_s=1.0, loads=1)
    if rigorous:
        stated = data.get("sampling")
        for name in ("rounds", "max_rounds"):  # never less than the file has, nor than 30
            value = stated.get(name) if isinstance(stated, Mapping) else None
            least = flags.get("rounds", 30)
            flags[name] = max(value, least) if isinstance(value, int) else least
    if deepbench:
        flags.update(queued_calls=100)
    return flags
