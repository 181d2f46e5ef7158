"""The most memory that one cell needed, on the host and on the device; runs in its worker.

All cells of a shape live in one process. A cell's peak is the most that was in use between the
start of its build and the end of its first call, less what was in use before: its neighbours are
held then, but not called. Inputs that were on the device already, put there by a neighbour,
are added. Later calls are left out: they hold the answer of the call before, for the check.
"""

from __future__ import annotations

import resource
from typing import Any

from lstm_bench.worker.problem import Problem
from lstm_bench.worker.session import Session

RESET = "/proc/self/clear_refs"
STATUS = "/proc/self/status"


class Peak:
    """Make it before a cell's build, and ask it after the first call."""

    def __init__(self, module: Any, device: str, problem: Problem):
        """`module` is the implementation's; with an allocator of its own it has `allocated`."""
        self.problem, self.held_before = problem, problem.held
        allocated = getattr(module, "allocated", None) if device != "cpu" else None
        self.on_device = device != "cpu"
        self.device_before = allocated() if allocated else 0
        self.own = reset_host_peak()
        self.host_before = _status("VmRSS")

    def measured(self, session: Session) -> dict[str, int]:
        """Bytes by name, to stand beside a session's `memory`; what is not known is left out."""
        peaks = {}
        device = session.device_peak() if self.on_device else None
        if device is not None:
            were_there = self.problem.held == self.held_before > 0
            inputs = session.memory.get("inputs", 0) if were_there else 0
            peaks["device peak"] = max(0, device - self.device_before) + inputs
        host = _status("VmHWM")
        if self.own and host is not None and self.host_before is not None:
            peaks["host peak"] = max(0, host - self.host_before)
        else:  # it counts since the process began: another cell may have set it
            peaks["process peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return peaks


def reset_host_peak() -> bool:
    """Let the kernel count this process's peak from here on; false where it does not."""
    try:
        with open(RESET, "w") as file:
            file.write("5")
    except OSError:
        return False
    return True


def resident() -> int:
    """Return the bytes that the process holds now; 0 where the system does not say."""
    return _status("VmRSS") or 0


def _status(name: str) -> int | None:
    """A line of the process's status, in bytes."""
    try:
        with open(STATUS) as file:
            for line in file:
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
