"""The paper's Table 2, its values beside those of the runs."""

from __future__ import annotations

import math

from lstm_bench.intervals import Statistic
from lstm_bench.mpe import paper_pairs
from lstm_bench.study.section import Section, bullets, code, table, text
from lstm_bench.study.subject import Runs, Subject, missing
from lstm_bench.units import counted, listed, times
from lstm_bench.words import Pair, versus

COLUMNS = {"h200-paper": "H200", "h200-deepbench": "DeepBench's shapes", "cpu-default": "CPU"}


def section(runs: Runs) -> Section:
    named = {"h200-paper": runs.paper, "h200-deepbench": runs.deepbench, "cpu-default": runs.cpu}
    there = {name: one for name, one in named.items() if one}
    body = [_answer(runs.paper) if runs.paper else missing("h200-paper")]
    if there:
        heads = ["A", "B", "paper", *(COLUMNS[name] for name in there)]
        rows = []
        names = {name for one in there.values() for name in one.run.implementations}
        for a, b, paper in paper_pairs(names):
            values = [_shown(one, a, b) for one in there.values()]
            rows.append([code(a), code(b), "" if math.isnan(paper) else f"{paper:.2f}", *values])
        body += [table(heads, rows, left=2)]
        body.append(
            text(
                "MPE, the mean over shapes of (A-B)/A, with its 95% interval; negative means"
                " that B is slower. The paper's is of a TITAN V in 2021, over a grid that it does"
                " not list; its DeepBench skips the input projection, as `deepbench-skip` does and"
                " `deepbench` does not, and its AMP in PyTorch is NVIDIA's Apex, here PyTorch's own"
                " autocast.",
                _own_shapes(runs.deepbench),
                _cpu(runs.cpu),
            )
        )
    if runs.paper:
        body += [_signs(runs.paper), "What changed, on the H200:", bullets(_changes(runs.paper))]
    return Section("The paper's table, then and now", body, _short(runs.paper))


def _shown(one: Subject, a: str, b: str) -> str:
    pair = one.pair(a, b)
    if not pair:
        return "-"
    mpe = pair.whole.mpe
    return f"{mpe.value:.2f} [{mpe.low:.2f}, {mpe.high:.2f}]"


def change(mpe: Statistic, then: float) -> str:
    """What became of a value of the paper, whose own spread nobody knows."""
    if mpe.low <= then <= mpe.high:
        return "as then"
    if mpe.low > 0 and then < 0:
        return "turned round: B is the faster one now"
    if mpe.high < 0 < then:
        return "turned round: B is the slower one now"
    if mpe.low <= 0 <= mpe.high:
        return "no clear sign now"
    return "the same sign, larger" if abs(mpe.value) > abs(then) else "the same sign, smaller"


def _changes(one: Subject) -> list[str]:
    lines = []
    for a, b, then in _published(one):
        pair = one.pair(a, b)
        if not pair:
            lines.append(f"{code(a)} and {code(b)}: not both measured.")
            continue
        words, ratio = pair.whole.verdicts, pair.whole.ratio
        told = versus(pair.whole, pair.floor)
        if not pair.clear:
            ends = f"{times(ratio.low)} to {times(ratio.high)}"
            told = f"{times(ratio.value)} the time ({ends}), not clearly beyond the noise floor"
        lines.append(
            f"{code(b)} against {code(a)}: by MPE {change(pair.whole.mpe, then)}. By the geometric"
            f" mean {told}; of {pair.whole.shapes} shapes {words['faster']} faster,"
            f" {words['slower']} slower, {words['same'] + words['unsure']} not called."
        )
    return lines


def _published(one: Subject) -> list[tuple[str, str, float]]:
    """Those pairs that the paper has a value of."""
    return [pair for pair in paper_pairs(one.run.implementations) if not math.isnan(pair[2])]


def opposite(pair: Pair) -> bool:
    """Whether the mean of differences calls B slower and the mean of ratios faster, or so."""
    return pair.whole.mpe.value * (1 - pair.whole.ratio.value) < 0


def _signs(one: Subject) -> str:
    pairs = paper_pairs(one.run.implementations)
    found = [pair for a, b, _ in pairs if (pair := one.pair(a, b)) and opposite(pair)]
    if not found:
        return ""
    told = listed(
        f"{code(pair.of.b)} against {code(pair.of.a)} ({pair.whole.mpe.value:.2f}, but"
        f" {times(pair.whole.ratio.value)} the time)"
        for pair in found
    )
    return text(
        f"In the column {COLUMNS['h200-paper']} MPE and geometric mean point opposite ways for"
        f" {told}. A B that takes twice as long counts -1 in an MPE, one that takes half"
        " as long only 0.5."
    )


def _answer(one: Subject) -> str:
    pairs = _published(one)
    found = [(pair, then) for a, b, then in pairs if (pair := one.pair(a, b))]
    kept = sum(change(pair.whole.mpe, then) == "as then" for pair, then in found)
    turned = sum("turned" in change(pair.whole.mpe, then) for pair, then in found)
    open_ = sum("no clear" in change(pair.whole.mpe, then) for pair, then in found)
    return text(
        f"Of the paper's {len(pairs)} pairs {len(found)} were measured. As then: {kept}; turned"
        f" round: {turned}; without a clear sign now: {open_}; of the same sign, but another size:"
        f" {len(found) - kept - turned - open_}."
    )


def _own_shapes(one: Subject | None) -> str:
    if not one:
        return ""
    return (
        "DeepBench's shapes are those of its inference and of its training, of which only the"
        " forward pass is run."
    )


def _cpu(one: Subject | None) -> str:
    """What the CPU's column is not."""
    if not one:
        return ""
    shapes = one.shapes
    sizes = f"hidden {shapes['hidden'].min()} to {shapes['hidden'].max()}"
    paths = one.run.cells.loc[one.run.cells["implementation"] == "tf-mode0", "path"]
    alike = bool(len(paths)) and set(paths) == {"generic"}
    return f"The CPU's column is of another grid ({counted(len(shapes), 'shape')}, {sizes})" + (
        ", and mode 0 is mode 2's code there." if alike else "."
    )


def _short(one: Subject | None) -> str:
    """PyTorch and TensorFlow against what DeepBench runs, and against the same work."""
    if not one:
        return ""
    told = []
    for name, title in (("pytorch", "PyTorch"), ("tf-mode0", "TensorFlow's mode 0")):
        values = []
        for a, b, then in paper_pairs(one.run.implementations):
            if b == name and a.startswith("deepbench") and (pair := one.pair(a, b)):
                beside = f"against the same work {times(pair.whole.ratio.value)}"
                if not math.isnan(then):
                    beside = f"MPE {pair.whole.mpe.value:.2f}, in the paper {then:.2f}"
                values.append((times(pair.whole.ratio.value), beside))
        if values:
            (now, paper), *rest = values
            more = "".join(f"; {beside}" for _, beside in rest)
            told.append(f"{title} takes {now} the time ({paper}{more})")
    runs = "Against what DeepBench runs, which has no input projection,"
    return f"{runs} {listed(told)} (geometric means)." if told else ""
