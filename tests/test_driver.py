"""A walk over a grid with fakes that misbehave: what each costs, and what the rest gets."""

import itertools
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import FAKE_GRID
from in_process import InProcess

from lstm_bench.commands import profile as profile_command
from lstm_bench.driver import driver, energy, follow_ups, gpu, worker_pool
from lstm_bench.driver.signals import held
from lstm_bench.driver.worker_pool import WorkerFailed
from lstm_bench.model.fake_script import WRONG_ANSWERS
from lstm_bench.model.types import Check, Energy, Record, Settings, Shape, Stopped
from lstm_bench.runs import grid
from lstm_bench.runs.store import Kept
from lstm_bench.worker.worker import Worker

pytestmark = pytest.mark.usefixtures("in_process")
processes = pytest.mark.processes  # a start, a crash, a time limit or a log is the promise


class Quiet:
    """An observer that remembers what was said."""

    def __init__(self):
        self.texts = []

    def started(self, cells, seconds): ...

    def doing(self, text):
        self.texts.append(text)

    def finished(self, record): ...


class Raw(Kept):
    """Keeps the blocks too."""

    def append(self, record, blocks, profile=None):
        super().append(record, blocks)
        self.blocks = [*getattr(self, "blocks", []), (record, list(blocks))]


def plan_of(tmp_path=None, **changes):
    data = {**FAKE_GRID, **changes}
    data["implementations"] = list(changes.get("fake", {"fake": {}}))
    return grid.plan(data, Path("g.yaml"), device="cpu", threads=2)


def walk(tmp_path, stop=lambda: False, budget_s=None, observer=None, **changes):
    plan = plan_of(**changes)
    sink = Raw(tmp_path)
    outcome = driver.run(plan, plan.all_cells(), sink, observer or Quiet(), stop, budget_s)
    return outcome, sink


def shoot(worker):
    """Kill it, as the system does when memory is short."""
    if isinstance(worker, InProcess):
        worker.kill()
    else:
        os.kill(worker.pid, signal.SIGKILL)


def kill_at(fatal, monkeypatch, after=0):
    """Kill the worker when it is asked for this, after so many times."""
    ask, left = worker_pool.Workers.ask, [after]

    def asked(self, worker, verb, *arguments, **named):
        left[0] -= verb == fatal
        if left[0] < 0:
            shoot(worker)
        return ask(self, worker, verb, *arguments, **named)

    monkeypatch.setattr(worker_pool.Workers, "ask", asked)


def kill_when(monkeypatch, verb, *numbers):
    """Kill the worker when it is asked this for the first, the third, ... time."""
    ask, asked = worker_pool.Workers.ask, itertools.count(1)

    def asking(self, worker, wanted, *arguments, **named):
        if wanted == verb and next(asked) in numbers:
            shoot(worker)
        return ask(self, worker, wanted, *arguments, **named)

    monkeypatch.setattr(worker_pool.Workers, "ask", asking)


def by_name(records: list[Record], hidden=3):
    return {r.implementation: r for r in records if r.shape.hidden == hidden and r.copy == 1}


def test_a_good_cell_has_its_times_its_check_and_its_circumstances(tmp_path):
    outcome, sink = walk(tmp_path, fake={"fake": {"call_s": 0.004, "first_call_s": 1.5}})
    record = by_name(sink.records)["fake"]
    assert (record.status, record.rounds, record.warnings) == ("ok", 3, [])
    assert record.latency_s == pytest.approx(0.004)
    assert record.throughput_s == pytest.approx(0.004)
    assert record.first_call_s == pytest.approx(1.5)
    assert record.check.passed
    assert record.check.max_abs_error < 1e-6
    assert (record.precision, record.device, record.path) == ("fp32", "cpu", "scripted")
    assert "numpy" in record.versions
    assert not outcome.interrupted
    assert outcome.left == 0


def test_every_raw_sample_reaches_the_store(tmp_path):
    _, sink = walk(tmp_path)
    for record, blocks in sink.blocks:
        assert sum(len(b.latency_ns) for b in blocks) == record.calls
        assert [b.round for b in blocks] == [1, 2, 3]


@pytest.mark.parametrize("mistake", WRONG_ANSWERS)
def test_a_wrong_answer_is_never_timed(tmp_path, mistake):
    _, sink = walk(tmp_path, fake={"bad": {"fault": mistake}, "fake": {}})
    bad, good = by_name(sink.records)["bad"], by_name(sink.records)["fake"]
    assert (bad.status, bad.latency_s, bad.rounds) == ("wrong", None, 0)
    assert bad.reason
    assert good.status == "ok"


LIMIT_S = 3  # more than anything takes that does not hang

FAULTS = [
    ("segfault", "build", "crashed", "SIGSEGV"),
    ("segfault", "measure", "crashed", "SIGSEGV"),
    ("exit", "first-call", "crashed", "exit code 7"),
    ("kill", "measure", "crashed", "out of memory"),
    ("error", "build", "crashed", "RuntimeError: scripted"),
    ("error", "measure", "crashed", "RuntimeError: scripted"),
    ("oom", "measure", "oom", "MemoryError"),
    ("unsupported", "build", "unsupported", "refused"),
    ("garbage", "measure", "crashed", "not JSON"),
    ("hang", "build", "timeout", f"longer than {LIMIT_S} s"),
    ("stubborn-hang", "measure", "timeout", f"longer than {LIMIT_S} s"),
    ("close-pipe", "measure", "crashed", "closed its pipe"),
    ("out-of-order", "measure", "crashed", "out of order"),
    ("no-proper-reply", "measure", "crashed", "out of order"),
    ("huge-reply", "measure", "crashed", "longer than 64 MiB"),
    ("eat-memory", "build", "oom", "MemoryError"),
    ("eat-memory", "measure", "oom", "MemoryError"),
]


@processes
@pytest.mark.parametrize(("fault", "when", "status", "reason"), FAULTS)
def test_a_fault_costs_one_cell_and_says_why(tmp_path, fault, when, status, reason):
    fakes = {"bad": {"fault": fault, "when": when, "hidden": 3}, "good": {}}
    sampling = {**FAKE_GRID["sampling"]}
    if status == "timeout":
        sampling["timeout_s"] = LIMIT_S
    _, sink = walk(tmp_path, fake=fakes, sampling=sampling)
    bad, good = by_name(sink.records)["bad"], by_name(sink.records)["good"]
    assert (bad.status, bad.latency_s) == (status, None)
    assert reason in bad.reason
    assert (good.status, good.rounds) == ("ok", 3)
    assert {r.status for r in by_name(sink.records, hidden=5).values()} == {"ok"}


@processes
@pytest.mark.parametrize("when", ["build", "first-call", "measure", "release"])
def test_what_a_framework_prints_does_not_matter(tmp_path, when):
    _, sink = walk(tmp_path, fake={"loud": {"fault": "chatter", "when": when}})
    assert {r.status for r in sink.records} == {"ok"}


@processes
def test_a_worker_that_is_slow_at_import_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("LSTM_BENCH_FAKE_START_S", "3")
    sampling = {**FAKE_GRID["sampling"], "timeout_s": 2}
    _, sink = walk(tmp_path, sampling=sampling)
    assert {r.status for r in sink.records} == {"ok"}


@processes
def test_a_worker_that_never_comes_up_costs_its_cells_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setenv("LSTM_BENCH_FAKE_START_S", "3600")
    monkeypatch.setattr(worker_pool, "START_TIMEOUT_S", 0.5)
    _, sink = walk(tmp_path)
    assert {r.status for r in sink.records} == {"timeout"}
    assert all("hello took longer" in r.reason for r in sink.records)


@processes
def test_a_neighbour_of_a_crash_goes_on_in_a_new_process_and_says_so(tmp_path):
    fakes = {"bad": {"fault": "kill", "when": "measure", "after": 1}, "good": {}}
    outcome, sink = walk(tmp_path, fake=fakes)
    good = by_name(sink.records)["good"]
    assert good.rounds == 3
    assert any(w.startswith("two processes") for w in good.warnings)
    assert sum(outcome.spent_s.values()) <= outcome.wall_s  # nothing is counted twice


@processes
def test_a_worker_that_never_starts_is_given_up_after_two_attempts(tmp_path):
    _, sink = walk(tmp_path, hidden=[1, 2, 3, 4, 5], environments={"fake": "/bin/false"})
    assert {r.status for r in sink.records} == {"crashed"}
    assert len(sink.records) == 5
    assert "exit code 1" in sink.records[-1].reason
    assert len(list(tmp_path.glob("fake-*.log"))) == worker_pool.MAX_STARTS


@processes
def test_a_fault_at_the_very_end_keeps_the_times_and_the_check(tmp_path):
    _, sink = walk(tmp_path, fake={"bad": {"fault": "exit", "when": "release"}}, hidden=3)
    (record,) = sink.records
    assert (record.status, record.rounds, record.check.passed) == ("ok", 3, True)
    assert any(w.startswith("not released") for w in record.warnings)


@processes
def test_a_worker_that_dies_before_the_last_check_keeps_the_times_and_says_so(
    tmp_path, monkeypatch
):
    kill_at("check", monkeypatch)
    _, sink = walk(tmp_path, hidden=3)
    (record,) = sink.records
    assert (record.status, record.rounds) == ("ok", 3)
    assert any(w.startswith("not checked again") for w in record.warnings)


@processes
def test_the_log_of_a_dead_worker_is_quoted(tmp_path):
    _, sink = walk(tmp_path, fake={"bad": {"fault": "exit", "when": "measure"}})
    assert "about to commit exit" in by_name(sink.records)["bad"].reason


def test_all_implementations_of_a_shape_are_measured_in_turns(tmp_path):
    observer = Quiet()
    fakes = {"a": {}, "b": {}, "c": {"process": "other"}}
    walk(tmp_path, observer=observer, fake=fakes)
    rounds = [t for t in observer.texts if t.startswith("3,2,4  round")]
    names = [t.split()[-1] for t in rounds]
    assert [sorted(names[i : i + 3]) for i in (0, 3, 6)] == [["a", "b", "c"]] * 3
    assert [t.split()[2] for t in rounds] == ["1"] * 3 + ["2"] * 3 + ["3"] * 3


def test_rounds_go_on_until_the_interval_is_narrow_enough(tmp_path):
    sampling = {"rounds": 5, "max_rounds": 20, "warmup_s": 0.01, "block_s": 0.001, "block_calls": 1}
    fakes = {"steady": {}, "noisy": {"noise": 0.3}}
    _, sink = walk(tmp_path, fake=fakes, sampling=sampling)
    found = by_name(sink.records)
    assert (found["steady"].rounds, found["steady"].warnings) == (5, [])
    assert found["noisy"].rounds == 20
    assert any(w.startswith("not converged") for w in found["noisy"].warnings)


def test_a_slow_cell_is_capped_and_marked(tmp_path):
    sampling = {**FAKE_GRID["sampling"], "rounds": 10, "max_rounds": 10, "cell_s": 5.0}
    _, sink = walk(tmp_path, fake={"slow": {"call_s": 2.0}, "quick": {}}, sampling=sampling)
    slow = by_name(sink.records)["slow"]
    assert slow.status == "ok"
    assert slow.timed_s <= 5.0 + 2.0
    assert any(w.startswith("capped: 3 rounds") for w in slow.warnings)
    assert by_name(sink.records)["quick"].rounds == 10


def test_a_cell_that_ran_out_of_time_before_it_converged_is_capped_too(tmp_path):
    sampling = {**FAKE_GRID["sampling"], "rounds": 3, "max_rounds": 50, "cell_s": 5.0}
    fakes = {"slow": {"call_s": 0.5, "noise": 0.3}}
    _, sink = walk(tmp_path, fake=fakes, sampling=sampling)
    slow = by_name(sink.records)["slow"]
    assert 3 <= slow.rounds < 50
    assert {w.split(":")[0] for w in slow.warnings} >= {"capped", "not converged"}


def test_a_disturbed_block_is_repeated_marked_and_kept(tmp_path, monkeypatch):
    verdicts = iter([False, True, True, False])
    monkeypatch.setattr(driver.convergence, "disturbed", lambda *_: next(verdicts, False))
    _, sink = walk(tmp_path, hidden=3)
    ((record, blocks),) = sink.blocks
    assert [b.disturbed for b in blocks] == [False, True, True, False, False]
    assert [b.round for b in blocks] == [1, 2, 2, 2, 3]
    assert record.rounds == 3
    assert record.warnings == []


def test_a_machine_that_stays_disturbed_is_said_so(tmp_path, monkeypatch):
    monkeypatch.setattr(driver.convergence, "disturbed", lambda *_: True)
    _, sink = walk(tmp_path, hidden=3)
    ((record, blocks),) = sink.blocks
    assert len(blocks) == 3 * (1 + driver.MAX_REPEATS)
    assert any(w.startswith("disturbed") for w in record.warnings)


def test_the_two_of_an_a_a_pair_get_the_same_blocks(tmp_path):
    """However their warm-ups came out: what lies between them shall be noise and nothing else."""
    sampling = {**FAKE_GRID["sampling"], "warmup_s": 0.001, "block_s": 0.1, "block_calls": 1}
    fakes = {name: {"call_s": 0.01, "noise": 0.3} for name in ("a", "b", "c")}
    _, sink = walk(tmp_path, controls=3, fake=fakes, sampling=sampling)
    calls = {}
    for record, blocks in sink.blocks:
        key = (record.implementation, record.shape)
        calls.setdefault(key, set()).update(len(block.latency_ns) for block in blocks)
    assert all(len(found) == 1 for found in calls.values())
    assert len(set.union(*calls.values())) > 1  # by the noise, from cell to cell


@pytest.mark.parametrize(("least", "most", "done"), [(3, 13, 12), (13, 13, 14), (14, 20, 14)])
def test_rounds_take_the_builds_of_a_cell_in_turns(tmp_path, least, most, done):
    """Every second build is 20% slower, for as long as it lives: the median is between the two.

    So there are as many rounds of each, and it has converged as soon as each of them has.
    """
    sampling = {**FAKE_GRID["sampling"], "rounds": least, "max_rounds": most, "builds": 2}
    script = {"call_s": 0.001, "copy_offset": 0.2}
    _, sink = walk(tmp_path, hidden=3, fake={"fake": script}, sampling=sampling)
    (record,) = sink.records
    first, second = record.round_latency_s[0::2], record.round_latency_s[1::2]
    assert sorted([min(first), min(second)]) == pytest.approx([0.001, 0.0012])
    assert len(set(first)) == len(set(second)) == 1
    assert record.latency_s == pytest.approx(0.0011)
    assert (record.rounds, record.builds, record.warnings) == (done, 2, [])


def of_builds(builds):
    return {
        **FAKE_GRID["sampling"],
        "rounds": 6 * builds,
        "max_rounds": 6 * builds,
        "builds": builds,
    }


def spoilt(monkeypatch, verb, ends, spoil):
    """Have this done to the replies to a verb about builds whose name ends so."""
    ask = worker_pool.Workers.ask

    def asked(self, worker, asked_for, *arguments, **named):
        reply = ask(self, worker, asked_for, *arguments, **named)
        if asked_for == verb and named["key"].endswith(ends):
            spoil(reply)
        return reply

    monkeypatch.setattr(worker_pool.Workers, "ask", asked)


def wrong(reply):
    """By less than another build is off, as a NaN is."""
    reply.check = Check(0.0, 0.0, 1e-5, False, "output is off")


@pytest.mark.parametrize(
    ("verb", "reason"),
    [("prepare", "build 2 of 3: output is off"), ("check", "after timing: output is off")],
)
def test_one_wrong_build_makes_a_cell_wrong(tmp_path, monkeypatch, verb, reason):
    spoilt(monkeypatch, verb, "~2", wrong)
    _, sink = walk(tmp_path, hidden=3, sampling=of_builds(3))
    (record,) = sink.records
    assert (record.status, record.reason) == ("wrong", reason)
    assert not record.check.passed
    assert record.latency_s is None


def test_where_memory_is_short_a_cell_goes_on_with_the_builds_there_are(tmp_path, monkeypatch):
    def full(reply):
        raise WorkerFailed("oom", "MemoryError: no more")

    spoilt(monkeypatch, "prepare", "~3", full)
    spoilt(monkeypatch, "prepare", "~4", full)  # which is not tried
    script = {"call_s": 0.001, "copy_offset": 0.2}
    _, sink = walk(tmp_path, hidden=3, fake={"fake": script}, sampling=of_builds(5))
    (record,) = sink.records
    assert (record.status, record.builds, record.rounds) == ("ok", 2, 30)
    assert len(set(record.round_latency_s[0::2])) == len(set(record.round_latency_s[1::2])) == 1
    assert record.warnings == ["fewer builds: build 3 of 5 failed: MemoryError: no more"]


def test_a_build_that_is_not_warm_is_told(tmp_path, monkeypatch):
    def cold(reply):
        reply.warm_up = replace(reply.warm_up, settled=False)

    spoilt(monkeypatch, "prepare", "~2", cold)
    _, sink = walk(tmp_path, hidden=3, sampling=of_builds(2))
    assert [w.split(":")[0] for w in sink.records[0].warnings] == ["not warm"]


def test_a_cell_that_is_lost_keeps_none_of_its_builds(tmp_path, monkeypatch):
    released = []
    spoilt(monkeypatch, "prepare", "~3", wrong)
    ask = worker_pool.Workers.ask

    def asked(self, worker, verb, *arguments, **named):
        if verb == "release":
            released.append(named["key"][-2:])
        return ask(self, worker, verb, *arguments, **named)

    monkeypatch.setattr(worker_pool.Workers, "ask", asked)
    walk(tmp_path, hidden=3, sampling=of_builds(3))
    fails = {"fault": "error", "when": "measure", "after": 3}
    walk(tmp_path, hidden=3, fake={"fake": fails}, sampling=of_builds(2))
    assert released == ["p1", "~2", "~3", "p1", "~2"]


def noted(monkeypatch, wanted):
    """The names of the builds that workers are asked this for, in that order."""
    asked, ask = [], worker_pool.Workers.ask

    def asking(self, worker, verb, *arguments, **named):
        if verb == wanted:
            asked.append(named["key"])
        return ask(self, worker, verb, *arguments, **named)

    monkeypatch.setattr(worker_pool.Workers, "ask", asking)
    return asked


def test_later_builds_come_in_another_order_each_time(tmp_path, monkeypatch):
    """All cells once, then all once more: no cell always follows the same one in memory."""
    prepared = noted(monkeypatch, "prepare")
    fakes = {name: {"call_s": 0.001} for name in "abcdef"}
    walk(tmp_path, hidden=3, fake=fakes, implementations=[*fakes], sampling=of_builds(4))
    turns = [[key.split("~")[0] for key in prepared[n : n + 6]] for n in (0, 6, 12, 18)]
    assert len({frozenset(turn) for turn in turns}) == 1
    assert len({tuple(turn) for turn in turns}) == 4
    assert [key.partition("~")[2] for key in prepared[::6]] == ["", "2", "3", "4"]


def test_a_stop_ends_building(tmp_path, monkeypatch):
    prepared = noted(monkeypatch, "prepare")
    outcome, sink = walk(tmp_path, stop=lambda: len(prepared) >= 2, hidden=3, sampling=of_builds(6))
    assert len(prepared) == 2
    assert outcome.interrupted
    assert sink.records == []


def test_what_is_let_go_twice_is_gone():
    worker = Worker("fake", Settings())
    assert worker.release("nothing") == {}


def test_a_budget_ends_building_too(tmp_path):
    sampling = {**FAKE_GRID["sampling"], "rounds": 60, "max_rounds": 360, "builds": 60}
    script = {"call_s": 0.02, "real": True}
    _, sink = walk(tmp_path, budget_s=2, hidden=3, fake={"fake": script}, sampling=sampling)
    (record,) = sink.records
    assert record.status == "ok"
    assert record.rounds % record.builds == 0
    assert record.builds < 60
    assert f"fewer builds: {record.builds} are what --budget left" in record.warnings


def test_builds_that_take_other_ways_are_said_to(tmp_path, monkeypatch):
    """As those of a row that chooses its algorithm may."""
    spoilt(monkeypatch, "prepare", "~3", lambda reply: setattr(reply, "path", "another"))
    _, sink = walk(tmp_path, hidden=3, sampling=of_builds(3))
    (record,) = sink.records
    assert record.warnings == ["several ways: scripted in 2 builds, another in 1 build"]


@processes
@pytest.mark.parametrize(
    ("fault", "when", "status"),
    [("segfault", "build", "crashed"), ("nan", "build", "wrong"), ("error", "measure", "crashed")],
)
def test_a_cell_is_lost_if_one_of_its_builds_is(tmp_path, fault, when, status):
    """And its neighbours in the worker go on, all builds of them."""
    sampling = of_builds(3)
    fakes = {"bad": {"fault": fault, "when": when, "hidden": 3}, "good": {"process": "other"}}
    fakes["near"] = {}
    _, sink = walk(tmp_path, fake=fakes, sampling=sampling)
    found = by_name(sink.records)
    assert found["bad"].status == status
    assert (found["good"].status, found["near"].status) == ("ok", "ok")
    assert by_name(sink.records, hidden=5)["bad"].status == "ok"


def test_a_worker_that_dies_with_a_second_build_costs_one_cell(tmp_path, monkeypatch):
    ask = worker_pool.Workers.ask

    def asked(self, worker, verb, *arguments, **named):
        if verb == "prepare" and named["key"].startswith("a/h3") and named["key"].endswith("~2"):
            shoot(worker)
        return ask(self, worker, verb, *arguments, **named)

    monkeypatch.setattr(worker_pool.Workers, "ask", asked)
    _, sink = walk(tmp_path, fake={"a": {}, "b": {}, "c": {}}, sampling=of_builds(2))
    found = {name: (r.status, r.rounds) for name, r in by_name(sink.records).items()}
    assert found == {"a": ("crashed", 0), "b": ("ok", 12), "c": ("ok", 12)}


def test_every_build_is_checked_after_timing_and_let_go(tmp_path, monkeypatch):
    asked = Counter()
    ask = worker_pool.Workers.ask

    def counted(self, worker, verb, *arguments, **named):
        asked[verb] += 1
        return ask(self, worker, verb, *arguments, **named)

    monkeypatch.setattr(worker_pool.Workers, "ask", counted)
    _, sink = walk(tmp_path, hidden=3, sampling=of_builds(3))
    assert [r.status for r in sink.records] == ["ok"]
    assert asked["prepare"] == asked["check"] == asked["release"] == 3


def test_controls_are_cells_of_their_own(tmp_path):
    _, sink = walk(tmp_path, controls=4, fake={"a": {}, "b": {}, "c": {}})
    counts = Counter((r.implementation, r.copy) for r in sink.records if r.shape.hidden == 3)
    assert set(counts.values()) == {1}
    assert sorted(copy for _, copy in counts) == [1, 1, 1, 2, 2, 2]


@processes
def test_every_pass_has_processes_of_its_own(tmp_path):
    walk(tmp_path, passes=3)
    assert len(list(tmp_path.glob("fake-*.log"))) == 3


def test_an_implementation_for_another_device_is_a_row_with_its_reason(tmp_path):
    plan = grid.plan(
        {**FAKE_GRID, "implementations": ["pytorch-half"]}, Path("g"), device="cpu", threads=1
    )
    sink = Kept(tmp_path)
    driver.run(plan, plan.all_cells(), sink, Quiet())
    assert {(r.status, r.reason) for r in sink.records} == {
        ("unsupported", "runs on cuda only, this run is on cpu")
    }


def test_stopping_keeps_what_was_measured(tmp_path):
    observer = Quiet()
    outcome, sink = walk(
        tmp_path, stop=lambda: any("round 2" in t for t in observer.texts), observer=observer
    )
    assert outcome.interrupted
    ((record, blocks),) = sink.blocks
    assert record.status == "interrupted"
    assert record.rounds >= 1
    assert blocks


@pytest.mark.parametrize(
    ("statuses", "left", "again"),
    [
        (["ok", "ok", "ok", "ok"], "", ""),
        (["ok", "missing", "crashed", "unsupported"], "b", "bc"),
        (["ok", "interrupted", "crashed", "wrong"], "ab", "abc"),  # in turns with what was cut
        (["ok", "ok", "crashed"], "abd", "abcd"),  # killed before there was a record
        ([], "abcd", "abcd"),
    ],
)
def test_what_is_unfinished_is_pending_and_a_shape_that_was_cut_as_a_whole(statuses, left, again):
    plan = plan_of(fake={"a": {}, "b": {}, "c": {}, "d": {}}, hidden=3)
    shape = plan.shapes[0]
    records = [Record(n, shape, 1, 1, s) for n, s in zip("abcd", statuses, strict=False)]
    for retry_failed, expected in ((False, left), (True, again)):
        found = driver.pending(plan, records, retry_failed)
        assert "".join(sorted(cell.implementation for cell in found)) == expected


def test_nothing_takes_the_place_of_a_time_but_another_time(tmp_path):
    plan = plan_of(fake={"a": {}, "bad": {"fault": "error"}}, hidden=3)
    cells = plan.all_cells()
    sink = Raw(tmp_path)
    finished = {cell.key for cell in cells}
    outcome = driver.run(plan, cells, sink, Quiet(), finished=finished)
    assert [(r.implementation, r.status) for r in sink.records] == [("a", "ok")]
    assert outcome.left == 0


def test_a_budget_leaves_cells_for_later_instead_of_running_over(tmp_path):
    fakes = {"real": {"real": True, "call_s": 0.02}}
    sampling = {"rounds": 3, "max_rounds": 3, "warmup_s": 0.1}
    outcome, sink = walk(
        tmp_path, budget_s=1.0, fake=fakes, hidden=list(range(1, 40)), sampling=sampling
    )
    assert outcome.out_of_budget
    assert 0 < len(sink.records) < 39
    assert outcome.left == 39 - len(sink.records)


@pytest.mark.parametrize(("budget_s", "told"), [(0.3, True), (60.0, False)])
def test_a_cell_that_a_budget_hurries_says_so(tmp_path, budget_s, told):
    fakes = {"real": {"real": True, "call_s": 0.02, "noise": 0.3}}
    sampling = {"rounds": 8, "max_rounds": 8, "block_s": 0.02, "block_calls": 1, "warmup_s": 0.01}
    _, sink = walk(tmp_path, budget_s=budget_s, fake=fakes, sampling=sampling)
    record = sink.records[0]
    assert any(w.startswith(f"hurried: {record.rounds} rounds") for w in record.warnings) == told
    assert (record.rounds < 8) == told


def test_a_cell_that_a_budget_ends_after_its_fewest_rounds_is_hurried_too(tmp_path):
    """It has as many as the grid asks for at least, and is not as sure as the grid asks for."""
    fakes = {"real": {"real": True, "call_s": 0.01, "noise": 0.5}}
    sampling = {"rounds": 3, "max_rounds": 500, "block_s": 0.01, "block_calls": 1}
    sampling |= {"warmup_s": 0.01, "warmup_cap_s": 0.02, "cell_s": 60}
    _, sink = walk(tmp_path, budget_s=1.5, fake=fakes, hidden=3, sampling=sampling)
    (record,) = sink.records
    assert 3 <= record.rounds < 500
    assert f"hurried: {record.rounds} rounds are what --budget left" in record.warnings


@processes
def test_no_worker_is_left_behind(tmp_path):
    before = _children()
    walk(
        tmp_path,
        fake={"bad": {"fault": "hang", "when": "measure"}, "good": {}},
        sampling={**FAKE_GRID["sampling"], "timeout_s": LIMIT_S},
    )
    time.sleep(0.1)
    assert _children() == before


def _children():
    pid = os.getpid()
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.add(stat.parent.name)
    return found


@processes
def test_a_row_with_threads_of_its_own_has_a_process_of_its_own(tmp_path):
    data = {**FAKE_GRID, "threads": [1, "all"], "implementations": ["fake"]}
    plan = grid.plan(data, Path("g.yaml"), device="cpu", threads=2)
    sink = Raw(tmp_path)
    driver.run(plan, plan.all_cells(), sink, Quiet())
    assert {r.status for r in sink.records} == {"ok"}
    assert {r.implementation for r in sink.records} == {"fake", "fake@1"}
    assert len(list(tmp_path.glob("fake-*.log"))) == 2


# profiles


class Profiles(Raw):
    """Keeps the profiles too."""

    def append(self, record, blocks, profile=None):
        super().append(record, blocks, profile)
        self.of_cell = {**getattr(self, "of_cell", {}), record.key: profile}


def profiled(tmp_path, device, observer=None, **fake):
    data = {**FAKE_GRID, "fake": fake, "implementations": list(fake), "profile": True}
    plan = grid.plan({**data, "device": device}, Path("g.yaml"), device=device, threads=2)
    sink = Profiles(tmp_path)
    outcome = driver.run(plan, plan.all_cells(), sink, observer or Quiet())
    assert outcome.left == 0
    return sink


def test_in_a_round_calls_of_like_length_come_together(tmp_path):
    observer = Quiet()
    fake = {
        "a": {"call_s": 0.1},
        "b": {"call_s": 0.001},
        "c": {"call_s": 0.2},
        "d": {"call_s": 0.002},
    }
    walk(tmp_path, hidden=3, fake=fake, observer=observer, controls=0)
    orders = {}
    for text in observer.texts:
        if " round " in text:
            *_, number, name = text.split()
            orders.setdefault(number, []).append(name)
    assert {frozenset(order[:2]) for order in orders.values()} == {frozenset("bd")}
    assert len({tuple(order) for order in orders.values()}) > 1  # and else they are shuffled


def test_a_profiled_cell_knows_how_long_the_device_was_busy(tmp_path):
    sink = profiled(tmp_path, "cuda", fake={"call_s": 0.002})
    record = by_name(sink.records)["fake"]
    profile = sink.of_cell[record.key]
    assert (record.status, record.warnings, profile.problem) == ("ok", [], "")
    assert record.device_s == profile.busy_s
    assert 0 < record.device_s <= record.latency_s
    assert record.round_device_s == profile.call_busy_s


def test_rows_on_either_side_of_a_power_of_ten_change_places(tmp_path):
    observer = Quiet()
    fake = {"a": {"call_s": 0.0099}, "b": {"call_s": 0.0101, "process": "other"}}
    sampling = {**FAKE_GRID["sampling"], "rounds": 30, "max_rounds": 30}
    walk(tmp_path, hidden=3, fake=fake, observer=observer, sampling=sampling)
    firsts = [t.split()[-1] for t in observer.texts if " round " in t][::2]
    assert set(firsts) == {"a", "b"}


def test_a_control_is_the_same_calls_and_is_not_profiled_again(tmp_path):
    plan = plan_of(hidden=3, controls=1, profile=True)
    sink = Profiles(tmp_path)
    outcome = driver.run(plan, plan.all_cells(), sink, Quiet())
    profiled = {record.copy: sink.of_cell[record.key] is not None for record in sink.records}
    assert profiled == {1: True, 2: False}
    told = ("starting", "posing", "preparing", "rounds", "checking", "profiling")
    assert tuple(outcome.spent_s) == told
    assert sum(outcome.spent_s.values()) <= outcome.wall_s


def test_no_cell_of_a_shape_is_profiled_while_another_is_timed(tmp_path):
    observer = Quiet()
    profiled(tmp_path, "cpu", observer, quick={}, noisy={"noise": 0.5, "process": "other"})
    for label in dict.fromkeys(text.split()[0] for text in observer.texts):
        kinds = [text.split()[1] for text in observer.texts if text.split()[0] == label]
        order = [kind for kind in kinds if kind in ("round", "profiling")]
        assert order == sorted(order, key=lambda kind: kind == "profiling")
        assert "profiling" in order


@pytest.mark.parametrize("trouble", ["lost", "crash", "none"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_times_stand_when_the_profiler_fails_and_the_split_is_not_shown_as_truth(
    tmp_path, trouble, device
):
    sink = profiled(tmp_path, device, fake={"profile": trouble}, well={})
    bad, good = (by_name(sink.records)[name] for name in ("fake", "well"))
    assert bad.status == good.status == "ok"
    assert bad.latency_s
    assert bad.device_s is None
    assert any(text.startswith("not profiled: ") for text in bad.warnings)
    assert sink.of_cell[bad.key].problem
    assert (good.warnings, sink.of_cell[good.key].problem) == ([], "")


def test_a_profiler_that_spoils_the_answer_spoils_no_time(tmp_path):
    """The answer that is checked is that of the last timed call."""
    record = by_name(profiled(tmp_path, "cpu", fake={"profile": "spoil"}).records)["fake"]
    assert (record.status, record.check.passed) == ("ok", True)
    assert record.latency_s


@processes
def test_a_profiler_that_hangs_costs_no_neighbour_its_check_and_is_not_tried_again(tmp_path):
    sampling = {**FAKE_GRID["sampling"], "timeout_s": LIMIT_S}
    data = {**FAKE_GRID, "profile": True, "sampling": sampling}
    data |= {"fake": {"bad": {"profile": "hang"}, "good": {}}, "implementations": ["bad", "good"]}
    plan = grid.plan(data, Path("g.yaml"), device="cpu", threads=2)
    sink, start, seen = Profiles(tmp_path), time.monotonic(), Quiet()
    driver.run(plan, plan.all_cells(), sink, seen)
    assert sum("profiling bad" in text for text in seen.texts) == 1
    assert {r.status for r in sink.records} == {"ok"}
    assert all(r.check.passed for r in sink.records)
    told = [w for r in sink.records for w in r.warnings]
    assert sum(f"longer than {LIMIT_S} s" in w for w in told) == 1
    assert sum("profiling of bad took the worker down before" in w for w in told) == 1
    assert len(told) == 2
    assert all(sink.of_cell[r.key] for r in sink.records if r.implementation == "good")
    assert len({r.shape for r in sink.records}) == 2
    assert time.monotonic() - start < 60  # it would be an hour


@processes
def test_a_worker_that_dies_of_profiling_once_costs_no_cell_its_profile(tmp_path, monkeypatch):
    kill_when(monkeypatch, "profile", 1)
    sink = profiled(tmp_path, "cpu", a={}, b={})
    assert all(sink.of_cell[record.key] for record in sink.records)
    (told,) = [text for record in sink.records for text in record.warnings]
    assert told.startswith("second try: profiling took the worker down: worker killed by SIGKILL")


def test_deaths_with_a_good_profile_in_between_are_forgotten(tmp_path, monkeypatch):
    """One of several hundred passes dies, whatever the row: that is no reason to end them all."""
    kill_when(monkeypatch, "profile", 1, 3)
    sink = profiled(tmp_path, "cpu", a={})
    assert len(sink.records) == 2
    assert all(sink.of_cell[record.key] for record in sink.records)
    assert all(r.warnings[0].startswith("second try: ") for r in sink.records)


@processes
def test_a_row_that_dies_of_every_profile_is_left_alone_and_its_neighbours_are_not(tmp_path):
    observer = Quiet()
    sink = profiled(tmp_path, "cpu", observer, bad={"profile": "die"}, good={})
    first, second = (by_name(sink.records, hidden) for hidden in (3, 5))
    assert all(sink.of_cell[row["good"].key] for row in (first, second))
    assert first["good"].warnings == second["good"].warnings == []
    assert "Segmentation fault | " in first["bad"].warnings[0]
    assert second["bad"].warnings == ["not profiled: profiling of bad took the worker down before"]
    assert sum("profiling bad" in text for text in observer.texts) == follow_ups.CRASHES


@processes
def test_profiles_that_kill_cost_no_energy(tmp_path, monkeypatch):
    plan = on_a_gpu(monkeypatch, {"bad": {"profile": "die"}}, 300.0, 300.0)
    sink = Profiles(tmp_path)
    driver.run(plan, plan.all_cells(), sink, Quiet())
    assert [(r.status, r.energy.power_w) for r in sink.records] == 2 * [("ok", 300.0)]


def asked_as(monkeypatch, told):
    """Have `told(go, worker, verb, named)` answer whatever workers are asked."""
    ask = worker_pool.Workers.ask

    def asking(self, worker, verb, *arguments, **named):
        return told(lambda: ask(self, worker, verb, *arguments, **named), worker, verb, named)

    monkeypatch.setattr(worker_pool.Workers, "ask", asking)


def on_a_gpu(monkeypatch, fakes, *powers, loads=1, **sampling):
    """A plan with profiles and energy on a GPU, at two shapes; loads draw so much in turns."""
    sampling["loads"] = loads
    monkeypatch.setattr(gpu, "open_gauge", lambda device: Meter())
    monkeypatch.setattr(energy, "idle_power", lambda gauge: 100.0)
    drawing(monkeypatch, *(powers or 99 * [300.0]))
    data = {**FAKE_GRID, "energy": True, "profile": True, "device": "cuda", "fake": {**fakes}}
    data |= {"implementations": [*fakes], "sampling": {**FAKE_GRID["sampling"], **sampling}}
    return grid.plan(data, Path("g"), device="cuda", threads=2)


def rebuilt(monkeypatch, change):
    """The worker dies of the first load; replies to whoever is built again are changed."""
    loads, built = itertools.count(), Counter()

    def told(go, worker, verb, named):
        if verb == "load" and next(loads) == 0:
            shoot(worker)
        if verb != "prepare":
            return go()
        built[named["key"]] += 1
        reply = go()
        if built[named["key"]] > 1:
            change(reply)
        return reply

    asked_as(monkeypatch, told)


def cold(reply):
    reply.warm_up = replace(reply.warm_up, settled=False)


def elsewhere(reply):
    reply.path = "another"


def refused(reply):
    raise WorkerFailed("oom", "no room")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (cold, None),
        (wrong, "built again: output is off"),
        (elsewhere, "built again, it took another way: another"),
        (refused, "no room"),
    ],
)
def test_what_is_built_again_for_a_look_changes_nothing_of_the_times(
    tmp_path, monkeypatch, change, reason
):
    """And is looked at only if it is what was timed."""
    plan = on_a_gpu(monkeypatch, {"a": {}, "b": {}}, loads=2)
    started = noted_verbs(monkeypatch, "hello")
    rebuilt(monkeypatch, change)
    sink = Profiles(tmp_path)
    driver.run(plan, [c for c in plan.all_cells() if c.shape.hidden == 3], sink, Quiet())
    assert len(started) == 2  # what cannot be built again is not asked for
    for record in sink.records:
        assert (record.status, record.check.passed) == ("ok", True)
        assert record.latency_s
        if reason is None:
            assert {w.split(":")[0] for w in record.warnings} <= {"second try"}
            assert (record.energy.power_w, bool(sink.of_cell[record.key])) == (300.0, True)
        else:
            assert record.warnings[-1] == f"not profiled: {reason}"
            assert all(reason in w or "fewer loads" in w for w in record.warnings)
            assert sink.of_cell[record.key] is None


def noted_verbs(monkeypatch, verb):
    asked = []

    def told(go, worker, wanted, named):
        if wanted == verb:
            asked.append(worker.name)
        return go()

    asked_as(monkeypatch, told)
    return asked


def test_a_worker_that_does_not_start_again_is_given_up_for_looks_too(tmp_path, monkeypatch):
    plan = on_a_gpu(monkeypatch, {name: {} for name in "abcdef"})
    loads, hellos = itertools.count(), []

    def told(go, worker, verb, named):
        hellos.extend([1] if verb == "hello" else [])
        if (verb == "load" and next(loads) == 0) or (verb == "hello" and len(hellos) > 1):
            shoot(worker)
        return go()

    asked_as(monkeypatch, told)
    sink = Profiles(tmp_path)
    driver.run(plan, [c for c in plan.all_cells() if c.shape.hidden == 3], sink, Quiet())
    assert len(hellos) == 1 + worker_pool.MAX_STARTS
    assert {r.status for r in sink.records} == {"ok"}


def test_a_load_that_fails_before_others_do_not_is_no_lost_energy(tmp_path, monkeypatch):
    plan, loads = on_a_gpu(monkeypatch, {"a": {}}, loads=4), itertools.count()

    def told(go, worker, verb, named):
        if verb == "load" and next(loads) % 4 == 0:
            raise WorkerFailed("oom", "no room")
        return go()

    asked_as(monkeypatch, told)
    sink = Profiles(tmp_path)
    driver.run(plan, plan.all_cells(), sink, Quiet())
    assert [r.energy.power_w for r in sink.records] == pytest.approx([300.0, 300.0])
    assert [r.warnings for r in sink.records] == 2 * [
        ["fewer loads: 1 of 4 have no power: no room"]
    ]
    assert driver.unseen(plan, sink.records, []) == []


def test_a_second_try_that_finds_nothing_is_not_told_as_one(tmp_path, monkeypatch):
    kill_when(monkeypatch, "profile", 1)
    sink = profiled(tmp_path, "cpu", a={"profile": "lost"})
    assert [w.split(":")[0] for r in sink.records for w in r.warnings] == 2 * ["not profiled"]


def lost(plan, folder, monkeypatch):
    """The records of a run whose workers die of every profile and load."""
    sink = Profiles(folder)
    with monkeypatch.context() as patched:
        patched.setattr(follow_ups, "CRASHES", 1)
        kill_when(patched, "load", *range(99))
        kill_when(patched, "profile", *range(99))
        driver.run(plan, plan.all_cells(), sink, Quiet())
    for record in sink.records:
        assert {text.split(":")[0] for text in record.warnings} == {"no energy", "not profiled"}
        assert (record.energy, record.device_s) == (None, None)
    assert driver.pending(plan, sink.records, retry_failed=True) == []
    return sink.records


def looked_for(plan, folder, records, **more):
    """The same, looked at again: sink, observer, outcome."""
    sink, seen = Profiles(folder), Quiet()
    again = driver.unseen(plan, records, [])
    return sink, seen, driver.run(plan, [], sink, seen, again=again, **more)


def test_what_was_lost_of_a_cell_is_looked_for_again_and_its_times_stay(tmp_path, monkeypatch):
    plan = on_a_gpu(monkeypatch, {"a": {"call_s": 0.002}, "b": {"call_s": 0.002}})
    first = lost(plan, tmp_path, monkeypatch)
    released = noted(monkeypatch, "release")
    second, seen, outcome = looked_for(plan, tmp_path, first)
    assert len(first) == len(second.records) == 4
    assert (outcome.left, outcome.finished, outcome.timed_s) == (0, 0, 0)
    assert not any("round" in text for text in seen.texts)
    assert sorted(released) == sorted(record.key for record in first)
    old = {record.key: record for record in first}
    for new in second.records:
        assert (new.energy.power_w, new.device_s) == (300.0, second.of_cell[new.key].busy_s)
        same = replace(old[new.key], energy=new.energy, warnings=[], device_s=new.device_s)
        assert replace(same, round_device_s=new.round_device_s) == new
    assert driver.unseen(plan, second.records, []) == []


def test_all_builds_of_a_cell_are_loaded_again(tmp_path, monkeypatch):
    plan = on_a_gpu(monkeypatch, {"a": {}}, loads=4, **of_builds(2))
    first = lost(plan, tmp_path, monkeypatch)
    loaded = noted(monkeypatch, "load")
    second, _, _ = looked_for(plan, tmp_path, first)
    for record in second.records:
        own = [key for key in loaded if key.startswith(record.key)]
        assert own == 2 * [record.key, f"{record.key}~2"]
        assert record.warnings == []


def test_only_what_is_lacking_is_looked_for(tmp_path, monkeypatch):
    plan = on_a_gpu(monkeypatch, {"a": {}})
    record = lost(plan, tmp_path, monkeypatch)[0]
    has = Energy(250.0, 100.0, 0.5, 6, calls=100, call_s=1e-3)
    record = replace(record, energy=has, warnings=["not profiled: x", "odd: y"])
    sink, seen, _ = looked_for(plan, tmp_path, [record])
    assert (sink.records[0].energy, sink.records[0].warnings) == (has, ["odd: y"])
    assert not any(" energy " in text for text in seen.texts)
    record = replace(record, device_s=0.5, warnings=["no energy: x"])
    sink, seen, _ = looked_for(plan, tmp_path, [record])
    assert (sink.records[0].energy.power_w, sink.records[0].device_s) == (300.0, 0.5)
    assert not any(" profiling " in text for text in seen.texts)


def test_energy_is_looked_for_at_the_whole_shape(tmp_path, monkeypatch):
    """The GPU may be another by now; rows are compared at a shape."""
    plan = on_a_gpu(monkeypatch, {"a": {}, "b": {}})
    records = {r.key: r for r in lost(plan, tmp_path, monkeypatch)}
    had = Energy(250.0, 90.0, 0.5, 6, calls=100, call_s=1e-3)
    elsewhere, here = plan.shapes
    for key, record in records.items():
        if record.shape == elsewhere or record.implementation == "a":
            records[key] = replace(record, energy=had, warnings=[], device_s=0.5)
    sink, seen, _ = looked_for(plan, tmp_path, [*records.values()])
    assert {r.key for r in sink.records} == {r.key for r in records.values() if r.shape == here}
    assert [(r.energy.power_w, r.energy.idle_w) for r in sink.records] == 2 * [(300.0, 100.0)]
    assert sum(" profiling " in text for text in seen.texts) == 1  # of b, which has none


def test_energy_that_rows_of_a_shape_have_from_two_gpus_is_measured_again(tmp_path, monkeypatch):
    plan = on_a_gpu(monkeypatch, {"a": {}, "b": {}})
    records = []
    for record in lost(plan, tmp_path, monkeypatch):
        there = record.shape == plan.shapes[0] and record.implementation == "b"
        has = Energy(250.0, 100.0 if there else 90.0, 0.5, 6, calls=100, call_s=1e-3)
        records.append(replace(record, energy=has, warnings=[], device_s=0.5))
    sink, seen, _ = looked_for(plan, tmp_path, records)
    assert [r.shape for r in sink.records] == 2 * [plan.shapes[0]]
    assert [(r.energy.power_w, r.device_s) for r in sink.records] == 2 * [(300.0, 0.5)]
    assert not any(" profiling " in text for text in seen.texts)
    assert driver.unseen(plan, sink.records, []) == []


@pytest.mark.parametrize("fails", ["prepare", "load"])
def test_energy_that_is_not_found_again_is_not_kept_beside_newer_ones(tmp_path, monkeypatch, fails):
    plan = on_a_gpu(monkeypatch, {"a": {}, "b": {}})
    first = [r for r in lost(plan, tmp_path, monkeypatch) if r.shape == plan.shapes[0]]
    had = Energy(250.0, 90.0, 0.5, 6, calls=100, call_s=1e-3)
    records = [replace(r, energy=had, warnings=[]) if r.implementation == "a" else r for r in first]

    def told(go, worker, verb, named):
        if verb == fails and named["key"].startswith("a"):
            raise WorkerFailed("oom", "no room")
        return go()

    asked_as(monkeypatch, told)
    sink, _, _ = looked_for(plan, tmp_path, records)
    found = {r.implementation: (r.energy and r.energy.power_w, r.warnings) for r in sink.records}
    assert found == {"a": (None, ["no energy: no room"]), "b": (300.0, [])}


@pytest.mark.parametrize("profile", [None, "lost"])
def test_what_is_not_found_again_stays_lost(tmp_path, monkeypatch, profile):
    plan = on_a_gpu(monkeypatch, {"a": {"profile": profile}}, None, None)
    first = lost(plan, tmp_path, monkeypatch)
    second, _, _ = looked_for(plan, tmp_path, first)
    marks = {"not profiled", "no energy"} if profile else {"no energy"}
    assert [{w.split(":")[0] for w in r.warnings} for r in second.records] == 2 * [marks]
    assert all("no energy: blind" in r.warnings for r in second.records)
    assert len(driver.unseen(plan, second.records, [])) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (wrong, "built again: output is off"),
        (elsewhere, "built again, it took another way: another"),
        (refused, "no room"),
    ],
)
def test_a_cell_that_is_not_what_was_timed_is_not_looked_at(tmp_path, monkeypatch, change, reason):
    plan = on_a_gpu(monkeypatch, {"a": {}})
    first = lost(plan, tmp_path, monkeypatch)

    def told(go, worker, verb, named):
        reply = go()
        if verb == "prepare":
            change(reply)
        return reply

    asked_as(monkeypatch, told)
    second, _, outcome = looked_for(plan, tmp_path, first)
    assert outcome.left == 0
    for was, new in zip(first, second.records, strict=True):
        marks = [f"no energy: {reason}", f"not profiled: {reason}"]
        assert replace(was, warnings=marks) == new
        assert second.of_cell[new.key] is None


def test_what_a_later_build_is_like_is_no_mark_of_the_times(tmp_path, monkeypatch):
    plan = on_a_gpu(monkeypatch, {"a": {}})
    first = lost(plan, tmp_path, monkeypatch)

    def told(go, worker, verb, named):
        reply = go()
        if verb == "prepare":
            cold(reply)
        return reply

    asked_as(monkeypatch, told)
    second, _, _ = looked_for(plan, tmp_path, first)
    assert [r.warnings for r in second.records] == [[], []]


def test_a_build_that_was_interrupted_is_not_told_as_a_failed_look(tmp_path, monkeypatch):
    plan = on_a_gpu(monkeypatch, {"a": {}})
    first = lost(plan, tmp_path, monkeypatch)

    def told(go, worker, verb, named):
        if verb == "prepare":
            raise WorkerFailed("interrupted", "stopped during prepare")
        return go()

    asked_as(monkeypatch, told)
    second, _, outcome = looked_for(plan, tmp_path, first)
    assert (second.records, outcome.left) == ([], 2)


def test_a_budget_is_shared_with_the_looks_to_come(tmp_path, monkeypatch):
    (record, *_) = lost(on_a_gpu(monkeypatch, {"a": {}}), tmp_path, monkeypatch)
    plan = on_a_gpu(monkeypatch, {"a": {"real": True, "call_s": 0.001}})
    (cell,) = (c for c in plan.all_cells() if c.shape != record.shape)
    shares = []

    def measure_shape(walk, shape, cells, deadline):
        shares.append(deadline - time.monotonic())

    monkeypatch.setattr(driver._Walk, "measure_shape", measure_shape)
    for again in ([], [record]):
        driver.run(plan, [cell], Profiles(tmp_path), Quiet(), budget_s=100.0, again=again)
    alone, shared = shares
    weight = driver.guess_cell_s(plan, cell)
    assert alone == pytest.approx(100, abs=1)
    assert shared == pytest.approx(100 * weight / (weight + driver.guess_looks_s(1)), abs=1)


def test_a_worker_that_is_gone_before_a_cell_was_timed_is_no_second_process_of_it(
    tmp_path, monkeypatch
):
    kill_when(monkeypatch, "measure", 1)
    _, sink = walk(tmp_path, hidden=3, fake={"a": {}, "b": {}})
    assert sorted(record.status for record in sink.records) == ["crashed", "ok"]
    assert [record.warnings for record in sink.records if record.status == "ok"] == [[]]


def test_looks_at_what_is_not_here_are_left_out(tmp_path, monkeypatch):
    plan = on_a_gpu(monkeypatch, {"a": {}})
    first = lost(plan, tmp_path, monkeypatch)
    second, _, outcome = looked_for(plan, tmp_path, first, missing={"fake": "not here"})
    assert (second.records, outcome.left) == ([], 0)


def test_a_budget_leaves_looks_for_later_and_keeps_time_for_them(tmp_path, monkeypatch):
    plan = on_a_gpu(monkeypatch, {"a": {}})
    first = lost(plan, tmp_path, monkeypatch)
    second, _, outcome = looked_for(plan, tmp_path, first, budget_s=1e-9)
    assert (second.records, outcome.left, outcome.out_of_budget) == ([], 2, True)


def test_a_stop_amid_looks_leaves_the_rest_for_the_next(tmp_path, monkeypatch):
    """What was not looked at to the end is not written; energy of a shape is all or none."""
    plan = on_a_gpu(monkeypatch, {"a": {}, "b": {}})
    first = lost(plan, tmp_path, monkeypatch)
    has = Energy(250.0, 100.0, 0.5, 6, calls=100, call_s=1e-3)
    bright = [replace(r, energy=has, warnings=["not profiled: x"]) for r in first]
    for verb, was, written in (
        ("prepare", first, 0),
        ("load", first, 0),
        ("profile", first, 0),
        ("profile", bright, 1),
    ):
        with monkeypatch.context() as patched:
            asked = noted(patched, verb)
            second, _, outcome = looked_for(plan, tmp_path, was, stop=lambda a=asked: len(a) > 0)
        assert (len(second.records), outcome.left, outcome.interrupted) == (
            written,
            4 - written,
            True,
        )


def test_cells_that_are_timed_again_are_not_looked_at_twice():
    plan = plan_of(fake={"a": {}, "b": {}}, hidden=3)
    warned = {"warnings": ["not profiled: x"]}
    records = [Record(n, plan.shapes[0], 1, 1, "ok", **warned) for n in "abc"]
    a, b = plan.all_cells()
    assert [r.implementation for r in driver.unseen(plan, records, [])] == ["a", "b"]  # c is none
    assert [r.implementation for r in driver.unseen(plan, records, [a])] == ["b"]
    records[1].status = "crashed"
    assert driver.unseen(plan, records, [a, b]) == driver.unseen(plan, records, [a]) == []


def test_stopping_while_profiling_leaves_the_rest_to_be_done_again(tmp_path):
    """A cell that is `ok` has all that the plan asks of it: `--resume` would not come back."""
    seen = Quiet()

    def stop():
        return any("profiling" in text for text in seen.texts)

    fakes = {"a": {}, "b": {}}
    data = {**FAKE_GRID, "profile": True, "fake": fakes, "implementations": list(fakes)}
    plan = grid.plan(data, Path("g.yaml"), device="cpu", threads=2)
    sink = Profiles(tmp_path)
    outcome = driver.run(plan, plan.all_cells(), sink, seen, stop)
    assert outcome.interrupted
    for record in sink.records:
        assert (record.status == "ok") == (sink.of_cell[record.key] is not None)
        assert record.status in ("ok", "interrupted")
    left = driver.pending(plan, sink.records, retry_failed=False)
    assert len(left) >= outcome.left > 0
    assert driver.run(plan, left, sink, Quiet()).left == 0
    last = {record.key: record for record in sink.records}
    assert {record.status for record in last.values()} == {"ok"}
    assert all(sink.of_cell[key] is not None for key in last)


class Meter:
    """An energy counter that moves ten times a second, at 300 W, or does not exist."""

    reason = ""

    def __init__(self, there=True):
        self.there = self.reads = there

    def reading(self):
        return gpu.Reading(sm_mhz=1980, power_w=300.0) if self.there else None

    def energy_j(self):
        return round(time.monotonic(), 1) * 300 if self.there else None

    def process_memory(self, pid):
        return 12345 if self.there else None

    def close(self): ...


@pytest.mark.parametrize("there", [True, False])
def test_energy_is_measured_on_a_gpu_and_says_so_where_it_cannot_be(tmp_path, monkeypatch, there):
    monkeypatch.setattr(gpu, "open_gauge", lambda device: Meter(there and device == "cuda"))
    monkeypatch.setattr(energy, "idle_power", lambda gauge: 100.0)
    script = {"fake": {"fake": {"real": True, "call_s": 0.002}}, "implementations": ["fake"]}
    data = {**FAKE_GRID, "hidden": 3, "energy": True, "device": "cuda", **script}
    plan = grid.plan(data, Path("g.yaml"), device="cuda", threads=2)
    sink = Raw(tmp_path)
    outcome = driver.run(plan, plan.all_cells(), sink, Quiet())
    (record,) = sink.records
    assert outcome.timed_s == record.timed_s  # what energy is measured over is no timed call
    assert (record.status, bool(record.energy.problem)) == ("ok", not there)
    assert (record.energy.power_w is not None) == there
    assert (record.gpu is not None) == there
    assert (record.memory.get("process by NVML") == 12345) == there


def with_loads(monkeypatch, folder, fakes, loads, stop=lambda asked: False, builds=1):
    """What is loaded, in that order, the records and the outcome; nothing takes time."""
    monkeypatch.setattr(gpu, "open_gauge", lambda device: Meter(device == "cuda"))
    monkeypatch.setattr(energy, "idle_power", lambda gauge: 100.0)
    asked = noted(monkeypatch, "load")
    data = {**FAKE_GRID, "hidden": 3, "energy": True, "device": "cuda", "fake": fakes}
    sampling = {**FAKE_GRID["sampling"], **of_builds(builds), "loads": loads}
    data |= {"implementations": [*fakes], "sampling": sampling}
    plan = grid.plan(data, Path("g.yaml"), device="cuda", threads=2)
    sink = Raw(folder)
    outcome = driver.run(plan, plan.all_cells(), sink, Quiet(), lambda: stop(asked))
    return asked, sink.records, outcome


def drawing(monkeypatch, *powers):
    """Loads are run, and draw so much one after the other; none is a counter that is blind."""
    left = iter(powers)

    def measured(gauge, run_load, idle_w):
        run_load(0.01)
        power = next(left)
        if power is None:
            return Energy(problem="blind")
        return Energy(power, idle_w, 0.5, 6, calls=100, call_s=1e-3)

    monkeypatch.setattr(energy, "measure", measured)


def test_loads_take_the_builds_in_turns_and_the_cells_as_well(tmp_path, monkeypatch):
    """A load of every cell before the next load of any; with each its builds one by one."""
    drawing(monkeypatch, 300.0, 300.0, 310.0, 310.0, 320.0, 320.0)
    asked, records, _ = with_loads(monkeypatch, tmp_path, {"a": {}, "b": {}}, 3, builds=2)
    first, second = sorted(set(asked[:2]))
    turns = [sorted(asked[n : n + 2]) for n in (0, 2, 4)]
    assert turns == [[first, second], [f"{first}~2", f"{second}~2"], [first, second]]
    for record in records:
        assert record.energy.load_w == [300.0, 310.0, 320.0]
        assert record.energy.power_w == pytest.approx(310.0)


def test_each_turn_of_loads_has_an_order_of_its_own(tmp_path, monkeypatch):
    fakes = {name: {"call_s": 0.001} for name in "abcdef"}
    asked, _, _ = with_loads(monkeypatch, tmp_path, fakes, 4)
    turns = {tuple(asked[n : n + 6]) for n in (0, 6, 12, 18)}
    assert len(turns) == 4
    assert {frozenset(turn) for turn in turns} == {frozenset(asked)}


def test_a_stop_amid_the_loads_leaves_cells_to_be_measured_again(tmp_path, monkeypatch):
    fakes = {name: {"call_s": 0.001} for name in "ab"}
    asked, records, outcome = with_loads(
        monkeypatch, tmp_path, fakes, 3, lambda asked: len(asked) >= 4
    )
    assert len(asked) == 4
    assert [(r.status, r.reason) for r in records] == 2 * [
        ("interrupted", "stopped before all was measured")
    ]
    assert outcome.interrupted


def test_loads_without_a_power_among_others_are_told(tmp_path, monkeypatch):
    drawing(monkeypatch, 300.0, None)
    _, (record,), _ = with_loads(monkeypatch, tmp_path, {"a": {}}, 2)
    assert record.energy.power_w == 300
    assert record.warnings == ["fewer loads: 1 of 2 have no power: blind"]


def test_without_a_counter_loads_are_no_warning(tmp_path, monkeypatch):
    drawing(monkeypatch, None, None, None)
    _, (record,), _ = with_loads(monkeypatch, tmp_path, {"a": {}}, 3)
    assert (record.energy.problem, record.warnings) == ("blind", [])


@pytest.mark.parametrize(("before", "mark"), [(300.0, "fewer loads"), (None, "no energy")])
def test_a_worker_that_dies_under_a_later_load_keeps_the_energy_of_those_before(
    tmp_path, monkeypatch, before, mark
):
    drawing(monkeypatch, before)
    kill_at("load", monkeypatch, after=1)
    _, (record,), _ = with_loads(monkeypatch, tmp_path, {"a": {}}, 3)
    assert (record.status, record.energy.power_w) == ("ok", before)
    assert {text.split(":")[0] for text in record.warnings} == {mark}


def test_a_worker_that_dies_under_the_load_keeps_its_times(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "open_gauge", lambda device: Meter())
    monkeypatch.setattr(energy, "idle_power", lambda gauge: 100.0)
    kill_at("load", monkeypatch)
    data = {**FAKE_GRID, "hidden": 3, "energy": True, "device": "cuda"}
    plan = grid.plan(data, Path("g.yaml"), device="cuda", threads=2)
    sink = Raw(tmp_path)
    driver.run(plan, plan.all_cells(), sink, Quiet())
    (record,) = sink.records
    assert (record.status, record.energy) == ("ok", None)
    assert record.latency_s
    assert [text.split(":")[0] for text in record.warnings] == ["no energy"]  # and no other mark


def test_without_the_flag_nothing_is_profiled(tmp_path):
    _, sink = walk(tmp_path, fake={"fake": {}})
    assert all(r.device_s is None for r in sink.records)


def test_a_worker_that_dies_while_it_is_profiled_is_told_with_its_reason(monkeypatch):
    kill_at("profile", monkeypatch)
    with pytest.raises(Stopped, match=r"could not be profiled: not profiled: \S+"):
        profile_command._measured("fake", Shape(8, 2, 3, 8), "cpu", 1, (), operators=False)


def test_ctrl_c_ends_profile_with_the_code_of_a_grid(monkeypatch):
    def interrupted(plan, cells, sink, observer, stop, **_):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()

    monkeypatch.setattr(driver, "run", interrupted)
    with pytest.raises(SystemExit) as ended:
        profile_command._measured("fake", Shape(8, 2, 3, 8), "cpu", 1, (), operators=False)
    assert ended.value.code == 130


@pytest.fixture
def ctrl_c():
    """Python's own handler of Ctrl-C; what a shell starts in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_amid_an_import_waits_until_it_is_over(ctrl_c):
    done, over = [], threading.Event()
    other = threading.Thread(target=over.wait)  # the system may hand it the signal
    other.start()
    arrived, wakes = os.pipe()
    os.set_blocking(wakes, False)
    before = signal.set_wakeup_fd(wakes)

    def imports():
        with held():
            signal.pthread_kill(other.ident, signal.SIGINT)
            assert os.read(arrived, 1)  # whichever thread it came to, it has come
            done.append("imported")

    try:
        with pytest.raises(KeyboardInterrupt):
            imports()
    finally:
        signal.set_wakeup_fd(before)
        over.set()
        other.join()
        os.close(arrived)
        os.close(wakes)
    assert done == ["imported"]
