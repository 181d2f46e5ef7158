"""The choice among several rows: who is exact enough, and who wins a tie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lstm_bench.analysis.summary import ANY
from lstm_bench.model.types import ACCURACY, LstmBenchError

#: The most accurate first: who may have one of them may have any before it.
CLASSES = tuple(dict.fromkeys(ACCURACY.values()))
TIE = 0.25  # a difference that is larger is never a tie, however noisy


def allowed(accuracy: str) -> tuple[str, ...]:
    """The classes that are no coarser than the one that was asked for."""
    if accuracy not in (*CLASSES, ANY):
        known = ", ".join((*CLASSES, ANY))
        raise LstmBenchError(f"accuracy: found {accuracy!r}, expected one of {known}")
    return (*CLASSES, "unknown") if accuracy == ANY else CLASSES[: CLASSES.index(accuracy) + 1]


def rank(accuracy: str) -> int:
    """How coarse a class is; one that is not known is the coarsest."""
    return CLASSES.index(accuracy) if accuracy in CLASSES else len(CLASSES)


def settled(
    rows: Sequence[Mapping[str, Any]], now: str, margin: Callable[[str, str], float]
) -> list[Mapping[str, Any]]:
    """The rows that tie with the fastest: first the most exact, else what runs now.

    `margin` is by how much two rows may differ and be alike.
    """

    def tie(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """True if a row is no slower than another beyond what can be known."""
        most = min(TIE, margin(row["implementation"], other["implementation"]))
        return bool(row["latency_s"] <= (1 + most) * other["latency_s"])

    def order(row: Mapping[str, Any]) -> tuple[bool, int, bool, float]:
        surely, own = row["verdict"] == "faster", row["implementation"] == now
        return not surely, rank(row["accuracy"]), not own, row["latency_s"]

    best = min(rows, key=lambda row: row["latency_s"])
    alike = [row for row in rows if tie(row, best)]
    pick = min(alike, key=order)
    return [pick, *(row for row in alike if row is not pick)]
