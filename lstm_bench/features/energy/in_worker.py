"""Keeps the device at work while the driver reads its energy counter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lstm_bench.worker.worker import Worker

LOAD_BATCH_S = 0.02  # so long a batch of calls is queued between waits


def load(worker: Worker, key: str, seconds: float) -> dict[str, Any]:
    """Queue calls of a prepared session back to back for some time."""
    held = worker.prepared[key]
    batch = max(1, int(LOAD_BATCH_S / max(held.call_s, 1e-9)))
    calls, spent_ns = 0, 0
    while spent_ns < seconds * 1e9:
        spent_ns += held.session.time_queued(batch, held.clock)
        calls += batch
    return {"calls": calls, "seconds": spent_ns / 1e9}


REQUESTS = {"load": load}
