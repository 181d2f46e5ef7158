"""Memory peaks: what belongs to one cell when all cells of a shape share a process."""

import mmap
import resource
import types

import pytest

from lstm_bench.model.types import Shape
from lstm_bench.worker import memory_peak, problem
from lstm_bench.worker.memory_peak import Peak
from lstm_bench.worker.session import Session


class Allocator:
    """A framework's: what is in use, and the most since it was asked."""

    def __init__(self, in_use=0):
        self.in_use = self.most = in_use

    def allocated(self):
        self.most = self.in_use
        return self.in_use

    def take(self, size):
        self.in_use += size
        self.most = max(self.most, self.in_use)

    def give(self, size):
        self.in_use -= size


class OnDevice(Session):
    def __init__(self, allocator, inputs=0):
        self.allocator, self.memory = allocator, {"inputs": inputs}

    def device_peak(self):
        return self.allocator.most


@pytest.fixture
def posed():
    return problem.make(Shape(2, 1, 1, 2), seed=1)


def test_a_cell_has_its_own_peak_and_not_its_neighbours(posed):
    allocator = Allocator(in_use=1000)
    allocator.take(5000)  # a neighbour's call
    allocator.give(5000)
    peak = Peak(allocator, "cuda", posed)
    allocator.take(300)  # weights
    allocator.take(70)  # scratch
    allocator.give(70)
    assert peak.measured(OnDevice(allocator))["device peak"] == 370


def test_inputs_count_for_every_cell_that_uses_them(posed):
    allocator, actual = Allocator(), []
    for _ in range(2):
        peak = Peak(allocator, "cuda", posed)
        posed.shared("x", lambda: allocator.take(40))
        allocator.take(300)
        actual.append(peak.measured(OnDevice(allocator, inputs=40))["device peak"])
    assert actual == [340, 340]


def test_the_baseline_counts_its_buffers(posed):
    class Baseline(Session):
        memory = {"weights": 10, "workspace": 5}  # noqa: RUF012

        def device_peak(self):
            return sum(self.memory.values())

    module = types.SimpleNamespace()  # it has no allocator
    assert Peak(module, "cuda", posed).measured(Baseline())["device peak"] == 15


def test_a_cpu_and_a_session_that_does_not_say_have_no_device_peak(posed):
    allocator = Allocator()
    on_cpu = Peak(allocator, "cpu", posed).measured(OnDevice(allocator))
    assert "device peak" not in on_cpu
    silent = OnDevice(allocator)
    silent.device_peak = super(OnDevice, silent).device_peak
    assert "device peak" not in Peak(allocator, "cuda", posed).measured(silent)


def touched(size):
    """Memory that is really there; handed back to the kernel when it is closed."""
    block = mmap.mmap(-1, size)
    for place in range(0, size, mmap.PAGESIZE):
        block[place] = 1
    return block


needs_reset = pytest.mark.skipif(
    not memory_peak.reset_host_peak() or memory_peak._status("VmHWM") is None,
    reason="this kernel does not reset a process's peak",
)
SIZE = 64 << 20
NOISE = 16 << 20  # what an interpreter may need meanwhile


@needs_reset
def test_the_host_peak_is_of_this_cell_alone(posed):
    session = OnDevice(Allocator())
    touched(4 * SIZE).close()  # an earlier cell needed more
    peak = Peak(None, "cpu", posed)
    touched(SIZE).close()  # gone before anyone looks
    assert abs(peak.measured(session)["host peak"] - SIZE) < NOISE
    assert Peak(None, "cpu", posed).measured(session)["host peak"] < NOISE


@needs_reset
def test_what_was_held_before_is_not_of_this_cell(posed):
    held = touched(2 * SIZE)
    peak = Peak(None, "cpu", posed)
    block = touched(SIZE)
    assert abs(peak.measured(OnDevice(Allocator()))["host peak"] - SIZE) < NOISE
    block.close()
    held.close()


@pytest.mark.parametrize("missing", ["RESET", "STATUS"])
def test_where_the_peak_cannot_be_reset_the_name_says_so(monkeypatch, tmp_path, posed, missing):
    monkeypatch.setattr(memory_peak, missing, str(tmp_path / "nowhere" / "file"))
    actual = Peak(None, "cpu", posed).measured(OnDevice(Allocator()))
    assert set(actual) == {"process peak"}
    assert actual["process peak"] == resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_a_status_without_the_line_is_not_known(monkeypatch, tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmRSS:\t  2048 kB\nVmHWM:\n")
    monkeypatch.setattr(memory_peak, "STATUS", str(status))
    assert memory_peak._status("VmRSS") == 2 << 20
    assert memory_peak._status("VmHWM") is None
    assert memory_peak._status("VmPeak") is None
