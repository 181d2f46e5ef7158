"""A name means one thing: no two public classes of the package share theirs."""

import ast
from collections import defaultdict
from pathlib import Path

import lstm_bench

PACKAGE = Path(lstm_bench.__file__).parent


def test_no_public_class_name_stands_for_two_things():
    places = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
