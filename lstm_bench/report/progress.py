"""Progress of a run: a live bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from lstm_bench.model.types import Cell, Record, kinds
from lstm_bench.model.units import WIDTH, clean, clipped, seconds, span

_LAST = 6  # results kept in view
_LEAST = 0.02  # share of the time so far that is left while cells are


def _name(cell: Cell | Record) -> str:
    return cell.implementation + (" (A/A)" if cell.copy > 1 else "")


def result_line(record: Record, shape: int = 0, name: int = 0) -> str:
    """One cell in one line, its shape and its name in columns of these widths."""
    head = f"{record.shape.label:>{shape}}  {_name(record):<{name}}"
    if record.status != "ok":
        return clean(f"{head} {record.status}: {record.reason}")
    low, high = record.latency_interval_s or (0.0, 0.0)
    half = f"+-{100 * (high - low) / 2 / (record.latency_s or 1.0):4.1f}%"
    half = half if record.rounds > 2 else " " * len(half)
    marks = ", ".join(kinds(record.warnings))
    line = f"{head} {seconds(record.latency_s):>8} {half}  {record.rounds:>2}r"
    return f"{line}  {marks}" if marks else line


class Clockwork:
    """Cells done and time left, by the estimate, which the run corrects after every shape."""

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self.now = now
        self.cells = self.done = 0
        self.widths = (0, 0)
        self._shown: set[tuple[str, str]] = set()

    def started(self, cells: Sequence[Cell], guess_s: float) -> None:
        self.cells = len(cells)
        columns = ([cell.shape.label for cell in cells], [_name(cell) for cell in cells])
        self.widths = (max(map(len, columns[0]), default=0), max(map(len, columns[1]), default=0))
        self.begin = self.at = self.now()
        self.left_then_s = guess_s

    def finished(self, record: Record) -> None:
        self.done += 1

    def expect(self, seconds: float) -> None:
        self.at, self.left_then_s = self.now(), seconds

    def worth_showing(self, record: Record) -> bool:
        """False if the same row could not run here before, for the same reason."""
        if record.status not in ("missing", "unsupported"):
            return True
        why = (record.implementation, record.reason)
        known = why in self._shown
        self._shown.add(why)
        return not known

    def left_s(self) -> float:
        """Counts down from one estimate to the next, but not to nothing while cells are left."""
        if self.done >= self.cells:
            return 0.0
        now = self.now()
        return max(self.left_then_s - (now - self.at), _LEAST * (now - self.begin))


class PlainProgress(Clockwork):
    """A line per finished cell, for pipes and logs."""

    def __init__(self, write: Callable[[str], None]):
        super().__init__()
        self.write = write

    def doing(self, text: str) -> None:
        """Nothing: only results are worth a line in a log."""

    def warn(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self.write(clean(f"! {text}"))

    def finished(self, record: Record) -> None:
        super().finished(record)
        if not self.worth_showing(record):
            return
        left = f"{self.done}/{self.cells}, {span(self.left_s())} left"
        try:
            self.write(clipped(f"[{left}]".ljust(24) + result_line(record, *self.widths), WIDTH))
        except OSError:
            pass  # nobody reads it any more; the run goes on

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LiveProgress(Clockwork):
    """A bar with cells done and time left over the last few results."""

    def __init__(self, console: Any):
        super().__init__()
        from rich.live import Live

        self.console = console
        self.now_doing = "starting the workers"
        self.last: list[str] = []
        self.live = Live(self, console=console, refresh_per_second=4, transient=True)

    def doing(self, text: str) -> None:
        self.now_doing = text

    def warn(self, text: str) -> None:
        self.console.print(f"! {clean(text)}", markup=False, highlight=False)

    def finished(self, record: Record) -> None:
        super().finished(record)
        if self.worth_showing(record):
            self.last = [*self.last, result_line(record, *self.widths)][-_LAST:]

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=max(1, self.cells), completed=self.done, width=30),
            Text(f"{self.done}/{self.cells} cells"),
            Text(f"{span(self.left_s())} left" if self.cells else ""),
        )
        lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in self.last]
        doing = Text(self.now_doing, style="dim", no_wrap=True, overflow="ellipsis")
        return Group(*lines, bar, doing)

    def __enter__(self) -> LiveProgress:
        self.live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.live.__exit__(*error)
