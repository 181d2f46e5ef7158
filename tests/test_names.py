"""A name means one thing: no two public classes of the package share theirs."""

import ast
from collections import defaultdict
from pathlib import Path

import lstm_bench

PACKAGE = Path(lstm_bench.__file__).parent
#: Names that two classes still have, and who renames one of them; this becomes empty.
PENDING = {
    "Measured",  # driver/protocol and features/cluster
    "Part",  # model/profile and features/cluster
    "Session",  # worker/session and commands/run
    "Share",  # commands/options and features/cluster
    "Trace",  # features/profile and frameworks/pytorch
}


def test_no_public_class_name_stands_for_two_things():
    places = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(PACKAGE).as_posix())
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert {name: twice[name] for name in twice.keys() - PENDING} == {}
    assert PENDING - twice.keys() == set(), "these are renamed: take them out"
