"""The run that `lstm-bench advise` answers from, what it leaves undecided, and what it refuses."""

import json
import re
from pathlib import Path

import pytest
from builders import row, stored

from lstm_bench.analysis.results import load
from lstm_bench.features.advise import advice, on_page, report, sources
from lstm_bench.model.types import LstmBenchError, Shape
from lstm_bench.runs.nodes import Kind

RESULTS = Path(__file__).parents[3] / "results"
SHAPE = Shape(8, 1, 1, 8)
HERE = Kind("cpu", "", "", "Another CPU", 4)


def steady(name, latency, *sizes, **more):
    """Rounds that differ a little, as measured ones do."""
    rounds = [latency * (1 + 0.001 * (n % 3)) for n in range(10)]
    return row(name, latency, *sizes, rounds=rounds, **more)


def restless(name, latency, **more):
    """Rounds that lie so far apart that nothing is sure."""
    return row(name, latency, rounds=[latency * (5 if n % 2 else 0.2) for n in range(10)], **more)


def on_gpu(folder, *rows, **more):
    return stored(folder, *rows, device="cuda", gpu="NVIDIA H200", **more)


def pair(base=4e-3, other=2e-3, *sizes, **more):
    return steady("pytorch", base, *sizes, **more), steady("onnxruntime", other, *sizes, **more)


def search(folder, shape=SHAPE, **more):
    return sources.search(folder, shape, HERE, **more)


def answer(folder, shape=SHAPE, *, without=(), **more):
    return advice.advise(search(folder, shape, **more), without=without)


# ---- the device


def test_a_device_is_asked_for_by_its_name_and_others_with_an_answer_are_named(
    lstm_bench, tmp_path
):
    stored(tmp_path / "results" / "mine", *pair())
    tf32 = {"precision": "tf32"}
    on_gpu(
        tmp_path / "results" / "gpu",
        steady("pytorch-tf32", 1e-3, **tf32),
        steady("pytorch-graph", 2e-4),
    )
    done = lstm_bench("advise", "8,1,1", "--results", "results", "--device", "h200")
    assert "pytorch-graph, 5.0x faster than pytorch-tf32" in done.stdout
    done = lstm_bench("advise", "8,1,1", "--device", "cpu")
    assert "onnxruntime, 2.0x faster than pytorch" in done.stdout
    assert "other devices with an answer: --device H200" in done.stdout
    done = lstm_bench("advise", "8,1,1", "--device", "h300")
    assert done.returncode == 2
    assert "no run on 'h300'" in done.stderr
    assert "with --device 'Test CPU, 2 threads' or --device H200" in done.stderr


def test_a_run_of_this_very_processor_goes_first(tmp_path):
    stored(tmp_path / "other", *pair(), steady("openvino", 1e-3), started="2026-02")
    mine = stored(tmp_path / "mine", *pair())
    manifest = json.loads((mine / "manifest.json").read_text())
    manifest["machine"]["cpu"], manifest["plan"]["settings"]["threads"] = HERE.cpu, HERE.threads
    (mine / "manifest.json").write_text(json.dumps(manifest))
    asked = search(tmp_path)
    assert [source.run.name for source in asked.sources] == ["mine", "other"]
    assert asked.why == "it is of this machine"
    assert asked.peers == []


# ---- the run


def gpu_rows(tf32, fp32, *graphs, batch=1):
    rows = [("pytorch-tf32", tf32), ("pytorch", fp32), *graphs]
    precision = {name: "tf32" if "tf32" in name else "fp32" for name, _ in rows}
    return [steady(n, t, 8, batch, 1, precision=precision[n]) for n, t in rows]


def test_a_run_whose_tf32_is_slower_than_its_fp32_does_not_decide(tmp_path):
    more = ("pytorch-graph", 1e-3), ("pytorch-script", 2e-3)
    on_gpu(tmp_path / "odd", *gpu_rows(8e-3, 4e-3, *more), started="2026-02")
    on_gpu(tmp_path / "sound", *gpu_rows(4e-3, 4e-3, more[0]))
    asked = search(tmp_path, device="h200")
    assert [source.run.name for source in asked.sources] == ["sound", "odd"]
    assert asked.why == "it has less noise"
    got = advice.advise(asked)
    assert got.advised["speedup"] == pytest.approx(4)
    assert got.other_runs == {"odd": pytest.approx(8)}
    assert got.interval[1] == pytest.approx(8)
    assert "in odd pytorch-graph is 8.0x as fast as pytorch-tf32" in report.origin(got)


AROUND = [
    steady(name, seconds, 8, batch, 1)
    for batch in (1, 4)
    for name, seconds in (("pytorch", 4e-3), ("onnxruntime", 2e-3), ("openvino", 1e-3))
]
GRAPHS = ("pytorch-graph", 1e-3), ("pytorch-script", 2e-3)


@pytest.mark.parametrize(
    ("why", "first", "second", "kind", "batch"),
    [
        ("it has the shape itself", pair(4e-3, 2e-3, 8, 2, 1), AROUND, {}, 2),
        (
            *("it has newer versions", pair(), (*pair(), steady("pytorch-script", 3e-3))),
            *({"versions": ({"torch": "2.13.0+cpu"}, {"torch": "2.9.1"})}, 1),
        ),
        (
            *("it has more rows", gpu_rows(4e-3, 4e-3, *GRAPHS), gpu_rows(4e-3, 4e-3, GRAPHS[0])),
            *({"device": ("cuda", "cuda"), "gpu": ("H200", "H200")}, 1),
        ),
        (
            *("it has rows that can be deployed", pair(), [steady("fake", 1e-6)]),
            *({"fake": ("fake", "fake")}, 1),
        ),
    ],
)
def test_a_better_run_goes_before_a_newer_one(tmp_path, why, first, second, kind, batch):
    for number, (rows, started) in enumerate(((first, "2026-01"), (second, "2026-02"))):
        more = {key: values[number] for key, values in kind.items()}
        stored(tmp_path / ("first", "second")[number], *rows, started=started, **more)
    asked = search(tmp_path, Shape(8, batch, 1, 8), device="h200" if "gpu" in kind else None)
    assert [source.run.name for source in asked.sources] == ["first", "second"]
    assert asked.why == why


def test_a_row_that_the_run_lacks_and_another_has_leaves_it_open(tmp_path):
    """A run of the shape itself, as `grid --shape` leaves one, has few rows."""
    on_gpu(tmp_path / "own", *gpu_rows(4e-3, 4e-3, batch=2))
    graph = ("pytorch-graph", 1e-3)
    rows = [each for batch in (1, 4) for each in gpu_rows(4e-3, 4e-3, graph, batch=batch)]
    on_gpu(tmp_path / "around", *rows)
    got = answer(tmp_path, Shape(8, 2, 1, 8), device="h200")
    assert (got.source.run.name, got.source.measured, got.decided) == ("own", True, False)
    assert list(got.missing) == ["pytorch-graph"]
    text = report.sentence(got)
    assert "Keep" not in text
    assert "own does not have: pytorch-graph (4.0x in around" in text
    assert "lstm-bench grid --shape 8,2,1 -i" in report.document(got).written("table")
    assert answer(tmp_path, Shape(8, 2, 1, 8), device="h200", without=["pytorch-graph"]).decided


def test_a_run_without_what_users_run_comes_last_and_says_so(tmp_path):
    strict = steady("pytorch", 4e-3), steady("pytorch-graph", 1e-3)
    on_gpu(tmp_path / "strict", *strict, started="2026-02")
    got = answer(tmp_path, device="cuda")
    assert got.source.now == "pytorch"
    assert "Without any setting you run pytorch-tf32, which strict does not have" in (
        report.sentence(got)
    )
    assert (got.decided, got.accuracy) == (False, "tf32")
    assert advice.to_measure(got) == ["pytorch-graph", "pytorch", "pytorch-tf32"]
    on_gpu(tmp_path / "whole", *gpu_rows(5e-3, 4e-3, ("pytorch-graph", 1e-3)))
    got = answer(tmp_path, device="cuda")
    assert (got.source.run.name, got.source.now) == ("whole", "pytorch-tf32")
    assert got.search.why == "it has what you run now"
    assert answer(tmp_path, device="cuda", now="pytorch").search.why == "it has more rows"


# ---- the choice


@pytest.mark.parametrize(
    ("ratio", "noise", "advised"),
    [
        (1.2, 1.0, "pytorch-tf32-graph"),
        (1.2, 1.5, "pytorch-graph"),
        (1.4, 1.5, "pytorch-tf32-graph"),  # more than 25% is never a tie
    ],
)
def test_a_tie_lies_within_the_noise_and_within_25_percent(tmp_path, ratio, noise, advised):
    graphs = ("pytorch-tf32-graph", 1e-3), ("pytorch-graph", ratio * 1e-3)
    rows, controls = gpu_rows(4e-3, 4e-3, *graphs), gpu_rows(4e-3, 4e-3, *graphs)
    for control in controls:
        control.copy = 2
        control.latency_s *= noise
        control.round_latency_s = [noise * time for time in control.round_latency_s]
    on_gpu(tmp_path / "r", *rows, *controls)
    assert answer(tmp_path, device="h200").advised["implementation"] == advised


def test_a_tie_goes_to_the_more_exact_row_and_is_called_one(tmp_path):
    graphs = ("pytorch-tf32-graph", 1.00e-3), ("pytorch-graph", 1.04e-3)
    on_gpu(tmp_path / "r", *gpu_rows(4e-3, 4e-3, *graphs))
    got = answer(tmp_path, device="h200")
    assert got.advised["implementation"] == "pytorch-graph"
    text = report.sentence(got)
    assert "A tie with pytorch-tf32-graph (1.04x its time" in text
    assert "pytorch-graph is more exact" in text
    near = on_gpu(tmp_path / "now", *gpu_rows(1.04e-3, 1.05e-3))
    got = advice.advise(sources.Search([sources.read(load(near), SHAPE)]))
    assert report.sentence(got).startswith("pytorch, a tie with pytorch-tf32 (1.01x slower")


def test_a_gain_that_may_be_noise_is_not_decided_and_never_kept(lstm_bench, tmp_path):
    rows = steady("pytorch", 2.6e-3), restless("openvino", 1e-3)
    stored(tmp_path / "results" / "r", *rows)
    done = lstm_bench("advise", "8,1,1")
    assert "Not decided: openvino may be 2.6x faster than pytorch" in done.stdout
    assert "lstm-bench grid --shape 8,1,1 -i openvino,pytorch --device cpu" in done.stdout
    assert "Keep" not in done.stdout
    facts = json.loads(lstm_bench("advise", "8,1,1", "--format", "json").stdout)
    choice = facts["decided"], facts["candidate"], facts["advised"]
    assert choice == (False, "openvino", "pytorch")


def test_beside_what_is_not_decided_stands_what_is_sure(tmp_path):
    rows = steady("pytorch", 4e-3), steady("pytorch-script", 2e-3), restless("openvino", 1e-3)
    stored(tmp_path / "r", *rows)
    got = answer(tmp_path)
    assert got.advised["implementation"] == "pytorch-script"
    assert "Sure is pytorch-script, 2.0x faster" in report.sentence(got)


@pytest.mark.parametrize("run", ["h200-kernel", "h200-warpgroups"])
def test_references_are_never_advised_whatever_the_run(lstm_bench, run):
    done = lstm_bench("advise", "1024,64,100", "--run", run, "--results", RESULTS)
    assert done.returncode == 2
    assert "has no time of anything that can be deployed" in done.stderr
    assert "-i pytorch" in done.stderr
    assert on_page.on_page(load(RESULTS / run)) is None


def test_rows_can_be_left_out_and_their_code_be_asked_for(lstm_bench, tmp_path):
    stored(tmp_path / "results" / "r", *pair(), steady("pytorch-script", 1e-3))
    assert "pytorch-script, 4.0x" in lstm_bench("advise", "8,1,1").stdout
    flags = "--without", "pytorch-script", "--without", "onnxruntime"
    done = lstm_bench("advise", "8,1,1", *flags)
    assert "Keep pytorch" in done.stdout
    assert "pytorch-script (--without), onnxruntime (--without)" in done.stdout
    done = lstm_bench("advise", "8,1,1", "--code", "pytorch-trace")
    assert "pytorch-trace, from lstm" in done.stdout
    assert "torch.jit.trace" in done.stdout
    for flag, name, message in (
        ("--without", "pytorhc", "did you mean 'pytorch'"),
        ("--code", "pytorhc", "did you mean 'pytorch'"),
        ("--code", "deepbench", "no program can use deepbench"),
    ):
        done = lstm_bench("advise", "8,1,1", flag, name)
        assert done.returncode == 2
        assert message in done.stderr


def test_the_advised_row_is_marked_in_the_table_unless_it_is_not_decided(lstm_bench, tmp_path):
    stored(tmp_path / "results" / "r", *pair())
    (line,) = [x for x in lstm_bench("advise", "8,1,1").stdout.splitlines() if "advised" in x]
    assert line.startswith("onnxruntime ")
    assert "faster, advised" in line
    stored(tmp_path / "results" / "q", steady("pytorch", 2.6e-3), restless("openvino", 1e-3))
    assert "advised" not in lstm_bench("advise", "8,1,1", "--run", "q").stdout


def test_a_gain_is_that_of_the_latencies_that_stand_beside_it(lstm_bench, tmp_path):
    stored(tmp_path / "results" / "r", *pair(158.6e-6, 140.4e-6))  # 1.13 unless rounded first
    done = lstm_bench("advise", "8,1,1")
    assert "onnxruntime, 1.14x faster than pytorch" in done.stdout
    assert re.search(r"onnxruntime +fp32 +140 us +1.14x", done.stdout)


def test_where_a_cpu_answers_by_default_the_first_lines_name_the_gpu_and_what_to_type(
    lstm_bench, tmp_path
):
    stored(tmp_path / "results" / "here", *pair())
    on_gpu(tmp_path / "results" / "there", *gpu_rows(5e-3, 4e-3))
    line = "NVIDIA H200 has an answer too: `lstm-bench advise 8,1,1 --device H200`"
    assert lstm_bench("advise", "8,1,1").stdout.splitlines()[1] == line
    assert line not in lstm_bench("advise", "8,1,1", "--device", "cpu").stdout
    assert "pytorch" in lstm_bench("advise", "8,1,1", "--device", "H200").stdout


def test_code_of_our_kernels_says_how_to_install_them(lstm_bench):
    done = lstm_bench("advise", "512,1,25", "--device", "h200", "--results", RESULTS)
    assert "import lstm_kernels  # pip install ./lstm_kernels" in done.stdout


# ---- the shipped runs of the H200


def on_h200(*shape, **more):
    return answer(RESULTS, Shape(*shape, shape[0]), device="h200", **more)


def test_the_runs_of_the_h200_give_one_answer_for_a_shape_that_none_has():
    got = on_h200(320, 4, 60)
    assert (got.source.run.name, got.source.now) == ("h200-ladder", "pytorch-tf32")
    assert got.advised["implementation"] == "pytorch-persistent"  # 1.13x slower is a tie
    assert [row["implementation"] for row in got.choice.ties] == ["pytorch-tf32-persistent"]
    assert got.advised["speedup"] == pytest.approx(6.4, abs=0.05)
    assert list(got.other_runs) == ["h200-devices"]
    low, high = got.interval
    assert low < 4
    assert high == pytest.approx(got.other_runs["h200-devices"])
    assert got.decided


@pytest.mark.parametrize(
    ("shape", "run", "advised", "missing"),
    [
        ((256, 1, 150), "h200-deepbench", "pytorch-graph", "pytorch-persistent"),
        ((2048, 4, 25), "h200-deepbench", "pytorch-graph", "pytorch-tf32-persistent"),
        ((128, 1, 1), "h200-devices", "pytorch-graph", "pytorch-tf32-persistent"),
    ],
)
def test_what_the_only_run_lacks_is_named(shape, run, advised, missing):
    got = on_h200(*shape)
    assert (got.source.run.name, got.advised["implementation"]) == (run, advised)
    assert missing in got.missing
    assert not got.decided
    assert report.sentence(got).startswith(f"Not decided: {advised}")


# ---- nothing to answer from


def test_an_empty_folder_of_results_is_said_to_be_empty(lstm_bench, tmp_path):
    (tmp_path / "none").mkdir()
    done = lstm_bench("advise", "256,1,50", "--results", "none")
    assert done.returncode == 2
    assert "no run in none" in done.stderr
    assert f"--results {RESULTS}" in done.stderr


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_runs_of_ones_own_the_projects_answer_and_are_said_to(lstm_bench, tmp_path, device):
    done = lstm_bench("advise", "256,1,50", "--device", device)
    assert done.returncode == 0
    assert f"from the project's own runs, {RESULTS}" in " ".join(done.stdout.split())
    stored(tmp_path / "results" / "mine", *pair(4e-3, 2e-3, 256, 1, 50))
    done = lstm_bench("advise", "256,1,50", "--device", device)
    assert ("project's own" in done.stdout) == (device == "cuda")
    assert ("devices with an answer: --device H200" in done.stdout) == (device == "cpu")


@pytest.mark.parametrize("shape", ["0,1,1", "8,1,0", "100000,1,1"])
def test_a_shape_that_grid_refuses_is_refused_alike(lstm_bench, shape):
    done = lstm_bench("advise", shape, "--results", RESULTS)
    grid = lstm_bench("grid", "--shape", shape, "--dry-run")
    assert (done.returncode, grid.returncode) == (2, 2)
    assert done.stderr.replace("advise ", "--shape ") == grid.stderr


# ---- what to measure


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Lets `run` leave a run of these rows behind and end so; gives what it was called with."""
    from lstm_bench.commands import run as command

    def ready(*rows, code=0):
        asked = []

        def measure(options):
            asked.append(list(options.implementations))
            folder = stored(tmp_path / options.name, *rows)
            return command.RunResult(folder, (), code, interrupted=code == 130)

        monkeypatch.setattr(command, "run", measure)
        monkeypatch.setattr("lstm_bench.driver.machine.kind", lambda: HERE)
        return asked

    return ready


def run(folder, *arguments):
    from lstm_bench.features.advise.command import advise

    advise.main([*arguments, "--results", str(folder)], standalone_mode=False)


def test_measure_runs_the_rows_that_could_win_and_answers_from_that(tmp_path, measured, capsys):
    asked = measured(*pair(3e-3, 1e-3, 8, 2))
    stored(tmp_path / "r", *(each for b in (1, 4) for each in pair(2e-3, 1e-3, 8, b)))
    run(tmp_path, "8,2,1", "--run", "r", "--measure")
    assert asked == [["onnxruntime", "pytorch"]]
    assert "onnxruntime, 3.0x faster than pytorch" in capsys.readouterr().out


def test_after_a_stop_before_the_first_cell_measuring_goes_on(tmp_path, measured, capsys):
    """It leaves a run that has the shape in its plan, and nothing else."""
    stored(tmp_path / "advise-8-1-1", *pair())
    (tmp_path / "advise-8-1-1" / "records.jsonl").write_text("")
    asked = measured(code=130)
    with pytest.raises(SystemExit) as ended:
        run(tmp_path, "8,1,1", "--measure")
    assert ended.value.code == 130
    measured(*pair())
    with pytest.raises(LstmBenchError, match="there is nothing to advise from"):
        run(tmp_path, "8,1,1")
    run(tmp_path, "8,1,1", "--measure")
    assert {"pytorch", "onnxruntime"} <= set(asked[0])
    assert "onnxruntime, 2.0x faster than pytorch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "frameworks"),
    [
        (["fake"], {"fake": "fake"}),
        (["quick", "slow"], {"quick": "fake-own", "slow": "fake"}),
        (["deepbench"], {"deepbench": "deepbench"}),
    ],
    ids=["fake", "scripted", "reference"],
)
def test_after_a_run_of_nothing_that_can_be_deployed_real_rows_are_measured(
    tmp_path, measured, rows, frameworks
):
    stored(tmp_path / "r", *(steady(name, 1e-3, 8, 2) for name in rows), **frameworks)
    asked = measured(*pair())
    run(tmp_path, "8,1,1", "--measure")
    assert {"pytorch", "onnxruntime"} <= set(asked[0])
    assert not {*rows} & {*asked[0]}


def test_of_two_versions_the_rows_are_measured_that_grid_can_measure(tmp_path, measured):
    rows = [steady(name, t, 8, b) for b in (1, 4) for name, t in (("pytorch", 2e-3), NEW)]
    stored(tmp_path / "r", *rows)
    asked = measured(*pair(4e-3, 2e-3, 8, 2))
    run(tmp_path, "8,2,1", "--measure")
    assert asked == [["pytorch"]]


NEW = ("pytorch~new", 1e-3)


def test_measuring_for_another_device_is_refused(tmp_path, measured):
    rows = [each for batch in (1, 4) for each in gpu_rows(4e-3, 4e-3, batch=batch)]
    on_gpu(tmp_path / "r", *rows)
    asked = measured(*pair())
    with pytest.raises(LstmBenchError, match="measures here, on Another CPU, 4 threads"):
        run(tmp_path, "8,2,1", "--device", "h200", "--measure")
    assert asked == []


def test_a_run_that_lacks_the_fastest_row_goes_behind_one_that_has_it(lstm_bench):
    """h200-deepbench has the shape and less noise, but not the drop-in."""
    shipped = ["--device", "h200", "--results", RESULTS]
    done = lstm_bench("advise", "512,64,25", *shipped)
    assert "pytorch-tf32-persistent, 5.3x faster than pytorch-tf32" in done.stdout
    assert "it has the fastest row" in done.stdout
