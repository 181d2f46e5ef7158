"""The document of `grid --dry-run`: the plan, the cells that are left, an estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lstm_bench.model.types import Cell
from lstm_bench.model.units import counted, seconds, span
from lstm_bench.report.document import Column, Document, Table, number, text
from lstm_bench.runs import budget
from lstm_bench.runs.estimate import Estimate, by_shape, call_s, possible, too_long
from lstm_bench.runs.plan import Plan

MOST_SHAPES = 24


def document(
    plan: Plan,
    cells: Sequence[Cell],
    missing: Mapping[str, str],
    budget_s: float | None = None,
) -> Document:
    s, sampling = plan.settings, plan.sampling
    here = possible(plan, cells, missing)
    shapes_here = plan.own_shapes()
    estimate = Estimate(plan)
    rows = []
    for row in plan.implementations:
        mine = [c for c in cells if c.implementation == row.name]
        calls = [call_s(row, shape, s) for shape in shapes_here]
        long = sum(too_long(call, sampling) for call in calls)
        note = f"{counted(long, 'shape')} may time out" if long else ""
        if row.home in missing:
            note = "not installed"
        if row.settings_in(s).device not in row.devices:
            note = f"needs {' or '.join(row.devices)}"
        rows.append(
            {
                "implementation": row.name,
                "precision": row.precision_on(s),
                "cells": len(mine),
                "least_s": min(calls, default=0.0),
                "most_s": max(calls, default=0.0),
                "all_s": sum(map(estimate.cell_s, possible(plan, mine, missing))),
                "note": note,
            }
        )
    columns = (
        text("implementation", "implementation"),
        text("precision", "precision"),
        number("cells", "cells"),
        Column("a call, about", _call),
        number("in all, about", "all_s", span),
        text("note", "note"),
    )
    labels = [shape.label for shape in shapes_here]
    more = f" ... {len(labels) - MOST_SHAPES} more" if len(labels) > MOST_SHAPES else ""
    ends = dict.fromkeys(map(str, (sampling.rounds, sampling.max_rounds)))
    rounds = " to ".join(ends)
    late = (
        "may time out: two calls, which are made before the first timed one, are guessed to take"
        f" longer than sampling.timeout_s, {sampling.timeout_s:g} s; leave these rows or shapes"
        " out, or raise it"
    )
    sizes = "shapes (hidden,batch,timesteps): " + "  ".join(labels[:MOST_SHAPES]) + more
    others = {name: path for name, path in plan.environments.items() if "~" in name}
    lacking = f", {len(cells) - len(here)} of them not installed" if len(here) < len(cells) else ""
    result = Document()
    result.add(
        f"{plan.name}: {counted(len(shapes_here), 'shape')} x"
        f" {counted(len(plan.implementations), 'implementation')}"
        f" + {counted(plan.controls_made, 'A/A control')} a shape, passes: {plan.passes}\n"
        f"on {s.device}, {counted(s.threads, 'thread')},"
        f" AMP {'by the framework' if s.amp == 'auto' else f'in {s.amp}'},"
        f" {rounds} round{'s' * (sampling.max_rounds > 1)}"
        + "".join(f", {note}" for note in s.notes)
        + (f", {sampling.loads} loads for energy" if plan.energy and sampling.loads > 1 else ""),
        Table("plan", rows, columns),
        "\n".join(f"{name}: {why}" for name, why in missing.items()),
        "\n".join(f"{name} is {path}" for name, path in others.items()),
        sizes,
        late if any("time out" in str(row["note"]) for row in rows) else "",
        (
            f"{counted(len(cells), 'cell')}{lacking}, about {span(estimate.run_s(here))}"
            f" (an estimate){_within(estimate, here, budget_s)}. Nothing was run."
        ),
    )
    return result


def _call(row: Mapping[str, Any]) -> str:
    return " to ".join(dict.fromkeys((seconds(row["least_s"]), seconds(row["most_s"]))))


def _within(estimate: Estimate, cells: Sequence[Cell], budget_s: float | None) -> str:
    """Says what fits into a budget."""
    if budget_s is None:
        return ""
    share = budget.ration(estimate, by_shape(cells), budget_s)
    if share.too_long:
        return f"; the budget of {span(budget_s)} is {budget.in_words(share.too_long)}"
    whole = estimate.run_s(cells) <= budget_s
    how = "is enough" if whole else "is enough with fewer rounds or shorter blocks"
    return f"; the budget of {span(budget_s)} {how}"
