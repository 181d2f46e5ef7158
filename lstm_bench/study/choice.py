"""Which row to use for which batch and timesteps."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lstm_bench import analysis, noise
from lstm_bench.intervals import Statistic
from lstm_bench.model import Shape
from lstm_bench.noise import SHAPE
from lstm_bench.results import Run
from lstm_bench.study import rules
from lstm_bench.study.headroom import WHAT
from lstm_bench.study.section import Section, code, table, text, within
from lstm_bench.study.subject import Runs, Subject, missing, tf32
from lstm_bench.units import counted, error, listed, seconds, times

#: What a framework's user can have, and the library's best beside it.
KINDS = {
    "fp32": (("pytorch", "tf-mode0", "tf-mode1", "tf-mode2"), "deepbench-best"),
    "half": (
        ("pytorch-amp", "pytorch-half", "tf-mode0-amp", "tf-mode1-amp", "tf-mode2-amp"),
        "deepbench-fp16-best",
    ),
}

#: Whose latency is told in seconds.
SHOWN = (
    *("pytorch", "tf-mode0", "deepbench-best"),
    *("pytorch-half", "tf-mode0-amp", "deepbench-fp16-best"),
)

SAME = "where both precisions run the recurrence alike"
OTHER = "where one runs it as one kernel and the other step by step"


def section(runs: Runs) -> Section:
    title = "What to use"
    one = runs.paper
    if not one:
        return Section(title, [missing("h200-paper")])
    won = {kind: winners(one.run, rows) for kind, (rows, _) in KINDS.items()}
    places = sorted(
        {
            (int(b), int(t))
            for table in won.values()
            for b, t in table[["batch", "timesteps"]].to_numpy()
        }
    )
    if not places:
        return Section(title, [f"{code(one.run.name)} has no row of a framework."])
    rows = []
    for batch, steps in places:
        row, here = [], {}
        for kind, (_, best) in KINDS.items():
            own = won[kind]
            here[kind] = own[(own["batch"] == batch) & (own["timesteps"] == steps)]
            row += [_use(here[kind], _next_is_slower(here[kind])), _library(one, here[kind], best)]
        gain = _gain(here["fp32"], here["half"])
        kind = "half" if gain > 1 or here["fp32"].empty else "fp32"
        use = _use(here[kind], _other_is_slower(one, here, kind))
        rows.append([str(batch), str(steps), use, *row, "-" if math.isnan(gain) else times(gain)])
    heads = ["batch", "timesteps", "use", "in fp32", "library", "in half", "library", "half gains"]
    told = listed(_mostly(kind, table) for kind, table in won.items() if len(table))
    own = {kind: winners(one.run, _tensorflow(rows)) for kind, (rows, _) in KINDS.items()}
    stay = [_mostly(kind, table) for kind, table in own.items() if len(table)]
    pays = _pays(one, won["fp32"], won["half"], runs.deepbench)
    alike, single = _algorithms(one, won["fp32"], won["half"]), tf32(one.run, "half precision")
    body = [
        text(
            f"The fastest of the frameworks' rows is {told}.",
            pays,
            f"In TensorFlow it is {listed(stay)}." if stay else "",
        ),
        table(heads, rows, left=0),
        text(
            "In fp32, in half: the fastest row that a user of PyTorch or TensorFlow can have; where"
            " another one wins at some hidden sizes, it is named with these. Use: the faster of the"
            " two precisions. In brackets: at one hidden size at least the noise does not tell it"
            " from the next row of its precision or, under use, from the other precision. Library:"
            f" how many times faster the best of cuDNN is, that is {WHAT}. Half gains: how many"
            " times faster half precision is than fp32. Both are geometric means over hidden sizes."
        ),
        *_latencies(one),
        text(
            alike,
            single,
            _errors(one.run),
        ),
    ]
    short = text(f"The fastest of the frameworks' rows is {told}.", pays, single)
    return Section(title, body, short)


def winners(run: Run, rows: Sequence[str]) -> pd.DataFrame:
    """The fastest of these rows at every shape, its time, and whether the noise tells it."""
    cells = run.cells[run.cells["implementation"].isin(rows)]
    return analysis.winners(analysis.times(cells), run.noise)


def _tensorflow(rows: Sequence[str]) -> list[str]:
    return [name for name in rows if name.startswith("tf-")]


def _next_is_slower(here: pd.DataFrame) -> pd.Series[bool]:
    """Whether a winner is told from the next of its precision, shape by shape."""
    return here["verdict"].isin(["slower", "alone"])


def _other_is_slower(one: Subject, here: Mapping[str, pd.DataFrame], kind: str) -> pd.Series[bool]:
    """Whether the winner of one precision is told from that of the other, shape by shape."""
    own, other = here[kind], here["half" if kind == "fp32" else "fp32"]
    rivals = dict(zip(_shapes(other), other["fastest"], strict=True))
    told = [
        shape not in rivals or _verdict(one, row, rivals[shape], shape) == "slower"
        for row, shape in zip(own["fastest"], _shapes(own), strict=True)
    ]
    return pd.Series(told, index=own.index, dtype=bool)


def _shapes(of: pd.DataFrame) -> list[tuple[int, ...]]:
    return list(of[SHAPE].itertuples(index=False, name=None))


def _verdict(one: Subject, a: str, b: str, shape: tuple[int, ...]) -> str:
    """What B is called against A at a shape."""
    if not (pair := one.pair(a, b)):
        return "unsure"
    words = zip(_shapes(pair.of.shapes), pair.of.shapes["verdict"], strict=True)
    return str(dict(words)[shape])


def _use(here: pd.DataFrame, sure: pd.Series[bool]) -> str:
    """The row that wins at most hidden sizes, then the others with theirs."""
    if here.empty:
        return "-"
    counts = Counter(here["fastest"]).most_common()
    parts = []
    for place, (name, _) in enumerate(counts):
        own = here[here["fastest"] == name]
        sizes = "" if place == 0 else " at " + ", ".join(str(h) for h in sorted(own["hidden"]))
        told = f"{name}{sizes}"
        parts.append(told if sure[own.index].all() else f"({told})")
    return ", ".join(parts)


def _library(one: Subject, here: pd.DataFrame, best: str) -> str:
    """How many times faster the library's best is than the row that is used."""
    of = analysis.times(one.run.cells[one.run.cells["implementation"] == best])
    both = here.merge(of.shapes.assign(best_s=of.seconds[:, 0] if len(of.names) else np.nan))
    mean = _mean(both["fastest_s"] / both["best_s"])
    return "-" if math.isnan(mean) else times(mean)


def _both(single: pd.DataFrame, half: pd.DataFrame) -> pd.DataFrame:
    """The winners of either precision at the shapes that both have."""
    return single.merge(half, on=SHAPE, suffixes=("", "_half"))


def _gain(single: pd.DataFrame, half: pd.DataFrame) -> float:
    """How many times faster the row used in half precision is than the one used in fp32."""
    both = _both(single, half)
    return _mean(both["fastest_s"] / both["fastest_s_half"])


def _pays(one: Subject, single: pd.DataFrame, half: pd.DataFrame, elsewhere: Subject | None) -> str:
    """At which batches half precision is faster or slower beyond the noise, and by how much."""
    both = _both(single, half)
    floor = max(noise.applied(one.run.noise))
    found: defaultdict[str, list[tuple[str, Statistic]]] = defaultdict(list)
    for batch, own in both.groupby("batch"):
        logs = np.log(own["fastest_s"] / own["fastest_s_half"])
        gain = rules.mean(list(logs))
        word = rules.is_over(gain, math.log1p(floor))
        if rules.is_over(_turned(gain), math.log1p(floor)) == rules.HOLDS:
            word = "slower"
        found[word].append((str(batch), gain))
    parts = []
    for word, how in ((rules.HOLDS, "faster"), ("slower", "slower")):
        if here := found[word]:
            sizes = listed(_longer(gain if how == "slower" else _turned(gain)) for _, gain in here)
            parts.append(f"{sizes} {how} at batch {listed(batch for batch, _ in here)}")
    if here := found[rules.HOLDS_NOT]:
        batches = listed(batch for batch, _ in here)
        longer = listed(_longer(gain) for _, gain in here)
        called = _called(one, both[both["batch"].astype(str).isin([batch for batch, _ in here])])
        parts.append(f"not faster at batch {batches}: it takes {longer} as long, {called}")
    if here := found[rules.UNKNOWN]:
        parts.append(f"not to be told from fp32 at batch {listed(batch for batch, _ in here)}")
    keep = [batch for word in (rules.HOLDS_NOT, "slower") for batch, _ in found[word]]
    stay = f" Stay with fp32 at batch {listed(keep)}{_unless(elsewhere, keep)}." if keep else ""
    return f"Half precision is {listed(parts)}.{stay}" if parts else ""


def _unless(other: Subject | None, batches: Sequence[str]) -> str:
    """What half precision does at these batches of another run, where that is not slower."""
    if not other:
        return ""
    both = _both(*(winners(other.run, rows) for rows, _ in KINDS.values()))
    own = both[both["batch"].astype(str).isin(batches)]
    if own.empty:
        return ""
    gain = rules.mean(list(np.log(own["fastest_s"] / own["fastest_s_half"])))
    if gain.high < 0:
        return ""
    called = _called(other, own)
    return (
        f", or measure your own: at DeepBench's shapes it takes {_longer(gain)} as long, {called}"
    )


def _called(one: Subject, both: pd.DataFrame) -> str:
    """What is called of half precision at these shapes, one by one."""
    names = zip(both["fastest"], both["fastest_half"], _shapes(both), strict=True)
    words = Counter(_verdict(one, *found) for found in names)
    return f"slower at {words['slower']} and faster at {words['faster']} of {len(both)} shapes"


def _longer(gain: Statistic) -> str:
    """How many times as long half precision takes, with its interval."""
    return within(Statistic(*(math.exp(-end) for end in (gain.value, gain.high, gain.low))))


def _turned(of: Statistic) -> Statistic:
    return Statistic(-of.value, -of.high, -of.low)


def _algorithms(one: Subject, single: pd.DataFrame, half: pd.DataFrame) -> str:
    """What half gains where both precisions run alike, and where one runs as a single kernel."""
    kinds = {(cell.name, cell.shape): cell.in_one for cell in one.splits}
    gains: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
    both = _both(single, half)
    for row in both.to_dict("records"):
        shape = Shape(*(int(row[axis]) for axis in SHAPE))
        found = [kinds.get((row[name], shape)) for name in ("fastest", "fastest_half")]
        if None not in found:
            gain = math.log(row["fastest_s"] / row["fastest_s_half"])
            gains[found[0] == found[1]].append((shape.batch, gain))
    told = [
        f"{_factor(gains[alike])} at the {counted(len(gains[alike]), 'shape')} {where}"
        + _by_batch(gains[alike])
        for alike, where in ((True, SAME), (False, OTHER))
        if gains[alike]
    ]
    return f"Half precision gains {'; '.join(told)} (geometric means)." if told else ""


def _factor(found: Sequence[tuple[int, float]]) -> str:
    return times(math.exp(statistics.fmean(gain for _, gain in found)))


def _by_batch(found: Sequence[tuple[int, float]]) -> str:
    """A single sequence apart from more at once: they differ most."""
    one, more = [two for two in found if two[0] == 1], [two for two in found if two[0] > 1]
    if not one or not more:
        return ""
    return f" ({_factor(one)} at the {len(one)} of batch 1, {_factor(more)} at the others)"


def _mean(ratios: pd.Series[float]) -> float:
    return float(np.exp(np.log(ratios).mean())) if len(ratios) else math.nan


def _mostly(kind: str, won: pd.DataFrame) -> str:
    name, count, called = analysis.most_often(won)
    which = "fp32" if kind == "fp32" else "half precision"
    told = f"at {count} of {len(won)} shapes, {called} of them beyond the noise"
    return f"{code(name)} in {which} ({told})"


def _latencies(one: Subject) -> list[str]:
    """How long calls of middle size take, by batch: the ratios are of these."""
    of = analysis.times(one.run.cells[one.run.cells["implementation"].isin(SHOWN)])
    if not len(of.shapes):
        return []
    middle = {axis: _middle(of.shapes[axis]) for axis in ("hidden", "timesteps")}
    here = np.logical_and.reduce([of.shapes[axis] == size for axis, size in middle.items()])
    found = of.seconds[here]
    rows = [
        [code(name), *map(seconds, found[:, of.names.index(name)])]
        for name in SHOWN
        if name in of.names
    ]
    heads = ["latency", *(f"batch {batch}" for batch in of.shapes["batch"][here])]
    about = f"At hidden {middle['hidden']} and {middle['timesteps']} timesteps calls take:"
    return [about, table(heads, rows)]


def _middle(sizes: pd.Series[int]) -> int:
    found = sorted(set(map(int, sizes)))
    return found[len(found) // 2]


def _errors(run: Run) -> str:
    """What half precision costs in exactness."""
    ok = run.cells[run.cells["status"] == "ok"]
    told = []
    for kind, (rows, _) in KINDS.items():
        own = ok[ok["implementation"].isin(rows) & ok["max_abs_error"].notna()]
        if len(own):
            worst = own.loc[own["max_abs_error"].idxmax()]
            name = code(worst["implementation"])
            told.append(f"{error(float(worst['max_abs_error']))} in {kind}, by {name}")
    return f"The largest error against float64: {listed(told)}." if told else ""
