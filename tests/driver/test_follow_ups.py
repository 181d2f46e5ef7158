"""Energy and profiles of cells that have been timed: their times stand, whatever happens here."""

import itertools
import os
import signal
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from fakes import (
    Quiet,
    asked_as,
    cold,
    elsewhere,
    kill_when,
    marks,
    measure,
    noted,
    plan_of,
    refused,
    shoot,
    wrong,
)

from lstm_bench.driver import context, driver, follow_ups, gpu, worker_pool
from lstm_bench.features.energy import measure as energy
from lstm_bench.features.profile import command as profile_command
from lstm_bench.model.types import Energy, Record, Shape, Stopped, Telemetry

pytestmark = pytest.mark.usefixtures("in_process")
processes = pytest.mark.processes  # a crash or a time limit is the promise

LIMIT_S = 3  # more than anything takes that does not hang


class Meter:
    """An energy counter that moves all the time, at 300 W, or does not exist."""

    reason = ""

    def __init__(self, there=True):
        self.there = self.reads = there

    def reading(self):
        return Telemetry(sm_mhz=1980, power_w=300.0) if self.there else None

    def ask(self, *_):
        return time.monotonic() * 300_000 if self.there else None

    def processes(self):
        mine = SimpleNamespace(pid=self.pid, usedGpuMemory=12345)
        return [mine] if self.there else []

    def close(self): ...


def drawing(monkeypatch, *powers):
    """Loads are run, and draw so much one after the other; None is a counter that is blind."""
    left = iter(powers)

    def measured(gauge, run_load, idle_w):
        run_load(0.01)
        power = next(left)
        if power is None:
            return Energy(problem="blind")
        return Energy(power, idle_w, 0.5, 6, calls=100, call_s=1e-3)

    monkeypatch.setattr(gpu, "open_gauge", lambda device: Meter())
    monkeypatch.setattr(energy, "idle_power", lambda gauge: 100.0)
    monkeypatch.setattr(energy, "measure", measured)


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Make a plan of fakes on a GPU, at two shapes; loads draw so much in turns."""

    def plan(fakes, *powers, loads=1, profile=True, **changes):
        monkeypatch.setattr(Meter, "processes", lambda self: [])
        drawing(monkeypatch, *(powers or itertools.repeat(300.0, 99)))
        more = {"energy": True, "profile": profile, "fake": fakes, "sampling": {"loads": loads}}
        return plan_of("cuda", **more, **changes)

    return plan


def profiled(logs, device, observer=None, **fakes):
    outcome, sink = measure(plan_of(device, fake=fakes, profile=True), logs, observer)
    assert outcome.left == 0
    return sink


def timed_again(plan, records):
    """The rows and shapes that `--retry-failed` measures again."""
    cells = driver.pending(plan, records, retry_failed=True)
    return [(cell.implementation, cell.shape) for cell in cells]


# what was lost


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
    assert timed_again(plan, records) == []
    if mark == "idle power":
        records[0].energy.idle_w = 100.0
    else:
        records[0].warnings.append(mark)
    assert driver.pending(plan, records, retry_failed=False) == []
    assert timed_again(plan, records) == [("a", there), ("b", there)]


def test_what_was_lost_is_there_after_a_retry(tmp_path, monkeypatch, on_a_gpu):
    plan = on_a_gpu({"a": {}, "b": {}})
    with monkeypatch.context() as patched:
        patched.setattr(follow_ups, "CRASHES", 1)
        kill_when(patched, "load", *range(99))
        kill_when(patched, "profile", *range(99))
        _, first = measure(plan, tmp_path)
    for record in first.records:
        assert (record.status, record.energy, record.device_s) == ("ok", None, None)
        assert record.latency_s
        assert {*marks(record)} == {"no energy", "not profiled"}
    again = driver.pending(plan, first.records, retry_failed=True)
    finished = {record.key for record in first.records}
    _, second = measure(plan, tmp_path, cells=again, finished=finished)
    assert len(second.records) == 4
    for record in second.records:
        assert (record.status, record.energy.power_w, record.warnings) == ("ok", 300.0, [])
        assert record.device_s == second.profiles[record.key].busy_s
    assert timed_again(plan, second.records) == []


@pytest.mark.parametrize("verb", ["prepare", "measure", "load", "profile"])
def test_a_retry_that_is_stopped_replaces_no_time_of_its_shape(
    tmp_path, monkeypatch, on_a_gpu, verb
):
    """Old times beside new ones could not be compared."""
    plan, asked = on_a_gpu({"a": {}, "b": {}}, hidden=3), noted(monkeypatch, verb)
    finished = {cell.key for cell in plan.all_cells()}
    outcome, sink = measure(plan, tmp_path, stop=lambda: bool(asked), finished=finished)
    assert (sink.records, outcome.left, outcome.interrupted) == ([], 2, True)


# profiles


def test_a_profiled_cell_knows_how_long_the_device_was_busy(tmp_path):
    sink = profiled(tmp_path, "cuda", fake={"call_s": 0.002})
    record = sink.row("fake")
    profile = sink.profiles[record.key]
    assert (record.status, record.warnings, profile.problem) == ("ok", [], "")
    assert 0 < record.device_s == profile.busy_s <= record.latency_s
    assert record.round_device_s == profile.call_busy_s


@pytest.mark.parametrize(("device", "processes"), [("cpu", 1), ("cuda", 2)])
def test_a_process_that_a_gpu_profiler_of_its_framework_slows_times_no_other_shape(
    tmp_path, device, processes
):
    at = {}
    for record in profiled(tmp_path, device, fake={}, other={}).records:
        at.setdefault(record.shape, set()).add(record.process)
    assert len(at) == 2
    assert len(set.union(*at.values())) == processes
    assert all(len(used) == 1 for used in at.values())


def test_a_control_is_the_same_calls_and_is_not_profiled_again(tmp_path):
    outcome, sink = measure(plan_of(hidden=3, controls=1, profile=True), tmp_path)
    assert {r.copy: bool(sink.profiles[r.key]) for r in sink.records} == {1: True, 2: False}
    activities = ("starting", "posing", "preparing", "rounds", "checking", "profiling")
    assert tuple(outcome.spent_s) == activities
    assert sum(outcome.spent_s.values()) <= outcome.wall_s


def test_no_cell_of_a_shape_is_profiled_while_another_is_timed(tmp_path):
    observer = Quiet()
    profiled(tmp_path, "cpu", observer, quick={}, noisy={"noise": 0.5, "process": "other"})
    texts = [text.split() for text in observer.texts]
    for label in {words[0] for words in texts}:
        order = [w[1] for w in texts if w[0] == label and w[1] in ("round", "profiling")]
        assert order == sorted(order, key=lambda activity: activity == "profiling")
        assert "profiling" in order


@pytest.mark.parametrize("trouble", ["lost", "crash", "none"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_times_stand_when_the_profiler_fails_and_the_split_is_not_shown_as_truth(
    tmp_path, trouble, device
):
    sink = profiled(tmp_path, device, fake={"profile": trouble}, well={})
    bad, good = sink.row("fake"), sink.row("well")
    assert bad.status == good.status == "ok"
    assert bad.latency_s
    assert bad.device_s is None
    assert marks(bad) == ["not profiled"]
    assert sink.profiles[bad.key].problem
    assert (good.warnings, sink.profiles[good.key].problem) == ([], "")


def test_a_profiler_that_spoils_the_answer_spoils_no_time(tmp_path):
    """The answer that is checked is that of the last timed call."""
    record = profiled(tmp_path, "cpu", fake={"profile": "spoil"}).row("fake")
    assert (record.status, record.check.passed) == ("ok", True)
    assert record.latency_s


@processes
def test_a_profiler_that_hangs_costs_no_neighbour_its_check_and_is_not_tried_again(tmp_path):
    fakes, observer = {"bad": {"profile": "hang"}, "good": {}}, Quiet()
    plan = plan_of(fake=fakes, profile=True, sampling={"timeout_s": LIMIT_S})
    _, sink = measure(plan, tmp_path, observer)
    assert sum("profiling bad" in text for text in observer.texts) == 1
    assert {(r.status, r.check.passed) for r in sink.records} == {("ok", True)}
    first, second = sorted(text for r in sink.records for text in r.warnings)
    assert f"longer than {LIMIT_S} s" in first
    assert "profiling of bad took the worker down before" in second
    assert all(sink.profiles[r.key] for r in sink.records if r.implementation == "good")


@processes
def test_a_worker_that_dies_of_profiling_once_costs_no_cell_its_profile(tmp_path, monkeypatch):
    kill_when(monkeypatch, "profile", 1)
    sink = profiled(tmp_path, "cpu", a={}, b={})
    assert all(sink.profiles.values())
    (warning,) = [text for record in sink.records for text in record.warnings]
    assert warning.startswith(
        "second try: profiling took the worker down: worker killed by SIGKILL"
    )


def test_deaths_with_a_good_profile_in_between_are_forgotten(tmp_path, monkeypatch):
    """One of several hundred passes dies, whatever the row: that is no reason to end them all."""
    kill_when(monkeypatch, "profile", 1, 3)
    sink = profiled(tmp_path, "cpu", a={})
    assert list(map(bool, sink.profiles.values())) == [True, True]
    assert [marks(record) for record in sink.records] == [["second try"]] * 2


def test_a_second_try_that_finds_nothing_is_not_told_as_one(tmp_path, monkeypatch):
    kill_when(monkeypatch, "profile", 1)
    sink = profiled(tmp_path, "cpu", a={"profile": "lost"})
    assert [marks(record) for record in sink.records] == [["not profiled"]] * 2


@processes
def test_a_row_that_dies_of_every_profile_is_left_alone_and_its_neighbours_are_not(tmp_path):
    observer = Quiet()
    sink = profiled(tmp_path, "cpu", observer, bad={"profile": "die"}, good={})
    assert all(sink.profiles[sink.row("good", hidden).key] for hidden in (3, 5))
    assert all(sink.row("good", hidden).warnings == [] for hidden in (3, 5))
    first, second = (r.warnings for r in sink.records if r.implementation == "bad")
    assert "Segmentation fault | " in first[0]
    assert second == ["not profiled: profiling of bad took the worker down before"]
    assert sum("profiling bad" in text for text in observer.texts) == follow_ups.CRASHES


@processes
def test_profiles_that_kill_cost_no_energy(tmp_path, on_a_gpu):
    _, sink = measure(on_a_gpu({"bad": {"profile": "die"}}), tmp_path)
    assert [(r.status, r.energy.power_w) for r in sink.records] == 2 * [("ok", 300.0)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (cold, None),
        (wrong, "built again: output is off"),
        (elsewhere, "built again, it took another way: another"),
        (refused, "no room"),
    ],
)
def test_what_is_built_again_changes_nothing_of_the_times(
    tmp_path, monkeypatch, on_a_gpu, change, reason
):
    """And is measured further only if it is what was timed."""
    plan = on_a_gpu({"a": {}, "b": {}}, loads=2, hidden=3)
    started, loads, built = noted(monkeypatch, "hello"), itertools.count(), Counter()

    def answer(go, worker, verb, fields):
        if verb == "load" and next(loads) == 0:
            shoot(worker)
        reply = go()
        if verb == "prepare":
            built[fields["key"]] += 1
            if built[fields["key"]] > 1:
                change(reply)
        return reply

    asked_as(monkeypatch, answer)
    _, sink = measure(plan, tmp_path)
    assert len(started) == 2  # what cannot be built again is not asked for
    for record in sink.records:
        assert (record.status, record.check.passed) == ("ok", True)
        assert record.latency_s
        if reason is None:
            assert {*marks(record)} <= {"second try"}
            assert (record.energy.power_w, bool(sink.profiles[record.key])) == (300.0, True)
        else:
            assert record.warnings[-1] == f"not profiled: {reason}"
            assert all(reason in w or "fewer loads" in w for w in record.warnings)
            assert sink.profiles[record.key] is None


def test_stopping_while_profiling_leaves_the_rest_to_be_done_again(tmp_path):
    """A cell that is `ok` has all that the plan asks of it: `--resume` would not come back."""
    observer, plan = Quiet(), plan_of(fake={"a": {}, "b": {}}, profile=True)
    outcome, sink = measure(
        plan, tmp_path, observer, lambda: any("profiling" in text for text in observer.texts)
    )
    assert outcome.interrupted
    for record in sink.records:
        assert record.status == ("ok" if sink.profiles[record.key] else "interrupted")
    left = driver.pending(plan, sink.records, retry_failed=False)
    assert len(left) >= outcome.left > 0
    outcome, rest = measure(plan, tmp_path, cells=left)
    assert outcome.left == 0
    whole = {**sink.profiles, **rest.profiles}
    assert len(whole) == 4
    assert all(whole.values())


# energy


@processes  # or the load would keep the counter's thread from Python's lock
@pytest.mark.parametrize("there", [True, False])
def test_energy_is_measured_on_a_gpu_and_says_so_where_it_cannot_be(tmp_path, monkeypatch, there):
    monkeypatch.setattr(gpu, "open_gauge", lambda device: Meter(there))
    monkeypatch.setattr(energy, "BLUR_S", 60.0)  # on a busy machine reads may lie far apart
    monkeypatch.setattr(energy, "idle_power", lambda gauge: 100.0)
    started = worker_pool.Workers._start

    def start(self, name):
        worker = started(self, name)
        Meter.pid = worker.pid
        return worker

    monkeypatch.setattr(worker_pool.Workers, "_start", start)
    script = {"fake": {"real": True, "call_s": 0.002}}
    outcome, sink = measure(plan_of("cuda", hidden=3, energy=True, fake=script), tmp_path)
    (record,) = sink.records
    assert outcome.timed_s == record.timed_s  # what energy is measured over is no timed call
    assert (record.status, bool(record.energy.problem)) == ("ok", not there)
    assert (record.energy.power_w is not None) == there
    assert (record.gpu is not None) == there
    assert (record.memory.get("process by NVML") == 12345) == there


def test_each_turn_of_loads_has_an_order_of_its_own(tmp_path, monkeypatch, on_a_gpu):
    asked = noted(monkeypatch, "load")
    measure(on_a_gpu({name: {} for name in "abcdef"}, loads=4, hidden=3), tmp_path)
    turns = {tuple(asked[n : n + 6]) for n in (0, 6, 12, 18)}
    assert len(turns) == 4
    assert {frozenset(turn) for turn in turns} == {frozenset(asked)}


@pytest.mark.parametrize(
    ("powers", "fatal", "power", "warnings"),
    [
        ([300.0, None], [], 300.0, ["fewer loads: 1 of 2 have no power: blind"]),
        ([None, None, None], [], None, []),  # where there is no counter
        ([300.0], range(2, 99), 300.0, ["fewer loads: 2 of 3 have no power: "]),
        ([None], range(2, 99), None, ["no energy: "]),
        ([], range(99), None, ["no energy: "]),
    ],
)
def test_loads_without_a_power_are_warned_of(
    tmp_path, monkeypatch, on_a_gpu, powers, fatal, power, warnings
):
    """Also where the worker dies under a load: those before it count."""
    plan = on_a_gpu({"a": {}}, *powers, loads=3 if fatal else len(powers), profile=False, hidden=3)
    if not powers:
        drawing(monkeypatch)
    kill_when(monkeypatch, "load", *fatal)
    (record,) = measure(plan, tmp_path)[1].records
    assert (record.status, record.energy.power_w if record.energy else None) == ("ok", power)
    assert record.latency_s
    assert len(record.warnings) == len(warnings)
    assert all(map(str.startswith, record.warnings, warnings))


def test_a_load_that_fails_before_others_do_not_is_no_lost_energy(tmp_path, monkeypatch, on_a_gpu):
    plan, loads = on_a_gpu({"a": {}}, loads=4), itertools.count()

    def answer(go, worker, verb, fields):
        if verb == "load" and next(loads) % 4 == 0:
            refused(None)
        return go()

    asked_as(monkeypatch, answer)
    _, sink = measure(plan, tmp_path)
    assert [r.energy.power_w for r in sink.records] == pytest.approx([300.0, 300.0])
    warning = "fewer loads: 1 of 4 have no power: no room"
    assert [r.warnings for r in sink.records] == 2 * [[warning]]
    assert timed_again(plan, sink.records) == []


# the command `profile`


def profile_fake():
    return profile_command._measured("fake", Shape(8, 2, 3, 8), "cpu", 1, (), operators=False)


def test_a_worker_that_dies_while_it_is_profiled_is_told_with_its_reason(monkeypatch):
    kill_when(monkeypatch, "profile", *range(99))
    with pytest.raises(Stopped, match=r"could not be profiled: not profiled: \S+"):
        profile_fake()


def test_ctrl_c_ends_profile_with_the_code_of_a_grid(monkeypatch):
    def interrupted(run: context.Context, cells):
        os.kill(os.getpid(), signal.SIGINT)
        assert run.stop()
        return context.Outcome(interrupted=True)

    monkeypatch.setattr(driver, "run", interrupted)
    with pytest.raises(SystemExit) as ended:
        profile_fake()
    assert ended.value.code == 130
