"""One worker computes the reference, the others read it."""

import os

import numpy as np
import pytest
from conftest import records

from lstm_bench.driver.worker_pool import References
from lstm_bench.model.types import Shape
from lstm_bench.worker import problem as problems
from lstm_bench.worker import reference_cache

SMALL, LARGE = Shape(3, 2, 4, 5), Shape(7, 3, 9, 7)


def test_what_one_worker_writes_another_reads():
    files = References({"lstm", "lstm-skip-input"})
    for shape in (LARGE, SMALL):  # a smaller one leaves nothing of the larger behind
        file = files.file("lstm", shape)
        assert reference_cache.get(file, shape) is None
        answer = problems.reference(problems.make(shape, 1))
        reference_cache.put(file, answer)
        assert files.file("lstm", shape) == file
        for read, written in zip(reference_cache.get(file, shape), answer, strict=True):
            assert np.array_equal(read, written)
        assert reference_cache.get(files.file("lstm-skip-input", shape), shape) is None
        os.ftruncate(file, os.fstat(file).st_size - 1)  # whoever wrote it has died
        assert reference_cache.get(file, shape) is None
    files.close()


@pytest.mark.processes
def test_workers_that_share_a_reference_all_pass_their_check(lstm_bench, write_grid, tmp_path):
    fakes = {f"in-{n}": {"process": f"p{n}"} for n in range(3)}
    wrong = {"liar": {"process": "p3", "fault": "swap-gates"}}
    grid = write_grid(implementations=[*fakes, *wrong], fake={**fakes, **wrong})
    lstm_bench("grid", grid, "--run", "r")
    actual = {(r["implementation"], r["status"]) for r in records(tmp_path / "results" / "r")}
    assert actual == {("in-0", "ok"), ("in-1", "ok"), ("in-2", "ok"), ("liar", "wrong")}
