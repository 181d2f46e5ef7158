"""Real layers by name: in a grid, in a report, in advice."""

import json

import pytest

from lstm_bench.model.shape import FULL, Shape, lengths_of, parsed
from lstm_bench.model.types import LstmBenchError
from lstm_bench.runs import grid

NAMES = {
    "512,16,25": Shape(512, 16, 25, 512),
    "320,4,60,128": Shape(320, 4, 60, 128),
    "384x5,256,1666": Shape(384, 256, 1666, 384, 5),
    "60->128x4bi,32,589": Shape(128, 32, 589, 60, 4, 2),
    "640->256bi,8,300~0.3-1": Shape(256, 8, 300, 640, 1, 2, "0.3-1"),
    "128,3,50~50/20/1": Shape(128, 3, 50, 128, lengths="50/20/1"),
    "256,16,100 training": Shape(256, 16, 100, 256, training=True),
    "60->128x4bi,32,589~0.3-1 training": Shape(128, 32, 589, 60, 4, 2, "0.3-1", True),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_shape_has_one_name_that_is_read_and_written(name):
    assert parsed(name) == NAMES[name]
    assert NAMES[name].label == name


@pytest.mark.parametrize(
    "name", ["", "512", "512,16", "a->5,1,1", "5->6,1,1,7", "8bix2,1,1", "8,1,1 trained"]
)
def test_what_is_no_shape_is_refused_with_an_example(name):
    with pytest.raises(LstmBenchError, match="60->128x4bi,32,589"):
        parsed(name)


def test_lengths_are_drawn_alike_everywhere_and_one_sequence_is_full():
    shape = Shape(8, 100, 50, 8, lengths="0.3-1")
    assert shape.each_length == shape.each_length
    assert max(shape.each_length) == shape.each_length[0] == 50
    assert 15 <= min(shape.each_length) < 20
    assert shape.each_length != Shape(8, 100, 50, 8, lengths="0.3-1#7").each_length


def test_lengths_of_a_grid_file_are_those_of_a_name():
    assert lengths_of({"uniform": [0.3, 1]}, (4, 10), "x") == "0.3-1"
    assert lengths_of({"uniform": [0.3, 1], "seed": 7}, (4, 10), "x") == "0.3-1#7"
    assert lengths_of([10, 4], (2, 10), "x") == "10/4"
    assert lengths_of("full", (2, 10), "x") == FULL


@pytest.mark.parametrize("wrong", [[10, 4], [9, 4, 1], {"uniform": [0.3]}, "half", "0-1", "0.5-2"])
def test_lengths_that_no_batch_can_have_are_refused(wrong):
    with pytest.raises(LstmBenchError, match=r"expected full, uniform: \[0.3, 1\]"):
        lengths_of(wrong, (3, 10), "x")


AXES = {"hidden": [8], "batch": [2], "timesteps": [6]}


@pytest.fixture
def reported(lstm_bench, write_grid):
    """The facts of a report on a fake grid with these keys."""

    def report(*words, **keys):
        fakes = {"fake": {}, "slow": {"call_s": 0.002}}
        path = write_grid(fake=fakes, implementations=list(fakes), controls=0, **keys)
        done = lstm_bench("grid", path, "--run", "r")
        assert done.returncode == 0, done.stdout + done.stderr
        shown = lstm_bench("report", "--run", "r", "--format", "json", *words)
        assert shown.returncode == 0, shown.stderr
        return json.loads(shown.stdout)

    return report


def test_a_grid_walks_layers_directions_and_lengths(lstm_bench, reported):
    more = {"layers": [1, 2], "directions": [1, 2], "lengths": {"uniform": [0.5, 1]}}
    reported(**AXES, **more)
    done = lstm_bench("compare", "fake", "slow", "--format", "json")
    shapes = {
        Shape(**{axis: each[axis] for axis in vars(NAMES["512,16,25"])})
        for each in json.loads(done.stdout)["shapes"]
    }
    assert {(s.layers, s.directions, s.lengths) for s in shapes} == {
        (layers, directions, "0.5-1") for layers in (1, 2) for directions in (1, 2)
    }
    assert (
        "of 1 shape"
        in lstm_bench("compare", "fake", "slow", "--shape", "8bi,2,6~0.5-1").stdout.lower()
    )


PYANNOTE = {"cpu": "6->8x2bi,2,9~9/4", "cuda": "8,2,9", "source": "a file", "step_s": 0.017}
GIVEN = {"pyannote": PYANNOTE, "dorado": {"cuda": "8,4,9", "source": "another"}}
NO_AXES = dict.fromkeys(("hidden", "batch", "timesteps", "shapes", "input"))


def test_a_report_shows_workloads_by_name_and_names_what_this_device_does_not_run(reported):
    facts = reported("--workloads", workloads=GIVEN, **NO_AXES)
    rows = facts["workloads"]
    assert {row["workload"] for row in rows} == {"pyannote"}
    assert [row["shape"] for row in facts["shapes"]] == ["6->8x2bi,2,9~9/4"]
    fake = next(row for row in rows if row["implementation"] == "fake")
    assert fake["real_time"] == pytest.approx(13 * 0.017 / fake["latency_s"])


def test_a_run_without_workloads_says_how_to_measure_some(lstm_bench, reported):
    reported(**AXES)
    done = lstm_bench("report", "--workloads")
    assert done.returncode == 2
    assert "lstm-bench grid workloads" in done.stderr


@pytest.mark.parametrize(
    ("workloads", "message"),
    [
        ({"a": {"cpu": "8,1,1", "batch": 3}}, "workloads.a: found unknown key 'batch'"),
        ({"a": {"cpu": "8,1"}}, "workloads.a: found '8,1'"),
        ({"a": "8,1,1"}, "workloads.a: found '8,1,1', expected cuda, cpu, source, step_s"),
    ],
)
def test_a_wrong_workload_is_named(lstm_bench, write_grid, workloads, message):
    path = write_grid(workloads=workloads, device="cpu", **NO_AXES)
    done = lstm_bench("grid", path)
    assert done.returncode == 2
    assert message in done.stderr


def test_every_shipped_workload_can_be_measured_and_says_where_it_was_read():
    file = grid.shipped()["workloads"]
    data = {**grid.read(file), "implementations": ["fake"], "fake": {"fake": {}}}
    plans = {
        on: grid.plan({**data, "device": on}, file, device=on, threads=2) for on in ("cpu", "cuda")
    }
    assert not plans["cuda"].left_out
    assert {each.name for each in plans["cpu"].workloads} | {*plans["cpu"].left_out} == {
        each.name for each in plans["cuda"].workloads
    }
    for each in (*plans["cpu"].workloads, *plans["cuda"].workloads):
        assert each.source
    for each in plans["cpu"].workloads:
        assert each.step_s * each.shape.timesteps <= 2.01


def test_a_workload_is_named_where_a_shape_is_asked_for():
    assert grid.named("pyannote", "advise").label == "60->128x4bi,32,589"
    assert grid.named("pyannote", "advise", "cpu").label == "60->128x4bi,1,118"
    assert grid.named("8,1,1", "advise").label == "8,1,1"
    with pytest.raises(LstmBenchError, match=r"'pyanote'.*pyannote"):
        grid.named("pyanote", "advise")
