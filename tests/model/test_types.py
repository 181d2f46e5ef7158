"""The shared types survive the trip to disk and over the wire."""

import json

from lstm_bench.model.types import (
    ACCURACY,
    TOLERANCES,
    Cell,
    Implementation,
    Settings,
    Shape,
    dumps,
    from_json,
    to_json,
)

SHAPE = Shape(8, 2, 3, 5)


def test_a_field_of_a_newer_version_is_left_aside():
    data = {**to_json(SHAPE), "direction": "both"}
    assert from_json(Shape, data) == SHAPE


def test_what_is_not_finite_becomes_null_and_never_invalid_json():
    text = dumps({"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": -float("inf")}})
    assert json.loads(text) == {"a": None, "b": [None, 1.5], "c": {"d": None}}


def test_cells_that_differ_in_anything_have_different_keys():
    cells = [
        Cell("pytorch", SHAPE),
        Cell("pytorch", SHAPE, copy=2),
        Cell("pytorch", SHAPE, pass_number=2),
        Cell("pytorch-amp", SHAPE),
        Cell("pytorch", Shape(8, 2, 3, 6)),
        Cell("pytorch", Shape(8, 2, 4, 5)),
    ]
    assert len({c.key for c in cells}) == len(cells)


def test_the_precision_of_a_row_follows_the_grid():
    plain = Implementation("x", "pytorch", "fp32", "pytorch")
    amp = Implementation("x", "pytorch", "amp", "pytorch")
    assert plain.precision_on(Settings(device="cuda", tf32=True)) == "tf32"
    assert plain.precision_on(Settings(device="cuda")) == "fp32"
    assert plain.precision_on(Settings(device="cpu", tf32=True)) == "fp32"
    assert amp.precision_on(Settings(amp="bf16")) == "amp-bf16"
    assert amp.precision_on(Settings(device="cuda")) == "amp-fp16"
    assert amp.precision_on(Settings(device="cpu")) == "amp"  # its first call decides


def test_a_tf32_row_has_tf32_and_a_process_of_its_own_whatever_the_run_says():
    plain = Implementation("x", "pytorch", "fp32", "pytorch")
    tf32 = Implementation("y", "pytorch", "tf32", "pytorch")
    run = Settings(device="cuda")
    assert (plain.settings_in(run).tf32, tf32.settings_in(run).tf32) == (False, True)
    assert tf32.precision_on(run) == "tf32"
    assert plain.worker != tf32.worker


def test_every_precision_has_a_tolerance_and_an_accuracy_class():
    assert set(TOLERANCES) | {"amp"} == set(ACCURACY)


def test_flops_count_both_products_of_every_step():
    # 4 gates x (5 inputs + 8 hidden) x 8 units x 2 operations, 2 rows, 3 steps
    assert SHAPE.flops == 4 * 13 * 8 * 2 * 2 * 3
