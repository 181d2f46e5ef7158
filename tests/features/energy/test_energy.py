"""Energy per call: the ticks that count, the line through them, and what is too short to tell."""

import itertools
import math
import sys
import threading
import time
from dataclasses import dataclass

import pytest
from fake_nvml import IDLE_W, LOAD_W, FakeNvml

from lstm_bench.driver.gpu import Gauge, open_gauge
from lstm_bench.features.energy import measure as energy
from lstm_bench.features.energy.measure import Tick, Ticks
from lstm_bench.model.types import LEAD_S, WINDOW_S, Energy, to_json

CALL_S = 0.00442


@dataclass
class Load:
    calls: int
    seconds: float


class Bench:
    """A GPU whose time passes as its counter is read, and a worker that loads it."""

    def __init__(self, call_s=CALL_S, **driver):
        self.nvml, self.call_s = FakeNvml(**driver), call_s
        self.gauge = Gauge(self.nvml, 0)
        self.asked_s = []
        bench = self

        class StandingTicks(Ticks):
            """Looks when time passes, without a thread."""

            def __enter__(self):
                bench.watch = self
                return self

            def __exit__(self, *error):
                pass

        self.watching = lambda counter: StandingTicks(counter, self.now)

    def now(self):
        return self.nvml.now_s

    def pass_time(self, seconds):
        end = self.now() + seconds
        while self.now() < end:
            self.watch.read()
            self.nvml.now_s += energy.POLL_S

    def run_load(self, seconds):
        self.asked_s.append(seconds)
        calls = math.ceil(seconds / self.call_s)
        self.nvml.load = (self.now(), self.now() + calls * self.call_s)
        self.pass_time(calls * self.call_s)
        return Load(calls, calls * self.call_s)

    def measure(self, **options):
        options = {"idle_w": IDLE_W, **options}
        return energy.measure(self.gauge, self.run_load, watching=self.watching, **options)

    def idle_power(self, seconds=1.0):
        return energy.idle_power(self.gauge, seconds, self.pass_time, self.watching)


def test_several_loads_are_all_their_energy_over_all_their_calls():
    """A slow host: less power for longer. Neither side's share is taken twice."""
    fast = Energy(300.0, 100.0, 0.5, 6, calls=1000, call_s=1e-3)
    slow = Energy(200.0, 104.0, 0.6, 7, calls=1000, call_s=2e-3)
    both = energy.together([fast, slow])
    assert (both.calls, both.call_s) == (2000, pytest.approx(1.5e-3))
    assert both.power_w * both.calls * both.call_s == pytest.approx(300 * 1 + 200 * 2)
    assert (both.idle_w, both.window_s, both.ticks) == (102.0, pytest.approx(1.1), 13)
    assert both.net_j == pytest.approx((0.198 + 0.196) / 2)
    assert both.load_j == pytest.approx([0.198, 0.196])


def test_one_load_is_itself_and_one_without_power_counts_only_alone():
    fine, short = Energy(300.0, 100.0, 0.5, 6, 1000, 1e-3), Energy(problem="too short to measure")
    assert energy.together([]) is None
    assert energy.together([fine]) is energy.together([short, fine]) is fine
    assert energy.together([short, short]) is short
    three = energy.together([fine, short, fine])
    assert (three.load_w, three.load_call_s) == ([300.0, 300.0], [1e-3, 1e-3])
    assert fine.load_j == []


def test_without_idle_power_loads_are_held_against_each_other_by_all_they_draw():
    both = energy.together([Energy(power, None, 0.5, 6, 1000, 1e-3) for power in (300.0, 200.0)])
    assert both.idle_w is None
    assert both.load_j == pytest.approx([0.3, 0.2])


def test_four_loads_resolve_net_energy_twice_as_well_as_one():
    """Each has ticks of its own, early or late by chance."""
    single = Energy(120.0, 100.0, 0.5, 6, 1000, 1e-3)
    four = energy.together([single] * 4)
    assert single.net_uncertainty == pytest.approx(2 * four.net_uncertainty)


def test_energy_is_power_inside_the_load_times_seconds_per_call():
    actual = Bench().measure(window_s=1.0)
    assert actual.power_w == pytest.approx(LOAD_W, rel=0.02)
    assert actual.gross_j(CALL_S) == pytest.approx(LOAD_W * CALL_S, rel=0.02)
    assert actual.net_j == pytest.approx((LOAD_W - IDLE_W) * CALL_S, rel=0.03)
    assert actual.call_s == pytest.approx(CALL_S)
    assert actual.calls == math.ceil(1.2 / CALL_S)
    assert (actual.idle_w, actual.problem) == (IDLE_W, "")
    assert 0.8 < actual.window_s < 1.2
    assert actual.ticks >= 9
    assert not [name for name in to_json(actual) if name.endswith("_j")]  # joules are derived


def test_idle_time_before_and_after_the_load_is_not_in_it():
    """Counted from tick to tick around the load, far too little energy comes out."""
    bench = Bench()
    actual = bench.measure()
    bench.pass_time(0.3)
    ticks = bench.watch.ticks
    around = (ticks[-1].energy_j - ticks[0].energy_j) / (ticks[-1].at_s - ticks[0].at_s)
    assert around < 0.85 * LOAD_W
    assert actual.power_w == pytest.approx(LOAD_W, rel=0.03)


def test_a_worker_that_is_slow_to_begin_does_not_spoil_it():
    bench = Bench()

    def late(seconds):
        bench.pass_time(0.5)
        return bench.run_load(seconds)

    actual = energy.measure(bench.gauge, late, IDLE_W, watching=bench.watching)
    assert actual.power_w == pytest.approx(LOAD_W, rel=0.03)
    assert actual.window_s < WINDOW_S + LEAD_S


@pytest.mark.parametrize("window_s", [0.35, 0.5, 1.0])
def test_the_same_cell_twice_agrees_within_5_percent(window_s):
    apart, off = [], []
    for seed in range(100):
        first, second = (
            Bench(seed=2 * seed + n).measure(window_s=window_s).gross_j(CALL_S) for n in (0, 1)
        )
        apart.append(abs(first / second - 1))
        off.append(first / (LOAD_W * CALL_S) - 1)
    assert max(apart) < 0.05
    assert abs(sum(off) / len(off)) < 0.003  # no side is favoured


def test_a_load_longer_than_was_asked_for_counts_in_full():
    """One call may take longer than the window."""
    bench = Bench(call_s=2.0)
    actual = bench.measure()
    assert bench.asked_s == [pytest.approx(WINDOW_S + LEAD_S)]
    assert actual.calls == 1
    assert actual.gross_j(2.0) == pytest.approx(LOAD_W * 2.0, rel=0.01)
    assert actual.window_s > 1.5


def test_idle_power_is_read_off_the_same_counter_and_leaves_a_load_before_it_out():
    assert Bench().idle_power() == pytest.approx(IDLE_W, rel=0.02)
    bench = Bench()
    bench.measure()
    assert bench.idle_power() == pytest.approx(IDLE_W, rel=0.02)


# what is too short, too little, or not there


def ticks(*pairs):
    return [Tick(at, joules) for at, joules in pairs]


def test_the_first_tick_inside_a_load_is_dropped_and_those_outside_too():
    actual = ticks((0.9, 0), (1.05, 10), (1.15, 50), (1.25, 90), (1.99, 130), (2.01, 170))
    assert energy.inside(actual, 1.0, 2.0) == actual[2:5]
    assert energy.inside(actual, 3.0, 4.0) == []


def test_fewer_than_three_ticks_are_too_short():
    two = ticks((1.0, 10), (1.1, 50))
    actual = energy.of_load(two, Load(100, 0.3), IDLE_W)
    assert (actual.gross_j(0.003), actual.net_j, actual.power_w) == (None, None, None)
    assert actual.net_uncertainty == math.inf
    assert "too short to measure" in actual.problem
    assert (actual.ticks, actual.calls) == (2, 100)
    assert actual.call_s == pytest.approx(0.003)
    three = energy.of_load([*two, Tick(1.2, 90)], Load(100, 0.3), IDLE_W)
    assert three.problem == ""
    assert three.power_w == pytest.approx(400)
    assert three.gross_j(0.003) == pytest.approx(1.2)
    assert three.net_j == pytest.approx(0.825)


def test_a_load_that_ended_early_is_too_short():
    bench = Bench()
    bench.run_load_of, bench.run_load = bench.run_load, lambda _: bench.run_load_of(0.2)
    assert "too short to measure" in bench.measure().problem


def test_power_over_idle_below_what_the_window_leaves_open_is_not_resolved():
    """130 W over 0.3 s: a tick that is 20 ms off makes 9 W."""
    line = ticks(*((0.1 * n, 13.0 * n) for n in range(4)))
    actual = energy.of_load(line, Load(10, 0.3), idle_w=125.0)
    assert actual.net_uncertainty > 1
    assert actual.problem == ""
    assert actual.net_j == pytest.approx(5 * 0.03)
    assert actual.gross_j(0.03) == pytest.approx(130 * 0.03)
    assert energy.of_load(line, Load(10, 0.3), idle_w=131.0).net_uncertainty == math.inf
    clear = energy.of_load(line, Load(10, 0.3), idle_w=100.0)
    assert clear.net_j == pytest.approx(0.9)
    assert clear.net_uncertainty == pytest.approx(130 * 0.02 / 0.3 / 30)


def test_without_idle_power_there_is_gross_energy_only():
    actual = Bench().measure(idle_w=None)
    assert actual.gross_j(CALL_S) == pytest.approx(LOAD_W * CALL_S, rel=0.03)
    assert (actual.net_j, actual.net_uncertainty, actual.problem) == (None, math.inf, "")


def test_a_counter_that_goes_backwards_is_not_believed():
    actual = energy.of_load(ticks((1.0, 50), (1.1, 3), (1.2, 43)), Load(10, 0.3), IDLE_W)
    assert actual.power_w is None
    assert "backwards" in actual.problem


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        ({"fails": {"nvmlDeviceGetTotalEnergyConsumption": "NotSupported"}}, "does not tell"),
        ({"fails": {"nvmlDeviceGetTotalEnergyConsumption": "NoPermission"}}, "rights"),
        ({"without": {"nvmlDeviceGetTotalEnergyConsumption"}}, "--upgrade nvidia-ml-py"),
    ],
)
def test_without_a_counter_no_load_is_run(driver, words):
    bench = Bench(**driver)
    actual = bench.measure()
    assert actual == Energy(problem=actual.problem)
    assert words in actual.problem
    assert bench.asked_s == []
    assert bench.idle_power() is None


@pytest.mark.parametrize(
    ("device", "words"), [("cpu", "CPU"), ("cuda", "pip install nvidia-ml-py")]
)
def test_without_a_gpu_or_the_package_no_load_is_run(monkeypatch, device, words):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    actual = energy.measure(open_gauge(device), lambda _: pytest.fail("no load is of use"))
    assert words in actual.problem


def test_a_gpu_that_is_lost_in_the_middle_costs_the_energy_only():
    bench = Bench(lost_at_s=0.3)
    actual = bench.measure()
    assert actual == Energy(problem=actual.problem)
    assert "GPU is lost" in actual.problem


# what is read off a record


def test_a_load_that_ran_slow_leaves_gross_energy_where_it_is():
    """A host that is 20% slower: the GPU works as much per call, and waits for longer."""
    work_j, idle_w, time_s = 0.05, 120.0, 1e-3
    usual, slow = (
        Energy(idle_w + work_j / call_s, idle_w, 0.5, 5, 700, call_s) for call_s in (1e-3, 1.2e-3)
    )
    assert slow.power_w < 0.96 * usual.power_w
    assert slow.net_j == pytest.approx(work_j)
    assert slow.gross_j(time_s) == pytest.approx(usual.gross_j(time_s))
    assert usual.gross_j(time_s) == pytest.approx(work_j + idle_w * time_s)


# when a tick happened


class Counter:
    """A counter that gives these values; each read takes 4 ms. None: it does not answer."""

    reason = "gone"

    def __init__(self, joules):
        self.joules, self.now_s = iter(joules), 0.0
        self.reads, self.enough = 0, threading.Event()

    def ask(self, *_):
        self.now_s += 0.004
        self.reads += 1
        if self.reads >= 20:
            self.enough.set()
        joules = next(self.joules)
        return None if joules is None else 1000 * joules

    def ticks(self, *pauses_s):
        """The ticks seen with these pauses between reads."""
        watch = Ticks(self, lambda: self.now_s)
        for pause_s in pauses_s:
            watch.read()
            self.now_s += pause_s
        assert not watch.lost
        return watch.ticks


def test_a_tick_lies_between_two_reads_and_the_first_value_is_none():
    # reads have their middle at 2, 12, 22, 32, 42 ms
    seen = Counter([5.0, 5.0, 9.0, 9.0, 12.0]).ticks(*5 * [0.006])
    assert seen == [Tick(pytest.approx(0.017), 9.0), Tick(pytest.approx(0.037), 12.0)]


def test_a_move_after_a_long_pause_is_no_tick():
    """Whoever was held up does not know when it moved; the next one counts again."""
    seen = Counter([5.0, 9.0, 12.0]).ticks(0.5, 0, 0)
    assert [tick.energy_j for tick in seen] == [12.0]


def test_an_error_that_passes_costs_no_energy():
    assert len(Counter([10.0, 10.0, None, 10.0, 40.0, 40.0]).ticks(*6 * [0.006])) == 1


def test_the_watch_polls_in_a_thread_while_it_is_entered():
    counter = Counter(itertools.count())
    watch = Ticks(counter)
    with watch:
        assert counter.enough.wait(60)
    reads = counter.reads
    assert 1 < len(watch.ticks) < reads
    times = [tick.at_s for tick in watch.ticks]
    assert times == sorted(times)
    assert not watch._thread.is_alive()
    assert counter.reads == reads


def test_a_worker_that_dies_in_the_load_leaves_no_thread_behind():
    def dies(_):
        raise RuntimeError("the worker is gone")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="the worker is gone"):
        energy.measure(Counter(itertools.count()), dies)
    assert threading.active_count() == before


def test_a_counter_that_stops_answering_ends_the_polling():
    counter = Counter(itertools.chain(range(30), itertools.repeat(None)))

    def load(seconds):
        assert counter.enough.wait(60)
        while counter.reads < 30 + energy.MISSES:
            threading.Event().wait(0.001)
        return Load(10, seconds)

    assert energy.measure(counter, load).problem == "gone"


def test_a_counter_that_hangs_is_not_asked_again(monkeypatch):
    monkeypatch.setattr(energy, "PATIENCE_S", 0.05)
    over, asked, given_up = threading.Event(), [], []

    class Hangs:
        reason = "NVML hangs"

        def ask(self, *_):
            asked.append(threading.current_thread())
            if len(asked) > 1:
                over.wait(60)
            return None if given_up else 1.0

        def give_up(self):
            given_up.append(True)

    actual = energy.measure(Hangs(), lambda _: time.sleep(0.1))
    over.set()
    assert (actual.problem, given_up) == ("NVML hangs", [True])
