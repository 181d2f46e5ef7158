"""Runs of fakes that misbehave: what each costs, and what the rest gets."""

import os
import signal
from collections import Counter

import pytest
from fakes import Quiet, changed, children, cold, kill_when, marks, measure, noted, plan_of, wrong

from lstm_bench.driver import driver, machine, worker_pool
from lstm_bench.driver.signals import held
from lstm_bench.frameworks.fake.session import FakeSession
from lstm_bench.model.fake_script import WRONG_ANSWERS
from lstm_bench.model.types import Record, Settings
from lstm_bench.worker.worker import Worker

pytestmark = pytest.mark.usefixtures("in_process")
processes = pytest.mark.processes  # a start, a crash, a time limit or a log is the promise


def run(logs, observer=None, stop=lambda: False, **changes):
    """Measure a small grid with some keys changed."""
    return measure(plan_of(**changes), logs, observer, stop)


def all_statuses(sink):
    return {record.status for record in sink.records}


def test_a_good_cell_has_its_times_its_check_and_its_circumstances(tmp_path):
    outcome, sink = run(tmp_path, fake={"fake": {"call_s": 0.004, "first_call_s": 1.5}})
    record = sink.row("fake")
    assert (record.status, record.rounds, record.warnings) == ("ok", 3, [])
    assert record.latency_s == record.throughput_s == pytest.approx(0.004)
    assert record.first_call_s == pytest.approx(1.5)
    assert record.check.passed
    assert record.check.max_abs_error < 1e-6
    assert (record.precision, record.device, record.path) == ("fp32", "cpu", "scripted")
    assert "numpy" in record.versions
    assert record.device_s is None  # nothing is profiled unless the plan says so
    assert (outcome.interrupted, outcome.left) == (False, 0)
    for record in sink.records:
        blocks = sink.blocks[record.key]
        assert sum(len(b.latency_ns) for b in blocks) == record.calls
        assert [b.round for b in blocks] == [1, 2, 3]


def test_carried_states_are_followed_over_many_calls(tmp_path):
    fakes = {"good": {}, "forgets": {"fault": "drop-bias"}}
    _, sink = run(tmp_path, fake=fakes, state="carried", timesteps=[1])
    assert {r.implementation: r.status for r in sink.records} == {"good": "ok", "forgets": "wrong"}


def test_an_answer_that_forgets_its_states_is_wrong(tmp_path, monkeypatch):
    """It is right in the first call, and in every call of `state: fixed`."""
    outputs = FakeSession.outputs

    def of_the_first_call(self):
        self.calls_since = min(self.calls_since, 1)
        return outputs(self)

    monkeypatch.setattr(FakeSession, "outputs", of_the_first_call)
    assert all_statuses(run(tmp_path, state="carried")[1]) == {"wrong"}


def test_a_row_that_cannot_carry_its_states_is_unsupported(tmp_path, monkeypatch):
    monkeypatch.setattr(FakeSession, "carries", False)
    assert all_statuses(run(tmp_path, state="carried")[1]) == {"unsupported"}


@pytest.mark.parametrize("mistake", WRONG_ANSWERS)
def test_a_wrong_answer_is_never_timed(tmp_path, mistake):
    _, sink = run(tmp_path, fake={"bad": {"fault": mistake}, "fake": {}})
    bad = sink.row("bad")
    assert (bad.status, bad.latency_s, bad.rounds) == ("wrong", None, 0)
    assert bad.reason
    assert sink.row("fake").status == "ok"


LIMIT_S = 3  # more than anything takes that does not hang

FAULTS = [
    ("segfault", "build", "crashed", "SIGSEGV"),
    ("segfault", "measure", "crashed", "SIGSEGV"),
    ("exit", "first-call", "crashed", "exit code 7"),
    ("exit", "measure", "crashed", "about to commit exit"),  # by its log
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
    before, sampling = set(children(os.getpid())), {}
    if status == "timeout":
        sampling["timeout_s"] = LIMIT_S
    _, sink = run(tmp_path, fake=fakes, sampling=sampling)
    bad, good = sink.row("bad"), sink.row("good")
    assert (bad.status, bad.latency_s) == (status, None)
    assert reason in bad.reason
    assert (good.status, good.rounds) == ("ok", 3)
    assert {sink.row(name, hidden=5).status for name in fakes} == {"ok"}
    assert set(children(os.getpid())) == before  # no worker is left behind


@processes
@pytest.mark.parametrize("when", ["build", "first-call", "measure", "release"])
def test_what_a_framework_prints_does_not_matter(tmp_path, when):
    _, sink = run(tmp_path, fake={"loud": {"fault": "chatter", "when": when}})
    assert all_statuses(sink) == {"ok"}


@processes
def test_a_worker_that_is_slow_at_import_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("LSTM_BENCH_FAKE_START_S", "3")
    assert all_statuses(run(tmp_path, sampling={"timeout_s": 2})[1]) == {"ok"}


@processes
def test_a_worker_that_never_comes_up_costs_its_cells_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setenv("LSTM_BENCH_FAKE_START_S", "3600")
    monkeypatch.setattr(worker_pool, "START_TIMEOUT_S", 0.5)
    _, sink = run(tmp_path)
    assert all_statuses(sink) == {"timeout"}
    assert all("hello took longer" in r.reason for r in sink.records)


@processes
def test_a_neighbour_of_a_crash_goes_on_in_a_new_process_and_says_so(tmp_path):
    fakes = {"bad": {"fault": "kill", "when": "measure", "after": 1}, "good": {}}
    outcome, sink = run(tmp_path, fake=fakes)
    assert sink.row("good").rounds == 3
    assert "two processes" in marks(sink.row("good"))
    assert sum(outcome.spent_s.values()) <= outcome.wall_s  # nothing is counted twice


@processes
def test_a_worker_that_never_starts_is_given_up_after_two_attempts(tmp_path):
    _, sink = run(tmp_path, hidden=[1, 2, 3, 4, 5], environments={"fake": "/bin/false"})
    assert [r.status for r in sink.records] == 5 * ["crashed"]
    assert "exit code 1" in sink.records[-1].reason
    assert len(list(tmp_path.glob("fake-*.log"))) == worker_pool.MAX_STARTS


@processes
@pytest.mark.parametrize(
    ("fake", "fatal", "mark"),
    [
        ({"fault": "exit", "when": "release"}, None, "not released"),
        ({}, "check", "not checked again"),
    ],
)
def test_a_death_at_the_very_end_keeps_the_times(tmp_path, monkeypatch, fake, fatal, mark):
    if fatal:
        kill_when(monkeypatch, fatal, 1)
    _, sink = run(tmp_path, fake={"fake": fake}, hidden=3)
    (record,) = sink.records
    assert (record.status, record.rounds, record.check.passed) == ("ok", 3, True)
    assert marks(record) == [mark]


def test_all_implementations_of_a_shape_are_measured_in_turns(tmp_path):
    observer = Quiet()
    run(tmp_path, observer, fake={"a": {}, "b": {}, "c": {"process": "other"}})
    rounds = [t.split() for t in observer.texts if t.startswith("3,2,4  round")]
    names = [words[-1] for words in rounds]
    assert [sorted(names[i : i + 3]) for i in (0, 3, 6)] == [["a", "b", "c"]] * 3
    assert [words[2] for words in rounds] == ["1"] * 3 + ["2"] * 3 + ["3"] * 3


def test_rounds_go_on_until_the_interval_is_narrow_enough(tmp_path):
    sampling = {"rounds": 5, "max_rounds": 20, "block_s": 0.001, "block_calls": 1}
    _, sink = run(tmp_path, fake={"steady": {}, "noisy": {"noise": 0.3}}, sampling=sampling)
    assert (sink.row("steady").rounds, sink.row("steady").warnings) == (5, [])
    assert sink.row("noisy").rounds == 20
    assert "not converged" in marks(sink.row("noisy"))


def test_a_slow_cell_is_capped_and_marked(tmp_path):
    sampling = {"rounds": 10, "max_rounds": 10, "cell_s": 5.0}
    _, sink = run(tmp_path, fake={"slow": {"call_s": 2.0}, "quick": {}}, sampling=sampling)
    slow = sink.row("slow")
    assert (slow.status, slow.rounds, slow.timed_s <= 5.0 + 2.0) == ("ok", 3, True)
    assert "capped" in marks(slow)
    assert sink.row("quick").rounds == 10


def test_a_disturbed_block_is_repeated_marked_and_kept(tmp_path, monkeypatch):
    verdicts = iter([False, True, True, False])
    monkeypatch.setattr(driver.convergence, "disturbed", lambda *_: next(verdicts, False))
    _, sink = run(tmp_path, hidden=3)
    (record,), (blocks,) = sink.records, sink.blocks.values()
    assert [b.disturbed for b in blocks] == [False, True, True, False, False]
    assert [b.round for b in blocks] == [1, 2, 2, 2, 3]
    assert (record.rounds, record.warnings) == (3, [])


def test_a_cell_on_a_machine_that_stays_disturbed_is_marked(tmp_path, monkeypatch):
    monkeypatch.setattr(driver.convergence, "disturbed", lambda *_: True)
    _, sink = run(tmp_path, hidden=3)
    (record,), (blocks,) = sink.records, sink.blocks.values()
    assert len(blocks) == 3 * (1 + driver.MAX_REPEATS)
    assert "disturbed" in marks(record)


def test_the_two_of_an_a_a_pair_get_the_same_blocks(tmp_path):
    """However their warm-ups came out: what lies between them shall be noise and nothing else."""
    sampling = {"warmup_s": 0.001, "block_s": 0.1, "block_calls": 1}
    fakes = {name: {"call_s": 0.01, "noise": 0.3} for name in ("a", "b", "c")}
    _, sink = run(tmp_path, controls=3, fake=fakes, sampling=sampling)
    calls = {}
    for record in sink.records:
        key = (record.implementation, record.shape)
        calls.setdefault(key, set()).update(len(b.latency_ns) for b in sink.blocks[record.key])
    assert all(len(counts) == 1 for counts in calls.values())
    assert len(set.union(*calls.values())) > 1  # by the noise, from cell to cell


def test_a_last_answer_that_is_wrong_makes_a_cell_wrong(tmp_path, monkeypatch):
    changed(monkeypatch, "check", wrong)
    (record,) = run(tmp_path, hidden=3)[1].records
    assert (record.status, record.reason) == ("wrong", "after timing: output is off")
    assert (record.check.passed, record.latency_s) == (False, None)


def test_a_cell_that_is_not_warm_is_marked(tmp_path, monkeypatch):
    changed(monkeypatch, "prepare", cold)
    assert marks(run(tmp_path, hidden=3)[1].records[0]) == ["not warm"]


def test_a_cell_that_fails_while_it_is_timed_is_let_go(tmp_path, monkeypatch):
    released = noted(monkeypatch, "release")
    fails = {"fault": "error", "when": "measure", "after": 3}
    _, sink = run(tmp_path, hidden=3, fake={"fake": fails})
    assert released == [record.key for record in sink.records if record.status == "crashed"]
    assert Worker("fake", Settings()).release("nothing") == {}  # what is gone is let go too


def test_a_worker_that_is_gone_before_a_cell_was_timed_is_no_second_process_of_it(
    tmp_path, monkeypatch
):
    kill_when(monkeypatch, "measure", 1)
    _, sink = run(tmp_path, hidden=3, fake={"a": {}, "b": {}})
    assert sorted(record.status for record in sink.records) == ["crashed", "ok"]
    assert [record.warnings for record in sink.records if record.status == "ok"] == [[]]


def test_controls_are_cells_of_their_own(tmp_path):
    _, sink = run(tmp_path, controls=4, fake={"a": {}, "b": {}, "c": {}})
    counts = Counter((r.implementation, r.copy) for r in sink.records if r.shape.hidden == 3)
    assert set(counts.values()) == {1}
    assert sorted(copy for _, copy in counts) == [1, 1, 1, 2, 2, 2]


@processes
def test_every_pass_has_processes_of_its_own(tmp_path):
    run(tmp_path, passes=3)
    assert len(list(tmp_path.glob("fake-*.log"))) == 3


@processes
def test_a_row_with_threads_of_its_own_has_a_process_of_its_own(tmp_path):
    _, sink = run(tmp_path, threads=[1, "all"], implementations=["fake"])
    assert {(r.implementation, r.status) for r in sink.records} == {
        ("fake", "ok"),
        ("fake@1", "ok"),
    }
    assert len(list(tmp_path.glob("fake-*.log"))) == 2


def test_an_implementation_for_another_device_is_a_row_with_its_reason(tmp_path):
    _, sink = run(tmp_path, implementations=["pytorch-half"])
    assert {(r.status, r.reason) for r in sink.records} == {
        ("unsupported", "runs on cuda only, this run is on cpu")
    }


def test_a_row_without_a_way_to_copy_its_inputs_is_unsupported_and_says_what_it_has(tmp_path):
    rows = ["fake", "fake@1"]
    _, sink = run(tmp_path, implementations=rows, inputs="pinned", device="cuda")
    assert sink.row("fake").status == "unsupported"
    assert sink.row("fake").reason.endswith("pinned host memory; expected inputs: device")
    assert sink.row("fake@1").status == "ok"  # on the CPU nothing is copied


def test_stopping_keeps_what_was_measured(tmp_path):
    observer = Quiet()
    outcome, sink = run(tmp_path, observer, lambda: any("round 2" in t for t in observer.texts))
    assert outcome.interrupted
    (record,), (blocks,) = sink.records, sink.blocks.values()
    assert (record.status, record.rounds >= 1, bool(blocks)) == ("interrupted", True, True)


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
        cells = driver.pending(plan, records, retry_failed)
        assert "".join(sorted(cell.implementation for cell in cells)) == expected


def test_nothing_takes_the_place_of_a_time_but_another_time(tmp_path):
    plan = plan_of(fake={"a": {}, "bad": {"fault": "error"}}, hidden=3)
    finished = {cell.key for cell in plan.all_cells()}
    outcome, sink = measure(plan, tmp_path, finished=finished)
    assert [(r.implementation, r.status) for r in sink.records] == [("a", "ok")]
    assert outcome.left == 0


def test_workers_start_beside_each_other_where_there_are_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "threads", lambda: 2 * driver.CORES_TO_IMPORT)
    begun = []
    monkeypatch.setattr(worker_pool.Workers, "begin", lambda self, names: begun.append(names))
    _, sink = run(tmp_path, hidden=[3, 4], passes=2, controls=2)
    assert begun == [["fake", "fake#2"]] * 2  # once a pass
    assert all_statuses(sink) == {"ok"}


def test_in_a_round_calls_of_like_length_come_together(tmp_path):
    observer = Quiet()
    calls_s = {"a": 0.1, "b": 0.001, "c": 0.2, "d": 0.002}
    fakes = {name: {"call_s": call_s} for name, call_s in calls_s.items()}
    run(tmp_path, observer, hidden=3, fake=fakes)
    names = [text.split()[-1] for text in observer.texts if " round " in text]
    orders = [names[n : n + 4] for n in range(0, len(names), 4)]
    assert {frozenset(order[:2]) for order in orders} == {frozenset("bd")}
    assert len(set(map(tuple, orders))) > 1  # and else they are shuffled


def test_rows_on_either_side_of_a_power_of_ten_change_places(tmp_path):
    observer = Quiet()
    fakes = {"a": {"call_s": 0.0099}, "b": {"call_s": 0.0101, "process": "other"}}
    run(tmp_path, observer, hidden=3, fake=fakes, sampling={"rounds": 30, "max_rounds": 30})
    firsts = [t.split()[-1] for t in observer.texts if " round " in t][::2]
    assert set(firsts) == {"a", "b"}


def test_no_more_time_is_inside_timed_calls_than_passed(tmp_path):
    outcome, _ = run(tmp_path, fake={"fake": {"call_s": 1000.0}})  # virtual
    assert 0 < outcome.timed_s <= outcome.wall_s


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_amid_an_import_waits_until_it_is_over(number):
    events = []
    before = signal.signal(number, lambda *_: events.append("stopped"))
    try:
        with held():
            signal.raise_signal(number)
            events.append("imported")
    finally:
        signal.signal(number, before)
    assert events == ["imported", "stopped"]
