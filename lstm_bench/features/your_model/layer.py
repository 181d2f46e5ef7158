"""An LSTM of a model, as the model's process describes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median


@dataclass
class Layer:
    """An LSTM as a model calls it; calls of another shape are a layer of their own."""

    name: str  # the module's path; with #2 for its second shape
    path: str
    kind: str  # the module's class, or torch.jit
    shape: str = ""  # as `--shape` takes it; empty where it never ran, or no row can take it
    lengths: str = ""  # full or packed
    precision: str = ""
    state: str = ""  # zero, given, carried, or several of them
    calls: int = 0  # in a forward pass
    shares: list[float] = field(default_factory=list)  # of the model's time, pass by pass

    @property
    def share(self) -> float:
        return median(self.shares or [0.0])
