"""The `deepbench` rows on a CPU: our kernels, and OpenBLAS where it is faster at the inputs."""

from types import SimpleNamespace

import pytest
from cases import built_native

from lstm_bench.frameworks.deepbench import libraries
from lstm_bench.frameworks.deepbench import session as deepbench
from lstm_bench.model.types import TOLERANCES, Settings, Shape, Unsupported
from lstm_bench.worker import problem as problems

native = built_native()

try:
    LIBRARY = libraries.openblas()
except Unsupported as missing:
    pytest.skip(str(missing), allow_module_level=True)


@pytest.fixture
def handed(monkeypatch):
    """The address of a product of matrices that each layer got."""
    addresses, made = [], native.CpuLstm

    def lstm(*sizes, sgemm, **how):
        addresses.append(sgemm)
        return made(*sizes, sgemm=sgemm, **how)

    monkeypatch.setattr(native, "CpuLstm", lstm)
    return addresses


def answered(**options):
    """A row's check, and how it computes."""
    problem = problems.make(Shape(24, 5, 7, 24), 1)
    session = deepbench.build(problem, SimpleNamespace(options=options), Settings(threads=2))
    session.call()
    computes = "lstm-skip-input" if options.get("skip_input") else "lstm"
    tolerance = TOLERANCES[options.get("precision", "fp32")]
    answer = problems.check(session.outputs(), problems.reference(problem, computes), tolerance)
    session.close()
    return answer.passed, session.path


@pytest.mark.parametrize("options", [{}, {"skip_input": True}, {"precision": "bf16"}])
def test_openblas_has_the_input_product_only_where_the_kernels_have_no_multiply_add(
    handed, monkeypatch, options
):
    for weak in (False, True):
        monkeypatch.setenv("LSTM_BENCH_ISA", "sse2" if weak else "")
        if weak and "sse2" not in native.instruction_sets():
            continue
        passed, path = answered(**options)
        assert passed
        assert not weak or path.startswith("SSE2")
        assert bool(handed.pop()) == (path.startswith("SSE2") and not options)


def test_an_instruction_set_that_this_cpu_lacks_is_refused(monkeypatch):
    monkeypatch.setenv("LSTM_BENCH_ISA", "avx1024")
    with pytest.raises(Unsupported, match=r"expected one that this CPU has, .*; found avx1024"):
        deepbench.describe(Settings())


@pytest.mark.parametrize("library", ["/nowhere/libopenblas.so", "libm.so.6"])
def test_a_library_that_is_no_openblas_is_named(monkeypatch, library):
    monkeypatch.setattr(libraries, "openblas", lambda: library)
    with pytest.raises(Unsupported, match=rf"no OpenBLAS in {library}"):
        deepbench.describe(Settings())


def test_versions_name_the_library_and_the_kernel():
    versions = deepbench.describe(Settings())["versions"]
    assert {*versions} == {"openblas", "kernel", "bf16 kernel", "int8 kernel"}
    assert [int(part) for part in versions["openblas"].split(".")[:2]] >= [0, 3]
    assert versions["kernel"] in ("NEON", "SSE2", "AVX2", "AVX-512")
