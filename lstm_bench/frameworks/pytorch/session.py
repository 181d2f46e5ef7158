"""PyTorch: `torch.nn.LSTM`, plain or in one of the ways that PyTorch offers, called or trained."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import torch

from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.frameworks.pytorch import variants
from lstm_bench.frameworks.pytorch.base import HALF, TorchSession, placed
from lstm_bench.model.types import Implementation, Settings, Shape, Unsupported
from lstm_bench.worker import amp, loaded_libraries
from lstm_bench.worker.problem import PADDED, Problem
from lstm_bench.worker.problem import make as make_problem
from lstm_bench.worker.session import Session

TRAINS = True
OPTIONS = frozenset({"apex", "cap_s", "way"})  # what `build` reads of row.options
#: The values of a row's `way`; without one the layer is called as it is.
WAYS: dict[str, type[TorchSession]] = {
    way.__name__.lower(): way
    for way in (
        variants.Compile,
        variants.Graph,
        variants.Int8,
        variants.Native,
        variants.Script,
        variants.Trace,
    )
}


def describe(settings: Settings) -> dict[str, Any]:
    """Obey the run's settings, and say what this PyTorch is."""
    torch.set_num_threads(settings.threads)
    versions = {"torch": torch.__version__}
    if settings.device == "cuda":
        if not torch.cuda.is_available():
            raise Unsupported(f"torch {torch.__version__} sees no CUDA device (is it a CPU build?)")
        versions["cuda"] = str(torch.version.cuda)
        versions["cudnn"] = loaded_libraries.dotted(torch.backends.cudnn.version() or 0)
    tf32 = _set_tf32(settings.tf32)
    return {"versions": versions, "threads": torch.get_num_threads(), "tf32": tf32}


def wake() -> None:
    """Open the GPU and load cuDNN, by a call of the smallest layer."""
    row = IMPLEMENTATIONS["pytorch"]
    session = build(make_problem(Shape(1, 1, 1, 1), seed=1), row, Settings(device="cuda"))
    session.call()
    session.wait()
    session.close()


def _set_tf32(wanted: bool) -> bool:
    """For cuDNN's LSTM and for products; what holds then.

    By the names that PyTorch has since 2.9, if it has them: once set, it refuses to read the old.
    """
    rnn: Any = getattr(torch.backends.cudnn, "rnn", None)
    products = torch.backends.cuda.matmul
    if hasattr(rnn, "fp32_precision"):
        rnn.fp32_precision = products.fp32_precision = "tf32" if wanted else "ieee"
        return bool(rnn.fp32_precision == "tf32")
    torch.backends.cudnn.allow_tf32 = products.allow_tf32 = wanted
    return bool(torch.backends.cudnn.allow_tf32)


def allocated() -> int:
    """Bytes in use on the GPU now; their peak is counted from here on."""
    torch.cuda.init()  # the statistics do not start it themselves
    torch.cuda.reset_peak_memory_stats()
    return int(torch.cuda.memory_allocated())


def build(
    problem: Problem,
    row: Implementation,
    settings: Settings,
    way: type[TorchSession] | None = None,
) -> Session:
    """The layer with the problem's weights, on the device, ready to be called in the row's way."""
    shape, device = problem.shape, settings.device
    way = way or (WAYS[row.options["way"]] if "way" in row.options else TorchSession)
    precision = ""
    if row.precision == "amp":
        half = amp.precision(settings, _autocast_once, shape.training)
        if half == "bf16" and device == "cuda":
            raise Unsupported("autocast runs cuDNN's LSTM in fp16 only, whatever it is asked for")
        precision = f"amp-{half}"
        row = replace(row, precision=precision)
        way = TorchSession if row.options.get("apex") else variants.Autocast
    plain = way is TorchSession
    if plain and row.precision == "bf16" and device == "cpu" and not _onednn_has_bf16():
        # PyTorch finds out in the first product, and turns oneDNN off for the whole process.
        way = variants.Native
    dtype = HALF.get(row.precision, torch.float32)
    layer = torch.nn.LSTM(
        *(shape.input_size, shape.hidden, shape.layers),
        bidirectional=shape.directions == 2,
        device=device,
    )
    with torch.no_grad():
        for parameter, value in zip(layer.parameters(), problem.arrays, strict=True):
            parameter.copy_(torch.from_numpy(value))
    layer = layer.to(dtype=dtype).train(shape.training)  # cuDNN goes back in that mode alone
    layer.flatten_parameters()
    if row.options.get("apex"):
        _cast_by_apex()

    def shared(name: str, inputs: str = "device") -> torch.Tensor:
        key = f"torch {name} {device} {dtype} {inputs}"
        return problem.shared(key, lambda: placed(getattr(problem, name), inputs, device, dtype))

    state = (shared("h0"), shared("c0"))
    lengths = problem.lengths(row.computes)
    if row.computes == PADDED and problem.lengths() is None:
        raise Unsupported("no sequence is padded: all are of one length")
    upstream = [placed(array, "device", device, dtype) for array in problem.upstream]
    x = shared("x", settings.inputs)
    session = way(layer, x, state, row, settings, lengths, upstream)
    session.precision = precision
    return session


@functools.cache
def _cast_by_apex() -> None:
    """Level O1 patches PyTorch's functions, not a layer, and would patch its own patches again."""
    from apex import amp as apex_amp

    apex_amp.initialize([], opt_level="O1", verbosity=0)


def _autocast_once(problem: Problem, half: str) -> None:
    settings = Settings(device="cpu", amp=half)
    build(problem, IMPLEMENTATIONS["pytorch-amp"], settings).call()


def _onednn_has_bf16() -> bool:
    known = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return bool(known and known())
