"""What the study cannot say."""

from __future__ import annotations

from lstm_bench import noise
from lstm_bench.study import legs, repeat
from lstm_bench.study.section import Section, bullets, code
from lstm_bench.study.subject import HOST, Runs, Subject, missing
from lstm_bench.trust import kinds_of
from lstm_bench.units import clean, counted, listed, percent

MANY_ROUNDS = 50  # from which verdicts allow for a worker's pace well enough (docs/noise.md)


def section(runs: Runs) -> Section:
    title = "Limits"
    if not runs.paper:
        return Section(title, [missing("h200-paper")])
    run = runs.paper.run
    settings, shapes = run.plan.settings, runs.paper.shapes
    gpus = run.manifest["machine"].get("gpus") or [{}]
    ranges = listed(
        f"{axis} {shapes[axis].min()} to {shapes[axis].max()}"
        for axis in ("hidden", "batch", "timesteps")
    )
    equal = bool((shapes["input_size"] == shapes["hidden"]).all())
    timed = run.cells[run.cells["status"] == "ok"]
    loose = dict(kinds_of(timed["warnings"])).get("not converged", 0)
    floors = [percent(floor) for floor in dict.fromkeys(noise.applied(run.noise))]
    lines = [
        f"One kind of machine: {clean(str(gpus[0].get('name', 'unknown')))}{_boards(runs)}, one"
        " driver, one version of each framework, each with its own cuDNN. Another kind of GPU has"
        " other crossing points.",
        f"One layer, one direction, inference only, {ranges}"
        + (", inputs as wide as the hidden state." if equal else "."),
        f"TF32 is {'on' if settings.tf32 else 'off'}, while PyTorch and TensorFlow turn it on by"
        f" default; AMP is {settings.amp}.",
        f"Differences below the noise floor ({listed(floors)} by length of the call) are not seen."
        " Launches are the host's work: a slower CPU, or a busy one, shifts every short call. The"
        " first calls of a block are slower than the last, TensorFlow's most; so is a long call"
        " that makes up a block alone ([how much](method.md#warm-up-rounds-stop)).",
        f"{loose} of {counted(len(timed), 'cell')}, controls included, did not settle to"
        f" {percent(run.plan.sampling.converged, 0)}; [how](noise.md)"
        " verdicts take that into account.",
        *_pace(run.plan.sampling.max_rounds),
        *_legs(runs.paper),
        *(line for one in runs.repeats if (line := _host(runs.paper, one))),
        "Profiling slows the host, and [graphs](profile.md#what-holds-and-what-profiling-distorts):"
        " busy time is the GPU's own and holds elsewhere; what the host does between two launches"
        " is not seen.",
        "Not among the rows: PyTorch in a CUDA graph, `torch.compile`, XLA.",
        "The paper lists neither its grid nor its noise, so its figures can be set beside these,"
        " not tested against them; its figures average times, this page averages ratios.",
    ]
    return Section(title, ["What this cannot say:", bullets(lines)])


def _host(first: Subject, second: Subject) -> str:
    """What a noise floor of one run does not hold."""
    found = repeat.against(first, second)
    own = found[first.bottlenecks(found)[HOST]]
    if own.empty:
        return ""
    return (
        "The noise floor is not how well another run repeats: in"
        f" {code(second.run.name)} calls that wait for the host differ by"
        f" {percent(float(own['size'].median()))} in the median, and with them what the host costs"
        " against the best of cuDNN ([by how much](#does-it-repeat))."
    )


def _boards(runs: Runs) -> str:
    """How many GPUs the runs tell of."""
    there = [one for one in (runs.paper, runs.deepbench, runs.noise) if one]
    found = set[str | None]().union(*map(legs.boards, (*there, *runs.repeats, *runs.energy)))
    known = len(found - {None})
    least = "at least " if None in found else ""
    return f" ({least}{counted(known, 'GPU')} of it)" if known else ""


def _legs(one: Subject) -> list[str]:
    """What a run that was resumed averages over."""
    count = len(legs.sizes(one))
    if count < 2:
        return []
    return [
        f"It was measured in {count} legs, whose hosts [may differ](#does-it-repeat): rows are held"
        " against each other in one of them, but a mean over shapes is one over hosts too."
    ]


def _pace(rounds: int) -> list[str]:
    """What few rounds leave open."""
    if rounds >= MANY_ROUNDS:
        return []
    return [
        "Frameworks run in workers of their own, whose"
        " [pace](noise.md) moves, and"
        f" {rounds} rounds are few for that: a single verdict on rows of two of them that wait for"
        " the host and differ by little is less sure than it says."
    ]
