"""Errors and exit codes, in a file of their own since `--help` loads little else."""

from __future__ import annotations

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
GATED = 3  # measured, and something is worse than before
CUT_OFF = 141  # the output was a pipe that closed


class LstmBenchError(Exception):
    """A mistake in the input; the message is a line or two that end with what to type next."""


class Stopped(LstmBenchError):
    """A run that cannot go on; its finished cells are kept."""


class Unsupported(Exception):
    """This implementation cannot run this shape here; the message says why."""
