"""The frameworks' own profilers: what they say, and that asking them changes nothing."""

import importlib
import itertools
import os
import re
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
from cases import built_native
from layers import SETTINGS, built, checked

from lstm_bench.features.profile import in_worker as profiling
from lstm_bench.features.profile.families import families
from lstm_bench.features.profile.summary import summary
from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.types import Settings, Shape
from lstm_bench.worker import problem as problems
from lstm_bench.worker.operators import CALL, WAIT, Seen, repeat, table

SHAPE = Shape(hidden=48, batch=4, timesteps=6, input_size=48)
ROWS = [IMPLEMENTATIONS[name] for name in ("pytorch", "tf-mode1", "tf-mode2")]
CALLS = 3

pytestmark = pytest.mark.xdist_group("frameworks")


@pytest.fixture(params=ROWS, ids=lambda row: row.name)
def session(request):
    made = built(request.param, problems.make(SHAPE, seed=3))
    made.call()
    made.row = request.param
    yield made
    made.close()


@pytest.mark.frameworks
def test_the_table_is_of_one_call_and_adds_up(session):
    profile = session.operators(CALLS)
    assert profile.source == session.profiler
    assert (profile.device, profile.calls) == ("cpu", CALLS)
    assert "lost" not in profile.problem
    assert profile.wall_s > 0
    assert all(part.kind == "operator" for part in profile.parts)
    assert all(part.count == int(part.count) > 0 for part in profile.parts)
    assert all(0 <= part.seconds <= part.total_s * (1 + 1e-9) for part in profile.parts)
    assert all(part.total_s <= 2 * profile.wall_s for part in profile.parts)  # two threads
    own = [part.seconds for part in profile.parts]
    assert own == sorted(own, reverse=True)
    assert profile.busy_s is None


@pytest.mark.frameworks
def test_the_products_of_the_layer_are_in_it(session):
    parts = session.operators(CALLS).parts
    counts = {part.name: part.count for part in parts}
    if session.row.framework == "pytorch":
        fused = counts.get("aten::mkldnn_rnn_layer", 0)
        assert fused or counts["aten::linear"] >= SHAPE.timesteps
        assert counts["aten::lstm"] == counts["Python"] == 1
    else:
        kinds = families(parts, SHAPE.timesteps)
        products = sum(p.count for p, kind in zip(parts, kinds, strict=True) if "GEMM" in kind)
        assert products == (8 if session.row.name == "tf-mode1" else 2) * SHAPE.timesteps
        assert counts["Sigmoid"] == 3 * SHAPE.timesteps
        assert counts["executor"] == counts["Python"] == 1


@pytest.mark.frameworks
def test_pytorch_tells_what_operators_allocate():
    session = built(IMPLEMENTATIONS["pytorch"], problems.make(SHAPE, seed=3))
    sizes = [part.size for part in session.operators(CALLS).parts]
    output = 4 * SHAPE.timesteps * SHAPE.batch * SHAPE.hidden
    assert all(size >= 0 for size in sizes)
    assert sum(sizes) >= output


@pytest.mark.frameworks
def test_the_answer_is_right_after_profiling_and_nothing_stays_behind(
    session, monkeypatch, tmp_path
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = []
    for _ in range(4):  # a framework may start a thread of its own at any call, but not at each
        session.operators(CALLS)
        held.append([len(os.listdir(f"/proc/self/{of}")) for of in ("task", "fd")])
    assert not list(tmp_path.iterdir())
    for counts in zip(*held, strict=True):
        assert any(after <= before for before, after in itertools.pairwise(counts)), counts
    assert checked(session, session.row, problems.make(SHAPE, seed=3)).passed


@pytest.mark.frameworks
def test_a_call_that_fails_is_a_problem_and_the_profiler_works_again(session, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(session, "call", lambda: np.zeros(1)[2])
        profile = profiling.profile(session, 0.01, "cpu").profile
    assert profile.problem.startswith("the profiler failed: IndexError")
    assert not profile.parts
    assert session.operators(CALLS).parts


@pytest.mark.frameworks
def test_a_cpu_has_no_activities(session):
    assert session.activities(CALLS) is None


def test_the_baseline_gives_its_phases():
    built_native()
    problem = problems.make(SHAPE, seed=3)
    deepbench = importlib.import_module("lstm_bench.frameworks.deepbench.session")
    for name in ("deepbench", "deepbench-skip"):
        row = IMPLEMENTATIONS[name]
        session = deepbench.build(problem, row, SETTINGS)
        profile = session.operators(5)
        names = {part.name for part in profile.parts}
        skipped = {"input product"} if name == "deepbench-skip" else set()
        assert names == {"input product", "recurrent product", "cell", "wait"} - skipped
        assert {part.kind for part in profile.parts} == {"phase"}
        assert sum(part.seconds for part in profile.parts) == pytest.approx(profile.wall_s)
        assert checked(session, row, problem).passed
        assert session.activities(1) is None
        session.close()


# --- the table itself


def runs(call, *own_ns):
    return [Seen(call, f"op{i}", ns, ns, 8) for i, ns in enumerate(own_ns)]


def test_a_table_is_that_of_the_median_call():
    profile = table("x", [*runs(0, 90, 900), *runs(1, 50, 45), *runs(2, 40, 30)], [1000, 100, 80])
    assert profile.problem == ""
    assert profile.wall_s == pytest.approx(100e-9)
    assert [(p.name, p.count, p.seconds * 1e9, p.size) for p in profile.parts] == [
        ("op0", 1, pytest.approx(50), 8),
        ("op1", 1, pytest.approx(45), 8),
    ]


@pytest.mark.parametrize(
    ("seen", "walls", "threads", "word"),
    [
        ([], [], 1, "none of the calls"),
        ([*runs(0, 50, 50), *runs(1, 100)], [100, 100], 1, r"op1 .* \(1, 0\): events were lost"),
        (runs(0, 10, 10), [100], 1, "account for 2e-08 s"),
        (runs(0, 100, 100), [100], 1, "account for"),
        (runs(0, 100, 100), [100], 2, "^$"),
    ],
)
def test_a_table_that_cannot_be_whole_says_so(seen, walls, threads, word):
    assert re.search(word, table("x", seen, walls, threads).problem)


@pytest.mark.parametrize(("calls", "made"), [(3, 4), (2, 3), (1, 1)])
def test_the_first_call_is_thrown_away_unless_there_is_but_one(calls, made):
    actual = []
    repeat(lambda: actual.append(1), calls)
    assert len(actual) == made


# --- a GPU's trace, made by hand

US = 1_000_000  # picoseconds


class Plane:
    """Writes an XPlane as TensorFlow does: names and texts once, numbers where they are used."""

    def __init__(self, space, name):
        self.plane = space.planes.add(name=name)

    def known(self, table, name):
        number = next((k for k, v in table.items() if v.name == name), len(table) + 1)
        table[number].id, table[number].name = number, name
        return number

    def line(self, name, *events, timestamp_ns=1000):
        line = self.plane.lines.add(name=name, timestamp_ns=timestamp_ns)
        for event_name, start_us, end_us, stats in events:
            number = self.known(self.plane.event_metadata, event_name)
            if ":" in event_name and "::" not in event_name:
                self.plane.event_metadata[number].display_name = event_name.split(":")[1]
            event = line.events.add(metadata_id=number, offset_ps=int(start_us * US))
            event.duration_ps = int((end_us - start_us) * US)
            for key, value in stats.items():
                stat = event.stats.add(metadata_id=self.known(self.plane.stat_metadata, key))
                if isinstance(value, int):
                    stat.uint64_value = value
                elif key == "kernel_details":
                    stat.ref_value = self.known(self.plane.stat_metadata, value)
                else:
                    stat.str_value = value


@pytest.fixture
def space():
    pytest.importorskip("tensorflow")
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    return xplane_pb2.XSpace()


def gpu_call(at, tie):
    """The host's and the stream's events of one call that copies, fills and runs two kernels."""
    host = [
        (CALL, at, at + 100, {}),
        ("cuLaunchKernel", at + 10, at + 12, {"correlation_id": tie}),
        ("cuLaunchKernel", at + 14, at + 16, {"correlation_id": tie + 1}),
        ("cuMemcpyHtoDAsync_v2", at + 5, at + 6, {"correlation_id": tie + 2}),
        ("cuStreamSynchronize", at + 50, at + 90, {"correlation_id": tie + 9}),
        (WAIT, at + 50, at + 99, {}),
    ]
    details = "regs:32 static_shared:0 dynamic_shared:0 grid:8,1,1 block:64,1,1 occ_pct:50"
    stream = [
        ("MemcpyH2D", at + 8, at + 9, {"correlation_id": tie + 2, "memcpy_details": COPY}),
        ("Memset", at + 9, at + 10, {"memset_details": "kind:device size:256 async:1"}),
        ("gemm<float>", at + 20, at + 50, {"correlation_id": tie, "kernel_details": details}),
        ("cell", at + 60, at + 80, {"correlation_id": tie + 1, "kernel_details": details}),
        ("resident", at + 60, at + 80, {"memory_residency_details": "no kernel"}),
    ]
    return host, stream


COPY = "kind_src:pageable kind_dst:device size:4096 dest:0 async:1"


def test_a_gpus_plane_becomes_activities(space):
    from lstm_bench.frameworks.tensorflow.profiler import activities_in

    calls = [gpu_call(at, tie) for at, tie in ((0, 1), (200, 21), (400, 41))]  # one to warm up
    gpu = Plane(space, "/device:GPU:0")
    gpu.line("Stream #13(Compute)", *[event for _, stream in calls for event in stream])
    gpu.line("TensorFlow Ops", ("gemm<float>", 220, 250, {}))  # a line that repeats another
    Plane(space, "/host:CPU").line("python", *[event for host, _ in calls for event in host])
    Plane(space, "/device:GPU:1").line("Stream #1", ("another", 220, 250, {}))
    profile = summary(*activities_in(space, 2), "TensorFlow's profiler")
    assert profile.problem == ""
    assert (profile.calls, profile.kernels, profile.launches) == (2, 2, 2)
    assert profile.busy_s == pytest.approx(52e-6)
    assert profile.span_s == pytest.approx(72e-6)
    assert profile.wall_s == pytest.approx(100e-6)
    assert profile.moved_bytes == 4096 + 256
    assert [(p.kind, p.name) for p in profile.parts] == [
        ("kernel", "gemm<float>"),
        ("kernel", "cell"),
        ("copy", "host to device"),
        ("fill", "memset"),
    ]


def test_a_trace_without_a_gpu_or_without_calls_has_no_activities(space):
    from lstm_bench.frameworks.tensorflow.profiler import activities_in, operators_in

    assert activities_in(space, 2) == ([], [])
    assert operators_in(space, 2).problem == "the profiler saw none of the calls"
    Plane(space, "/host:CPU").line("python", (CALL, 0, 100, {}))
    assert activities_in(space, 2) == ([], [(1000, 101_000)])


def test_operators_on_a_host_plane(space):
    from lstm_bench.frameworks.tensorflow.profiler import operators_in

    host = Plane(space, "/host:CPU")
    python, compute = [], []
    for at in (0, 200):
        python += [
            (CALL, at, at + 100, {}),
            ("KernelAndDeviceFunc::Run", at + 10, at + 80, {}),
            (WAIT, at + 80, at + 98, {}),
        ]
        compute += [
            ("ExecutorState::Process", at + 20, at + 60, {}),
            ("ExecutorState::Process", at + 59, at + 150, {}),  # longer than the call: cut
            ("a/b:MatMul", at + 25, at + 35, {}),
            ("MemoryAllocation", at + 26, at + 26, {"allocation_bytes": 512}),
            ("a/call:Outer", at + 40, at + 60, {}),
            ("a/c:_MklMatMul", at + 45, at + 55, {}),  # as oneDNN's is called
        ]
    host.line("python", *python)
    host.line("tf_Compute/1", *compute)
    profile = operators_in(space, 2)
    assert profile.problem == ""
    parts = {p.name: (p.count, round(p.seconds * 1e6), round(p.total_s * 1e6), p.size)
             for p in profile.parts}  # fmt: skip
    assert parts == {
        "MatMul": (1, 10, 10, 512),
        "MatMul (oneDNN)": (1, 10, 10, None),
        "Outer": (1, 10, 20, None),
        "executor": (1, 30, 30, None),  # 20 to 80 less 30 in operators
        "Python": (1, 12, 12, None),
        "wait": (1, 18, 18, None),
    }


def kineto(name, start, end, cuda=False, tie=0, annotation=False, json=""):
    """One event as PyTorch hands it over."""
    from torch.autograd import DeviceType

    facts = {"name": name, "start_ns": start, "duration_ns": end - start, "correlation_id": tie}
    facts |= {"is_user_annotation": annotation, "metadata_json": json}
    facts["device_type"] = DeviceType.CUDA if cuda else DeviceType.CPU
    return SimpleNamespace(**{key: lambda value=value: value for key, value in facts.items()})


def test_kinetos_events_become_activities():
    pytest.importorskip("torch")
    from lstm_bench.frameworks.pytorch.profiler import from_kineto

    events = []
    for at, tie in ((0, 1), (2000, 11), (4000, 21)):
        events += [
            kineto(CALL, at, at + 1000, annotation=True),
            kineto(CALL, at + 200, at + 900, cuda=True, annotation=True),  # mirrored on the GPU
            kineto("aten::lstm", at + 10, at + 500),
            kineto("cudaLaunchKernel", at + 100, at + 110, tie=tie),
            kineto("cudaMemsetAsync", at + 120, at + 125, tie=tie + 1),
            kineto("gemm", at + 200, at + 600, cuda=True, tie=tie),
            kineto("Memset (Device)", at + 610, at + 620, True, tie + 1, json='"bytes": 64'),
            kineto("Memcpy DtoD (Device -> Device)", at + 620, at + 630, True, json='"bytes": 32'),
            kineto("Context Sync", at + 630, at + 900, cuda=True),
        ]
    profile = summary(*from_kineto(events, 2), "torch.profiler")
    assert profile.problem == ""
    assert (profile.calls, profile.kernels, profile.launches) == (2, 1, 1)
    assert profile.busy_s == pytest.approx(420e-9)
    assert profile.moved_bytes == 96
    assert [p.name for p in profile.parts] == ["gemm", "memset", "device to device"]


# --- a real one


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["pytorch", "pytorch-amp", "tf-mode0", "tf-mode2"])
def test_a_real_gpu(name):
    row, cuda = IMPLEMENTATIONS[name], Settings(device="cuda", threads=2)
    module = pytest.importorskip(f"lstm_bench.frameworks.{row.module}.session")
    try:
        module.describe(cuda)
    except Exception as error:
        pytest.skip(str(error))
    session = module.build(problems.make(SHAPE, seed=3), row, cuda)
    session.call()
    host = session.operators(CALLS)
    assert host.problem == ""
    assert "wait" in {part.name for part in host.parts}
    actual = session.activities(CALLS)
    assert actual is not None
    profile = summary(*actual, session.profiler)
    assert profile.problem == ""
    assert profile.kernels >= 1
    assert 0 < profile.busy_s <= profile.span_s <= profile.wall_s
    session.close()
