"""Numbers as people read them, and text from anywhere made safe to print."""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping

WIDTH = 100
SECONDS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
BYTES = {"GiB": 2**-30, "MiB": 2**-20, "KiB": 2**-10, "B": 1.0}


def seconds(value: float | None, digits: int = 3) -> str:
    """A duration with its unit."""
    if value is None or math.isnan(value):
        return "-"
    return in_units(value, SECONDS, digits) or "0 s"


def shown_ratio(a: str, b: str) -> float:
    """The ratio of two figures as they are shown, such as 931 us and 331 us; NaN without it."""
    per = {**SECONDS, **BYTES}
    (x, unit), (y, other) = a.split(), b.split()
    return float(x) / float(y) * per[other] / per[unit] if float(x) and float(y) else math.nan


def signed(value: float | None) -> str:
    """A time that may be below zero."""
    if value is None or value != value:
        return "-"
    return f"-{seconds(-value)}" if value < 0 else seconds(value)


def span(value: float) -> str:
    """A length of time to wait: 45 s, 3 min 20 s, 2 h 5 min."""
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None or math.isnan(value) else f"{100 * value:.{digits}f}%"


def error(value: float | None) -> str:
    """A difference from the reference: its size is all that matters."""
    return "-" if value is None or math.isnan(value) else f"{value:.0e}"


def size(value: float | None, digits: int = 3) -> str:
    """Bytes: 12 B, 4 KiB, 1.5 GiB."""
    if value is None or math.isnan(value):
        return "-"
    return in_units(value, BYTES, digits) or "0 B"


def in_units(value: float, units: Mapping[str, float], digits: int = 3) -> str:
    """A value in the first unit in which it is at least 1; empty if there is none."""
    for unit, factor in units.items():
        scaled = float(f"{value * factor:.{digits}g}")  # rounded first: 999.7 us is 1 ms
        if abs(scaled) >= 1:
            return f"{scaled:g} {unit}"
    return ""


def read_size(text: str) -> float | None:
    """Bytes as people type them: 2GiB, 500 MiB, 1.5g, 4096; None if it is none."""
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])i?)?b?\s*", text.lower())
    if not parts or not float(parts[1]):
        return None
    return float(parts[1]) * 2.0 ** (10 * " kmgt".index(parts[2] or " "))


def over(common: int) -> str:
    """The shapes that a figure of an implementation stands for."""
    if not common:
        return "each implementation's own shapes, as none is common to all: do not compare them"
    shapes = "one shape" if common == 1 else f"{common} shapes"
    return f"the {shapes} that all implementations have"


def times(value: float | None) -> str:
    """A ratio: 1.32x, 0.0850x, 120.00x, 2316x."""
    return "-" if value is None or math.isnan(value) else f"{short(value)}x"


def factor(value: float) -> str:
    """A factor with two digits: 1.07x, 8.1x, 33x, 216x."""
    if value < 1.995:
        return f"{value:.2f}x"
    return f"{value:.1f}x" if value < 9.95 else f"{value:.0f}x"


def short(value: float) -> str:
    """Three digits or two decimals, whichever is more, without an exponent."""
    if value != 0 and abs(value) < 0.1:
        return f"{value:.{min(9, 2 - math.floor(math.log10(abs(value))))}f}"
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:.0f}"


def clean(text: str) -> str:
    """One line without control characters: names and reasons may come from anybody's run."""
    kept = (" " if c in "\n\t\r\u2028\u2029" else c for c in text)
    return "".join(c for c in kept if unicodedata.category(c)[0] != "C")


def clipped(text: str, width: int) -> str:
    """Cut a text to a width, between words; a name where it must be."""
    if len(text) <= width:
        return text
    head = text[: width - 3]
    whole = head if text[width - 3] == " " else head.rpartition(" ")[0]
    return (whole.rstrip() if len(whole) > width // 2 else head) + "..."


def gist(error: BaseException) -> str:
    """The first line of what an exception says."""
    lines = str(error).strip().splitlines() or [""]
    return clipped(lines[0], 300)


def wrapped(text: str, indent: int = 0, width: int = WIDTH) -> str:
    """Text folded to the width of a page; hyphens in names are no place to fold."""
    return textwrap.fill(
        text, width, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False
    )


def counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def listed(parts: Iterable[str], last_by: str = " and ") -> str:
    """`a`, `a and b`, `a, b and c`."""
    *head, last = parts
    return ", ".join(head) + last_by + last if head else last


def at_some(text: str, number: int, whole: int) -> str:
    """`2.1x at 6`: a mean over fewer shapes than the others."""
    return text if number == whole or text == "-" else f"{text} at {number}"
