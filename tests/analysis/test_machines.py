"""Runs of several machines: who wins where, at what cost, and what is refused or said first."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from builders import row, written

import lstm_bench as api
from lstm_bench.analysis import machines, results
from lstm_bench.model.types import LstmBenchError
from lstm_bench.report import figures, machines_figure

ROOT = Path(__file__).parents[2]
HIDDEN, BATCH, STEPS = (64, 128, 256, 512), (1, 4, 16), (10, 100)
SHAPES = [(h, b, t) for h in HIDDEN for b in BATCH for t in STEPS]


def wobbly(seconds, seed):
    """Rounds around a time, a percent off or so."""
    return (seconds * (1 + 0.01 * np.random.default_rng(seed).standard_normal(10))).tolist()


def cpu_s(hidden, batch, timesteps):
    return 1e-9 * hidden * hidden * batch * timesteps


def gpu_s(hidden, batch, timesteps):
    """The same time for any hidden size and batch: it wins where the CPU has enough to do."""
    return 1e-4 * timesteps


def rows_of(time, name="pytorch", shapes=SHAPES, **more):
    return [
        row(name, time(*shape), *shape, rounds=wobbly(time(*shape), n), **more)
        for n, shape in enumerate(shapes)
    ]


def saved(folder, rows, machine=None, versions=None, **settings):
    """A run on disk, of a machine and with settings of its own."""
    path = written(folder, *rows)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["machine"] |= machine or {}
    manifest["plan"]["settings"] |= settings
    (path / "manifest.json").write_text(json.dumps(manifest))
    if versions:
        lines = (path / "records.jsonl").read_text().splitlines()
        changed = [json.dumps({**json.loads(line), "versions": versions}) for line in lines]
        (path / "records.jsonl").write_text("\n".join(changed) + "\n")
    return path


GPU = {"gpus": [{"name": "A GPU", "driver": "580.1"}]}


@pytest.fixture
def two(tmp_path):
    """A GPU that wins from hidden * hidden * batch above 100,000, and a CPU that wins below."""
    saved(tmp_path / "results" / "cpu", rows_of(cpu_s), {"cpu": "A CPU"})
    saved(tmp_path / "results" / "gpu", rows_of(gpu_s, device="cuda"), GPU, device="cuda")
    return tmp_path / "results"


def test_a_comparison_of_machines_in_full(lstm_bench, golden, two):
    """The third is of another build, has a row more, and fewer shapes."""
    rows = []
    for name in ("pytorch", "onnxruntime"):
        rows += rows_of(lambda *shape: 3 * cpu_s(*shape), name, SHAPES[:18])
    saved(two / "third-machine", rows, versions={"torch": "2.13.0"}, seed=2)
    names, flags = ["cpu", "gpu", "third-machine"], []
    for name, price in zip(names, ("0.1", "3.6", "0.05"), strict=True):
        flags += ["--price", f"{name}={price}"]
    done = lstm_bench("compare", *names, *flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 100
    golden("machines", done.stdout.rstrip())


def test_every_shape_has_the_machine_that_was_made_the_fastest_there(two):
    actual = api.machines("cpu", "gpu", results=two)
    assert len(actual) == 2 * len(SHAPES)
    for shape, part in actual.groupby(["hidden", "batch", "timesteps"]):
        winner = "cpu" if cpu_s(*shape) < gpu_s(*shape) else "gpu"
        assert set(part.loc[part["wins"], "run"]) == {winner}
        slower = max(cpu_s(*shape), gpu_s(*shape)) / min(cpu_s(*shape), gpu_s(*shape))
        assert part["ratio"].max() == pytest.approx(slower)
    assert set(actual["device_name"]) == {"A CPU", "A GPU"}


def test_only_shapes_that_all_have_count_and_the_rows_of_each_are_known(lstm_bench, two):
    more = rows_of(cpu_s, "onnxruntime", SHAPES[:5])
    saved(two / "other", [*rows_of(cpu_s, shapes=SHAPES[:5]), *more])
    actual = json.loads(lstm_bench("compare", "cpu", "other", "--format", "json").stdout)
    assert (len(actual["shapes"]), actual["had"]) == (5, {"cpu": 24, "other": 5})
    assert actual["rows"] == {"cpu": ["pytorch"], "other": ["pytorch", "onnxruntime"]}


def test_a_run_stands_with_its_fastest_row_that_can_be_deployed(tmp_path):
    slow, fast = rows_of(cpu_s), rows_of(lambda *s: cpu_s(*s) / 2, "onnxruntime")
    half = rows_of(lambda *s: cpu_s(*s) / 4, "pytorch-bf16", precision="bf16")
    less = rows_of(lambda *s: cpu_s(*s) / 8, "skips", computes="lstm-skip-input")
    library = rows_of(lambda *s: cpu_s(*s) / 9, "deepbench")
    path = saved(tmp_path / "cpu", [*slow, *fast, *half, *less, *library])
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["plan"]["implementations"][-1]["framework"] = "deepbench"
    (path / "manifest.json").write_text(json.dumps(manifest))
    saved(tmp_path / "gpu", rows_of(gpu_s), GPU)

    def stands(**how):
        actual = api.machines("cpu", "gpu", results=tmp_path, **how)
        return set(actual.loc[actual["run"] == "cpu", "implementation"])

    assert stands() == stands(accuracy="tf32") == {"onnxruntime"}
    assert stands(accuracy="half") == stands(accuracy="any") == {"pytorch-bf16"}
    assert stands(implementation="pytorch") == {"pytorch"}


def test_what_is_within_the_noise_of_either_machine_is_nobodys_win(tmp_path):
    for name, factor in (("a", 1.0), ("b", 1.03)):  # without controls 5% count as noise
        saved(tmp_path / name, rows_of(lambda *s, f=factor: f * cpu_s(*s)))
    actual = api.machines("a", "b", results=tmp_path)
    assert not actual["wins"].any()
    assert set(actual["verdict"]) <= {"fastest", "same", "unsure"}


def test_the_cheapest_is_not_always_the_fastest(two):
    prices = {"cpu": 0.1, "gpu": 3.6}
    actual = api.machines("cpu", "gpu", results=two, prices=prices)
    gpu = actual[actual["run"] == "gpu"]
    assert gpu["price"].to_numpy() == pytest.approx(gpu["seconds"].to_numpy() * 1000)
    for shape, part in actual.groupby(["hidden", "batch", "timesteps"]):
        cheaper = "cpu" if 0.1 * cpu_s(*shape) < 3.6 * gpu_s(*shape) else "gpu"
        assert set(part.loc[part["price_wins"], "run"]) == {cheaper}


def test_unlike_builds_are_known(tmp_path):
    for name, torch, seed in (("a", "2.11.0", 1), ("b", "2.13.0", 2)):
        saved(tmp_path / name, rows_of(cpu_s), versions={"torch": torch}, seed=seed)
    actual = api.machines("a", "b", results=tmp_path)
    assert actual.attrs["unlike"] == {"torch": ["2.11.0", "2.13.0"], "seed": ["1", "2"]}


def test_a_gpu_that_copies_is_not_held_against_itself_without_but_against_a_cpu(lstm_bench, two):
    copying = {"device": "cuda", "inputs": "pageable"}
    saved(two / "copies", rows_of(gpu_s, device="cuda"), GPU, **copying)
    done = lstm_bench("compare", "gpu", "copies")
    assert done.returncode == 2
    assert "differ in inputs (device and pageable)" in done.stderr
    assert lstm_bench("compare", "gpu", "copies", "--across", "inputs").returncode == 0
    done = lstm_bench("compare", "cpu", "copies")
    assert done.returncode == 0
    assert "x and y in pageable host memory" in " ".join(done.stdout.split())


def test_energy_stands_beside_the_time_where_it_was_measured():
    actual = api.machines("h200-paper", "h200-ladder", results=ROOT / "results")
    paper = actual["run"] == "h200-paper"
    assert actual.loc[paper, "energy_j"].notna().all()  # of 100 timesteps
    assert actual.loc[~paper, "energy_j"].isna().all()


MISTAKES = [
    (["cpu", "gpux"], "no run 'gpux' in results; did you mean 'gpu'"),
    (["cpu", "cpu"], "found a run twice"),
    (["cpu", "gpu", "-i", "nobody"], "cpu has no nobody with a latency; it has: pytorch"),
    (["cpu", "gpu", "-i", "pytorch", "--accuracy", "half"], "give either"),
    (["cpu", "gpu", "--price", "cpu"], "expected RUN=2.50"),
    (["cpu", "gpu", "--price", "cpu=1"], "found cpu=1, expected such as cpu=2.50, gpu=2.50"),
    (["cpu", "gpu", "--price", "cpu=1", "--price", "gpu=-1"], "expected such as cpu=2.50"),
    (["cpu", "gpu", "--where", "hidden=7"], "no shape of cpu is left"),
    (["cpu", "none"], "`lstm-bench grid devices` on every machine"),
    (["pytorch", "deepbench", "tf-mode0"], "expected two implementations, or runs in results"),
    (["pytorch", "deepbench", "--price", "a=1"], "--price goes with whole runs"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_is_told_in_two_lines_with_exit_code_2(lstm_bench, two, words, message):
    saved(two / "none", rows_of(cpu_s, shapes=[(7, 1, 1)]))
    done = lstm_bench("compare", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_a_run_that_is_named_like_a_row_can_be_asked_for_by_its_folder(lstm_bench, two):
    (two / "cpu").rename(two / "pytorch")
    assert "not in the run" in lstm_bench("compare", "pytorch", "deepbench").stderr
    assert lstm_bench("compare", two / "pytorch", "gpu").returncode == 0


def test_the_figure_shows_who_wins_and_by_how_much(lstm_bench, two, tmp_path):
    done = lstm_bench("compare", "cpu", "gpu", "--figures", "drawn")
    assert done.returncode == 0
    assert {path.name for path in (tmp_path / "drawn").iterdir()} == {
        "machines.svg",
        "machines.png",
    }
    runs = {name: results.load(two / name) for name in ("cpu", "gpu")}
    with figures.styled():
        figure = machines_figure.drawn(machines.machines(runs))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["timesteps 10", "timesteps 100"]
    drawn = {(text.get_position(), text.get_text()) for text in figure.axes[0].texts}
    by = cpu_s(512, 16, 10) / gpu_s(512, 16, 10)
    assert ((3.5, 2.5), f"B\n{by:.0f}x") in drawn


def test_many_machines_fit_100_columns(lstm_bench, two):
    names = [f"a-machine-with-a-long-name-{n}" for n in range(4)]
    for n, name in enumerate(names):
        saved(two / name, rows_of(lambda *s, n=n: (1 + n) * cpu_s(*s)), versions={"torch": str(n)})
    prices = [word for name in names for word in ("--price", f"{name}=1")]
    done = lstm_bench("compare", *names, *prices)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_several_passes_stand_with_their_median(tmp_path):
    shape = SHAPES[0]
    passes = [row("pytorch", s, *shape, pass_number=n) for n, s in ((1, 1e-3), (2, 3e-3))]
    for name in ("a", "b"):
        saved(tmp_path / name, passes)
    actual = api.machines("a", "b", results=tmp_path)
    assert actual["seconds"].tolist() == pytest.approx([2e-3, 2e-3])
    assert not actual["wins"].any()


def test_an_accuracy_that_is_none_is_refused(two):
    with pytest.raises(LstmBenchError, match="expected one of fp32, tf32, half, int8, any"):
        api.machines("cpu", "gpu", results=two, accuracy="exact")
    with pytest.raises(LstmBenchError, match="found 1 run, expected 2"):
        api.machines("cpu", results=two)


def test_figures_in_the_text_of_the_page_stand_in_what_it_shows():
    """The page shows the command's own output: `test_cli_reports` holds it to that."""
    page = (ROOT / "docs" / "explanation" / "gpu-or-cpu.md").read_text().splitlines()
    shown = "\n".join(line for line in page if line.startswith("    "))
    text = "\n".join(line for line in page if not line.startswith("    "))
    figures_told = re.findall(r"\d+\.\d\d", text)
    assert len(figures_told) > 3
    assert [number for number in figures_told if number not in shown] == []


def test_a_restless_implementation_hides_no_win_of_a_calm_one(tmp_path):
    """`pytorch-graph` is the fastest; `pytorch` beside it differs from itself by half."""
    calm = rows_of(gpu_s, "pytorch-graph", device="cuda")
    calm += rows_of(gpu_s, "pytorch-graph", device="cuda", copy=2)
    restless = rows_of(lambda *shape: 2 * gpu_s(*shape), device="cuda")
    restless += rows_of(lambda *shape: 3 * gpu_s(*shape), device="cuda", copy=2)
    gpu = saved(tmp_path / "gpu", [*calm, *restless], GPU, device="cuda")
    cpu = saved(tmp_path / "cpu", rows_of(lambda *shape: 1.3 * gpu_s(*shape)), {"cpu": "A CPU"})
    runs = {path.name: results.load(path) for path in (gpu, cpu)}
    actual = machines.table(machines.machines(runs))
    of_gpu = actual[actual["run"] == "gpu"]
    assert of_gpu["wins"].all()
    assert of_gpu["floor"].max() < 0.02
    assert runs["gpu"].noise.classes[2].floor == pytest.approx(0.5, abs=0.05)
