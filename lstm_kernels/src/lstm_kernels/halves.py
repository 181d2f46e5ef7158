"""Weights as our kernels want them: as 16-bit halves, or with the gates of a unit together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
STORAGES = {"fp32": 0, "fp16": 1, "bf16": 2}  # as `call.cuh` counts them
WEIGHTS_TOP = 2.0**14  # the largest weight after scaling: fp16 ends at 65504


def pack_input(w_ih: Array) -> tuple[Array, float]:
    """W_ih for `input_tiles.cu`: high and low halves, padded to its tiles, and their scale."""
    rows, width = w_ih.shape
    padded = np.zeros((-(-rows // 128) * 128, -(-width // 32) * 32), np.float32)
    padded[:rows, :width] = w_ih
    parts, scale = halves(padded, "fp16", split=True)
    return np.stack(parts), scale


def halves(
    values: Array, storage: str, split: bool, top: float | None = None
) -> tuple[list[Array], float]:
    """Values as 16 bits each, with `split` also what those leave, and what undoes their scale.

    `top` is the largest of all that has this scale, by default of these.
    """
    if top is None:
        top = float(np.abs(values).max(initial=0.0))
    scale = 1.0
    if storage != "bf16" and top > 0:  # bf16 has the range of fp32
        scale = float(2.0 ** np.floor(np.log2(WEIGHTS_TOP / top)))
    values = values * np.float32(scale)
    parts = [narrow(values, storage)]
    if split:
        parts.append(narrow(values - widen(parts[0], storage), storage))
    return parts, 1.0 / scale


def narrow(values: Array, storage: str) -> Array:
    """Rounded to 16 bits, as bits."""
    values = np.asarray(values, np.float32)
    if storage != "bf16":
        return values.astype(np.float16).view(np.uint16)
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widen(bits: Array, storage: str) -> Array:
    """What `narrow` stands for."""
    if storage != "bf16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def stored(values: Array, storage: str) -> Array:
    """An array as a layer holds it on the device."""
    narrows = storage != "fp32"
    return narrow(values, storage) if narrows else np.ascontiguousarray(values, np.float32)


def restored(values: Array, storage: str) -> Array:
    """What `stored` stands for, as float32."""
    return values if storage == "fp32" else widen(values, storage)


def gates_together(rows: Array) -> Array:
    """Rows in the order of units, each with its i, f, g and o."""
    return np.ascontiguousarray(np.moveaxis(rows.reshape(4, -1, *rows.shape[1:]), 0, 1)).reshape(
        rows.shape
    )
