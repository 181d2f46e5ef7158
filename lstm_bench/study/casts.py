"""AMP against weights that are half precision once and for all: what the casts cost."""

from __future__ import annotations

import statistics

from lstm_bench.split import Split
from lstm_bench.study.section import Section, code, count, table, text
from lstm_bench.study.subject import Runs, Subject, missing, not_in
from lstm_bench.units import percent, seconds, times
from lstm_bench.words import clear, versus

AMP, HALF = "pytorch-amp", "pytorch-half"


def section(runs: Runs) -> Section:
    title = "AMP against `.half()`: what the casts cost"
    one = runs.paper
    if not one:
        return Section(title, [missing("h200-paper")])
    pair = one.pair(HALF, AMP)
    if not pair:
        return Section(title, [f"{code(one.run.name)} lacks {code(AMP)} or {code(HALF)}."])
    told = f"{code(AMP)} is {versus(pair.whole, pair.floor)} than {code(HALF)}"
    if not pair.clear:
        told = f"Between {code(AMP)} and {code(HALF)} there is no clear difference"
    rows = []
    for axis in ("hidden", "timesteps", "batch"):
        for value in sorted(set(map(int, pair.of.shapes[axis]))):
            group = pair.of.group(axis, (value, value))
            shown = f"{times(group.ratio.value)} [{group.ratio.low:.2f}, {group.ratio.high:.2f}]"
            beyond = "yes" if clear(group, pair.floor) else "no"
            rows.append([f"{axis} {value}", str(group.shapes), shown, beyond])
    body = [
        text(f"{told}, over {pair.whole.shapes} shapes. {_cost(one)}"),
        table(["over", "shapes", "AMP / half [95% interval]", "beyond the noise"], rows),
        *_profiles(one),
    ]
    return Section(title, body, f"{told}. {_cost(one)}".strip())


def _both(one: Subject) -> list[tuple[Split, Split]]:
    """Each shape's profiles of AMP and of half."""
    cells = one.profiled(HALF, AMP)
    half = {cell.shape: cell for cell in cells if cell.name == HALF}
    return [(cell, half[cell.shape]) for cell in cells if cell.name == AMP]


def _cast(cell: Split) -> float:
    return cell.by_family.get("cast", 0.0)


def _moved(cell: Split) -> float:
    """Seconds of casts, and of the copies that put cast weights into one buffer."""
    return sum(cell.by_family.get(name, 0.0) for name in ("cast", "repack", "copy", "fill"))


def _cost(one: Subject) -> str:
    """What the casts take, and whether it is the device or the host that takes longer."""
    both = [(a, h) for a, h in _both(one) if a.latency_s > h.latency_s]
    if not both:
        return ""
    casts, moved = (statistics.median(f(amp) for amp, _ in both) for f in (_cast, _moved))
    busy = [(a.busy_s - h.busy_s) / (a.latency_s - h.latency_s) for a, h in both]
    more = statistics.median(a.profile.kernels - h.profile.kernels for a, h in both)
    return (
        f"Where AMP takes longer, its casts take {seconds(casts)} of a call on the GPU,"
        f" {seconds(moved)} with the copies around them; of the difference"
        f" {percent(statistics.median(busy), 0)} is time of the GPU and the rest the host's,"
        f" which has {count(more)} more kernels to launch (medians)."
    )


def _profiles(one: Subject) -> list[str]:
    both = _both(one)
    if not both:
        return [not_in(one.run, "profiles")]
    rows = []
    for hidden in sorted({amp.shape.hidden for amp, _ in both}):
        own = [(a, h) for a, h in both if a.shape.hidden == hidden]
        rows.append(
            [
                str(hidden),
                seconds(statistics.median(a.latency_s for a, _ in own)),
                seconds(statistics.median(h.latency_s for _, h in own)),
                seconds(statistics.median(_cast(a) for a, _ in own)),
                seconds(statistics.median(_moved(a) for a, _ in own)),
                *(
                    count(statistics.median(c.profile.kernels for c in cells))
                    for cells in zip(*own, strict=True)
                ),
                *(
                    percent(statistics.fmean(c.idle for c in cells), 0)
                    for cells in zip(*own, strict=True)
                ),
            ]
        )
    heads = [
        "hidden",
        "AMP",
        "half",
        "casts",
        "with copies",
        "kernels AMP",
        "half",
        "idle AMP",
        "half",
    ]
    return [
        table(heads, rows, left=0),
        text(
            "Medians over the shapes of a hidden size, idle a mean. Casts: kernels that turn fp32"
            " into half or back; with copies: also repacking, copies and fills. All are AMP's."
        ),
    ]
