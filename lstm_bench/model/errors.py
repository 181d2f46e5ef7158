"""What can go wrong, and the exit code that says so.

On its own, since `--help` needs it and little else.
"""

from __future__ import annotations

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
GATED = 3  # measured well, and something is worse than it was
CUT_OFF = 141  # as a program that a closed pipe ended


class LstmBenchError(Exception):
    """A mistake in the input, told in one or two lines that end with what to type next."""


class Stopped(LstmBenchError):
    """A run that could not go on; what it had finished is kept."""


class Unsupported(Exception):
    """This implementation cannot run this shape here; the message says why."""
