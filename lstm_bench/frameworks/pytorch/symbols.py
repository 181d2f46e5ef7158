"""Addresses of this process to file and function, by the symbol tables of what is loaded.

`dladdr` knows exported names only, and most of PyTorch's are not; the files themselves have all.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_LINK_MAP = 2  # RTLD_DL_LINKMAP of dladdr1
_ALL, _EXPORTED = 2, 11  # kinds of sections: SHT_SYMTAB, SHT_DYNSYM
_FUNCTION = 2  # STT_FUNC
_SYMBOL = np.dtype(
    [
        ("name", "u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "u2"),
        ("at", "u8"),
        ("size", "u8"),
    ]
)


class Symbol(NamedTuple):
    """The file and the function at an address; empty if unknown."""

    file: str
    name: str


class _Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("file", "base", "symbol", "at")]


class _LinkMap(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_size_t), ("file", ctypes.c_char_p)]


@functools.cache
def at(address: int) -> Symbol:
    """The function that an address lies in, by its mangled name."""
    info, linked = _Info(), ctypes.POINTER(_LinkMap)()
    known = ctypes.CDLL(None).dladdr1(
        ctypes.c_void_p(address), ctypes.byref(info), ctypes.byref(linked), _LINK_MAP
    )
    if not known or not linked:
        return Symbol("", "")
    file = (linked.contents.file or b"").decode() or os.path.realpath("/proc/self/exe")
    return Symbol(file, _table(file)(address - linked.contents.offset))


@functools.cache
def _table(file: str) -> Callable[[int], str]:
    """Looks a place of a 64-bit ELF file up; what is none has no names."""
    try:
        with open(file, "rb") as opened:
            content = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        return _read(content)
    except (OSError, ValueError, struct.error):
        return lambda place: ""


def _read(content: mmap.mmap) -> Callable[[int], str]:
    (first,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    sections = []  # kind, place, length and section of names of each
    for place in range(first, first + size * count, size):
        _, kind, _, _, where, length, names = struct.unpack_from("<IIQQQQI", content, place)
        sections.append((kind, where, length, names))
    kinds = [section[0] for section in sections]
    _, where, length, names = sections[kinds.index(_ALL if _ALL in kinds else _EXPORTED)]
    symbols = np.frombuffer(content, _SYMBOL, length // _SYMBOL.itemsize, where)
    symbols = symbols[(symbols["info"] & 15 == _FUNCTION) & (symbols["size"] > 0)]
    symbols = symbols[np.argsort(symbols["at"])]
    starts, ends = symbols["at"].copy(), symbols["at"] + symbols["size"]
    texts = sections[names][1]

    def name_at(place: int) -> str:
        nearest = int(np.searchsorted(starts, np.uint64(place), side="right")) - 1
        if nearest < 0 or place >= ends[nearest]:
            return ""
        start = texts + int(symbols["name"][nearest])
        return content[start : content.find(b"\0", start)].decode(errors="replace")

    return name_at
