"""How the setups of runs differ: versions, settings, and the machine.

Both `gate` and `compare` say it first: what is another may be why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from lstm_bench.analysis.results import Run

Facts = Mapping[str, str]
NONE = "none"
OF_THE_MACHINE = ("device", "threads")  # among the settings


def differences(
    runs: Sequence[Run], versions: Sequence[Sequence[Facts]], machine: bool = True
) -> dict[str, tuple[str, ...]]:
    """Finds facts that are not the same in all runs, and the value of each: versions first.

    `versions` has, for every row that is compared, what each run had it with. A library counts
    where two runs or more have it. Without `machine`, machines are what is compared.
    """
    differing: dict[str, tuple[str, ...]] = {}
    for sides in versions:
        differing |= _apart(sides, shared=True)
    return differing | _apart([_facts(run, machine) for run in runs])


def _apart(sides: Sequence[Facts], shared: bool = False) -> dict[str, tuple[str, ...]]:
    names = dict.fromkeys(name for side in sides for name in side)
    differing = {}
    for name in names:
        values = tuple(side.get(name, NONE) for side in sides)
        counted = [value for value in values if value != NONE] if shared else values
        if len(set(counted)) > 1:
            differing[name] = values
    return differing


def _facts(run: Run, machine: bool) -> dict[str, str]:
    """The facts of a run, each in a word; an unknown one is left out."""
    plan, there = run.plan, run.manifest["machine"]
    settings, environment = asdict(plan.settings), dict(there.get("environment") or {})
    facts = {"lstm-bench": there.get("git") or there.get("lstm_bench")}
    facts["python"] = there.get("python")
    if machine:
        gpu = (there.get("gpus") or [{}])[0]
        facts |= {"CPU": there.get("cpu"), "GPU": gpu.get("name"), "GPU's UUID": gpu.get("uuid")}
        facts |= {"driver": gpu.get("driver")}
        facts |= {what: there.get(what) for what in ("system", "governor")}
    else:
        settings = {k: v for k, v in settings.items() if k not in OF_THE_MACHINE}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
    facts |= {f"${name}": value for name, value in environment.items()}
    facts |= settings
    facts |= {f"sampling.{what}": value for what, value in asdict(plan.sampling).items()}
    facts["sampling.passes"] = plan.passes
    return {what: str(value) for what, value in facts.items() if value not in (None, "")}
