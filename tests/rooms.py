"""The room of each file of the package, what the file imports, and what it may."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import lstm_bench
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
#: The imports that a worker's file may have besides the standard library, NumPy and what its
#: framework requires or records.
AT_HOME = {
    "worker/keras_layer": {"keras"},
    "features/your_model/in_worker": {"torch", "pandas"},  # its `layers` is called by users
    "model/shape_filter": {"pandas"},  # names a type of it
}


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def place(path: Path) -> str:
    """`commands/grid`: a file of the package, as this test names it."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def is_session(path: Path) -> bool:
    """True if only a worker may import it."""
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
    """The imports of a worker's file that it may not have."""
    named = place(path) if is_ours(path) else ""
    needs = [FRAMEWORKS[name] for name in frameworks_of(path)]
    here = {m.split(".")[0] for f in needs for m in (*f.requires, *f.distributions)}
    home = {"lstm_bench", "lstm_kernels", "numpy", *AT_HOME.get(named, ()), *here}
    mine = {*sys.stdlib_module_names, *home}
    return {module.split(".")[0] for module in imported_by(path)} - mine


def frameworks_of(path: Path) -> list[str]:
    """The frameworks of a folder in `frameworks/`."""
    rows = path.parent / "rows.py"
    text = rows.read_text() if rows.is_file() else ""
    return [name for name in FRAMEWORKS if f'"{name}"' in text]


def imported_by(path: Path) -> Iterator[str]:
    """The imports of a file as it runs: `a.b.c` of `from a.b import c`."""
    tree = ast.parse(path.read_text())
    named = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)
    ]
    types = {id(node) for guard in named for node in ast.walk(guard)}
    for node in ast.walk(tree):
        if id(node) in types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports by a relative name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def roots(path: Path) -> set[str]:
    return {module.split(".")[0] for module in imported_by(path)}
