"""Which shapes are meant: conditions such as `batch>=16`."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lstm_bench.model import LstmBenchError, Shape

if TYPE_CHECKING:
    import pandas as pd

AXES = ("hidden", "batch", "timesteps", "input_size")
_TESTS = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def holds(condition: str, of: Any, where: str) -> Any:
    """Whether a condition holds of something that has the axes by name: a shape, a data frame.

    `where` is who gave the condition, for the error that says what is wrong with it.
    """
    axis, sign, number = _parts(condition, where)
    return _TESTS[sign](getattr(of, axis), number)


def _parts(condition: str, where: str) -> tuple[str, str, int]:
    """Axis, comparison and number of a condition."""
    match = re.fullmatch(r"\s*([a-z_]+)\s*(<=|>=|!=|==|=|<|>)\s*(\d+)\s*", condition)
    axis = match[1] if match else ""
    axis = "input_size" if axis == "input" else axis  # as grid files call it
    if not match or axis not in AXES:
        _refuse_list(condition, where)
        raise LstmBenchError(
            f"{where}: found {condition!r}, expected one of {', '.join(AXES)}, then"
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


def chosen(cells: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """The cells of the shapes that hold to all conditions of --where."""
    left = cells
    for condition in conditions:
        left = left[holds(condition, left, "--where")]
        if left.empty:
            axis = _parts(condition, "--where")[0]
            sizes = ", ".join(map(str, sorted(cells[axis].unique())))
            raise LstmBenchError(
                f"--where {' and '.join(conditions)}: no shape of the run is left; it has"
                f" {axis} {sizes}"
            )
    return left


def shapes_of(cells: pd.DataFrame) -> set[Shape]:
    """The shapes of these cells."""
    found = cells[list(AXES)].drop_duplicates()
    return {Shape(*map(int, sizes)) for sizes in found.itertuples(index=False, name=None)}
