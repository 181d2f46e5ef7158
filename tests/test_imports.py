"""Who may import what: rooms import one way, the driver stays light, the worker stays bare."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lstm_bench
from lstm_bench.cli import COMMANDS

PACKAGE = Path(lstm_bench.__file__).parent
#: Each room, and those that it may import; the worker's modules are for its own process.
ROOMS = {
    "model": (),
    "worker": ("model",),
    "runs": ("model",),
    "driver": ("runs", "model"),
    "analysis": ("runs", "model"),
    "report": ("analysis", "runs", "model"),
    "commands": ("report", "analysis", "driver", "runs", "model"),
}
OURS = re.compile(r"(lstm_bench|study)\b")
FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "apex", "onnx", "onnxruntime", "openvino")
HEAVY = {"numpy", "pandas", "scipy", "matplotlib", "msgspec", "rich", "yaml", *FRAMEWORKS}
#: What a file of the worker's may import besides the standard library and NumPy.
AT_HOME = {
    "onnxruntime": {"onnx", "onnxruntime"},
    "openvino": {"openvino"},
    "pytorch": {"torch", "apex"},
    "torch_compile": {"torch"},
    "torch_profile": {"torch"},
    "libtorch": {"torch"},
    "torch_session": {"torch"},
    "torch_variants": {"torch"},
    "tensorflow": {"tensorflow"},
    "tensorflow_profile": {"tensorflow"},
    "jax": {"jax", "jaxlib"},
    "keras_layer": {"keras"},
    "keras_torch": {"torch"},
    "baseline_libraries": {"scipy_openblas32", "nvidia"},
    "shape_filter": {"pandas"},  # names a type of it
}


def test_a_room_imports_only_the_rooms_below_it():
    for room in ROOMS:
        for path in (PACKAGE / room).rglob("*.py"):
            assert not above(path, room), f"{path.relative_to(PACKAGE)} may not import these"


def test_only_the_command_line_and_the_drop_in_lie_outside_the_rooms():
    outside = {"__init__.py", "__main__.py", "cli.py", "persistent.py"}
    assert {p.name for p in PACKAGE.glob("*.py")} == outside
    assert above(PACKAGE / "persistent.py", "worker") == set()
    assert {p.parent.name for p in PACKAGE.glob("*/*.py")} == set(ROOMS)


def test_workers_need_nothing_but_numpy_and_their_framework():
    for path in [p for room in ("worker", "model") for p in (PACKAGE / room).rglob("*.py")]:
        assert not foreign(path), f"{path.relative_to(PACKAGE)} may not import these"


def test_all_but_the_implementations_and_the_drop_in_load_without_a_framework_and_without_scipy():
    paths = [p.relative_to(PACKAGE.parent) for p in PACKAGE.rglob("[a-z]*.py")]
    free = [p for p in paths if "implementations" not in p.parts and p.name != "persistent.py"]
    modules = [".".join(p.with_suffix("").parts) for p in free]
    loaded = loaded_after("\n".join(f"import {module}" for module in modules))
    assert {*modules} <= loaded
    late = {"scipy", "ray", *FRAMEWORKS}  # only what needs them waits for them
    assert not {m.split(".")[0] for m in loaded} & late


def test_one_file_knows_of_ray():
    users = [p for p in PACKAGE.rglob("*.py") if "ray" in roots(p)]
    assert [path.name for path in users] == ["ray_cluster.py"]


def roots(path: Path) -> set[str]:
    return {module.split(".")[0] for module in imported_by(path)}


def helped(*words: str) -> set[str]:
    """What is loaded once help has been shown."""
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
    own = {m for m in loaded if m.startswith("lstm_bench")}
    assert own == {"lstm_bench", "lstm_bench.cli", "lstm_bench.model", "lstm_bench.model.errors"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_loads_it_and_nothing_heavy(command):
    loaded = helped(command)
    assert f"lstm_bench.commands.{COMMANDS[command][0].split(':')[0]}" in loaded
    assert not {m.split(".")[0] for m in loaded} & HEAVY


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def above(path: Path, room: str) -> set[str]:
    """What a file of this room imports of us, and may not."""
    own = {m.removeprefix("lstm_bench.") for m in imported_by(path) if OURS.match(m)}
    return {m.split(".")[0] for m in own} - {room, *ROOMS[room], "__version__"}


def foreign(path: Path) -> set[str]:
    """What a file of the worker's imports of others, and may not."""
    ours = {"lstm_bench", "lstm_kernels"}
    allowed = {*sys.stdlib_module_names, *ours, "numpy", *AT_HOME.get(path.stem, ())}
    return {module.split(".")[0] for module in imported_by(path)} - allowed


def imported_by(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports by a relative name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
