"""The code of docs/how-to/add-an-implementation.md runs, and the page names all that there is."""

import importlib
import re
import shutil
import subprocess
import sys
from dataclasses import fields, replace

import pytest
from conftest import REPOSITORY, only_run, records
from layers import MISTAKES, SHAPES, checked, options_of, says_its_path_and_what_it_holds
from rooms import PACKAGE, above, foreign

from lstm_bench import frameworks
from lstm_bench.frameworks import FRAMEWORKS, IMPLEMENTATIONS
from lstm_bench.model.types import Implementation, Settings, Shape
from lstm_bench.worker import problem as problems
from lstm_bench.worker.problem import Problem
from lstm_bench.worker.session import Session

TEXT = (REPOSITORY / "docs" / "how-to" / "add-an-implementation.md").read_text()
EXAMPLE = REPOSITORY / "examples" / "numpy_framework"
FILES = {name: (EXAMPLE / name).read_text() for name in ("rows.py", "session.py")}


def add_to(folder):
    """Lay the example down as a new folder beside the other frameworks."""
    place = folder / "numpy"
    place.mkdir(parents=True, exist_ok=True)  # NumPy may be there by now
    for name, text in {"__init__.py": "", **FILES}.items():
        (place / name).write_text(text)
    return place


@pytest.mark.processes
def test_two_new_files_are_all_that_a_framework_needs(tmp_path):
    copy = shutil.copytree(PACKAGE, tmp_path / "lstm_bench")
    add_to(copy / "frameworks")
    (tmp_path / "grids").symlink_to(REPOSITORY / "grids")

    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import lstm_bench.cli as c; c.main()"
    )
    words = [
        "grid",
        "--shape",
        "7,3,5,11",
        "--implementations",
        "numpy",
        "--device",
        "cpu",
        "--fast",
        *("--python", "deepbench=/bin/false"),  # which would measure this machine's limits
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    cells = records(only_run(tmp_path))
    assert {cell["implementation"] for cell in cells} == {"numpy"}
    assert {(cell["status"], cell["path"]) for cell in cells} == {("ok", "NumPy")}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The example as one of the frameworks of this process."""
    monkeypatch.setattr(frameworks, "__path__", [*frameworks.__path__, str(tmp_path)])
    place = add_to(tmp_path)
    importlib.invalidate_caches()
    (framework,) = importlib.import_module("lstm_bench.frameworks.numpy.rows").FRAMEWORKS
    monkeypatch.setitem(FRAMEWORKS, framework.name, framework)
    yield place
    for name in [name for name in sys.modules if name.startswith("lstm_bench.frameworks.numpy")]:
        del sys.modules[name]


def test_the_example_holds_to_what_is_asked_of_every_framework(folder):
    (row,) = importlib.import_module("lstm_bench.frameworks.numpy.rows").ROWS
    session = importlib.import_module("lstm_bench.frameworks.numpy.session")
    assert session.describe(Settings(threads=1))["threads"] >= 1
    for shape in SHAPES:
        problem = problems.make(shape, seed=3)
        assert checked(session.build(problem, row, Settings()), row, problem).passed
    problem = problems.make(SHAPES[0], seed=3)
    for mistake, make in MISTAKES.items():
        broken = session.build(make(replace(problem, _shared={})), row, Settings())
        assert not checked(broken, row, problem).passed, mistake
    says_its_path_and_what_it_holds(row)
    compile(frameworks.snippet(row), "the code of the row", "exec")


def test_the_example_imports_what_it_may(folder):
    for name, room in (("rows.py", "frameworks"), ("session.py", "worker")):
        assert not above(folder / name, room) | foreign(folder / name)


def test_every_option_is_named():
    for name in {row.module for row in IMPLEMENTATIONS.values()} - {"fake"}:  # grids script that
        assert [option for option in options_of(name) if f"`{option}`" not in TEXT] == []


@pytest.mark.parametrize("kind", [Problem, Implementation, Session, Shape])
def test_every_field_and_method_is_named(kind):
    if kind is Session:
        names = [name for name in {**vars(kind), **kind.__annotations__} if name[0] != "_"]
    else:
        names = [each.name for each in fields(kind) if each.name[0] != "_"]
    assert [name for name in names if not re.search(rf"\b{name}\b", TEXT)] == []
