"""Which shapes are meant: conditions such as `batch>=16`, and shapes by their sizes."""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from lstm_bench.model.types import LstmBenchError, Shape

if TYPE_CHECKING:
    import pandas as pd

AXES = ("hidden", "batch", "timesteps", "input_size")
_TYPED = ("hidden", "batch", "timesteps", "input")  # as grid files call them, and so do people
_TESTS = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


#: How a condition of whole shapes begins; any of them will do: `shape=512,16,25 or 64,1,10`.
_SHAPE, _OR = "shape=", " or "
_NEAREST = 3  # shapes that are named where one is not in the run


def parsed(text: str, where: str = "--shape") -> Shape:
    """The shape that `where` names: H,B,T or H,B,T,I; the input is as wide as hidden else."""
    if not re.fullmatch(r"\s*\d{1,9}(\s*,\s*\d{1,9}){2,3}\s*", text):
        raise LstmBenchError(
            f"{where}: found {text!r}, expected hidden,batch,timesteps as in 512,16,25, or a"
            " fourth, the input size"
        )
    sizes = [int(size) for size in text.split(",")]
    return Shape(*sizes, *sizes[: 4 - len(sizes)])


def one_of(shapes: Sequence[Shape]) -> list[str]:
    """The condition that a shape is one of these; none if there are none."""
    return [_SHAPE + _OR.join(shape.label for shape in shapes)] if shapes else []


def _listed(condition: str) -> list[Shape]:
    """The shapes of a condition made by `one_of`; none if it is another."""
    if not condition.startswith(_SHAPE):
        return []
    return [parsed(text) for text in condition.removeprefix(_SHAPE).split(_OR)]


def holds(condition: str, of: Any, where: str) -> Any:
    """Whether a condition holds of something that has the axes by name: a shape, a data frame.

    `where` is who gave the condition, for the error that says what is wrong with it.
    """
    if shapes := _listed(condition):
        return functools.reduce(operator.or_, (_is(of, shape) for shape in shapes))
    axis, sign, number = _parts(condition, where)
    return _TESTS[sign](getattr(of, axis), number)


def _is(of: Any, shape: Shape) -> Any:
    same = (getattr(of, axis) == getattr(shape, axis) for axis in AXES)
    return functools.reduce(operator.and_, same)


def _parts(condition: str, where: str) -> tuple[str, str, int]:
    """Axis, comparison and number of a condition."""
    match = re.fullmatch(r"\s*([a-z_]+)\s*(<=|>=|!=|==|=|<|>)\s*(\d+)\s*", condition)
    axis = match[1] if match else ""
    axis = "input_size" if axis == "input" else axis
    if not match or axis not in AXES:
        _refuse_list(condition, where)
        raise LstmBenchError(
            f"{where}: found {condition!r}, expected one of {', '.join(_TYPED)}, then"
            " =, !=, <, <=, > or >=, then a number, as in 'batch>=16'"
        )
    return axis, match[2], int(match[3])


def _refuse_list(condition: str, where: str) -> None:
    """Of a list of sizes say what can be asked for: a range, which two conditions are."""
    match = re.fullmatch(r"\s*([a-z_]+)\s*[=<>!]+\s*\[?(\d+(?:\s*,\s*\d+)+)\]?\s*", condition)
    if not match or match[1] not in (*AXES, "input"):
        return
    sizes = [int(size) for size in match[2].split(",")]
    ends = [f"'{match[1]}>={min(sizes)}'", f"'{match[1]}<={max(sizes)}'"]
    flags = " ".join(f"{where} {end}" for end in ends)
    typed = flags if where.startswith("--") else f"[{', '.join(ends)}]"
    raise LstmBenchError(
        f"{where}: found {condition!r}, a list, expected one number; a range is {typed}"
    )


def chosen(cells: pd.DataFrame, conditions: Sequence[str], run: str = "the run") -> pd.DataFrame:
    """The cells of the shapes that hold to all conditions of --where and --shape."""
    left = cells
    for condition in conditions:
        for shape in _listed(condition):
            _check_there(shape, cells, run)
        left = left[holds(condition, left, "--where")]
        if left.empty and _listed(condition):
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
    """Refuse a shape that the run does not have, with those that are the fewest doublings away."""
    there = shapes_of(cells)
    if shape in there:
        return

    def far(other: Shape) -> float:
        pairs = zip(astuple(shape), astuple(other), strict=True)
        return sum(abs(math.log2(max(asked, 1) / found)) for asked, found in pairs)

    near = sorted(there, key=lambda other: (far(other), other))[:_NEAREST]
    told = f"; the nearest there: {'  '.join(one.label for one in near)}" if near else ""
    raise LstmBenchError(f"--shape {shape.label}: not in {run}{told}")


def shapes_of(cells: pd.DataFrame) -> set[Shape]:
    """The shapes of these cells."""
    found = cells[list(AXES)].drop_duplicates()
    return {Shape(*map(int, sizes)) for sizes in found.itertuples(index=False, name=None)}
