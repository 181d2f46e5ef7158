"""One style per implementation, the same in every figure and on the page.

Hue is the family, from the palette of Okabe and Ito, which people with any kind of colour vision
tell apart. Nobody can tell thirty hues apart, so a variant also has a dash and a marker of its own.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

from lstm_bench.frameworks import FRAMEWORKS, IMPLEMENTATIONS, RENAMED
from lstm_bench.model.framework import DASHED, DOTTED, Style

STYLES = {name: its for f in FRAMEWORKS.values() for name, its in f.styles.items()}
LIGHT, DARK = "#ffffff", "#15181c"  # the page behind the figures, as in page.css


def family_of(name: str) -> str:
    """The first word of a name: `pytorch` of `pytorch-tf32~old@1`."""
    return re.sub("(?<!^lstm)[-~@].*", "", name)


#: Colours of rows without a style, by the first word of their name.
FAMILIES = {
    family_of(row.name): FRAMEWORKS[row.framework].colour
    for row in IMPLEMENTATIONS.values()
    if FRAMEWORKS[row.framework].colour
}
_OTHERS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5e3c99")


def style_of(name: str) -> Style:
    """The style of an implementation; a name that no table has always gets the same one."""
    name = RENAMED.get(name, name)
    if name in STYLES:
        return STYLES[name]
    number, family = zlib.crc32(name.encode()), family_of(name)
    if name == family in FAMILIES:
        return Style(FAMILIES[name], "o")
    colour = _OTHERS[number % len(_OTHERS)]
    if family in FAMILIES:
        colour = _lighter(FAMILIES[family], 0.05 + 0.4 * (number % 101) / 101)
    return Style(colour, "odv^sXP"[number // 7 % 7], (DASHED, DOTTED)[number // 49 % 2])


def _channels(colour: str) -> list[float]:
    """Red, green and blue, from 0 to 1; an opacity, if there is one, is over white."""
    *channels, alpha = (int(f"{colour[1:]}ff"[i : i + 2], 16) / 255 for i in (0, 2, 4, 6))
    return [1 - alpha + alpha * channel for channel in channels]


def contrast(first: str, second: str) -> float:
    """The contrast of two colours: 1 to 21, as WCAG counts it."""
    low, high = sorted(map(_lightness, (first, second)))
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
