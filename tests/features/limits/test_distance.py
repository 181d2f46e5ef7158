"""The limit of a shape: nothing that was ever measured is below it."""

import dataclasses
import functools
import json
from pathlib import Path

import builders
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstm_bench.analysis import results
from lstm_bench.features.limits import figure as limits_figure
from lstm_bench.features.limits import report as limit_report
from lstm_bench.features.limits.distance import distances as distances_of
from lstm_bench.features.limits.distance import limit_of, means
from lstm_bench.features.page import page
from lstm_bench.model.limits import Level, Limits
from lstm_bench.model.types import ACCURACY, Shape
from lstm_bench.report import figures, run_report
from lstm_bench.runs import store
from study.runs import shipped

RUNS = Path(__file__).parents[3] / "results"

#: An H200 in round numbers, for what must hold whatever they are.
H200 = Limits(
    device="cuda",
    cores=132,
    call_s=3.5e-6,
    queued_s=3.5e-6,
    exchange_s={1: 0.03e-6, **dict.fromkeys((2, 4, 8, 16), 0.19e-6), 132: 0.7e-6},
    cell_s={"fp32": 0.08e-6, "half": 0.05e-6},
    taken_in=5.5e12,
    vector_flops=60e12,
    narrow_flops=620e12,
    matrix_flops={"tf32": 400e12, "half": 790e12},
    levels=(
        Level("registers and shared memory", 132 * (262_144 + 232_448), 0, local=True),
        Level("L2", 50e6, 5.5e12),
        Level("HBM", 0, 4.3e12),
    ),
)
#: The machine of results/cpu-neoverse: two cores of a Neoverse-N1, by `lstm-bench doctor --limits`.
CPU = Limits(
    device="cpu",
    cores=2,
    call_s=0.0,
    queued_s=0.0,
    exchange_s={1: 0.0, 2: 1.2e-7},
    cell_s={},
    taken_in=0.0,
    vector_flops=91e9,
    levels=(
        Level("L1", 128 << 10, 135e9),
        Level("L2", 2 << 20, 86e9),
        Level("L3", 32 << 20, 69e9),
        Level("memory", 0, 39e9),
    ),
)


@functools.cache
def measured(run):
    """The limits that the run measured of its machine; an H200's where it did not keep them."""
    return results.load(RUNS / run).limits or results.load(RUNS / "h200-ladder").limits


@functools.cache
def distances(run, machine):
    """Every cell of a run on this machine: name, shape, and how many times the limit it takes."""
    cells = results.load(RUNS / run).cells
    cells = cells[(cells["status"] == "ok") & (cells["device"] == machine)]
    limits, actual = CPU if run == "cpu-neoverse" else measured(run), []
    for cell in cells.itertuples():
        shape = Shape(cell.hidden, cell.batch, cell.timesteps, cell.input_size)
        for metric in ("latency", "throughput", "device"):
            seconds = getattr(cell, f"{metric}_s")
            if seconds == seconds:
                limit = limit_of(limits, shape, ACCURACY[cell.precision], cell.computes, metric)
                actual.append((seconds / limit.seconds, metric, cell.implementation, shape))
    return actual


@pytest.mark.parametrize("run", [run for run in shipped() if run.startswith(("h200", "cpu"))])
def test_no_cell_of_a_shipped_run_is_below_the_limit(run):
    actual = distances(run, "cuda" if run.startswith("h200") else "cpu")
    assert min(actual, key=lambda each: each[0])[0] >= 1, min(actual, key=lambda each: each[0])


def test_the_limit_is_near_what_was_reached():
    for name, most in {"persistent": 2.5, "persistent-tf32": 2.3, "persistent-fp16": 2.1}.items():
        ratios = [
            ratio
            for ratio, metric, row, shape in distances("h200-kernel", "cuda")
            if row == name and metric == "latency" and shape.batch <= 64
        ]
        assert np.exp(np.mean(np.log(ratios))) < most, name


# --- the report


def limited(*rows, limits=CPU):
    made = builders.run(*rows)
    return dataclasses.replace(made, manifest={**made.manifest, "limits": limits.to_json()})


def twice_the_limit(name, *sizes, times=2.0, **more):
    seconds = limit_of(CPU, Shape(*sizes, sizes[0]), "fp32").seconds
    return builders.row(name, times * seconds, *sizes, **more)


def test_a_report_says_how_far_each_row_is_and_what_binds():
    run = limited(
        *(twice_the_limit("near", *sizes) for sizes in ((64, 1, 5), (256, 16, 5))),
        *(twice_the_limit("far", *sizes, times=8.0) for sizes in ((64, 1, 5), (256, 16, 5))),
        builders.row("elsewhere", 1e-9, 64, 1, 5, device="cuda"),
        builders.row("unheard-of", 1e-9, 64, 1, 5, precision="fp7"),
    )
    drawn = run_report.document(run, everything=True).written("table")
    rows = {line.split()[0]: line for line in drawn.splitlines() if line.strip()}
    assert "2.0x" in rows["near"]
    assert "8.0x" in rows["far"]
    facts = json.loads(run_report.document(run).written("json"))
    over = {row["implementation"]: row["over_limit"] for row in facts["implementations"]}
    assert over == pytest.approx({"near": 2.0, "far": 8.0, "elsewhere": None, "unheard-of": None})
    assert [each["binds"] for each in facts["shape_limits"]] == ["arithmetic", "arithmetic"]
    assert facts["shape_limits"][0]["rows"] == pytest.approx({"near": 2.0, "far": 8.0})
    assert store.limits_of(facts) == CPU


def test_a_run_without_limits_says_nothing_of_them():
    run = builders.run(builders.row("any", 1e-3))
    assert run.limits is None
    assert "limit" not in run_report.document(run, everything=True).written("table")
    assert not limit_report.on_page(run).parts


def test_the_page_shows_where_each_row_stands_at_each_shape():
    rows = [twice_the_limit("near", 64, 1, 5), twice_the_limit("far", 64, 1, 5, times=8.0)]
    run = limited(*rows)
    (table,) = limit_report.on_page(run).tables
    (row,) = table.rows
    facts = {column.heading: column.show(row) for column in table.columns}
    assert facts["rows, times the limit"] == "near 2.0x, far 8.0x"
    assert facts["binds"] == "arithmetic"
    assert "Distance to the limit" in page.html(run)


def test_the_figure_has_a_line_of_dots_per_row_the_nearest_first(tmp_path):
    sizes = ((64, 1, 5), (256, 16, 5))
    rows = [twice_the_limit("far", *each, times=8.0) for each in sizes]
    rows += [twice_the_limit("near", *each) for each in sizes]
    (figure,) = limits_figure.drawn(limited(*rows)).values()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["near", "far"]
    assert [len(dots.get_offsets()) for dots in figure.axes[0].collections] == [2, 2]
    written = figures.write(limited(*rows), tmp_path)
    assert {"limits.svg", "limits.png"} <= {path.name for path in written}
    assert limits_figure.drawn(builders.run(*rows)) == {}


def test_of_several_passes_the_median_counts():
    rows = [twice_the_limit("row", 64, 1, 5, times=n, pass_number=n) for n in (2, 3, 7)]
    assert means(distances_of(limited(*rows).cells, CPU)) == pytest.approx({"row": 3.0})


# --- what binds


@pytest.mark.parametrize(
    ("sizes", "binds"),
    [
        ((128, 1, 1, 128), "launch"),
        ((128, 1, 1000, 128), "barrier"),
        ((4096, 128, 25, 4096), "arithmetic"),
        ((16, 256, 1000, 2048), "bandwidth"),
    ],
)
def test_what_binds_is_what_takes_longest(sizes, binds):
    assert limit_of(H200, Shape(*sizes), "half").binds == binds


def test_a_layer_that_fits_into_a_cluster_needs_no_exchange_through_l2():
    inside, outside = (limit_of(H200, Shape(h, 1, 1000, h), "fp32") for h in (512, 1024))
    assert inside.barrier_s < 0.5 * outside.barrier_s


def test_a_call_of_many_queued_waits_for_no_launch_of_its_own():
    shape, waited = Shape(128, 1, 1, 128), dataclasses.replace(H200, call_s=6e-6)
    alone, queued, device = (
        limit_of(waited, shape, "fp32", metric=metric).seconds
        for metric in ("latency", "throughput", "device")
    )
    assert alone - queued == pytest.approx(waited.call_s - waited.queued_s)
    assert queued - device == pytest.approx(waited.queued_s)


def test_arithmetic_that_nobody_measured_has_no_part_in_the_limit():
    shape = Shape(256, 64, 10, 256)
    assert limit_of(CPU, shape, "fp32").arithmetic_s > 0
    assert limit_of(CPU, shape, "half").arithmetic_s == 0
    assert limit_of(CPU, shape, "int8").arithmetic_s == 0
    assert limit_of(CPU, shape, "int8").seconds > 0


sizes = st.builds(
    Shape, st.integers(1, 4096), st.integers(1, 512), st.integers(1, 1000), st.integers(1, 4096)
)


@given(sizes, st.sampled_from(sorted(set(ACCURACY.values()))), st.sampled_from([H200, CPU]))
def test_more_work_never_has_a_lower_limit(shape, accuracy, machine):
    before = limit_of(machine, shape, accuracy).seconds
    assert before > 0
    for axis in ("hidden", "batch", "timesteps", "input_size"):
        more = dataclasses.replace(shape, **{axis: 2 * getattr(shape, axis)})
        assert limit_of(machine, more, accuracy).seconds >= before * (1 - 1e-9), axis


@given(sizes)
def test_a_coarser_answer_never_has_a_higher_limit(shape):
    fp32, tf32, half = (limit_of(H200, shape, name).seconds for name in ("fp32", "tf32", "half"))
    assert half <= tf32 <= fp32
    skip = limit_of(H200, shape, "fp32", "lstm-skip-input").seconds
    assert skip <= fp32


@given(sizes, st.sampled_from(sorted(set(ACCURACY.values()))))
def test_a_better_machine_never_has_a_higher_limit(shape, accuracy):
    faster = dataclasses.replace(
        H200,
        exchange_s={n: s / 2 for n, s in H200.exchange_s.items()},
        taken_in=2 * H200.taken_in,
        vector_flops=2 * H200.vector_flops,
    )
    assert limit_of(faster, shape, accuracy).seconds <= limit_of(H200, shape, accuracy).seconds


@pytest.mark.parametrize(
    "wrong",
    [
        {"exchange_s": {}},
        {"exchange_s": {133: 1e-6}},
        {"vector_flops": 0.0},
        {"call_s": float("nan")},
        {"levels": (Level("L2", 1e6, 0.0),)},
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        dataclasses.replace(H200, **wrong)


@pytest.mark.parametrize("accuracy", ["fp32", "half"])
@pytest.mark.parametrize("sizes", [(128, 32, 589), (384, 256, 100), (64, 1, 10)])
def test_a_stack_is_at_least_its_slowest_layer_and_its_work_both_directions_one_after_another(
    sizes, accuracy
):
    def seconds(layers=1, directions=1, lengths="full"):
        shape = Shape(*sizes, sizes[0], layers, directions, lengths)
        return limit_of(H200, shape, accuracy, metric="device")

    layer, stack, both = seconds(), seconds(4), seconds(4, 2)
    assert stack.seconds >= max(layer.seconds, 4 * layer.arithmetic_s)
    assert stack.seconds <= 4 * layer.seconds * (1 + 1e-9)
    assert both.seconds >= 4 * layer.seconds * (1 - 1e-9)
    assert both.arithmetic_s >= 2 * stack.arithmetic_s
    assert seconds(4, 2, "0.1-1").seconds <= both.seconds


def test_a_training_step_has_no_limit():
    rows = [builders.cell("pytorch", (64, 1, 10)), builders.cell("pytorch", (128, 1, 10))]
    rows[1].shape = dataclasses.replace(rows[1].shape, training=True)
    assert list(distances_of(builders.cells(*rows), H200)["hidden"]) == [64]
