"""Kernel names to families that a person knows.

The rules were written from what PyTorch, TensorFlow and cuDNN launch; a name that none of them knows is
`other`. They are applied when a run is read, not when it is made: a better rule serves old runs too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lstm_bench.profile import Part

#: In the order of tables and bars.
FAMILIES = (
    "persistent",
    "recurrent GEMM",
    "input GEMM",
    "cell",
    "cast",
    "repack",
    "copy",
    "fill",
    "other",
)

_PRODUCT = re.compile(r"gemm|gemv|xmma|nvjet|cutlass|cublas|splitk", re.IGNORECASE)
#: The first rule whose pattern is in the name decides.
_RULES = (
    ("persistent", re.compile(r"RNN_persist|RNN_blockPersist|lstm_tile")),
    ("product", _PRODUCT),
    ("cell", re.compile(r"elemWiseRNNcell|LSTM_elementWise|persistRNN_addBias")),
    ("cast", re.compile(r"float16_copy|bfloat16_copy|Cast_GPU|TensorConversionOp|ConvertOp|cast", re.I)),
    ("repack", re.compile(r"transpose|SwapDimension|ShuffleInTensor|split|concat|CatArray|slice|pack", re.I)),
    ("fill", re.compile(r"FillFunctor|persistRNN_init|memset|fill|zeros", re.I)),
    ("cell", re.compile(r"sigmoid|tanh|Mul_GPU|Add(V2)?_GPU|Bias|elementwise", re.I)),
    ("copy", re.compile(r"copy|memcpy", re.I)),
)  # fmt: skip


def families(parts: Sequence[Part], timesteps: int) -> list[str]:
    """The family of each part of a call.

    A product that runs at least once a timestep is recurrent; one that runs less often multiplies
    the inputs of all steps at once.
    """
    found = [_family(part) for part in parts]
    for place, (part, family) in enumerate(zip(parts, found, strict=True)):
        if family == "product":
            found[place] = "recurrent GEMM" if part.count >= timesteps else "input GEMM"
    return found


def _family(part: Part) -> str:
    if part.kind in ("copy", "fill"):
        return part.kind
    return next((family for family, rule in _RULES if rule.search(part.raw or part.name)), "other")
