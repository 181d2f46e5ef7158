"""Rooms import one way, features stand beside them, the worker stays bare."""

import re
import subprocess
import sys

import pytest
from rooms import (
    CORE,
    PACKAGE,
    SESSIONS,
    above,
    files,
    foreign,
    is_session,
    place,
    room_of,
    roots,
)

from lstm_bench.cli import COMMANDS
from lstm_bench.frameworks import FRAMEWORKS

LIBRARY = {
    module.split(".")[0] for framework in FRAMEWORKS.values() for module in framework.requires
}
HEAVY = {"numpy", "pandas", "scipy", "matplotlib", "msgspec", "rich", "yaml", *LIBRARY}


def test_every_file_imports_only_what_its_room_may():
    assert {(place(path), room) for path in files() for room in above(path)} == set()


def test_only_the_command_line_and_the_drop_in_lie_outside_the_rooms():
    outside = {"__init__.py", "__main__.py", "cli.py", "persistent.py"}
    assert {p.name for p in PACKAGE.glob("*.py")} == outside
    assert {p.parent.name for p in PACKAGE.glob("*/*.py")} == {*CORE, "features"}


def test_workers_need_nothing_but_numpy_and_their_framework():
    for path in files():
        if room_of(path) in ("model", "frameworks", "worker", SESSIONS):
            assert not foreign(path), f"{path.relative_to(PACKAGE)} may not import these"


def test_all_but_the_sessions_and_the_drop_in_load_without_a_framework_and_without_scipy():
    free = [p for p in files() if p.parent != PACKAGE and not is_session(p)]
    free = [p for p in free if p.name not in ("keras_layer.py", "amp.py")]
    modules = [".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts) for p in free]
    modules = [module.removesuffix(".__init__") for module in modules]
    loaded = loaded_after("\n".join(f"import {module}" for module in modules))
    assert {*modules} <= loaded
    late = {"scipy", "ray", *LIBRARY} - {"numpy", "lstm_kernels"}  # what needs them waits for them
    assert not {m.split(".")[0] for m in loaded} & late


def test_one_file_knows_of_ray():
    users = [p for p in PACKAGE.rglob("*.py") if "ray" in roots(p)]
    assert [path.name for path in users] == ["ray_cluster.py"]


def helped(*words: str) -> set[str]:
    """The modules that are loaded once help has been shown."""
    asked = repr([*words, "--help"])
    return loaded_after(
        "import contextlib, io, lstm_bench.cli\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        f"    lstm_bench.cli.main({asked})"
    )


def test_help_loads_no_command_and_no_types():
    loaded = helped()
    assert "click" in loaded
    assert not {m.split(".")[0] for m in loaded} & HEAVY
    own = {m.removeprefix("lstm_bench.") for m in loaded if m.startswith("lstm_bench.")}
    doors = {m for m in own if re.fullmatch(r"features(\.\w+)?", m)}
    assert own - doors == {"cli", "model", "model.errors", "model.feature"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_loads_it_and_nothing_heavy(command):
    loaded = helped(command)
    assert f"lstm_bench.{COMMANDS[command][0].split(':')[0]}" in loaded
    assert not {m.split(".")[0] for m in loaded} & HEAVY


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
