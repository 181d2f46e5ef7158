"""AMP against weights that are half precision once and for all: what AMP costs, and its casts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lstm_bench.comparison import clear
from lstm_bench.model import Shape
from lstm_bench.study import rules, twins
from lstm_bench.study.section import Section, code, count, table, text
from lstm_bench.study.subject import Runs, Subject, missing, not_in
from lstm_bench.units import listed, percent, seconds, signed, times
from lstm_bench.words import versus

AMP, HALF = "pytorch-amp", "pytorch-half"
HALF_OF_IT = 0.5


def section(runs: Runs) -> Section:
    title = "AMP against `.half()`: what AMP costs"
    one = runs.paper
    if not one:
        return Section(title, [missing("h200-paper")])
    pair = one.pair(HALF, AMP)
    if not pair:
        return Section(title, [f"{code(one.run.name)} lacks {code(AMP)} or {code(HALF)}."])
    told = f"{code(AMP)} is {versus(pair.whole, pair.floor)} than {code(HALF)}"
    if not pair.clear:
        told = f"Between {code(AMP)} and {code(HALF)} there is no clear difference"
    found, adds = added(one), _adds(one, runs.repeats)
    rows = []
    for axis in ("hidden", "timesteps", "batch"):
        for value in sorted(set(map(int, pair.of.shapes[axis]))):
            group = pair.of.group(axis, (value, value))
            shown = f"{times(group.ratio.value)} [{group.ratio.low:.2f}, {group.ratio.high:.2f}]"
            beyond = "yes" if clear(group, pair.floor) else "no"
            rows.append([f"{axis} {value}", str(group.shapes), shown, beyond])
    body = [
        text(
            f"{told}, over {pair.whole.shapes} shapes.",
            adds,
            _length(found),
            _where(found),
            _casting(found),
        ),
        table(["over", "shapes", "AMP / half [95% interval]", "beyond the noise"], rows),
        *_additions(found),
        *_profiles(one),
    ]
    return Section(title, body, text(f"{told}.", adds, _casting(found)))


class Added(NamedTuple):
    """What AMP adds to a call of half precision at one shape, in seconds; below zero: it saves."""

    shape: Shape
    latency: float
    busy: float  # the GPU's time, which may lie beside that of the host
    launches: float  # on the host, while watched, which slows them
    casts: float  # on the GPU

    @property
    def rest(self) -> float:
        return self.latency - self.busy - self.launches


def added(one: Subject) -> list[Added]:
    return [
        Added(
            amp.shape,
            amp.latency_s - half.latency_s,
            amp.busy_s - half.busy_s,
            amp.profile.launch_s - half.profile.launch_s,
            twins.moved(amp, "cast") - twins.moved(half, "cast"),
        )
        for half, amp in twins.of_rows(one, HALF, AMP).cells
    ]


def _longer(found: Sequence[Added]) -> list[Added]:
    """Where AMP takes longer; empty unless it does in the median."""
    longer = [one for one in found if one.latency > 0]
    return longer if 2 * len(longer) > len(found) else []


def _adds(one: Subject, repeats: Sequence[Subject]) -> str:
    """What AMP adds to a call, and beside it what it adds in other runs."""
    found = added(one)
    if not found:
        return ""
    if not _longer(found):
        return "In the median AMP adds nothing to a call."
    others = [(code(other.run.name), own) for other in repeats if (own := added(other))]
    told = "".join(f"; in {name} {_middle(own)}" for name, own in others)
    return f"AMP adds {_middle(found)} to a call (quartiles {_quartiles(found)}{told})."


def _middle(found: Sequence[Added]) -> str:
    return signed(statistics.median(one.latency for one in found))


def _where(found: Sequence[Added]) -> str:
    """What of it is the GPU's, what is inside launches, and what is left."""
    longer = _longer(found)
    if not longer:
        return ""
    busy = statistics.median(one.busy for one in longer)
    launches = max(statistics.median(one.launches for one in longer), 0.0)
    left = min(statistics.median(one.rest / one.latency for one in longer), 1.0)
    rest = f"the rest, {percent(left, 0)} of it, was not profiled"
    return (
        f"Of this {signed(busy)} is time of the GPU and, while watched,"
        f" {seconds(launches)} is inside launches, which watching slows;"
        f" {rest if left > 0 else 'nothing is left'} (medians over shapes)."
    )


def _by_steps(found: Sequence[Added]) -> dict[int, list[Added]]:
    sizes = sorted({one.shape.timesteps for one in found})
    return {size: [one for one in found if one.shape.timesteps == size] for size in sizes}


def _length(found: Sequence[Added]) -> str:
    """The same for the fewest timesteps and for the most."""
    middles = {steps: _middle(own) for steps, own in _by_steps(found).items()}
    if len(middles) < 2 or not _longer(found):
        return ""
    ends = (f"{middles[steps]} at {steps}" for steps in (min(middles), max(middles)))
    return f"By timesteps it is {listed(ends)}."


def _casting(found: Sequence[Added]) -> str:
    """Whether the casts on the GPU are at least half of what AMP adds."""
    longer = _longer(found)
    if not longer:
        return ""
    share = rules.mean([one.casts / one.latency for one in longer])
    least = min(one.shape.hidden for one in longer)
    small = [one for one in longer if one.shape.hidden == least]
    casts = [seconds(statistics.median(one.casts for one in part)) for part in (longer, small)]
    part = percent(statistics.median(one.casts / one.latency for one in longer), 0)
    word = {
        rules.HOLDS: ", at least half of it.",
        rules.HOLDS_NOT: ". What the host does to have them done was not taken apart, so that the"
        " claim is neither confirmed nor refuted.",
        rules.UNKNOWN: ", of which it cannot be told whether it is half of it.",
    }[rules.is_over(share, HALF_OF_IT)]
    return (
        "The paper says that at small sizes AMP's bottleneck is type casting. Here the casts' own"
        f" time on the GPU is {part} of what AMP adds ({casts[0]} in the median, {casts[1]} at"
        f" hidden {least}){word}"
    )


def _quartiles(found: Sequence[Added]) -> str:
    low, high = np.quantile([one.latency for one in found], (0.25, 0.75))
    return f"{signed(float(low))} to {signed(float(high))}"


def _additions(found: Sequence[Added]) -> list[str]:
    """What AMP adds by timesteps."""
    if not found:
        return []
    parts = {f"timesteps {steps}": own for steps, own in _by_steps(found).items()}
    rows = [
        [
            label,
            str(len(own)),
            _middle(own),
            _quartiles(own),
            signed(statistics.median(one.busy for one in own)),
            signed(statistics.median(one.casts for one in own)),
            signed(statistics.median(one.launches for one in own)),
        ]
        for label, own in {"all": found, **parts}.items()
    ]
    heads = ["over", "shapes", "AMP adds", "quartiles", "on the GPU", "casts", "launching"]
    return [
        table(heads, rows),
        text(
            "Medians over shapes of what a call with AMP takes longer: its latency, the time that"
            " the GPU is busy, that of casts (kernels that turn fp32 into half or back), and the"
            " host's time inside launches, which is of watched calls: watching slows them."
        ),
    ]


def _profiles(one: Subject) -> list[str]:
    both = twins.of_rows(one, AMP, HALF)
    if not both.cells:
        return [not_in(one.run, "profiles")]
    rows = []
    for hidden in both.values("hidden"):
        own = both.at("hidden", hidden)
        amp, _ = sides = list(zip(*own.cells, strict=True))
        rows.append(
            [
                str(hidden),
                *(seconds(statistics.median(c.latency_s for c in side)) for side in sides),
                seconds(statistics.median(twins.moved(c, "cast") for c in amp)),
                seconds(statistics.median(map(twins.moved, amp))),
                *(count(statistics.median(map(twins.kernels, side))) for side in sides),
                *own.idle,
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
            "Medians over the shapes of a hidden size, idle a mean. With copies: casts, and also"
            " repacking, copies and fills. Both are AMP's."
        ),
    ]
