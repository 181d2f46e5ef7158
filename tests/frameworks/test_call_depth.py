"""How deep the library lies under a call: what counts as a frame, and what PyTorch shows."""

import ctypes
import os
import shutil
from collections import Counter

import pytest
from cases import compiled

from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.frameworks.pytorch import call_depth, symbols
from lstm_bench.frameworks.pytorch.symbols import Symbol
from lstm_bench.model.profile import CallDepth, Frame
from lstm_bench.model.types import Settings, Shape, Unsupported
from lstm_bench.worker import native
from lstm_bench.worker import problem as problems

CPU = "/torch/lib/libtorch_cpu.so"
PYTHON = Symbol("/usr/lib/libpython3.so", "_PyEval_EvalFrameDefault")
BINDING = Symbol("/torch/lib/libtorch_python.so", "THPVariable_lstm")
HIDDEN = Symbol(CPU, "")
ATEN = Symbol(CPU, "_ZN2at6native4lstmEv")


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (Symbol(CPU, "dnnl_primitive_execute"), "dnnl_primitive_execute"),
        (Symbol(CPU, "sgemm_"), "sgemm_"),
        (Symbol("/nvidia/lib/libcudnn.so.9", "cudnnRNNForward"), "cudnnRNNForward"),
        (Symbol("/nvidia/lib/libcudnn.so.9", ""), "libcudnn.so.9"),
        (Symbol("/usr/lib/libcudart.so.13", "cudaGraphLaunch"), "cudaGraphLaunch"),
    ],
)
def test_a_chain_goes_from_pytorchs_first_function_to_the_librarys(entry, name):
    inside = Symbol(entry.file, "what the library does is its own")
    chain = call_depth.chain([PYTHON, BINDING, ATEN, entry, inside])
    assert chain == ("THPVariable_lstm", "at::native::lstm", name)


def test_where_pytorch_calls_python_again_the_interpreters_frames_do_not_count():
    entry = Symbol(CPU, "sgemm_")
    chain = call_depth.chain([PYTHON, BINDING, PYTHON, PYTHON, BINDING, entry])
    assert chain == ("THPVariable_lstm", "THPVariable_lstm", "sgemm_")


def test_a_stack_that_ends_before_the_library_or_begins_in_it_is_no_chain():
    assert call_depth.chain([PYTHON, BINDING, ATEN]) == ()
    assert call_depth.chain([PYTHON]) == ()
    assert call_depth.chain([Symbol("/usr/lib/libcuda.so.1", "cuInit")]) == ()


def test_functions_belong_to_levels_and_unnamed_ones_to_their_callers():
    names = {
        "torch::autograd::THPVariable_lstm": "binding",
        "torch::jit::InterpreterState::run": "TorchScript",
        "torch::nn::LSTMImpl::forward": "C++ API",
        "at::_ops::lstm_input::call": "dispatcher",
        "c10::impl::wrap_kernel_functor_unboxed_<int>": "dispatcher",
        "at::(anonymous namespace)::wrapper_CUDA___cudnn_rnn": "dispatcher",
        "at::autocast::WrapFunction_<int>::call": "dispatcher",
        "at::native::lstm": "ATen",
        "": "ATen",
        "cudnnRNNForward": "library",
    }
    actual = call_depth.levels(tuple(names))
    assert [frame.level for frame in actual] == list(names.values())
    assert Frame("ATen", "?") in actual


def test_the_way_is_the_shortest_frequent_one_to_the_librarys_busiest_function():
    direct, reorder = ("a", "execute"), ("a", "b", "execute")
    assert call_depth.usual(Counter({reorder: 60, direct: 30, ("create",): 20})) == direct
    assert call_depth.usual(Counter({reorder: 95, direct: 5})) == reorder


def test_names_come_from_the_file_also_where_they_are_not_exported(tmp_path):
    source = tmp_path / "hidden.cpp"
    source.write_text(
        'static int hidden() { return 1; }\nextern "C" int (*where())() { return hidden; }\n'
    )
    path = compiled(str(source), tmp_path / "hidden.so")
    library = ctypes.CDLL(path)
    library.where.restype = ctypes.c_size_t
    assert symbols.at(library.where()) == Symbol(path, "_ZL6hiddenv")
    assert symbols.at(1) == Symbol("", "")


DEEP = """
#include <execinfo.h>
#include <time.h>
extern "C" {
volatile long sum;
void first() { for (long i = 0; i < 100000; ++i) sum = sum + i; }
void second() { for (long i = 0; i < 100000; ++i) sum = sum + i; }
long nanoseconds() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}
long taking() {
    void* frames[128];
    long least = 1000000000;
    for (int i = 0; i < 10; ++i) {
        const long began = nanoseconds();
        backtrace(frames, 128);
        const long took = nanoseconds() - began;
        if (took < least) least = took;
    }
    return least;
}
long at_depth(int depth, int takes) {
    if (depth) return at_depth(depth - 1, takes);
    if (takes) return taking();
    first();
    second();
    return 0;
}
}
"""


def test_stacks_that_take_longer_than_the_pause_leave_the_program_its_time(monkeypatch, tmp_path):
    source = tmp_path / "deep.cpp"
    source.write_text(DEEP)
    at_depth = ctypes.CDLL(compiled(str(source), tmp_path / "deep.so")).at_depth
    at_depth.restype = ctypes.c_long
    monkeypatch.setattr(call_depth, "EVERY_NS", at_depth(200, 1) // 2)
    monkeypatch.setattr(call_depth, "WATCHED_S", 0.2)  # the first stack may outlast a function
    stacks = call_depth._stacks(lambda: at_depth(200, 0), lambda: None)
    assert {"first", "second"} <= {symbol.name for stack in stacks for symbol in stack}


def test_without_a_compiler_the_reason_stands_in_place_of_frames(monkeypatch):
    def refuse(*_):
        raise Unsupported("no C++ compiler")

    monkeypatch.setattr(native, "library", refuse)
    actual = call_depth.measure(lambda: None, lambda: None)
    assert actual == CallDepth(problem="Unsupported: no C++ compiler")


@pytest.mark.frameworks
@pytest.mark.xdist_group("frameworks")
def test_eager_pytorch_lies_deeper_than_libtorch_by_its_python_and_its_binding(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(call_depth, "WATCHED_S", 0.3)
    if not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("no C++ compiler")
    from lstm_bench.frameworks.libtorch import session as libtorch
    from lstm_bench.frameworks.pytorch import session as pytorch

    problem = problems.make(Shape(64, 1, 10, 64), seed=3)
    eager, direct = (
        module.build(problem, IMPLEMENTATIONS[name], Settings(device="cpu")).depth()
        for module, name in ((pytorch, "pytorch"), (libtorch, "libtorch"))
    )
    assert not eager.problem
    assert not direct.problem
    python = [frame.name for frame in eager.frames if frame.level == "Python"]
    assert python[0].endswith("_call_impl")
    assert python[-1] == "torch.nn.modules.rnn.LSTM.forward"
    below = {"dispatcher", "ATen", "library"}
    assert {frame.level for frame in eager.frames} == {"Python", "binding", *below}
    assert {frame.level for frame in direct.frames} == {"C++ API", *below}
    assert direct.frames[0].name == "torch::nn::LSTMImpl::forward"
    shared = [[frame for frame in each.frames if frame.level in below] for each in (eager, direct)]
    assert shared[0] == shared[1]
