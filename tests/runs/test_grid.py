"""A grid file becomes a plan, or an error that says where, what and what instead."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import FAKE_GRID, REPOSITORY, plan_of

from lstm_bench.commands import grid as grid_command
from lstm_bench.frameworks import IMPLEMENTATIONS, PAPER
from lstm_bench.model import fake_script
from lstm_bench.model.types import LEAD_S, TOLERANCES, WINDOW_S, LstmBenchError, Shape
from lstm_bench.runs import choice, grid, store
from lstm_bench.runs.estimate import Estimate
from lstm_bench.runs.plan import Plan

GRIDS = sorted((REPOSITORY / "grids").glob("*.yaml"))


def shipped(name: str) -> Plan:
    path = REPOSITORY / "grids" / name
    return grid.plan(grid.read(path), path, device="cuda", threads=2)


AXES = dict.fromkeys(("hidden", "batch", "timesteps"))


@pytest.mark.parametrize(
    ("changes", "shapes"),
    [
        ({"hidden": [3, 5], "batch": [1, 2]}, [(h, b, 4, h) for h in (3, 5) for b in (1, 2)]),
        ({"hidden": 3, "input": [2, 9]}, [(3, 2, 4, 2), (3, 2, 4, 9)]),
        ({**AXES, "shapes": [[8, 1, 2], [8, 1, 2, 3], [8, 1, 2]]}, [(8, 1, 2, 8), (8, 1, 2, 3)]),
    ],
)
def test_axes_multiply_or_shapes_are_listed_and_the_input_is_as_wide_as_the_layer(changes, shapes):
    assert plan_of(changes).shapes == tuple(Shape(*sizes) for sizes in shapes)


def test_each_shape_is_measured_in_each_pass_that_a_grid_names():
    sizes = plan_of().shapes
    trained = tuple(replace(shape, training=True) for shape in sizes)
    assert plan_of({"pass": "training"}).shapes == trained
    assert set(plan_of({"pass": ["inference", "training"]}).shapes) == {*sizes, *trained}
    named = {**AXES, "shapes": ["8,1,2 training", [8, 1, 2]]}
    assert [shape.training for shape in plan_of(named).shapes] == [True, False]
    assert [shape.training for shape in plan_of({**named, "pass": "inference"}).shapes] == [False]
    assert plan_of({"pass": "training"}, shapes=[sizes[0]]).shapes == trained[:1]


def test_a_manifest_without_a_pass_is_one_of_inference():
    plan = plan_of()
    data = json.loads(json.dumps(plan.to_json()))
    for shape in data["shapes"]:
        del shape["training"]
    assert Plan.from_json(data, "r") == plan


def test_auto_and_all_mean_what_this_machine_has():
    plan = plan_of({"device": "auto", "threads": "all"})
    assert (plan.settings.device, plan.settings.threads) == ("cpu", 2)


def test_the_command_line_goes_before_the_file():
    plan = plan_of(
        implementations=["pytorch"],
        sampling={"rounds": 5, "max_rounds": 10},
        environments={"pytorch": "/p"},
    )
    assert [r.name for r in plan.implementations] == ["pytorch"]
    assert (plan.sampling.rounds, plan.sampling.max_rounds) == (5, 10)
    assert plan.environments == {"pytorch": "/p"}


def test_a_plan_comes_back_from_its_manifest():
    plan = plan_of({"environments": {"fake": "python3"}, "fake": {"fake": {"call_s": 0.5}}})
    assert Plan.from_json(yaml.safe_load(yaml.safe_dump(_plain(plan.to_json()))), "r") == plan


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def test_controls_of_an_implementation_are_at_every_timestep_and_batch():
    fakes = {f"fake-{n}": {} for n in "abcdef"}
    axes = {"hidden": [1, 2, 3, 4, 5], "batch": [1, 2, 3, 4], "timesteps": [1, 10, 100]}
    plan = plan_of({"fake": fakes, "implementations": list(fakes), "controls": 2, **axes})
    for name in fakes:
        shapes = [c.shape for c in plan.all_cells() if c.copy > 1 and c.implementation == name]
        assert len(shapes) == 20
        assert {s.timesteps for s in shapes} == {1, 10, 100}
        assert {s.batch for s in shapes} == {1, 2, 3, 4}


def test_plans_of_older_runs_keep_their_order_of_controls_and_their_one_load():
    plan = plan_of({"batch": [1, 2, 4], "timesteps": [1, 10, 100]})
    data = _plain(plan.to_json())
    del data["controls_shuffled"]
    again = Plan.from_json(data, "r")
    assert not again.controls_shuffled
    assert plan.same_work(again)
    del data["sampling"]["loads"]
    assert Plan.from_json(data, "r").sampling.loads == 1


@pytest.mark.parametrize(
    ("rows", "controls", "copies"),
    [(1, 1, 2), (1, 2, 2), (1, 3, 4), (2, 3, 4), (2, 2, 4), (3, 2, 5)],
)
def test_every_control_has_a_twin(rows, controls, copies):
    fakes = {f"fake-{n}": {} for n in range(rows)}
    plan = plan_of({"fake": fakes, "implementations": list(fakes), "controls": controls})
    cells = plan.cells(plan.shapes[0], 1)
    assert len(cells) == copies
    actual = {(c.implementation, c.copy) for c in cells}
    assert all((c.implementation, c.copy - 1) in actual for c in cells if c.copy > 1)
    assert all((c.implementation, c.copy + 1) in actual for c in cells if c.copy % 2 and c.copy > 1)


def test_controls_are_of_rows_whose_framework_is_there():
    fakes = {f"fake-{n}": {} for n in "abc"}
    plan = plan_of({"fake": fakes, "implementations": [*fakes], "controls": 1})
    rows = tuple(replace(row, framework=row.name) for row in plan.implementations)
    plan = replace(plan, implementations=rows, absent=("fake-a", "fake-c"))
    controls = [c.implementation for c in plan.all_cells() if c.copy > 1]
    assert controls == ["fake-b"] * len(plan.shapes)
    assert {c.implementation for c in plan.all_cells()} == {*fakes}  # and each has its reason
    assert plan.same_work(replace(plan, absent=()))
    assert not plan.same_work(replace(plan, passes=2))


def test_energy_is_measured_in_four_loads_but_in_the_papers_long_grid():
    assert plan_of({"sampling": None}).sampling.loads == 4
    assert [shipped(name).sampling.loads for name in ("energy.yaml", "paper.yaml")] == [4, 1]


def test_the_wheel_has_the_grids_inside():
    tomllib = pytest.importorskip("tomllib")
    stated = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert stated["package-dir"]["lstm_bench.grids"] == "grids"
    assert stated["package-data"]["lstm_bench.grids"] == ["*.yaml"]
    assert '"lstm_bench.grids"' in (REPOSITORY / "setup.py").read_text()  # its list of packages


def test_shapes_are_shuffled_the_same_way_for_the_same_seed():
    many = {"hidden": list(range(1, 30))}
    first, again = plan_of(many), plan_of(many)
    assert first.ordered_shapes(1) == again.ordered_shapes(1) != list(first.shapes)
    assert set(first.ordered_shapes(1)) == set(first.shapes)


BAD = [
    ({"energy": "soon"}, "energy: found 'soon', expected one of hidden, batch"),
    ({"energy": ["timesteps~3"]}, "energy: found 'timesteps~3', expected one of hidden, batch"),
    ({"energy": "batch=16,64"}, "energy: found 'batch=16,64', expected one of hidden, batch"),
    ({"energy": 5}, "energy: found 5, expected true, false, or conditions such as"),
    ({"profile": "yes please"}, "profile: found 'yes please', expected true or false"),
    ({"hidden": None}, "hidden is missing"),
    ({"hidden": []}, r"hidden: found \[\]"),
    ({"hidden": 0}, "hidden: found 0, expected a whole number"),
    ({"hidden": [-3]}, "hidden: found -3"),
    ({"hidden": [10**9]}, "hidden: found 1000000000"),
    ({"hidden": ["64"]}, "hidden: found '64'"),
    ({"hidden": [True]}, "hidden: found True"),
    ({"hidden": [1.5]}, "hidden: found 1.5"),
    ({"hidden": [[1]]}, r"hidden: found \[1\]"),
    ({"hidden": {"a": 1}}, "hidden: found"),
    ({"batch": 60_000, "timesteps": 900_000}, "an array of"),
    ({"hidden": list(range(1, 1002)), "batch": list(range(1, 1002))}, "over|cells"),
    ({"implementations": []}, "implementations: found"),
    ({"implementations": ["pytorhc"]}, "did you mean 'pytorch'"),
    ({"implementations": [7]}, "no implementation is called '7'"),
    ({"device": "gpu"}, "device: found 'gpu', expected auto, cpu or cuda"),
    ({"threads": 0}, "threads: found 0"),
    ({"state": "kept"}, "state: found 'kept', expected fixed or carried"),
    ({"inputs": "host"}, "inputs: found 'host', expected device, pinned or pageable"),
    ({"inputs": "pinned"}, "inputs: found pinned and a run on the CPU.*type --inputs device"),
    ({"amp": "fp8"}, "amp: found 'fp8'"),
    ({"pass": "train"}, "pass: found 'train', expected inference or training"),
    ({"pass": ["training", 1]}, "pass: found 1, expected inference or training"),
    ({"pass": []}, "pass: found"),
    ({"pass": "training", "state": "carried"}, "pass: training and state: carried; a training"),
    (
        {"hidden": None, "batch": None, "timesteps": None, "workloads": {}, "pass": "training"},
        "found workloads and pass",
    ),
    ({"passes": 0}, "passes: found 0"),
    ({"sampling": {"ronds": 3}}, "did you mean 'rounds'"),
    ({"sampling": {"rounds": 0}}, "sampling.rounds: found 0"),
    ({"sampling": {"builds": 2}}, "sampling.builds: unknown key; a cell is one build now"),
    ({"sampling": {"cell_s": -1}}, "sampling.cell_s: found -1"),
    ({"sampling": [1]}, "sampling: found a list"),
    ({"environments": {"tensorflwo": "x"}}, "did you mean 'tensorflow'"),
    ({"environments": {"tensorflow": 3}}, "expected a path"),
    ({"name": "../x"}, "name: found '../x'"),
    ({"shapes": [[1, 2, 3]]}, "found shapes and hidden"),
    ({"fake": {"fake": {"fualt": "nan"}}}, "did you mean 'fault'"),
    ({"fake": {"fake": {"fault": "nann"}}}, "fault: found 'nann', expected swap-gates, .*nan, inf"),
    ({"fake": {"fake": [1]}}, "found a list, expected a mapping"),
    ({"fake": {"fake": {"call_s": "fast"}}}, "expected a number"),
    ({"fake": {"fake": {"call_s": None}}}, "expected a number"),
    ({"fake": {"fake": {"call_s": -1}}}, "expected a number from 0 on"),
    ({"fake": {"fake": {"call_s": float("nan")}}}, "expected a number from 0 on"),
    ({"fake": {"fake": {"real": "yes please"}}}, "expected true or false"),
    ({"sampling": {"rounds": 50, "max_rounds": 3}}, "expected at least rounds"),
    ({"fake": {"fake": {"process": "a/b"}}}, "expected letters and digits"),
    ({"fake": {"fake": {"process": "\u00e9"}}}, "expected letters and digits"),
    ({"fake": {"pytorch": {}}}, "is a real implementation's name"),
    ({"name": "x" * 81}, "expected up to 80 letters"),
    ({"threads": [1, "al"]}, "expected all, or a whole number"),
    ({"sampling": {"rounds": None}}, "sampling.rounds: found None"),
    ({"sampling": {"block_calls": None}}, "sampling.block_calls: found None"),
    *(
        ({"sampling": {"loads": n}}, f"loads: found '?{n}'?, expected")
        for n in (0, 101, "many", 1.5)
    ),
    ({"implementations": [{"tpu": ["pytorch"]}]}, "expected cpu or cuda"),
    ({"implementations": [{"cpu": "pytorch"}]}, "expected a list such as"),
    ({"implementations": [{"cpu": ["pytroch"]}]}, "cpu: .* did you mean 'pytorch'"),
    ({"implementations": ["deepbench", {"cuda": ["pytroch"]}]}, "cuda: .* did you mean 'pytorch'"),
    ({"implementations": [{}]}, "found no row for cpu"),
    ({"implementations": [{"cuda": ["pytorch"]}]}, "found no row for cpu"),
    ({"implementations": ["pytorch-half@1"]}, "does not run on a CPU.*name it pytorch-half"),
    *(
        ({"implementations": [name]}, f"no implementation is called '{name}'")
        for name in ("fake@0", "fake@", "fake@x", "nobody@1", "fake@99999")
    ),
]


def test_the_page_on_fakes_has_every_word_of_a_script():
    page = (REPOSITORY / "CONTRIBUTING.md").read_text()
    words = [*fake_script.SCRIPT, *fake_script.FAULTS, *fake_script.MOMENTS, *fake_script.PROFILES]
    assert [word for word in (*words, *TOLERANCES) if f"`{word}`" not in page] == []


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[m for _, m in BAD])
def test_a_bad_value_is_named_with_its_key_and_what_was_expected(changes, message):
    with pytest.raises(LstmBenchError, match=message) as caught:
        plan_of(changes)
    assert str(caught.value).startswith("g.yaml")
    assert len(str(caught.value).splitlines()) <= 2


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path):
    with pytest.raises(LstmBenchError) as caught:
        plan_of({"hidden": 0, "implementations": ["pytorhc"], "state": "kept"})
    words = ("hidden: found 0", "implementations: no implementation", "state: found 'kept'")
    for line, word in zip(str(caught.value).splitlines(), words, strict=True):
        assert line.startswith(f"g.yaml: {word}")
    with pytest.raises(LstmBenchError) as caught:
        plan_of({"device": "gpu"})  # rows and threads lean on it
    assert len(str(caught.value).splitlines()) == 1
    path = tmp_path / "bad.yaml"
    path.write_text("hiden: 1\nbacth: 2\n")
    with pytest.raises(LstmBenchError, match=r"'hiden'; did you mean 'hidden'\?\n.*'batch'"):
        grid.read(path)


@pytest.mark.parametrize("entry", [[1, 2], [1, 2, 3, 4, 5], "x", [1, 2, 0], [1, 2, None]])
def test_a_bad_listed_shape_is_named_by_its_number(entry):
    with pytest.raises(LstmBenchError, match="entry 2"):
        plan_of({**AXES, "shapes": [[1, 2, 3], entry]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden: [1\n", "not valid YAML"),
        ("- 1\n", "found a list"),
        ("", "found nothing"),
        ("hiden: [1]\n", "did you mean 'hidden'"),
        ("tf32: true\n", "unknown key 'tf32'; name rows that use it"),
        ("hidden: 1\nhidden: 2\n", "line 2: not valid YAML: the key 'hidden' stands twice"),
        ("a: !!python/object/apply:os.system [true]\n", "not valid YAML"),
        ("hidden: &h [1, 2]\nbatch: *h\n", "line 2: not valid YAML: an alias is not allowed"),
        pytest.param("[" * 5000, "not valid YAML", id="5000 brackets"),
        ("\x00", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_grid_is_refused(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(LstmBenchError, match=message):
        grid.read(path)


def test_numbers_may_be_written_with_an_exponent(tmp_path):
    path = tmp_path / "g.yaml"
    path.write_text("sampling: {converged: 5e-3, block_s: 2.5E-2}\n")
    assert grid.read(path)["sampling"] == {"converged": 0.005, "block_s": 0.025}


def test_a_missing_file_a_folder_and_bytes_are_refused(tmp_path):
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    for name, message in (("none.yaml", "no such file"), ("", "a folder"), ("bytes.yaml", "read")):
        with pytest.raises(LstmBenchError, match=message):
            grid.read(tmp_path / name)


@pytest.mark.parametrize("asked", ["paper", "paper.yaml", "grids/paper.yaml"])
def test_a_shipped_grid_is_found_from_any_folder_unless_there_is_a_file(
    tmp_path, monkeypatch, asked
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paper").mkdir()  # no file
    assert grid.find(Path(asked)).samefile(REPOSITORY / "grids" / "paper.yaml")
    for path in (Path(f"mine/{asked}"), Path("papers"), Path("grids/paper"), tmp_path / "paper"):
        assert grid.find(path) == path
    (tmp_path / "grids").mkdir()
    for name in ("paper.yaml", "grids/paper.yaml"):
        (tmp_path / name).touch()
        assert grid.find(Path(name)) == Path(name)


def test_an_installed_package_has_its_grids_inside(tmp_path, monkeypatch):
    (tmp_path / "lstm_bench" / "grids").mkdir(parents=True)
    (tmp_path / "grids").mkdir()  # somebody else's
    own = tmp_path / "lstm_bench" / "grids" / "a.yaml"
    for path in (own, tmp_path / "grids" / "b.yaml"):
        path.touch()
    monkeypatch.setattr(grid, "__file__", str(tmp_path / "lstm_bench" / "runs" / "grid.py"))
    assert grid.shipped() == {"a": own}


@pytest.mark.parametrize("path", GRIDS, ids=[p.stem for p in GRIDS])
def test_every_shipped_grid_is_valid(path):
    assert shipped(path.name).shapes


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_default_grid_has_the_rows_of_the_paper_and_those_that_matter_on_the_device(device):
    path = next(path for path in GRIDS if path.name == "default.yaml")
    plan = grid.plan(grid.read(path), path, device=device, threads=2)
    names = [row.name for row in plan.implementations]
    assert names[: len(PAPER)] == list(PAPER)
    assert all(device in row.devices for row in plan.implementations)
    more = {"cpu": {"onnxruntime", "openvino"}, "cuda": {"pytorch-graph", "lstm-kernels"}}
    assert more[device] <= set(names)


def test_the_paper_grid_spans_the_paper_and_runs_its_rows_and_all_of_cudnn_without_tf32():
    plan = shipped("paper.yaml")
    for axis, low, high in (("hidden", 128, 1024), ("batch", 1, 256), ("timesteps", 10, 1000)):
        values = {getattr(s, axis) for s in plan.shapes}
        assert (min(values), max(values)) == (low, high)
    rows = [row for row in IMPLEMENTATIONS.values() if row.framework == "deepbench"]
    cudnn = {row.name for row in rows if "cuda" in row.devices}
    cudnn -= {"deepbench-tf32", "deepbench-tf32-best"}
    assert {r.name for r in plan.implementations} == cudnn | {"pytorch-half"} | set(PAPER)


def test_the_deepbench_grid_has_its_inference_and_training_shapes():
    shapes = shipped("deepbench.yaml").shapes
    assert len(shapes) == 15 + 22
    assert {Shape(2048, 4, 25, 2048), Shape(4096, 128, 25, 4096)} <= set(shapes)


def test_the_noise_grid_measures_every_row_of_the_paper_grid_twice():
    plan, paper = shipped("noise.yaml"), shipped("paper.yaml")
    plan = replace(plan, settings=replace(plan.settings, device="cuda"))
    assert plan.implementations == paper.implementations
    for shape in plan.shapes:
        copies = Counter(cell.implementation for cell in plan.cells(shape, 1))
        assert set(copies.values()) == {2}


def test_threads_are_an_axis_on_a_cpu():
    plan = plan_of({"threads": [1, "all", 1], "implementations": ["fake"]})
    assert plan.settings.threads == 2
    assert [(r.name, r.threads, r.worker) for r in plan.implementations] == [
        ("fake", 0, "fake"),
        ("fake@1", 1, "fake@1"),
    ]


def test_on_a_gpu_one_thread_all_threads_and_the_gpu_stand_side_by_side():
    rows = ["pytorch", "deepbench-best"]
    plan = plan_of({"threads": [1, "all"], "device": "cuda", "implementations": rows})
    where = {r.name: r.settings_in(plan.settings) for r in plan.implementations}
    assert list(where) == ["pytorch", "pytorch@2", "pytorch@1", "deepbench-best"]  # cuDNN only
    assert (where["pytorch"].device, where["pytorch@1"].device) == ("cuda", "cpu")
    assert (where["pytorch@1"].threads, where["pytorch@2"].threads) == (1, 2)


def test_a_row_that_has_its_threads_gets_no_others():
    plan = plan_of({"threads": [1, "all"], "implementations": ["fake", "fake@1"]})
    assert [row.name for row in plan.implementations] == ["fake", "fake@1"]


@pytest.mark.parametrize("stem", ["_test", "-test", "my.grid"])
def test_a_file_whose_name_names_no_run_says_so(stem):
    with pytest.raises(LstmBenchError, match=r"the file's own name.*a letter or digit first"):
        grid.plan(dict(FAKE_GRID), Path(f"{stem}.yaml"), device="cpu", threads=2)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []),
        (False, []),
        (True, [3, 5]),
        ("hidden=5", [5]),
        (["hidden>=3", "hidden<5"], [3]),
    ],
)
def test_energy_is_measured_where_it_is_asked_for_and_on_a_gpu(value, expected):
    on_gpu = plan_of({"energy": value, "device": "cuda"})
    assert [c.shape.hidden for c in on_gpu.all_cells() if on_gpu.wants_energy(c)] in (
        expected,
        expected[::-1],
    )
    on_cpu = plan_of({"energy": value})
    assert not any(on_cpu.wants_energy(cell) for cell in on_cpu.all_cells())
    assert Plan.from_json(on_gpu.to_json(), "here") == on_gpu


@pytest.mark.parametrize(
    ("sampling", "rounds", "most"),
    [
        (None, 30, 30),
        ({}, 30, 30),
        ({"max_rounds": 15}, 30, 30),
        ({"max_rounds": 40}, 30, 40),
        ({"rounds": 50}, 50, 50),
        ({"rounds": 50, "max_rounds": 100}, 50, 100),
        ({"rounds": "fifty"}, 30, 30),
    ],
)
def test_rigorous_is_never_less_than_the_file_says(sampling, rounds, most):
    flags = grid_command.sampling_flags({"sampling": sampling}, False, True, False)
    assert flags == {"rounds": rounds, "max_rounds": most}


def test_each_load_for_energy_is_guessed_to_take_its_time():
    guesses = []
    for loads in (1, 5):
        data = {"implementations": ["pytorch"], "sampling": {"loads": loads}, "energy": True}
        data |= {"hidden": 64, "batch": 1, "timesteps": 10, "device": "cuda", "controls": 0}
        plan = plan_of(data)
        guesses.append(Estimate(plan).run_s(plan.all_cells()))
    assert guesses[1] - guesses[0] == pytest.approx(4 * (WINDOW_S + LEAD_S))


@pytest.mark.parametrize("path", GRIDS, ids=[p.stem for p in GRIDS])
def test_the_rounds_of_a_shipped_grid_fit_into_its_cap(path):
    """Otherwise every cell that is not known soon would be called capped."""
    sampling = shipped(path.name).sampling
    kinds = 1 if sampling.queued_calls == 1 else 2
    assert sampling.max_rounds * sampling.block_s * kinds < sampling.cell_s


def test_fast_loads_a_cell_once_whatever_the_file_says():
    data = {"implementations": ["fake"], "sampling": {"loads": 4, "max_rounds": 100}}
    flags = grid_command.sampling_flags(data, fast=True, rigorous=False, deepbench=False)
    assert plan_of(data, sampling=flags).sampling.loads == 1


def test_an_old_name_in_a_grid_is_the_row_of_today_once():
    names = ["pytorch-persistent", "lstm-kernels", "pytorch-tf32-persistent"]
    plan = plan_of({"implementations": names, "device": "cuda"})
    assert [row.name for row in plan.implementations] == ["lstm-kernels", "lstm-kernels-tf32"]


def test_a_run_with_a_row_that_was_renamed_is_read_and_not_gone_on_with():
    folder = REPOSITORY / "results" / "h200-devices"
    stored = Plan.from_json(store.read_manifest(folder)["plan"], str(folder))
    assert "pytorch-persistent" in {row.name for row in stored.implementations}
    with pytest.raises(LstmBenchError, match="pytorch-persistent is another row in this version"):
        choice.resumed(stored, {}, folder)
