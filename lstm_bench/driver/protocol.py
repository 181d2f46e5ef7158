"""The replies of a worker, verb by verb; anything else means that the worker is broken."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from lstm_bench import features
from lstm_bench.model.types import Block, Check, WarmUp
from lstm_bench.runs.store import Count

LONGEST_NS = 2**60


class Failure(msgspec.Struct):
    """The worker lives, the request failed; `status` is what this makes of the cell."""

    status: str
    reason: str


class Hello(msgspec.Struct):
    python: str
    versions: dict[str, str]
    threads: Count
    tf32: bool
    import_s: float | None = None
    import_bytes: Count = 0


class Nothing(msgspec.Struct):
    pass


class Prepared(msgspec.Struct):
    build_s: float
    first_call_s: float
    check: Check
    path: str
    precision: str
    memory: dict[str, int]
    warm_up: WarmUp | None = None  # none: the answer was wrong, so it was not warmed


class MeasuredBlock(msgspec.Struct):
    block: Block

    def __post_init__(self) -> None:
        block = self.block
        times = (*block.latency_ns, block.queued_ns)
        if not block.latency_ns or min(times) <= 0 or max(times) > LONGEST_NS:
            raise ValueError("a block without times")
        if not (1 <= block.queued_calls < LONGEST_NS and 0 <= block.wall_s < LONGEST_NS):
            raise ValueError("a block without queued calls")


class Checked(msgspec.Struct):
    check: Check


@functools.cache
def kinds() -> dict[str, type]:
    """The type of the reply to each verb.

    Behind the door `reply` a feature has those to its own requests, by verb.
    """
    known: dict[str, type] = {
        "hello": Hello,
        "pose": Nothing,
        "prepare": Prepared,
        "measure": MeasuredBlock,
        "check": Checked,
        "release": Nothing,
    }
    for replies in features.behind("reply"):
        known |= replies
    return known


def parsed(verb: str, reply: dict[str, Any]) -> Any:
    """The reply to a verb; raises ValueError that says what is wrong with it."""
    return msgspec.convert(reply, Failure if "status" in reply else kinds()[verb])
