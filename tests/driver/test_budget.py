"""How long a run takes by its estimate, and what a budget leaves to each of its shapes."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import REPOSITORY
from fakes import Quiet, marks, measure, plan_of
from in_process import InProcess

from lstm_bench.driver import context, driver
from lstm_bench.model.types import FEWEST_ROUNDS
from lstm_bench.runs import budget, estimate, grid, store
from lstm_bench.runs.estimate import Estimate
from lstm_bench.runs.plan import Plan

pytestmark = pytest.mark.usefixtures("in_process")

#: Calls that take their time, so that a second is short.
SAMPLING = {"rounds": 5, "max_rounds": 40, "warmup_s": 0.02, "warmup_cap_s": 0.05, "block_s": 0.02}


def rows(*calls_s):
    """Rows whose calls take so long, whatever the shape; they never converge."""
    return {f"row{n}": {"call_s": s, "noise": 0.3} for n, s in enumerate(calls_s)}


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by what the fakes say that they take, and by nothing else."""
    now = [1000.0]
    ask = InProcess.ask

    def asked(worker, verb, *arguments, **named):
        reply = ask(worker, verb, *arguments, **named)
        if verb == "prepare":
            now[0] += reply.first_call_s + reply.warm_up.seconds
        if verb == "measure":
            now[0] += reply.block.wall_s
        return reply

    def call_s(row, shape, settings):
        return float(row.options["call_s"])

    monkeypatch.setattr(InProcess, "ask", asked)
    for module in (context, driver):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(estimate, "call_s", call_s)
    return now


def walk(tmp_path, clock, budget_s, **changes):
    plan = plan_of(**{"sampling": SAMPLING, **changes})
    observer, started = Quiet(), clock[0]
    outcome, sink = measure(plan, tmp_path, observer, budget_s=budget_s)
    return outcome, sink, observer, clock[0] - started


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
    costs_of = Estimate(plan)
    small, *_, large = sorted(plan.all_cells(), key=lambda cell: cell.shape.hidden)
    before, before_small = costs_of.call_s(large), costs_of.call_s(small)
    for _ in range(2):
        costs_of.learn(small, 8 * before_small, 1.0, plan.sampling)
    assert costs_of.call_s(large) == pytest.approx(4 * before)


# budgets


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
    costs_of, groups = Estimate(plan), driver.by_shape(plan.all_cells())
    whole = costs_of.run_s(plan.all_cells())
    start = costs_of.start_s(plan.all_cells())
    for seconds in (0.5 * whole, 0.9 * whole, whole, 3 * whole):
        ration = budget.ration(costs_of, groups, seconds)
        assert sum(ration.shares.values()) == pytest.approx(seconds - start)
        assert [shape.hidden for _, shape in ration.shares] == [64, 256, 1024]
        assert not ration.too_long


def test_a_budget_takes_long_blocks_first_then_controls_of_the_dearest_shapes_then_the_rest():
    plan = plan_with(hidden=[64, 128, 256, 512])
    costs_of, cells = Estimate(plan), driver.by_shape(plan.all_cells())
    ways = budget.ways(plan.sampling)
    shape = next(iter(cells.values()))
    costs = [way.seconds(costs_of, shape) for way in ways]
    assert costs == sorted(costs, reverse=True)
    assert [way.controls for way in ways] == [True, True, False, False, False]
    assert [way.sampling.warmup_s < plan.sampling.warmup_s for way in ways] == [0, 0, 0, 1, 1]
    assert ways[-1].rounds == FEWEST_ROUNDS
    for way, cost in zip(ways, costs, strict=True):
        assert budget.fullest(costs_of, shape, cost) == way
    seconds = costs_of.start_s(plan.all_cells()) + sum(
        ways[1].seconds(costs_of, group) for group in cells.values()
    )
    shares = budget.ration(costs_of, cells, 0.97 * seconds).shares
    chosen = [budget.fullest(costs_of, cells[at], share) for at, share in shares.items()]
    controls = [way.controls for way in chosen]
    assert controls == sorted(controls, reverse=True)  # the dearest are the last
    assert len(set(controls)) == 2


def test_a_shape_that_does_not_fit_is_named_at_the_start_and_left_out_whole(tmp_path, clock):
    """A row takes ten times as long as the budget at each shape."""
    outcome, sink, observer, took_s = walk(tmp_path, clock, 2.0, fake=rows(0.01, 5.0), hidden=3)
    assert (outcome.out_of_budget, outcome.left, sink.records) == (True, 2, [])
    (named,) = (text for text in observer.texts if text.startswith("budget:"))
    assert "too short for 1 shape, " in named
    assert "at least: 3,2,4" in named
    assert took_s == 0


def test_the_shapes_that_fit_are_measured_though_others_do_not(tmp_path, clock, monkeypatch):
    def call_s(row, shape, settings):
        return 0.01 if shape.hidden < 5 else 100.0

    monkeypatch.setattr(estimate, "call_s", call_s)
    outcome, sink, _, took_s = walk(tmp_path, clock, 4.0, fake=rows(0.01), hidden=[3, 4, 5])
    assert {(r.shape.hidden, r.status) for r in sink.records} == {(3, "ok"), (4, "ok")}
    assert outcome.left == 1
    assert 0.9 * 4.0 <= took_s <= 1.1 * 4.0


@pytest.mark.parametrize("budget_s", [1.5, 3.0, 6.0])
def test_a_budget_is_used_up_unless_all_has_converged(tmp_path, clock, budget_s):
    fakes = rows(0.01, 0.01)
    sampling = {**SAMPLING, "max_rounds": 4000, "converged": 1e-9}
    more = {"hidden": [3, 4], "controls": 2, "sampling": sampling}
    _, sink, _, took_s = walk(tmp_path, clock, budget_s, fake=fakes, **more)
    assert 0.9 * budget_s <= took_s <= 1.1 * budget_s
    assert all(record.rounds >= FEWEST_ROUNDS for record in sink.records)


@pytest.mark.processes
def test_a_shape_that_hangs_while_it_is_prepared_ends_with_the_budget(tmp_path):
    """No estimate knew of it."""
    fakes = {"good": {}, "stuck": {"fault": "hang", "when": "build"}}
    sampling = {**SAMPLING, "timeout_s": 60}
    plan = plan_of(fake=fakes, hidden=3, sampling=sampling)
    outcome, sink = measure(plan, tmp_path, budget_s=4.0)
    assert sink.records == []  # else it would be a time-out after a minute
    assert (outcome.out_of_budget, outcome.left) == (True, 2)


@pytest.mark.parametrize(("number", "status"), [(5, "ok"), (3, "interrupted")])
def test_rows_with_three_rounds_are_recorded_at_a_stop(tmp_path, number, status):
    plan = plan_of(fake=rows(0.01, 0.01), hidden=3, sampling={**SAMPLING, "max_rounds": 40})
    observer = Quiet()

    def stop():
        return sum(f"round {number}" in text for text in observer.texts) > (status == "ok")

    outcome, sink = measure(plan, tmp_path, observer, stop)
    assert {record.status for record in sink.records} == {status}
    assert outcome.interrupted == (status == "interrupted")
    if status == "ok":
        assert {record.rounds for record in sink.records} <= {4, 5}
        assert all("hurried" in marks(record) for record in sink.records)
        assert outcome.left == 0


def test_a_budget_that_runs_out_says_how_to_go_on(lstm_bench, write_grid, clock):
    grid_file = write_grid(fake={"fake": {"call_s": 1.0}}, hidden=list(range(1, 60)))
    done = lstm_bench("grid", grid_file, "--budget", "60s", code=0)
    assert "The budget is used up" in done.stdout
    assert "lstm-bench grid --resume" in done.stdout


def test_controls_that_a_budget_left_out_are_measured_by_a_resume(
    lstm_bench, write_grid, clock, tmp_path
):
    sampling = {**SAMPLING, "max_rounds": 5}
    grid_file = write_grid(
        implementations=["a", "b"],
        fake={"a": {"call_s": 0.5}, "b": {"call_s": 0.5}},
        controls=2,
        sampling=sampling,
    )
    done = lstm_bench("grid", grid_file, "--run", "r", "--budget", "20s", code=0)
    assert "no A/A controls at" in done.stdout
    assert lstm_bench("grid", "--resume", "r").returncode == 0
    lines = map(json.loads, (tmp_path / "results/r/records.jsonl").read_text().splitlines())
    latest = {(r["implementation"], r["shape"]["hidden"], r["copy"]): r for r in lines}
    assert len(latest) == 8
    assert {r["status"] for r in latest.values()} == {"ok"}


@pytest.mark.parametrize(("budget_s", "hurried"), [(1.0, True), (600.0, False)])
def test_a_cell_that_a_budget_hurries_says_so(tmp_path, clock, budget_s, hurried):
    sampling = {**SAMPLING, "rounds": 30, "max_rounds": 30}
    more = {"hidden": 3, "sampling": sampling}
    _, sink, *_ = walk(tmp_path, clock, budget_s, fake=rows(0.02), **more)
    (record,) = sink.records
    assert (f"hurried: there was time for {record.rounds} rounds" in record.warnings) == hurried
    assert FEWEST_ROUNDS <= record.rounds <= 30
    assert (record.rounds < 30) == hurried


def test_what_a_budget_shortens_is_blocks_before_rounds(tmp_path, clock):
    sampling = {"rounds": 10, "max_rounds": 10, "block_s": 0.2, "block_calls": 1, "warmup_s": 0.001}
    more = {"hidden": 3, "sampling": sampling}
    _, sink, *_ = walk(tmp_path, clock, 1.0, fake=rows(0.001, 0.001), **more)
    assert [record.rounds for record in sink.records] == [10, 10]
    blocks_s = [sum(block.latency_ns) / 1e9 for blocks in sink.blocks.values() for block in blocks]
    assert max(blocks_s) <= 0.1  # ten rounds of both with blocks of 0.2 s take four seconds
