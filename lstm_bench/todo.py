"""What of a plan is still to be done, by what a run has recorded."""

from __future__ import annotations

from collections.abc import Iterable

from lstm_bench.measurement import lost
from lstm_bench.model.types import RETRYABLE, UNFINISHED, Cell, Record, Shape, unlike_idle_w
from lstm_bench.runs.plan import Plan


def pending(plan: Plan, records: Iterable[Record], retry_failed: bool) -> list[Cell]:
    """The cells of a plan that still have to be measured.

    A shape that was cut short is measured again whole: only what was measured in turns can be
    compared.
    """
    again = (*UNFINISHED, *(RETRYABLE if retry_failed else ()))
    known = {record.key: record.status for record in records}
    left = []
    for group in by_shape(plan.all_cells()).values():
        statuses = [known.get(cell.key, "interrupted") for cell in group]
        wanted = (*again, "ok") if "interrupted" in statuses else again
        left += [cell for cell, status in zip(group, statuses, strict=True) if status in wanted]
    return left


def unseen(plan: Plan, records: Iterable[Record], left: Iterable[Cell]) -> list[Record]:
    """Cells of the plan that have their times, and whose profile or energy was lost.

    Energy is looked for at a shape as a whole: only what was measured on one GPU can be compared.
    So it is where some rows of a shape have it from another.
    """
    keys = {cell.key for cell in plan.all_cells()} - {cell.key for cell in left}
    timed = [r for r in records if r.status == "ok" and r.key in keys]
    dark = {(r.pass_number, r.shape) for r in timed if "energy" in lost(r)}
    dark |= unlike_idle_w(timed).keys()
    return [r for r in timed if lost(r) or (r.pass_number, r.shape) in dark]


def by_shape(cells: Iterable[Cell]) -> dict[tuple[int, Shape], list[Cell]]:
    """Cells that are measured in turns, in the order in which their shapes come."""
    groups: dict[tuple[int, Shape], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.pass_number, cell.shape), []).append(cell)
    return groups
