"""The rows of fake, and what they need."""

from __future__ import annotations

from lstm_bench.model.framework import Framework
from lstm_bench.model.types import Implementation

FRAMEWORKS = (Framework("fake", ("numpy",), ("numpy",), "pip install numpy"),)

ROWS = (
    Implementation(
        "fake", "fake", "fp32", "fake", note="no framework: scripted answers, times and faults"
    ),
)
