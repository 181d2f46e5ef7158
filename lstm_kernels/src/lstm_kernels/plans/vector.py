"""How the vector family takes a layer: its constants, and the weights as it wants them.

`gpu/vector.cu` says what the constants mean.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lstm_kernels.halves import STORAGES, Array
from lstm_kernels.plans.shares import share_of

EXCHANGES = {"l2": 0, "words": 1}
MOST_SEQUENCES = 4  # of a batch: tensor cores take eight at a time
WORK = 24  # registers of a thread besides weights and h


@dataclass(frozen=True)
class VectorPlan:
    """A team of blocks that hold a layer together in fp32, and what each of its threads does."""

    columns: int  # K
    blocks: int
    groups: int
    slices: int
    exchange: str
    storage: str
    room: int  # bytes of shared memory that a block may have
    spread: int = 128
    lengths: bool = False  # whether sequences end at lengths of their own

    family = "vector"
    source = "vector.cu"
    sequences = 1  # at a time

    @property
    def cluster(self) -> bool:
        """Whether a team is a cluster, or one block."""
        return self.exchange != "l2"

    @property
    def threads(self) -> int:
        return self.groups * (self.slices + 1) * 32

    @property
    def registers(self) -> int:
        """That a thread can have: each quarter of a multiprocessor has 16384."""
        warps = -(-self.threads // 128)  # of a quarter
        return min(255, 16384 // 32 // warps // 8 * 8)

    @property
    def fits(self) -> bool:
        weights = self.columns // self.slices
        return self.threads <= 1024 and weights + weights // 8 + WORK <= self.registers

    def with_fewer_held(self) -> None:
        """All weights are in registers, or it is no plan."""

    def chunks(self, share: int) -> int:
        return share

    def shared_bytes(self, share: int) -> int:
        """Of shared memory, for a team that takes `share` sequences."""
        sums = 16 + 2 * self.groups * self.slices * 32 * 4
        cells = share * self.groups * 32 * 4
        h = share * 2 * self.columns * 4 if self.cluster else 16
        return sums + cells + h

    def exchange_bytes(self, share: int, teams: int) -> int:
        """Of device memory, for h on its way between blocks."""
        if self.cluster:
            return 0
        packet = self.blocks * self.groups * self.spread
        return -(-teams * 4 // 128) * 128 + teams * 2 * share * packet

    @property
    def constants(self) -> dict[str, int]:
        """What the kernel is compiled with."""
        return {
            "K": self.columns,
            "BLOCKS": self.blocks,
            "GROUPS": self.groups,
            "SLICES": self.slices,
            "EXCHANGE": EXCHANGES[self.exchange],
            "SPREAD": self.spread,
            "STORAGE": STORAGES[self.storage],
            "LENGTHS": int(self.lengths),
        }

    @property
    def label(self) -> str:
        kind = "cluster" if self.cluster else "whole GPU"
        return f"{kind}, {self.blocks} x {self.groups * 8} units, vectors in {self.slices} slices"

    def pack(self, w_hh: Array, top: float | None = None) -> tuple[Array, float]:
        """W_hh as lanes hold it, [block][piece and row][thread][4 columns], and its scale.

        A lane has two units of an octet, lane / 8 counts them, and of each 32 columns the four
        from 4 (lane % 8) on.
        """
        hidden = w_hh.shape[1]
        gates = np.zeros((4, self.blocks * self.groups * 8, self.columns), np.float32)
        gates[:, :hidden, :hidden] = w_hh.reshape(4, hidden, hidden)
        pieces = self.columns // self.slices // 32
        shape = (4, self.blocks, self.groups, 4, 2, self.slices, pieces, 8, 4)
        #        gate block      group   lane/8 unit slice       piece lane%8 column
        order = (1, 6, 4, 0, 2, 5, 3, 7, 8)
        packed = np.ascontiguousarray(gates.reshape(shape).transpose(order))
        return packed.reshape(self.blocks, pieces * 8, self.groups * self.slices * 32, 4), 1.0

    def guess(self, share: int) -> float:
        """Microseconds per step, roughly."""
        exchange = 0.331 if self.cluster else 0.554 + self.blocks * 0.002
        products = self.columns // self.slices * -(-self.groups * self.slices // 4)  # of a quarter
        return exchange + 0.25 + share * (products / 340 + 0.015)


def candidates(
    hidden: int,
    batch: int,
    split: bool,
    storage: str,
    device: Mapping[str, int],
    directions: int = 1,
) -> dict[VectorPlan, float]:
    """Plans that can hold the layer, with what each may take; they multiply in fp32, unsplit."""
    found: dict[VectorPlan, float] = {}
    if batch > MOST_SEQUENCES:
        return found
    clusters, multiprocessors = device["major"] >= 9, device["multiprocessors"]
    octets = -(-hidden // 8)
    teams = [("words", 1), *(("words", n) for n in (2, 4, 8, 16) if clusters and n <= octets)]
    teams += [("l2", -(-hidden // units)) for units in (8, 16)]
    for (exchange, least), slices in itertools.product(teams, (16, 8, 4, 2, 1)):
        groups = -(-octets // least)
        columns = -(-least * groups // (4 * slices)) * 32 * slices
        if groups > 15 or (slices > 1 and columns >= 2 * max(hidden, 16)):
            continue  # too many octets, or mostly padding
        blocks = least
        if exchange == "words":
            if columns > 32 * slices:
                continue  # a lane looks at one address until all is there
        else:
            whole = columns // (8 * groups)  # blocks for which no column is padding
            blocks = whole if whole <= multiprocessors else least
            if least == 1 or least > multiprocessors or slices == 1:
                continue
        plan = VectorPlan(
            columns, blocks, groups, slices, exchange, storage, device["shared_bytes"]
        )
        fit = multiprocessors // blocks
        if exchange == "words" and blocks > 2:
            fit = max(1, {4: 32, 8: 15, 16: 7}[blocks] * multiprocessors // 132)
        share, launches = share_of(batch, fit, directions, exchange == "words")
        if plan.fits and plan.shared_bytes(share) <= plan.room:
            found[plan] = plan.guess(share) * launches
    return found
