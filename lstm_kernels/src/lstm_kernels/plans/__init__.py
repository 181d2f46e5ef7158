"""Which plans our own kernels have for a layer, the likeliest to be fast first.

A plan is right for any shape whose layer it can hold; which of several is fast is measured
(`layer.py`). A family is a file with a class of plans and `candidates`, and stands in `FAMILIES`.
A plan says what its kernel is compiled with (`source`, `constants`), how it is launched (`cluster`,
`blocks`, `threads` and memory) and how it takes a batch (`sequences`, `chunks`); it can `pack` the
weights and `guess`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

from lstm_kernels.plans import tensor, vector, warpgroup
from lstm_kernels.plans.tensor import TensorPlan
from lstm_kernels.plans.vector import VectorPlan
from lstm_kernels.plans.warpgroup import WarpgroupPlan

Plan = TensorPlan | VectorPlan | WarpgroupPlan
FAMILIES = ((vector,), (tensor, warpgroup))  # without tensor cores, and with: tried in turns
H0_MOST = 2.0**15  # above it a half of h0 is infinite


def candidates(
    hidden: int, batch: int, split: bool, storage: str, device: Mapping[str, int]
) -> list[Plan]:
    """Plans that can hold the layer: with vectors, with tensor cores, and so on in turns."""
    columns = []
    for families in FAMILIES:
        plans: dict[Any, float] = {}
        for family in families:
            plans |= family.candidates(hidden, batch, split, storage, device)
        columns.append(_ordered(plans))
    turns = itertools.zip_longest(*columns)
    return [plan for turn in turns for plan in turn if plan is not None]


def _ordered(found: Mapping[Any, float]) -> list[Any]:
    """Plans by what each may take. A team of one size comes twice at most before all others have
    come: sizes matter most.
    """
    ordered = sorted(found, key=lambda plan: found[plan])
    seen = Counter[tuple[str, int]]()
    late = []
    for plan in ordered:
        seen[plan.family, plan.blocks] += 1
        if seen[plan.family, plan.blocks] > 2:
            late.append(plan)
    return [plan for plan in ordered if plan not in late] + late
