"""Ending a run early without losing any of it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Signals wait until this is over: amid an import Python may print Ctrl-C and pass it over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Stop:
    """Ctrl-C and SIGTERM end the run after the current block; a second one ends it now.

    Either way no finished cell is lost; now means without the blocks of the shape at hand.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.count, self.exit_code = 0, 128 + signal.SIGINT
        self._before: list[tuple[int, Any]] = []

    def __call__(self) -> bool:
        return self.count > 0

    def __enter__(self) -> Stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before.append((number, signal.signal(number, self._caught)))
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _caught(self, number: int, _frame: object) -> None:
        self.count += 1
        if number == signal.SIGTERM:
            self.exit_code = 128 + signal.SIGTERM
        if self.count > 1:
            raise SystemExit(self.exit_code)
        self.tell("stopping after the current block; once more to stop now")
