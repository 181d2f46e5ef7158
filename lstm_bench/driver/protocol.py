"""What a worker may answer, verb by verb; anything else is a worker that has lost its mind."""

from __future__ import annotations

from typing import Any

import msgspec

from lstm_bench.model.profile import Activity, Profile, Window
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


class Measured(msgspec.Struct):
    block: Block

    def __post_init__(self) -> None:
        block = self.block
        times = (*block.latency_ns, block.queued_ns)
        if not block.latency_ns or min(times) <= 0 or max(times) > LONGEST_NS:
            raise ValueError("a block without times")
        if not (1 <= block.queued_calls < LONGEST_NS and 0 <= block.wall_s < LONGEST_NS):
            raise ValueError("a block without queued calls")


class Profiled(msgspec.Struct):
    profile: Profile
    activities: list[Activity] = []
    windows: list[Window] = []


class Loaded(msgspec.Struct):
    calls: int
    seconds: float

    def __post_init__(self) -> None:
        if not (0 < self.calls < LONGEST_NS and 0 < self.seconds < LONGEST_NS):
            raise ValueError("a load without calls")


class Checked(msgspec.Struct):
    check: Check


_KINDS: dict[str, type] = {
    "hello": Hello,
    "pose": Nothing,
    "prepare": Prepared,
    "measure": Measured,
    "profile": Profiled,
    "load": Loaded,
    "check": Checked,
    "release": Nothing,
}


def parsed(verb: str, reply: dict[str, Any]) -> Any:
    """The reply to a verb; raises ValueError that says what is wrong with it."""
    kind = Failure if "status" in reply else _KINDS[verb]
    return msgspec.convert(reply, kind)
