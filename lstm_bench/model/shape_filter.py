"""Conditions that choose shapes, such as `batch>=16`, and shapes by their sizes."""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lstm_bench.model.shape import PASSES, SHAPE, Shape, parsed
from lstm_bench.model.types import LstmBenchError

if TYPE_CHECKING:
    import pandas as pd

_TYPED = ("hidden", "batch", "timesteps", "input", "layers", "directions")  # as people type them
AXES = tuple(SHAPE[: len(_TYPED)])  # lengths and pass are no numbers
_TESTS = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


#: A condition of whole shapes is `shape=512,16,25 or 64,1,10`.
_SHAPE, _OR = "shape=", " or "
_PASS = {f"pass={name}": name == "training" for name in PASSES}
_NEAREST = 3  # shapes that an error suggests


def one_of(shapes: Sequence[Shape]) -> list[str]:
    """The condition that a shape is among these; none if there are none."""
    return [_SHAPE + _OR.join(shape.label for shape in shapes)] if shapes else []


def _listed(condition: str) -> list[Shape]:
    """The shapes of a condition that `one_of` made; none of another condition."""
    if not condition.startswith(_SHAPE):
        return []
    return [parsed(text) for text in condition.removeprefix(_SHAPE).split(_OR)]


def holds(condition: str, of: Any, where: str) -> Any:
    """Return whether a condition holds for a shape, or for each row of a data frame.

    `where` is the option or key that gave the condition, for errors.
    """
    if shapes := _listed(condition):
        each = ([getattr(of, axis) == getattr(s, axis) for axis in SHAPE] for s in shapes)
        return functools.reduce(operator.or_, (functools.reduce(operator.and_, e) for e in each))
    if condition in _PASS:
        return of.training == _PASS[condition]
    axis, sign, number = _parts(condition, where)
    return _TESTS[sign](getattr(of, axis), number)


def _parts(condition: str, where: str) -> tuple[str, str, int]:
    """Axis, comparison and number of a condition."""
    match = re.fullmatch(r"\s*([a-z_]+)\s*(<=|>=|!=|==|=|<|>)\s*(\d+)\s*", condition)
    axis = match[1] if match else ""
    axis = "input_size" if axis == "input" else axis
    if not match or axis not in AXES:
        raise LstmBenchError(
            f"{where}: found {condition!r}, expected one of {', '.join(_TYPED)}, then"
            " =, !=, <, <=, > or >=, then a number, as in 'batch>=16'; or pass=training"
        )
    return axis, match[2], int(match[3])


def chosen(cells: pd.DataFrame, conditions: Sequence[str], run: str = "the run") -> pd.DataFrame:
    """The cells of the shapes for which all conditions of --where and --shape hold."""
    left = cells
    for condition in conditions:
        for shape in _listed(condition):
            _check_there(shape, cells, run)
        left = left[holds(condition, left, "--where")]
        if left.empty and (_listed(condition) or condition in _PASS):
            raise LstmBenchError(f"{' and '.join(conditions)}: no shape of {run} is left")
        if left.empty:
            axis = _parts(condition, "--where")[0]
            sizes = ", ".join(map(str, sorted(cells[axis].unique())))
            raise LstmBenchError(
                f"--where {' and '.join(conditions)}: no shape of {run} is left; it has"
                f" {_TYPED[AXES.index(axis)]} {sizes}"
            )
    return left


def _check_there(shape: Shape, cells: pd.DataFrame, run: str) -> None:
    """Refuse a shape that the run does not have, and suggest those the fewest doublings away."""
    shapes = shapes_of(cells)
    if shape in shapes:
        return

    def doublings(other: Shape) -> float:
        pairs = ((getattr(shape, axis), getattr(other, axis)) for axis in AXES)
        return sum(abs(math.log2(max(a, 1) / b)) for a, b in pairs)

    near = sorted(shapes, key=lambda other: (doublings(other), other))[:_NEAREST]
    hint = f"; the nearest there: {'  '.join(other.label for other in near)}" if near else ""
    raise LstmBenchError(f"--shape {shape.label}: not in {run}{hint}")


def shapes_of(cells: pd.DataFrame) -> set[Shape]:
    """The shapes of these cells."""
    sizes = cells[SHAPE].drop_duplicates()
    return {Shape.from_row(row) for row in sizes.itertuples(index=False, name=None)}
