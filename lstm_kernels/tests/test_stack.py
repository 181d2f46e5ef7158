"""Layers, directions and lengths on a CPU, without PyTorch: every instruction set and cut."""

import numpy as np
import pytest
from cases import TOLERANCES, built_native, reference

from lstm_kernels import Unsupported

native = built_native()
PRECISIONS = {"fp32": 5e-6, "bf16": TOLERANCES["bf16"], "int8": TOLERANCES["int8"]}


class Problem:
    """A stack, sequences of unlike lengths and what they give in float64."""

    def __init__(self, sizes, batch, timesteps, seed=0, lengths=True):
        self.random = np.random.default_rng(seed)
        inputs, hidden, layers, directions, bias = self.sizes = sizes
        self.weights = []
        for place in range(layers * directions):
            width = inputs if place < directions else directions * hidden
            shapes = [(4 * hidden, width), (4 * hidden, hidden), *[(4 * hidden,)] * 2 * bias]
            self.weights += [self.values(*s, scale=s[1] ** -0.5 if s[1:] else 1) for s in shapes]
        most = [timesteps] * batch
        lengths = self.random.integers(1, timesteps + 1, batch) if lengths else most
        self.lengths = np.sort([*lengths[1:], timesteps])[::-1]
        self.batches = np.array([(self.lengths > t).sum() for t in range(timesteps)], np.int64)
        self.x = self.values(self.batches.sum(), inputs)
        self.h0, self.c0 = (self.values(layers * directions, batch, hidden) for _ in range(2))

    def values(self, *shape, scale=1.0):
        return (scale * self.random.standard_normal(shape)).astype(np.float32)

    def right(self):
        _, hidden, layers, directions, bias = self.sizes
        each = 2 + 2 * bias
        rows = np.concatenate([[0], np.cumsum(self.batches)])
        y = np.empty((len(self.x), directions * hidden))
        h, c = np.empty(self.h0.shape), np.empty(self.c0.shape)
        for b, length in enumerate(self.lengths):
            at = rows[:length] + b
            sequence = self.x[at][:, None]
            for layer in range(layers):
                outputs = []
                for d in range(directions):
                    k, turn = layer * directions + d, slice(None, None, 1 - 2 * d)
                    w = self.weights[k * each : (k + 1) * each]
                    w += [np.zeros(4 * hidden)] * (4 - len(w))
                    states = self.h0[k, b : b + 1], self.c0[k, b : b + 1]
                    out, h[k, b], c[k, b] = reference(sequence[turn], *states, *w)
                    outputs.append(out[turn])
                sequence = np.concatenate(outputs, -1)
            y[at] = sequence[:, 0]
        return y, h, c

    def computed(self, precision="fp32", threads=1):
        _, hidden, _, directions, _ = self.sizes
        stack = native.CpuStack(self.sizes, self.weights, precision)
        y = np.full((len(self.x), directions * hidden), np.nan, np.float32)
        h, c = np.full_like(self.h0, np.nan), np.full_like(self.c0, np.nan)
        arrays = self.x, self.h0, self.c0, y, h, c, self.batches
        batch, timesteps = self.h0.shape[1], len(self.batches)
        stack.run(*(a.ctypes.data for a in arrays), timesteps, batch, threads, 0)
        return y, h, c

    def assert_right(self, precision="fp32", threads=1):
        for found, right in zip(self.computed(precision, threads), self.right(), strict=True):
            error = np.max(np.abs(found - right) / np.maximum(1, np.abs(right)))
            assert error <= PRECISIONS[precision], f"{error:.2e}"


@pytest.mark.parametrize("seed", range(10))
def test_right_for_every_stack_and_thread_count(seed):
    random = np.random.default_rng(100 + seed)
    for number in range(6):
        inputs, hidden = (int(random.choice([1, 3, 16, 17, 40, 67])) for _ in range(2))
        sizes = inputs, hidden, *(int(n) for n in random.integers(1, 3, 2)), int(random.integers(2))
        batch, timesteps = int(random.integers(1, 20)), int(random.integers(1, 9))
        problem = Problem(sizes, batch, timesteps, number, lengths=bool(random.integers(2)))
        problem.assert_right(threads=int(random.integers(1, 5)))


@pytest.mark.parametrize("instructions", native.instruction_sets())
@pytest.mark.parametrize("precision", PRECISIONS)
def test_right_with_every_instruction_set(monkeypatch, instructions, precision):
    monkeypatch.setenv("LSTM_BENCH_ISA", instructions)
    for sizes, batch in (((1, 1, 1, 1, 1), 1), ((33, 17, 2, 2, 1), 7), ((40, 72, 1, 2, 0), 40)):
        for threads in (1, 3):
            Problem(sizes, batch, 5).assert_right(precision, threads)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_number_of_threads_does_not_show_in_the_bits(precision):
    problem = Problem((31, 67, 2, 2, 1), 9, 6, lengths=False)
    alone = problem.computed(precision)
    for threads in (2, 3, 4, 64):
        shared = problem.computed(precision, threads)
        assert all(np.array_equal(a, b) for a, b in zip(alone, shared, strict=True))


def test_mistakes_are_named():
    weights = Problem((4, 4, 1, 1, 1), 1, 1).weights
    with pytest.raises(ValueError, match="no such layer: input 0"):
        native.CpuStack((0, 4, 1, 1, 1), weights, "fp32")
    with pytest.raises(ValueError, match="3 directions"):
        native.CpuStack((4, 4, 1, 3, 1), weights, "fp32")
    with pytest.raises(Unsupported, match="do not fit 32 bits"):
        native.CpuStack((2**17, 1, 1, 1, 0), [np.zeros((4, 2**17)), np.zeros((4, 1))], "int8")
    problem = Problem((4, 4, 1, 1, 1), 3, 4)
    problem.batches[1] = 0
    with pytest.raises(ValueError, match="the longest first"):
        problem.computed()
    large = Problem((4, 4, 1, 1, 1), 1, 1)
    large.c0[...] = 1e30
    with pytest.raises(Unsupported, match="an initial c above 1e26"):
        large.computed()
