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

from lstm_bench.driver import driver, follow_ups, gpu, machine, worker_pool
from lstm_bench.driver.signals import held
from lstm_bench.driver.worker_pool import WorkerFailed
from lstm_bench.features.energy import measure as energy
from lstm_bench.features.profile import command as profile_command
from lstm_bench.frameworks.fake.session import FakeSession
from lstm_bench.model.fake_script import WRONG_ANSWERS
from lstm_bench.model.types import (
    Check,
    Energy,
    Record,
    Settings,
    Shape,
    Stopped,
)
from lstm_bench.runs import grid
from lstm_bench.runs.store import MemoryStore
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

    def expect(self, seconds): ...

    def warn(self, text):
        self.texts.append(text)


class Raw(MemoryStore):
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


def test_carried_states_are_followed_over_many_calls(tmp_path):
    fakes = {"good": {}, "forgets": {"fault": "drop-bias"}}
    _, sink = walk(tmp_path, fake=fakes, state="carried", timesteps=[1])
    found = {record.implementation: record.status for record, _ in sink.blocks}
    assert found == {"good": "ok", "forgets": "wrong"}


def test_a_row_that_cannot_carry_its_states_is_unsupported(tmp_path, monkeypatch):
    monkeypatch.setattr(FakeSession, "carries", False)
    _, sink = walk(tmp_path, fake={"fake": {}}, state="carried")
    assert {record.status for record, _ in sink.blocks} == {"unsupported"}


def test_an_answer_that_forgets_its_states_is_wrong(tmp_path, monkeypatch):
    """It is right in the first call, and in every call of `state: fixed`."""
    outputs = FakeSession.outputs

    def of_the_first_call(self):
        self.calls_since = min(self.calls_since, 1)
        return outputs(self)

    monkeypatch.setattr(FakeSession, "outputs", of_the_first_call)
    _, sink = walk(tmp_path, fake={"fake": {}}, state="carried")
    assert {record.status for record, _ in sink.blocks} == {"wrong"}


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


def wrong(reply):
    reply.check = Check(0.0, 0.0, 1e-5, False, "output is off")


def changed(monkeypatch, verb, change):
    """Have this done to the replies to a verb."""

    def told(go, worker, wanted, named):
        reply = go()
        if wanted == verb:
            change(reply)
        return reply

    asked_as(monkeypatch, told)


def test_a_last_answer_that_is_wrong_makes_a_cell_wrong(tmp_path, monkeypatch):
    changed(monkeypatch, "check", wrong)
    _, sink = walk(tmp_path, hidden=3)
    (record,) = sink.records
    assert (record.status, record.reason) == ("wrong", "after timing: output is off")
    assert (record.check.passed, record.latency_s) == (False, None)


def test_a_cell_that_is_not_warm_is_marked(tmp_path, monkeypatch):
    changed(monkeypatch, "prepare", cold)
    _, sink = walk(tmp_path, hidden=3)
    assert [w.split(":")[0] for w in sink.records[0].warnings] == ["not warm"]


def test_a_cell_that_fails_while_it_is_timed_is_let_go(tmp_path, monkeypatch):
    released = noted(monkeypatch, "release")
    fails = {"fault": "error", "when": "measure", "after": 3}
    _, sink = walk(tmp_path, hidden=3, fake={"fake": fails})
    assert released == [record.key for record in sink.records if record.status == "crashed"]


def noted(monkeypatch, wanted):
    """The keys of the cells that workers are asked this for, in that order."""
    asked, ask = [], worker_pool.Workers.ask

    def asking(self, worker, verb, *arguments, **named):
        if verb == wanted:
            asked.append(named["key"])
        return ask(self, worker, verb, *arguments, **named)

    monkeypatch.setattr(worker_pool.Workers, "ask", asking)
    return asked


def test_what_is_let_go_twice_is_gone():
    worker = Worker("fake", Settings())
    assert worker.release("nothing") == {}


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
    sink = MemoryStore(tmp_path)
    driver.run(plan, plan.all_cells(), sink, Quiet())
    assert {(r.status, r.reason) for r in sink.records} == {
        ("unsupported", "runs on cuda only, this run is on cpu")
    }


def test_a_row_without_a_way_to_copy_its_inputs_is_unsupported_and_says_what_it_has(tmp_path):
    data = {**FAKE_GRID, "implementations": ["fake", "fake@1"], "inputs": "pinned"}
    data |= {"hidden": 3, "device": "cuda"}
    plan = grid.plan(data, Path("g"), device="cuda", threads=2)
    sink = MemoryStore(tmp_path)
    driver.run(plan, plan.all_cells(), sink, Quiet())
    found = by_name(sink.records)
    assert found["fake"].status == "unsupported"
    assert found["fake"].reason == (
        "it has no way for x and y in pinned host memory; expected inputs: device"
    )
    assert found["fake@1"].status == "ok"  # on the CPU nothing is copied


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


@pytest.mark.parametrize(
    "mark", ["not profiled: the worker died", "no energy: the worker died", "idle power"]
)
def test_a_shape_that_lost_a_profile_or_energy_is_retried_as_a_whole(mark):
    """Or whose energy is from two GPUs: only what was measured in turns can be compared."""
    plan = plan_of(fake={"a": {}, "b": {}, "c": {}}, hidden=[3, 5])
    there = plan.shapes[0]
    records = [
        Record(n, shape, 1, 1, "ok", throughput_s=1e-3, energy=Energy(250.0, 90.0, call_s=1e-3))
        for shape in plan.shapes
        for n in "ab"
    ]
    records += [Record("c", shape, 1, 1, "unsupported") for shape in plan.shapes]
    assert driver.pending(plan, records, retry_failed=True) == []
    if mark == "idle power":
        records[0].energy.idle_w = 100.0
    else:
        records[0].warnings.append(mark)
    assert driver.pending(plan, records, retry_failed=False) == []
    again = driver.pending(plan, records, retry_failed=True)
    assert [(cell.implementation, cell.shape) for cell in again] == [("a", there), ("b", there)]


def test_what_was_lost_is_there_after_a_retry(tmp_path, monkeypatch):
    plan = on_a_gpu(monkeypatch, {"a": {}, "b": {}})
    first = Profiles(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(follow_ups, "CRASHES", 1)
        kill_when(patched, "load", *range(99))
        kill_when(patched, "profile", *range(99))
        driver.run(plan, plan.all_cells(), first, Quiet())
    for record in first.records:
        assert (record.status, record.energy, record.device_s) == ("ok", None, None)
        assert record.latency_s
        assert {text.split(":")[0] for text in record.warnings} == {"no energy", "not profiled"}
    again = driver.pending(plan, first.records, retry_failed=True)
    second = Profiles(tmp_path)
    driver.run(plan, again, second, Quiet(), finished={r.key for r in first.records})
    assert len(second.records) == 4
    for record in second.records:
        assert (record.status, record.energy.power_w, record.warnings) == ("ok", 300.0, [])
        assert record.device_s == second.of_cell[record.key].busy_s
    assert driver.pending(plan, second.records, retry_failed=True) == []


@pytest.mark.parametrize("verb", ["prepare", "measure", "load", "profile"])
def test_a_retry_that_is_stopped_replaces_no_time_of_its_shape(tmp_path, monkeypatch, verb):
    """Old times beside new ones could not be compared."""
    plan = on_a_gpu(monkeypatch, {"a": {}, "b": {}})
    cells = [cell for cell in plan.all_cells() if cell.shape == plan.shapes[0]]
    asked, sink = noted(monkeypatch, verb), Profiles(tmp_path)
    finished = {cell.key for cell in cells}
    outcome = driver.run(plan, cells, sink, Quiet(), lambda: bool(asked), finished=finished)
    assert (sink.records, outcome.left, outcome.interrupted) == ([], 2, True)


def test_nothing_takes_the_place_of_a_time_but_another_time(tmp_path):
    plan = plan_of(fake={"a": {}, "bad": {"fault": "error"}}, hidden=3)
    cells = plan.all_cells()
    sink = Raw(tmp_path)
    finished = {cell.key for cell in cells}
    outcome = driver.run(plan, cells, sink, Quiet(), finished=finished)
    assert [(r.implementation, r.status) for r in sink.records] == [("a", "ok")]
    assert outcome.left == 0


def test_workers_start_beside_each_other_where_there_are_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "threads", lambda: 2 * driver.CORES_TO_IMPORT)
    begun = []
    monkeypatch.setattr(driver.Workers, "begin", lambda self, names: begun.append(names))
    _, sink = walk(tmp_path, hidden=[3, 4], passes=2, controls=2)
    assert begun == [["fake", "fake#2"]] * 2  # once a pass
    assert {record.status for record in sink.records} == {"ok"}


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


@pytest.mark.parametrize(("device", "processes"), [("cpu", 1), ("cuda", 2)])
def test_a_process_that_a_gpu_profiler_of_its_framework_slows_times_no_other_shape(
    tmp_path, device, processes
):
    sink = profiled(tmp_path, device, fake={}, other={})
    at = {record.shape: set() for record in sink.records}
    for record in sink.records:
        at[record.shape].add(record.process)
    assert len(at) == 2
    assert len(set.union(*at.values())) == processes
    assert all(len(used) == 1 for used in at.values())


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
    assert driver.pending(plan, sink.records, retry_failed=True) == []


def test_a_second_try_that_finds_nothing_is_not_told_as_one(tmp_path, monkeypatch):
    kill_when(monkeypatch, "profile", 1)
    sink = profiled(tmp_path, "cpu", a={"profile": "lost"})
    assert [w.split(":")[0] for r in sink.records for w in r.warnings] == 2 * ["not profiled"]


def test_a_worker_that_is_gone_before_a_cell_was_timed_is_no_second_process_of_it(
    tmp_path, monkeypatch
):
    kill_when(monkeypatch, "measure", 1)
    _, sink = walk(tmp_path, hidden=3, fake={"a": {}, "b": {}})
    assert sorted(record.status for record in sink.records) == ["crashed", "ok"]
    assert [record.warnings for record in sink.records if record.status == "ok"] == [[]]


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


def test_no_more_time_is_inside_timed_calls_than_passed(tmp_path):
    script = {"fake": {"fake": {"call_s": 1000.0}}, "implementations": ["fake"]}  # virtual
    plan = grid.plan({**FAKE_GRID, **script}, Path("g.yaml"), device="cpu", threads=2)
    outcome = driver.run(plan, plan.all_cells(), Raw(tmp_path), Quiet())
    assert 0 < outcome.timed_s <= outcome.wall_s


@processes  # or the load would keep the counter's thread from Python's lock
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


def with_loads(monkeypatch, folder, fakes, loads, stop=lambda asked: False):
    """What is loaded, in that order, the records and the outcome; nothing takes time."""
    monkeypatch.setattr(gpu, "open_gauge", lambda device: Meter(device == "cuda"))
    monkeypatch.setattr(energy, "idle_power", lambda gauge: 100.0)
    asked = noted(monkeypatch, "load")
    data = {**FAKE_GRID, "hidden": 3, "energy": True, "device": "cuda", "fake": fakes}
    sampling = {**FAKE_GRID["sampling"], "loads": loads}
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


def test_every_cell_is_loaded_once_before_any_is_loaded_again(tmp_path, monkeypatch):
    drawing(monkeypatch, 300.0, 300.0, 310.0, 310.0, 320.0, 320.0)
    _, records, _ = with_loads(monkeypatch, tmp_path, {"a": {}, "b": {}}, 3)
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
