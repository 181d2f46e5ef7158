"""The kernels for GPUs as far as a machine without a GPU can tell.

They compile, without spilling registers, for every architecture that they are meant for; weights
lie where the kernels look for them; the extension launches what it is told to, over fake libraries.
What they compute is checked on a GPU, by test_onnative.py and the sweeps of the repository.
"""

import ctypes
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from cases import (
    A100,
    H200,
    PACKED,
    assert_every_weight_is_there_once,
    built_native,
    compiler,
    problem,
)

from lstm_kernels import Unsupported, halves, layer
from lstm_kernels.compiler import HEADERS, SOURCES, Compiler, slowed
from lstm_kernels.halves import narrow, widen
from lstm_kernels.libraries import nvrtc
from lstm_kernels.plans import candidates, shares, tensor, vector

native = built_native()


# --- plans


@pytest.mark.parametrize(("split", "storage"), [(True, "fp32"), (False, "fp32"), (False, "bf16")])
def test_every_layer_up_to_1100_units_has_a_plan_that_fits(split, storage):
    sizes = [*itertools.product((1, 7, 100, 128, 513, 1024), (1, 300)), (1057, 100), (1100, 100)]
    for hidden, batch in sizes:
        found = tensor.candidates(hidden, batch, split, storage, H200)
        assert found, hidden
        for plan in found:
            assert plan.blocks * plan.groups * 8 >= hidden
            assert plan.columns >= plan.blocks * plan.groups * 8
            assert plan.threads <= 512
            assert plan.shared_bytes(1) <= H200["shared_bytes"]


def test_half_precision_reaches_2048_units_and_nothing_reaches_ten_thousand():
    assert candidates(2048, 16, False, "fp16", H200)
    assert not candidates(10_000, 1, False, "fp16", H200)


def test_without_clusters_a_team_is_one_block_or_goes_through_l2():
    found = candidates(512, 16, True, "fp32", A100)
    assert found
    assert all(plan.family == "whole_gpu" or plan.blocks == 1 for plan in found)


# --- weights


def product(packed, plan, h):
    """What the kernel adds up for one h, from the fragments: [gate][unit]."""
    pairs = plan.columns // 32 // plan.slices
    fragments = widen(packed, plan.storage).astype(np.float64)
    fragments = fragments.reshape(
        *(plan.blocks, plan.copies, pairs, 2, 2, plan.groups, plan.slices, 8, 4, 2, 2, 2)
    )
    #     block        copy        pair  s  m  group        slice        unit q r1 r0 low
    columns = np.zeros(plan.columns)
    columns[: len(h)] = h
    columns = columns.reshape(plan.slices, pairs, 4, 2, 2, 2)  # slice pair q s r1 low
    gates = np.einsum("bcpsmgluqrtw,lpqsrw->mtbgu", fragments, columns)
    return gates.reshape(4, -1)


@PACKED
def test_fragments_hold_every_weight_once(split, storage, tolerance):
    for hidden in (5, 40, 100):
        plans = tensor.candidates(hidden, 3, split, storage, H200)
        assert_every_weight_is_there_once(hidden, plans, product, tolerance)


@pytest.mark.parametrize("top", [0.0, 1e-30, 1.0, 1e30])
def test_weights_of_any_size_fit_into_halves(top):
    (high, low), scale = halves.halves(np.full((2, 3), top, np.float32), "fp32", split=True)
    back = (widen(high, "fp32").astype(np.float64) + widen(low, "fp32")) * scale
    assert np.abs(back - top).max() <= 2.0**-22 * top


def test_bfloat16_is_rounded_to_the_nearest():
    values = np.array([1.0, -2.5, 1 + 2**-8, 1 + 3 * 2**-8, 3e38], np.float32)
    assert widen(narrow(values, "bf16"), "bf16").tolist()[:4] == [1.0, -2.5, 1.0, 1 + 2**-6]


# --- compiling


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("family", ["cluster", "whole_gpu", "vector"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_kernels_of_every_family_compile_without_spilling(architecture, family, precision):
    device = A100 if architecture == "sm_80" else H200
    hidden, batch = {"cluster": (64, 16), "whole_gpu": (512, 64), "vector": (256, 1)}[family]
    found = candidates(hidden, batch, precision == "fp32", precision, device)
    plan = next(plan for plan in found if plan.family == family)
    code, log = compiler(architecture).compile(plan.source, plan.constants)
    assert code.startswith(b"\x7fELF")
    assert b"lstm_recurrence" in code
    assert "registers" in log
    assert not slowed(log), f"{plan}: {log}"


def test_a_plan_that_would_spill_holds_fewer_weights_in_registers(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    nvcc = compiler("sm_90a")
    plan = next(p for p in candidates(1100, 1, True, "fp32", H200) if p.family == "whole_gpu")
    assert slowed(nvcc.compile(plan.source, plan.constants)[1])
    fitted, code = nvcc.fitted(plan)
    assert fitted.held < plan.held
    assert fitted.shared_bytes(1) > plan.shared_bytes(1)  # where the others went
    assert not slowed(nvcc.compile(fitted.source, fitted.constants)[1])
    assert nvcc.fitted(plan) == (fitted, code)


def test_a_plan_that_would_spill_whatever_it_holds_is_refused(counted):
    counted.compile = lambda source, constants: (b"code", "8 bytes spill stores")
    for plan in candidates(64, 1, True, "fp32", H200)[:2]:  # with vectors, with tensor cores
        with pytest.raises(Unsupported, match="not enough registers on sm_90a"):
            counted.fitted(plan)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize(
    ("way", "kernels"), [("tiles", ["input_split", "input_gemm"]), ("vectors", ["input_vectors"])]
)
def test_the_input_products_compile_without_spilling(architecture, way, kernels):
    nvcc = compiler(architecture)
    code, log = nvcc.compile(f"input_{way}.cu", {})
    assert all(kernel.encode() in code for kernel in kernels)
    by_warpgroups = architecture == "sm_90a" and way == "tiles"
    assert (b"input_gemm_hopper" in code) == by_warpgroups
    assert not slowed(log), log


@pytest.mark.parametrize(
    ("line", "slow"),
    [
        ("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", False),
        ("40 bytes stack frame, 24 bytes spill stores, 44 bytes spill loads", True),
        ("40 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads", True),
        ("(C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized", True),
    ],
)
def test_a_kernel_lacks_registers_if_it_spills_or_waits_for_each_product(line, slow):
    assert slowed(f"ptxas info    : {line}\nptxas info    : Used 168 registers") == slow


def test_a_mistake_in_a_kernel_is_said_with_its_line(monkeypatch):
    nvcc = compiler("sm_90a")
    monkeypatch.setattr(nvcc, "_texts", lambda source: ["int x = nonsense;"] * (1 + len(HEADERS)))
    with pytest.raises(Unsupported, match=r'cluster.cu for sm_90a[\s\S]*"nonsense"'):
        nvcc.compile("cluster.cu", {})


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """A compiler that counts instead of compiling."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one = Compiler.__new__(Compiler)
    one.architecture, one.version, one.calls = "sm_90a", "13.0", []
    one.compile = lambda source, constants: one.calls.append(source) or (b"code", "")
    return one


def test_what_was_compiled_once_is_kept(counted):
    for _ in range(2):
        assert counted.cached("cluster.cu", {"K": 1}) == b"code"
    assert len(counted.calls) == 1
    counted.cached("cluster.cu", {"K": 2})
    counted.version = "13.1"
    counted.cached("cluster.cu", {"K": 2})
    assert len(counted.calls) == 3


@pytest.mark.parametrize(("version", "keeps"), [("12.8", False), ("12.9", True), ("13.0", True)])
def test_what_nvrtc_itself_has_kept_is_not_taken_since_it_comes_without_a_log(
    counted, version, keeps
):
    counted.version = version
    assert ("--no-cache" in counted.options) == keeps


def test_without_a_place_to_keep_it_it_is_compiled_each_time(counted, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        assert counted.cached("cluster.cu", {"K": 1}) == b"code"
    assert len(counted.calls) == 2


def test_a_missing_compiler_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr("lstm_kernels.libraries.find", lambda name: None)
    with pytest.raises(Unsupported, match="pip install nvidia-cuda-nvrtc"):
        nvrtc()


# --- the extension, over fake libraries


@pytest.fixture
def fake(library):
    """The fake, as new, and the promise that a test leaves nothing alive in it."""
    handle = ctypes.CDLL(library)
    handle.fake_set_late(0)
    handle.fake_set_lost_copies(0)
    native.resident([library] * 3, b"code", launch(cluster=True, blocks=16))  # opens it
    alive = handle.fake_live()
    yield handle
    assert handle.fake_live() == alive, "something was not freed"


def launch(**changes):
    plain = {"cluster": True, "blocks": 1, "threads": 64, "share": 2}
    plain |= {"shared_bytes": 1000, "exchange_bytes": 0}
    return native.Launch(**(plain | changes))


SIZES = 5, 3, 4, 6  # hidden, input, batch, timesteps


def built(library, sizes=SIZES, code=b"code", projection="fp32", **changes):
    how = {"storage": "fp32", "projection": projection, "launch": launch(**changes)}
    return native.GpuLstm([library] * 3, code, b"code", *sizes, **how)


def load(lstm, seed=1):
    x, h0, c0, w_ih, _, b_ih, b_hh = problem(5, 3, 4, 6, seed)
    together = halves.gates_together
    weights = np.zeros(16, np.uint16)
    lstm.load(x, h0, c0, together(w_ih), weights, together(b_ih + b_hh), 1.0, 1.0)
    return x @ w_ih[:5].T + (b_ih + b_hh)[:5], h0, c0  # what the fake makes of it


@pytest.mark.parametrize("graph", [False, True])
def test_inputs_and_outputs_reach_their_place(library, fake, graph):
    lstm = built(library)
    for seed in (1, 2):
        expected = load(lstm, seed)
        lstm.replay(graph)
        assert len(lstm.time_each(2)) == 2
        for got, wanted in zip(lstm.outputs(), expected, strict=True):
            assert np.abs(got - wanted).max() < 1e-5
    lstm.release()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cluster": True, "blocks": 16, "threads": 256}, (32, 256, 1000, 16, 0)),
        ({"cluster": False, "blocks": 9, "share": 4}, (9, 64, 1000, 0, 1)),
        ({"cluster": True, "blocks": 1, "share": 1}, (4, 64, 1000, 0, 0)),
    ],
)
def test_a_team_is_launched_as_planned(library, fake, changes, expected):
    lstm = built(library, **changes)
    load(lstm)
    lstm.forward()
    lstm.wait()
    found = (ctypes.c_uint * 5)()
    fake.fake_last_launch(found)
    assert tuple(found) == expected  # blocks, threads, shared bytes, cluster, cooperative
    lstm.release()


def test_a_wait_that_was_given_up_is_an_error(library, fake):
    lstm = built(library)
    load(lstm)
    fake.fake_set_late(1)
    lstm.forward()
    with pytest.raises(native.LibraryError, match=r"gave up.*hidden 5"):
        lstm.wait()
    lstm.release()


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("pinned", [False, True])
def test_x_and_y_are_copied_in_a_call_if_they_lie_in_host_memory(library, fake, pinned, graph):
    lstm = built(library)
    expected = load(lstm)
    lstm.replay(graph)
    lstm.keep_on_host(pinned)
    for lost in (1, 2, 0):  # those to the device, to the host, none
        fake.fake_set_lost_copies(lost)
        lstm.forward()
        lstm.wait()
        y, *states = lstm.outputs()
        assert (np.abs(y - expected[0]).max() < 1e-5) == (lost == 0)
    assert all((got == wanted).all() for got, wanted in zip(states, expected[1:], strict=True))
    lstm.release()


# --- stacks of layers, in the memory of a caller


def weights_of(directions, width, seed):
    """One layer: w_ih, w_hh, b_ih and b_hh of each direction."""
    made = (problem(5, width, 1, 1, seed + d) for d in range(directions))
    return [one[3:] for one in made]


def address(array):
    return 0 if array is None else array.ctypes.data


class Caller:
    """A stack of 5 units with weights in NumPy's memory, and what the fake makes of a call."""

    def __init__(self, library, layers=1, directions=1, few_rows=0, **changes):
        wide = 5 * directions
        self.cells = [weights_of(directions, wide if i else 3, 10 * i) for i in range(layers)]
        together, self.keep, given = halves.gates_together, [], []
        for cell in self.cells:
            w_ih = np.concatenate([together(w_ih) for w_ih, *_ in cell])
            bias = np.concatenate([together(b_ih + b_hh) for *_, b_ih, b_hh in cell])
            arrays = w_ih, np.zeros(16, np.uint16), bias
            self.keep.append(arrays)
            at = [array.ctypes.data for array in arrays]
            one = 1.0
            given.append(native.LayerWeights(at[0], *at, w_ih.nbytes, one, 1.0))
        self.directions, self.layers, self.exchange = directions, layers, 640
        how = launch(cluster=False, blocks=9, **changes)
        sizes = 3, 5, layers, directions
        code = (b"code",) * 3
        self.stack = native.GpuStack(
            [library] * 3, sizes, code, "fp32", "fp32", few_rows, how, given
        )

    def run(self, x, states=(None, None), share=4, together=1, lengths=None, late=None, batch=4):
        """y, h, c and the scratch of a call on x, which is (rows, 3)."""
        timesteps = max(lengths) if lengths is not None else len(x) // batch
        sizes = first = None
        if lengths is not None:
            sizes = np.asarray(lengths, np.int32)
            each = [sum(length > t for length in lengths) for t in range(timesteps)]
            first = np.concatenate([[0], np.cumsum(each)[:-1]]).astype(np.int32)
        y = np.full((len(x), 5 * self.directions), np.nan, np.float32)
        h, c = np.empty((2, self.layers * self.directions, batch, 5), np.float32)
        scratch = np.full(self.stack.scratch(len(x), self.exchange), 255, np.uint8)
        late = np.zeros(1, np.int32) if late is None else late
        arrays = (x, *states, y, h, c, scratch, late, sizes, first)
        how = batch, timesteps, len(x), share, 1000, self.exchange, together
        self.stack.run(*how, *map(address, arrays), 0, 1)
        return y, h, c, scratch

    def expected(self, x):
        for cell in self.cells:
            x = np.concatenate([x @ w[:5].T + (bi + bh)[:5] for w, _, bi, bh in cell], axis=-1)
        return x


@pytest.mark.parametrize("few_rows", [0, 1000])
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (1, 2), (3, 1), (4, 2)])
def test_a_caller_brings_arrays_scratch_and_stream(library, fake, layers, directions, few_rows):
    caller = Caller(library, layers, directions, few_rows)
    random = np.random.default_rng(1)
    workspace = 0 if few_rows else 32 << 20
    for timesteps in (6, 1, 9):
        x = random.standard_normal((timesteps * 4, 3)).astype(np.float32)
        h0, c0 = random.standard_normal((2, layers * directions, 4, 5)).astype(np.float32)
        y, h, c, scratch = caller.run(x, (h0, c0))
        assert np.abs(y - caller.expected(x)).max() < 1e-5
        assert (h == h0).all()
        assert (c == c0).all()
        assert (scratch[len(scratch) - workspace :] == 255).all(), "cuBLAS's"
        streams = (ctypes.c_void_p * 2)(1, 1)
        fake.fake_last_streams(streams)
        assert list(streams)[few_rows > 0 :] == [None, None][few_rows > 0 :]
        _, h, c, _ = caller.run(x)
        assert not h.any()
        assert not c.any(), "without states they are zeros"
    del caller


def test_lengths_say_where_sequences_end(library, fake):
    caller = Caller(library, 2, 2)
    for lengths in ((6, 3, 3, 1), (2, 2, 2, 2)):
        x = np.random.default_rng(2).standard_normal((sum(lengths), 3)).astype(np.float32)
        y, *_ = caller.run(x, lengths=lengths)
        assert np.abs(y - caller.expected(x)).max() < 1e-5
    del caller


def test_directions_run_side_by_side_or_one_after_another(library, fake):
    caller, x = Caller(library, 1, 2), np.ones((24, 3), np.float32)
    for together, blocks in ((1, 2 * 2 * 9), (0, 2 * 9)):
        y, *_ = caller.run(x, share=2, together=together)
        assert np.abs(y - caller.expected(x)).max() < 1e-5
        seen = (ctypes.c_uint * 5)()
        fake.fake_last_launch(seen)
        assert seen[0] == blocks, "a team has nine, and half of the batch"
    del caller


def test_the_exchange_is_cleared_unless_a_like_call_has_left_it(library, fake):
    caller, x = Caller(library), np.ones((24, 3), np.float32)
    *_, scratch = caller.run(x)
    assert bytes(640) in scratch.tobytes()
    del caller


def test_a_caller_has_a_flag_of_his_own(library, fake):
    caller, late = Caller(library), np.zeros(1, np.int32)
    fake.fake_set_late(1)
    caller.run(np.ones((24, 3), np.float32), late=late)
    assert late[0] == 1
    with pytest.raises(ValueError, match="timesteps"):
        caller.stack.scratch(0, 0)
    with pytest.raises(Unsupported, match="vectors"):
        caller.stack.scratch(2**31, 0)
    del caller


@pytest.mark.parametrize(("way", "rows_of_a_block"), [("tiles", 128), ("vectors", 16)])
def test_rows_beyond_the_height_of_a_grid_are_multiplied_too(library, fake, way, rows_of_a_block):
    timesteps = 65535 * rows_of_a_block + 3
    lstm = built(library, sizes=(1, 1, 1, timesteps), projection=way)
    one, x = np.ones((1, 1), np.float32), np.arange(timesteps, dtype=np.float32)[:, None, None]
    lstm.load(x, one, one, np.ones((4, 1), np.float32), one, np.ones(4, np.float32), 1.0, 1.0)
    lstm.forward()
    assert (lstm.outputs()[0] == x + 1).all()  # what the fake makes of it
    lstm.release()


def test_code_that_the_driver_refuses_is_an_error(library, fake):
    with pytest.raises(native.LibraryError, match="cuModuleLoadData"):
        built(library, code=b"")


def test_arrays_of_another_size_are_named(library, fake):
    lstm = built(library)
    arrays = [np.zeros(3, np.float32)] * 6
    with pytest.raises(ValueError, match="x does not have the size"):
        lstm.load(*arrays, 1.0, 1.0)
    with pytest.raises(RuntimeError, match="load"):
        lstm.forward()
    lstm.release()


# --- the choice


class Scripted:
    """A layer that takes as long as it is told."""

    def __init__(self, seconds):
        self.seconds, self.memory, self.path, self.closed = seconds, {"all": 10}, "", False
        self.plan, self.projection, self.graph = "plan", "fp32", False

    def choose(self, best_s):
        if self.seconds is None:
            raise RuntimeError("broken")
        return self.seconds

    def close(self):
        self.closed = True


def test_the_fastest_stays_and_the_others_are_closed():
    best, all_of_them = layer.Best(), [Scripted(s) for s in (3, 1, 2)]
    for one in all_of_them:
        best.consider(one)
    assert [one.closed for one in all_of_them] == [True, False, True]
    assert (best.layer, best.tried, best.peak) == (all_of_them[1], 3, 20)
    broken = Scripted(None)
    with pytest.raises(RuntimeError, match="broken"):
        best.consider(broken)
    assert broken.closed


def timed(*first_two):
    """What takes these nanoseconds a call, and then a millisecond but for one."""
    asked = []

    def time_each(calls):
        asked.append(calls)
        return list(first_two) if calls == 2 else [10**9] + [10**6] * (calls - 1)

    return SimpleNamespace(time_each=time_each, asked=asked)


def test_a_trial_takes_the_median_of_20_ms_after_two_calls():
    for give_up_s, asked in ((np.inf, [2, 20]), (0.0005, [2])):  # what is too slow ends
        one = timed(10**9, 10**6)
        assert layer.trial(one, give_up_s) == 0.001
        assert one.asked == asked


@pytest.fixture
def scripted(monkeypatch):
    """What `fastest` loads, none of which is a layer, on an H200 with some changes."""
    asked = []

    def loaded(call, plan, projection):
        asked.append((len(call.x), projection))
        return Scripted(1)

    def on(**device):
        ahead = SimpleNamespace(fit_ahead=lambda plans: None, identity=lambda: "kernels")
        monkeypatch.setattr(layer, "toolbox", lambda: ([], ahead, H200 | device))
        monkeypatch.setattr(layer, "loaded", loaded)
        return asked

    return on


def call(timesteps=3, h0=0.5):
    x, h, *rest = problem(8, 8, 2, timesteps)
    return layer.Call(x, np.full_like(h, h0), *rest)


def test_a_layer_is_timed_with_some_plans_and_all_input_products(scripted):
    scripted()
    best = layer.fastest(call(), "fp32", layer.TRIED)
    assert best.path == f" (fastest of {layer.TRIED + 2})"


def test_a_plan_is_chosen_by_the_first_timesteps(scripted):
    asked, enough = scripted(), layer.ENOUGH
    best = layer.fastest(call(enough + 1), "fp32", 3)
    whole = [(enough + 1, kind) for kind in ("fp32", "tiles")]
    assert asked == [*[(enough, "fp32")] * 3, *whole]
    assert best.path == " (fastest of 4)"


def test_what_cannot_be_computed_is_unsupported_with_its_reason(scripted):
    scripted()
    with pytest.raises(Unsupported, match="initial h of 1e\\+06"):
        layer.fastest(call(h0=1e6), "fp32", 1)
    scripted(shared_bytes=10)
    with pytest.raises(Unsupported, match="no kernel holds a layer of 8 units in fp32"):
        layer.fastest(call(), "fp32", 1)


def test_all_headers_are_handed_to_the_compiler():
    assert {*HEADERS} == {path.name for path in SOURCES.glob("include/*")}


# --- vectors


def test_few_sequences_are_for_vectors_and_many_for_tensor_cores():
    assert candidates(512, 1, True, "fp32", H200)[0].family == "vector"
    assert not any(plan.family == "vector" for plan in candidates(512, 5, True, "fp32", H200))


def test_two_directions_share_the_gpu_where_teams_of_both_fit():
    def shared(fit, directions, queues=False):
        return shares.share_of(10, fit, directions, queues)

    assert shared(4, 1) == (3, 1), "sequences of a team, and launches"
    assert shared(4, 2) == (5, 1)
    assert shared(1, 2) == (10, 2)
    assert shared(1, 2, queues=True) == (10, 1), "a cluster waits for another"


def vector_sums(packed, plan, h):
    """What lanes of the vector family end with for one h: [gate][unit]."""
    pieces = plan.columns // plan.slices // 32
    lanes = packed.astype(np.float64).reshape(
        plan.blocks, pieces, 8, plan.groups, plan.slices, 4, 8, 4
    )
    columns = np.zeros(plan.columns)
    columns[: len(h)] = h
    columns = columns.reshape(plan.slices, pieces, 8, 4)
    sums = np.einsum("bprgsuce,spce->bgsucr", lanes, columns)  # each lane (u, c) has 8 rows
    for bit in (4, 2, 1):  # the kernel's folds: a lane keeps half of its rows, and gets another's
        kept = np.empty((*sums.shape[:-1], bit))
        for lane in range(8):
            rows = slice(bit, 2 * bit) if lane & bit else slice(0, bit)
            kept[..., lane, :] = sums[..., lane, rows] + sums[..., lane ^ bit, rows]
        sums = kept
    sums = sums[..., 0].sum(axis=2)  # over slices: [block][group][lane / 8][lane % 8]
    return sums.reshape(-1, 4).T  # a lane is a unit and a gate


def test_lanes_of_the_vector_family_end_with_a_gate_each():
    for hidden in (1, 5, 40, 100, 333):
        plans = vector.candidates(hidden, 1, False, "fp32", H200)
        assert_every_weight_is_there_once(hidden, plans, vector_sums, 1e-12)


def test_the_vector_family_takes_few_sequences_up_to_1024_units():
    for hidden, batch in itertools.product((1, 128, 513, 1000, 1024), (1, 4)):
        found = vector.candidates(hidden, batch, False, "fp32", H200)
        assert found, hidden
        for plan in found:
            assert plan.threads <= 1024
            assert plan.blocks * plan.groups * 8 >= hidden
            assert plan.columns >= plan.blocks * plan.groups * 8
            assert plan.shared_bytes(batch) <= plan.room
    assert not vector.candidates(1024, 5, False, "fp32", H200)
    assert all(
        not p.cluster or p.blocks == 1 for p in vector.candidates(256, 1, False, "fp32", A100)
    )


@pytest.mark.parametrize(
    ("architecture", "device", "hidden", "exchange", "storage"),
    [
        ("sm_80", A100, 512, "l2", "fp32"),
        ("sm_90a", H200, 1024, "l2", "fp32"),
        ("sm_90a", H200, 1000, "l2", "fp32"),
        ("sm_90a", H200, 256, "words", "bf16"),
        ("sm_100a", H200, 128, "words", "fp16"),
    ],
)
def test_vector_kernels_compile_without_spilling(architecture, device, hidden, exchange, storage):
    found = vector.candidates(hidden, 1, False, storage, device)
    plan = min((p for p in found if p.exchange == exchange), key=lambda p: found[p])
    nvcc = compiler(architecture)
    code, log = nvcc.compile("vector.cu", plan.constants)
    assert b"lstm_recurrence" in code
    assert not slowed(log), f"{plan}: {log}"
