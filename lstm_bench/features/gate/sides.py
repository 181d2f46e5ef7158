"""The rows that a gate compares: those of the base and of the new run, and what each is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lstm_bench import frameworks as registry
from lstm_bench.analysis import circumstances, results
from lstm_bench.analysis.results import Run
from lstm_bench.frameworks import versions_of
from lstm_bench.model.suggest import guess
from lstm_bench.model.types import LstmBenchError
from lstm_bench.model.units import WIDTH, clean, listed
from lstm_bench.runs import run_folders

MOST_NAMED = 4  # rows, or cells, in a sentence
Side = Mapping[str, str]
Both = Mapping[str, Side]  # the base and the new side of a row


def same(first: Run, second: Run) -> bool:
    """Return whether both are one run."""
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
        if base is new and mine == theirs:
            raise LstmBenchError(
                f"--as: found {mine}={theirs} in one run, {new.name}, which compares a row with"
                " itself; expected two rows, or two runs: `lstm-bench gate BASE NEW`"
            )
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
    """The base version of each new row of one run."""
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
    command = f"resume it with `lstm-bench grid --resume {run.name}`"
    if run.folder:
        command = f"type\n  {run_folders.resume_command(run.folder, run.plan.environments)}"
    raise LstmBenchError(
        f"{run.name}: {run.left} of {run.plan.size} planned cells are not measured; {command}"
    )


def _check_row(name: str, run: Run) -> None:
    known = run.implementations
    if name not in known:
        raise LstmBenchError(
            f"{name!r} is not in {run.name}; it has: {', '.join(known) or 'nothing'}"
            f"{guess(name, known)}; if the row has another name there: --as NEW=BASE"
        )


@dataclass(frozen=True)
class Sides:
    """Each row's two sides, how their setups differ, and what to mind."""

    sides: Sequence[Both]
    differs: Mapping[str, Sequence[str]]
    warnings: Sequence[str]
    in_turns: bool
    first: str = ""  # when the first base was measured, where the base replaced others

    @classmethod
    def compared(cls, base: Run, new: Run, rows: Mapping[str, str], first: str) -> Sides:
        """The sides of these rows; the versions in which they differ stand before other facts."""
        changed = changed_versions(base, new, rows)
        differs = changed | circumstances.differences([] if base is new else [base, new], [])
        sides = [
            {"base": _side(base, theirs), "new": _side(new, mine)} for mine, theirs in rows.items()
        ]
        return cls(sides, differs, _older(changed), base is new, first)

    def lines(self) -> list[str]:
        """Names both sides, then what differs between base and new run."""
        renamed = any(both["base"]["row"] != both["new"]["row"] for both in self.sides)
        groups: dict[tuple[str, str], list[Both]] = {}
        for both in self.sides:
            groups.setdefault((_setup(both["base"]), _setup(both["new"])), []).append(both)
        if not self.in_turns and not renamed and len(groups) > 1:  # each framework has its own
            groups = {("", ""): list(self.sides[:1])}
        lines = []
        for setups, members in groups.items():
            sides = []
            for side, setup in zip(("base", "new"), setups, strict=True):
                rows = shortened([both[side]["row"] for both in members]) if renamed else ""
                run = "" if self.in_turns else f"run {members[0][side]['run']}"
                sides.append(f"{side}: {clean(' in '.join(filter(None, (rows, run))))}{setup}")
            whole = ", ".join(sides)
            lines += [whole] if len(whole) <= WIDTH else sides
        changes = ", ".join(
            f"{what.removeprefix('sampling.')} {a} -> {b}" for what, (a, b) in self.differs.items()
        )
        same = f"nothing differs but the {'row' if self.in_turns else 'time'}"
        lines.append(f"differs: {changes}" if changes else same)
        return [*lines, *(f"! {warning}" for warning in self.warnings)]


def _side(run: Run, row: str) -> Side:
    """A row, its run, and its framework's versions and interpreter, as far as they are known."""
    home = next((planned.home for planned in run.plan.implementations if planned.name == row), row)
    known = run.manifest.get("interpreters", {}).get(home, {})
    versions = ", ".join(f"{name} {number}" for name, number in known.get("versions", {}).items())
    path = known.get("path") or run.plan.environments.get(home, "")
    return {"row": row, "run": run.name, "versions": versions, "interpreter": path}


def _setup(side: Side) -> str:
    """The versions and the interpreter of a side, in brackets."""
    path = side["interpreter"].removeprefix(f"{Path.cwd()}/")
    known = ", ".join(filter(None, (side["versions"], path)))
    return f" ({clean(known)})" if known else ""


def shortened(names: Sequence[str]) -> str:
    """The first of these, and how many more there are."""
    left = len(names) - MOST_NAMED
    return listed([*names[:MOST_NAMED], *([f"{left} more"] if left > 0 else [])])


def changed_versions(base: Run, new: Run, rows: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The versions of frameworks, libraries and drivers in which the two differ."""
    sides = [(results.versions(base, b), results.versions(new, a)) for a, b in rows.items()]
    return circumstances.differences([], sides)


def _older(changed: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Warn where all versions of the new side are older: major, minor and micro count."""
    older = []
    for name, both in changed.items():
        old, new = (list(map(int, re.findall(r"\d+", v.partition("+")[0])[:3])) for v in both)
        if old and new and new > old:
            return []
        if old and new and new < old:
            older.append(f"{name} {' -> '.join(both)}")
    what = f"the new side has older versions ({', '.join(older)}): is the base the new one?"
    return [what] if older else []
