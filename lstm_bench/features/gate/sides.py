"""Which rows a gate compares: the base's and the new one's, and what each of them is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from lstm_bench import frameworks as registry
from lstm_bench.analysis import circumstances, results
from lstm_bench.analysis.results import Run
from lstm_bench.frameworks import versions_of
from lstm_bench.model.suggest import guess
from lstm_bench.model.types import LstmBenchError
from lstm_bench.runs import run_folders

Side = dict[str, str]


def same(first: Run, second: Run) -> bool:
    """Whether both are one run."""
    return len({run.folder.resolve() for run in (first, second) if run.folder}) == 1


def paired(
    base: Run,
    new: Run,
    names: Sequence[str] = (),
    renamed: Sequence[str] = (),
    bases: Sequence[str] = (),
) -> dict[str, str]:
    """Each row of the new run that is judged, and its row in the base.

    `names` are the only rows to judge; `renamed` has pairs such as `pytorch-native=pytorch`. In one
    run, a row's base is the one that the run's plan names, or its version in `bases`.
    """
    for run in (base,) if base is new else (base, new):
        _check_complete(run)
    rows = dict(map(_names, renamed))
    if bases and (rows or base is not new):
        raise LstmBenchError(
            "--base: names a row of one run, `lstm-bench gate RUN --base ROW`; found"
            f" {'--as, which names it too' if rows else 'two runs'}"
        )
    if not rows:
        every = {row: row for row in names or base.implementations}
        rows = _in_versions(base, names, bases) if base is new else every
    if names:
        sides = {mine: {mine, theirs} if base is new else {mine} for mine, theirs in rows.items()}
        known = set().union(*sides.values())
        for name in names:
            if name not in known:
                raise LstmBenchError(
                    f"-i: {name!r} is not compared; expected {' or '.join(sorted(known))}"
                    f"{guess(name, known)}"
                )
        rows = {mine: theirs for mine, theirs in rows.items() if sides[mine] & {*names}}
    for mine, theirs in rows.items():
        _check_row(theirs, base)
        if mine != theirs:  # a row that the new run lost is a failure, a mistyped one is not
            _check_row(mine, new)
    return rows


def _names(text: str) -> tuple[str, str]:
    """The two rows of `--as NEW=BASE`."""
    mine, _, theirs = text.partition("=")
    if not (mine and theirs):
        raise LstmBenchError(
            f"--as: found {text!r}, expected two rows, as in pytorch-native=pytorch"
        )
    return mine, theirs


def _in_versions(run: Run, names: Sequence[str], bases: Sequence[str]) -> dict[str, str]:
    """By each new row of one run, the version of it that is the base."""
    homes = {row.name: row.home for row in run.plan.implementations}
    own = list(dict.fromkeys([*homes, *run.implementations]))
    several = [group for group in versions_of(own).values() if len(group) > 1]
    if not several:
        raise LstmBenchError(
            f"found one run, {run.name}; expected two, `lstm-bench gate BASE NEW`, or two of its"
            f" rows, as in --as {'='.join(own[:2][::-1]) if len(own) > 1 else 'NEW=BASE'}"
        )
    rows = dict(run.plan.bases) or registry.bases(own)
    for name in bases:
        chosen = {row for row in own if name in (row, homes.get(row))}
        groups = [group for group in map(set, map(dict.values, several)) if group & chosen]
        if not groups or any(len(group & chosen) > 1 for group in groups):
            raise LstmBenchError(
                f"--base: found {name!r}, expected one of several versions of a row, such as"
                f" {' or '.join(several[0].values())}"
            )
        for rivals in groups:
            rows = {mine: theirs for mine, theirs in rows.items() if mine not in rivals}
            rows |= dict.fromkeys(sorted(rivals - chosen), *(rivals & chosen))
    judged = {*rows, *rows.values()}
    for group in several:
        if not judged.issuperset(group.values()) and (not names or {*names} & {*group.values()}):
            places = [homes.get(row, row) for row in group.values()]
            _refuse(run, places if len(set(places)) == len(places) else list(group.values()))
    return {mine: rows[mine] for mine in own if mine in rows}


def _refuse(run: Run, rows: Sequence[str]) -> None:
    command = ["lstm-bench", "gate", run.name]
    if run.folder:
        command[2:] = [run_folders.name_of(run.folder), *run_folders.elsewhere(run.folder)]
    lines = (f"  {shlex.join([*command, '--base', row])}" for row in rows)
    raise LstmBenchError(
        f"{run.name}: found {' and '.join(rows)}, and no name that says which is the base"
        " (~old, ~base and ~other are, ~new is not); type one of\n" + "\n".join(lines)
    )


def _check_complete(run: Run) -> None:
    """A run that lacks planned cells is refused, with the command that measures them."""
    if not run.left:
        return
    planned = f"{run.plan.size} planned cells"
    found = f"{run.left} of {planned} are not measured"
    if run.left == run.plan.size:
        found = f"the run is empty, none of its {planned} is measured"
    command = f"resume it with `lstm-bench grid --resume {run.name}`"
    if run.folder:
        command = f"type\n  {run_folders.resume_command(run.folder, run.plan.environments)}"
    raise LstmBenchError(f"{run.name}: {found}, expected all; {command}")


def _check_row(name: str, run: Run) -> None:
    known = run.implementations
    if name not in known:
        raise LstmBenchError(
            f"{name!r} is not in {run.name}; it has: {', '.join(known) or 'nothing'}"
            f"{guess(name, known)}; if the row has another name there: --as NEW=BASE"
        )


def sides(base: Run, new: Run, rows: Mapping[str, str]) -> list[dict[str, Side]]:
    """By judged row, what the base and the new side of it are."""
    return [{"base": _side(base, theirs), "new": _side(new, mine)} for mine, theirs in rows.items()]


def _side(run: Run, row: str) -> Side:
    """A row, its run, and its framework's versions and interpreter, as far as they are known."""
    home = next((planned.home for planned in run.plan.implementations if planned.name == row), row)
    known = run.manifest.get("interpreters", {}).get(home, {})
    versions = ", ".join(f"{name} {number}" for name, number in known.get("versions", {}).items())
    path = known.get("path") or run.plan.environments.get(home, "")
    return {"row": row, "run": run.name, "versions": versions, "interpreter": path}


def differences(
    base: Run, new: Run, rows: Mapping[str, str], versions_only: bool = False
) -> dict[str, tuple[str, ...]]:
    """How the setups of the two differ: versions of frameworks, libraries, drivers; then others."""
    runs = [] if base is new or versions_only else [base, new]
    versions = [
        (results.versions(base, theirs), results.versions(new, mine))
        for mine, theirs in rows.items()
    ]
    return circumstances.differences(runs, versions)


def warnings(base: Run, new: Run, rows: Mapping[str, str]) -> list[str]:
    """Warns where the new side has the older versions."""
    differ = differences(base, new, rows, versions_only=True)
    numbers = {name: list(map(_number, both)) for name, both in differ.items()}
    older = [name for name, (old, now) in numbers.items() if old and now and now < old]
    newer = [name for name, (old, now) in numbers.items() if old and now and now > old]
    if newer or not older:
        return []
    changes = ", ".join(f"{name} {' -> '.join(differ[name])}" for name in older)
    return [f"the new side has older versions ({changes}): is the base the new one?"]


def _number(version: str) -> list[int]:
    """Major, minor, micro: what follows, such as rc1 or dev, says little of the order."""
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3]]


def refuse_versions(base: Run, new: Run, rows: Mapping[str, str]) -> None:
    """Refuse two builds, unless that is what was asked for."""
    differ = differences(base, new, rows, versions_only=True)
    changes = [f"{what} ({a} and {b})" for what, (a, b) in differ.items() if what != "driver"]
    if changes:
        raise LstmBenchError(
            f"the two differ in versions: {', '.join(changes)}; to compare them all the same, add"
            " --across versions"
        )
