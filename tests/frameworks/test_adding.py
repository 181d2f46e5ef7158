"""What docs/how-to/add-an-implementation.md shows runs, and it names everything that there is."""

import os
import re
import sys
import types
from dataclasses import asdict, fields, replace

import pytest
from conftest import REPOSITORY
from test_frameworks import MISTAKES, SHAPES, check_of, says_its_path_and_what_it_holds
from test_imports import above, foreign
from test_registry import FILES, options_of

from lstm_bench.frameworks import FRAMEWORKS, IMPLEMENTATIONS
from lstm_bench.model.framework import Framework
from lstm_bench.model.types import Implementation, Sampling, Settings, Shape
from lstm_bench.worker import problem as problems
from lstm_bench.worker import worker
from lstm_bench.worker.problem import Problem
from lstm_bench.worker.session import Session

TEXT = (REPOSITORY / "docs" / "how-to" / "add-an-implementation.md").read_text()
ROW, FRAMEWORK, FILE = re.findall(r"```python\n(.*?)```", TEXT, re.S)
SHAPE = asdict(Shape(hidden=7, batch=3, timesteps=5, input_size=11))
QUICK = asdict(Sampling(block_s=0.001, warmup_s=0.001, warmup_calls=1))


@pytest.fixture
def row(monkeypatch):
    (found,) = eval(f"({ROW})", {"Implementation": Implementation})
    module = types.ModuleType(f"lstm_bench.frameworks.{found.module}.session")
    exec(FILE, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    (framework,) = eval(f"({FRAMEWORK})", {"Framework": Framework})
    monkeypatch.setitem(FRAMEWORKS, framework.name, framework)
    return found


def test_the_example_answers_rightly_and_is_timed(row):
    mine = worker.Worker(row.module, Settings(threads=1))
    hello = mine.hello()
    assert hello["versions"]["numpy"]
    assert hello["threads"] >= 1
    place = os.memfd_create("reference")
    mine.pose(SHAPE, row.computes, place, filled=False)
    prepared = mine.prepare("key", asdict(row), SHAPE, QUICK)
    os.close(place)
    assert prepared["check"]["passed"], prepared["check"]["reason"]
    assert prepared["memory"]["weights"] == 4 * 4 * 7 * (7 + 11 + 1)
    assert prepared["memory"]["inputs"] == 4 * (5 * 3 * 11 + 2 * 3 * 7)
    assert mine.measure("key", 0, QUICK, 0.001)["block"]["latency_ns"]
    assert mine.check("key")["check"]["passed"]


def test_the_example_holds_to_what_is_asked_of_every_framework(row):
    for shape in SHAPES:
        check = check_of(row, problems.make(shape, seed=3))
        assert check.passed, check.reason
    problem = problems.make(SHAPES[0], seed=3)
    for mistake, make in MISTAKES.items():
        broken = make(replace(problem, _shared={}))
        assert not check_of(row, broken, truth=problem).passed, mistake
    says_its_path_and_what_it_holds(row)


def test_every_option_is_named():
    for name in {row.module for row in IMPLEMENTATIONS.values()} - {"fake"}:  # grids script that
        assert [o for o in options_of(FILES / name / "session.py") if f"`{o}`" not in TEXT] == []


def test_the_example_is_a_row_of_its_framework_and_imports_what_it_may(row, tmp_path):
    assert row.framework in FRAMEWORKS
    path = tmp_path / row.module / "session.py"
    path.parent.mkdir()
    path.write_text(FILE)
    assert not above(path, "worker") | foreign(path)


@pytest.mark.parametrize("kind", [Problem, Implementation, Session, Shape])
def test_every_field_and_method_is_named(kind):
    if kind is Session:
        names = [name for name in {**vars(kind), **kind.__annotations__} if name[0] != "_"]
    else:
        names = [one.name for one in fields(kind) if one.name[0] != "_"]
    assert [name for name in names if not re.search(rf"\b{name}\b", TEXT)] == []
