"""The paper's findings, and which of them the main run confirms.

A claim holds if its whole 95% interval is on its side of the noise floor, and does not hold if the
whole interval is off that side. It depends on the shape if the mean is not clear while a tenth of
the shapes or more go each way, beyond the noise. Everything else is open.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

import numpy as np

from lstm_bench.analysis.comparison import Comparison
from lstm_bench.analysis.intervals import over_shapes
from lstm_bench.model.types import Shape
from lstm_bench.model.units import factor
from study.runs import Study, at, floor_of, is_clear, only, shapes_of

HOLDS, HOLDS_NOT, DEPENDS, OPEN = "holds", "does not hold", "depends on the shape", "open"
PYTORCH, SKIP = "pytorch", "deepbench-skip"  # DeepBench as the paper ran it
MODES = ("tf-mode0", "tf-mode1", "tf-mode2")
MOSTLY = 0.5  # of a call
LAUNCH_STATE = 0.724  # of mode 1's time in the paper, by TensorBoard


class Finding(NamedTuple):
    claim: str
    here: str
    verdict: str


def findings(study: Study) -> list[Finding]:
    deepbench = study.against(SKIP, PYTORCH)
    mode0 = study.against(PYTORCH, MODES[0])
    generic = [study.against(MODES[0], name) for name in MODES[1:]]
    modes = study.against(*MODES[1:])
    amp = study.against(PYTORCH, "pytorch-amp")
    amp0 = study.against(MODES[0], "tf-mode0-amp")
    large = only(amp0, lambda shape: shape.hidden >= 512 and shape.timesteps == 1000)
    return [
        finding(deepbench, "slower", "PyTorch is slower than DeepBench"),
        finding(
            at(deepbench, batch=256), "faster", "PyTorch is faster than DeepBench at batch 256"
        ),
        trend(
            deepbench, "timesteps", "slower", "PyTorch loses more to DeepBench in longer sequences"
        ),
        finding(mode0, "slower", "TensorFlow's mode 0 is slower than PyTorch"),
        more_kernels(study),
        Finding(
            "Modes 1 and 2 are slower than mode 0",
            ", ".join(f"mode {n} {difference(each)}" for n, each in enumerate(generic, 1)),
            both(*(judged(each, "slower") for each in generic)),
        ),
        by_batch(modes),
        finding(
            at(modes, timesteps=1000),
            "slower",
            "Mode 1 is faster than mode 2 at 1000 timesteps",
            "mode 2 ",
        ),
        waiting(study),
        finding(amp, "slower", "AMP makes PyTorch slower overall"),
        at_all_lengths(amp),
        trend(amp, "hidden", "faster", "AMP helps PyTorch more at larger hidden sizes"),
        trend(amp, "timesteps", "faster", "AMP helps PyTorch more in longer sequences"),
        trend(amp0, "hidden", "faster", "AMP helps mode 0 more at larger hidden sizes"),
        trend(amp0, "timesteps", "faster", "AMP helps mode 0 more in longer sequences"),
        finding(large, "faster", "AMP makes mode 0 faster at large sizes"),
    ]


def finding(pair: Comparison, word: str, claim: str, who: str = "") -> Finding:
    """Judge a claim on B against A over all shapes of the comparison."""
    return Finding(claim, who + difference(pair), judged(pair, word))


def depends(pair: Comparison) -> bool:
    words = pair.group().verdicts
    fewest = min(words["faster"], words["slower"])
    return not is_clear(pair) and 10 * fewest >= len(pair.shapes)


def judged(pair: Comparison, word: str) -> str:
    """Judge whether B is `slower` or `faster` than A."""
    ratio, limit = pair.group().ratio, 1 + floor_of(pair)
    ends = (ratio.low, ratio.high) if word == "slower" else (1 / ratio.high, 1 / ratio.low)
    return DEPENDS if depends(pair) else by_interval(*ends, limit)


def by_interval(low: float, high: float, limit: float) -> str:
    return HOLDS if low > limit else HOLDS_NOT if high < limit else OPEN


def both(*verdicts: str) -> str:
    """Join the verdicts on the parts of a claim, which must all hold."""
    for word in (HOLDS_NOT, DEPENDS, OPEN):
        if word in verdicts:
            return word
    return HOLDS


def difference(pair: Comparison) -> str:
    """Describe the ratio, such as `2.5x slower`, or the numbers of shapes with each sign."""
    group = pair.group()
    words, ratio = group.verdicts, group.ratio.value
    if depends(pair):
        return f"faster at {words['faster']}, slower at {words['slower']} of {len(pair.shapes)}"
    if not is_clear(pair):
        return "no clear difference"
    return f"{factor(ratio)} slower" if ratio > 1 else f"{factor(1 / ratio)} faster"


def trend(pair: Comparison, axis: str, word: str, claim: str) -> Finding:
    """Judge whether B gets `slower` or `faster` against A from end to end of an axis.

    Shapes at both ends are paired, all other sizes equal; Student's interval over the pairs.
    """
    ratios = dict(zip(shapes_of(pair), pair.shapes["ratio"], strict=True))
    sizes = sorted({getattr(shape, axis) for shape in ratios})
    ends = [
        np.log([ratio for shape, ratio in ratios.items() if getattr(shape, axis) == size])
        for size in (sizes[0], sizes[-1])
    ]
    growth = ends[1] - ends[0] if word == "slower" else ends[0] - ends[1]
    low, high = np.exp(over_shapes(growth))
    sign, how = (1, "the time") if word == "slower" else (-1, "the speed")
    shown = [factor(float(np.exp(sign * end.mean()))) for end in ends]
    here = f"{shown[0]} {how} at {sizes[0]}, {shown[1]} at {sizes[-1]}"
    return Finding(claim, here, by_interval(low, high, 1 + floor_of(pair)))


def more_kernels(study: Study) -> Finding:
    """Judge by counts of kernels, which have no noise."""
    sides = study.profiled(PYTORCH), study.profiled(MODES[0])
    more = [sides[1][s].profile.kernels - sides[0][s].profile.kernels for s in sides[0]]
    wins = sum(extra > 0 for extra in more)
    here = f"at {wins} of {len(more)} shapes, {statistics.median(more):.0f} more in the median"
    claim = "Mode 0 runs more kernels than PyTorch"
    return Finding(claim, here, HOLDS if wins == len(more) else HOLDS_NOT)


def by_batch(modes: Comparison) -> Finding:
    small, large = (only(modes, chosen) for chosen in (_small, lambda shape: not _small(shape)))
    verdict = both(judged(small, "slower"), judged(large, "faster"))
    here = f"mode 2 {difference(small)} up to 16, {difference(large)} above"
    return Finding("Mode 1 is faster than mode 2 up to batch 16, slower above", here, verdict)


def _small(shape: Shape) -> bool:
    return shape.batch <= 16


def idle(study: Study, name: str) -> list[float]:
    """The share of the latency in which the GPU is idle, by shape."""
    return [cell.idle for cell in study.profiled(name).values()]


def launching(study: Study, name: str) -> float:
    """Mean share of a profiled call inside the calls that launch, over shapes."""
    return statistics.fmean(cell.launching for cell in study.profiled(name).values())


def waiting(study: Study) -> Finding:
    """The paper's `LAUNCH_STATE`: TensorFlow's executor is at work and no kernel runs.

    Idle time comes nearest and decides; `launching`, beside it, has the calls that launch alone.
    """
    shares = [np.array(idle(study, name)) for name in MODES[1:]]
    verdict = both(*(by_interval(*over_shapes(share), MOSTLY) for share in shares))
    calls = (f"{launching(study, name):.0%}" for name in MODES[1:])
    here = (
        f"the GPU waits for {' and '.join(f'{share.mean():.0%}' for share in shares)} of a call,"
        f" launch calls take {' and '.join(calls)}"
    )
    return Finding("Modes 1 and 2 mostly prepare launches", here, verdict)


def at_all_lengths(amp: Comparison) -> Finding:
    steps = sorted({shape.timesteps for shape in shapes_of(amp)})
    parts = [at(amp, timesteps=count) for count in steps]
    wins = ", ".join(str(part.group().verdicts["faster"]) for part in parts)
    lengths = ", ".join(map(str, steps))
    here = f"faster at {wins} of {len(parts[0].shapes)} shapes with {lengths} timesteps"
    claim = "AMP makes PyTorch faster at every sequence length"
    return Finding(claim, here, both(*(judged(part, "faster") for part in parts)))
