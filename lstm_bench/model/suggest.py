"""Suggests names for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'pytorch-amp'?`, or the whole list where nothing is near."""
    known = list(known)
    return guess(name, known) or "; expected one of " + ", ".join(known)


def guess(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'pytorch-amp'?`, or nothing."""
    name, known = str(name), list(known)
    longer = [word for word in known if name and word.startswith(name)]
    close = longer[:2] or difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    return "; did you mean " + " or ".join(repr(c) for c in close) + "?" if close else ""
