"""A layer that is ready to be called: implementations hand it to the worker."""

from __future__ import annotations

from lstm_bench.model.profile import Activity, CallDepth, Profile, Window
from lstm_bench.worker.problem import Answer
from lstm_bench.worker.timing import Clock


class Session:
    """One prepared LSTM layer. Subclasses fill `path` and `memory` and the four methods below.

    At a shape of training a call is a whole step, where the module says `TRAINS = True`.

    The two timing methods are loops around them; an implementation that can time itself closer
    to the metal overrides those too. `operators` and `activities` are for implementations whose
    framework has a profiler; neither is called while a cell is timed.
    """

    path: str = ""  # what really ran: "cuDNN", "generic", an algorithm
    precision: str = ""  # where the session chose it itself, as AMP on a CPU does
    memory: dict[str, int]  # bytes, by name
    profiler: str = ""  # the name of the framework's own, if it has one
    carries: bool = False  # whether it obeys `state: carried`; see `restart`
    two_passes: bool = False  # whether a training step can be halted between its passes
    inputs_from: tuple[str, ...] = ("device",)  # those of INPUTS that it obeys

    def call(self) -> None:
        """One forward pass; may return before it is done."""
        raise NotImplementedError

    def forward_pass(self) -> None:
        """The first half of a training step; with `two_passes` it is timed apart from the other."""
        raise NotImplementedError

    def backward_pass(self) -> None:
        """The second half, behind a forward pass."""
        raise NotImplementedError

    def wait(self) -> None:
        """Return when all calls are done; where calls are synchronous there is nothing to do."""

    def outputs(self) -> Answer:
        """The last call's answer, as float arrays: see `problem.Answer`."""
        raise NotImplementedError

    def restart(self) -> None:
        """With carried state: the next call starts from the problem's h0 and c0 again.

        Built with `settings.state == "carried"`, each call starts from the states that the call
        before has left.
        """
        raise NotImplementedError

    def device_peak(self) -> int | None:
        """The most bytes that were in use on the GPU since the module's `allocated` was asked."""
        return None

    def close(self) -> None:
        """Give back what the session holds."""

    def time_each(self, calls: int, clock: Clock) -> list[int]:
        """Nanoseconds that a caller waits for each of `calls` calls."""
        call, wait, now = self.call, self.wait, clock.now_ns
        samples = []
        for _ in range(calls):
            wait()
            start = now()
            call()
            wait()
            samples.append(now() - start)
        return samples

    def time_passes(self, calls: int, clock: Clock) -> list[tuple[int, int]]:
        """Nanoseconds of the forward and of the backward pass of each of `calls` training steps."""
        wait, now = self.wait, clock.now_ns
        samples = []
        for _ in range(calls):
            wait()
            start = now()
            self.forward_pass()
            wait()
            between = now()
            self.backward_pass()
            wait()
            samples.append((between - start, now() - between))
        return samples

    def time_queued(self, calls: int, clock: Clock) -> int:
        """Nanoseconds for `calls` calls that are queued back to back and waited for once."""
        call, wait, now = self.call, self.wait, clock.now_ns
        wait()
        start = now()
        for _ in range(calls):
            call()
        wait()
        return now() - start

    def operators(self, calls: int) -> Profile | None:
        """Profile the time of `calls` calls in each operator, by the framework's own profiler.

        Operators are the host's, also where they only launch kernels; a layer without operators
        gives the phases of its call. None: there is no such profiler.
        """
        return None

    def activities(self, calls: int) -> tuple[list[Activity], list[Window]] | None:
        """Record what `calls` calls do on the GPU, by the framework's own profiler and when.

        For machines where CUPTI cannot be asked itself. None: no GPU, or no such profiler.
        """
        return None

    def depth(self) -> CallDepth | None:
        """The functions between the caller's call and the library's; None if unknown."""
        return None
