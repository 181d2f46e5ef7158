"""The command line as a user meets it: end to end, in a folder of their own."""

import dataclasses
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections import Counter
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from conftest import REPOSITORY, command, interpreter, only_run, records, start
from fakes import children, gone, wait_for_records, whole_lines

from lstm_bench import __version__
from lstm_bench import frameworks as registry
from lstm_bench.cli import COMMANDS, main
from lstm_bench.model.shape import Shape
from lstm_bench.report import dry_run
from lstm_bench.runs import grid as grids
from lstm_bench.runs import run_folders, store
from lstm_bench.runs.estimate import Estimate

#: A fake that takes real time, to be stopped; without the seconds that the machine's limits take.
SLOW = {
    "fake": {"real": {"real": True, "call_s": 0.02}},
    "implementations": ["real"],
    "environments": {"deepbench": "/bin/false"},
}


def test_a_grid_is_run_reported_and_kept(typed, write_grid, tmp_path):
    fakes = {"fake": {}, "slower": {"call_s": 0.002}, "bad": {"fault": "nan"}}
    grid = write_grid(fake=fakes, implementations=list(fakes), controls=1)
    done = typed("grid", grid)
    assert done.returncode == 1, done.stderr  # a wrong cell is a failure
    run = only_run(tmp_path)
    actual = records(run)
    assert len(actual) == 2 * 4
    assert {r["status"] for r in actual} == {"ok", "wrong"}
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["plan"]["settings"]["seed"] == 1
    assert {"cpu", "threads", "governor", "git", "gpus"} <= set(manifest["machine"])
    for text in (done.stdout, typed("report").stdout):
        assert "2.00x" in text
        assert "noise floor" in text
        assert "output is off by nan" in text
    assert f"Next: lstm-bench report --run {run.name} --html page.html" in done.stdout
    assert f"      lstm-bench compare A B --run {run.name}\n" in done.stdout


def test_output_fits_100_columns_and_has_no_escape_codes_in_a_pipe(lstm_bench, write_grid):
    fakes = {f"fake-with-a-long-name-{n}": {"call_s": 0.001 * (n + 1)} for n in range(3)}
    done = lstm_bench("grid", write_grid(fake=fakes, implementations=list(fakes)))
    for command_line in (["report"], ["list"], ["--help"], ["grid", "--help"]):
        done.stdout += lstm_bench(*command_line).stdout
    assert "\x1b" not in done.stdout
    assert [line for line in done.stdout.splitlines() if len(line) > 100] == []


def test_a_dry_run_says_what_cannot_be_done_in_time(write_grid):
    slow = {"call_s": 11.0, "real": True}  # twice before it is timed
    grid = write_grid(fake={"slow": slow, "fake": {}}, implementations=["slow", "fake"])
    plan = grids.plan(grids.read(grid), grid, device="cpu", threads=2)
    text = dry_run.document(plan, plan.all_cells(), {}).written("table")
    assert "2 shapes may time out" in text
    assert "longer than sampling.timeout_s, 20 s;" in " ".join(text.split())


def test_dry_run_prints_the_plan_and_writes_nothing(lstm_bench, write_grid, tmp_path):
    done = lstm_bench("grid", write_grid(controls=2), "--dry-run", code=0)
    assert "2 shapes x 1 implementation + 1 A/A control" in done.stdout  # a second has no twin
    assert "4 cells" in done.stdout
    assert "\n\n\n" not in done.stdout
    assert not (tmp_path / "results").exists()


def test_what_is_asked_for_in_vain_is_said_before_anything_runs(lstm_bench, write_grid):
    done = lstm_bench("grid", write_grid(), "--dry-run", "--energy", "--device", "cpu")
    assert "energy: it is read from an NVIDIA GPU" in done.stderr
    done = lstm_bench("grid", write_grid(), "--dry-run", "--threads", "4000", "--device", "cpu")
    assert "4000 threads on" in done.stderr
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    done = lstm_bench("grid", write_grid(), "--dry-run", "--device", "cuda", env=env, code=0)
    assert "the driver shows no GPU here" in done.stderr


def test_where_x_lies_is_an_option_of_a_grid_on_a_gpu(lstm_bench, write_grid):
    pinned = ("grid", write_grid(), "--inputs", "pinned", "--dry-run")
    done = lstm_bench(*pinned, "--device", "cpu", code=2)
    assert "--inputs device, or --device cuda" in done.stderr
    assert "x and y in pinned host memory" in lstm_bench(*pinned, "--device", "cuda", code=0).stdout
    assert "cannot be changed" in lstm_bench("grid", "--resume", "--inputs", "pinned").stderr


def test_the_pass_is_an_option_of_what_measures_and_of_what_reads(lstm_bench, write_grid, tmp_path):
    both = ("--pass", "inference", "--pass", "training")
    run = ("--run", "both")
    rows = {"implementations": ["fake", "slow"], "fake": {"slow": {"call_s": 0.01}}, "controls": 0}
    lstm_bench("grid", write_grid(**rows), *both, *run, code=0)
    cells = records(tmp_path / "results" / "both")
    assert Counter(cell["shape"]["training"] for cell in cells) == {False: 4, True: 4}
    assert {cell["status"] for cell in cells} == {"ok"}
    assert "inference and training together" in lstm_bench("report", *run).stdout
    for flags in (
        ["--pass", "training"],
        ["--where", "batch>=1", "--pass", "training"],
        ["--pass", "training", "--where", "batch>=1"],
        ["--where", "pass=training"],
    ):
        shown = lstm_bench("report", *run, *flags, code=0).stdout
        (only,) = re.findall(r"^only (.*): 2 of 4 shapes", shown, re.M)
        assert only.split(" and ").count("pass=training") == 1
        assert ("batch>=1" in only) == ("batch>=1" in flags)
        assert "together" not in shown
        compared = lstm_bench("compare", "fake", "slow", *run, *flags, "--format", "json").stdout
        assert [each["training"] for each in json.loads(compared)["shapes"]] == [True] * 2
    sides = ("--as", "slow=fake", "--pass", "training", "--format", "json")
    gated = lstm_bench("gate", "both", *sides)
    labels = {each["shape"] for each in json.loads(gated.stdout)["verdicts"]}
    assert {label for label in labels if "," in label} == {"3,2,4 training", "5,2,4 training"}
    advised = lstm_bench("advise", "3,2,4", "--pass", "training", code=0).stdout
    assert "3,2,4 training" in advised
    assert "`lstm-bench advise 3,2,4 --code fake`" in advised
    profiled = ("profile", "fake", "--shape", "3,2,4", "--pass", "training", "--device", "cpu")
    assert "3,2,4 training" in lstm_bench(*profiled).stdout + lstm_bench(*profiled).stderr
    lone = lstm_bench("report", *run, "--shape", "3,2,4 training", code=0).stdout
    assert "only shape=3,2,4 training" in lone


def test_implementations_can_be_listed_and_repeated(lstm_bench, write_grid):
    done = lstm_bench("grid", write_grid(), "-i", "fake,pytorch", "-i", "tf-mode1", "--dry-run")
    assert all(f"\n{name} " in done.stdout for name in ("fake", "pytorch", "tf-mode1"))


def test_two_runs_that_begin_in_the_same_second_are_two(tmp_path):
    for _ in range(3):  # a second may end in between
        name = run_folders.new_run_name(tmp_path, "grid")
        (tmp_path / name).mkdir()  # fails where it is there


def test_a_run_can_be_named_and_put_elsewhere(lstm_bench, write_grid, tmp_path):
    lstm_bench("grid", write_grid(), "--run", "mine", "--results", "else/where", code=0)
    assert len(records(tmp_path / "else" / "where" / "mine")) == 2
    again = lstm_bench("grid", write_grid(), "--run", "mine", "--results", "else/where", code=2)
    assert "--resume mine" in again.stderr


def test_flags_reach_the_plan(lstm_bench, write_grid, tmp_path):
    lstm_bench("grid", write_grid(), "--fast", "--deepbench", "--threads", "1", "--run", "r")
    plan = json.loads((tmp_path / "results" / "r" / "manifest.json").read_text())["plan"]
    assert plan["sampling"]["rounds"] == 5
    assert plan["sampling"]["queued_calls"] == 100
    assert plan["settings"]["threads"] == 1


BAD = [
    (["grid"], "expected a grid, such as"),
    (["grid", "none.yaml"], "none.yaml: no such file"),
    (["grid", "papre"], "papre: no such file; did you mean 'paper'"),
    (["grid", "grid.yaml", "-i", "pytorch-apm"], "did you mean 'pytorch-amp'"),
    (["grid", "grid.yaml", "-i", ""], "no implementation is called ''"),
    (["grid", "grid.yaml", "--python", "fake"], "expected FRAMEWORK=PATH"),
    (["grid", "grid.yaml", "--python", "fake=/no/python"], "no Python interpreter"),
    (["grid", "grid.yaml", "--python", "fkae=/no/python"], "did you mean 'fake'"),
    (["grid", "grid.yaml", "--budget", "soon"], "expected a time such as 90s"),
    (["grid", "grid.yaml", "--run", "../x"], "--run: found '../x'"),
    (["grid", "grid.yaml", "--fast", "--rigorous"], "exclude each other"),
    (["grid", "grid.yaml", "--threads", "0"], "--threads"),
    (["grid", "grid.yaml", "--retry-failed"], "goes with --resume"),
    (["grid", "--resume"], "no run"),
    (["grid", "grid.yaml", "--resume", "x"], "no run 'x' in results"),
    (["grid", "--run", "x", "--resume"], "to go on with one: --resume x"),
    (["grid", "--shape", "320,4"], "--shape: found '320,4', expected hidden,batch,timesteps as in"),
    (["grid", "grid.yaml", "--shape", "3,2,0"], "--shape 3,2,0: timesteps: found 0, expected a"),
    (
        ["grid", "grid.yaml", "--shap", "3,2,4"],
        "No such option: --shap (Possible options: --help, --shape",
    ),
    (["report", "--quux"], "No such option: --quux\ntry `"),
    (["report"], "start one with"),
    (["report", "--run", "x"], "no run 'x' in results, nor any other; start one with `lstm-bench"),
    (["gird"], "did you mean 'grid'"),
    (["list", "--python", "x=y"], "no framework is called 'x'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input_exits_2_in_a_few_words_and_writes_nothing(
    lstm_bench, write_grid, tmp_path, arguments, message
):
    write_grid()
    done = lstm_bench(*arguments, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_missing_framework_exits_2_with_the_remedy_and_can_be_skipped(
    lstm_bench, write_grid, tmp_path
):
    bare = interpreter(tmp_path, "bare-python", 'set -- -S "$@"', "unset PYTHONPATH")
    grid = write_grid(implementations=["fake", "tf-mode0"])
    done = lstm_bench("grid", grid, "--python", f"tensorflow={bare}", code=2)
    assert f"no tensorflow, numpy in {bare}: pip install tensorflow" in done.stderr
    assert "--skip-missing" in done.stderr
    assert not (tmp_path / "results").exists()
    done = lstm_bench("grid", grid, "--python", f"tensorflow={bare}", "--skip-missing", code=0)
    actual = {r["implementation"]: r["status"] for r in records(only_run(tmp_path))}
    assert actual == {"fake": "ok", "tf-mode0": "missing"}
    done = lstm_bench("grid", grid, "--python", f"tensorflow={bare}", "--dry-run", "--run", "r")
    text = " ".join(done.stdout.split())
    assert f"no tensorflow, numpy in {bare}: pip install tensorflow" in text
    assert "2 of them not installed" in text
    lstm_bench("grid", "--resume", "--python", f"tensorflow={bare}", code=2)


@pytest.mark.parametrize("asked", ["smoke", "grids/smoke.yaml"])
def test_a_shipped_grid_is_run_from_any_folder(lstm_bench, tmp_path, asked):
    done = lstm_bench("grid", asked, "--dry-run", "--skip-missing", code=0)
    assert "smoke: 4 shapes" in done.stdout
    assert f"{Path('grids', 'smoke.yaml')}" in done.stderr  # which file that is
    assert not list(tmp_path.iterdir())


def test_help_names_every_shipped_grid(lstm_bench):
    text = lstm_bench("grid", "--help").stdout
    assert [name for name in grids.shipped() if name not in text] == []


def test_every_option_is_explained_and_none_in_the_words_of_the_library(lstm_bench):
    for name in COMMANDS:
        loaded = main.get_command(click.Context(main), name)
        options = [option for option in loaded.params if isinstance(option, click.Option)]
        assert [option.opts for option in options if not option.help] == [], name
        text = lstm_bench(name, "--help").stdout
        assert not re.search(r"\b(INTEGER|RANGE|FLOAT|TEXT)\b", text), name


def test_help_and_version_need_nothing(typed):
    assert "doctor" in typed("--help").stdout
    assert __version__ in typed("--version").stdout


def test_list_names_every_implementation_and_a_remedy_for_what_is_missing(lstm_bench, tmp_path):
    bare = interpreter(tmp_path, "bare-python", 'set -- -S "$@"', "unset PYTHONPATH")
    done = lstm_bench("list", "--device", "cpu", "--python", f"tensorflow={bare}", code=0)
    assert all(name in done.stdout for name in registry.IMPLEMENTATIONS)
    assert "pip install tensorflow" in done.stdout


def test_doctor_describes_the_machine_and_measures_its_noise(lstm_bench):
    brief = lstm_bench("doctor", "--no-noise", code=0)
    for word in ("machine", "threads", "governor", "gpu", "tensorflow"):
        assert word in brief.stdout


# stopping, dying, going on


def wait_for_the_hang(log: Path) -> None:
    while not (log.exists() and "hang" in log.read_text()):
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_an_interrupted_run_keeps_everything_and_can_be_resumed(
    lstm_bench, write_grid, tmp_path, number, code
):
    grid = write_grid(**SLOW, hidden=[1, 2, 3, 4])
    process = start(tmp_path, "grid", grid, "--run", "r")
    run = tmp_path / "results" / "r"
    wait_for_records(run, process)
    workers = children(process.pid)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert "lstm-bench grid --resume r" in output
    assert gone(workers)
    before = whole_lines(run)
    assert 1 <= len(before) < 4 + 1
    done = lstm_bench("grid", "--resume", "--python", "deepbench=/bin/false", code=0)
    legs = [json.loads(line) for line in (run / "legs.jsonl").read_text().splitlines()]
    share = sum(leg["timed_s"] for leg in legs) / sum(leg["wall_s"] for leg in legs)
    assert len(legs) == 2
    begun = json.loads((run / "manifest.json").read_text())["machine"]
    assert [leg["machine"]["git"] for leg in legs] == [begun["git"]] * 2
    (line,) = [line for line in done.stdout.splitlines() if "with the 1 session before it" in line]
    assert line.endswith(f", {share:.1%} of it inside timed calls")
    assert whole_lines(run)[: len(before)] == before
    finished = [r for r in records(run) if r["status"] == "ok"]
    assert sorted(r["shape"]["hidden"] for r in finished) == [1, 2, 3, 4]


def test_a_second_ctrl_c_does_not_wait_for_the_block(lstm_bench, write_grid, tmp_path):
    fakes = {"fake": {}, "stuck": {"fault": "hang", "when": "measure"}}
    sampling = {"rounds": 3, "max_rounds": 3, "warmup_s": 0.01, "timeout_s": 600}
    grid = write_grid(fake=fakes, implementations=list(fakes), sampling=sampling)
    process = start(tmp_path, "grid", grid, "--run", "r")
    wait_for_the_hang(tmp_path / "results" / "r" / "logs" / "fake-1.log")
    workers = children(process.pid)
    process.send_signal(signal.SIGINT)
    assert "once more to stop now" in process.stderr.readline() + process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert gone(workers)
    assert lstm_bench("report", "--run", "r").returncode == 0


def test_ctrl_c_that_ends_the_reader_first_costs_no_cell(write_grid, tmp_path):
    """In `grid ... 2>&1 | tee log`, both get it."""
    grid = write_grid(**SLOW, hidden=list(range(1, 100)))
    process = start(tmp_path, "grid", grid, "--run", "r")
    wait_for_records(tmp_path / "results" / "r", process)
    process.stdout.close()
    process.stderr.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    actual = {record["status"] for record in records(tmp_path / "results" / "r")}
    assert actual <= {"ok", "interrupted"}


def test_what_is_left_to_retry_is_said_with_the_flag(lstm_bench, write_grid):
    fakes = {name: {"fault": "error", "when": "build"} for name in ("one", "two")}
    grid = write_grid(fake=fakes, implementations=list(fakes))
    assert lstm_bench("grid", grid, "--run", "r").returncode == 1
    done = lstm_bench("grid", "--resume", "r", "--retry-failed", "--budget", "0.001s")
    assert "--resume r --retry-failed" in done.stdout


@pytest.mark.processes
def test_profiles_that_were_lost_can_be_had_later(lstm_bench, write_grid, tmp_path):
    grid = write_grid(fake={"fake": {"profile": "die"}})
    done = lstm_bench("grid", grid, "--run", "r", "--profile", code=0)
    run = tmp_path / "results" / "r"
    before = records(run)
    done = lstm_bench("grid", "--resume", "r")
    assert f"left to measure; --retry-failed measures {len(before)} cells again" in done.stdout
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["plan"]["implementations"][0]["options"]["profile"] = None  # the library is mended
    (run / "manifest.json").write_text(json.dumps(manifest))
    done = lstm_bench("grid", "--resume", "r", "--retry-failed", code=0)
    assert "not profiled" not in done.stdout
    assert len(records(run)) == 2 * len(before)  # the later record of a cell counts


def test_stopping_does_not_wait_for_a_build_that_hangs(lstm_bench, write_grid, tmp_path):
    fakes = {"stuck": {"fault": "hang", "when": "build"}}
    sampling = {"rounds": 3, "max_rounds": 3, "timeout_s": 600}
    grid = write_grid(fake=fakes, implementations=list(fakes), sampling=sampling)
    process = start(tmp_path, "grid", grid, "--run", "r")
    wait_for_the_hang(tmp_path / "results" / "r" / "logs" / "fake-1.log")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "2 of 2 cells left" in output
    assert records(tmp_path / "results" / "r") == []


def test_a_reader_that_goes_away_does_not_end_the_run(write_grid, tmp_path):
    grid = write_grid(**SLOW)
    process = start(tmp_path, "grid", grid, "--run", "r")
    process.stdout.close()
    process.wait(timeout=60)
    assert [r["status"] for r in records(tmp_path / "results" / "r")] == ["ok", "ok"]


REPORT = ("report", "--run", "h200-smoke", "--results", REPOSITORY / "results")


def test_output_that_cannot_be_written_is_said_without_a_traceback():
    with open("/dev/full", "w") as full:
        done = subprocess.run(command(*REPORT), stdout=full, stderr=subprocess.PIPE, text=True)
    words = "lstm-bench: cannot write the output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, words)


def test_without_an_output_a_command_runs_all_the_same():
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command(*REPORT)]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_resuming_a_finished_run_changes_nothing_and_says_so(lstm_bench, write_grid, tmp_path):
    lstm_bench("grid", write_grid(), "--run", "r")
    files = {p: p.read_bytes() for p in (tmp_path / "results" / "r").iterdir() if p.is_file()}
    done = lstm_bench("grid", "--resume", "r")
    assert (done.returncode, done.stdout) == (
        0,
        "results/r is complete: nothing is left to measure\n",
    )
    assert {p: p.read_bytes() for p in files} == files


def test_a_run_is_not_mixed_with_another_machines_or_versions(lstm_bench, write_grid, tmp_path):
    lstm_bench("grid", write_grid(), "--run", "r")
    path = tmp_path / "results" / "r" / "manifest.json"
    manifest = json.loads(path.read_text())
    for change in (
        {"machine": {**manifest["machine"], "cpu": "a Cray-1"}},
        {"interpreters": {"fake": {"versions": {"numpy": "0.1"}}}},
    ):
        path.write_text(json.dumps({**manifest, **change}))
        assert "other circumstances" in lstm_bench("grid", "--resume", "r", code=2).stderr


@pytest.mark.parametrize("plan", [{}, {"name": "g"}, {"name": "g", "shapes": [3]}])
def test_a_manifest_that_was_tampered_with_is_refused_without_a_traceback(
    lstm_bench, write_grid, tmp_path, plan
):
    lstm_bench("grid", write_grid(), "--run", "r")
    path = tmp_path / "results" / "r" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "plan": plan}))
    for arguments in (["grid", "--resume", "r"], ["report", "--run", "r"]):
        assert "Traceback" not in lstm_bench(*arguments, code=2).stderr


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("unsupported", "Once they are mended: lstm-bench grid --resume r; what can run"),
        ("error", "Once they are mended: lstm-bench grid --resume r --retry-failed; what can"),
    ],
)
def test_a_run_in_which_nothing_could_run_promises_no_report(lstm_bench, write_grid, fault, words):
    done = lstm_bench("grid", write_grid(fake={"fake": {"fault": fault}}), "--run", "r", code=1)
    assert f"Nothing was measured, for the reasons above. {words}" in done.stdout
    assert "Next:" not in done.stdout
    assert "to that of none" not in done.stdout


@pytest.mark.parametrize("flags", [[], ["--budget", "1m"]])
def test_a_run_of_which_nothing_was_begun_shows_no_time(lstm_bench, write_grid, flags):
    done = lstm_bench("grid", write_grid(implementations=["deepbench-graph"]), *flags, code=1)
    assert "runs on cuda only" in done.stdout
    assert not re.search(r"in all|\(\)", done.stdout)


def test_a_gpu_run_without_a_gpu_is_refused(lstm_bench, write_grid, tmp_path):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    done = lstm_bench("grid", write_grid(), "--device", "cuda", env=env, code=2)
    assert "the driver shows no GPU here" in done.stderr
    assert not (tmp_path / "results").exists()
    assert "These run here" in lstm_bench("list", "--device", "cuda", env=env).stdout


def test_two_drivers_cannot_write_one_run(lstm_bench, write_grid, tmp_path):
    lstm_bench("grid", write_grid(), "--run", "r")
    run = tmp_path / "results" / "r"
    (run / "records.jsonl").unlink()
    with store.Store(run):
        done = lstm_bench("grid", "--resume", "r", code=2)
        assert "another lstm-bench is writing this run" in done.stderr
        lstm_bench("report", "--run", "r", code=0)  # reading is always possible


def test_a_resumed_run_keeps_its_plan(lstm_bench, write_grid):
    grid = write_grid()
    lstm_bench("grid", grid, "--run", "r")
    grid.write_text(grid.read_text().replace("batch: 2", "batch: 7"))
    done = lstm_bench("grid", grid, "--resume", code=2)
    assert "another plan" in done.stderr
    assert done.stderr.strip().endswith("or leave --resume out")
    done = lstm_bench("grid", grid, "--run", "r", "--resume")
    assert done.stderr.strip().endswith("or choose another --run name")
    assert lstm_bench("grid", "--resume", "r", "--fast").returncode == 2
    assert "--resume r" in lstm_bench("grid", "--resume", "--run", "r").stderr


def test_one_command_starts_a_grid_and_goes_on_with_it(lstm_bench, write_grid, tmp_path):
    """It can then stand in a job script, which may be started any number of times."""
    grid, results = write_grid(), tmp_path / "results"
    begun = lstm_bench("grid", grid, "--resume", code=0)
    run = only_run(tmp_path)
    assert f"nothing to resume in results: starting {run.name}" in begun.stderr
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    (run / "records.jsonl").write_text(lines[0])  # as if it had been killed there
    assert lstm_bench("grid", grid, "--resume").returncode == 0
    assert [only_run(tmp_path), len(records(run))] == [run, len(lines)]
    lstm_bench("grid", grid, "--run", "other", "--shape", "3,1,1")  # newer, of another plan
    assert f"{run.name} is complete" in lstm_bench("grid", grid, "--resume").stdout
    for word in ("Next: lstm-bench report --run mine", "results/mine is complete"):
        assert word in lstm_bench("grid", grid, "--run", "mine", "--resume").stdout
    assert sorted(p.name for p in results.iterdir()) == sorted([run.name, "mine", "other"])


def test_a_shape_is_measured_without_a_file(lstm_bench, tmp_path):
    words = ["grid", "-i", "fake", "--device", "cpu", "--shape", "6,2,5"]
    lstm_bench(*words, code=0)
    run = only_run(tmp_path)
    assert run.name.startswith("shape-6-2-5-")
    assert {Shape(**r["shape"]) for r in records(run)} == {Shape(6, 2, 5, 6)}
    assert "is complete" in lstm_bench(*words, "--resume").stdout
    words = ["grid", "--shape", "6,2,5", "--shape", "6,2,5,3", "--dry-run", "--skip-missing"]
    planned = lstm_bench(*words).stdout
    assert "shapes: 2 shapes x 13 implementations" in planned  # of the default grid on a CPU
    assert "6,2,5  6,2,5,3" in planned


def test_a_shape_goes_before_those_of_the_file(lstm_bench, write_grid):
    planned = lstm_bench("grid", write_grid(), "--shape", "7,2,5", "--dry-run").stdout
    assert "grid: 1 shape x 1 implementation" in planned
    assert "shapes (hidden,batch,timesteps): 7,2,5\n" in planned


def test_what_is_told_to_be_typed_to_go_on_is_whole(tmp_path, monkeypatch):
    folder = Path("else/where/r")
    words = run_folders.resume_command(folder, {"tensorflow": "/my python"}, "--skip-missing")
    assert words == (
        "lstm-bench grid --resume r --results else/where --python 'tensorflow=/my python'"
        " --skip-missing"
    )
    assert run_folders.resume_command(Path("results/r"), {}) == "lstm-bench grid --resume r"
    (tmp_path / "r").mkdir()
    monkeypatch.chdir(tmp_path / "r")
    here = f"lstm-bench grid --resume r --results {tmp_path}"
    assert run_folders.resume_command(Path("."), {}) == here


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.01, " is too short for "),
        (0.5, "is enough with fewer rounds or shorter blocks"),
        (1.5, "is enough. Nothing was run."),
    ],
)
def test_a_dry_run_says_how_far_a_budget_goes(write_grid, share, words):
    grid = write_grid(**SLOW, hidden=list(range(1, 61)), controls=0)
    plan = grids.plan(grids.read(grid), grid, device="cpu", threads=2)
    cells = plan.all_cells()
    budget = share * Estimate(plan).run_s(cells)
    text = dry_run.document(plan, cells, {}, budget).written("table")
    assert words in " ".join(text.split())


def in_terminal(columns, folder, *arguments, until=b"", code=0):
    """The output of a command in a terminal of this width; Ctrl-C ends it once it shows `until`."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    before = termios.tcgetattr(slave)
    plain = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        command(*arguments),
        cwd=folder,
        **dict.fromkeys(("stdin", "stdout", "stderr"), slave),
        start_new_session=True,
        env=plain | {"TERM": "xterm"},
    )
    shown = b""
    while True:
        ended = process.poll() is not None
        if select.select([master], [], [], 0.1)[0]:
            shown += os.read(master, 65536)
        elif ended:
            break
        if until and until in shown:
            process.send_signal(signal.SIGINT)
            until = b""
    assert process.returncode == code
    assert termios.tcgetattr(slave) == before
    os.close(slave)
    os.close(master)
    return shown


@pytest.mark.parametrize(
    ("columns", "until", "code"), [(40, b"", 0), (80, b"left", 130), (160, b"", 0)]
)
def test_a_terminal_shows_a_bar_with_the_time_left_and_is_as_it_was_after_it(
    write_grid, tmp_path, columns, until, code
):
    grid = write_grid(**SLOW, hidden=list(range(1, 50 if until else 3)))
    shown = in_terminal(columns, tmp_path, "grid", grid, until=until, code=code)
    assert b"cells" in shown
    assert b"left" in shown
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")  # the cursor is back


def test_tables_fit_the_terminal_that_they_are_shown_in(lstm_bench, write_grid, tmp_path):
    lstm_bench("grid", write_grid(), "--run", "r", code=0)
    for columns in (60, 120):
        shown = in_terminal(columns, tmp_path, "report", "--run", "r").decode()
        lines = shown.replace("\r", "").splitlines()
        assert max(map(len, lines)) <= columns
        assert "implementation  precision" in shown
    assert lstm_bench("report", "--run", "r").stdout.splitlines()[0] in shown


# one cell, taken apart


def test_profile_prints_where_the_time_of_one_cell_goes(lstm_bench):
    done = lstm_bench("profile", "fake", "--shape", "64,4,20", "--device", "cpu", code=0)
    assert "fake" in done.stdout
    assert "64,4,20" in done.stdout
    assert "gemm" in done.stdout


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("lost", "scripted: records were lost"),
        ("none", "no profiler: this one has none of its own"),
    ],
)
def test_a_profile_with_nothing_to_show_is_a_failure(monkeypatch, script, why):
    fake = dataclasses.replace(registry.IMPLEMENTATIONS["fake"], options={"profile": script})
    monkeypatch.setitem(registry.IMPLEMENTATIONS, "fake", fake)
    words = ["profile", "fake", "--shape", "64,4,20", "--device", "cpu"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    assert why in done.stderr
    assert "`lstm-bench grid -i fake --shape 64,4,20 --device cpu`" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("fake --shape 64,4", "expected hidden,batch,timesteps as in 512,16,25"),
        ("fake --shape 64,4,0", "--shape 64,4,0: timesteps: found 0, expected a whole"),
        ("fakes --shape 64,4,2", "did you mean 'fake'"),
        ("fake@1 --shape 64,4,2 --threads 2", "on the CPU with 1 thread whatever"),
        ("fake", "--shape"),
        ("fake --shape 64,4,2 --device cpu --trace t.json", "expected a profile of a GPU"),
        ("fake --shape 64,4,2 --device cpu --figure f.svg", "expected a profile of a GPU"),
        ("fake@1 --shape 64,4,2 --device cuda --trace t.json", "fake@1 is on the CPU"),
        ("fake@1 --shape 64,4,2 --trace t.json", "found a CPU"),
        ("fake --shape 64,4,2 --device cuda --figure f.bmp", "expected a name in .svg"),
    ],
)
def test_what_cannot_be_profiled_is_refused_before_anything_is_measured(
    lstm_bench, tmp_path, arguments, expected
):
    done = lstm_bench("profile", *arguments.split(), code=2)
    assert (done.stdout, expected in done.stderr) == ("", True)
    assert list(tmp_path.iterdir()) == []


def test_a_profiled_grid_keeps_its_profiles_and_report_shows_them(lstm_bench, write_grid):
    assert lstm_bench("grid", write_grid(), "--profile", "--run", "one").returncode == 0
    assert "gemm" in lstm_bench("report", "--kernels", code=0).stdout


def test_reports_that_a_run_has_nothing_for_say_what_to_type(lstm_bench, write_grid):
    assert lstm_bench("grid", write_grid()).returncode == 0
    assert "--profile" in lstm_bench("report", "--kernels", code=2).stderr
