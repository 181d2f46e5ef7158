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
        h, c = [float(v) for v in p.h0[row]], [float(v) for v in p.c0[row]]
        for t in range(s.timesteps):
            x = [float(v) for v in p.x[t, row]]

            def gate(number, unit, x=x, h=h):
                k = number * s.hidden + unit
                total = float(p.b_ih[k]) + float(p.b_hh[k])
                total += sum(float(w) * v for w, v in zip(p.w_hh[k], h, strict=True))
                if skip_input:
                    return total + x[unit]
                return total + sum(float(w) * v for w, v in zip(p.w_ih[k], x, strict=True))

            units = range(s.hidden)
            c = [
                sigmoid(gate(1, u)) * c[u] + sigmoid(gate(0, u)) * math.tanh(gate(2, u))
                for u in units
            ]
            h = [sigmoid(gate(3, u)) * math.tanh(c[u]) for u in units]
            output[t, row] = h
        final_h[row], final_c[row] = h, c
    return output, final_h, final_c


def test_the_reference_is_the_textbook_lstm():
    p = problems.make(SHAPE, seed=1)
    for got, want in zip(problems.reference(p), scalar_lstm(p), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-14)


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
    assert all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ("x", "w_ih", "b_hh", "c0"))
    assert not np.array_equal(a.x, c.x)
    assert all(getattr(a, n).dtype == np.float32 for n in ("x", "h0", "w_hh", "b_ih"))


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
    with pytest.raises(Unsupported, match="an input as wide as the hidden size"):
        problems.reference(p, "lstm-skip-input")
