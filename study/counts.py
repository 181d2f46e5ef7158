"""Facts of the shipped runs in pages, in place: `<!-- {{ran: h200-paper}} -->...<!-- end -->`.

These pages are written by people; the study's own come from templates, see `page`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from lstm_bench.frameworks import IMPLEMENTATIONS, RENAMED
from lstm_bench.model.units import counted, listed, span
from lstm_bench.report import run_report
from lstm_bench.runs import store
from study import devices
from study.runs import ROOT, Stale, load, shipped

PLACE = re.compile(r"(<!-- \{\{(\w+): ([\w-]+)\}\} -->).*?(<!-- end -->)", re.S)


def pages(root: Path = ROOT) -> list[str]:
    """The pages that have such places."""
    found = [root / "results" / "README.md"]
    for folder in ("docs", "study/notes"):
        found += sorted((root / folder).rglob("*.md"))
    return [str(p.relative_to(root)) for p in found if PLACE.search(p.read_text(encoding="utf-8"))]


def filled(page: str) -> str:
    """A page with all its places as the runs are now."""

    def put(result: re.Match[str]) -> str:
        start, what, which, end = result.groups()
        if what not in SAYS:
            raise Stale(f"{start}: found {what}, expected one of {', '.join(SAYS)}")
        return start + SAYS[what](which) + end

    return PLACE.sub(put, page)


def shapes(name: str) -> str:
    return str(load(name).run.shapes)


def ran(name: str) -> str:
    """The size of a run: shapes, rows, cells with a time, controls."""
    timed = load(name).run.cells.query("status == 'ok'")
    rows, controls = timed["implementation"].nunique(), int((timed["copy"] > 1).sum())
    cells = counted(len(timed) - controls, "cell")
    size = f"{shapes(name)} shapes x {rows} implementations: {cells}"
    return f"{size} and {counted(controls, 'control')}" if controls else size


def machine(name: str) -> str:
    """Its processor or GPU, and on a CPU the threads."""
    manifest = load(name).run.manifest
    line = run_report.machine_line(manifest["machine"], manifest["plan"]["settings"])
    return line.partition(", seed")[0]


def took(name: str) -> str:
    return span(sum(leg.wall_s for leg in store.read_legs(ROOT / "results" / name)))


def before(day: str) -> str:
    """The runs that began before a day."""
    began = {name: str(load(name).run.manifest["started_at"]) for name in shipped()}
    return listed([f"`{name}`" for name in began if began[name] < day] or ["none"])


def disturbed(name: str) -> str:
    """The number of cells that other processes disturbed, controls apart."""
    warnings = load(name).cells["warnings"]
    marked = sum(any(text.startswith("disturbed:") for text in own) for own in warnings)
    return counted(marked, "cell")


def measured(_all: str) -> str:
    """All cells with a time, controls included."""
    return f"{sum(int(load(name).run.cells['status'].eq('ok').sum()) for name in shipped()):,}"


def unmeasured(_all: str) -> str:
    """The implementations that no run has a time of, `fake` apart."""
    runs = (load(name).run.cells for name in shipped())
    there = {name for cells in runs for name in cells.query("status == 'ok'")["implementation"]}
    there |= {"fake", *(new for old, new in RENAMED.items() if old in there)}
    absent = [f"`{name}`" for name in IMPLEMENTATIONS if name not in there]
    return listed(absent or ["none"])


SAYS: dict[str, Callable[[str], str]] = {
    "before": before,
    "devices": lambda _all: devices.block(),
    "disturbed": disturbed,
    "machine": machine,
    "measured": measured,
    "ran": ran,
    "shapes": shapes,
    "took": took,
    "unmeasured": unmeasured,
}
