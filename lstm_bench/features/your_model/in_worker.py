"""Runs a model: sees every call of an LSTM in it, and times it, also with lstm_kernels."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

import lstm_kernels
from lstm_bench.features.your_model.layer import Layer
from lstm_bench.model.errors import LstmBenchError
from lstm_bench.model.shape import FULL, Shape
from lstm_bench.model.types import Sampling
from lstm_bench.worker import timing
from lstm_bench.worker.session import Session

NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
REPLAYS = 3  # of a scripted module under the profiler
PASSES = 10  # that `layers` times
CLOCK = timing.ProcessClock()

Part = tuple[Layer, float]  # a layer, and its part of a call's time


def layers(model: torch.nn.Module, *inputs: Any) -> Any:
    """Run a model, and list its LSTMs: one row per module and shape, in the order of the modules.

    `share` is the part that its calls have of the model's time, which is in `attrs`.
    """
    import pandas as pd

    with torch.no_grad():
        watched = WatchedModel(model, inputs)
        time_s = median(watched.timed() for _ in range(PASSES))
    table = pd.DataFrame([{**asdict(layer), "share": layer.share} for layer in watched.listed()])
    table.attrs["seconds"] = time_s
    return table.drop(columns="shares")


def main() -> None:
    """Answer for the model that the command line asks for."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.dup2(2, 1)  # what a model prints is no part of the answer
    asked = json.loads(sys.argv[1])
    try:
        answer = examine(**asked)
    except LstmBenchError as error:
        answer = {"error": str(error)}
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"}
    Path(sys.argv[2]).write_text(json.dumps(answer))


def examine(
    file: str, name: str, device: str, threads: int, sampling: dict[str, Any], replace: bool
) -> dict[str, Any]:
    """Build the model of a file, and time it as it is, watched, and with lstm_kernels, in turns."""
    torch.set_num_threads(threads)
    sys.path.insert(0, str(Path(file).resolve().parent))
    spec: Any = importlib.util.spec_from_file_location(Path(file).stem, file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model, inputs = getattr(module, name)()
    if not isinstance(inputs, tuple):
        raise LstmBenchError(f"found {type(inputs).__name__} in the place of its inputs")
    inputs = pytree.tree_map(lambda leaf: leaf.to(device) if hasattr(leaf, "to") else leaf, inputs)
    sampled, before, after = Sampling(**sampling), [], []
    answer: dict[str, Any] = {"torch": torch.__version__}
    with torch.no_grad():
        watched = WatchedModel(model.to(device).eval(), inputs)
        call_s = timing.warm_up(watched, sampled, CLOCK).call_s
        calls = timing.calls_per_block(call_s, sampled, kinds=3)
        if replace:
            expected, again = watched.tensors(), watched.tensors()
            lstm_kernels.replace(model)
            timing.warm_up(watched, sampled, CLOCK)
            earlier, actual = lstm_kernels.calls(), watched.tensors()
            more = {path: n - earlier.get(path, 0) for path, n in lstm_kernels.calls().items()}
            answer["paths"] = {path: n for path, n in more.items() if n}
            answer["difference"] = _furthest(expected, actual)
            answer["repeat"] = _furthest(expected, again)
        for _ in range(sampled.rounds):
            if replace:
                lstm_kernels.restore(model)
            before.append(watched.round_s(calls))
            for _ in range(calls):
                watched.timed()
            if replace:
                lstm_kernels.replace(model, quiet=True)
                after.append(watched.round_s(calls))
    listed = [asdict(layer) for layer in watched.listed()]
    return {**answer, "layers": listed, "before_s": before, "after_s": after}


def _furthest(some: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    """The largest difference between two answers."""
    pairs = [(a.double(), b.double()) for a, b in zip(some, others, strict=True) if a.numel()]
    return max((float((a - b).abs().max()) for a, b in pairs), default=0.0)


def lstms(model: Any) -> dict[str, Any]:
    """The LSTMs of a model by their paths, scripted ones too, which are of another class."""
    return {
        path or type(module).__name__: module
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.LSTM) or getattr(module, "original_name", "") == "LSTM"
    }


class WatchedModel(Session):
    """A model with its inputs, and what each call of an LSTM in it is and takes."""

    def __init__(self, model: Any, inputs: tuple[Any, ...]):
        self.model, self.inputs, self.modules = model, inputs, lstms(model)
        self.on_gpu = any(parameter.is_cuda for parameter in model.parameters())
        self._paths = {id(module): path for path, module in self.modules.items()}
        self._scripted: dict[int, dict[str, Any]] = {}  # LSTMs in the outermost scripted modules
        inside: set[int] = set()
        for module in model.modules():
            if isinstance(module, torch.jit.ScriptModule) and id(module) not in inside:
                inside |= {id(each) for each in module.modules()}
                self._scripted |= {id(module): inner} if (inner := lstms(module)) else {}
        self._watched = (self._paths.keys() - inside) | self._scripted.keys()
        self._layers: dict[Any, Layer] = {}
        self._parts: list[list[Part]] = []  # of each call in a pass
        last = {id(module): answer for _, _, module, _, _, answer in self._run()[1]}
        for _, _, module, args, kwargs, answer in self._run()[1]:
            scripted = id(module) in self._scripted
            self._parts.append(
                list(self._inside(module, args, kwargs))
                if scripted
                else [(self._called(module, answer, last.get(id(module)), *args, **kwargs), 1.0)]
            )
            last[id(module)] = answer
        if not self._layers:
            kinds = {type(module).__name__ for module in model.modules()}
            others = self.modules or [kind for kind in kinds if re.search("LSTM|GRU|RNN", kind)]
            has = f"it has {', '.join(sorted(others)) or 'none'}"
            raise LstmBenchError(f"{type(model).__name__} called no nn.LSTM ({has})")

    def call(self) -> None:
        self.answer = self.model(*self.inputs)

    def wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def round_s(self, calls: int) -> float:
        """The median of a round in seconds; the call before it is not timed."""
        return median(self.time_each(calls + 1, CLOCK)[1:]) / 1e9

    def tensors(self) -> list[torch.Tensor]:
        """The tensors that a call returns."""
        self.call()
        leaves = pytree.tree_leaves(self.answer)
        return [leaf.data for leaf in leaves if isinstance(leaf, (torch.Tensor, PackedSequence))]

    def timed(self) -> float:
        """The seconds of a forward pass; each layer keeps its share of them."""
        whole, calls = self._run()
        own = defaultdict[str, float](float)
        for parts, (begin, end, *_) in zip(self._parts, calls, strict=False):
            took = begin.elapsed_time(end) / 1e3 if self.on_gpu else end - begin
            for layer, part in parts:
                own[layer.name] += took * part
        for layer in self._layers.values():
            layer.shares.append(own[layer.name] / whole)
        return whole

    def listed(self) -> list[Layer]:
        """All layers in the order of the modules, also those that never ran."""
        rows = []
        for path, module in self.modules.items():
            own = [layer for layer in self._layers.values() if layer.path == path]
            rows += own or [Layer(path, path, type(module).__name__)]
        return rows

    def _run(self) -> tuple[float, list[Any]]:
        """The seconds of a pass; of each call when it began, ended, and all that a hook gets."""
        begun: list[Any] = []
        calls: list[Any] = []

        def begin(module: Any, _: Any) -> None:
            if id(module) in self._watched:
                begun.append(self._mark())

        def end(module: Any, *call: Any) -> None:
            if id(module) in self._watched:
                calls.append((begun.pop(), self._mark(), module, *call))

        hooks = [register_module_forward_pre_hook(begin)]  # of all modules: scripted have no own
        hooks.append(register_module_forward_hook(end, with_kwargs=True))
        try:
            return self.time_each(1, CLOCK)[0] / 1e9, calls
        finally:
            for hook in hooks:
                hook.remove()

    def _mark(self) -> Any:
        """Now, on the GPU where calls return before they are done."""
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _called(self, module: Any, answer: Any, last: Any, input: Any, hx: Any = None) -> Layer:
        """The layer of a call; `last` is the answer to the call before it."""
        state = "zero"
        if hx is not None:
            carried = last is not None and hx[0].data_ptr() == last[1][0].data_ptr()
            state = "carried" if carried else "given"
        packed = isinstance(input, PackedSequence)
        precision = _precision(module, answer[0].data)
        if not packed:
            return self._layer(module, _steps(module, input.shape), FULL, precision, state)
        sizes = input.batch_sizes.tolist()
        each = [sum(size > place for size in sizes) for place in range(sizes[0])]
        lengths = FULL if len({*each}) == 1 else "/".join(map(str, each))
        return self._layer(module, (len(sizes), sizes[0], lengths), "packed", precision, state)

    def _inside(self, module: Any, args: Any, kwargs: Any) -> Iterator[Part]:
        """The layers in a scripted module, whose calls only the profiler sees."""
        for _ in range(REPLAYS):  # torch.jit compiles in its first calls
            module(*args, **kwargs)
        with torch.profiler.profile(record_shapes=True, with_modules=True) as profile:
            for _ in range(REPLAYS):
                module(*args, **kwargs)
            self.wait()
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder, "trace.json")
            profile.export_chrome_trace(str(trace))
            events = json.loads(trace.read_text())["traceEvents"]
        on, every = "device" if self.on_gpu else "cpu", profile.events()
        total = sum(getattr(event, f"self_{on}_time_total") for event in every)
        took = [getattr(event, f"{on}_time_total") for event in every if event.name == "aten::lstm"]
        calls = sorted((e for e in events if e["name"] == "aten::lstm"), key=lambda e: e["ts"])
        zeros = {_hierarchy(event) for event in events if event["name"] == "aten::zeros"}
        each = len(calls) // REPLAYS
        for place, event in enumerate(calls[:each]):
            names = re.findall(r"(?!SELF)(\b\w+)\(\w+\)::", _hierarchy(event))[1:]
            path = r"(.*\.)?" + r"\.(.*\.)?".join(names)  # lists of modules have no name there
            inner = self._scripted[id(module)].items()
            lstm = next(lstm for name, lstm in inner if re.fullmatch(path, name) or not names)
            sizes, states, *_ = event["args"]["Input Dims"]
            packed = len(states) == 1  # the sizes of the batch stand there, which nobody sees
            steps = None if packed else _steps(lstm, sizes)
            state = "zero" if _hierarchy(event) in zeros else "given"
            precision = _precision(lstm, next(lstm.parameters()))
            layer = self._layer(lstm, steps, "packed" if packed else FULL, precision, state)
            yield layer, sum(took[place::each]) / (total or 1.0)

    def _layer(self, module: Any, steps: Any, lengths: str, precision: str, state: str) -> Layer:
        """The layer of these, with one call more."""
        path, shape = self._paths[id(module)], ""
        if steps and not module.proj_size:  # else no row takes it
            timesteps, batch, *each = steps
            stack = module.num_layers, 1 + module.bidirectional, *each
            shape = Shape(module.hidden_size, batch, timesteps, module.input_size, *stack).label
        key = path, shape, lengths, precision
        if key not in self._layers:
            number = 1 + sum(layer.path == path for layer in self._layers.values())
            name = f"{path}#{number}" if number > 1 else path
            kind = type(module).__name__
            self._layers[key] = Layer(name, path, kind, shape, lengths, precision, state)
        layer = self._layers[key]
        layer.calls += 1
        if state not in layer.state.split(", "):
            layer.state += f", {state}"
        return layer


def _steps(module: Any, sizes: Any) -> tuple[int, int]:
    """Timesteps and batch of an input."""
    if len(sizes) == 2:
        return sizes[0], 1
    return (sizes[1], sizes[0]) if module.batch_first else (sizes[0], sizes[1])


def _hierarchy(event: Any) -> str:
    return str(event["args"].get("Module Hierarchy", ""))


def _precision(module: Any, answer: torch.Tensor) -> str:
    """The precision of a call: of its weights, or of autocast."""
    dtype = next(module.parameters()).dtype
    name, half = (NAMES.get(each, str(each)) for each in (dtype, answer.dtype))
    rnn: Any = getattr(torch.backends.cudnn, "rnn", None)
    known = hasattr(rnn, "fp32_precision")  # since PyTorch 2.9
    tf32 = rnn.fp32_precision == "tf32" if known else torch.backends.cudnn.allow_tf32
    if name != half:
        return f"amp-{half}"
    return "tf32" if name == "fp32" and answer.is_cuda and tf32 else name
