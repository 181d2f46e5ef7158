"""fake: no framework; it plays what a grid file scripts."""

from __future__ import annotations

import math

from lstm_bench.model.framework import Cost, Framework

_FREE = {"": Cost(0.0, 0.0, math.inf, 1.0, 0.0, 0.0)}

FAKE = Framework(
    "fake",
    ("numpy",),
    ("numpy",),
    "pip install numpy",
    costs={"cpu": _FREE, "cuda": _FREE},
    start_s=(0.1, 0.1),
)
FRAMEWORKS = (FAKE,)
ROWS = (FAKE.row("fake", "no framework: scripted answers, times and faults"),)
