"""Is this machine fit to measure on? Frameworks per interpreter, clashes, settings, noise."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from lstm_bench import frameworks as registry
from lstm_bench.driver import machine, worker_pool
from lstm_bench.model.types import (
    Implementation,
    Record,
    Sampling,
    Settings,
    Shape,
    kinds_of,
)
from lstm_bench.model.units import counted, listed, percent
from lstm_bench.runs.plan import Plan

#: Lists the files that more than one of an environment's NVIDIA packages claim to own.
_CLASHES = (
    worker_pool.NOT_HERE
    + """
import collections, importlib.metadata, json
owners = collections.defaultdict(set)
for package in importlib.metadata.distributions():
    name = (package.metadata["Name"] or "").lower()
    if name.startswith("nvidia-"):
        for file in package.files or ():
            if ".so" in file.name:
                owners[str(file)].add(name)
pairs = collections.Counter(tuple(sorted(o)) for o in owners.values() if len(o) > 1)
print(json.dumps([[list(pair), files] for pair, files in pairs.items()]))
"""
)

#: Each with what goes without it.
_EXTENSIONS = {
    "lstm_kernels._native": "every kernel of our own",
    "lstm_bench._cudnn": "the C++ baseline on a GPU",
    "lstm_bench._limits": "how far a time is from what the machine allows",
}


def survey(environments: Mapping[str, str], device: str) -> dict[str, dict[str, Any]]:
    """Every framework's interpreter, what it has, and what it lacks for running on `device`."""
    answers = {}
    for name, framework in registry.FRAMEWORKS.items():
        python = worker_pool.interpreter(name, environments)
        answers[name] = {"interpreter": python, **worker_pool.probe(python, framework)}
        if framework.quick_to_describe and not answers[name]["missing"]:
            answers[name]["unusable"] = refusal(python, framework.folder, device)
    return answers


def refusal(python: str, folder: str, device: str) -> str:
    """Say why a framework cannot run on `device`, and the remedy; empty if it can."""
    code = (
        f"from lstm_bench.frameworks.{folder}.session import describe\n"
        "from lstm_bench.model.types import Settings, Unsupported\n"
        f"try: describe(Settings(device={device!r}))\n"
        "except Unsupported as reason: print(reason)"
    )
    try:
        command = worker_pool.with_package(python, code)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{python} does not load it: {error}"
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return f"{python} does not load it: {lines[-1]}" if done.returncode else done.stdout.strip()


#: Rows, each with why it cannot run here and what would change that; empty if it can.
Availability: TypeAlias = Sequence[tuple[Implementation, str]]


def availability(
    rows: Iterable[Implementation], answers: Mapping[str, Mapping[str, Any]], device: str
) -> Availability:
    """Say of each row what it lacks to run on `device`."""
    no_gpu = device == "cuda" and not machine.has_gpu()

    def lacks(row: Implementation) -> str:
        install = registry.framework_of(row).install  # or an error that names the row
        answer = answers[row.framework]
        if device not in row.devices:
            return f"needs {' or '.join(row.devices)}"
        if missing := ", ".join(answer["missing"]):
            return f"no {missing} here: {install}"
        if no_gpu:
            return "needs a GPU, and the driver shows none here"
        return str(answer.get("unusable", ""))

    return [(row, lacks(row)) for row in rows]


def clashes(python: str) -> list[tuple[list[str], int]]:
    """Pairs of NVIDIA packages in an environment that overwrite each other, and how many files."""
    try:
        done = subprocess.run([python, "-c", _CLASHES], capture_output=True, text=True, timeout=60)
        return [(names, files) for names, files in json.loads(done.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def not_compiled() -> list[str]:
    """Say, in one line, which extensions this installation lacks, and what goes without them."""
    absent = [name for name in _EXTENSIONS if importlib.util.find_spec(name) is None]
    return [
        f"{listed(absent)} not compiled; missing: {listed([_EXTENSIONS[name] for name in absent])};"
        f" all else works. Install the wheel, or {registry.FRAMEWORKS['deepbench'].install}"
        for _ in absent[:1]
    ]


def advice(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Advise how to make the numbers better, a line for each way."""
    lines = not_compiled()
    governor = machine.governor()
    if governor and governor != "performance":
        lines.append(
            f"the CPU frequency governor is {governor!r}: `cpupower frequency-set -g performance`"
        )
    load = machine.load()
    if load > 0.5 * machine.threads():
        lines.append(
            f"the load is {load:.1f} on {counted(machine.threads(), 'core')}: close what else runs"
        )
    for python in {f["interpreter"] for f in answers.values()}:
        for names, files in clashes(python):
            lines.append(
                f"{' and '.join(names)} overwrite each other in {python} ({files} files):"
                " give a framework an environment of its own, then --python FRAMEWORK=PATH"
            )
    return lines


# noise: an A/A run

_SHAPES = (Shape(64, 16, 50, 64), Shape(128, 1, 32, 128), Shape(128, 16, 25, 128))
_PAIRS = 8  # per shape
QUIET = 0.02  # the noise floor of a machine that is fit to measure on
DISTURBED = 0.05  # share of cells that may be disturbed


def noise_plan(rows: Availability, settings: Settings, environments: Mapping[str, str]) -> Plan:
    """The same implementation many times over, interleaved: all that differs is noise."""
    able = {row.name for row, lack in rows if not lack}
    candidates = sorted(f.noise for f in registry.FRAMEWORKS.values() if f.noise)
    name = next((name for _, name in candidates if name in able), "fake")
    row = registry.IMPLEMENTATIONS[name]
    if name == "fake":  # no framework here: a loop that keeps one core busy
        row = replace(row, options={"real": True, "call_s": 0.003})
    return Plan(
        name="doctor",
        shapes=_SHAPES,
        implementations=(row,),
        settings=settings,
        sampling=Sampling(rounds=10, max_rounds=10, cell_s=10.0),
        controls=2 * _PAIRS - 1,
        environments=environments,
    )


def verdict(records: Sequence[Record], floor: float | None) -> str | None:
    """Say whether the machine is fit to measure on, by its noise floor; None if that is unknown.

    What takes the cores from all alike does not set twins apart, and makes every time a wrong one.
    """
    if floor is None:
        return None
    disturbed = dict(kinds_of(record.warnings for record in records)).get("disturbed", 0)
    if disturbed > DISTURBED * len(records):
        cells = counted(len(records), "cell")
        return f"not quiet: {disturbed} of {cells} were disturbed; close what else runs here"
    word = "quiet enough" if floor < QUIET else "noisy: close what else runs here"
    return f"{word} (expected under {percent(QUIET, 0)})"
