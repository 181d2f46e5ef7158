"""The table of implementations agrees with the frameworks, and with the files that run it."""

import ast
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lstm_bench import frameworks
from lstm_bench.driver import doctor
from lstm_bench.frameworks import FRAMEWORKS, IMPLEMENTATIONS
from lstm_bench.model.fake_script import SCRIPT
from lstm_bench.model.types import LstmBenchError, Sampling, Settings, Shape, Unsupported
from lstm_bench.worker import worker

FILES = Path(frameworks.__file__).parent


def options_of(path):
    """What a file declares, without its framework."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OPTIONS":
            return eval(ast.unparse(node.value), {"SCRIPT": SCRIPT})
    return frozenset()


@pytest.mark.parametrize("row", IMPLEMENTATIONS.values(), ids=lambda row: row.name)
def test_every_implementation_has_a_framework_a_file_and_options_that_the_file_reads(row):
    assert row.framework in FRAMEWORKS
    path = FILES / row.module / "session.py"
    assert path.is_file()
    assert {*row.options} <= options_of(path)


def test_an_implementation_without_a_framework_is_told_where_one_is_missing():
    row = replace(IMPLEMENTATIONS["pytorch"], name="mine", framework="pytorhc")
    with pytest.raises(LstmBenchError, match=r"mine: FRAMEWORKS in .*did you mean 'pytorch'"):
        doctor.availability([row], {}, "cpu")


def test_an_option_that_nobody_reads_is_refused():
    row = replace(IMPLEMENTATIONS["fake"], options={"call_s": 0.001, "onednn": False})
    with pytest.raises(Unsupported, match=r"found options onednn; fake\.py reads .*call_s"):
        worker.Worker("fake", Settings()).prepare(
            "key", asdict(row), asdict(Shape(4, 2, 3, 4)), asdict(Sampling())
        )
