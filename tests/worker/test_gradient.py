"""The gradients of the reference are those of PyTorch's autograd in float64."""

from dataclasses import replace

import numpy as np
import pytest

from lstm_bench.model.types import Shape
from lstm_bench.worker import problem as problems
from lstm_bench.worker import reference_cache

SHAPES = [
    Shape(37, 5, 9, 11, training=True),
    Shape(1, 1, 1, 1, training=True),
    Shape(131, 1, 7, 64, layers=3, directions=2, training=True),
    Shape(37, 5, 9, 11, layers=2, directions=2, lengths="9/1/4/9/8", training=True),
    Shape(1, 5, 9, 3, layers=3, directions=2, lengths="0.1-1", training=True),
]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.label)


def by_autograd(posed):
    """The answer to a training step by `nn.LSTM` in float64."""
    torch = pytest.importorskip("torch")
    rnn, s, lengths = torch.nn.utils.rnn, posed.shape, posed.lengths()
    kind = {"dtype": torch.float64, "bidirectional": s.directions == 2}
    layer = torch.nn.LSTM(s.input_size, s.hidden, s.layers, **kind)
    with torch.no_grad():
        for parameter, array in zip(layer.parameters(), posed.arrays, strict=True):
            parameter.copy_(torch.from_numpy(array))
    x, h0, c0 = (
        torch.tensor(array, dtype=torch.float64, requires_grad=True)
        for array in (posed.x, posed.h0, posed.c0)
    )
    ends = torch.tensor(lengths or s.each_length)
    output, (h, c) = layer(rnn.pack_padded_sequence(x, ends, enforce_sorted=False), (h0, c0))
    output = rnn.pad_packed_sequence(output, total_length=s.timesteps)[0]
    upstream = [torch.tensor(array, dtype=torch.float64) for array in posed.upstream]
    leaves = (x, h0, c0, *layer.parameters())
    gradients = torch.autograd.grad((output, h, c), leaves, upstream)
    return tuple(tensor.detach().numpy() for tensor in (output, h, c, *gradients))


@pytest.mark.frameworks
@each_shape
def test_the_gradients_are_those_of_autograd_in_float64(shape):
    posed = problems.make(shape, seed=1)
    answer = problems.reference(posed)
    check = problems.check(by_autograd(posed), answer, 1e-13, posed.lengths())
    assert check.passed, check.reason


@each_shape
def test_a_small_step_along_the_gradient_changes_what_it_is_the_gradient_of_as_much(shape):
    """Finite differences need no framework, and know nothing of how the gradient was reckoned."""
    posed = problems.make(shape, seed=1)
    _, _, _, dx, dh0, dc0, *of_weights = problems.reference(posed)

    def loss(changed):
        outputs = problems.reference(replace(changed, upstream=posed.upstream))[:3]
        return sum(float((a * b).sum()) for a, b in zip(outputs, posed.upstream, strict=True))

    def moved(step):
        x, h0, c0 = (
            array.astype(np.float64) + step * way
            for array, way in zip((posed.x, posed.h0, posed.c0), (dx, dh0, dc0), strict=True)
        )
        ways = iter(of_weights)
        weights = tuple(
            problems.Weights(*(a.astype(np.float64) + step * next(ways) for a in vars(w).values()))
            for w in posed.weights
        )
        return replace(posed, x=x, h0=h0, c0=c0, weights=weights)

    size = sum(float((way**2).sum()) for way in (dx, dh0, dc0, *of_weights))
    step = 1e-4 / np.sqrt(size)
    slope = (loss(moved(step)) - loss(moved(-step))) / (2 * step)
    assert slope == pytest.approx(size, rel=1e-6)


def test_training_has_the_inputs_of_inference_and_nothing_flows_in_beyond_an_end():
    shape = SHAPES[3]
    posed, inferred = (
        problems.make(each, seed=1) for each in (shape, replace(shape, training=False))
    )
    assert not inferred.upstream
    assert np.array_equal(posed.x, inferred.x)
    assert all(map(np.array_equal, posed.arrays, inferred.arrays))
    for row, length in enumerate(shape.each_length):
        assert not posed.upstream[0][length:, row].any()
        assert posed.upstream[0][:length, row].all()
    assert all(map(np.array_equal, problems.reference(posed)[:3], problems.reference(inferred)))


@pytest.mark.parametrize("place", range(3, 10))
@pytest.mark.parametrize("value", [np.nan, np.inf, 1.0])
def test_one_bad_number_in_any_gradient_fails_by_its_name(place, value):
    posed = problems.make(SHAPES[0], seed=1)
    expected = problems.reference(posed)
    answer = [array.copy() for array in expected]
    answer[place].flat[-1] += value * max(1, np.abs(expected[place]).max())
    check = problems.check(tuple(answer), expected, 6e-2)
    assert not check.passed
    assert check.reason.startswith(f"{problems.names(expected)[place]} is off")


def test_the_error_of_a_gradient_is_relative_to_its_largest_number():
    posed = problems.make(SHAPES[0], seed=1)
    expected = problems.reference(posed)
    answer = [array.copy() for array in expected]
    answer[8] += 1e-3
    check = problems.check(tuple(answer), expected, 1.0)
    assert check.max_abs_error == pytest.approx(1e-3 / np.abs(expected[8]).max())


@each_shape
def test_workers_share_a_reference_with_its_gradients(shape, tmp_path):
    answer = problems.reference(problems.make(shape, seed=1))
    with (tmp_path / "reference").open("w+b") as file:
        reference_cache.put(file.fileno(), answer)
        read = reference_cache.get(file.fileno(), shape)
    assert all(map(np.array_equal, read, answer))
    assert [array.shape for array in read] == [array.shape for array in answer]
