"""One worker computes the reference, the others read it."""

import numpy as np
import pytest
from conftest import records

from lstm_bench.driver.worker_pool import ReferenceCache
from lstm_bench.model.types import Shape
from lstm_bench.worker import problem as problems
from lstm_bench.worker import reference_cache

SMALL, LARGE = Shape(3, 2, 4, 5), Shape(7, 3, 9, 7)


def test_what_one_lays_down_another_reads():
    place = ReferenceCache({"lstm"})
    for shape in (LARGE, SMALL):  # a smaller one leaves nothing of the larger behind
        answer = problems.reference(problems.make(shape, 1))
        reference_cache.put(place.fds["lstm"], answer)
        for found, laid in zip(reference_cache.get(place.fds["lstm"], shape), answer, strict=True):
            assert np.array_equal(found, laid)
    place.close()


def test_a_place_counts_as_filled_for_its_own_shape_and_work_only():
    place = ReferenceCache({"lstm", "lstm-skip-input"})
    place.filled("lstm", SMALL)
    assert place.place("lstm", SMALL)["filled"]
    assert not place.place("lstm", LARGE)["filled"]
    assert not place.place("lstm-skip-input", SMALL)["filled"]
    place.close()


@pytest.mark.processes
def test_workers_that_share_a_reference_all_pass_their_check(lstm_bench, write_grid, tmp_path):
    fakes = {f"in-{n}": {"process": f"p{n}"} for n in range(3)}
    wrong = {"liar": {"process": "p3", "fault": "swap-gates"}}
    grid = write_grid(implementations=[*fakes, *wrong], fake={**fakes, **wrong})
    lstm_bench("grid", grid, "--run", "r")
    found = {(r["implementation"], r["status"]) for r in records(tmp_path / "results" / "r")}
    assert found == {("in-0", "ok"), ("in-1", "ok"), ("in-2", "ok"), ("liar", "wrong")}
