"""Which row to use for which batch and timesteps."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd

from lstm_bench import analysis, noise
from lstm_bench.intervals import Statistic
from lstm_bench.model import Shape
from lstm_bench.noise import SHAPE
from lstm_bench.results import Run
from lstm_bench.study import rules
from lstm_bench.study.headroom import WHAT
from lstm_bench.study.section import Section, code, table, text
from lstm_bench.study.subject import Runs, Subject, missing, tf32
from lstm_bench.units import counted, error, listed, times

#: What a framework's user can have, and the library's best beside it.
KINDS = {
    "fp32": (("pytorch", "tf-mode0", "tf-mode1", "tf-mode2"), "deepbench-best"),
    "half": (
        ("pytorch-amp", "pytorch-half", "tf-mode0-amp", "tf-mode1-amp", "tf-mode2-amp"),
        "deepbench-fp16-best",
    ),
}

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
            row += [_use(here[kind]), _library(one, here[kind], best)]
        gain = _gain(here["fp32"], here["half"])
        use = row[2] if gain > 1 or here["fp32"].empty else row[0]
        rows.append([str(batch), str(steps), use, *row, "-" if math.isnan(gain) else times(gain)])
    heads = ["batch", "timesteps", "use", "in fp32", "library", "in half", "library", "half gains"]
    told = listed(_mostly(kind, table) for kind, table in won.items() if len(table))
    own = {kind: winners(one.run, _tensorflow(rows)) for kind, (rows, _) in KINDS.items()}
    stay = [_mostly(kind, table) for kind, table in own.items() if len(table)]
    pays = _pays(one, won["fp32"], won["half"])
    alike, single = _algorithms(one, won["fp32"], won["half"]), tf32(one.run, "half precision")
    body = [
        text(
            f"Of the frameworks' rows use {told}.",
            pays,
            f"Who must stay with TensorFlow: {listed(stay)}." if stay else "",
        ),
        table(heads, rows, left=0),
        text(
            "Use: the faster of the two, for who can do with half precision. In fp32, in half: the"
            " fastest row that a user of PyTorch or TensorFlow can have, at most hidden sizes;"
            " others that win are named with theirs; in brackets: at one of them at least the noise"
            " does not tell it from the next. Library: how many"
            f" times faster the best of cuDNN is, that is {WHAT}. Half gains: how many times faster"
            " half precision is than fp32. Both are geometric means over hidden sizes."
        ),
        text(
            alike,
            single,
            _errors(one.run),
        ),
    ]
    return Section(title, body, text(f"Of the frameworks' rows use {told}.", pays, single))


def winners(run: Run, rows: Sequence[str]) -> pd.DataFrame:
    """The fastest of these rows at every shape, its time, and whether the noise tells it."""
    cells = run.cells[run.cells["implementation"].isin(rows)]
    return analysis.winners(analysis.times(cells), run.noise)


def _tensorflow(rows: Sequence[str]) -> list[str]:
    return [name for name in rows if name.startswith("tf-")]


def _use(here: pd.DataFrame) -> str:
    """The row that wins at most hidden sizes, then the others with theirs."""
    if here.empty:
        return "-"
    counts = Counter(here["fastest"]).most_common()
    parts = []
    for place, (name, _) in enumerate(counts):
        own = here[here["fastest"] == name]
        sure = bool(own["verdict"].isin(["slower", "alone"]).all())
        sizes = "" if place == 0 else " at " + ", ".join(str(h) for h in sorted(own["hidden"]))
        parts.append(f"{name}{sizes}" if sure else f"({name}{sizes})")
    return ", ".join(parts)


def _library(one: Subject, here: pd.DataFrame, best: str) -> str:
    """How many times faster the library's best is than the row that is used."""
    of = analysis.times(one.run.cells[one.run.cells["implementation"] == best])
    both = here.merge(of.shapes.assign(best_s=of.seconds[:, 0] if len(of.names) else np.nan))
    mean = _mean(both["fastest_s"] / both["best_s"])
    return "-" if math.isnan(mean) else times(mean)


def _gain(single: pd.DataFrame, half: pd.DataFrame) -> float:
    """How many times faster the row used in half precision is than the one used in fp32."""
    both = single.merge(half, on=SHAPE, suffixes=("", "_half"))
    return _mean(both["fastest_s"] / both["fastest_s_half"])


def _pays(one: Subject, single: pd.DataFrame, half: pd.DataFrame) -> str:
    """At which batches half precision is faster or slower beyond the noise, and by how much."""
    both = single.merge(half, on=SHAPE, suffixes=("", "_half"))
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
            sizes = listed(times(math.exp(abs(gain.value))) for _, gain in here)
            parts.append(f"{sizes} {how} at batch {listed(batch for batch, _ in here)}")
    if here := found[rules.HOLDS_NOT]:
        batches = listed(batch for batch, _ in here)
        longer = listed(_longer(gain) for _, gain in here)
        called = _called(one, both[both["batch"].astype(str).isin([batch for batch, _ in here])])
        parts.append(f"not faster at batch {batches}: it takes {longer} as long, {called}")
    if here := found[rules.UNKNOWN]:
        parts.append(f"not to be told from fp32 at batch {listed(batch for batch, _ in here)}")
    keep = [batch for word in (rules.HOLDS_NOT, "slower") for batch, _ in found[word]]
    stay = f" Stay with fp32 at batch {listed(keep)}." if keep else ""
    return f"Half precision is {listed(parts)}.{stay}" if parts else ""


def _called(one: Subject, both: pd.DataFrame) -> str:
    """What is called of half precision at these shapes, one by one."""
    words: Counter[str] = Counter()
    for row in both.to_dict("records"):
        pair = one.pair(row["fastest"], row["fastest_half"])
        if pair:
            same = (pair.of.shapes[SHAPE] == [row[axis] for axis in SHAPE]).all(axis=1)
            words.update(pair.of.shapes.loc[same, "verdict"])
    return f"slower at {words['slower']} and faster at {words['faster']} of {len(both)} shapes"


def _longer(gain: Statistic) -> str:
    """How many times as long half precision takes, with its interval."""
    value, low, high = (times(math.exp(-end)) for end in (gain.value, gain.high, gain.low))
    return f"{value} ({low} to {high})"


def _turned(of: Statistic) -> Statistic:
    return Statistic(-of.value, -of.high, -of.low)


def _algorithms(one: Subject, single: pd.DataFrame, half: pd.DataFrame) -> str:
    """What half gains where both precisions run alike, and where one runs as a single kernel."""
    kinds = {(cell.name, cell.shape): cell.in_one for cell in one.splits}
    gains: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
    both = single.merge(half, on=SHAPE, suffixes=("", "_half"))
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
    name, count = Counter(won["fastest"]).most_common(1)[0]
    called = int(((won["fastest"] == name) & (won["verdict"] == "slower")).sum())
    which = "fp32" if kind == "fp32" else "half precision"
    told = f"the fastest at {count} of {len(won)} shapes, {called} of them beyond the noise"
    return f"in {which} {code(name)} ({told})"


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
