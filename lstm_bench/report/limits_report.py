"""What a machine can do at best, as a table."""

from __future__ import annotations

from collections.abc import Iterator

from lstm_bench.model.limits import Limits
from lstm_bench.model.units import in_units, seconds, size
from lstm_bench.report.document import Document, Table, number, text

RATES = {"T": 1e-12, "G": 1e-9, "M": 1e-6}


def document(limits: Limits) -> Document:
    """All constants, each with its unit."""
    rows = [{"what": what, "value": value} for what, value in _rows(limits)]
    table = Table("constants", rows, (text("constant", "what"), number("value", "value")))
    return Document([table], {"limits": limits.to_json()})


def _rows(limits: Limits) -> Iterator[tuple[str, str]]:
    gpu = limits.device == "cuda"
    core = "multiprocessor" if gpu else "thread"
    yield f"{core}s", str(limits.cores)
    yield "shortest call", seconds(limits.call_s)
    yield "shortest call of many queued", seconds(limits.queued_s)
    for cores, exchange_s in limits.exchange_s.items():
        if cores > 1 or gpu:
            yield f"exchange between {cores} {core}{'s' * (cores > 1)}", seconds(exchange_s)
    for name, cell_s in limits.cell_s.items():
        yield f"chain of a cell, {name}", seconds(cell_s)
    if limits.taken_in:
        yield f"bytes into all {core}s", rate(limits.taken_in, "B/s")
    yield "multiply-adds, fp32", rate(limits.vector_flops, "FLOP/s")
    for name, flops in limits.matrix_flops.items():
        yield f"matrix products, {name}", rate(flops, "FLOP/s")
    for level in limits.levels:
        holds = f" ({size(level.bytes)})" if level.bytes else ""
        if level.bytes_per_s:
            yield f"{level.name}{holds}", rate(level.bytes_per_s, "B/s")
        else:
            yield f"{level.name}{holds}", "-"


def rate(value: float, unit: str) -> str:
    """A rate with three digits: 4.31 TB/s."""
    return in_units(value, {f"{prefix}{unit}": factor for prefix, factor in RATES.items()}) or "-"
