"""What docs/how-to/add-an-implementation.md shows runs, and it names everything that there is."""

import os
import re
import sys
import types
from dataclasses import asdict, fields

import pytest
from conftest import REPOSITORY
from test_imports import above, foreign

from lstm_bench.model.registry import Framework
from lstm_bench.model.types import Implementation, Sampling, Settings, Shape
from lstm_bench.worker import worker
from lstm_bench.worker.implementations.session import Session
from lstm_bench.worker.problem import Problem

TEXT = (REPOSITORY / "docs" / "how-to" / "add-an-implementation.md").read_text()
ROW, FRAMEWORK, FILE = re.findall(r"```python\n(.*?)```", TEXT, re.S)
SHAPE = asdict(Shape(hidden=7, batch=3, timesteps=5, input_size=11))
QUICK = asdict(Sampling(block_s=0.001, warmup_s=0.001, warmup_calls=1))


@pytest.fixture
def row(monkeypatch):
    (found,) = eval(f"({ROW})", {"Implementation": Implementation})
    module = types.ModuleType(f"lstm_bench.worker.implementations.{found.module}")
    exec(FILE, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return found


def test_the_example_answers_rightly_is_timed_and_profiled(row):
    mine = worker.Worker(row.module, Settings(threads=1))
    assert mine.hello()["versions"]["numpy"]
    place = os.memfd_create("reference")
    mine.pose(SHAPE, row.computes, place, filled=False)
    prepared = mine.prepare("key", asdict(row), SHAPE, QUICK)
    os.close(place)
    assert prepared["check"]["passed"], prepared["check"]["reason"]
    assert prepared["memory"]["weights"] == 4 * 4 * 7 * (7 + 11 + 1)
    assert prepared["memory"]["inputs"] == 4 * (5 * 3 * 11 + 2 * 3 * 7)
    assert mine.measure("key", 0, QUICK, 0.001)["block"]["latency_ns"]
    parts = mine.profile("key")["profile"]["parts"]
    assert {part["name"] for part in parts} == {"products", "steps"}
    assert mine.check("key")["check"]["passed"]


def test_the_example_is_a_row_of_its_framework_and_imports_what_it_may(row, tmp_path):
    (framework,) = eval(f"({FRAMEWORK})", {"Framework": Framework})
    assert row.framework == framework.name
    path = tmp_path / f"{row.module}.py"
    path.write_text(FILE)
    assert not above(path, "worker") | foreign(path)


@pytest.mark.parametrize("kind", [Problem, Implementation, Session, Shape])
def test_every_field_and_method_is_named(kind):
    if kind is Session:
        names = [name for name in {**vars(kind), **kind.__annotations__} if name[0] != "_"]
    else:
        names = [one.name for one in fields(kind) if one.name[0] != "_"]
    assert [name for name in names if not re.search(rf"\b{name}\b", TEXT)] == []
