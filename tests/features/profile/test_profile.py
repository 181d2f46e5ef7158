"""Profiles: what the collector promises, with a stand-in for CUPTI that behaves as the real one."""

import ctypes
import subprocess
import sys

import pytest
from cases import compiled
from conftest import REPOSITORY

from lstm_bench.features.profile import in_worker as profiling
from lstm_bench.features.profile.in_worker import cupti
from lstm_bench.features.profile.summary import summary
from lstm_bench.model.demangle import readable
from lstm_bench.model.profile import Activity, Launch
from lstm_bench.worker.session import Session

PRODUCT = (
    "_Z16gemmSN_TN_kernelIfLi128ELi16ELi2ELi4ELi8ELi9ELb0E30cublasGemvTensorStridedBatchedIKfES2_"
    "S0_IfEEv22cublasGemmSmallNParamsIT7_T8_T9_T_E"
)
CELL = "_Z15elemWiseRNNcellIfffEvv"
INPUT = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x128x8"
STEPS = 25

pytestmark = pytest.mark.xdist_group("profile")


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return compiled(
        REPOSITORY / "tests/fake_cupti.cpp", tmp_path_factory.mktemp("fake") / "libcupti.so.13"
    )


class Gpu:
    """A GPU that does as it is told, behind the stand-in for CUPTI."""

    def __init__(self, path):
        self.do = ctypes.CDLL(path)
        self.do.gpu_reset()

    def launch(self, name, ns, driver=False):
        self.do.gpu_launch(name.encode(), ctypes.c_uint64(ns), ctypes.c_uint64(2000), driver)

    def configure(self, grid, block, registers):
        self.do.gpu_set_config(*grid, block, registers)

    def replay(self, kernels):
        self.do.gpu_graph(ctypes.c_uint64(8000))
        for name, ns in kernels:
            self.do.gpu_node(name.encode(), ctypes.c_uint64(ns))

    def copy(self, size, ns, kind=8):
        self.do.gpu_copy(ctypes.c_uint64(size), ctypes.c_uint64(ns), kind)

    def fill(self, size, ns):
        self.do.gpu_fill(ctypes.c_uint64(size), ctypes.c_uint64(ns))

    @property
    def attached(self):
        return bool(self.do.gpu_attached())


@pytest.fixture
def gpu(library, monkeypatch):
    """A machine with a GPU and CUPTI."""
    monkeypatch.setattr(cupti, "find", lambda: library)
    actual = Gpu(library)
    yield actual
    assert not actual.attached, "somebody still listens"


@pytest.fixture
def no_cupti(monkeypatch):
    monkeypatch.setattr(cupti, "find", lambda: "libcupti-is-not-here.so")


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


def collect(call, calls=5):
    return cupti.collect(call, lambda: None, calls, discard=1)[0]


def profile_of(device="cuda", **session):
    """The profile of a session with these methods."""
    made = Session()
    vars(made).update(session)
    return profiling.profile(made, 1e-3, device).profile


def test_the_kernels_of_standard_are_what_the_algorithm_says(gpu):
    profile = collect(Standard(gpu).call)
    counts = {part.name.split("<")[0]: part.count for part in profile.parts}
    assert counts == {"gemmSN_TN_kernel": 25, "elemWiseRNNcell": 25, INPUT: 1}
    raw = {part.name: part.raw for part in profile.parts}
    assert raw["elemWiseRNNcell<float, float, float>"] == CELL
    assert raw[INPUT] == ""
    assert (profile.problem, profile.source, profile.calls) == ("", "CUPTI", 5)
    assert (profile.kernels, profile.launches) == (51, 51)


def test_each_grid_and_block_of_a_kernel_is_told_with_its_registers(gpu):
    """One name with two grids has two launches; their counts and times add up."""

    def call():
        gpu.configure((16, 4, 1), 256, 128)
        gpu.launch(PRODUCT, 30_000)
        gpu.configure((132, 1, 2), 64, 40)
        for _ in range(STEPS):
            gpu.launch(PRODUCT, 6_600)

    (part,) = collect(call).parts
    assert part.launches == [
        Launch((132, 1, 2), (64, 1, 1), 40, 25, pytest.approx(165e-6)),
        Launch((16, 4, 1), (256, 1, 1), 128, 1, pytest.approx(30e-6)),
    ]
    assert part.seconds == pytest.approx(195e-6)


def test_busy_is_the_kernels_own_time_and_the_rest_of_the_span_is_gap(gpu):
    profile = collect(Standard(gpu).call)
    busy = 30_000 + STEPS * (6_600 + 1_800)
    assert profile.busy_s == pytest.approx(busy / 1e9)
    assert profile.kernel_s == profile.busy_s
    assert profile.call_busy_s == [pytest.approx(busy / 1e9)] * 5
    gaps = 2 * STEPS * (400 + 1500 + 2000)  # between kernels: the next launch, and its way
    assert profile.gap_s == pytest.approx(gaps / 1e9)
    assert profile.wall_s > profile.span_s
    assert profile.launch_s == pytest.approx(51 * 1500 / 1e9)


@pytest.mark.parametrize(("call_s", "early", "calls"), [(0.001, 4, 10), (0.01, 2, 5), (0.03, 0, 2)])
def test_early_calls_are_made_and_thrown_away(gpu, call_s, early, calls):
    session = Standard(gpu)
    profile = profiling.profile(session, call_s, "cuda").profile
    assert session.calls == early + calls + early + 1  # the last one tells of launches
    assert (profile.calls, profile.problem) == (calls, "")
    assert (profile.kernels, profile.launches) == (51, 51)


def test_a_graph_is_one_launch_of_many_kernels(gpu):
    kernels = [(INPUT, 30_000)] + [(PRODUCT, 6_600), (CELL, 1_800)] * 25
    profile = collect(lambda: gpu.replay(kernels))
    assert (profile.problem, profile.kernels, profile.launches) == ("", 51, 1)


def test_copies_and_fills_are_movement_and_not_kernels(gpu):
    def call():
        gpu.launch(INPUT, 10_000)
        gpu.copy(4096, 2_000)
        gpu.fill(1024, 1_000)

    profile = collect(call)
    assert profile.kernel_s == pytest.approx(10e-6)
    assert profile.busy_s == pytest.approx(13e-6)
    assert profile.moved_bytes == 5120
    assert {(p.kind, p.name, p.size) for p in profile.parts if p.kind != "kernel"} == {
        ("copy", "device to device", 4096),
        ("fill", "memset", 1024),
    }


@pytest.mark.parametrize(
    ("mangled", "expected"),
    [
        ("nvjet_sm90_hsh_64x8_64x16_4x2_h_bz_TNT", "nvjet_sm90_hsh_64x8_64x16_4x2_h_bz_TNT"),
        ("_Z22persistRNN_init_negMaxIfEvPfi", "persistRNN_init_negMax<float>"),
        ("_Z18ampere_lstm_tile16ILi32ELi1EEv8params_t", "ampere_lstm_tile16<32, 1>"),
        ("_ZNK4dnnl9primitive7executeEi", "dnnl::primitive::execute"),
        ("_ZN2at6native10mkldnn_rnnEi.constprop.0", "at::native::mkldnn_rnn"),
        ("_Zgarbage", "_Zgarbage"),
        ("", ""),
    ],
)
def test_readable_names(mangled, expected):
    assert readable(mangled) == expected


def test_what_is_not_a_launch_is_not_kept(gpu):
    """`cudaGetDevice` is called before every launch and recorded with it."""
    _, activities, _ = cupti.collect(Standard(gpu).call, lambda: None, 5, discard=1)
    launches = [a.name for a in activities if a.kind == "launch"]
    assert set(launches) == {"cudaLaunchKernel", "cuLaunchKernel"}
    assert len(launches) == 51


def test_records_may_fill_many_buffers(gpu, monkeypatch):
    monkeypatch.setattr(cupti, "_BUFFER", 1000)  # four kernels
    profile = collect(Standard(gpu).call)
    assert (profile.problem, profile.kernels, profile.launches) == ("", 51, 51)


# trouble


def test_nothing_listens_after_the_pass_whatever_happened_and_it_can_listen_again(gpu):
    first, second = collect(Standard(gpu).call), collect(Standard(gpu).call)
    assert first.parts == second.parts
    assert (gpu.attached, gpu.do.gpu_finalized()) == (False, 2)

    def broken():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        collect(broken)
    assert (gpu.attached, gpu.do.gpu_finalized()) == (False, 3)


def test_records_that_cupti_says_it_dropped_make_the_split_doubtful(gpu):
    gpu.do.gpu_set_dropped(7)
    assert collect(Standard(gpu).call).problem == "the profiler lost 7 records"


def test_a_kernel_that_is_missing_from_one_call_is_noticed(gpu):
    gpu.do.gpu_set_hidden(200, 200)
    problem = collect(Standard(gpu).call, 3).problem
    assert "no whole number (51, 51, 50, 51)" in problem


def test_a_kernel_that_is_missing_from_every_call_is_noticed():
    """The counts agree then; but a launch stands there without its kernel."""
    activities = [
        *(Activity("launch", "l", 1, 2, correlation=1), Activity("kernel", "k", 3, 4, 0, 1)),
        Activity("launch", "l", 5, 6, correlation=2),
    ]
    assert summary(activities, [(0, 9)], "test").problem.startswith("1 launch without a kernel")


def test_a_record_that_cupti_cannot_step_over_counts_as_lost(gpu):
    gpu.do.gpu_set_refusal(b"cuptiActivityGetNextRecord", 13)
    assert "lost" in collect(Standard(gpu).call).problem


def test_no_kernel_at_all_is_a_problem_and_not_a_zero(gpu):
    assert collect(lambda: None).problem == "the profiler saw no kernel"


@pytest.mark.parametrize("call", ["cuptiActivityRegisterCallbacks", "cuptiActivityEnable"])
@pytest.mark.parametrize(
    ("code", "text"),
    [
        (35, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
        (39, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
        (999, "999"),
    ],
)
def test_a_refusal_of_the_driver_is_told_in_its_words(gpu, call, code, text):
    gpu.do.gpu_set_refusal(call.encode(), code)
    profile = profiling.profile(Standard(gpu), 1e-3, "cuda").profile
    assert profile.problem == f"CUPTI failed: {call}: {text}"
    assert not gpu.attached


def test_without_cupti_the_remedy_is_named(no_cupti):
    profile = profile_of()
    assert "pip install nvidia-cuda-cupti" in profile.problem
    assert profile.busy_s is None


def test_a_library_that_is_something_else_is_not_taken_for_cupti(monkeypatch):
    monkeypatch.setattr(cupti, "find", lambda: "libm.so.6")
    assert profile_of().problem.startswith("no CUPTI")


def test_the_library_of_the_framework_is_found_and_the_newest_taken(tmp_path, monkeypatch):
    for name in ("cu13/lib/libcupti.so.13", "cuda_cupti/lib/libcupti.so.12"):
        path = tmp_path / "nvidia" / name
        path.parent.mkdir(parents=True)
        path.touch()
    monkeypatch.setattr(cupti.sys, "path", [str(tmp_path)])
    monkeypatch.setattr(cupti.Path, "read_text", lambda self, errors="": "")  # none is loaded
    assert cupti.find().endswith("nvidia/cu13/lib/libcupti.so.13")


def test_a_library_that_is_loaded_already_goes_first(library):
    """In a process of its own: here a framework may have loaded that of a CUDA toolkit."""
    code = "import ctypes, sys; from lstm_bench.features.profile.in_worker import cupti"
    code += "; ctypes.CDLL(sys.argv[1]); print(cupti.find())"
    done = subprocess.run([sys.executable, "-c", code, library], capture_output=True, text=True)
    assert done.stdout.strip() == library, done.stderr


def test_without_cupti_the_framework_is_asked_and_the_profile_says_why(no_cupti):
    name = "void f<int>(int)"
    seen = [Activity("kernel", name, 10, 20, correlation=1), Activity("launch", "l", 5, 6, 0, 1)]
    profile = profile_of(profiler="torch.profiler", activities=lambda calls: (seen, [(0, 100)]))
    assert (profile.source, profile.kernels, profile.problem) == ("torch.profiler", 1, "")
    assert "pip install nvidia-cuda-cupti" in profile.instead
    assert [part.name for part in profile.parts] == ["f<int>"]


def test_a_profiler_that_breaks_is_a_problem_of_the_profile_alone():
    def broken(calls):
        raise ValueError("no trace was written")

    problem = profile_of("cpu", operators=broken).problem
    assert problem == "the profiler failed: ValueError: no trace was written"


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


@pytest.mark.parametrize(
    ("call_s", "calls", "early"),
    [
        *((0, 10, 4), (1e-5, 10, 4), (0.004, 10, 4), (0.009, 5, 2), (0.01, 5, 2)),
        *((0.03, 2, 0), (0.04, 2, 0), (0.09, 2, 0), (3, 1, 0)),
    ],
)
def test_slow_calls_are_profiled_less_often_and_fewer_are_thrown_away(call_s, calls, early):
    assert (profiling.calls_for(call_s), profiling.early_for(call_s)) == (calls, early)
