"""Make C++ names readable, by the C++ runtime library that every framework brings along."""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any


@functools.lru_cache(maxsize=4096)
def readable(name: str) -> str:
    """Demangle a name, without return type and arguments: `_Z3fooIiEvT_` is `foo<int>`."""
    full = re.sub(r"( const| \[clone [^]]*\])+$", "", demangled(name))
    end = _arguments(full)
    start = _name(full, end)
    return full[start:end] if end > start else full


@functools.lru_cache(maxsize=4096)
def demangled(name: str) -> str:
    """Demangle a name into its whole signature; another name stays as it is."""
    library = _library()
    if library is None or not name.startswith("_Z"):
        return name
    status = ctypes.c_int()
    address = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not address:
        return name
    name = ctypes.string_at(address).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(address))
    return name


@functools.cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
    except (OSError, AttributeError):
        return None
    return library


def _name(signature: str, end: int) -> int:
    """The place of the name: behind the return type, which only templates have."""
    depth, start = 0, 0
    for place in range(end):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(signature[place], 0)
        if signature[place] == " " and depth == 0:
            start = place + 1
    return start


def _arguments(signature: str) -> int:
    """The place of the last list of arguments; templates and lambdas have lists of their own."""
    if not signature.endswith(")"):
        return len(signature)
    depth = 0
    for place in range(len(signature) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(signature[place], 0)
        if depth == 0:
            return place
    return len(signature)
