"""One look per implementation, the same in every figure and on the page.

Hue is the family, from the palette of Okabe and Ito, which people with any kind of colour vision
tell apart; thirty hues nobody can, so a variant also has a dash and a marker of its own.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """How a line is drawn; `dash` is in multiples of its width, empty for a solid one."""

    colour: str
    marker: str  # one of Matplotlib's
    dash: tuple[float, ...] = ()


LOOKS = {
    "deepbench": Look("#000000", "o"),
    "deepbench-skip": Look("#8c8c8c", "o", (1, 1.5)),
    "deepbench-persist-static": Look("#5e3c99", "v"),
    "deepbench-persist-dynamic": Look("#8073ac", "^", (4, 1.5)),
    "deepbench-graph": Look("#5c5c5c", "s", (4, 1.5)),
    "deepbench-best": Look("#b8860b", "*"),
    "deepbench-fp16": Look("#3f3f3f", "D", (1, 1.5)),
    "deepbench-fp16-best": Look("#6b8e23", "P", (4, 1.5)),
    "persistent": Look("#a50026", "o"),
    "persistent-tf32": Look("#d73027", "s", (4, 1.5)),
    "persistent-fp16": Look("#f46d43", "D", (1, 1.5)),
    "persistent-bf16": Look("#fdae61", "X", (4, 1.5)),
    "pytorch": Look("#d55e00", "o"),
    "pytorch-amp": Look("#e69f00", "s", (4, 1.5)),
    "pytorch-half": Look("#8c2d04", "D", (1, 1.5)),
    "pytorch-apex": Look("#c7853a", "X", (4, 1.5)),
    "pytorch-persistent": Look("#c2002f", "*"),
    "pytorch-tf32-persistent": Look("#e0457b", "*", (4, 1.5)),
    "pytorch-tf32": Look("#b34700", "s"),
    "pytorch-graph": Look("#f07d1a", "^", (4, 1.5)),
    "pytorch-tf32-graph": Look("#96500c", "P", (4, 1.5)),
    "pytorch-half-graph": Look("#a63a1e", "v", (4, 1.5)),
    "pytorch-bf16": Look("#6f3a1a", "X", (1, 1.5)),
    "pytorch-int8": Look("#d4a017", "v"),
    "pytorch-compile": Look("#b5651d", "*"),
    "pytorch-script": Look("#a97142", "D", (4, 1.5)),
    "pytorch-trace": Look("#cd8544", "o", (1, 1.5)),
    "pytorch-native": Look("#9c6b2f", "^", (1, 1.5)),
    "tf-mode0": Look("#0072b2", "o"),
    "tf-mode1": Look("#009e73", "v"),
    "tf-mode2": Look("#cc79a7", "^"),
    "tf-mode0-amp": Look("#56b4e9", "s", (4, 1.5)),
    "tf-mode1-amp": Look("#3fae8b", "v", (4, 1.5)),
    "tf-mode2-amp": Look("#b0608c", "^", (4, 1.5)),
}
LIGHT, DARK = "#ffffff", "#15181c"  # the page behind the figures, as in page.css
#: Of rows that are not in the table, by the first word of their name.
FAMILIES = {
    "deepbench": "#000000",
    "persistent": "#a50026",
    "pytorch": "#d55e00",
    "libtorch": "#7f3b08",
    "tf": "#0072b2",
    "keras": "#c51b7d",
    "jax": "#762a83",
    "onnxruntime": "#1b7837",
    "openvino": "#00767f",
}
_OTHERS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5e3c99")


def look(name: str) -> Look:
    """The look of an implementation; one that is not in the table always gets the same one."""
    if name in LOOKS:
        return LOOKS[name]
    number, family = zlib.crc32(name.encode()), family_of(name)
    if name == family in FAMILIES:
        return Look(FAMILIES[name], "o")
    colour = _OTHERS[number % len(_OTHERS)]
    if family in FAMILIES:
        colour = _lighter(FAMILIES[family], 0.05 + 0.4 * (number % 101) / 101)
    return Look(colour, "odv^sXP"[number // 7 % 7], ((4, 1.5), (1, 1.5))[number // 49 % 2])


def family_of(name: str) -> str:
    """The first word of a name: `pytorch` of `pytorch-tf32~old@1`."""
    return re.split("[-~@]", name)[0]


def family_colour(name: str) -> str:
    """One for all rows of a family."""
    return FAMILIES.get(family_of(name), look(name).colour)


def _channels(colour: str) -> list[float]:
    """Red, green and blue, from 0 to 1; an opacity, if there is one, is over white."""
    *channels, alpha = (int(f"{colour[1:]}ff"[i : i + 2], 16) / 255 for i in (0, 2, 4, 6))
    return [1 - alpha + alpha * channel for channel in channels]


def contrast(one: str, other: str) -> float:
    """How well one colour is told from another: 1 to 21, as WCAG counts it."""
    low, high = sorted(map(_lightness, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _lightness(colour: str) -> float:
    linear = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(colour)
    )
    return sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def ink(background: str) -> str:
    """Black or white, whichever is easier to read."""
    return max(("#000000", "#ffffff"), key=lambda ink: contrast(ink, background))


def on_dark(colour: str) -> str:
    """The same hue where the background is dark: greys turn over, dark colours get lighter."""
    channels = _channels(colour)
    if len(set(channels)) == 1:
        channels = [max(1 - c, 0.45) for c in channels]
    same = _hex(channels)
    lighter = (_lighter(same, step / 20) for step in range(21))
    return next(colour for colour in lighter if contrast(colour, DARK) >= 4)


def _lighter(colour: str, share: float) -> str:
    return _hex([c + share * (1 - c) for c in _channels(colour)])


def _hex(channels: Sequence[float]) -> str:
    return "#" + "".join(f"{round(255 * c):02x}" for c in channels)
