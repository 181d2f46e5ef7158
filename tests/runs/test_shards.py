"""Parts of a grid, measured by several jobs, and the run that they make together."""

import json
import shutil
from dataclasses import replace

import conftest
import pytest
from conftest import records

from lstm_bench.model.types import Cell
from lstm_bench.runs import store
from lstm_bench.runs.estimate import Estimate

GRID = {"hidden": [3, 4, 5, 6, 7], "batch": [1, 2], "controls": 1}


def plan_of(**changes):
    return conftest.plan_of({**GRID, **changes})


def shards(plan, of):
    return [replace(plan, shard=(number, of)) for number in range(1, of + 1)]


@pytest.mark.parametrize("of", [1, 2, 3, 7, 10])
def test_the_parts_of_a_grid_are_the_grid(of):
    plan = plan_of(passes=2)
    cells = [cell for part in shards(plan, of) for cell in part.all_cells()]
    assert sorted(cell.key for cell in cells) == sorted(cell.key for cell in plan.all_cells())
    assert sum(part.size for part in shards(plan, of)) == plan.size


def test_all_parts_take_about_as_long():
    real = {"implementations": ["pytorch"], "timesteps": [10, 50, 400], "hidden": [64, 256, 1024]}
    plan = plan_of(**real)
    estimate = Estimate(plan)
    costs = {
        s: estimate.shape_s([Cell(r.name, s) for r in plan.implementations]) for s in plan.shapes
    }
    loads = [sum(map(costs.__getitem__, part.own_shapes())) for part in shards(plan, 3)]
    longest = max(costs.values())
    assert max(loads) - min(loads) <= longest


def test_a_plan_of_a_part_comes_back_from_its_manifest():
    part = replace(plan_of(), shard=(2, 3))
    again = type(part).from_json(json.loads(json.dumps(part.to_json())), "r")
    assert again.same_work(part)
    assert not again.same_work(plan_of())


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of the runs of `two`, once they were measured."""
    return tmp_path_factory.mktemp("measured") / "results"


@pytest.fixture
def two(lstm_bench, write_grid, tmp_path, measured):
    """Two shards of a grid, and the run of the whole of it."""
    path = write_grid(**GRID)
    if not measured.exists():
        for flags in (["--run", "whole"], *(["--run", "g", "--shard", f"{n}/2"] for n in (1, 2))):
            lstm_bench("grid", path, *flags, code=0)
        shutil.move(tmp_path / "results", measured)
    return shutil.copytree(measured, tmp_path / "results")


def keys(run):
    return set(store.read_records(run))


def test_merged_parts_are_the_run_of_the_whole(two, lstm_bench):
    lstm_bench("merge", "g-shard-1-of-2", "g-shard-2-of-2", code=0)
    assert keys(two / "g") == keys(two / "whole")
    assert len(list(store.read_blocks(two / "g"))) == len(keys(two / "g"))
    assert all(record["node"] and record["device_name"] for record in records(two / "g"))
    shown = lstm_bench("report", "--run", "g").stdout
    assert "still to be measured" not in shown
    assert "mixed" not in shown
    assert (
        shown.splitlines()[1:5] == lstm_bench("report", "--run", "whole").stdout.splitlines()[1:5]
    )


def test_merging_again_adds_nothing(two, lstm_bench):
    names = ("g-shard-1-of-2", "g-shard-2-of-2")
    lstm_bench("merge", *names)
    before = {path.name: path.read_bytes() for path in (two / "g").glob("*.jsonl")}
    assert "nothing new" in lstm_bench("merge", *names).stdout
    lstm_bench("merge", names[1])
    assert {path.name: path.read_bytes() for path in (two / "g").glob("*.jsonl")} == before


def test_parts_can_be_merged_one_by_one_and_missing_ones_are_named(two, lstm_bench):
    assert "not among them: --shard 2/2" in lstm_bench("merge", "g-shard-1-of-2").stderr
    assert "still to be measured" in lstm_bench("report", "--run", "g").stdout
    lstm_bench("merge", "g-shard-2-of-2")
    assert keys(two / "g") == keys(two / "whole")


def test_a_merge_that_was_cut_short_is_completed_by_the_next(two, lstm_bench):
    lstm_bench("merge", "g-shard-1-of-2", "g-shard-2-of-2")
    whole = {path.name: path.read_bytes() for path in (two / "g").glob("*.jsonl")}
    for name in ("records.jsonl", "samples.jsonl"):
        (two / "g" / name).write_bytes(whole[name][: len(whole[name]) // 3])
    lstm_bench("merge", "g-shard-1-of-2", "g-shard-2-of-2")
    again = {path.name: path.read_bytes() for path in (two / "g").glob("*.jsonl")}
    assert {n: sorted(d.splitlines()) for n, d in again.items()} == {
        n: sorted(d.splitlines()) for n, d in whole.items()
    }


def test_a_part_that_went_on_is_merged_again(two, lstm_bench):
    part = two / "g-shard-2-of-2"
    lines = (part / "records.jsonl").read_bytes().splitlines(keepends=True)
    (part / "records.jsonl").write_bytes(b"".join(lines[:2]))
    lstm_bench("merge", "g-shard-1-of-2", "g-shard-2-of-2")
    assert keys(two / "g") < keys(two / "whole")
    assert lstm_bench("grid", "--resume", "g-shard-2-of-2").returncode == 0
    assert lstm_bench("merge", "g-shard-2-of-2").returncode == 0
    assert keys(two / "g") == keys(two / "whole")


def changed(run, change):
    manifest = json.loads((run / "manifest.json").read_text())
    change(manifest)
    (run / "manifest.json").write_text(json.dumps(manifest))


def other_device(run):
    def change(manifest):
        manifest["machine"]["cpu"] = "Other CPU"

    changed(run, change)
    line = json.loads((run / "nodes.jsonl").read_text())
    line["machine"]["cpu"] = "Other CPU"
    (run / "nodes.jsonl").write_text(json.dumps(line) + "\n")


def other_version(run):
    changed(run, lambda manifest: manifest["machine"].update(lstm_bench="0.0.1"))


def other_library(run):
    changed(run, lambda m: m["interpreters"]["fake"].update(versions={"numpy": "0.1"}))


def other_grid(run):
    changed(run, lambda manifest: manifest["plan"].update(passes=2))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (other_device, "device: Other CPU"),
        (other_version, "version of lstm-bench: 0.0.1"),
        (other_library, "version of fake"),
        (other_grid, "grid: another plan"),
    ],
)
def test_what_does_not_belong_together_is_refused(two, lstm_bench, change, word):
    change(two / "g-shard-2-of-2")
    assert word in lstm_bench("merge", "g-shard-1-of-2", "g-shard-2-of-2", code=2).stderr
    assert not (two / "g").exists()
    lstm_bench("merge", "g-shard-1-of-2")
    assert lstm_bench("merge", "g-shard-2-of-2").returncode == 2  # nor into what is there


def test_two_runs_of_one_cell_are_refused(two, lstm_bench):
    lstm_bench("grid", two.parent / "grid.yaml", "--run", "h", "--shard", "1/2")
    done = lstm_bench("merge", "g-shard-1-of-2", "h-shard-1-of-2", "--run", "both", code=2)
    assert "both measured" in done.stderr
    lstm_bench("merge", "g-shard-1-of-2")
    assert "both measured" in lstm_bench("merge", "h-shard-1-of-2", "--run", "g").stderr


def test_unlike_devices_are_merged_if_asked_and_shown_apart(two, lstm_bench):
    other_device(two / "g-shard-2-of-2")
    lstm_bench("merge", "g-shard-1-of-2", "g-shard-2-of-2", "--mixed", code=0)
    assert "g: mixed, measured on 2 kinds of device" in lstm_bench("report", "--run", "g").stdout


def test_a_run_on_one_machine_becomes_a_node(two, lstm_bench):
    shutil.copytree(two / "whole", two / "again")
    lstm_bench("merge", "whole", "--run", "merged", code=0)
    assert {record["node"] for record in records(two / "merged")} == {"whole"}
    assert json.loads((two / "merged" / "nodes.jsonl").read_text())["node"] == "whole"


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--shard", "0/2"], "expected a part such as 3/8"),
        (["--shard", "3/2"], "expected a part such as 3/8"),
        (["--shard", "x"], "expected a part such as 3/8"),
        (["--shard", "1/11"], "11 parts of 10 shapes"),
        (["--shard", "1/2", "--ray"], "--shard is for those without --ray"),
        (["--per-device"], "go with --ray"),
    ],
)
def test_a_wrong_part_is_told(lstm_bench, write_grid, flags, word):
    assert word in lstm_bench("grid", write_grid(**GRID), *flags, code=2).stderr


def test_a_job_script_starts_its_part_and_goes_on_with_it(lstm_bench, write_grid, tmp_path):
    line = ("grid", write_grid(**GRID), "--run", "g", "--resume")
    first = lstm_bench(*line, "--shard", "1/2")
    second = lstm_bench(*line, "--shard", "2/2")
    assert (first.returncode, second.returncode) == (0, 0)
    assert "nothing is left" in lstm_bench(*line, "--shard", "1/2").stdout
    assert "5 shapes" in lstm_bench(*line[:2], "--shard", "1/2", "--dry-run").stdout


def test_merge_wants_a_name_where_there_is_none(two, lstm_bench):
    assert "--run NAME" in lstm_bench("merge", "whole", code=2).stderr
    assert lstm_bench("merge", "whole", "--run", "whole").returncode == 2
