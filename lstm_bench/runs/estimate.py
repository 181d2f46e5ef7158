"""How long a run will take, before it is measured; what a run sees corrects it.

The constants of `_COSTS` are fitted to the runs in `results/`: `experiments/estimates.py` compares
the estimate of each run with what it took.
"""

from __future__ import annotations

import functools
import math
import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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


@dataclass(frozen=True)
class Cost:
    """What a call of an implementation costs, and what goes before the first one."""

    call_s: float
    step_s: float  # for each timestep
    rate: float  # useful operations a second: of each thread on a CPU, of the whole GPU
    few: float  # at this batch size half of the rate is reached
    build_s: float = 0.02
    first_s: float = 0.01  # the first call, beyond what later ones take


#: By device: the implementation, or the longest name that it begins with.
_COSTS = {
    "cpu": {
        "": Cost(4e-4, 3e-6, 8e10, 5.0, 0.02),
        "fake": Cost(0.0, 0.0, math.inf, 1.0, 0.0, 0.0),
        "deepbench": Cost(2e-6, 1e-8, 1.1e11, 1.5),
        "onnxruntime": Cost(7e-5, 1e-6, 7.7e10, 2.6, 0.06),
        "onnxruntime-int8": Cost(8e-5, 3e-6, 1.2e11, 1.0, 0.15),
        "openvino": Cost(6e-5, 3e-6, 6.9e10, 2.5, 0.22),
        "tf-": Cost(1.3e-3, 1.9e-5, 1.7e10, 8.0, 0.02, 0.12),
        "tf-mode1": Cost(1.3e-3, 5e-5, 1.1e10, 10.0, 0.02, 0.18),
        "jax": Cost(2e-4, 5e-6, 4e10, 5.0, 0.2),
        "keras-jax": Cost(3e-4, 6e-5, 4e10, 5.0, 0.8),
        "keras-torch": Cost(1.3e-3, 2e-4, 4e10, 5.0),
        "pytorch-compile": Cost(4e-4, 3e-6, 8e10, 5.0, 3.0),
    },
    "cuda": {
        "": Cost(1.1e-4, 1.2e-5, 4e13, 12.0, 0.03),
        "fake": Cost(0.0, 0.0, math.inf, 1.0, 0.0, 0.0),
        "deepbench-graph": Cost(1.3e-5, 4.6e-6, 2.8e13, 3.0),
        "deepbench-best": Cost(3.8e-5, 1.3e-6, 2.1e13, 0.0, 0.92),
        "deepbench-fp16": Cost(4e-5, 1.7e-5, 4e14, 8.0, 0.09),
        "deepbench-fp16-best": Cost(1.2e-5, 1.2e-6, 1.8e14, 4.2, 1.28),
        "deepbench-tf32": Cost(8e-5, 1.2e-5, 2.7e14, 1.0),
        "deepbench-tf32-best": Cost(1.5e-5, 4.8e-6, 1.8e14, 35.0, 0.4),
        "deepbench-persist-dynamic": Cost(3.4e-5, 8e-7, 4.9e12, 0.0, 0.69),
        "deepbench-persist-static": Cost(5e-5, 6e-7, 4.1e12, 0.0),
        "persistent": Cost(1.8e-5, 6.5e-7, 7.2e13, 2.4, 0.79),
        "persistent-": Cost(1.2e-5, 5.5e-7, 2.4e14, 8.5, 0.65),
        "pytorch-persistent": Cost(8.4e-5, 6.5e-7, 7.2e13, 3.7, 0.02, 0.59),
        "pytorch-tf32-persistent": Cost(7e-5, 7.3e-7, 2e14, 8.0, 0.02, 0.35),
        "pytorch-graph": Cost(1.7e-5, 4e-6, 2.6e13, 7.0),
        "pytorch-tf32": Cost(1.1e-4, 1.4e-5, 3.7e14, 95.0),
        "pytorch-tf32-graph": Cost(1.7e-5, 4e-6, 1.1e14, 26.0),
        "pytorch-half": Cost(9.3e-5, 5.2e-6, 5.4e14, 73.0),
        "pytorch-half-graph": Cost(1.4e-5, 1.9e-6, 4.4e14, 98.0),
        "pytorch-amp": Cost(5.5e-4, 3.7e-6, 4.4e14, 40.0),
        "pytorch-compile": Cost(2.3e-5, 1.2e-5, 3.3e13, 0.0, 2.0),
        "libtorch": Cost(4e-5, 1.2e-5, 3.8e13, 9.6, 0.5),
        "libtorch-tf32": Cost(1.2e-4, 1.2e-5, 2.7e14, 10.0, 0.05),
        "tf-mode0": Cost(9e-4, 1.5e-5, 4.6e13, 18.0, 0.16, 0.08),
        "tf-mode0-amp": Cost(1e-3, 1.8e-5, 7.4e14, 15.0, 0.13, 0.08),
        "tf-mode0-tf32": Cost(9.6e-4, 1.4e-5, 2.5e14, 15.0, 0.06, 0.07),
        "tf-mode1": Cost(1.2e-3, 5.3e-4, 6e13, 15.0, 0.14, 0.2),
        "tf-mode2": Cost(1.3e-3, 3.1e-4, 9.4e13, 30.0, 0.12, 0.12),
        "tf-xla": Cost(4e-4, 4.1e-5, 4.2e13, 0.6, 0.04, 0.45),
        "jax-scan": Cost(2e-4, 8e-6, 3.4e13, 0.1, 5.0),
        "jax-scan-tf32": Cost(1.6e-4, 7.3e-6, 1.7e14, 22.0, 0.9),
        "jax-cudnn": Cost(3e-4, 1.2e-5, 3.2e13, 10.0, 0.1),
        "keras-jax": Cost(2.8e-4, 1.4e-5, 3.3e13, 1.0, 0.2, 0.02),
        "keras-torch": Cost(1.3e-3, 1.3e-5, 4.8e13, 1.0, 0.04),
    },
}
_COMPILE_STEP_S = {"cpu": 0.02, "cuda": 0.6}  # of what compiles every timestep, up to its cap
_START_S = {  # a worker until it is ready for its first cell
    "cpu": {"tensorflow": 7.0, "pytorch": 3.5, "keras": 6.0, "fake": 0.1},
    "cuda": {"tensorflow": 9.0, "pytorch": 3.0, "keras": 6.0, "jax": 3.0, "fake": 0.1},
}
_REFERENCE_RATE = 4.5e9  # float64 operations a second and core, of the reference
_COMPARED_S = 5e-9  # for each number of an output, each time that it is compared
_ASKED_S = 0.004  # a round of a cell beside its calls, and a cell's own share of each request
_SETTLE_S, _SLOW_S = 0.005, 0.05  # as in `timing.settle`
_PROFILE_S, _OPERATORS_S = 0.2, 0.35


def possible(plan: Plan, cells: Iterable[Cell], missing: Collection[str]) -> list[Cell]:
    """The cells whose framework is there."""
    return [cell for cell in cells if plan.row(cell.implementation).home not in missing]


def cost(row: Implementation, device: str) -> Cost:
    """The constants of a row: those of the longest name that its own begins with."""
    known = _COSTS[device]
    name = "fake" if row.framework.startswith("fake") else row.name
    return known[max((key for key in known if name.startswith(key)), key=len)]


@functools.lru_cache
def emulated(framework: str) -> float:
    """How many times longer half precision takes on this CPU than fp32."""
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        return 1.0
    if re.search(r"\b(avx512_bf16|amx_bf16|avx512_fp16|bf16|asimdhp)\b", info):
        return 1.0
    wide = "avx512f" in info
    return {"pytorch": 3.0 if wide else 40.0, "tensorflow": 2.0 if wide else 3.0}.get(
        framework, 1.0
    )


def call_s(row: Implementation, shape: Shape, settings: Settings) -> float:
    """What one call will take, within a factor of two mostly."""
    if row.framework.startswith("fake"):
        return float(row.options.get("call_s", 0.001)) if row.options.get("real") else 0.0
    settings = row.settings_in(settings)
    its = cost(row, settings.device)
    rate = its.rate * (settings.threads if settings.device == "cpu" else 1)
    seconds = its.call_s + shape.timesteps * its.step_s
    seconds += shape.flops / rate * (1 + its.few / shape.batch)
    if row.precision in ("amp", "bf16") and settings.device == "cpu":
        seconds *= emulated(row.framework)
    return seconds


def too_long(call: float, sampling: Sampling) -> bool:
    """Whether a cell will be given up while it is prepared, which takes two calls."""
    return 2 * call > sampling.timeout_s


def block_s(call: float, sampling: Sampling, kinds: int) -> float:
    """A block with the calls before it; `kinds` is 2 where it has queued calls too."""
    share = sampling.cell_s / sampling.rounds / kinds
    timed = max(call, min(share, max(sampling.block_s, sampling.block_calls * call)))
    single = timed < 2 * call
    before = 0.0 if single and call > _SLOW_S else max(call, min(_SETTLE_S, sampling.block_s))
    return before + timed * (1 if single else kinds) + _ASKED_S


def rounds_of(call: float, sampling: Sampling, kinds: int) -> float:
    """How many rounds a cell will take: some converge early, some never do."""
    likely = sampling.rounds + 0.45 * (sampling.max_rounds - sampling.rounds)
    return min(likely, max(1.0, sampling.cell_s / block_s(call, sampling, kinds)))


class Estimate:
    """What the cells of a plan cost; `learn` corrects it by what cells have cost."""

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
        """What one call of a cell will take."""
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
        build = its.build_s
        if "cap_s" in row.options:
            build = min(
                build + _COMPILE_STEP_S[device] * cell.shape.timesteps, float(row.options["cap_s"])
            )
        shape = cell.shape
        compared = _COMPARED_S * shape.batch * shape.timesteps * shape.hidden
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
        known = _START_S["cuda" if self.plan.settings.device == "cuda" else "cpu"]
        return sum(known.get(framework.split("-")[0], 0.8) for _, _, framework in workers)

    def run_s(self, cells: Sequence[Cell], begun: int | None = None) -> float:
        """All of these cells, and the start of their workers but in the pass that has begun."""
        shapes: dict[tuple[int, Shape], list[Cell]] = {}
        for cell in cells:
            shapes.setdefault((cell.pass_number, cell.shape), []).append(cell)
        start = self.start_s(cell for cell in cells if cell.pass_number != begun)
        return start + sum(map(self.shape_s, shapes.values()))


def _factor(logs: Sequence[float]) -> float:
    """How far guesses are off, with the guess itself as one more opinion."""
    return math.exp(sum(logs) / (len(logs) + 1))
