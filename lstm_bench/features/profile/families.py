"""Names of kernels, operators and phases to families that a person knows.

The rules were written from what PyTorch, TensorFlow, cuDNN and cuBLAS launch; a name that none of
them knows is `other`. They are applied when a run is read, not when it is made: a better rule
serves old runs too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lstm_bench.model.profile import Part

#: In the order of tables and bars.
FAMILIES = (
    "whole layer",
    "persistent",
    "recurrent GEMM",
    "input GEMM",
    "GEMM",
    "cell",
    "cast",
    "repack",
    "copy",
    "fill",
    "other",
)

#: These hold the recurrent product: any other product is that of the inputs.
_RECURRENCE = ("whole layer", "persistent")

_Rules = tuple[tuple[str, re.Pattern[str]], ...]

#: The first rule whose pattern is in the name decides. Names may be mangled: no word has an edge.
_KERNELS: _Rules = (
    ("persistent", re.compile(r"RNN_persist|RNN_blockPersist|lstm_tile|lstm_recurrence")),
    ("fill", re.compile(r"scal_kernel")),  # cuBLAS sets the output to zero before it adds to it
    ("product", re.compile(r"gemm|gemv|xmma|nvjet|cutlass|cublas|splitk", re.I)),
    ("cell", re.compile(r"elemWiseRNNcell|LSTM_elementWise|persistRNN_addBias|lstm_(cell|gates)")),
    ("cast", re.compile(r"float16_copy|Conver(sion|t)Op|(?<!broad)(?<!without)cast", re.I)),
    ("repack", re.compile(r"transpose|SwapDimension|ShuffleInTensor|Shuffling|split|concat", re.I)),
    ("repack", re.compile(r"CatArray|slic(e|ing)|pack(?!et|ed)|reverse|stack|Rearrangement", re.I)),
    ("fill", re.compile(r"fill|persistRNN_init|memset|zeros|scalar_const", re.I)),
    ("copy", re.compile(r"copy|memcpy", re.I)),
    ("cell", re.compile(r"sigmoid|logistic|tanh|(Mul|Add(V2)?|Sub)_GPU|bias|elementwise", re.I)),
    ("cell", re.compile(r"scalar_(sum|product|difference)_op")),
)

#: For operators: the last word of the name, in small letters and without underscores around it.
_OPERATORS: _Rules = (
    ("whole layer", re.compile(r"mkldnn_rnn|cudnn_?rnn|blocklstm|quantized_lstm")),
    ("whole layer", re.compile(r"lstmsequence|onnx .*lstm")),
    ("product", re.compile(r"matmul|gemm|linear|^(addmm|mm|bmm|baddbmm|mv|addmv|einsum)$")),
    ("cast", re.compile(r"^(to|to_copy|cast)$")),
    ("copy", re.compile(r"^tensor(list|array)(?!.*stack)|copy|clone|contiguous")),
    ("repack", re.compile(r"transpose|permute|split|chunk|concat|^cat$|stack|slice|select|narrow")),
    ("repack", re.compile(r"^(un)?pack$|^t$|unbind|reshape|view|expand|squeeze|strided|reverse")),
    ("fill", re.compile(r"zero|fill|^(ones|full)")),
    ("cell", re.compile(r"sigmoid|tanh|^(mul|sub|add(v2|cmul|n)?|biasadd)$|lstm_cell")),
)

#: The baseline on a CPU tells its own phases.
_PHASES = {"input product": "input GEMM", "recurrent product": "recurrent GEMM", "cell": "cell"}


def families(parts: Sequence[Part], timesteps: int) -> list[str]:
    """The family of each part of a call.

    Products are told apart by how often they run: those of the recurrence once a timestep (one
    step may be run otherwise), that of the inputs seldom, for all steps at once. A product that
    runs more often holds both under one name, unless the inputs have one of their own; so do
    operators that together run more often. With a single timestep both run once and nothing
    tells them apart: both are `GEMM`. Where one kernel holds the whole recurrence, every product
    is that of the inputs.
    """
    named = [_family(part) for part in parts]
    products = [part for part, family in zip(parts, named, strict=True) if family == "product"]
    inside = any(family in _RECURRENCE for family in named)
    apart = any(part.count <= timesteps / 2 for part in products)
    operators = sum(part.count for part in products if part.kind == "operator")
    mixed = not apart and operators > timesteps  # one product may take several kernels
    for place, part in enumerate(parts):
        if named[place] == "product":
            named[place] = _product(part.count, timesteps, inside, apart, mixed)
    return named


def _product(count: float, timesteps: int, inside: bool, apart: bool, mixed: bool) -> str:
    """`inside`: a persistent kernel is there; `apart`: the inputs have a product of their own.

    `mixed`: they do not, and there are more products than steps.
    """
    if inside:
        return "input GEMM"
    if timesteps == 1 or mixed:
        return "GEMM"
    if count <= timesteps / 2:
        return "input GEMM"
    if count <= timesteps or (apart and count % timesteps == 0):
        return "recurrent GEMM"
    return "GEMM"


def _family(part: Part) -> str:
    if part.kind in ("copy", "fill"):
        return part.kind
    if part.kind == "phase":
        return _PHASES.get(part.name, "other")
    rules, name = _KERNELS, part.raw or part.name
    if part.kind == "operator":
        plain = part.name.removesuffix(" (oneDNN)")
        rules, name = _OPERATORS, re.split(r"[:/]", plain)[-1].strip("_").lower()
    return next((family for family, rule in rules if rule.search(name)), "other")
