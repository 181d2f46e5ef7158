"""Who may import what: rooms import one way, features stand beside them, the worker stays bare."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lstm_bench
from lstm_bench.cli import COMMANDS
from lstm_bench.frameworks import FRAMEWORKS

PACKAGE = Path(lstm_bench.__file__).parent
#: Each room of the core, and those that it may import. `frameworks` are the rows of all frameworks;
#: their sessions belong to the worker, as does `in_worker` of a feature, wherever they stand.
CORE = {
    "model": (),
    "frameworks": ("model",),
    "worker": ("frameworks", "model"),
    "runs": ("frameworks", "model"),
    "driver": ("runs", "frameworks", "model"),
    "analysis": ("runs", "frameworks", "model"),
    "report": ("analysis", "runs", "frameworks", "model"),
    "commands": ("report", "analysis", "driver", "runs", "frameworks", "model"),
}
SESSIONS = "sessions"
#: Arrows that are still to be turned; this becomes empty.
PENDING = {
    ("analysis/machines", "features.energy"),
    ("commands/grid", "features.cluster"),
    ("commands/grid", "features.limits"),
    ("commands/machine", "features.limits"),
    ("commands/report", "features.advise"),
    ("commands/report", "features.energy"),
    ("commands/report", "features.limits"),
    ("commands/report", "features.profile"),
    ("features/cluster/node", "features.limits"),
    ("report/instead", "features.advise"),
    ("report/ladder", "features.profile"),
    ("report/run_report", "features.limits"),
}
LIBRARY = {module.split(".")[0] for one in FRAMEWORKS.values() for module in one.requires}
HEAVY = {"numpy", "pandas", "scipy", "matplotlib", "msgspec", "rich", "yaml", *LIBRARY}
#: What a file of the worker's may import besides the standard library, NumPy and what its
#: framework requires.
AT_HOME = {
    "jax/session": {"jaxlib"},
    "worker/keras_layer": {"keras"},
    "worker/baseline_libraries": {"scipy_openblas32", "nvidia"},
    "model/shape_filter": {"pandas"},  # names a type of it
}


def test_every_file_imports_only_what_its_room_may():
    wrong = {(place(path), room) for path in files() for room in above(path)}
    assert wrong - PENDING == set()
    assert PENDING - wrong == set(), "these are gone: take them out"


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


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def place(path: Path) -> str:
    """`commands/grid`: a file of the package, as this test names it."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def is_session(path: Path) -> bool:
    """Whether only a worker may import it."""
    in_framework = path.parent.parent.name == "frameworks"
    return "in_worker" in place(path) or (in_framework and path.stem not in ("__init__", "rows"))


def room_of(path: Path) -> str:
    """The room that a file belongs to: `report`, `features.energy`, or `sessions`."""
    if is_session(path):
        return SESSIONS
    first, *more = path.relative_to(PACKAGE).parts if is_ours(path) else ("",)
    if first == "features" and len(more) > 1:
        return f"features.{more[0]}"
    return Path(first).stem


def is_ours(path: Path) -> bool:
    return PACKAGE in path.parents


def allowed(path: Path, room: str = "") -> set[str]:
    """The rooms that a file may import."""
    room = room or room_of(path)
    if room == SESSIONS:
        feature = (
            {".".join(path.relative_to(PACKAGE).parts[:2])} if "in_worker" in str(path) else ()
        )
        return {SESSIONS, "worker", "frameworks", "model", *feature}
    if room.startswith("features."):
        return {*CORE, "features", room} - {"worker"}
    if room in CORE:
        return {room, *CORE[room], *({"features"} if room not in ("model", "frameworks") else ())}
    return {*CORE, "features"} - {"worker"}


def above(path: Path, room: str = "") -> set[str]:
    """The rooms of ours that a file imports, and may not."""
    return {imported_room(module) for module in imported_by(path) if ours(module)} - {
        *allowed(path, room),
        "",
    }


def ours(module: str) -> bool:
    return module.split(".")[0] in ("lstm_bench", "study")


def imported_room(module: str) -> str:
    """The room of what `from module import name` names, both joined."""
    top, *parts = module.split(".")
    if top == "study":
        return "study"
    if not parts or not (PACKAGE / parts[0]).is_dir():
        return ""
    file = PACKAGE.joinpath(*parts)
    while not (file.with_suffix(".py").is_file() or (file / "__init__.py").is_file()):
        file = file.parent
    return room_of(
        file.with_suffix(".py") if file.with_suffix(".py").is_file() else file / "__init__.py"
    )


def foreign(path: Path) -> set[str]:
    """What a file of the worker's imports of others, and may not."""
    named = place(path) if is_ours(path) else ""
    home = AT_HOME.get(named, set()) | AT_HOME.get(named.removeprefix("frameworks/"), set())
    here = {m.split(".")[0] for f in frameworks_of(path) for m in FRAMEWORKS[f].requires}
    mine = {*sys.stdlib_module_names, "lstm_bench", "lstm_kernels", "numpy", *home, *here}
    return {module.split(".")[0] for module in imported_by(path)} - mine


def frameworks_of(path: Path) -> list[str]:
    """The frameworks of a folder in `frameworks/`."""
    rows = path.parent / "rows.py"
    text = rows.read_text() if rows.is_file() else ""
    return [name for name in FRAMEWORKS if f'"{name}"' in text]


def imported_by(path: Path) -> Iterator[str]:
    """What a file imports as it runs: `a.b.c` of `from a.b import c`."""
    tree = ast.parse(path.read_text())
    named = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)
    ]
    types = {id(node) for one in named for node in ast.walk(one)}
    for node in ast.walk(tree):
        if id(node) in types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports by a relative name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
