"""A layer of any framework, built in this process, and what is asked of all of them."""

import ast
import contextlib
import functools
import importlib
import importlib.util
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lstm_bench import frameworks
from lstm_bench.frameworks import FRAMEWORKS
from lstm_bench.model.fake_script import SCRIPT
from lstm_bench.model.types import TOLERANCES, Settings, Shape, Unsupported
from lstm_bench.worker import problem as problems
from lstm_bench.worker.worker import _followed

SETTINGS = Settings(device="cpu", threads=2)
SHAPES = [
    Shape(hidden=37, batch=5, timesteps=9, input_size=11),
    Shape(hidden=131, batch=1, timesteps=1, input_size=64),
    Shape(hidden=1, batch=1, timesteps=9, input_size=1),
]
#: Odd stacks: one to three layers, both directions, sequences of one step and of all steps.
STACKS = [
    Shape(37, 5, 9, 11, layers=2, directions=2, lengths="9/1/4/9/8"),
    Shape(37, 5, 9, 11, layers=2),
    Shape(131, 1, 7, 64, layers=3, directions=2),
    Shape(1, 5, 9, 3, layers=3, directions=2, lengths="0.1-1"),
    Shape(37, 5, 9, 11, lengths="1/9/2/3/5"),
]
_described = set()


def need(framework):
    for name in FRAMEWORKS[framework].requires:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    if framework == "libtorch" and not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("no C++ compiler")


def built(row, problem, settings=SETTINGS):
    need(row.framework)
    if "cap_s" in row.options:  # a busy machine must not end a compilation
        row = replace(row, options={**row.options, "cap_s": 600})
    module = importlib.import_module(f"lstm_bench.frameworks.{row.module}.session")
    if row.module not in _described:
        _described.add(row.module)
        module.describe(settings)
    try:
        return module.build(problem, row, settings)
    except Unsupported as refused:
        if row.name not in PLAINLY or runs_plainly(row.name):
            raise
        pytest.skip(str(refused))


def autocast(torch, half):
    with torch.autocast("cpu", dtype=getattr(torch, half)):
        torch.nn.LSTM(8, 8)(torch.zeros(2, 1, 8))


def in_bf16(torch):
    torch.nn.LSTM(8, 8, dtype=torch.bfloat16)(torch.zeros(2, 1, 8, dtype=torch.bfloat16))


def in_int8(torch, engine):
    torch.backends.quantized.engine = engine
    layer = torch.nn.Sequential(torch.nn.LSTM(8, 8))
    made = torch.ao.quantization.quantize_dynamic(layer, {torch.nn.LSTM}, torch.qint8)
    made(torch.zeros(2, 1, 8))


def compiled(torch):
    with torch._dynamo.config.patch(allow_rnn=True):
        torch.compile(torch.nn.LSTM(8, 8), fullgraph=True)(torch.zeros(2, 1, 8))


#: Rows that a machine may refuse, and the same in plain PyTorch, in each way that would do.
PLAINLY = {
    "pytorch-amp": [functools.partial(autocast, half=h) for h in ("bfloat16", "float16")],
    "pytorch-bf16": [in_bf16],
    "pytorch-int8": [functools.partial(in_int8, engine=e) for e in ("qnnpack", "x86", "fbgemm")],
    "pytorch-compile": [compiled],
}


@functools.cache
def runs_plainly(name):
    """True if PyTorch itself, without this package, does on this CPU what the row does."""
    import torch

    for call in PLAINLY[name]:
        with contextlib.suppress(Exception), torch.inference_mode():
            call(torch)
            return True
    return False


def called(session):
    session.call()
    session.wait()
    return session.outputs()


def checked(session, row, problem, calls=1):
    """The check of the second answer: of one call, or of all calls since a restart."""
    expected = problems.reference(problems.repeated(problem, calls), row.computes)
    tolerance = TOLERANCES[session.precision or row.precision_on(SETTINGS)]
    for _ in range(2):
        answer = called(session) if calls == 1 else _followed(session)
    return problems.check(answer, expected, tolerance, problem.lengths(row.computes))


def swap_gates(w):
    i, f, g, o = np.split(w, 4)
    return np.concatenate([f, i, g, o])


def transposed(w):
    return np.concatenate([np.ascontiguousarray(block.T) for block in np.split(w, 4)])


def changed(p, name, change, place=0):
    """The problem with a change in one array of a layer and direction."""
    weights = list(p.weights)
    weights[place] = replace(weights[place], **{name: change(getattr(weights[place], name))})
    return replace(p, weights=tuple(weights))


MISTAKES = {
    "swapped input gates": lambda p: changed(p, "w_ih", swap_gates),
    "swapped recurrent gates": lambda p: changed(p, "w_hh", swap_gates),
    "dropped input bias": lambda p: changed(p, "b_ih", np.zeros_like),
    "dropped recurrent bias": lambda p: changed(p, "b_hh", np.zeros_like),
    "transposed weight": lambda p: changed(p, "w_hh", transposed),
    "zero initial h": lambda p: replace(p, h0=0 * p.h0),
    "zero initial c": lambda p: replace(p, c0=0 * p.c0),
    "a NaN in the input": lambda p: replace(p, x=np.where(p.x == p.x.max(), np.nan, p.x)),
}


def with_full_lengths(p):
    """The answer of a row that reads padded steps, and goes backwards from the last of all."""
    return replace(p, shape=replace(p.shape, lengths="full"))


#: In a stack of two layers, both directions and lengths.
STACK_MISTAKES = {
    "swapped gates in layer 2": lambda p: changed(p, "w_ih", swap_gates, place=2),
    "swapped gates backwards": lambda p: changed(p, "w_hh", swap_gates, place=1),
    "exchanged directions": lambda p: replace(p, weights=tuple(p.weights[i] for i in (1, 0, 2, 3))),
    "exchanged initial states": lambda p: replace(p, h0=p.h0[[2, 3, 0, 1]]),
    "lengths that are not heeded": with_full_lengths,
}


def says_its_path_and_what_it_holds(row):
    s = SHAPES[0]
    session = built(row, problems.make(s, seed=3))
    session.call()
    assert session.path
    assert "cuDNN" not in session.path  # on a CPU
    size = 2 if row.precision in ("fp16", "bf16") else 4
    weights, biases = 4 * s.hidden * (s.hidden + s.input_size), 4 * s.hidden
    held = session.memory["weights"]
    if row.precision == "int8":  # the biases are not, nor are scales, which are one a row at most
        padded = 4 * 16 * -(-s.hidden // 16)  # rows, in vectors of up to 16
        words = s.hidden + s.input_size + 2 * 3  # four weights a word
        assert weights + size * biases <= held <= padded * (words + size * 6)
    else:
        assert held in (size * (weights + biases), size * (weights + 2 * biases))  # added, or not
    inputs = s.timesteps * s.batch * s.input_size + 2 * s.batch * s.hidden
    assert session.memory["inputs"] == size * inputs
    session.close()


def options_of(module):
    """The options that a framework's session declares, read without the framework."""
    path = Path(frameworks.__file__).parent / module / "session.py"
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OPTIONS":
            return eval(ast.unparse(node.value), {"SCRIPT": SCRIPT})
    return frozenset()
