"""The shape of an LSTM call, and its name: `512,16,25`, `60->128x4bi,32,589`, `512,16,25 training`.

A worker imports this file: it needs the standard library only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from lstm_bench.model.errors import LstmBenchError

FULL = "full"
#: What a call does: a forward pass; or a training step, forward and backward.
PASSES = ("inference", "training")
_EXPECTED = (
    "hidden,batch,timesteps as in 512,16,25, or a fourth, the input size; a stack in both"
    " directions is 60->128x4bi,32,589, lengths are 128,32,589~0.3-1 or 128,3,50~50/20/1; a"
    ' training step ends in " training"'
)
_NAME = re.compile(
    r"(?:(?P<input>\d{1,9})->)?(?P<hidden>\d{1,9})(?:x(?P<layers>\d{1,9}))?(?P<both>bi)?"
    r",(?P<batch>\d{1,9}),(?P<timesteps>\d{1,9})(?:,(?P<width>\d{1,9}))?(?:~(?P<lengths>[^,]+?))?(?P<training>training)?"
)
_UNIFORM = re.compile(r"(\d*\.?\d+)-(\d*\.?\d+)(?:#(\d{1,9}))?")


@dataclass(frozen=True, order=True)
class Shape:
    """The size of one LSTM call.

    `lengths` is "full"; or "0.3-1", so much of the timesteps, drawn evenly for each sequence with
    the seed 1, or 7 in "0.3-1#7"; or "50/20/1", the length of each sequence.
    """

    hidden: int
    batch: int
    timesteps: int
    input_size: int
    layers: int = 1
    directions: int = 1
    lengths: str = FULL
    training: bool = False

    @classmethod
    def from_row(cls, sizes: Iterable[Any]) -> Shape:
        """The shape of a row of a table with the columns `SHAPE`."""
        *numbers, lengths, training = sizes
        hidden, batch, timesteps, input_size, layers, directions = map(int, numbers)
        sizes = hidden, batch, timesteps, input_size, layers, directions
        return cls(*sizes, str(lengths), bool(training))

    @property
    def label(self) -> str:
        """Its name, which `parsed` reads."""
        stack = self.layers > 1 or self.directions > 1
        name = f"{self.hidden},{self.batch},{self.timesteps}"
        if stack:
            both = "bi" if self.directions == 2 else ""
            many = f"x{self.layers}" if self.layers > 1 else ""
            name = f"{self.hidden}{many}{both},{self.batch},{self.timesteps}"
        if self.input_size != self.hidden:
            name = f"{self.input_size}->{name}" if stack else f"{name},{self.input_size}"
        name = name if self.lengths == FULL else f"{name}~{self.lengths}"
        return f"{name} training" if self.training else name

    @property
    def slug(self) -> str:
        """Its name, fit for the name of a run."""
        return re.sub(r"[^A-Za-z0-9]+", "-", self.label)

    @property
    def key(self) -> str:
        """Its part in the key of a cell."""
        stack = f"-l{self.layers}-d{self.directions}" if self.layers * self.directions > 1 else ""
        lengths = "" if self.lengths == FULL else f"-n{self.lengths}"
        sizes = f"h{self.hidden}-b{self.batch}-t{self.timesteps}-i{self.input_size}"
        return f"{sizes}{stack}{lengths}{'-training' if self.training else ''}"

    @property
    def beyond(self) -> list[str]:
        """The properties of the plainest layer that this one lacks."""
        plainest = {
            "one layer": self.layers == 1,
            "one direction": self.directions == 1,
            "sequences of one length": self.lengths == FULL,
            "inference": not self.training,
        }
        return [what for what, holds in plainest.items() if not holds]

    @property
    def widths(self) -> list[int]:
        """The input size of each layer."""
        return [self.input_size] + [self.directions * self.hidden] * (self.layers - 1)

    @property
    def steps(self) -> int:
        """The steps of all layers and directions, of which each waits for another."""
        return self.timesteps * self.layers * self.directions

    @property
    def each_length(self) -> list[int]:
        """The length of each sequence; of those that are drawn the first is full."""
        if self.lengths == FULL:
            return [self.timesteps] * self.batch
        if match := _UNIFORM.fullmatch(self.lengths):
            low, high, drawn = float(match[1]), float(match[2]), random.Random(int(match[3] or 1))
            shares = [high, *(drawn.uniform(low, high) for _ in range(self.batch - 1))]
            return [max(1, round(share * self.timesteps)) for share in shares]
        return [int(length) for length in self.lengths.split("/")]

    @property
    def flops(self) -> int:
        """Multiplications and additions of the matrix products; the cell's own are left out.

        Behind each product of a forward pass, the backward one has two of its size.
        """
        steps = sum(self.each_length) if self.lengths != FULL else self.batch * self.timesteps
        columns = sum(self.hidden + width for width in self.widths)
        return (3 if self.training else 1) * 8 * steps * self.directions * self.hidden * columns


#: The columns of a shape in a table.
SHAPE = [member.name for member in fields(Shape)]


def parsed(text: str, where: str = "--shape") -> Shape:
    """Parse a name, which `where` gave; the input size defaults to the hidden size."""
    match = _NAME.fullmatch(re.sub(r"\s", "", text))
    if not match or (match["input"] and match["width"]):
        raise LstmBenchError(f"{where}: found {text!r}, expected {_EXPECTED}")
    hidden = int(match["hidden"])
    return Shape(
        hidden,
        int(match["batch"]),
        int(match["timesteps"]),
        int(match["input"] or match["width"] or hidden),
        int(match["layers"] or 1),
        2 if match["both"] else 1,
        match["lengths"] or FULL,
        bool(match["training"]),
    )


def lengths_of(value: object, shape: Sequence[int], where: str) -> str:
    """Lengths as a grid file has them, checked; `shape` is batch and timesteps."""
    batch, timesteps = shape
    if isinstance(value, dict) and set(value) <= {"uniform", "seed"} and "uniform" in value:
        span, seed = value["uniform"], value.get("seed", 1)
        if isinstance(span, list) and len(span) == 2 and isinstance(seed, int):
            value = f"{span[0]}-{span[1]}" + (f"#{seed}" if seed != 1 else "")
    if isinstance(value, list):
        value = "/".join(map(str, value))
    text = str(value)
    if text == FULL:
        return text
    if match := _UNIFORM.fullmatch(text):
        low, high = float(match[1]), float(match[2])
        if 0 < low <= high == 1:
            return text
    elif re.fullmatch(r"\d{1,9}(/\d{1,9})*", text):
        lengths = [int(length) for length in text.split("/")]
        if len(lengths) == batch and max(lengths) == timesteps and min(lengths) >= 1:
            return text
    raise LstmBenchError(
        f"{where}: found {value!r}, expected full, uniform: [0.3, 1] (0.3-1 in a shape's name), or"
        f" {batch} lengths from 1 to {timesteps}, the longest of them {timesteps}"
    )


def for_passes(shapes: Iterable[Shape], passes: Sequence[str]) -> list[Shape]:
    """These shapes in each of these passes; none named: as they are."""
    each = [replace(shape, training=name == PASSES[1]) for shape in shapes for name in passes]
    return list(dict.fromkeys(each if passes else shapes))
