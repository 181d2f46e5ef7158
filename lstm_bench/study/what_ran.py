"""What was run: machines, versions, cells, what is missing and why, time, noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from lstm_bench import noise, store
from lstm_bench.conditions import shapes_of
from lstm_bench.study import controls, legs, rounds
from lstm_bench.study.section import Section, bullets, code, reached_by, table, text
from lstm_bench.study.subject import TITLES, Runs, Subject, missing
from lstm_bench.trust import kinds_of, two_digits
from lstm_bench.units import clean, counted, listed, percent, span

HALF = 0.5  # of its time a run should be inside timed calls
FEW = 3  # shapes that are told by name
BUILT = "built for "  # how versions begin that are not of what was loaded


def section(runs: Runs) -> Section:
    found = [("h200-paper", runs.paper), ("h200-deepbench", runs.deepbench)]
    found += [("cpu-default", runs.cpu), ("h200-noise", runs.noise)]
    there = [one for _, one in found if one] + [*runs.repeats, *runs.energy]
    body = [_answer(runs.paper) if runs.paper else missing("h200-paper")]
    if there:
        heads = ["run", "shapes", "rows", "cells ok", "wrong", "took", "timed", "A/A pairs"]
        body += [table(heads, [_row(one) for one in there])]
        body.append(
            text(
                "Took: in all, without breaks; timed: its share inside timed calls, those of shapes"
                f" that were cut short and measured again among them. {_half(there)}"
                " Below, posing is making inputs and the float64 reference; preparing is building,"
                " the first call, its check and warming up."
            )
        )
        seen: dict[str, str] = {}
        small = [one for one in runs.energy if not _lost(one)]  # the table says it all
        body.append(bullets([_about(one, seen) for one in there if one not in small]))
        body.append("[What the marks mean](troubleshooting.md).")
    body += [missing(name) for name, one in found if not one and name != "h200-paper"]
    on_gpu = [one for one in (runs.noise, runs.paper, runs.deepbench, *runs.repeats) if one]
    if on_gpu:
        body += ["### Noise", *controls.body(on_gpu)]
    if runs.noise:
        body += rounds.body(runs.noise)
    return Section("What was run", body, _short(runs))


def _answer(one: Subject) -> str:
    """Whether the main run is whole and right."""
    cells = one.run.cells
    own = cells[cells["copy"] == 1]
    wrong, shapes = int((cells["status"] == "wrong").sum()), len(one.run.plan.shapes)
    whole = f"{one.run.shapes} of" if one.run.left else "all"
    ok = int((own["status"] == "ok").sum())
    return text(
        f"{code(one.run.name)} has {whole} {counted(shapes, 'planned shape')}:"
        f" {ok} of {counted(_planned(one), 'cell')} have a time, and {wrong or 'none'}"
        f" {'has' if wrong == 1 else 'have'} a wrong answer.",
        f"`lstm-bench grid --resume {one.run.name}` measures the rest." if whole != "all" else "",
    )


def _row(one: Subject) -> list[str]:
    cells = one.run.cells
    own = cells[cells["copy"] == 1]
    took, timed = time_of(one)
    return [
        code(one.run.name),
        f"{one.run.shapes} of {len(one.run.plan.shapes)}",
        str(own["implementation"].nunique()),
        f"{(own['status'] == 'ok').sum()} of {_planned(one)}",
        str((cells["status"] == "wrong").sum()),
        span(took) if took else "-",
        percent(timed / took) if took else "-",
        str(len(noise.controls(cells))),
    ]


def _planned(one: Subject) -> int:
    """Cells, controls apart."""
    return sum(cell.copy == 1 for cell in one.run.plan.all_cells())


def time_of(one: Subject) -> tuple[float, float]:
    """Seconds that the run took, as its drivers tell them, and those inside timed calls.

    What a shape took that was cut short, and measured again later, is in no record. Timed calls are
    made in rounds: a driver that tells of more has counted others too, as the first ones did.
    """
    known, timed = _legs(one), sum(record.timed_s for record in one.records)
    took = sum(leg.wall_s for leg in known) or legs.wall_s(one.records)
    told = sum(leg.timed_s for leg in known)
    in_rounds = sum(leg.spent_s.get("rounds", 0.0) for leg in known)
    return took, told if timed < told <= in_rounds else timed


def _half(there: Sequence[Subject]) -> str:
    """Which runs spend their time as they should; of one that was stopped nobody knows."""
    whole = [one for one in there if not one.run.left]
    times = [(code(one.run.name), *time_of(one)) for one in whole]
    reached = [name for name, took, timed in times if took and timed >= HALF * took]
    only = ", of those that are whole" if len(whole) < len(there) else ""
    return (
        "That should be half at least; where the rest goes is told below."
        f" {reached_by(reached)} as well as that{only}."
    )


def _legs(one: Subject) -> list[store.Leg]:
    """What its drivers tell; nothing, if one of them was killed before it told."""
    known = store.read_legs(one.run.folder) if one.run.folder else []
    return known if sum(leg.cells for leg in known) >= len(one.records) else []


def _spent(one: Subject) -> str:
    """What the drivers' time went into, the most first."""
    total: Counter[str] = Counter()
    for leg in _legs(one):
        total.update(leg.spent_s)
    whole, timed = time_of(one)
    if not total:
        return ""
    told = listed(f"{clean(what)} {percent(s / whole, 0)}" for what, s in total.most_common())
    rest, without, shares = whole, [], []
    for what in ("profiling", "energy"):
        if 0 < total[what] < rest:
            rest -= total[what]
            without.append(what)
            shares.append(f"{percent(timed / rest)} without {listed(without)}")
    told += f"; inside timed calls are {listed(shares)}" if shares else ""
    return f"Of its time: {told}."


def _lost(one: Subject) -> Counter[str]:
    """Cells without a time, by the reason."""
    cells = one.run.cells
    causes = Counter(map(cause, cells["status"], cells["reason"]))
    del causes["ok"]
    return causes


def _about(one: Subject, seen: dict[str, str]) -> str:
    """Machine and versions; what has no time, and why; what is marked.

    `seen` has the runs so far by their machine and versions, which are told once.
    """
    machine, settings = one.run.manifest["machine"], one.run.plan.settings
    gpus = machine.get("gpus") or []
    where = f"{clean(str(machine.get('cpu')))}, {counted(settings.threads, 'thread')}"
    if settings.device == "cuda" and gpus:
        where = f"{clean(str(gpus[0]['name']))}, driver {clean(str(gpus[0]['driver']))}; {where}"
    where += f"; {_versions(one)}"
    first = seen.setdefault(where, one.run.name)
    told = where if first == one.run.name else f"kind of machine and versions as in {code(first)}"
    told += _boards(one)
    revision = clean(str(machine.get("git") or ""))
    if revision:
        told += f"; revision {revision.removesuffix('+')}"
        told += " with changes" if revision.endswith("+") else ""
    lines = [f"{code(one.run.name)}: {told}."]
    lost = _lost(one)
    if lost:
        told = listed(f"{count} {why}" for why, count in lost.most_common())
        lines.append(f"Without a time, controls included: {told}.")
    lines.append(_spent(one))
    timed = one.run.cells[one.run.cells["status"] == "ok"]
    if marks := kinds_of(timed["warnings"]):
        told = listed(f"{count} {clean(kind)}{_only_at(timed, kind)}" for kind, count in marks)
        lines.append(f"Marked, of {counted(len(timed), 'cell')} with a time: {told}.")
    return " ".join(line for line in lines if line)


def _boards(one: Subject) -> str:
    """Which GPUs, by the first part of their UUIDs."""
    found = legs.boards(one)
    known = sorted(clean(board).removeprefix("GPU-")[:8] for board in found if board)
    if not known:
        return ""
    others = [*known, *(["others that it does not tell"] if None in found else [])]
    return f"; {'GPU' if len(others) == 1 else 'GPUs'} {listed(others)}"


def _only_at(cells: pd.DataFrame, kind: str) -> str:
    """Where the cells with a mark are, if these are few of many shapes."""
    marked = cells[[kind in dict(kinds_of([own])) for own in cells["warnings"]]]
    shapes = sorted(shapes_of(marked))
    if not len(shapes) <= FEW < len(shapes_of(cells)):
        return ""
    return f" (at {'; '.join(shape.label for shape in shapes)})"


def _versions(one: Subject) -> str:
    """Of every framework, as its cells tell them."""
    found: dict[str, dict[str, str]] = {}
    for record in one.records:
        found.setdefault(record.framework, {}).update(record.versions)
    told = []
    for framework, versions in sorted(found.items()):
        own = [f"{clean(k)} {clean(v)}" for k, v in sorted(versions.items())]
        built = [text.removeprefix(BUILT) for text in own if text.startswith(BUILT)]
        uses = ", ".join(text for text in own if not text.startswith(BUILT))
        uses += f" ({BUILT}{', '.join(built)})" if built else ""
        told.append(f"{TITLES.get(framework, clean(framework))} with {uses or 'unknown versions'}")
    return "; ".join(told)


def cause(status: str, reason: str) -> str:
    """Why a cell has no time, in groups."""
    if status == "unsupported":
        why, mark, _ = clean(reason).partition("; not tried")
        own = f"not tried ({why})" if mark else "not supported here"
        return "refused by cuDNN" if "CUDNN_STATUS" in reason else own
    names = {"oom": "out of memory", "timeout": "over the time limit", "wrong": "wrong answer"}
    return names.get(status, status)


def _short(runs: Runs) -> str:
    one = runs.paper
    if not one:
        return missing("h200-paper")
    cells = one.run.cells
    own = cells[cells["copy"] == 1]
    ok, wrong = int((own["status"] == "ok").sum()), int((cells["status"] == "wrong").sum())
    known = any(floor.pairs for floor in one.run.noise)
    floors = noise.applied(one.run.noise) if known else []
    ends = dict.fromkeys(map(two_digits, (min(floors), max(floors)))) if floors else ["not known"]
    more = f"; {told}" if runs.noise and (told := rounds.short(runs.noise)) else ""
    shapes = f"{one.run.shapes} of {counted(len(one.run.plan.shapes), 'planned shape')}"
    return (
        f"{ok} of {counted(_planned(one), 'cell')} at {shapes} have a time, {wrong or 'none'} a"
        f" wrong answer; {controls.short(one)} (noise floor {' to '.join(ends)}){more}."
    )
