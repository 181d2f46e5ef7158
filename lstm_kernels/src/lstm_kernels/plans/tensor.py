"""How the cluster and whole-GPU families take a layer: constants, and weights as they want them.

`gpu/include/step.cuh` says what the constants mean.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lstm_kernels.halves import STORAGES, Array, halves
from lstm_kernels.plans.shares import share_of

FEWER = {True: 2, False: 4}  # by `split`: fragments that may go to shared memory instead


@dataclass(frozen=True)
class TensorPlan:
    """A team of blocks that hold a layer together, and what each of its threads does."""

    family: str  # "cluster" or "whole_gpu"
    columns: int  # K
    blocks: int
    groups: int
    slices: int
    sequences: int  # at a time
    split: bool
    storage: str
    room: int  # bytes of shared memory that a block may have
    fewer: int = 0  # fragments that `held` leaves out, where the compiler found no room for them
    lengths: bool = False  # whether sequences end at lengths of their own

    @property
    def source(self) -> str:
        return f"{self.family}.cu"

    @property
    def cluster(self) -> bool:
        """Whether a team is a cluster, or one block."""
        return self.family == "cluster"

    @property
    def threads(self) -> int:
        return self.groups * self.slices * 32

    @property
    def copies(self) -> int:
        return 2 if self.split else 1

    @property
    def fragments(self) -> int:
        return self.columns // 16 // self.slices * 2 * self.copies

    @property
    def chains(self) -> int:
        """Sums that do not wait for each other, as the kernel counts them."""
        tiles = self.sequences // 8
        return 1 if not self.split or tiles > 2 else 4 - tiles

    @property
    def held(self) -> int:
        """Fragments in registers: as many as should leave a thread enough for its other work."""
        registers = min(65536 // self.threads // 8 * 8, 255)
        tiles = self.sequences // 8
        work = 8 * tiles * self.chains + 4 * tiles * self.copies + {1: 54, 2: 70, 4: 84}[tiles]
        if self.family == "whole_gpu":
            work += 32 if self.threads > 256 else 10 if tiles == 1 else 0
        return max(0, min(self.fragments, (registers - work) // 8 * 2) - self.fewer)

    def with_fewer_held(self) -> TensorPlan | None:
        """The next to try where the compiler finds the registers too few."""
        return dataclasses.replace(self, fewer=self.fewer + 2) if self.held else None

    @property
    def stages(self) -> int:
        """Buffers for h in shared memory, in the whole-GPU family: two if they fit."""
        return 2 if self._bytes(1, 2) <= self.room else 1

    def chunks(self, share: int) -> int:
        return -(-share // self.sequences)

    def shared_bytes(self, share: int) -> int:
        """Of shared memory, for a team that takes `share` sequences."""
        chunks = self.chunks(share)
        if self.family == "whole_gpu":
            return self._bytes(chunks, self.stages)
        return self._bytes(chunks, 2 * chunks) + 16 * chunks  # and its barriers

    def _bytes(self, chunks: int, buffers: int) -> int:
        s = self.sequences
        weights = (self.fragments - self.held) * self.threads * 16
        sums = (2 if s == 8 else 1) * self.groups * self.slices * s * 9 * 16
        passes = -(-s // (4 * self.slices))  # of a warp over its cells
        lanes = self.groups * min(self.slices, s // 4) * 32
        cells = passes * lanes * (4 * chunks + 16 * (4 if s == 8 else 2))
        return weights + sums + cells + buffers * self.copies * (self.columns // 8) * (s * 16 + 32)

    def exchange_bytes(self, share: int, teams: int) -> int:
        """Of device memory, for h on its way between blocks."""
        if self.family == "cluster":
            return 0
        packet = self.copies * self.blocks * self.groups * self.sequences * 16
        return -(-teams * 4 // 128) * 128 + teams * 2 * self.chunks(share) * packet

    @property
    def constants(self) -> dict[str, int]:
        """What the kernel is compiled with."""
        return {
            "K": self.columns,
            "BLOCKS": self.blocks,
            "GROUPS": self.groups,
            "SLICES": self.slices,
            "SEQUENCES": self.sequences,
            "SPLIT": int(self.split),
            "HELD": self.held,
            "STORAGE": STORAGES[self.storage],
            "LENGTHS": int(self.lengths),
            **({"STAGES": self.stages} if self.family == "whole_gpu" else {}),
        }

    @property
    def label(self) -> str:
        kind = "cluster" if self.cluster else "whole GPU"
        return f"{kind}, {self.blocks} x {self.groups * 8} units, {self.sequences} sequences"

    def pack(self, w_hh: Array, top: float | None = None) -> tuple[Array, float]:
        """W_hh as fragments of mma, [block][fragment][thread][8 values of 16 bits], and a scale."""
        hidden = w_hh.shape[1]
        gates = np.zeros((4, self.blocks * self.groups * 8, self.columns), np.float32)
        gates[:, :hidden, :hidden] = w_hh.reshape(4, hidden, hidden)
        parts, scale = halves(gates, self.storage, self.split, top)
        # The axes of a part, as the kernel counts: a fragment has 16 rows, i and f (or g and o) of
        # eight units, and 16 columns. A lane holds rows lane / 4 and 8 more, and of each 32 columns
        # the eight from 8 (lane % 4) on, four in each of two fragments.
        steps = self.columns // 32 // self.slices
        shape = (2, 2, self.blocks, self.groups, 8, self.slices, steps, 4, 2, 2, 2)
        #        m  r0 block        group        lane/4 slice    pair  q  s  r1 low
        order = (2, 6, 8, 0, 3, 5, 4, 7, 9, 1, 10)
        #        block pair s m group slice lane/4 q r1 r0 low
        packed = np.stack([part.reshape(shape).transpose(order) for part in parts], axis=1)
        # [block, copy, pair, s, m] are the fragments; [group, slice, lane] the threads
        sizes = (self.blocks, self.fragments, self.threads, 8)
        return np.ascontiguousarray(packed).reshape(sizes), scale

    def guess(self, share: int) -> float:
        """Microseconds per step, roughly."""
        chunks = self.chunks(share)
        tiles = self.sequences // 8
        products = self.columns // 16 // self.slices * (3 if self.split else 1)  # one after another
        chain = products / self.chains * 27.4 / 1800
        busy = products * 2 * tiles * self.groups * self.slices / 4 * 6.58 / 1800
        rest = (self.fragments - self.held) * self.threads * 16 / 308e3  # from shared memory
        cells = 0.306 * -(-self.sequences // (4 * self.slices)) * self.groups * self.slices / 8
        moved = self.columns * self.copies * 2 * (55.1e-6 if self.family == "cluster" else 8.15e-6)
        fixed = (
            0.112
            if self.blocks == 1
            else 0.602
            if self.family == "cluster"
            else 1.3 + 2.02 * (chunks - 1)
        )
        in_turn = max(chain, busy) + 0.889 * rest + cells
        return fixed + chunks * in_turn + share * moved * self.blocks / 8


def candidates(
    hidden: int,
    batch: int,
    split: bool,
    storage: str,
    device: Mapping[str, int],
    directions: int = 1,
) -> dict[TensorPlan, float]:
    """Plans of the families with tensor cores, with what each may take."""
    found: dict[TensorPlan, float] = {}
    clusters, multiprocessors = device["major"] >= 9, device["multiprocessors"]
    teams = [("cluster", 1), *(("cluster", n) for n in (2, 4, 8, 16) if clusters)]
    teams += [("whole_gpu", -(-hidden // units)) for units in (8, 16, 32)]
    for (family, blocks), sequences, slices in itertools.product(teams, (8, 16, 32), (8, 4, 2, 1)):
        groups = -(-hidden // (8 * blocks))
        columns = -(-blocks * groups // (4 * slices)) * 32 * slices
        warps = groups * slices
        if warps > (8 if sequences == 32 else 16) or columns >= 2 * hidden > 32 * slices:
            continue  # too many threads, or mostly padding
        sizes = (columns, blocks, groups, slices, sequences)
        plan = TensorPlan(family, *sizes, split, storage, device["shared_bytes"])
        fit = multiprocessors // blocks
        if family == "whole_gpu" and (blocks == 1 or not fit):
            continue
        if family == "cluster" and blocks > 2:
            fit = max(1, {4: 32, 8: 15, 16: 7}[blocks] * multiprocessors // 132)
        share, launches = share_of(batch, fit, directions, family == "cluster")
        at_once = share if family == "whole_gpu" else min(share, sequences)  # clusters can queue
        if (
            dataclasses.replace(plan, fewer=min(FEWER[split], plan.held)).shared_bytes(at_once)
            <= plan.room
        ):
            found[plan] = plan.guess(share) * launches
    return found
