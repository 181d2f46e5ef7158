"""The warpgroup family of our own kernels as far as a machine without a GPU can tell.

Weights lie as wgmma wants them, sizes fit, and kernels compile without spilling and without their
products being serialized. What they compute is checked on a GPU, as that of the other families.
"""

import itertools

import numpy as np
import pytest
from cases import A100, H200, PACKED, assert_every_weight_is_there_once, compiler

from lstm_kernels.compiler import Compiler, slowed
from lstm_kernels.halves import widen
from lstm_kernels.plans import candidates
from lstm_kernels.plans.warpgroup import FEWEST_SEQUENCES
from lstm_kernels.plans.warpgroup import candidates as plans


def sums(packed, plan, h):
    """What wgmma adds up for one h, by its own layout of a fragment: [gate][unit]."""
    steps = plan.producers // plan.slices
    fragments = widen(packed, plan.storage).astype(np.float64)
    fragments = fragments.reshape(
        *(plan.blocks, steps, plan.copies, plan.tiles, plan.slices, 4, 8, 4, 2, 2, 2)
    )
    #     block        step   copy         tile        slice   warp lane/4 lane%4 right below low
    matrices = fragments.transpose(0, 3, 2, 5, 9, 6, 4, 1, 8, 7, 10)
    rows = matrices.reshape(plan.blocks * plan.tiles, plan.copies, 64, plan.producers * 16)
    columns = np.zeros(plan.producers * 16)
    columns[: len(h)] = h
    found = (rows.sum(axis=1) @ columns).reshape(-1, 4, 4, 4)  # tile, warp, row / 4, row % 4
    i, g, f, o = found.transpose(2, 0, 1, 3).reshape(4, -1)
    return np.stack([i, f, g, o])


@PACKED
def test_fragments_hold_every_weight_once(split, storage, tolerance):
    for hidden in (5, 100, 200):
        found = plans(hidden, 2000, split, storage, H200)
        assert_every_weight_is_there_once(hidden, found, sums, tolerance)


@pytest.mark.parametrize(("split", "storage"), [(True, "fp32"), (False, "fp32"), (False, "bf16")])
def test_many_sequences_have_a_plan_that_fits(split, storage):
    for hidden, batch in itertools.product((512, 513, 1024), (64, 256, 300)):
        found = plans(hidden, batch, split, storage, H200)
        assert found, (hidden, batch)
        for plan in found:
            assert plan.producers * 16 >= hidden
            assert plan.producers % (plan.slot_steps * plan.slices) == 0
            teams = H200["multiprocessors"] // plan.blocks
            assert plan.shared_bytes(-(-batch // teams)) <= H200["shared_bytes"]


def test_it_is_for_hopper_and_for_more_sequences_than_warps_take_at_a_time():
    assert not plans(512, 64, False, "fp16", A100)
    assert not plans(512, 64, False, "fp16", H200 | {"major": 10})
    assert not plans(512, FEWEST_SEQUENCES - 1, False, "fp16", H200)
    first = [candidates(1024, batch, False, "fp16", H200)[0].family for batch in (8, 256)]
    assert first == ["whole_gpu", "warpgroup"]


@pytest.mark.parametrize(("hidden", "precision"), [(1024, "fp16"), (200, "fp32"), (70, "bf16")])
def test_memory_is_what_the_kernel_counts_on(hidden, precision, monkeypatch):
    """The kernel's own constants, in an assertion that it is compiled with."""
    nvcc, read = compiler("sm_90a"), Compiler._texts
    batch = 300
    for plan in [*plans(hidden, batch, precision == "fp32", precision, H200)][::3]:
        teams = min(H200["multiprocessors"] // plan.blocks, batch)
        share = -(-batch // teams)
        chunks = plan.chunks(share)
        shared = f"STATE_AT + {chunks} * CELLS * MATH * 4"
        lines = f"(1 + {chunks}) * Exchange::LINE * 4"
        packets = f"2 * {chunks} * PRODUCERS * PACKET"
        counted = (
            f'static_assert({shared} == {plan.shared_bytes(share)}, "shared");'
            f"static_assert({teams} * ({lines} + {packets})"
            f' == {plan.exchange_bytes(share, teams)}, "exchange");'
        )

        def with_assertion(source, counted=counted):
            text, *headers = read(source)
            return [text + counted, *headers]

        monkeypatch.setattr(Compiler, "_texts", staticmethod(with_assertion))
        nvcc.compile(plan.source, plan.constants)


@pytest.mark.parametrize(
    ("hidden", "batch", "precision"),
    [(1024, 256, "fp16"), (1024, 64, "bf16"), (512, 256, "fp32"), (1024, 256, "fp32")],
)
def test_kernels_compile_without_spilling_or_serializing(
    hidden, batch, precision, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = plans(hidden, batch, precision == "fp32", precision, H200)
    nvcc = compiler("sm_90a")
    best, code = nvcc.fitted(min(found, key=lambda plan: found[plan]))
    assert b"lstm_recurrence" in code
    assert best.fewer <= 8  # about as many in registers as was planned
    assert not slowed(nvcc.compile(best.source, best.constants)[1])
