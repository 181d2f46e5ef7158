"""Grid file to plan. An error names the file, the key, what was found and what was expected."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

import yaml

from lstm_bench.model import fake_script, registry
from lstm_bench.model.shape_filter import holds
from lstm_bench.model.types import (
    Implementation,
    LstmBenchError,
    Sampling,
    Settings,
    Shape,
)
from lstm_bench.runs.plan import MAX_CELLS, Plan

EXAMPLE = "grids/default.yaml"
MAX_FILE_BYTES = 1 << 20
LARGEST = {"hidden": 65_536, "batch": 65_536, "timesteps": 1_000_000, "input": 65_536}
MAX_ELEMENTS = 2**31  # of one array: beyond this cuDNN and BLAS count in 32 bits

KEYS = (
    *("name", "hidden", "batch", "timesteps", "input", "shapes", "implementations"),
    *("device", "threads", "tf32", "amp", "seed", "passes", "controls"),
    *("profile", "energy", "sampling", "environments", "fake"),
)
_SAMPLING = {f.name for f in fields(Sampling)}
_COUNTS = (
    *("rounds", "max_rounds", "block_calls", "warmup_calls", "queued_calls"),
    "loads",
)
MOST = {"loads": 100}  # a load takes 0.7 s


def shipped() -> dict[str, Path]:
    """The project's own grids by name: in the package where it is installed, beside it else."""
    package = Path(__file__).resolve().parent.parent
    folders = (package / "grids", package.parent / "grids")
    found = next((folder for folder in folders if folder.is_dir()), folders[0])
    return {path.stem: path for path in sorted(found.glob("*.yaml"))}


def find(path: Path) -> Path:
    """A file that is there; else `paper`, `paper.yaml` and `grids/paper.yaml` are the project's."""
    own = shipped().get(path.stem)
    if own is None or path.is_file():
        return path
    return own if path in (Path(own.stem), Path(own.name), Path("grids", own.name)) else path


def read(path: Path) -> dict[str, Any]:
    """The file's mapping, with its keys checked; values are checked by `plan`."""
    try:
        if path.is_dir():
            raise LstmBenchError(f"{path}: is a folder, expected a grid file such as {EXAMPLE}")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise LstmBenchError(f"{path}: over 1 MiB, expected a short grid file")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LstmBenchError(
            f"{path}: no such file{registry.nearest(path.stem, shipped())} (or a file of your own:"
            " `hidden: [64]`, `batch: [1]`, `timesteps: [10]` and `implementations: [pytorch]`, a"
            " line each)"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise LstmBenchError(f"{path}: cannot be read: {error}") from None
    try:
        data = yaml.load(text, Loader=_Loader)  # a SafeLoader: see below
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or type(error).__name__
        raise LstmBenchError(f"{path}{line}: not valid YAML: {problem}") from None
    if not isinstance(data, dict):
        raise LstmBenchError(f"{path}: found {_kind(data)}, expected keys such as hidden: [128]")
    if unknown := [key for key in data if key not in KEYS]:
        told = (f"unknown key {key!r}{registry.nearest(str(key), KEYS)}" for key in unknown)
        raise LstmBenchError("\n".join(f"{path}: {line}" for line in told))
    return data


def plan(
    data: Mapping[str, Any],
    path: Path,
    *,
    device: str,
    threads: int,
    shapes: Sequence[Shape] = (),
    implementations: Sequence[str] | None = None,
    environments: Mapping[str, str] | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan of a grid; `device` and `threads` are what "auto" and "all" mean on this machine.

    The keyword arguments from `shapes` on are the command line's, and go before the file.
    """
    where = str(path)
    origin = "--implementations" if implementations is not None else f"{where}: implementations"

    def on() -> str:
        chosen = _choice(data, "device", ("auto", "cpu", "cuda"), "auto", where)
        return device if chosen == "auto" else chosen

    def counts() -> list[int]:
        return _threads(data, where, threads, on())

    def rows() -> tuple[Implementation, ...]:
        names = implementations if implementations is not None else _names(data, where)
        return _rows(list(map(str, names)), counts()[1:], origin, _fakes(data, where))

    found = _all(
        name=lambda: _name(data, path),
        shapes=lambda: tuple(_given(shapes) if shapes else _shapes(data, where)),
        implementations=rows,
        device=on,
        threads=lambda: counts()[0],
        tf32=lambda: _boolean(data, "tf32", False, where),
        amp=lambda: _choice(data, "amp", ("auto", "fp16", "bf16"), "auto", where),
        seed=lambda: _integer(data.get("seed", 1), f"{where}: seed", 0, 2**32 - 1),
        sampling=lambda: _sampling(
            {**_mapping(data, "sampling", where), **(sampling or {})}, where
        ),
        passes=lambda: _integer(data.get("passes", 1), f"{where}: passes", 1, 100),
        controls=lambda: _integer(data.get("controls", 2), f"{where}: controls", 0, 100),
        profile=lambda: _boolean(data, "profile", False, where),
        energy_where=lambda: _conditions(data, "energy", where),
        environments=lambda: {**_environments(data, where), **(environments or {})},
    )
    settings = {name: found.pop(name) for name in ("device", "threads", "tf32", "amp", "seed")}
    energy = data.get("energy", False) is not False
    result = Plan(settings=Settings(**settings), energy=energy, **found)
    result.check_size(where)
    return result


def _all(**checks: Callable[[], Any]) -> dict[str, Any]:
    """What each check gives; of those that fail, all that they say, a line each."""
    found, said = {}, []
    for name, check in checks.items():
        try:
            found[name] = check()
        except LstmBenchError as error:
            said.append(str(error))
    if said:
        raise LstmBenchError("\n".join(dict.fromkeys(said)))  # one may lean on another
    return found


def _fakes(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    fakes = _mapping(data, "fake", where)
    for name, script in fakes.items():
        if name != "fake" and name in registry.IMPLEMENTATIONS:
            raise LstmBenchError(f"{where}: fake.{name}: is a real implementation's name")
        fake_script.check(script, f"{where}: fake.{name}")
    return fakes


def _rows(
    names: Sequence[str], threads: Sequence[int], origin: str, fakes: Mapping[str, Any]
) -> tuple[Implementation, ...]:
    """The rows that were named, each also with so many CPU threads where that can be."""
    rows = {}
    for name in names:
        row = rows[name] = registry.find(name, origin, fakes)
        if row.threads and "cpu" not in row.devices:
            plain = name.rpartition("@")[0]
            raise LstmBenchError(
                f"{origin}: {name}: {plain} does not run on a CPU, and @{row.threads} is a number"
                f" of CPU threads; name it {plain}"
            )
        if not row.threads and "cpu" in row.devices:
            rows |= {f"{name}@{n}": registry.find(f"{name}@{n}", origin, fakes) for n in threads}
    return tuple(rows.values())


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Safe YAML that also refuses a key given twice: the first would be lost without a word.

    Nor may anything be named and used again: a few such lines can stand for gigabytes.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "an alias is not allowed", mark)
        return super().compose_node(parent, index)


def _no_twice(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key_node, _ in node.value:
        key = str(key_node.value)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} stands twice", key_node.start_mark
            )
        seen.add(key)
    return dict(loader.construct_mapping(node, deep=True))


# YAML 1.1 takes 5e-3 for text; everybody else takes it for a number.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _no_twice)


def _kind(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", type(None): "nothing"}
    return kinds.get(type(value), repr(value))


def _name(data: Mapping[str, Any], path: Path) -> str:
    name = data.get("name", path.stem)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}", name):
        stated = "name:" if "name" in data else "the file's own name, for want of `name:`:"
        raise LstmBenchError(
            f"{path}: {stated} found {name!r}, expected up to 80 letters, digits, '-' and '_', a"
            " letter or digit first"
        )
    return name


def _integer(value: Any, where: str, low: int, high: int, other: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise LstmBenchError(
            f"{where}: found {value!r}, expected {other}a whole number, {low} to {high}"
        )
    return int(value)


def _boolean(data: Mapping[str, Any], key: str, default: bool, where: str) -> bool:
    value = data.get(key, default)
    if not isinstance(value, bool):
        raise LstmBenchError(f"{where}: {key}: found {value!r}, expected true or false")
    return value


def _conditions(data: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    """Shapes that a key is limited to: true, false, or conditions such as timesteps=100."""
    value = data.get(key, False)
    if isinstance(value, bool):
        return ()
    conditions = [value] if isinstance(value, str) else value
    if not isinstance(conditions, list) or not conditions:
        raise LstmBenchError(
            f"{where}: {key}: found {value!r}, expected true, false, or conditions such as"
            " [timesteps=100]"
        )
    for condition in conditions:
        holds(str(condition), Shape(1, 1, 1, 1), f"{where}: {key}")  # says what is wrong with it
    return tuple(map(str, conditions))


def _choice(
    data: Mapping[str, Any],
    key: str,
    allowed: tuple[str, ...],
    default: str,
    where: str,
) -> str:
    value = data.get(key, default)
    if value not in allowed:
        expected = " or ".join(allowed)
        raise LstmBenchError(f"{where}: {key}: found {value!r}, expected {expected}")
    return str(value)


def _threads(data: Mapping[str, Any], where: str, all_threads: int, on: str) -> list[int]:
    """The thread counts, the largest first: that is the plain row's, the others get `@N`.

    On a GPU the plain row runs there, and every count of a list is a row on the CPU.
    """
    value = data.get("threads", "all")
    values = value if isinstance(value, list) else [value]
    if not values:
        raise LstmBenchError(f"{where}: threads: found an empty list, expected all, or [1, all]")
    counts = {
        all_threads if v == "all" else _integer(v, f"{where}: threads", 1, 4096, "all, or ")
        for v in values
    }
    ordered = sorted(counts, reverse=True)
    beside = isinstance(value, list) and on == "cuda"
    return [ordered[0], *(ordered if beside else ordered[1:])]


def _mapping(data: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = data.get(key) or {}
    if not isinstance(value, dict):
        raise LstmBenchError(f"{where}: {key}: found {_kind(value)}, expected a mapping")
    return {str(k): v for k, v in value.items()}


def _names(data: Mapping[str, Any], where: str) -> list[str]:
    names = data.get("implementations", list(registry.PAPER))
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list) or not names:
        raise LstmBenchError(
            f"{where}: implementations: found {names!r}, expected a list such as [pytorch]"
        )
    return names


def _environments(data: Mapping[str, Any], where: str) -> dict[str, str]:
    found = _mapping(data, "environments", where)
    for name, python in found.items():
        check_environment(name, python, f"{where}: environments")
    return {name: os.path.expanduser(python) for name, python in found.items()}


def check_environment(framework: str, python: Any, where: str) -> None:
    """Refuse a framework that does not exist, or an interpreter that is no path."""
    if framework not in registry.FRAMEWORKS:
        near = registry.nearest(framework, registry.FRAMEWORKS)
        raise LstmBenchError(f"{where}: no framework is called {framework!r}{near}")
    if not isinstance(python, str) or not python:
        raise LstmBenchError(f"{where}: {framework}: found {python!r}, expected a path to python")


def _axis(data: Mapping[str, Any], key: str, where: str) -> list[int]:
    value = data[key]
    values = [value] if isinstance(value, int) else value
    if not isinstance(values, list) or not values:
        raise LstmBenchError(f"{where}: {key}: found {value!r}, expected a list such as [128, 256]")
    sizes = [_integer(v, f"{where}: {key}", 1, LARGEST[key]) for v in values]
    return list(dict.fromkeys(sizes))


def _shapes(data: Mapping[str, Any], where: str) -> list[Shape]:
    axes = [key for key in ("hidden", "batch", "timesteps", "input") if key in data]
    if "shapes" in data:
        if axes:
            raise LstmBenchError(f"{where}: found shapes and {axes[0]}, expected one of the two")
        return _listed_shapes(data["shapes"], where)
    for key in ("hidden", "batch", "timesteps"):
        if key not in data:
            raise LstmBenchError(f"{where}: {key} is missing, expected a list such as {key}: [128]")
    values = {key: _axis(data, key, where) for key in axes}
    if math.prod(len(v) for v in values.values()) > MAX_CELLS:
        raise LstmBenchError(f"{where}: over {MAX_CELLS:,} shapes, expected fewer")
    product = itertools.product(
        values["hidden"], values["batch"], values["timesteps"], values.get("input", [0])
    )
    return [_fitting(Shape(h, b, t, i or h), where) for h, b, t, i in product]


def _listed_shapes(value: Any, where: str) -> list[Shape]:
    if not isinstance(value, list) or not value or len(value) > MAX_CELLS:
        raise LstmBenchError(f"{where}: shapes: expected a list such as [[512, 16, 25]]")
    shapes = []
    for number, entry in enumerate(value, 1):
        at = f"{where}: shapes, entry {number}"
        if not isinstance(entry, list) or len(entry) not in (3, 4):
            raise LstmBenchError(
                f"{at}: found {entry!r}, expected [hidden, batch, timesteps] or a fourth, the input"
            )
        shapes.append(_sized([*entry, entry[0]][:4], at))  # the input defaults to the hidden size
    return list(dict.fromkeys(shapes))


def _given(shapes: Sequence[Shape]) -> list[Shape]:
    """The shapes of `--shape`, if all can be."""
    each = dict.fromkeys(shapes)
    return [_sized(astuple(shape), f"--shape {shape.label}") for shape in each]


def _sized(sizes: Sequence[Any], where: str) -> Shape:
    pairs = zip(LARGEST, sizes, strict=True)
    return _fitting(
        Shape(*(_integer(size, f"{where}: {k}", 1, LARGEST[k]) for k, size in pairs)), where
    )


def _fitting(shape: Shape, where: str) -> Shape:
    largest = max(
        shape.timesteps * shape.batch * max(shape.hidden, shape.input_size),
        4 * shape.hidden * max(shape.hidden, shape.input_size),
    )
    if largest > MAX_ELEMENTS:
        raise LstmBenchError(
            f"{where}: the shape {shape.label} has an array of {largest:,} elements,"
            f" expected at most {MAX_ELEMENTS:,}"
        )
    return shape


def _sampling(data: Mapping[str, Any], where: str) -> Sampling:
    for key, value in data.items():
        at = f"{where}: sampling.{key}"
        if key == "builds":
            raise LstmBenchError(f"{at}: is gone, a cell is one build; leave it out")
        if key not in _SAMPLING:
            raise LstmBenchError(f"{at}: unknown key{registry.nearest(key, sorted(_SAMPLING))}")
        if key in _COUNTS:
            if value is not None or key != "queued_calls":
                _integer(value, at, 1, MOST.get(key, 100_000))
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
            raise LstmBenchError(f"{at}: found {value!r}, expected a number above 0, below 1e6")
    sampling = replace(Sampling(), **data)
    if sampling.max_rounds < sampling.rounds:
        if "max_rounds" in data and "rounds" in data:
            raise LstmBenchError(
                f"{where}: sampling.max_rounds: found {sampling.max_rounds}, expected at least"
                f" rounds, which is {sampling.rounds}"
            )
        stated = sampling.max_rounds if "max_rounds" in data else sampling.rounds
        sampling = replace(sampling, rounds=stated, max_rounds=stated)
    return sampling
