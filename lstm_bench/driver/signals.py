"""Ending a run early without losing any of it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Signals wait until this is over: amid an import Python may print Ctrl-C and pass it over.

    They are noted, not blocked: a mask is a thread's own, and any other thread may take the signal.
    """
    caught: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(n, lambda number, _: caught.append(number)) for n in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for late in dict.fromkeys(caught):
            signal.raise_signal(late)


class Stop:
    """Ctrl-C and SIGTERM end the run after the current block; a second one ends it now.

    Either way no finished cell is lost; now means without the blocks of the shape at hand.
    """

    def __init__(
        self, tell: Callable[[str], None], word: str = "stopping after the current block"
    ) -> None:
        self.tell, self.word = tell, word
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
        self.tell(f"{self.word}; once more to stop now")
