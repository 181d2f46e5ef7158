"""The child process: a request line in, a reply line out, until the driver closes its end.

The driver starts it with the interpreter that holds the framework and with its own copy of this
package. Requests and replies have pipes of their own: frameworks print to stdout.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_bench import features
from lstm_bench.model.types import (
    CARRIED_CALLS,
    TOLERANCES,
    Check,
    Implementation,
    Sampling,
    Settings,
    Shape,
    Unsupported,
    dumps,
    from_json,
    to_json,
)
from lstm_bench.model.units import gist
from lstm_bench.worker import memory_peak, reference_cache, timing
from lstm_bench.worker import problem as problems
from lstm_bench.worker.session import Session

_PR_SET_PDEATHSIG = 1


@dataclass
class Held:
    """A session and what the worker must remember to check and time it."""

    session: Session
    clock: timing.Clock
    implementation: Implementation
    tolerance: float
    call_s: float


class Worker:
    """Holds the prepared sessions of one framework; every public method answers one request."""

    def __init__(self, module: str, settings: Settings):
        self.settings = settings
        started = time.perf_counter()
        self.module = importlib.import_module(f"lstm_bench.frameworks.{module}.session")
        self.framework: dict[str, Any] = {}
        self.refusal: Exception | None = None  # why the framework cannot run here
        try:
            self.framework = self.module.describe(settings)
        except Exception as error:
            self.refusal = error
        self.framework["import_s"] = time.perf_counter() - started
        self.framework["import_bytes"] = memory_peak.resident()
        self.prepared: dict[str, Held] = {}
        self._problem: problems.Problem | None = None
        self._references: dict[str, problems.Answer] = {}

    def answer(self, verb: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a request; features are loaded for verbs of theirs alone.

        Behind the door `request` a feature has functions of the worker and of the request's fields,
        by verb.
        """
        if not hasattr(self, verb):
            for requests in features.behind("request"):
                if verb in requests:
                    reply: Mapping[str, Any] = requests[verb](self, **request)
                    return reply
        reply = getattr(self, verb)(**request)
        return reply

    def wake(self) -> None:
        """Have the framework open the GPU, which takes seconds, while others do the same."""
        wake = getattr(self.module, "wake", None)
        if wake and self.settings.device == "cuda" and not self.refusal:
            with contextlib.suppress(Exception):  # the first cell will meet it, and says so
                wake()

    def hello(self) -> dict[str, Any]:
        """Describe the framework."""
        if self.refusal:
            raise self.refusal
        gc.collect()
        gc.freeze()  # the framework itself is no garbage, whenever a new shape has it collected
        return {"python": sys.version.split()[0], **self.framework}

    def pose(self, shape: dict[str, Any], computes: str, references: int) -> dict[str, Any]:
        """Make the problem of a shape and its reference, which can take longer than any call.

        What another worker has computed is read from the file `references`, or else written there.
        """
        problem = self._problem_of(from_json(Shape, shape))
        if self.settings.state == "carried":
            problem = problems.repeated(problem, CARRIED_CALLS)
        if computes not in self._references:
            answer = reference_cache.get(references, problem.shape)
            if answer is None:
                answer = problems.reference(problem, computes)
                reference_cache.put(references, answer)
            self._references[computes] = answer
        return {}

    def prepare(
        self, key: str, implementation: dict[str, Any], shape: dict[str, Any], sampling: Any
    ) -> dict[str, Any]:
        """Build, call once, check the answer, warm up."""
        row = from_json(Implementation, implementation)
        known: frozenset[str] = getattr(self.module, "OPTIONS", frozenset())
        if unread := sorted({*row.options} - known):  # it would run as another, under a false name
            raise Unsupported(
                f"found options {', '.join(unread)}; {row.module}/session.py reads"
                f" {', '.join(sorted(known)) or 'none'}"
            )
        problem = self._problem_of(from_json(Shape, shape))
        if problem.shape.training and not getattr(self.module, "TRAINS", False):
            raise Unsupported(f"{row.framework} has no backward pass here: it runs inference only")
        peak = memory_peak.Peak(self.module, self.settings.device, problem)
        started = time.perf_counter()
        session: Session = self.module.build(problem, row, self.settings)
        build_s = time.perf_counter() - started
        try:
            if self.settings.state == "carried" and not session.carries:
                raise Unsupported("it cannot start a call from the states that the last one left")
            if self.settings.inputs not in session.inputs_from:
                raise Unsupported(
                    f"it has no way for x and y in {self.settings.inputs} host memory; expected"
                    f" inputs: {' or '.join(session.inputs_from)}"
                )
            clock: timing.Clock = getattr(session, "clock", None) or timing.ProcessClock()
            (first_call_ns,) = session.time_each(1, clock)
            session.memory = {**session.memory, **peak.measured(session)}
            precision = session.precision or row.precision_on(self.settings)
            held = Held(session, clock, row, TOLERANCES[precision], 0.0)
            check = self._check(held)
            reply = {
                "build_s": build_s,
                "first_call_s": first_call_ns / 1e9,
                "check": to_json(check),
                "path": session.path,
                "precision": precision,
                "memory": session.memory,
            }
            if not check.passed:
                session.close()
                return reply
            warm = timing.warm_up(session, from_json(Sampling, sampling), clock)
        except BaseException:
            session.close()  # what it holds on the device must not stay with a failed cell
            raise
        held.call_s = warm.call_s
        self.prepared[key] = held
        return {**reply, "warm_up": to_json(warm)}

    def measure(self, key: str, round_number: int, sampling: Any, call_s: float) -> dict[str, Any]:
        """Time one block of one prepared session; `call_s` is what its length is reckoned by."""
        held = self.prepared[key]
        try:
            with timing.no_collection():
                block = timing.block(
                    held.session,
                    from_json(Sampling, sampling),
                    held.clock,
                    round_number,
                    call_s,
                    asynchronous=self.settings.device != "cpu",
                )
        except BaseException:
            self.prepared.pop(key).session.close()
            raise
        return {"block": to_json(block)}

    def check(self, key: str) -> dict[str, Any]:
        """Hold the last call's answer against the reference."""
        return {"check": to_json(self._check(self.prepared[key]))}

    def release(self, key: str) -> dict[str, Any]:
        """Let a session go, if it is still there."""
        if held := self.prepared.pop(key, None):
            held.session.close()
        return {}

    def _check(self, held: Held) -> Check:
        expected = self._references[held.implementation.computes]
        carried = self.settings.state == "carried"
        answer = _followed(held.session) if carried else held.session.outputs()
        assert self._problem
        lengths = self._problem.lengths(held.implementation.computes)
        return problems.check(answer, expected, held.tolerance, lengths)

    def _problem_of(self, shape: Shape) -> problems.Problem:
        """The problem at hand; a new shape drops the old one with all that hangs on it."""
        if self._problem is None or self._problem.shape != shape:
            for left in self.prepared.values():
                left.session.close()
            self.prepared.clear()
            self._references.clear()
            self._problem = None
            gc.collect()  # framework objects come in cycles and hold device memory
            self._problem = problems.make(shape, self.settings.seed)
        return self._problem


def _followed(session: Session) -> problems.Answer:
    """The answer over several calls, each from the states that the last one left."""
    session.restart()
    outputs = []
    for _ in range(CARRIED_CALLS):
        session.call()
        session.wait()
        output, h, c = session.outputs()
        outputs.append(output.copy())
    return np.concatenate(outputs), h, c


def failure(error: BaseException) -> dict[str, Any]:
    """An exception as the status of its cell: out of memory, unsupported, or a crash."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = f"{type(error).__name__}: {gist(error)}"
    if isinstance(error, Unsupported):
        return {"status": "unsupported", "reason": str(error)}
    out = names & {"MemoryError", "OutOfMemoryError", "ResourceExhaustedError", "OutOfMemory"}
    if out or "DefaultCPUAllocator" in text or "RESOURCE_EXHAUSTED" in text:  # PyTorch's, JAX's
        return {"status": "oom", "reason": text}
    if isinstance(error, (ImportError, NotImplementedError)):
        return {"status": "unsupported", "reason": text}
    return {"status": "crashed", "reason": text}


def serve(worker: Worker, requests: Any, replies: Any) -> None:
    """Answer until the driver closes its end."""
    for line in requests:
        request = json.loads(line)
        number, verb = request.pop("id"), request.pop("do")
        try:
            reply: Mapping[str, Any] = {"id": number, **worker.answer(verb, request)}
        except Exception as error:  # whatever a framework throws costs one cell, not the worker
            reply = {"id": number, **failure(error)}
            del error
        replies.write(dumps(reply) + "\n")
        replies.flush()


def main() -> None:
    """Serve as `worker_pool` starts it: `module settings-json requests replies`."""
    module, settings, incoming, outgoing = sys.argv[-4:]
    if sys.platform == "linux":  # a worker must not outlive its driver, however that ends
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.enable()  # a library that crashes leaves in the log where it was called
    worker = Worker(module, from_json(Settings, json.loads(settings)))
    worker.wake()
    with open(int(incoming)) as requests, open(int(outgoing), "w") as replies:
        serve(worker, requests, replies)


if __name__ == "__main__":
    main()
