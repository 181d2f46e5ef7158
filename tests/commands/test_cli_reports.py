"""`report` and `compare` as a user types them."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from builders import row, written
from conftest import REPOSITORY, command


@pytest.fixture
def some_run(tmp_path):
    rows = [
        row(name, 0.002 * (place + 1), hidden=h, batch=b, precision=precision)
        for place, (name, precision) in enumerate(
            [("deepbench", "fp32"), ("pytorch", "fp32"), ("pytorch-amp", "amp-fp16")]
        )
        for h in (64, 128, 256)
        for b in (1, 16)
    ]
    return written(tmp_path / "results" / "made-up", *rows)


def test_compare_answers_from_the_newest_run(lstm_bench, some_run):
    done = lstm_bench("compare", "pytorch", "deepbench")
    assert (done.returncode, done.stderr) == (0, "")
    assert "deepbench is 2.0x faster than pytorch" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_conditions_know_the_input_by_the_name_that_grids_give_it(lstm_bench, some_run):
    for name in ("input", "input_size"):
        done = lstm_bench("compare", "pytorch", "deepbench", "--where", f"{name}=64")
        assert "Of 2 shapes" in done.stdout


def test_the_same_run_named_twice_is_one(lstm_bench, some_run):
    once = lstm_bench("compare", "pytorch", "deepbench", "--run", "made-up")
    twice = lstm_bench("compare", "pytorch", "deepbench", *["--run", "made-up"] * 2)
    assert (twice.returncode, twice.stdout) == (0, once.stdout)


@pytest.mark.parametrize("name", ["h200-paper", "h200-deepbench", "cpu-default"])
def test_reports_of_shipped_runs_fit_100_columns_in_a_pipe(lstm_bench, name):
    for flags in ([], ["--mpe", "--pair", "pytorch,tf-mode0-amp"]):
        done = lstm_bench(
            "report", *flags, "--run", name, "--results", REPOSITORY / "results", code=0
        )
        assert max(map(len, done.stdout.splitlines())) <= 100


def test_the_report_of_the_default_grid_fits_one_screen(lstm_bench):
    run = ["--run", "cpu-default", "--results", REPOSITORY / "results"]
    lines = lstm_bench("report", *run).stdout.splitlines()
    assert len(lines) <= 45  # 12 implementations, and one screen
    assert max(map(len, lines)) <= 100
    assert len(lstm_bench("report", "--all", *run).stdout.splitlines()) > 40


def test_rows_without_a_common_shape_are_said_not_to_compare(lstm_bench, tmp_path):
    written(tmp_path / "results" / "r", row("a", 1.0, hidden=1), row("b", 1.0, hidden=2))
    done = lstm_bench("report")
    words = " ".join(done.stdout.split())
    assert "median over each implementation's own shapes, as none is common to all" in words


def test_compare_takes_conditions(lstm_bench, some_run):
    arguments = ["compare", "pytorch", "deepbench", "--format", "json"]
    done = lstm_bench(*arguments, "--where", "hidden>=128", "--where", "batch=16")
    groups = json.loads(done.stdout)["groups"]
    assert groups[0]["shapes"] == 2


@pytest.mark.parametrize("shapes", [["64,1,1"], ["64,16,1", "256,1,1,256"]])
def test_report_and_compare_take_shapes(lstm_bench, some_run, shapes):
    flags = ["--format", "json", *(word for shape in shapes for word in ("--shape", shape))]
    compared = json.loads(lstm_bench("compare", "pytorch", "deepbench", *flags).stdout)
    actual = [f"{s['hidden']},{s['batch']},{s['timesteps']}" for s in compared["shapes"]]
    assert actual == [shape.removesuffix(",256") for shape in shapes]
    rows = json.loads(lstm_bench("report", *flags).stdout)["implementations"]
    assert {row["cells"] for row in rows} == {len(shapes)}


MISTAKES = [
    (["compare", "pytorch", "torch"], "it has: deepbench, pytorch, pytorch-amp"),
    (["compare", "pytorch", "pytorch-amp"], "add --across precision"),
    (["compare", "pytorch"], "Missing argument 'B'"),
    (
        ["compare", "pytorch-amp", "pytorch-amp"],
        "found pytorch-amp twice in one run, made-up; expected two rows, or one row in two runs:",
    ),
    (
        ["compare", "pytorch", "pytorch", *["--run", "made-up"] * 2],
        "`lstm-bench compare pytorch pytorch --run A --run B`",
    ),
    (["compare", "torch", "torch"], "'torch' is not in the run"),
    (
        ["compare", "pytorch", "deepbench", "--where", "size=3"],
        "expected one of hidden, batch, timesteps, input, layers, directions, then",
    ),
    (["report", "--where", "input=7"], "no shape of the run is left; it has input 64, 128, 256"),
    (
        ["compare", "pytorch", "deepbench", "--where", "hidden=7"],
        "no shape of made-up is left; it has hidden 64, 128, 256",
    ),
    (
        ["report", "--shape", "120,20,1"],
        "--shape 120,20,1: not in made-up; the nearest there: 128,16,1  64,16,1  256,16,1",
    ),
    (
        ["compare", "pytorch", "deepbench", "--shape", "64,1,1,65"],
        "--shape 64,1,1,65: not in made-up; the nearest there: 64,1,1 ",
    ),
    (["report", "--shape", "64,1"], "--shape: found '64,1', expected hidden,batch,timesteps as in"),
    (["report", "--shape", "64,1,1", "--where", "batch=16"], "no shape of the run is left"),
    (["report", "--html", "x.html", "--shape", "64,1,1"], "--shape do not choose for --html"),
    (["compare", "pytorch", "deepbench", "--metric", "device"], "no device times"),
    (["compare", "pytorch", "deepbench", "--metric", "speed"], "speed"),
    (["report", "--html", "x.html", "--metric", "throughput"], "goes with the summary"),
    (["compare", "pytorch", "deepbench", "--run", "x"], "no run 'x'"),
    (["compare", "a", "b", *["--run", "made-up"] * 3], "at most two"),
    (["report", "made-up"], "(made-up); a run is named by --run"),
    (["report", "--pair", "a,b"], "--pair goes with --mpe"),
    (["report", "--mpe", "--pair", "a"], "expected two names"),
    (["report", "--mpe", "--pair", "pytorch,x"], "'x' is not in the run"),
    (["report", "--format", "xml"], "xml"),
    (["report", "--output", "/nowhere/x.csv"], "make it first: `mkdir -p /nowhere`"),
    (["report", "--output", "/proc/x.csv"], "cannot write"),
    (["report", "--output", "x.html"], "--html"),
    (["report", "--output", "x.pdf"], "expected .txt"),
    (["report", "--metric", "device"], "no device times"),
    (["compare", "pytrch", "deepbench"], "did you mean 'pytorch'"),
    (["report", "--html", "/nowhere/x.html"], "make it first: `mkdir -p /nowhere`"),
    (["compare", "pytorch", "tf-mode0"], "measure it: `lstm-bench grid GRID -i tf-mode0`"),
    (["report", "--run", "made-pu"], "did you mean 'made-up'?"),
    (["report", "--run", "/etc"], "/etc: holds no run, expected a folder with a manifest.json"),
]


def test_two_that_share_no_shape_are_no_comparison(lstm_bench):
    runs = ["--run", "h200-noise", "--run", "h200-paper", "--results", REPOSITORY / "results"]
    done = lstm_bench("compare", "pytorch", "pytorch", *runs)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pytorch@h200-noise and pytorch@h200-paper have no shape at which both" in done.stderr
    assert "pytorch in the first run not measured at 48 shapes" in done.stderr


def test_a_run_that_has_the_shape_is_named_where_this_one_does_not(lstm_bench, some_run, tmp_path):
    written(tmp_path / "results" / "other", row("pytorch", 0.008, hidden=7))
    for words in (["report"], ["compare", "pytorch", "deepbench"]):
        done = lstm_bench(*words, "--run", "made-up", "--shape", "7,1,1", code=2)
        assert "--shape 7,1,1: not in made-up; the nearest there: " in done.stderr
        assert "; other has it: --run other" in done.stderr


@pytest.mark.parametrize(("arguments", "word"), MISTAKES)
def test_a_mistake_is_told_in_two_lines_with_exit_code_2(lstm_bench, some_run, arguments, word):
    done = lstm_bench(*arguments, code=2)
    assert word in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
    assert "Traceback" not in done.stderr


def test_one_implementation_in_two_runs(lstm_bench, some_run, tmp_path):
    written(tmp_path / "results" / "later", row("pytorch", 0.008, hidden=64))
    done = lstm_bench("compare", "pytorch", "pytorch", "--run", "made-up", "--run", "later", code=0)
    assert "pytorch@later is 2.0x slower than pytorch@made-up" in done.stdout
    assert "Measured in different runs" in done.stdout
    assert "pytorch in the second run not measured: 5" in done.stdout


def test_versions_that_differ_between_two_runs_are_shown(lstm_bench, tmp_path):
    had = {"old": ("2.11.0", "580.1"), "new": ("2.13.0", "590.2")}
    for name, (torch, driver) in had.items():
        folder = written(tmp_path / "results" / name, row("pytorch", 0.001, device="cuda"))
        line = json.loads((folder / "records.jsonl").read_text())
        line["versions"] = {"torch": torch, "cudnn": "9"}
        (folder / "records.jsonl").write_text(json.dumps(line) + "\n")
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["machine"]["gpus"] = [{"name": "A GPU", "driver": driver}]
        (folder / "manifest.json").write_text(json.dumps(manifest))
    runs = ["--run", "old", "--run", "new", "--across", "driver"]
    words = ["compare", "pytorch", "pytorch", *runs]
    for form in ("table", "github", "latex"):
        top = " ".join(lstm_bench(*words, "--format", form, code=0).stdout.split()[:150])
        assert "torch 2.11.0 in A, 2.13.0 in B" in top
        assert "driver 580.1 in A, 590.2 in B" in top
    differ = json.loads(lstm_bench(*words, "--format", "json").stdout)["versions_differ"]
    assert differ == {"torch": ["2.11.0", "2.13.0"], "driver": ["580.1", "590.2"]}


def test_two_runs_of_one_name_in_two_folders_are_two_runs(lstm_bench, tmp_path):
    for day, seconds in (("monday", 0.001), ("friday", 0.003)):
        written(tmp_path / day / "paper", row("pytorch", seconds))
    runs = ["--run", "monday/paper", "--run", "friday/paper"]
    done = lstm_bench("compare", "pytorch", "pytorch", *runs, code=0)
    assert "pytorch@friday/paper is 3.0x slower than pytorch@monday/paper" in done.stdout


def test_report_writes_files(lstm_bench, some_run, tmp_path):
    for name, word in (("x.csv", "implementation,"), ("x.md", "| pytorch"), ("x.json", '"run"')):
        done = lstm_bench("report", "--output", name)
        assert (done.returncode, done.stdout) == (0, "")
        assert word in (tmp_path / name).read_text()


def test_the_paper_table_is_printed_in_its_order(lstm_bench, some_run):
    done = lstm_bench("report", "--mpe", "--format", "csv")
    lines = [line.split(",")[:3] for line in done.stdout.splitlines()]
    assert lines[1] == ["tf-mode0", "tf-mode1", "-1.822121106"]
    assert lines[6] == ["deepbench", "pytorch", "-0.53045191"]
    assert len(lines) == 9


@pytest.mark.parametrize("name", ["report", "list", "--help", "--version"])
def test_a_pipe_whose_reader_has_enough_ends_a_command_as_it_ends_others(some_run, tmp_path, name):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        command(name), stdout=write, stderr=subprocess.PIPE, cwd=tmp_path, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_file_that_is_a_link_or_a_pipe_stays_one(lstm_bench, some_run, tmp_path):
    link, behind, pipe = (tmp_path / name for name in ("link.csv", "behind.csv", "pipe"))
    behind.write_text("old")
    link.symlink_to(behind)
    assert lstm_bench("report", "--output", link).returncode == 0
    assert link.is_symlink()
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
    assert lstm_bench("report", "--format", "csv", "--output", pipe).returncode == 0
    assert reader.communicate(timeout=60)[0] == behind.read_text() != "old"
    assert pipe.is_fifo()


def test_what_is_printed_beside_a_page_can_be_of_another_time(lstm_bench, some_run, tmp_path):
    flags = ["--html", "p.html", "--format", "csv", "--metric", "throughput"]
    assert "pytorch" in lstm_bench("report", *flags, code=0).stdout
    assert (tmp_path / "p.html").exists()


PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/explanation/gpu-or-cpu.md",
    "docs/explanation/ladder.md",
)
#: A block that begins with a command, and what it prints; `...` stands for lines left out.
SHOWN = [
    (command, block.splitlines())
    for page in PAGES
    for command, block in re.findall(
        r"^    \$ lstm-bench (.+)\n((?:    .*\n)+)", (REPOSITORY / page).read_text(), re.M
    )
]


@pytest.mark.parametrize(("command", "block"), SHOWN, ids=[command for command, _ in SHOWN])
def test_pages_show_what_the_command_prints(lstm_bench, command, block):
    done = lstm_bench(*command.split(), "--results", REPOSITORY / "results")
    printed = iter(done.stdout.splitlines())
    for line in block:
        assert line.strip() == "..." or line[4:] in printed, line


def test_the_ladders_sentences_have_the_ladders_numbers():
    table, words = (
        (REPOSITORY / "docs" / "explanation" / "ladder.md").read_text().split("A row with")
    )
    numbers = re.findall(r"\b[\d.]+x", words)
    assert len(numbers) > 8
    assert set(numbers) <= set(re.findall(r"\b[\d.]+x", table))


def test_every_file_that_the_list_of_runs_names_is_in_the_repository():
    """A file that git ignores is there on one machine only."""
    names = re.findall(r"^\| (`.*?) \|", (REPOSITORY / "results" / "README.md").read_text(), re.M)
    patterns = [name for line in names for name in re.findall(r"`([^`]+)`", line)]
    done = subprocess.run(
        ["git", "ls-files", "results"], cwd=REPOSITORY, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip("no checkout")
    kept = {Path(line).parts[1] for line in done.stdout.splitlines()}
    assert {name for name in patterns if not name.startswith("-")} == kept - {"README.md"}
