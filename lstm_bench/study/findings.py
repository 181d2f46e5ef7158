"""Which of the paper's findings hold: the claims and the rule for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from matplotlib.figure import Figure

from lstm_bench import profile_figures, split
from lstm_bench.comparison import Group
from lstm_bench.registry import PAPER
from lstm_bench.study import amp, launches, modes, rules, twins
from lstm_bench.study.modes import MODES, PYTORCH
from lstm_bench.study.section import Section, code, table, text
from lstm_bench.study.subject import Runs, Subject, missing
from lstm_bench.units import percent, seconds, times
from lstm_bench.words import Pair

SKIP, SAME = "deepbench-skip", "deepbench"  # what the paper compared, and the same with all work
SMALL_BATCH = 16  # where the paper saw mode 1 and mode 2 change places
MANY_STEPS = 1000  # from where it saw mode 1 ahead again
LARGE_HIDDEN = 512  # from where it saw AMP ahead in mode 0, at many timesteps
MOSTLY = 0.5  # of a call's time
BESIDE = ("pytorch-half", "deepbench-best")  # rows that the paper did not have


class Finding(NamedTuple):
    """A claim of the paper in our words, what the run shows, and the word for it."""

    claim: str
    here: str
    word: str


def section(runs: Runs) -> Section:
    title = "Which of the paper's findings hold"
    one = runs.paper
    if not one:
        return Section(title, [missing("h200-paper")])
    found = findings(one)
    counts = Counter(finding.word for finding in found)
    told = (
        f"of {len(found)} findings of the paper {counts[rules.HOLDS]} hold,"
        f" {counts[rules.HOLDS_NOT]} do not, {counts[rules.DEPENDS]} depend on the shape"
    )
    if counts[rules.UNKNOWN]:
        told += f", {counts[rules.UNKNOWN]} cannot be told"
    body = [
        f"On the H200, {told}.",
        table(["the paper found", "here", "verdict"], [list(one) for one in found], left=3),
        text(
            "A claim holds if its whole 95% interval lies on its side beyond the noise floor, and"
            " does not hold if the whole interval lies off that side. It depends on the shape if"
            " the mean is not clear and at least a tenth of the shapes are called faster and a"
            " tenth slower, and else cannot be told. Factors at sizes are of the largest and the"
            " smallest, all other sizes equal: with AMP how many times faster it is, over DeepBench"
            f" how many times as long PyTorch takes. DeepBench is {code(SKIP)} here, which leaves"
            f" out the input projection as the paper's did. Large sizes: hidden from {LARGE_HIDDEN}"
            " at the most timesteps. Means are geometric; an MPE can point the other way"
            " ([where](#the-papers-table-then-and-now))."
        ),
        text(
            "The paper's share of kernel launches is, as far as can be told, TensorBoard's: time in"
            " which the host prepares launches while the device does not compute. Here that is the"
            " time in which the GPU idles."
        ),
        *_deepbench(one),
        *modes.parts(one),
        *amp.parts(one),
        *launches.parts(one),
    ]
    rest = _named(found, rules.HOLDS_NOT, "Not so here")
    rest += _named(found, rules.DEPENDS, "Here at some shapes only", counts=True)
    rest += f" DeepBench is {code(SKIP)} here, as it ran." if rest else ""
    return Section(title, body, f"{told[0].upper()}{told[1:]}.{rest}", figures(one))


def _named(found: list[Finding], word: str, title: str, counts: bool = False) -> str:
    claims = [
        f"{finding.claim} ({finding.here})" if counts else finding.claim
        for finding in found
        if finding.word == word
    ]
    return f" {title}: {'; '.join(claims)}." if claims else ""


def figures(one: Subject) -> dict[str, Figure]:
    """The paper's figures 5 and 6: what the kernels of its rows do, and how long nothing runs.

    Beside the latter, how long nothing has to run.
    """
    cells = [cell for cell in one.splits if cell.name in PAPER]
    beside = [cell for cell in one.splits if cell.name in (*PAPER, *BESIDE)]
    if not one.profiled(PYTORCH, *MODES):
        return {}
    return {
        "study-activity": profile_figures.activity(one.run, beside),
        "study-kernels": profile_figures.by_family(one.run, cells),
    }


def findings(one: Subject) -> list[Finding]:
    """All claims, by what they are about."""
    mode0 = MODES[0]
    return [
        _two("PyTorch is slower than DeepBench", one.pair(SKIP, PYTORCH), rules.is_slower),
        _largest_batch(one.pair(SKIP, PYTORCH)),
        _overhead(one.pair(SKIP, PYTORCH)),
        _two("PyTorch beats TensorFlow's mode 0", one.pair(PYTORCH, mode0), rules.is_slower, mode0),
        _more_kernels(one),
        _generic_modes(one),
        _modes_by_batch(one.pair(*MODES[1:])),
        _modes_at_many_steps(one.pair(*MODES[1:])),
        _waiting(one),
        _two("AMP slows PyTorch on the whole", _amp(one, PYTORCH), rules.is_slower),
        _amp_at_all_steps(_amp(one, PYTORCH)),
        _gains("AMP gains with hidden size in PyTorch", _amp(one, PYTORCH), "hidden"),
        _gains("AMP gains with timesteps in PyTorch", _amp(one, PYTORCH), "timesteps"),
        _gains("AMP gains with hidden size in mode 0", _amp(one, mode0), "hidden"),
        _gains("AMP gains with timesteps in mode 0", _amp(one, mode0), "timesteps"),
        _amp_at_large_sizes(_amp(one, mode0)),
    ]


def _amp(one: Subject, name: str) -> Pair | None:
    return one.pair(name, amp.with_amp(name))


def _unknown(claim: str, why: str = "not measured") -> Finding:
    return Finding(claim, why, rules.UNKNOWN)


Rule = Callable[[Group, float], str]


def _word(rule: Rule, pair: Pair) -> str:
    """What a rule says, unless there is no one thing to say of all shapes."""
    return rules.DEPENDS if twins.goes_both_ways(pair) else rule(pair.whole, pair.floor)


def _told(pair: Pair) -> str:
    """The same as a few words of a table."""
    return twins.ways(pair) if twins.goes_both_ways(pair) else twins.outcome(pair)


def _most(pair: Pair, axis: str) -> int:
    return int(pair.of.shapes[axis].max())


def _two(claim: str, pair: Pair | None, rule: Rule, name: str = "") -> Finding:
    """A claim on B against A over all shapes."""
    if not pair:
        return _unknown(claim)
    return Finding(claim, f"{name} {_told(pair)}".strip(), _word(rule, pair))


def _largest_batch(pair: Pair | None) -> Finding:
    if not pair:
        return _unknown("PyTorch beats DeepBench at large batches")
    most = _most(pair, "batch")
    own = twins.between(pair, "batch", most, most)
    claim = f"PyTorch beats DeepBench at batch {most}"
    return Finding(claim, _told(own), _word(rules.is_faster, own))


def _overhead(pair: Pair | None) -> Finding:
    claim = "PyTorch falls behind with timesteps"
    found = rules.trend(pair, "timesteps") if pair else None
    if not found:
        return _unknown(claim)
    ends = f"{times(found.at_low)} at {found.low}, {times(found.at_high)} at {found.high}"
    return Finding(claim, ends, found.rises)


def _more_kernels(one: Subject) -> Finding:
    """Kernels are counted, not timed: no noise. How much they explain stands beside it."""
    claim = "mode 0 runs more kernels than PyTorch"
    found = twins.of_rows(one, PYTORCH, MODES[0])
    if not found.cells:
        return _unknown(claim, "not profiled")
    more = sum(twins.kernels(b) > twins.kernels(a) for a, b in found.cells)
    middle = found.more(twins.kernels)
    here = f"at {more} of {len(found.cells)}, {middle:+,.0f} in the median"
    return Finding(claim, here, rules.HOLDS if more == len(found.cells) else rules.HOLDS_NOT)


def _generic_modes(one: Subject) -> Finding:
    claim = "modes 1 and 2 are slower than mode 0"
    found = [pair for name in MODES[1:] if (pair := one.pair(MODES[0], name))]
    if len(found) < 2:
        return _unknown(claim)
    word = rules.both(*(_word(rules.is_slower, pair) for pair in found))
    return Finding(claim, _joined(*map(_told, found)), word)


def _joined(first: str, second: str, between: str = " and ") -> str:
    """`12x and 7.4x slower`; two different things stand one after the other."""
    if first == second:
        return first
    ends = first.rpartition(" "), second.rpartition(" ")
    alike = ends[0][2] == ends[1][2] and " " not in ends[0][0] + ends[1][0]
    return f"{ends[0][0]}{between}{second}" if alike else f"{first}, {second}"


def _modes_by_batch(pair: Pair | None) -> Finding:
    claim = f"mode 1 beats 2 up to batch {SMALL_BATCH} only"
    if not pair:
        return _unknown(claim)
    small = twins.between(pair, "batch", 1, SMALL_BATCH)
    large = twins.between(
        pair, "batch", SMALL_BATCH + 1, max(_most(pair, "batch"), SMALL_BATCH + 1)
    )
    if not small.whole.shapes or not large.whole.shapes:
        return _unknown(claim)
    word = rules.both(_word(rules.is_slower, small), _word(rules.is_faster, large))
    here = _joined(_told(small), _told(large), ", above ")
    return Finding(claim, f"mode 2 {here}", word)


def _modes_at_many_steps(pair: Pair | None) -> Finding:
    claim = f"mode 1 beats 2 from {MANY_STEPS} timesteps"
    if not pair or _most(pair, "timesteps") < MANY_STEPS:
        return _unknown(claim)
    own = twins.between(pair, "timesteps", MANY_STEPS, _most(pair, "timesteps"))
    return Finding(claim, f"mode 2 {_told(own)}", _word(rules.is_slower, own))


def _waiting(one: Subject) -> Finding:
    """The host prepares launches and the GPU does not compute: the GPU idles."""
    claim = "modes 1 and 2 mostly prepare launches"
    cells = split.by_name(one.profiled(*MODES[1:]))
    if not cells:
        return _unknown(claim, "not profiled")
    found = [rules.mean([c.idle for c in own]) for own in cells.values()]
    told = [percent(share.value, 0) for share in found]
    here = f"the GPU waits {told[0]}, {told[1]} of a call"
    return Finding(claim, here, rules.both(*(rules.is_over(share, MOSTLY) for share in found)))


def _amp_at_all_steps(pair: Pair | None) -> Finding:
    claim = "AMP helps PyTorch at all timesteps"
    if not pair:
        return _unknown(claim)
    steps = sorted(set(map(int, pair.of.shapes["timesteps"])))
    found = [twins.between(pair, "timesteps", t, t) for t in steps]
    word = rules.both(*(_word(rules.is_faster, own) for own in found))
    counts = [(own.whole.verdicts["faster"], own.whole.shapes) for own in found]
    if len({of for _, of in counts}) == 1:
        wins = ", ".join(str(n) for n, _ in counts)
        here = f"faster at {wins} of {counts[0][1]} by steps"
    else:
        here = f"faster at {', '.join(f'{n} of {of}' for n, of in counts)}"
    return Finding(claim, here, word)


def _gains(claim: str, pair: Pair | None, axis: str) -> Finding:
    """What AMP gains is larger at the far end of an axis."""
    found = rules.trend(pair, axis) if pair else None
    if not found:
        return _unknown(claim)
    ends = f"{times(1 / found.at_low)} at {found.low}, {times(1 / found.at_high)} at {found.high}"
    return Finding(claim, ends, found.falls)


def _amp_at_large_sizes(pair: Pair | None) -> Finding:
    claim = "AMP helps mode 0 at large sizes"
    if not pair or _most(pair, "hidden") < LARGE_HIDDEN:
        return _unknown(claim)
    steps = _most(pair, "timesteps")
    own = twins.between(pair, "hidden", LARGE_HIDDEN, _most(pair, "hidden"))
    own = twins.between(own, "timesteps", steps, steps)
    if not own.whole.shapes:
        return _unknown(claim)
    return Finding(claim, _told(own), _word(rules.is_faster, own))


def _deepbench(one: Subject) -> list[str]:
    """PyTorch against both of DeepBench by batch and by timesteps, with either algorithm."""
    pairs = [pair for name in (SKIP, SAME) if (pair := one.pair(name, PYTORCH))]
    if not pairs:
        return []
    stepwise = one.stepwise(PYTORCH)
    some = [twins.over(pair, stepwise) for pair in pairs]
    alike = all(pair.whole.shapes for pair in some)
    heads, columns, rows = ["over"], [], []
    for pair, own in zip(pairs, some, strict=True):
        heads += [code(pair.of.a), "stepwise"] if alike else [code(pair.of.a)]
        columns += [pair, own] if alike else [pair]
    for axis in ("batch", "timesteps"):
        for value in sorted({int(v) for pair in pairs for v in pair.of.shapes[axis]}):
            rows.append([f"{axis} {value}", *(twins.factor(p, axis, value) for p in columns)])
    return [
        "### PyTorch against DeepBench",
        table(heads, rows),
        text(
            "PyTorch's latency over that of the row, geometric means; in brackets: not beyond the"
            f" noise as a whole. {code(SKIP)} leaves out the input projection, {code(SAME)} does"
            " all the work."
            + (" Stepwise: only where PyTorch goes step by step too." if alike else ""),
            _in_time(some[0], "Stepwise a") if alike else _in_time(pairs[0], "A"),
        ),
    ]


def _in_time(pair: Pair, start: str) -> str:
    """A factor may fall while the time that it stands for grows."""
    shapes = pair.of.shapes
    ends = dict.fromkeys((int(shapes["timesteps"].min()), int(shapes["timesteps"].max())))
    told = []
    for steps in ends:
        own = shapes[shapes["timesteps"] == steps]
        more = float((own["b_s"] - own["a_s"]).median())
        told.append(f"{seconds(abs(more))} {'more' if more >= 0 else 'less'} at {steps} timesteps")
    return f"{start} call takes {' and '.join(told)} than one of {code(pair.of.a)} (medians)."
