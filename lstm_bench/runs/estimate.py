"""Estimates how long a run will take; what the run measures corrects it.

The constants of each framework stand in its `rows.py`, fitted to the runs in `results/`:
`experiments/estimates.py` compares the estimate of each run with what it took.
"""

from __future__ import annotations

import functools
import math
import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lstm_bench import frameworks
from lstm_bench.model.framework import Cost, Framework
from lstm_bench.model.types import (
    LEAD_S,
    WINDOW_S,
    Cell,
    Implementation,
    Sampling,
    Settings,
    Shape,
)

if TYPE_CHECKING:
    from lstm_bench.runs.plan import Plan


#: The costs of a row whose framework gives none.
_USUAL = {
    "cpu": Cost(4e-4, 3e-6, 8e10, 5.0, 0.02),
    "cuda": Cost(1.1e-4, 1.2e-5, 4e13, 12.0, 0.03),
}
_REFERENCE_RATE = 4.5e9  # float64 operations a second and core, of the reference
_COMPARED_S = 5e-9  # for each number of an output, each time that it is compared
_ASKED_S = 0.004  # a round of a cell beside its calls, and a cell's own share of each request
_SETTLE_S, _SLOW_S = 0.005, 0.05  # as in `timing.settle`
_PROFILE_S, _OPERATORS_S = 0.2, 0.35


def possible(plan: Plan, cells: Iterable[Cell], missing: Collection[str]) -> list[Cell]:
    """The cells whose framework is there."""
    return [cell for cell in cells if plan.row(cell.implementation).home not in missing]


def by_shape(cells: Iterable[Cell]) -> dict[tuple[int, Shape], list[Cell]]:
    """Cells that are measured in turns, in the order in which their shapes come."""
    groups: dict[tuple[int, Shape], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.pass_number, cell.shape), []).append(cell)
    return groups


def cost(row: Implementation, device: str) -> Cost:
    """The constants of a row: those of the longest name that its own begins with."""
    costs = {"": _USUAL[device], **frameworks.known(row.framework).costs.get(device, {})}
    return costs[max((key for key in costs if row.name.startswith(key)), key=len)]


@functools.cache
def _wide() -> bool | None:
    """Return whether a CPU without half precision has AVX-512; None for any other CPU."""
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    known = re.search(r"\b(avx512_bf16|amx_bf16|avx512_fp16|bf16|asimdhp)\b", info)
    return None if known else "avx512f" in info


def emulated(framework: Framework) -> float:
    """Return how many times longer half precision takes on this CPU than fp32."""
    wide = _wide()
    return 1.0 if wide is None else framework.emulated[not wide]


def call_s(row: Implementation, shape: Shape, settings: Settings) -> float:
    """Estimate the seconds of one call, mostly within a factor of two."""
    if row.framework.startswith("fake"):
        return float(row.options.get("call_s", 0.001)) if row.options.get("real") else 0.0
    settings = row.settings_in(settings)
    its = cost(row, settings.device)
    rate = its.rate * (settings.threads if settings.device == "cpu" else 1)
    seconds = (its.call_s + shape.steps * its.step_s) * (3 if shape.training else 1)
    seconds += shape.flops / rate * (1 + its.few / shape.batch)
    if row.precision in ("amp", "bf16") and settings.device == "cpu":
        seconds *= emulated(frameworks.known(row.framework))
    return seconds


def too_long(call: float, sampling: Sampling) -> bool:
    """Return whether a cell will be given up while it is prepared, which takes two calls."""
    return 2 * call > sampling.timeout_s


def block_s(call: float, sampling: Sampling, kinds: int) -> float:
    """A block with the calls before it; `kinds` is 2 where it has queued calls too."""
    share = sampling.cell_s / sampling.rounds / kinds
    timed = max(call, min(share, max(sampling.block_s, sampling.block_calls * call)))
    single = timed < 2 * call
    before = 0.0 if single and call > _SLOW_S else max(call, min(_SETTLE_S, sampling.block_s))
    return before + timed * (1 if single else kinds) + _ASKED_S


def rounds_of(call: float, sampling: Sampling, kinds: int) -> float:
    """Estimate the rounds that a cell will take: some converge early, some never do."""
    likely = sampling.rounds + 0.45 * (sampling.max_rounds - sampling.rounds)
    return min(likely, max(1.0, sampling.cell_s / block_s(call, sampling, kinds)))


class Estimate:
    """The cost of the cells of a plan; `learn` corrects it by the cost of measured cells."""

    LATEST = 2  # cells of a row that say how far its guess is off: those nearest in size

    def __init__(self, plan: Plan):
        self.plan = plan
        latest = functools.partial(deque[float], maxlen=self.LATEST)
        self._calls: defaultdict[str, deque[float]] = defaultdict(latest)
        self._builds: defaultdict[str, deque[float]] = defaultdict(latest)

    def learn(self, cell: Cell, call: float, prepare: float, sampling: Sampling) -> None:
        """Note what a call of a cell took, and all that went before its first block."""
        row = self.plan.row(cell.implementation)
        if guess := call_s(row, cell.shape, self.plan.settings):
            self._calls[row.name].append(math.log(max(call, 1e-9) / guess))
            self._builds[row.name].append(prepare - self._prepare_s(cell, call, sampling))

    def call_s(self, cell: Cell) -> float:
        """Estimate the seconds of one call of a cell."""
        row = self.plan.row(cell.implementation)
        return call_s(row, cell.shape, self.plan.settings) * _factor(self._calls[row.name])

    def prepare_s(self, cell: Cell, sampling: Sampling) -> float:
        """Building, the first call, its check and the warm-up."""
        seen = self._builds[cell.implementation]
        more = sum(seen) / len(seen) if seen else 0.0  # it hardly depends on the shape
        return max(0.0, self._prepare_s(cell, self.call_s(cell), sampling) + more)

    def _prepare_s(self, cell: Cell, call: float, sampling: Sampling) -> float:
        row = self.plan.row(cell.implementation)
        device = row.settings_in(self.plan.settings).device
        its = cost(row, device)
        build = its.build_s + its.build_step_s * cell.shape.steps
        build = min(build, float(row.options.get("cap_s", math.inf)))
        shape = cell.shape
        compared = _COMPARED_S * shape.batch * shape.timesteps * shape.hidden * shape.directions
        calls = min(sampling.warmup_calls, 1 + sampling.warmup_cap_s / call)
        warm = min(max(sampling.warmup_cap_s, call), max(sampling.warmup_s, calls * call))
        return build + its.first_s + call + warm + 2 * compared + 2 * _ASKED_S

    def cell_s(
        self, cell: Cell, sampling: Sampling | None = None, rounds: float | None = None
    ) -> float:
        """A cell from its building to its record, with this sampling and so many rounds."""
        sampling = sampling or self.plan.sampling
        row = self.plan.row(cell.implementation)
        device = row.settings_in(self.plan.settings).device
        if device not in row.devices:
            return 0.0
        call = self.call_s(cell)
        if call == 0.0:
            return 0.005
        if too_long(call, sampling):
            return sampling.timeout_s
        if "cap_s" in row.options and self.prepare_s(cell, sampling) >= row.options["cap_s"]:
            return float(row.options["cap_s"]) / len(self.plan.shapes)  # only the first is tried
        kinds = 2 if device == "cuda" else 1
        rounds = rounds_of(call, sampling, kinds) if rounds is None else rounds
        seconds = self.prepare_s(cell, sampling) + rounds * block_s(call, sampling, kinds)
        if self.plan.wants_profile(cell):
            seconds += (_PROFILE_S if device == "cuda" else _OPERATORS_S) + 4 * call
        if self.plan.wants_energy(cell):
            seconds += (WINDOW_S + LEAD_S) * sampling.loads + 0.2
        return seconds

    def shape_s(
        self, cells: Sequence[Cell], sampling: Sampling | None = None, rounds: float | None = None
    ) -> float:
        """Cells of one shape and pass, with the reference that they share."""
        rows = [self.plan.row(cell.implementation) for cell in cells]
        if not rows or all(row.framework.startswith("fake") for row in rows):
            reference = 0.0
        else:
            kinds = len({row.computes for row in rows})
            cores = max(self.plan.settings.threads, 1)
            reference = kinds * cells[0].shape.flops / (_REFERENCE_RATE * cores)
        return reference + sum(self.cell_s(cell, sampling, rounds) for cell in cells)

    def start_s(self, cells: Iterable[Cell]) -> float:
        """The start of all workers that these cells need, in each pass."""
        workers = {
            (c.pass_number, self.plan.worker(c), self.plan.row(c.implementation).framework)
            for c in cells
        }
        on_gpu = self.plan.settings.device == "cuda"
        return sum(frameworks.known(framework).start_s[on_gpu] for _, _, framework in workers)

    def run_s(self, cells: Sequence[Cell], begun: int | None = None) -> float:
        """Estimate these cells and the start of their workers, but in the pass that has begun."""
        start = self.start_s(cell for cell in cells if cell.pass_number != begun)
        return start + sum(map(self.shape_s, by_shape(cells).values()))


def _factor(logs: Sequence[float]) -> float:
    """The factor by which guesses are off, with the guess itself as one more opinion."""
    return math.exp(sum(logs) / (len(logs) + 1))
