"""Who may import what: the driver stays light, the worker stays bare."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lstm_bench
from lstm_bench.cli import COMMANDS

PACKAGE = Path(lstm_bench.__file__).parent
FRAMEWORKS = ("torch", "tensorflow", "keras", "apex")
#: What a worker may import of this package; it runs where only a framework is installed.
WORKER_SIDE = {
    *(
        "errors",
        "model",
        "units",
        "registry",
        "problem",
        "timing",
        "worker",
        "shelf",
        "fake_script",
    ),
    *("profile", "profiling", "cupti", "demangle", "loaded", "peaks"),
    "implementations",
    *(f"implementations.{p.stem}" for p in (PACKAGE / "implementations").glob("[a-z]*.py")),
}
THIRD_PARTY_OF_WORKERS = {"numpy", "pynvml"}  # the latter where it is
#: Besides, the one that is at home in a file; the baseline's library is looked for where it is.
AT_HOME = {
    "pytorch": {"torch", "apex"},
    "torch_profile": {"torch"},
    "tensorflow": {"tensorflow", "keras"},
    "tensorflow_profile": {"tensorflow"},
    "baseline_libraries": {"scipy_openblas32", "nvidia"},
}


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_driver_side_imports_no_framework():
    modules = [p.stem for p in PACKAGE.glob("*.py") if p.stem != "__main__"]
    loaded = loaded_after("\n".join(f"import lstm_bench.{m}" for m in modules))
    assert "lstm_bench.driver" in loaded
    assert not {m.split(".")[0] for m in loaded} & set(FRAMEWORKS)


HEAVY = {"numpy", "pandas", "matplotlib", "msgspec", "rich", "yaml", *FRAMEWORKS}


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
    assert own == {"lstm_bench", "lstm_bench.cli", "lstm_bench.errors"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_loads_it_and_nothing_heavy(command):
    loaded = helped(command)
    assert f"lstm_bench.commands.{COMMANDS[command][0].split(':')[0]}" in loaded
    assert not {m.split(".")[0] for m in loaded} & HEAVY


def test_the_worker_side_needs_nothing_but_numpy_and_its_framework():
    for name in WORKER_SIDE:
        path = PACKAGE / (name.replace(".", "/") + ".py")
        if not path.exists():
            path = PACKAGE / name / "__init__.py"
        for module in imported_by(path):
            top, *rest = module.split(".")
            if top == "lstm_bench":
                assert ".".join(rest) in {*WORKER_SIDE, ""}, f"{path.name} imports {module}"
            else:
                outside = THIRD_PARTY_OF_WORKERS | AT_HOME.get(path.stem, set())
                allowed = top in sys.stdlib_module_names or top in outside
                assert allowed, f"{path.name} imports {module}"


def imported_by(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            children = {f"{node.module}.{alias.name}" for alias in node.names}
            known = {
                c for c in children if (PACKAGE.parent / (c.replace(".", "/") + ".py")).exists()
            }
            found |= known or {node.module}
    return found
