"""Decisions about samples, on a clock that only moves when told."""

import io
import os
import statistics
import time

import pytest
from scipy import stats

from lstm_bench.driver import convergence
from lstm_bench.model.median import median_interval
from lstm_bench.model.types import Block, Sampling
from lstm_bench.worker import timing
from lstm_bench.worker.session import Session


class Scripted:
    """A session whose calls take what a list says, and the clock that they move."""

    def __init__(self, seconds):
        self.seconds = iter(seconds)
        self.ns = 0
        self.made = 0

    two_passes = False
    now_ns = property(lambda self: lambda: self.ns)

    def cpu_s(self):
        return self.ns / 1e9

    def switches(self):
        return 0

    def others_s(self):
        return 0.0

    def time_each(self, calls, clock):
        samples = [int(next(self.seconds) * 1e9) for _ in range(calls)]
        self.ns += sum(samples)
        self.made += calls
        return samples

    def time_queued(self, calls, clock):
        return sum(self.time_each(calls, clock))


class Halved(Session):
    """A training step whose passes take 2 and 5 seconds, each until it is waited for."""

    two_passes = True

    def __init__(self):
        self.ns = self.owed = 0

    now_ns = property(lambda self: lambda: self.ns)

    cpu_s = switches = others_s = lambda self: 0

    def call(self):
        self.forward_pass()
        self.backward_pass()

    def forward_pass(self):
        self.owed += 2_000_000_000

    def backward_pass(self):
        self.owed += 5_000_000_000

    def wait(self):
        self.ns, self.owed = self.ns + self.owed, 0


def forever(value):
    while True:
        yield value


def a_block(wall_s=1.0, cpu_s=1.7, switches=0):
    return Block(1, [1], 1, 1, cpu_s, wall_s, switches)


def warmed(seconds, **sampling):
    session = Scripted(seconds)
    return timing.warm_up(session, Sampling(**sampling), session)


@pytest.mark.parametrize(
    ("seconds", "sampling", "calls", "settled", "call_s"),
    [
        (forever(0.1), {}, 5, True, 0.1),  # at least five
        (forever(0.001), {}, 50, True, 0.001),  # until its time is filled
        ([*(0.1 * 0.9**n for n in range(40)), *[0.001] * 5000], {}, None, True, 0.001),
        ((0.01 * 1.05**n for n in range(10_000)), {"warmup_cap_s": 2.0}, 50, False, None),
        (forever(0.3), {"warmup_calls": 1}, None, True, 0.3),
        (forever(0.3), {"warmup_calls": 2}, None, True, 0.3),
        (forever(9.0), {"warmup_cap_s": 5.0}, 1, False, 9.0),
    ],
)
def test_warm_up_goes_on_until_calls_take_alike_or_to_the_cap(
    seconds, sampling, calls, settled, call_s
):
    result = warmed(seconds, **sampling)
    assert result.settled == settled
    assert calls in (None, result.calls)
    assert call_s is None or result.call_s == pytest.approx(call_s)


@pytest.mark.parametrize(
    ("call_s", "calls"),
    [(1e-5, 2000), (0.001, 20), (0.01, 5), (0.1, 5), (1.0, 3), (100.0, 1)],
)
def test_a_block_has_enough_calls_but_not_more_than_the_cap_allows(call_s, calls):
    assert timing.calls_per_block(call_s, Sampling(rounds=10, cell_s=30.0)) == calls


def a_block_of(call_s, asynchronous=False, seconds=None, **sampling):
    """A session, and a block of its calls."""
    session = Scripted(seconds or forever(call_s))
    return session, timing.block(session, Sampling(**sampling), session, 7, call_s, asynchronous)


def test_a_block_keeps_every_sample_and_leaves_out_the_settling_calls():
    _, block = a_block_of(0.1, seconds=[0.5, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert block.latency_ns == [100_000_000, 200_000_000, 300_000_000, 400_000_000, 500_000_000]
    assert (block.round, block.queued_calls) == (7, 5)
    assert block.queued_ns == sum(block.latency_ns)


def test_a_block_of_short_calls_settles_for_some_milliseconds():
    assert a_block_of(0.001)[0].made == 5 + 20


@pytest.mark.parametrize(("call_s", "untimed"), [(0.008, 1), (0.012, 1), (0.049, 1), (0.06, 0)])
def test_a_block_of_one_call_settles_unless_it_is_slow(call_s, untimed):
    """A cold start is a few per cent of ten milliseconds: all that are near must have none."""
    session, block = a_block_of(call_s, block_calls=1, block_s=0.005)
    assert (session.made, len(block.latency_ns)) == (untimed + 1, 1)


@pytest.mark.parametrize(
    ("call_s", "asynchronous", "sampling", "queued"),
    [
        (0.1, True, {}, 5),
        (0.01, False, {"queued_calls": 100}, 100),  # as DeepBench does
        (1.0, False, {"queued_calls": 100, "cell_s": 5.0}, 5),  # no more than a cell may cost
        (1.0, False, {"queued_calls": 500, "cell_s": 600.0, "timeout_s": 120.0}, 40),
    ],
)
def test_queued_calls_are_measured_apart(call_s, asynchronous, sampling, queued):
    """A queue ends before the worker is given up."""
    session, block = a_block_of(call_s, asynchronous, **sampling)
    assert block.queued_calls == queued
    assert block.queued_ns == pytest.approx(queued * call_s * 1e9)
    assert session.made - queued - len(block.latency_ns) in (0, 1)  # one settles


def test_a_queue_of_one_is_the_call_itself_and_is_not_made_twice():
    session, block = a_block_of(0.5, asynchronous=True, block_calls=1, block_s=0.005)
    assert session.made == block.queued_calls == 1
    assert block.queued_ns == block.latency_ns[0]


def test_what_reading_the_machine_costs_is_not_counted_as_the_calls():
    class Costly(Scripted):
        def others_s(self):
            self.ns += 10**9  # all of it CPU time of this process
            return 0.0

    session = Costly(forever(0.1))
    block = timing.block(session, Sampling(), session, 1, 0.1, asynchronous=False)
    assert block.cpu_s == block.wall_s == pytest.approx(0.5)


def test_a_block_is_disturbed_when_switches_come_with_lost_cpu_time():
    before = [a_block()]
    assert convergence.disturbed(a_block(cpu_s=1.0, switches=300), before)
    assert not convergence.disturbed(a_block(cpu_s=1.0, switches=3), before)
    assert not convergence.disturbed(a_block(cpu_s=1.7, switches=300), before)
    assert not convergence.disturbed(a_block(cpu_s=1.0, switches=300), [])
    restless = [a_block(switches=250)]  # threads of its own that push each other
    assert not convergence.disturbed(a_block(cpu_s=1.0, switches=300), restless)


def test_a_neighbour_that_stays_from_first_to_last_is_seen():
    def block(own, others):
        return Block(1, [1], 1, 1, own, 1.0, 0, others)

    assert convergence.crowded([block(1.0, 1.0)] * 3, cores=2) == pytest.approx(1.0)
    assert convergence.crowded([block(1.9, 0.1)] * 3, cores=2) == 0  # a little is always there
    assert convergence.crowded([block(1.0, 1.0)] * 3, cores=16) == 0  # room for both
    assert convergence.crowded([], cores=2) == 0


def test_others_are_those_on_the_cores_that_this_process_may_use(monkeypatch):
    lines = ["cpu 9 9 9 9 9 9 9 9", "cpu0 100 0 0 500 0 0 0 0", "cpu1 900 0 0 0 0 0 0 0", "intr 1"]
    monkeypatch.setattr("builtins.open", lambda path: io.StringIO("\n".join(lines)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    monkeypatch.setattr(time, "process_time", lambda: 0.25)
    assert timing.ProcessClock.others_s() == 0.75


@pytest.mark.parametrize("n", range(6, 61))
def test_the_interval_of_the_median_is_the_narrowest_with_95_percent(n):
    low, high = median_interval(list(range(n)))
    assert low + high == n - 1
    coverage = 1 - 2 * stats.binom.cdf(low, n, 0.5)
    narrower = 1 - 2 * stats.binom.cdf(low + 1, n, 0.5)
    assert coverage >= 0.95 > narrower


def test_the_interval_is_known_for_any_number_of_rounds():
    n = 5000
    low, high = median_interval(list(range(n)))
    assert low == stats.binom.ppf(0.025, n, 0.5) - 1
    assert low + high == n - 1


def test_with_few_rounds_the_interval_is_the_whole_range():
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert median_interval([1.0]) == (1.0, 1.0)


def test_a_cell_converges_when_the_interval_is_narrow_and_the_rounds_are_done():
    sampling = Sampling(rounds=10)
    steady = [1.0 + 0.001 * n for n in range(10)]
    assert convergence.converged(steady, sampling)
    assert not convergence.converged(steady[:9], sampling)
    assert not convergence.converged([1.0 + 0.02 * n for n in range(10)], sampling)
    assert convergence.converged([0.0] * 10, sampling)  # calls that a clock does not see


def test_outliers_are_counted():
    samples = [100, 101, 102, 103, 104, 105, 106, 107, 9000]
    assert convergence.outliers(samples) == 1
    assert convergence.outliers(samples[:-1]) == 0
    assert statistics.median(samples) == 104


def test_a_block_times_each_pass_of_one_more_training_step_and_waits_for_it():
    session = Halved()
    timed = timing.block(session, Sampling(), session, 1, 7.0, asynchronous=False)
    assert (timed.forward_ns, timed.backward_ns) == (2_000_000_000, 5_000_000_000)


def test_a_step_that_cannot_be_halted_has_no_time_of_a_pass():
    session = Scripted(forever(1.0))
    timed = timing.block(session, Sampling(), session, 1, 1.0, asynchronous=False)
    assert (timed.forward_ns, timed.backward_ns) == (0, 0)
