"""How the warpgroup family takes a layer: its constants, and its weights as it wants them.

`gpu/warpgroup.cu` says what the constants mean.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lstm_kernels.halves import STORAGES, Array, halves
from lstm_kernels.plans.shares import share_of

UNITS = 16  # of a tile
GROUP = 128  # threads of a warpgroup
MOVER_REGISTERS = 40  # of a thread that moves h
FEWEST_SEQUENCES = 9  # of a batch: fewer are what warps take at a time


@dataclass(frozen=True)
class WarpgroupPlan:
    """A team of blocks that hold a layer together, and what each of its warpgroups does."""

    blocks: int
    tiles: int
    slices: int
    sequences: int  # at a time
    turns: int  # chunks of so many sequences that it has room for
    split: bool
    storage: str
    room: int  # bytes of shared memory that a block may have
    slot_steps: int = 8
    fewer: int = 0  # fragments that `held` leaves out, where the compiler found no room for them
    lengths: bool = False  # whether sequences end at lengths of their own

    family = "warpgroup"
    source = "warpgroup.cu"
    cluster = False

    @property
    def warpgroups(self) -> int:
        """That multiply; one more moves h."""
        return self.tiles * self.slices

    @property
    def threads(self) -> int:
        return (self.warpgroups + 1) * GROUP

    @property
    def producers(self) -> int:
        return self.blocks * self.tiles

    @property
    def copies(self) -> int:
        return 2 if self.split else 1

    @property
    def fragments(self) -> int:
        return self.producers // self.slices * self.copies

    @property
    def held(self) -> int:
        """Fragments in registers: as many as should leave a thread enough for its other work."""
        at_start = 65536 // self.threads // 8 * 8
        shared = at_start * (self.warpgroups + 1) - MOVER_REGISTERS
        registers = min(255, shared // self.warpgroups // 8 * 8)
        sums = self.sequences // 2 * (3 if self.split else 1)  # of high and low halves, and both
        work = 48 + sums
        return max(0, min(self.fragments, (registers - work) // 4) - self.fewer)

    def with_fewer_held(self) -> WarpgroupPlan | None:
        """The next to try where the compiler finds the registers too few."""
        other = dataclasses.replace(self, fewer=self.fewer + 2)
        return other if self.held and other.fits else None

    def chunks(self, share: int) -> int:
        return -(-share // self.sequences)

    @property
    def packet(self) -> int:
        """Bytes of h that a tile sends for one chunk."""
        return self.copies * UNITS * self.sequences * 2

    @property
    def slot(self) -> int:
        return self.slot_steps * self.packet

    @property
    def ring(self) -> int:
        """Slots of h in shared memory, of those that fit: of two chunks, or a whole part of one."""
        left = self.room - self._bytes(0) - self._state(self.turns)
        slots = self.producers // self.slot_steps
        sizes = [2 * slots, *(slots // part for part in range(1, slots + 1) if slots % part == 0)]
        fitting = (n for n in sizes if n * (self.slot + 16) <= left and n % self.slices == 0)
        return next(fitting, 0)

    @property
    def fits(self) -> bool:
        return self.ring >= 2 * self.slices and self.producers // self.slot_steps <= 32

    def shared_bytes(self, share: int) -> int:
        """Of shared memory, for a team that takes `share` sequences."""
        return self._bytes(self.ring) + self._state(self.chunks(share))

    def _bytes(self, ring: int) -> int:
        rest = (self.fragments - self.held) * 2048 * self.warpgroups
        sums = self.cells * self.warpgroups * GROUP * 16 if self.slices > 1 else 0
        return rest + ring * (self.slot + 16) + self.tiles * self.packet + sums + 16

    @property
    def cells(self) -> int:
        """Of a thread in a chunk."""
        return self.sequences // 8 // self.slices

    def _state(self, chunks: int) -> int:
        return chunks * self.cells * self.warpgroups * GROUP * 4

    def exchange_bytes(self, share: int, teams: int) -> int:
        """Of device memory, for h on its way between blocks."""
        chunks = self.chunks(share)
        return teams * ((1 + chunks) * 128 + 2 * chunks * self.producers * self.packet)

    @property
    def constants(self) -> dict[str, int]:
        """What the kernel is compiled with."""
        return {
            "BLOCKS": self.blocks,
            "TILES": self.tiles,
            "SLICES": self.slices,
            "SEQUENCES": self.sequences,
            "SPLIT": int(self.split),
            "HELD": self.held,
            "STORAGE": STORAGES[self.storage],
            "SLOT_STEPS": self.slot_steps,
            "RING": self.ring,
            "LENGTHS": int(self.lengths),
        }

    @property
    def label(self) -> str:
        slices = f" in {self.slices} slices" if self.slices > 1 else ""
        units = f"{self.blocks} x {self.tiles * UNITS} units{slices}"
        return f"warpgroups, {units}, {self.sequences} sequences"

    def pack(self, w_hh: Array, top: float | None = None) -> tuple[Array, float]:
        """W_hh as fragments of wgmma, [block][fragment][thread][8 values of 16 bits], and a scale.

        Of the 16 rows of a warp a lane holds row lane / 4 and 8 more: i and f of one of four units,
        or in the upper half of the lanes its g and o. Columns are 2 (lane % 4) and the next, and
        8 more.
        """
        hidden = w_hh.shape[1]
        units = self.producers * UNITS
        gates = np.zeros((4, units, units), np.float32)
        gates[:, :hidden, :hidden] = w_hh.reshape(4, hidden, hidden)
        parts, scale = halves(gates, self.storage, self.split, top)
        steps = self.producers // self.slices
        shape = (2, 2, self.blocks, self.tiles, 4, 4, self.slices, steps, 2, 4, 2)
        #        upper below block  tile     warp unit slice       step octet lane%4 low
        order = (2, 7, 3, 6, 4, 0, 5, 9, 8, 1, 10)
        #        block step tile slice warp upper unit lane%4 octet below low
        packed = np.stack([part.reshape(shape).transpose(order) for part in parts], axis=2)
        threads = self.warpgroups * GROUP
        return np.ascontiguousarray(packed).reshape(self.blocks, self.fragments, threads, 8), scale

    def guess(self, share: int) -> float:
        """Microseconds per step, roughly."""
        products = self.producers * self.tiles * (3 if self.split else 1)  # of a block, in a chunk
        n, in_registers = self.sequences, self.held / self.fragments
        there = max(n / 2, 16 + n / 4)  # cycles, with weights from shared memory
        product = products * (in_registers * max(n / 2, 12) + (1 - in_registers) * there) / 1800
        load = self.producers * self.packet / 44.7e3
        chunk = max(product, load) + 0.617 + 0.257 * self.cells
        return max(self.chunks(share) * chunk, chunk + 1.65)


def candidates(
    hidden: int,
    batch: int,
    split: bool,
    storage: str,
    device: Mapping[str, int],
    directions: int = 1,
) -> dict[WarpgroupPlan, float]:
    """Plans that can hold the layer, with what each may take."""
    found: dict[WarpgroupPlan, float] = {}
    if device["major"] != 9 or batch < FEWEST_SEQUENCES:
        return found  # wgmma is Hopper's alone
    teams = ((1, 1), (2, 1), (1, 2), (4, 1))
    for (tiles, slices), sequences in itertools.product(teams, (16, 32, 64)):
        # Producers come in whole slots: of eight, or of four where that is less padding.
        counts = {
            steps: -(-hidden // (UNITS * least)) * least
            for steps in (8, 4)
            if (least := math.lcm(steps * slices, tiles))
        }
        steps = min(counts, key=lambda steps: counts[steps])
        producers = counts[steps]
        blocks = producers // tiles
        fit = device["multiprocessors"] // blocks
        if not fit:
            continue
        share, launches = share_of(batch, fit, directions, False)
        turns = -(-share // sequences)
        if turns > 1 and turns * sequences >= 2 * share:
            continue
        sizes = (blocks, tiles, slices, sequences, turns)
        plan = WarpgroupPlan(*sizes, split, storage, device["shared_bytes"], steps)
        if plan.fits:
            found[plan] = plan.guess(share) * launches
    return found
