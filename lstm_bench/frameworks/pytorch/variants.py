"""The ways to run `nn.LSTM` that PyTorch has besides the plain call, one class each."""

from __future__ import annotations

import contextlib
import platform
import signal
import types
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch

from lstm_bench.frameworks.pytorch.base import (
    HALF,
    Forward,
    State,
    TorchSession,
    library,
    quiet,
    refusing,
)
from lstm_bench.model.types import Unsupported
from lstm_bench.worker.problem import Answer


class Autocast(TorchSession):
    """Under `torch.autocast`, entered in every call."""

    def wrapped(self, layer: torch.nn.Module) -> Forward:
        device, half = self.device, HALF[self.row.precision.removeprefix("amp-")]

        def forward(x: torch.Tensor, state: State) -> Any:
            with torch.autocast(device, dtype=half):
                return layer(x, state)

        return refusing(forward, f"autocast to {half}") if device == "cpu" else forward


class Graph(TorchSession):
    """Captured once as a CUDA graph, and replayed.

    Carried states stay where the graph reads them: its last kernel copies them there. Copies from
    pinned memory are in the graph; those from pageable memory, which it cannot have, around it.
    """

    WARM = 3  # calls before the capture: libraries choose and allocate in the first ones

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        if self.lengths:
            raise Unsupported("packing reads lengths in host memory, which no CUDA graph can")
        if self.carried:
            self.state = (self.initial[0].clone(), self.initial[1].clone())
        pageable = self.x.is_cpu and not self.x.is_pinned()
        run, x = (self.forward, self.x.to(self.device)) if pageable else (self.run, self.x)
        aside, here = torch.cuda.Stream(), torch.cuda.current_stream()
        aside.wait_stream(here)
        with self.mode(), torch.cuda.stream(aside):
            for _ in range(self.WARM):
                self._work(run, x)
        here.wait_stream(aside)
        self.result, self.gradients = None, ()  # type: ignore[assignment]
        self.graph, self.two_passes = torch.cuda.CUDAGraph(), False
        with self.mode(), torch.cuda.graph(self.graph):
            self._work(run, x)
            if self.carried:
                torch._foreach_copy_(list(self.state), list(self.result[1]))
        self.call = self.graph.replay  # type: ignore[method-assign]
        if pageable:
            self._copy_around(x)

    def _work(self, run: Forward, x: torch.Tensor) -> None:
        self.result = run(x, self.state)
        if self.upstream:
            self.backward_pass()

    def _copy_around(self, x: torch.Tensor) -> None:
        """Copy to the x that the graph reads before each replay, and y to the host behind it."""
        replay, (output, states) = self.graph.replay, self.result
        y = torch.empty(output.shape, dtype=output.dtype).fill_(torch.nan)
        self.result = y, states

        def call() -> None:
            x.copy_(self.x, non_blocking=True)
            replay()
            y.copy_(output, non_blocking=True)

        x.zero_()  # as NaN in y: what is not copied must not pass a check
        self.call = call  # type: ignore[method-assign]

    def restart(self) -> None:
        torch._foreach_copy_(list(self.state), list(self.initial))

    def close(self) -> None:
        self.call = self.graph = None  # type: ignore[assignment, method-assign]
        super().close()

    @property
    def path(self) -> str:  # type: ignore[override]
        return f"{super().path}, graph"


class Native(TorchSession):
    """PyTorch's own loop over the steps, without oneDNN.

    The switch is the process's, and other sessions keep oneDNN: it is off while this one is called.
    A loop of calls turns it once.
    """

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.bare, self.alone = self.call, self._without_onednn()(self.call)
        self.call = self.alone  # type: ignore[method-assign]
        for name in ("time_each", "time_queued", "time_passes", "operators"):
            setattr(self, name, self._without_onednn()(getattr(self, name)))

    @contextlib.contextmanager
    def _without_onednn(self) -> Iterator[None]:
        before = torch.backends.mkldnn.enabled
        torch.backends.mkldnn.enabled = False
        self.call = self.bare  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.call = self.alone  # type: ignore[method-assign]
            torch.backends.mkldnn.enabled = before

    @property
    def path(self) -> str:  # type: ignore[override]
        with self._without_onednn():
            return super().path


class Script(TorchSession):
    """Compiled by `torch.jit.script`."""

    def wrapped(self, layer: torch.nn.Module) -> Forward:
        with quiet():
            scripted: Forward = torch.jit.script(_Scriptable(layer).train(bool(self.upstream)))
        return scripted


class Trace(TorchSession):
    """Recorded by `torch.jit.trace`; the worker checks the answer, so the trace need not."""

    def wrapped(self, layer: torch.nn.Module) -> Forward:
        with quiet(), self.mode():
            given = (self.x.to(self.device), self.state)
            traced: Forward = torch.jit.trace(layer, given, check_trace=False)
        return traced


class _Scriptable(torch.nn.Module):
    """`nn.LSTM` has two forwards, and by itself gets none when it is scripted."""

    def __init__(self, layer: torch.nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> Any:
        return self.layer(x, state)


class Int8(TorchSession):
    """Weights quantised beforehand, inputs and states in every step."""

    def wrapped(self, layer: torch.nn.Module) -> Forward:
        if self.upstream:
            raise Unsupported("weights of 8 bits have no gradient: it runs inference only")
        arm = platform.machine().lower() in ("aarch64", "arm64")
        engines = ["qnnpack"] if arm else ["x86", "fbgemm"]  # PyTorch's own choice on ARM can fail
        known = [e for e in engines if e in torch.backends.quantized.supported_engines]
        if not known:
            raise Unsupported(f"this PyTorch was built without {' and '.join(engines)}, for int8")
        torch.backends.quantized.engine = known[0]
        with quiet():
            whole = torch.nn.Sequential(layer)  # it looks at the layers inside
            made = torch.ao.quantization.quantize_dynamic(whole, {torch.nn.LSTM}, torch.qint8)
        quantised: Forward = made[0]
        self.layer = getattr(quantised, "layer", quantised)
        return quantised

    def weights(self) -> Iterable[torch.Tensor]:
        return (*self.layer.get_weight().values(), *self.layer.get_bias().values())


class Compile(TorchSession):
    """Compiled when it is built; on a GPU with CUDA graphs, as `reduce-overhead` has them.

    On a GPU all timesteps are unrolled, so that long sequences take minutes. What took longer than
    `cap_s` is not tried again in this process, nor is a longer sequence.
    """

    CALLS = 3  # they compile, record the graph and replay it
    given_up: ClassVar[dict[float, int]] = {}  # the fewest timesteps, by cap
    alive: ClassVar[set[int]] = set()

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        if self.lengths:
            raise Unsupported("torch.compile takes no packed sequence in a full graph")
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
