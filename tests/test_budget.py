"""How long a run takes by its estimate, and what a budget leaves to each of its shapes."""

import itertools
import json
import time
from pathlib import Path

import pytest
from conftest import FAKE_GRID, REPOSITORY
from test_driver import Quiet, Raw, plan_of

from lstm_bench.driver import driver
from lstm_bench.model.types import FEWEST_ROUNDS
from lstm_bench.runs import budget, grid, store
from lstm_bench.runs.estimate import Estimate
from lstm_bench.runs.plan import Plan

pytestmark = pytest.mark.usefixtures("in_process")

#: Calls that take their time, so that a second is short.
SAMPLING = {"rounds": 5, "max_rounds": 40, "warmup_s": 0.02, "warmup_cap_s": 0.05, "block_s": 0.02}


def real(*calls_s, **more):
    """Rows whose calls take so long, whatever the shape."""
    return {f"row{n}": {"real": True, "call_s": s, "noise": 0.3} for n, s in enumerate(calls_s)}


def walk(tmp_path, budget_s, stop=lambda: False, **changes):
    plan = plan_of(**{"sampling": SAMPLING, **changes})
    sink, observer = Raw(tmp_path), Quiet()
    started = time.monotonic()
    outcome = driver.run(plan, plan.all_cells(), sink, observer, stop, budget_s)
    return outcome, sink, observer, time.monotonic() - started


# estimates


@pytest.mark.parametrize(
    "run", ["h200-paper", "h200-ladder", "h200-deepbench", "h200-kernel", "h200-devices"]
)
def test_a_run_on_a_gpu_takes_what_its_plan_is_estimated_to_take(run):
    """The estimate against what the shipped runs took."""
    folder = REPOSITORY / "results" / run
    plan = Plan.from_json(store.read_manifest(folder)["plan"], run)
    took = sum(leg.wall_s for leg in store.read_legs(folder))
    assert Estimate(plan).run_s(plan.all_cells()) == pytest.approx(took, rel=0.3)


def test_what_a_run_has_seen_corrects_the_estimate_of_what_is_left():
    data = {"hidden": [64, 128, 256], "batch": 4, "timesteps": 50, "implementations": ["pytorch"]}
    plan = grid.plan(data, Path("g.yaml"), device="cpu", threads=2)
    estimate = Estimate(plan)
    small, *_, large = sorted(plan.all_cells(), key=lambda cell: cell.shape.hidden)
    before, before_small = estimate.call_s(large), estimate.call_s(small)
    for _ in range(2):
        estimate.learn(small, 8 * before_small, 1.0, plan.sampling)
    assert estimate.call_s(large) == pytest.approx(4 * before)


# budgets


def groups_of(plan):
    groups = {}
    for cell in plan.all_cells():
        groups.setdefault((cell.pass_number, cell.shape), []).append(cell)
    return groups


def plan_with(**changes):
    data = {
        "hidden": [64, 256, 1024],
        "batch": 8,
        "timesteps": 50,
        "implementations": ["deepbench", "pytorch"],
        "device": "cpu",
        **changes,
    }
    return grid.plan(data, Path("g.yaml"), device="cpu", threads=2)


def test_shares_fill_the_budget_and_the_cheapest_shape_comes_first():
    plan = plan_with()
    estimate, groups = Estimate(plan), groups_of(plan)
    whole = estimate.run_s(plan.all_cells())
    start = estimate.start_s(plan.all_cells())
    for seconds in (0.5 * whole, 0.9 * whole, whole, 3 * whole):
        ration = budget.ration(estimate, groups, seconds)
        assert sum(ration.shares.values()) == pytest.approx(seconds - start)
        assert [shape.hidden for _, shape in ration.shares] == [64, 256, 1024]
        assert not ration.too_long


def test_a_budget_takes_long_blocks_first_then_controls_of_the_dearest_shapes_then_the_rest():
    plan = plan_with(hidden=[64, 128, 256, 512])
    estimate, cells = Estimate(plan), groups_of(plan)
    ways = budget.ways(plan.sampling)
    shape = next(iter(cells.values()))
    costs = [way.seconds(estimate, shape) for way in ways]
    assert costs == sorted(costs, reverse=True)
    assert [way.controls for way in ways] == [True, True, False, False, False]
    assert [way.sampling.warmup_s < plan.sampling.warmup_s for way in ways] == [0, 0, 0, 1, 1]
    assert ways[-1].rounds == FEWEST_ROUNDS
    for way, cost in zip(ways, costs, strict=True):
        assert budget.fullest(estimate, shape, cost) == way
    seconds = estimate.start_s(plan.all_cells()) + sum(
        ways[1].seconds(estimate, group) for group in cells.values()
    )
    shares = budget.ration(estimate, cells, 0.97 * seconds).shares
    chosen = [budget.fullest(estimate, cells[at], share) for at, share in shares.items()]
    controls = [way.controls for way in chosen]
    assert controls == sorted(controls, reverse=True)  # the dearest are the last
    assert len(set(controls)) == 2


def test_a_shape_that_does_not_fit_is_named_at_the_start_and_left_out_whole(tmp_path):
    """One of three takes 20 times as long as the budget; the others get what there is."""
    fakes = real(0.01)
    fakes["slow"] = {"real": True, "call_s": 5.0}
    plan = plan_of(fake=fakes, hidden=3, sampling=SAMPLING)
    estimate = Estimate(plan)
    share = budget.ration(estimate, groups_of(plan), 2.0)
    assert not share.shares
    (need_s,) = share.too_long.values()
    assert need_s > 20
    outcome, sink, observer, took_s = walk(tmp_path, 2.0, fake=fakes, hidden=3)
    assert (outcome.out_of_budget, outcome.left, sink.records) == (True, 2, [])
    assert any("budget: 1 shape needs about" in text for text in observer.texts)
    assert any("3,2,4" in text for text in observer.texts)
    assert took_s < 2.0


def test_every_row_has_its_fewest_rounds_before_any_has_more(tmp_path):
    outcome, sink, _, took_s = walk(tmp_path, 4.0, fake=real(0.05, 0.02), hidden=[3, 4, 5, 6])
    assert {record.status for record in sink.records} == {"ok"}
    assert len({(r.implementation, r.shape) for r in sink.records}) == 8
    assert all(record.rounds >= FEWEST_ROUNDS for record in sink.records)
    assert took_s < 1.1 * 4.0
    assert outcome.left == 0


def test_a_budget_is_used_up_unless_all_has_converged(tmp_path):
    """Noise keeps the rows from converging."""
    _, sink, _, took_s = walk(tmp_path, 3.0, fake=real(0.01, 0.01), hidden=[3, 4], controls=2)
    assert 0.9 * 3.0 <= took_s <= 1.1 * 3.0
    assert all(record.rounds >= FEWEST_ROUNDS for record in sink.records)


@pytest.mark.processes
def test_a_shape_that_hangs_while_it_is_prepared_ends_with_the_budget(tmp_path):
    """No estimate knew of it."""
    fakes = {"good": {}, "stuck": {"fault": "hang", "when": "build"}}
    sampling = {**SAMPLING, "timeout_s": 60}
    outcome, sink, _, took_s = walk(tmp_path, 4.0, fake=fakes, hidden=3, sampling=sampling)
    assert took_s < 10
    assert sink.records == []
    assert (outcome.out_of_budget, outcome.left) == (True, 2)


def test_rows_with_three_rounds_are_recorded_at_a_stop(tmp_path):
    rounds = itertools.count()
    fakes = real(0.01, 0.01)
    plan = plan_of(fake=fakes, hidden=3, sampling={**SAMPLING, "rounds": 40, "max_rounds": 40})
    sink, asked = Raw(tmp_path), []

    class Counting(Quiet):
        def doing(self, text):
            if "round 5" in text and next(rounds) == 1:
                asked.append(True)

    outcome = driver.run(plan, plan.all_cells(), sink, Counting(), lambda: bool(asked))
    assert {record.status for record in sink.records} == {"ok"}
    assert {record.rounds for record in sink.records} <= {4, 5}
    assert all("hurried: there was time for" in " ".join(r.warnings) for r in sink.records)
    assert outcome.left == 0


def test_rows_with_fewer_rounds_are_interrupted_by_a_stop(tmp_path):
    plan = plan_of(fake=real(0.01, 0.01), hidden=3, sampling=SAMPLING)
    sink, asked = Raw(tmp_path), []

    class Counting(Quiet):
        def doing(self, text):
            if "round 3" in text:
                asked.append(True)

    outcome = driver.run(plan, plan.all_cells(), sink, Counting(), lambda: bool(asked))
    assert {record.status for record in sink.records} == {"interrupted"}
    assert outcome.interrupted


def test_what_a_budget_left_out_is_measured_by_a_resume(lstm_bench, write_grid):
    grid_file = write_grid(
        implementations=["a", "b"],
        fake={"a": {"real": True, "call_s": 0.05}, "b": {"real": True, "call_s": 0.05}},
        controls=2,
        sampling={**FAKE_GRID["sampling"], **SAMPLING, "max_rounds": 5},
    )
    done = lstm_bench("grid", grid_file, "--run", "r", "--budget", "2s")
    assert done.returncode == 0
    assert "no A/A controls at" in done.stdout
    again = lstm_bench("grid", "--resume", "r")
    assert again.returncode == 0
    lines = map(json.loads, Path("results/r/records.jsonl").read_text().splitlines())
    latest = {(r["implementation"], r["shape"]["hidden"], r["copy"]): r for r in lines}
    assert len(latest) == 8
    assert {r["status"] for r in latest.values()} == {"ok"}
