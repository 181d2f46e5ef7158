"""The C++ baseline: our kernels on a CPU, cuDNN on a GPU, in as thin a layer as Python allows."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lstm_bench.frameworks.deepbench import libraries
from lstm_bench.model.profile import Part, Profile
from lstm_bench.model.types import (
    INPUTS,
    TOLERANCES,
    Implementation,
    Settings,
    Unsupported,
    to_json,
)
from lstm_bench.worker.problem import Answer, Array, Problem, check, check_skippable
from lstm_bench.worker.session import Session
from lstm_bench.worker.timing import Clock
from lstm_kernels import native
from lstm_kernels.cache import TuningCache
from lstm_kernels.layer import trial

TRAINS = True  # cuDNN does
#: The options of a row that `build` reads.
OPTIONS = frozenset({"algorithm", "choose", "graph", "precision", "skip_input"})
ALGORITHMS = ("standard", "persist-static", "persist-dynamic", "persist-static-small-h")
DYNAMIC_MOST = 3072  # hidden: cuDNN compiled for 47 s there, and for more than 50 at 4096
HOPELESS = 1.5  # times the best so far: a candidate this slow is timed no further


def describe(settings: Settings) -> dict[str, Any]:
    """Describe the library that the baseline drives; a missing one is named with its remedy."""
    versions = _kernels()[0] if settings.device == "cpu" else _cudnn()[2]
    return {"versions": versions, "threads": settings.threads, "tf32": settings.tf32}


def build(problem: Problem, row: Implementation, settings: Settings) -> Session:
    """The baseline for one shape, loaded with the problem's weights and inputs."""
    options = row.options
    if options.get("skip_input"):
        check_skippable(problem.shape)
    if settings.device == "cpu":
        session = _build_cpu(problem, options, settings)
    else:
        session = _build_cudnn(problem, options, settings)
    if settings.inputs != "device":
        session.lstm.keep_on_host(settings.inputs == "pinned")
    if settings.state == "carried":
        session.carry(problem.h0, problem.c0)
    return session


class BaselineSession(Session):
    """A loaded layer of either extension; C++ reads the clocks, so no Python is in between.

    On a CPU it takes its own calls apart. On a GPU only CUPTI can.
    """

    profiler = "baseline"
    carries = True
    inputs_from = INPUTS

    def __init__(self, lstm: Any, path: str):
        self.lstm, self.path, self.memory = lstm, path, lstm.memory()
        self.peak = sum(self.memory.values())  # it allocates nothing but these, and once
        self.training = "reserve" in self.memory

    @property
    def two_passes(self) -> bool:  # type: ignore[override]
        """A graph has both."""
        return self.training and "graph" not in self.path

    def forward_pass(self) -> None:
        self.lstm.forward_pass()

    def backward_pass(self) -> None:
        self.lstm.backward_pass()

    def carry(self, h0: Array, c0: Array) -> None:
        """Start the next call from these states, as the layer stores them, and carry them on."""
        self.start = h0, c0
        self.restart()

    def restart(self) -> None:
        self.lstm.carry(*self.start)

    def call(self) -> None:
        self.lstm.forward()

    def wait(self) -> None:
        self.lstm.wait()

    def outputs(self) -> Answer:
        answer = list(self.lstm.outputs())
        sizes = -1, *answer[1].shape[-2:]
        for place in (1, 2, 4, 5) if self.training else (1, 2):  # the states, and their gradients
            answer[place] = answer[place].reshape(sizes)
        return tuple(answer)

    def time_each(self, calls: int, clock: Clock | None = None) -> list[int]:
        return list(self.lstm.time_each(calls))

    def time_queued(self, calls: int, clock: Clock | None = None) -> int:
        return int(self.lstm.time_queued(calls))

    def operators(self, calls: int) -> Profile | None:
        """The phases of the call of median length, on the thread that calls: they are all of it."""
        if not hasattr(self.lstm, "phases"):
            return None
        self.lstm.phases(1)
        timed = [self.lstm.phases(1) for _ in range(calls)]
        wall_s = statistics.median_low(sum(phases.values()) for phases in timed)
        phases = next(phases for phases in timed if sum(phases.values()) == wall_s)
        parts = [Part(name, "phase", 1, seconds) for name, seconds in phases.items() if seconds]
        parts.sort(key=lambda part: -part.seconds)
        return Profile(self.profiler, "cpu", calls, wall_s=wall_s, parts=parts)

    def device_peak(self) -> int:
        return self.peak

    def close(self) -> None:
        self.lstm.release()


def _loaded(lstm: Any, arrays: Iterable[Array]) -> Any:
    """Hand the arrays over; a layer that cannot take them is freed at once, not when Python may."""
    try:
        lstm.load(*arrays)
    except BaseException:
        lstm.release()
        raise
    return lstm


# CPU


def _kernels() -> tuple[dict[str, str], libraries.OpenBlas]:
    """The versions of what the row runs on, and OpenBLAS."""
    blas = libraries.OpenBlas(libraries.openblas())
    try:
        with libraries.kernel_refusals():
            kernels = native.kernels()
    except ValueError as error:  # LSTM_BENCH_ISA
        raise Unsupported(str(error)) from None
    names = {"fp32": "kernel", "bf16": "bf16 kernel", "int8": "int8 kernel"}
    versions = {names[precision]: kernel for precision, kernel in kernels.items()}
    return {**versions, "openblas": blas.version}, blas


def _build_cpu(problem: Problem, options: Mapping[str, Any], settings: Settings) -> BaselineSession:
    arrays = problem.single
    versions, blas = _kernels()
    s, precision, skips = problem.shape, options.get("precision", "fp32"), options.get("skip_input")
    kernel = versions["kernel" if precision == "fp32" else f"{precision} kernel"]
    # Without a multiply-add OpenBLAS is faster than the kernels at the input product.
    by_blas = precision == "fp32" and not skips and kernel == "SSE2"
    if by_blas:
        blas.in_one_thread()
    with libraries.kernel_refusals():
        lstm = native.CpuLstm(
            *(s.hidden, s.input_size, s.batch, s.timesteps),
            threads=settings.threads,
            skip_input=bool(skips),
            precision=precision,
            sgemm=blas.sgemm if by_blas else None,
        )
    path = f"{kernel}, {_plan(*lstm.plan())}"
    return BaselineSession(_loaded(lstm, arrays), path)


def _plan(batch_parts: int, unit_parts: int, chunk: int) -> str:
    """Describe how the layer is cut up: the share of each thread, and when x is multiplied."""
    parts = [
        f"1/{n} of the {what}"
        for n, what in ((batch_parts, "batch"), (unit_parts, "units"))
        if n > 1
    ]
    share = f"{' and '.join(parts) or 'all'} a thread"
    steps = f"{chunk} timestep{'s' if chunk > 1 else ''} at a time" if chunk else "with h"
    return f"{share}, x {steps}"


# cuDNN


def _cudnn() -> tuple[Any, tuple[str, str], dict[str, str]]:
    """The extension, the paths of libcudnn and libcudart, and their versions."""
    module, paths = libraries.extension("lstm_bench._cudnn"), libraries.cudnn()
    return module, paths, dict(module.versions(*paths))


def _build_cudnn(
    problem: Problem, options: Mapping[str, Any], settings: Settings
) -> BaselineSession:
    module, paths, versions = _cudnn()
    s, precision = problem.shape, options.get("precision", "fp32")
    refusals = (module.Unsupported, module.OutOfMemory, module.LibraryError)

    def candidate(algorithm: str, graph: bool) -> BaselineSession:
        if algorithm == "persist-dynamic" and s.hidden > DYNAMIC_MOST:
            raise module.Unsupported(
                "cuDNN takes very long to compile PERSIST_DYNAMIC's kernels at a hidden size above"
                f" {DYNAMIC_MOST}; not tried"
            )
        lstm = module.Lstm(
            *paths,
            *(s.hidden, s.input_size, s.batch, s.timesteps),
            precision=precision,
            tf32=settings.tf32,
            algorithm=algorithm,
            graph=graph,
            skip_input=bool(options.get("skip_input")),
            layers=s.layers,
            directions=s.directions,
            lengths=problem.lengths() or [],
            training=s.training,
        )
        path = f"cuDNN {versions['cudnn']} {algorithm}{', graph' if graph else ''}"
        if s.training:
            lstm.load_upstream(*problem.upstream)
        arrays = (problem.x, problem.h0, problem.c0, *problem.arrays)
        return BaselineSession(_loaded(lstm, arrays), path)

    if options.get("choose") != "best":
        try:
            return candidate(options.get("algorithm", "standard"), bool(options.get("graph")))
        except module.Unsupported as refused:
            raise Unsupported(str(refused)) from None
    tolerance = TOLERANCES["tf32" if precision == "fp32" and settings.tf32 else precision]

    def agree(answer: Answer, expected: Answer) -> bool:
        return check(answer, expected, tolerance, problem.lengths()).passed

    about = {"options": dict(options), "shape": to_json(s), "tf32": settings.tf32, **versions}
    return chosen(TuningCache(about, "lstm-bench"), candidate, refusals, agree)


def chosen(
    choice: TuningCache,
    candidate: Callable[[str, bool], BaselineSession],
    refusals: tuple[type[BaseException], ...],
    agree: Callable[[Answer, Answer], bool],
) -> BaselineSession:
    """The fastest, as a trial has shown for this shape before, or does now."""
    if before := choice.read():
        with contextlib.suppress(*refusals):
            session = candidate(before["algorithm"], before["graph"])
            session.path += f" (fastest of {before['tried']})"
            try:
                session.time_each(1)
            except refusals:
                session.close()
                raise
            return session
    session, how = fastest(candidate, refusals, agree)
    choice.write(how)
    return session


def fastest(
    candidate: Callable[[str, bool], BaselineSession],
    refusals: tuple[type[BaseException], ...],
    agree: Callable[[Answer, Answer], bool],
) -> tuple[BaselineSession, dict[str, Any]]:
    """The quickest of all algorithms, in a graph or not, that give what STANDARD gives.

    And what to build it from. At most two are alive at a time: workspaces of the persistent
    algorithms reach gigabytes.
    """
    best: BaselineSession | None = None
    best_s, how, tried, peak = math.inf, {"algorithm": "", "graph": False}, 0, 0
    expected: Answer | None = None
    for algorithm in ALGORITHMS:
        try:
            other = candidate(algorithm, False)
        except refusals:
            if best is None:  # STANDARD is the first, and the measure of all others
                raise
            continue
        peak = max(peak, other.peak + (best.peak if best else 0))
        for graph in (False, True):
            try:
                other.lstm.replay(graph)
                other_s = trial(other, give_up_s=HOPELESS * best_s)
                expected = expected or other.outputs()
                agreed = other_s >= best_s or agree(other.outputs(), expected)
            except refusals:
                if expected is None:
                    raise
                break
            tried += agreed
            if agreed and other_s < best_s:
                if best and best is not other:
                    best.close()
                best, best_s, how = other, other_s, {"algorithm": algorithm, "graph": graph}
        if best is not other:
            other.close()
        elif best:
            best.lstm.replay(how["graph"])
    assert best is not None
    best.peak = peak
    best.path += f"{', graph' if how['graph'] else ''} (fastest of {tried})"
    return best, {**how, "tried": tried}
