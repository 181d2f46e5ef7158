"""One problem for all, one reference for all, and a check that nothing slips through."""

import math
from dataclasses import replace

import numpy as np
import pytest

from lstm_bench.frameworks.fake.session import WRONG_ANSWERS, _answer
from lstm_bench.model.types import TOLERANCES, Shape, Unsupported
from lstm_bench.worker import problem as problems

SHAPE = Shape(hidden=5, batch=3, timesteps=4, input_size=2)
LARGE = Shape(hidden=256, batch=4, timesteps=10, input_size=256)


def scalar_lstm(p, skip_input=False):
    """The LSTM once more, number by number, from the textbook."""
    s = p.shape

    def sigmoid(v):
        return 1 / (1 + math.exp(-v))

    output = np.zeros((s.timesteps, s.batch, s.hidden))
    final_h, final_c = np.zeros((s.batch, s.hidden)), np.zeros((s.batch, s.hidden))
    for row in range(s.batch):
        h, c = [float(v) for v in p.h0[0, row]], [float(v) for v in p.c0[0, row]]
        for t in range(s.timesteps):
            x = [float(v) for v in p.x[t, row]]

            def gate(number, unit, x=x, h=h):
                k = number * s.hidden + unit
                w_ih, w_hh, b_ih, b_hh = p.arrays
                total = float(b_ih[k]) + float(b_hh[k])
                total += sum(float(w) * v for w, v in zip(w_hh[k], h, strict=True))
                if skip_input:
                    return total + x[unit]
                return total + sum(float(w) * v for w, v in zip(w_ih[k], x, strict=True))

            units = range(s.hidden)
            c = [
                sigmoid(gate(1, u)) * c[u] + sigmoid(gate(0, u)) * math.tanh(gate(2, u))
                for u in units
            ]
            h = [sigmoid(gate(3, u)) * math.tanh(c[u]) for u in units]
            output[t, row] = h
        final_h[row], final_c[row] = h, c
    return output, final_h[None], final_c[None]


def test_the_reference_is_the_textbook_lstm():
    p = problems.make(SHAPE, seed=1)
    for got, want in zip(problems.reference(p), scalar_lstm(p), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-14)


@pytest.mark.parametrize("lengths", ["full", "4/1/3", "0.2-1"])
def test_the_reference_of_a_stack_is_that_of_each_sequence_alone(lengths):
    p = problems.make(Shape(5, 3, 4, 2, layers=3, directions=2, lengths=lengths), seed=1)
    output, h, c = problems.reference(p)
    for row, length in enumerate(p.shape.each_length):
        below = p.x[:length, row : row + 1]
        for place in range(0, 6, 2):
            both = []
            for direction in (0, 1):
                states = {"h0": p.h0[[place + direction], row : row + 1]}
                states["c0"] = p.c0[[place + direction], row : row + 1]
                x = below[::-1] if direction else below
                shape = Shape(5, 1, length, x.shape[2])
                weights = p.weights[place + direction]
                alone = problems.Problem(shape, x, weights=(weights,), **states)
                answer, h_last, c_last = scalar_lstm(alone)
                np.testing.assert_allclose(h[place + direction, row], h_last[0, 0], atol=1e-13)
                np.testing.assert_allclose(c[place + direction, row], c_last[0, 0], atol=1e-13)
                both.append(answer[::-1] if direction else answer)
            below = np.concatenate(both, axis=2)
        np.testing.assert_allclose(output[:length, row], below[:, 0], atol=1e-13)


def test_what_is_put_out_beyond_the_end_of_a_sequence_counts_for_nothing():
    p = problems.make(Shape(5, 3, 4, 2, lengths="4/1/3"), seed=1)
    want, lengths = problems.reference(p), p.lengths()
    output = want[0].copy()
    output[1:, 1] = np.nan
    assert problems.check((output, *want[1:]), want, 1e-9, lengths).passed
    output[2, 2] += 1
    assert not problems.check((output, *want[1:]), want, 1e-9, lengths).passed


def test_the_skip_input_reference_adds_the_input_to_every_gate():
    p = problems.make(Shape(5, 3, 4, 5), seed=1)
    got = problems.reference(p, "lstm-skip-input")
    for a, b in zip(got, scalar_lstm(p, skip_input=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-14)


def test_the_reference_does_not_depend_on_how_it_is_cut(monkeypatch):
    p = problems.make(SHAPE, seed=1)
    whole = problems.reference(p)
    monkeypatch.setattr(problems, "_CHUNK_BYTES", 1)
    for a, b in zip(whole, problems.reference(p), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-15)


def test_a_seed_gives_the_same_problem_and_another_seed_another():
    a, b, c = problems.make(SHAPE, 1), problems.make(SHAPE, 1), problems.make(SHAPE, 2)
    assert all(map(np.array_equal, a.single, b.single))
    assert not np.array_equal(a.x, c.x)
    assert all(array.dtype == np.float32 for array in a.single)


def test_the_right_answer_passes_in_every_precision():
    p = problems.make(LARGE, 1)
    for tolerance in TOLERANCES.values():
        assert problems.check(_answer(p, None), problems.reference(p), tolerance).passed


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("mistake", WRONG_ANSWERS)
@pytest.mark.parametrize("shape", [SHAPE, LARGE], ids=["small", "large"])
def test_every_typical_mistake_fails_in_every_precision(mistake, precision, shape):
    p = problems.make(replace(shape, input_size=shape.hidden), 1)
    check = problems.check(_answer(p, mistake), problems.reference(p), TOLERANCES[precision])
    assert not check.passed
    assert check.reason


@pytest.mark.parametrize("place", [0, 1, 2], ids=["output", "final h", "final c"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.5])
def test_one_bad_number_anywhere_fails(place, value):
    p = problems.make(SHAPE, 1)
    answer = tuple(a.copy() for a in problems.reference(p))
    answer[place].flat[0] = value + (0 if not np.isfinite(value) else answer[place].flat[0])
    check = problems.check(answer, problems.reference(p), TOLERANCES["amp-bf16"])
    assert not check.passed
    assert ("output", "final h", "final c")[place] in check.reason


def test_errors_are_reported_as_they_are():
    p = problems.make(SHAPE, 1)
    want = problems.reference(p)
    output = want[0].copy()
    output[2, 1, 3] += 3e-6
    check = problems.check((output, want[1], want[2]), want, 1e-5)
    assert check.passed
    assert check.max_abs_error == pytest.approx(3e-6)
    assert check.max_rel_error == pytest.approx(3e-6 / np.abs(want[0]).max())


def test_what_is_shared_is_made_once():
    p, made = problems.make(SHAPE, 1), []
    for _ in range(2):
        p.shared("x", lambda: made.append(1))
    assert made == [1]


def test_an_input_that_cannot_be_added_to_the_gates_is_unsupported():
    p = problems.make(Shape(hidden=8, batch=2, timesteps=3, input_size=4), seed=1)
    with pytest.raises(Unsupported, match="an input as wide"):
        problems.reference(p, "lstm-skip-input")
