"""How many kernels a call has, how long the GPU waits for them, and what they do."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from lstm_bench import split
from lstm_bench.kernel_report import SHORT
from lstm_bench.split import Split
from lstm_bench.study.modes import MODES, PYTORCH
from lstm_bench.study.section import code, count, figure, table, text
from lstm_bench.study.subject import Subject, not_in
from lstm_bench.units import percent


def parts(one: Subject) -> list[str]:
    """Kernels and idle time of TensorFlow's modes beside PyTorch."""
    title = "### Launches"
    four = PYTORCH, *MODES
    cells = one.profiled("deepbench", *four) or one.profiled(*four)
    if not cells:
        return [title, not_in(one.run, "profiles")]
    rows = {row["implementation"]: row for row in split.device_rows(cells)}
    idle = [percent(rows[name]["idle"], 0) for name in four]
    steps = middle_steps(cells)
    return [
        title,
        text(
            f"The GPU idles {idle[0]} of a call of PyTorch, {idle[1]} in mode 0, {idle[2]} in mode"
            f" 1 and {idle[3]} in mode 2."
        ),
        _table(cells, steps),
        text(
            f"Kernels of a call at {steps} timesteps: the median over shapes, fewest and most."
            f" {_launched(cells)} Shares are means over all"
            f" {len({c.shape for c in cells})} shapes. Active: a kernel ran; moving: only copies or"
            " fills ran; idle: nothing did."
        ),
        figure("study-activity", "How long the GPU is active and idle in a call, by row"),
        *_families(cells),
        figure("study-kernels", "What the GPU runs in one call, by row"),
    ]


def middle_steps(cells: Sequence[Split]) -> int:
    """The middle one of all numbers of timesteps; each row has the same shapes."""
    values = sorted({c.shape.timesteps for c in cells})
    return values[len(values) // 2]


def _table(cells: Sequence[Split], steps: int) -> str:
    rows = []
    for row in split.device_rows(cells):
        name = row["implementation"]
        own = [c for c in cells if c.name == name and c.shape.timesteps == steps]
        counts = [c.profile.kernels for c in own]
        kernels = statistics.median(counts)
        rows.append(
            [
                code(name),
                count(kernels),
                f"{count(min(counts))} to {count(max(counts))}",
                count(kernels / steps),
                *(percent(row[key], 0) for key in ("active", "moving", "idle")),
            ]
        )
    heads = ["row", "kernels", "fewest to most", "per step", "active", "moving", "idle"]
    return table(heads, rows)


def _launched(cells: Sequence[Split]) -> str:
    apart = Counter(c.name for c in cells if c.profile.launches != c.profile.kernels)
    if not apart:
        return "Each is a launch of its own."
    told = ", ".join(f"{code(name)} (at {often} shapes)" for name, often in apart.items())
    return f"Each is a launch of its own, but not in {told}."


def _families(cells: Sequence[Split]) -> list[str]:
    """What the device's time goes into, as far as it is not nothing."""
    rows = split.family_rows(cells)
    there = [
        name
        for name in rows[0]
        if name != "implementation" and any(row[name] > 0.005 for row in rows)
    ]
    shown = [[code(row["implementation"]), *(percent(row[n], 0) for n in there)] for row in rows]
    return [
        "What the kernels' time goes into ([families](profile.md#families)):",
        table(["row", *(SHORT.get(name, name) for name in there)], shown),
    ]
