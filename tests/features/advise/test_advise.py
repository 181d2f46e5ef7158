"""The choice of `lstm-bench advise` at a shape, measured or not, and how good such advice is."""

import itertools
import json
import math
import re
from pathlib import Path

import builders
import pytest
from builders import row

import lstm_bench
from experiments import advice as experiment
from lstm_bench.analysis import summary
from lstm_bench.analysis.results import load
from lstm_bench.features.advise import advice, report, sources
from lstm_bench.features.advise import estimate as guesses
from lstm_bench.model.types import LstmBenchError, Shape
from lstm_bench.model.units import read_size

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "get-advice.md"
NOTE = ROOT / "study" / "notes" / "advice.md"
MIB = 2**20


def around(latency, **more):
    """Rounds of 10 that differ a little, as measured ones do."""
    return {"rounds": [latency * (1 + 0.001 * (n % 3)) for n in range(10)], **more}


def made(*rows, **frameworks):
    """A run whose rows are of these frameworks, else of PyTorch."""
    run = builders.run(*rows)
    for planned in run.manifest["plan"]["implementations"]:
        planned["framework"] = frameworks.get(planned["name"], "pytorch")
    return run


def at_one_shape(**times):
    rows = [row(name.replace("_", "-"), t, **around(t)) for name, t in times.items()]
    return made(*rows, deepbench="deepbench", onnxruntime="onnxruntime")


SHAPE = Shape(8, 1, 1, 8)


def ask(run, shape, now=None, **more):
    """Advice from a run alone."""
    return advice.advise(sources.Search([sources.read(run, shape, now)]), **more)


def test_the_fastest_deployable_row_is_advised_and_the_reference_is_not():
    run = at_one_shape(deepbench=0.001, pytorch=0.004, onnxruntime=0.002, pytorch_script=0.003)
    got = ask(run, SHAPE)
    assert got.advised["implementation"] == "onnxruntime"
    assert got.advised["speedup"] == pytest.approx(2)
    assert got.advised["verdict"] == "faster"
    assert got.source.now == "pytorch"
    assert "deepbench" not in [row["implementation"] for row in got.rows]
    assert report.sentence(got) == (
        "onnxruntime, 2.0x faster than pytorch (1.90x to 2.1x), beyond the noise."
    )


def test_what_runs_now_is_kept_if_nothing_is_faster_beyond_the_noise():
    got = ask(at_one_shape(pytorch=0.00401, onnxruntime=0.004), SHAPE)
    assert got.advised["implementation"] == "pytorch"
    assert report.sentence(got).startswith("Keep pytorch")


def test_what_runs_now_may_be_a_reference():
    got = ask(at_one_shape(deepbench=0.001, pytorch=0.004), SHAPE, now="deepbench")
    assert got.advised["implementation"] == "pytorch"
    assert "slower than deepbench" in report.sentence(got)


def test_accuracy_is_that_of_what_runs_now_unless_it_is_asked_for():
    rows = [
        row("pytorch", 0.004, **around(0.004)),
        row("half", 0.002, **around(0.002, precision="fp16")),
        row("int8", 0.001, **around(0.001, precision="int8")),
    ]
    run = made(*rows)
    names = {
        accuracy: ask(run, SHAPE, accuracy=accuracy).advised["implementation"]
        for accuracy in (None, "fp32", "tf32", "half", "int8", "any")
    }
    assert names == {
        **{None: "pytorch", "fp32": "pytorch", "tf32": "pytorch"},
        **{"half": "half", "int8": "int8", "any": "int8"},
    }
    assert ask(run, SHAPE, now="half").accuracy == "half"
    left = ask(run, SHAPE, now="pytorch").left_out
    assert left == {"int8": "int8 accuracy", "half": "half accuracy"}


def test_a_row_that_needs_more_memory_or_hides_how_much_is_not_advised():
    def needs(size):
        return {} if size is None else {"memory": {"host peak": size}}

    rows = [
        row("pytorch", 0.004, **around(0.004), **needs(MIB)),
        row("large", 0.002, **around(0.002), **needs(3 * MIB)),
        row("silent", 0.001, **around(0.001)),
    ]
    run = made(*rows)
    got = ask(run, SHAPE, memory=2 * MIB)
    assert got.advised["implementation"] == "pytorch"
    assert got.left_out == {"silent": "memory not known", "large": "needs 3 MiB"}
    with pytest.raises(LstmBenchError, match="no row with fp32 accuracy and at most 1 KiB"):
        ask(run, SHAPE, memory=1024)


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2**31), ("1.5 g", 1.5 * 2**30), ("500MB", 500 * MIB), ("64", 64), ("12 KiB", 12288)]
    + [(bad, None) for bad in ("", "much", "-1GiB", "0", "2 GHz", "1e9")],
)
def test_sizes_are_read_as_people_type_them(text, size):
    assert read_size(text) == size


def grid(**laws):
    """A run over a grid of sizes, each row's time by its own law of them."""
    rows = [
        row(name, law(*sizes), *sizes, **around(law(*sizes)))
        for name, law in laws.items()
        for sizes in itertools.product((64, 128, 256), (1, 4, 16), (10, 20, 40))
    ]
    return made(*rows)


def crossing():
    """One row for small batches, one for large: they cross at batch 4."""
    return grid(
        pytorch=lambda h, b, t: 1e-6 * h * b * t,
        onnxruntime=lambda h, b, t: 3e-6 * h * t,
    )


def test_a_shape_between_measured_ones_is_worked_out_and_said_to_be():
    got = ask(crossing(), Shape(100, 1, 15, 100))
    assert not got.source.measured
    assert got.advised["implementation"] == "pytorch"
    assert ask(crossing(), Shape(100, 16, 15, 100)).advised["implementation"] == "onnxruntime"
    assert "was not measured: this is worked out from" in report.sentence(got)
    assert set(got.source.near) <= {Shape(h, 1, t, h) for h in (64, 128) for t in (10, 20)}
    assert "each left out in turn" in " ".join(report.certainty(got))
    (command,) = re.findall(r"measure it:\n    (.*)", report.document(got).written("table"))
    assert command.startswith("lstm-bench grid --shape 100,1,15 -i pytorch")


def test_times_that_follow_a_power_law_come_out_exactly():
    run = grid(pytorch=lambda h, b, t: 1e-9 * h**1.5 * b**0.5 * t)
    (time,) = guesses.seconds_at(summary.times(run.cells), Shape(100, 7, 33, 100))
    assert time == pytest.approx(1e-9 * 100**1.5 * 7**0.5 * 33)


def test_a_measured_shape_keeps_its_time():
    times = summary.times(crossing().cells)
    place = times.shapes.to_numpy().tolist().index([64, 4, 20, 64, 1, 1, "full", False])
    got = guesses.seconds_at(times, Shape(64, 4, 20, 64))
    assert list(got) == pytest.approx(list(times.seconds[place]), rel=1e-12)


def test_a_row_that_failed_nearby_is_not_advised():
    rows = [
        row(name, None if (name, size) == ("fast", 16) else time, 64, size, 10)
        for name, time in (("pytorch", 0.002), ("fast", 0.001))
        for size in (1, 4, 16)
    ]
    got = ask(made(*rows), Shape(64, 8, 10, 64))
    assert [row["implementation"] for row in got.rows] == ["pytorch"]


def test_a_run_in_which_all_failed_nearby_is_refused_and_another_named(tmp_path):
    builders.written(tmp_path / "other", row("a", 0.001, batch=2))
    rows = [row("a", None if b > 1 else 0.001, batch=b) for b in (1, 4)]
    rows += [row("skips", 0.001, batch=b, computes="lstm-skip-input") for b in (1, 4)]
    run = load(builders.written(tmp_path / "r", *rows))
    with pytest.raises(LstmBenchError, match="no time of anything that can be deployed at 8,4,1"):
        ask(run, Shape(8, 4, 1, 8))
    with pytest.raises(LstmBenchError, match="; without --run all runs are asked"):
        ask(load(tmp_path / "other"), Shape(8, 4, 1, 8))


@pytest.mark.parametrize("shape", ["32,1,10", "64,32,10", "64,1,41", "64,1,10,32"])
def test_nothing_is_guessed_outside_of_what_was_measured(shape):
    from lstm_bench.model.shape_filter import parsed

    with pytest.raises(LstmBenchError, match="outside") as error:
        ask(crossing(), parsed(shape))
    assert f"lstm-bench grid --shape {shape} -i pytorch,onnxruntime" in str(error.value)


def test_leaving_out_each_shape_counts_where_advice_was_right():
    times = summary.times(crossing().cells)
    tried = guesses.hold_out(times, guesses.left_out(times), times.names, "pytorch")
    assert tried.shapes == 27
    assert tried.best <= tried.close <= 27
    steady = grid(pytorch=lambda h, b, t: 1e-6 * h * t, slow=lambda h, b, t: 2e-6 * h * t)
    times = summary.times(steady.cells)
    tried = guesses.hold_out(times, guesses.left_out(times), ("pytorch", "slow"), "pytorch")
    assert (tried.best, tried.close, tried.margin) == (27, 27, 0)
    assert math.isnan(tried.loss)
    assert tried.off == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("run", ["h200-paper", "h200-ladder"])
def test_advice_at_left_out_shapes_is_within_5_percent_of_the_best_in_9_of_10_cases(run):
    tried = experiment.held_out(load(ROOT / "results" / run))
    assert sum(row["close"] for row in tried) >= 0.9 * sum(row["shapes"] for row in tried)


def test_the_note_shows_what_the_script_computes():
    runs = (load(ROOT / "results" / run) for run in experiment.SHIPPED)
    drawn = experiment.table([row for run in runs for row in experiment.held_out(run)])
    assert drawn in NOTE.read_text(), "print it anew: python experiments/advice.py"


def test_the_page_quotes_what_the_command_says(lstm_bench):
    ((arguments, answer),) = re.findall(
        r"^\$ lstm-bench (advise .*)\n(.*)$", PAGE.read_text(), re.M
    )
    done = lstm_bench(*arguments.split(), "--results", ROOT / "results")
    assert answer in done.stdout.splitlines()


def test_the_command_answers_in_every_format(lstm_bench, tmp_path):
    builders.written(tmp_path / "results" / "r", row("a", 0.004), row("b", 0.002))
    assert "b, 2.0x faster than a" in lstm_bench("advise", "8,1,1", "--now", "a").stdout
    facts = json.loads(lstm_bench("advise", "8,1,1", "--now", "a", "--format", "json").stdout)
    assert facts["advised"] == "b"
    assert [row["implementation"] for row in facts["rows"]] == ["b", "a"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["8,1"], r"advise: found '8,1', expected hidden,batch,timesteps"),
        (["8,1,1", "--memory", "much"], r"--memory: found 'much', expected a size"),
        (["8,1,1", "--now", "c"], r"--now: r has no time of 'c' at 8,1,1; it has: a, b"),
        (["9,1,1"], r"9,1,1 is outside of what r measured.*lstm-bench grid --shape 9,1,1 "),
        (["8,1,1", "--accuracy", "exact"], r"'exact' is not one of"),
        (["8,1,1", "--run", "q"], r"no run 'q'"),
    ],
)
def test_bad_input_is_refused_with_what_to_type(lstm_bench, tmp_path, arguments, message):
    builders.written(tmp_path / "results" / "r", row("a", 0.004), row("b", 0.002))
    done = lstm_bench("advise", *arguments)
    assert done.returncode == 2
    assert re.search(message, " ".join(done.stderr.split()))


def test_tables_of_a_shipped_run_fit_a_page(lstm_bench):
    run = ["--run", "h200-ladder", "--results", ROOT / "results"]
    for shape in ("512,1,100", "512,4,50"):
        text = lstm_bench("advise", shape, *run).stdout
        assert max(map(len, text.splitlines())) <= 100
        assert "pytorch-tf32 " in text  # what runs now is shown, however slow


def test_the_api_gives_a_data_frame(tmp_path):
    builders.written(tmp_path / "r", row("a", 0.004), row("b", 0.002))
    got = lstm_bench.advise("8,1,1", now="a", run="r", results=tmp_path)
    assert list(got["implementation"]) == ["b", "a"]
    assert list(got["advised"]) == [True, False]
    assert list(got["speedup"]) == pytest.approx([2, 1])
    assert got.attrs["measured"]
    with pytest.raises(LstmBenchError, match="accuracy: found 'exact', expected one of fp32"):
        lstm_bench.advise("8,1,1", accuracy="exact", run="r", results=tmp_path)
    assert got.attrs["advised"] == "b"
