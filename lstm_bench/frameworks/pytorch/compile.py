"""`torch.compile` of the layer, in a limited time."""

from __future__ import annotations

import contextlib
import signal
import types
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from lstm_bench.frameworks.pytorch.base import Forward, State, TorchSession, library, quiet
from lstm_bench.model.types import Unsupported
from lstm_bench.worker.problem import Answer


class Compile(TorchSession):
    """Compiled when it is built; on a GPU with CUDA graphs, as `reduce-overhead` has them.

    On a GPU all timesteps are unrolled, so that long sequences take minutes. What took longer than
    `cap_s` is not tried again in this process, nor is a longer sequence.
    """

    CALLS = 3  # that compile, record the graph, replay it
    given_up: ClassVar[dict[float, int]] = {}  # the fewest timesteps, by cap
    alive: ClassVar[set[int]] = set()

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        if self.carried:  # as what the layer returns, or it would be compiled for both
            with torch.inference_mode():
                self.state = self.initial = (self.initial[0].clone(), self.initial[1].clone())
        self.alive.add(id(self))
        try:
            self._compile(float(self.row.options["cap_s"]), len(self.x))
        except BaseException:
            self.close()
            raise

    def wrapped(self, layer: torch.nn.Module) -> Forward:
        def forward(x: torch.Tensor, state: State) -> Any:
            output, (h, c) = layer(x, state)
            # Unrolled by PyTorch 2.11, the states of a batch have one dimension too many.
            return output, (h.reshape(state[0].shape), c.reshape(state[1].shape))

        # Dynamo keeps what it compiled with the code object, and stops after eight.
        code = forward.__code__.replace(co_name=f"forward_{id(self)}")
        own = types.FunctionType(code, globals(), closure=forward.__closure__)
        mode = "reduce-overhead" if self.device == "cuda" else None
        try:
            compiled: Forward = torch.compile(own, mode=mode, dynamic=False, fullgraph=True)
        except RuntimeError as error:  # for this Python there is none
            raise Unsupported(f"torch.compile: {_first_line(error)}") from None
        return compiled

    def _compile(self, cap_s: float, timesteps: int) -> None:
        if timesteps >= self.given_up.get(cap_s, timesteps + 1):
            raise Unsupported(
                f"torch.compile took more than {cap_s:g} s for {self.given_up[cap_s]} timesteps;"
                f" {timesteps} are not tried"
            )
        import torch._inductor.compile_fx  # now: an import must not be interrupted
        import torch._inductor.config as inductor
        from torch._dynamo.exc import TorchDynamoException
        from torch._dynamo.utils import counters
        from torch._inductor.async_compile import shutdown_compile_workers

        if not hasattr(torch._dynamo.config, "allow_rnn"):
            raise Unsupported(f"torch {torch.__version__} compiles no LSTM; newer ones do")
        operators: list[str] = []

        def see(graph: torch.fx.Graph) -> None:
            operators.extend(str(node.target) for node in graph.nodes)

        skips = counters["inductor"]["cudagraph_skips"]
        try:
            with (
                quiet(),
                torch._dynamo.config.patch(allow_rnn=True),
                inductor.patch(force_disable_caches=True, post_grad_custom_post_pass=see),
                _at_most(cap_s),
            ):
                for _ in range(self.CALLS):
                    self.call()
                self.wait()
        except TooLong:
            self.given_up[cap_s] = timesteps
            raise Unsupported(
                f"torch.compile took more than {cap_s:g} s for {timesteps} timesteps"
            ) from None
        except TorchDynamoException as error:
            raise Unsupported(f"torch.compile: {_first_line(error)}") from None
        finally:
            shutdown_compile_workers()
        if not operators:
            raise Unsupported("torch.compile compiled nothing and ran the layer as it is")
        replayed = self.device == "cuda" and counters["inductor"]["cudagraph_skips"] == skips
        self.ran = f"{library(operators)}, compiled{', graph' if replayed else ''}"
        self.restart()

    def _carry(self) -> None:
        super()._carry()
        if self.device == "cuda":  # the next replay overwrites them
            self.state = (self.state[0].clone(), self.state[1].clone())

    def outputs(self) -> Answer:
        try:
            return super().outputs()
        except RuntimeError as error:  # another compiled layer was called, in the same memory
            if "overwritten by a subsequent run" not in str(error):
                raise
            self.call()
            return super().outputs()

    def close(self) -> None:
        super().close()
        self.alive.discard(id(self))
        if not self.alive:
            torch._dynamo.reset()

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.ran


class TooLong(BaseException):
    """Time is up; not an `Exception`, of which compilers catch many."""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Interrupt what runs inside after so long, and again each second if that was swallowed."""
    struck = False

    def strike(*_: Any) -> None:
        nonlocal struck
        struck = True
        raise TooLong

    before = signal.signal(signal.SIGALRM, strike)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if struck:  # whatever has become of it on its way
                raise TooLong
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # it may have struck just before
        signal.signal(signal.SIGALRM, before)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
