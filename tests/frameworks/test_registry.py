"""The table of implementations agrees with the frameworks, and with the files that run it."""

from dataclasses import asdict, replace

import pytest
from layers import options_of

from lstm_bench.driver import doctor
from lstm_bench.frameworks import FRAMEWORKS, IMPLEMENTATIONS
from lstm_bench.model.types import LstmBenchError, Sampling, Settings, Shape, Unsupported
from lstm_bench.worker import worker


@pytest.mark.parametrize("row", IMPLEMENTATIONS.values(), ids=lambda row: row.name)
def test_every_implementation_has_a_framework_a_file_and_options_that_the_file_reads(row):
    assert row.framework in FRAMEWORKS
    assert {*row.options} <= options_of(row.module)


def test_an_implementation_without_a_framework_is_told_where_one_is_missing():
    row = replace(IMPLEMENTATIONS["pytorch"], name="mine", framework="pytorhc")
    with pytest.raises(LstmBenchError, match=r"mine: FRAMEWORKS in .*did you mean 'pytorch'"):
        doctor.availability([row], {}, "cpu")


def test_an_option_that_nobody_reads_is_refused():
    row = replace(IMPLEMENTATIONS["fake"], options={"call_s": 0.001, "onednn": False})
    with pytest.raises(Unsupported, match=r"found options onednn; fake/session\.py reads .*call_s"):
        worker.Worker("fake", Settings()).prepare(
            "key", asdict(row), asdict(Shape(4, 2, 3, 4)), asdict(Sampling())
        )
