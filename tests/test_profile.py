"""Profiles: what the collector promises, with a stand-in for CUPTI that behaves as the real one."""

import sys
import types

import pytest
from fake_cupti import Gpu

from lstm_bench import cupti_collector, profiling
from lstm_bench.demangle import readable
from lstm_bench.implementations.session import Session
from lstm_bench.profile import Activity, summary

PRODUCT = (
    "_Z16gemmSN_TN_kernelIfLi128ELi16ELi2ELi4ELi8ELi9ELb0E30cublasGemvTensorStridedBatchedIKfES2_"
    "S0_IfEEv22cublasGemmSmallNParamsIT7_T8_T9_T_E"
)
CELL = "_Z15elemWiseRNNcellIfffEvv"
INPUT = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x128x8"
STEPS = 25


@pytest.fixture
def gpu(monkeypatch):
    """A machine with a GPU and CUPTI."""
    found = Gpu()
    package = types.ModuleType("cupti")
    package.cupti = found.module()
    monkeypatch.setitem(sys.modules, "cupti", package)
    monkeypatch.setitem(sys.modules, "cupti.cupti", package.cupti)
    return found


@pytest.fixture
def no_cupti(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupti", None)


class Standard(Session):
    """cuDNN's STANDARD algorithm: an input product, then a product and a cell kernel per step."""

    def __init__(self, gpu, steps=STEPS):
        self.gpu, self.steps, self.calls = gpu, steps, 0

    def call(self):
        self.calls += 1
        self.gpu.launch(INPUT, 30_000)
        for _ in range(self.steps):
            self.gpu.launch(PRODUCT, 6_600, driver=True)
            self.gpu.launch(CELL, 1_800)


def collect(gpu, session, calls=5):
    return cupti_collector.collect(session.call, session.wait, calls)[0]


def test_the_kernels_of_standard_are_what_the_algorithm_says(gpu):
    profile = collect(gpu, Standard(gpu))
    counts = {part.name.split("<")[0]: part.count for part in profile.parts}
    assert counts == {"gemmSN_TN_kernel": 25, "elemWiseRNNcell": 25, INPUT: 1}
    assert (profile.problem, profile.source, profile.calls) == ("", "CUPTI", 5)
    assert (profile.kernels, profile.launches) == (51, 51)


def test_busy_is_the_kernels_own_time_and_the_rest_of_the_span_is_gap(gpu):
    profile = collect(gpu, Standard(gpu))
    busy = 30_000 + STEPS * (6_600 + 1_800)
    assert profile.busy_s == pytest.approx(busy / 1e9)
    assert profile.kernel_s == profile.busy_s
    assert profile.call_busy_s == [pytest.approx(busy / 1e9)] * 5
    gaps = 2 * STEPS * (400 + 1500 + 2000)  # between kernels: the next launch, and its way
    assert profile.gap_s == pytest.approx(gaps / 1e9)
    assert profile.wall_s > profile.span_s
    assert profile.launch_s == pytest.approx(51 * 1500 / 1e9)


def test_the_first_call_is_thrown_away(gpu):
    session = Standard(gpu)
    profile = collect(gpu, session, calls=3)
    assert (session.calls, profile.calls) == (4, 3)


def test_a_graph_is_one_launch_of_many_kernels(gpu):
    session = Session()
    session.call = lambda: gpu.replay([(INPUT, 30_000)] + [(PRODUCT, 6_600), (CELL, 1_800)] * 25)
    profile = collect(gpu, session)
    assert (profile.problem, profile.kernels, profile.launches) == ("", 51, 1)


def test_copies_and_fills_are_movement_and_not_kernels(gpu):
    session = Session()

    def call():
        gpu.launch(INPUT, 10_000)
        gpu.copy(4096, 2_000)
        gpu.fill(1024, 1_000)

    session.call = call
    profile = collect(gpu, session)
    assert profile.kernel_s == pytest.approx(10e-6)
    assert profile.busy_s == pytest.approx(13e-6)
    assert profile.moved_bytes == 5120
    assert {(p.kind, p.name, p.size) for p in profile.parts if p.kind != "kernel"} == {
        ("copy", "device to device", 4096),
        ("fill", "memset", 1024),
    }


def test_raw_names_are_kept_beside_readable_ones(gpu):
    profile = collect(gpu, Standard(gpu))
    raw = {part.name: part.raw for part in profile.parts}
    assert raw["elemWiseRNNcell<float, float, float>"] == CELL
    assert raw[INPUT] == ""


@pytest.mark.parametrize(
    ("mangled", "expected"),
    [
        ("nvjet_sm90_hsh_64x8_64x16_4x2_h_bz_TNT", "nvjet_sm90_hsh_64x8_64x16_4x2_h_bz_TNT"),
        ("_Z22persistRNN_init_negMaxIfEvPfi", "persistRNN_init_negMax<float>"),
        ("_Z18ampere_lstm_tile16ILi32ELi1EEv8params_t", "ampere_lstm_tile16<32, 1>"),
        ("_Zgarbage", "_Zgarbage"),
        ("", ""),
    ],
)
def test_readable_names(mangled, expected):
    assert readable(mangled) == expected


def test_what_is_not_a_launch_is_not_kept(gpu):
    """`cudaGetDevice` is called before every launch and recorded with it."""
    _, activities, _ = cupti_collector.collect(Standard(gpu).call, lambda: None, 5)
    launches = [a.name for a in activities if a.kind == "launch"]
    assert set(launches) == {"cudaLaunchKernel", "cuLaunchKernelEx"}
    assert len(launches) == 51 * 5


# trouble


def test_nothing_listens_after_the_pass_whatever_happened(gpu):
    collect(gpu, Standard(gpu))
    assert (gpu.attached, gpu.finalized) == (False, 1)

    def broken():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        cupti_collector.collect(broken, lambda: None, 3)
    assert (gpu.attached, gpu.finalized) == (False, 2)


def test_records_that_cupti_says_it_dropped_make_the_split_doubtful(gpu):
    gpu.lose = 7
    assert collect(gpu, Standard(gpu)).problem == "the profiler lost 7 records"


def test_a_kernel_that_is_missing_from_one_call_is_noticed(gpu):
    lost = []
    gpu.hide = lambda r: r.kind == 10 and not lost and not lost.append(r)
    problem = collect(gpu, Standard(gpu), calls=3).problem
    assert "no whole number (51, 51, 50)" in problem


def test_a_kernel_that_is_missing_from_every_call_is_noticed(gpu):
    """The counts agree then; but a launch stands there without its kernel."""
    gpu.hide = lambda r: r.kind == 10 and r.name == INPUT
    assert collect(gpu, Standard(gpu), calls=3).problem.startswith("3 launches without a kernel")


def test_a_record_that_cannot_be_read_counts_as_lost(gpu):
    session = Standard(gpu)
    gpu.hide = lambda r: r.kind == 10 and delattr(r, "name") is not None
    assert "lost" in collect(gpu, session).problem


def test_no_kernel_at_all_is_a_problem_and_not_a_zero(gpu):
    session = Session()
    session.call = lambda: None
    assert collect(gpu, session).problem == "the profiler saw no kernel"


@pytest.mark.parametrize("error", ["CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "CUPTI_ERROR_UNKNOWN"])
def test_a_refusal_of_the_driver_is_told_in_its_words(gpu, error):
    gpu.refuse = error
    profile = profiling.profile(Standard(gpu), 1e-3, "cuda").profile
    assert profile.problem == f"CUPTI failed: {error}"
    assert not gpu.attached


def test_without_cupti_the_remedy_is_named(no_cupti):
    profile = profiling.profile(Session(), 1e-3, "cuda").profile
    assert "pip install cupti-python" in profile.problem
    assert profile.busy_s is None


def test_without_cupti_the_framework_is_asked_and_named(no_cupti):
    session = Session()
    session.profiler = "torch.profiler"
    kernels = [Activity("kernel", "k", 10, 20, correlation=1), Activity("launch", "l", 5, 6, 0, 1)]
    session.activities = lambda calls: (kernels, [(0, 100)])
    profile = profiling.profile(session, 1e-3, "cuda").profile
    assert (profile.source, profile.kernels, profile.problem) == ("torch.profiler", 1, "")


def test_a_profiler_that_breaks_is_a_problem_of_the_profile_alone():
    session = Session()

    def broken(calls):
        raise ValueError("no trace was written")

    session.operators = broken
    profile = profiling.profile(session, 1e-3, "cpu").profile
    assert profile.problem == "the profiler failed: ValueError: no trace was written"


# arithmetic


def test_busy_counts_what_overlaps_once():
    both = [Activity("kernel", "a", 10, 30), Activity("kernel", "b", 20, 50)]
    assert summary(both, [(0, 100)], "test").busy_s == pytest.approx(40e-9)


def test_a_kernel_belongs_to_the_call_that_launched_it():
    """The device's clock is a little off: the kernel seems to start before its call."""
    activities = [
        Activity("launch", "l", 105, 106, correlation=1),
        Activity("kernel", "k", 99, 120, correlation=1),
    ]
    profile = summary(activities, [(0, 98), (100, 150)], "test")
    assert profile.call_busy_s == [0, pytest.approx(21e-9)]


@pytest.mark.parametrize(("call_s", "calls"), [(1e-5, 10), (0.01, 5), (0.04, 2), (3.0, 2)])
def test_slow_calls_are_profiled_less_often_but_twice(call_s, calls):
    assert profiling.calls_for(call_s) == calls


def test_a_profile_by_another_source_says_why_it_is_not_cupti(no_cupti):
    session = Session()
    session.profiler = "torch.profiler"
    kernels = [Activity("kernel", "void f<int>(int)", 10, 20, correlation=1)]
    session.activities = lambda calls: (kernels, [(0, 100)])
    profile = profiling.profile(session, 1e-3, "cuda").profile
    assert "pip install cupti-python" in profile.instead
    assert [part.name for part in profile.parts] == ["f<int>"]


def test_only_what_cupti_gives_one_by_one_is_asked_for_one_by_one(gpu):
    """Single calls of the runtime cannot be had on the H200; those of the driver can."""
    collect(gpu, Standard(gpu))
    assert gpu.asked == {"cuLaunchKernelEx"}
