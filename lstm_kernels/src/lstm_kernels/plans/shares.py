"""How teams share a batch, and the directions of a layer."""

from __future__ import annotations


def share_of(batch: int, fit: int, directions: int, queues: bool) -> tuple[int, int]:
    """Sequences per team where `fit` teams run at once, and how often the kernel is launched.

    Both directions run in one launch where a team of each fits, or where teams can wait for others.
    """
    beside = directions if queues or fit >= directions else 1
    return -(-batch // max(1, fit // beside)), directions // beside
