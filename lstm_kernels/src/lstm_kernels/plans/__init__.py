"""Which plans our own kernels have for a layer, the likeliest to be fast first.

A plan is right for any shape whose layer it can hold. Which of several is fast it guesses, by
constants that were fitted to 985 times of plans at 113 shapes on an H200. A family is a file with a
class of plans and `candidates`, and stands in `FAMILIES`. A plan says what its kernel is compiled
with (`source`, `constants`), how it is launched (`cluster`, `blocks`, `threads` and memory) and how
it takes a batch (`sequences`, `chunks`); it can `pack` the weights and `guess`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from lstm_kernels.plans import tensor, vector, warpgroup
from lstm_kernels.plans.tensor import TensorPlan
from lstm_kernels.plans.vector import VectorPlan
from lstm_kernels.plans.warpgroup import WarpgroupPlan

Plan = TensorPlan | VectorPlan | WarpgroupPlan
FAMILIES = vector, tensor, warpgroup
H0_MOST = 2.0**15  # above it a half of h0 is infinite


def candidates(
    hidden: int,
    batch: int,
    split: bool,
    storage: str,
    device: Mapping[str, int],
    directions: int = 1,
) -> list[Plan]:
    """Plans that can hold the layer, by what each may take.

    A team of one size comes twice at most before all others have come: sizes matter most.
    """
    found: dict[Any, float] = {}
    for family in FAMILIES:
        found |= family.candidates(hidden, batch, split, storage, device, directions)
    ordered = sorted(found, key=lambda plan: found[plan])
    seen = Counter[tuple[str, int]]()
    late = []
    for plan in ordered:
        seen[plan.family, plan.blocks] += 1
        if seen[plan.family, plan.blocks] > 2:
            late.append(plan)
    return [plan for plan in ordered if plan not in late] + late
