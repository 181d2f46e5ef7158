"""Grid file to plan. An error names the file, the key, what was found and what was expected."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta

from lstm_bench import frameworks as registry
from lstm_bench.model import fake_script
from lstm_bench.model.shape import FULL, PASSES, for_passes, lengths_of, parsed
from lstm_bench.model.shape_filter import holds
from lstm_bench.model.suggest import nearest
from lstm_bench.model.types import (
    INPUTS,
    TOLERANCES,
    Implementation,
    LstmBenchError,
    Sampling,
    Settings,
    Shape,
)
from lstm_bench.model.units import listed
from lstm_bench.runs.plan import MAX_CELLS, Plan, Workload

EXAMPLE = "grids/default.yaml"
MAX_FILE_BYTES = 1 << 20
MAX_ELEMENTS = 2**31  # of one array: beyond this cuDNN and BLAS count in 32 bits

_TEXT = Annotated[str, Meta(description="a text")]
_WORKLOAD = ("cuda", "cpu", "source", "step_s")
_TEXTS = [(key, _TEXT) for key in _WORKLOAD[:3]]
#: Keys of older grids, and the remedy for each.
GONE = {
    "tf32": "; name rows that use it, as in implementations: [pytorch, pytorch-tf32]",
    "builds": "; a cell is one build now: leave it out",
}


def _whole(low: int, high: int, other: str = "") -> Any:
    expected = f"{other}a whole number, {low} to {high}"
    return Annotated[int, Meta(ge=low, le=high, description=expected)]


def _one_of(*allowed: str) -> Any:
    return Annotated[Literal[allowed], Meta(description=listed(allowed, " or "))]


def _list(expected: str, low: int = 1, high: int = MAX_CELLS) -> Any:
    return Annotated[list[Any], Meta(min_length=low, max_length=high, description=expected)]


#: The kinds of values, each with the description that a message quotes.
_YES_OR_NO = Annotated[bool, Meta(description="true or false")]
_POSITIVE = Annotated[float, Meta(gt=0, lt=1e6, description="a number above 0, below 1e6")]
_DEVICE = _one_of("auto", "cpu", "cuda")
_PYTHON = Annotated[str, Meta(min_length=1, description="a path to python")]
_NAME = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,79}\Z",
        description="up to 80 letters, digits, '-' and '_', a letter or digit first",
    ),
]
_SIZES = {
    "hidden": _whole(1, 65_536),
    "batch": _whole(1, 65_536),
    "timesteps": _whole(1, 1_000_000),
    "input": _whole(1, 65_536),
    "layers": _whole(1, 100),
    "directions": _whole(1, 2),
}
_SETTINGS = {
    "amp": _one_of("auto", "fp16", "bf16"),
    "state": _one_of("fixed", "carried"),
    "inputs": _one_of(*INPUTS),
    "seed": _whole(0, 2**32 - 1),
}
_SCALARS = {"passes": _whole(1, 100), "controls": _whole(0, 100), "profile": _YES_OR_NO}
KEYS = (
    *(
        "name",
        *_SIZES,
        "lengths",
        "pass",
        "shapes",
        "workloads",
        "implementations",
        "device",
        "threads",
        *_SETTINGS,
        *_SCALARS,
    ),
    *("energy", "sampling", "environments", "missing", "fake"),
)
_SAMPLING = {
    **{f.name: _POSITIVE if f.type == "float" else _whole(1, 100_000) for f in fields(Sampling)},
    "loads": _whole(1, 100),  # a load takes 0.7 s
}
_TIME = Annotated[float, Meta(ge=0, lt=1e6, description="a number from 0 on")]
_RELATIVE = Annotated[float, Meta(gt=-1, lt=1e6, description="a number above -1")]
_COUNT = _whole(0, 2**53)
_LETTERS = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9]+\Z", description="letters and digits")]
_SCRIPT = {
    **dict.fromkeys(("call_s", "first_call_s", "build_s", "noise", "cpu"), _TIME),
    **{"drift": _RELATIVE, "copy_offset": _RELATIVE, "real": _YES_OR_NO, "process": _LETTERS},
    **dict.fromkeys(("switches", "after", "hidden"), _COUNT),
    "fault": _one_of(*fake_script.FAULTS),
    "when": _one_of(*fake_script.MOMENTS),
    "profile": _one_of(*fake_script.PROFILES),
    "precision": _one_of(*TOLERANCES),
}


def shipped() -> dict[str, Path]:
    """The project's own grids by name: in the package where it is installed, beside it else."""
    package = Path(__file__).resolve().parent.parent
    folders = (package / "grids", package.parent / "grids")
    grids = next((folder for folder in folders if folder.is_dir()), folders[0])
    return {path.stem: path for path in sorted(grids.glob("*.yaml"))}


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
            f"{path}: no such file{nearest(path.stem, shipped())} (or a file of your own:"
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
        lines = (f"{path}: unknown key {key!r}{_instead(key, KEYS)}" for key in unknown)
        raise LstmBenchError("\n".join(lines))
    return data


def skips_missing(data: Mapping[str, Any], path: Path) -> bool:
    """Whether a grid goes without frameworks that are not installed."""
    kind = _one_of("fail", "skip")
    return bool(_checked(data.get("missing", "fail"), kind, f"{path}: missing") == "skip")


def _instead(key: Any, known: Sequence[str]) -> str:
    return GONE.get(str(key)) or nearest(str(key), known)


def at_shapes(shapes: Sequence[Shape]) -> tuple[Path, dict[str, Any]]:
    """Return the default grid's file, and its keys under a name after these shapes."""
    name = f"shape-{shapes[0].slug}" if len(set(shapes)) == 1 else "shapes"
    default = shipped()["default"]
    return default, {**read(default), "name": name}


def plan(
    data: Mapping[str, Any],
    path: Path,
    *,
    device: str,
    threads: int,
    shapes: Sequence[Shape] = (),
    implementations: Sequence[str] | None = None,
    environments: Mapping[str, str] | None = None,
    against: Mapping[str, str] | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan of a grid; `device` and `threads` are what "auto" and "all" mean on this machine.

    `against` has other versions of frameworks, as `pytorch~other`, and their interpreters: every
    row of theirs is measured in those, too.

    The keyword arguments from `shapes` on are the command line's, and go before the file.
    """
    where = str(path)
    origin = "--implementations" if implementations is not None else f"{where}: implementations"

    def on() -> str:
        chosen: str = _checked(data.get("device", "auto"), _DEVICE, f"{where}: device")
        return device if chosen == "auto" else chosen

    def counts() -> list[int]:
        return _threads(data, where, threads, on())

    def rows() -> tuple[Implementation, ...]:
        fakes = _fakes(data, where)
        names = implementations
        if names is None:
            names = _names(data, where, on(), fakes)
        return _doubled(_rows(list(map(str, names)), counts()[1:], origin, fakes), against, fakes)

    def workloads() -> dict[str, Any]:
        return {} if shapes else _workloads(data, where, on())

    named = "name" if "name" in data else "the file's own name, for want of `name:`"
    checked = _all(
        name=lambda: _checked(data.get("name", path.stem), _NAME, f"{where}: {named}"),
        shapes=lambda: tuple(
            for_passes(
                [sized(shape, f"--shape {shape.label}") for shape in shapes]
                or _shapes(data, where, [load.shape for load in workloads().get("workloads", ())]),
                _passes(data, where),
            )
        ),
        more=workloads,
        implementations=rows,
        device=on,
        threads=lambda: counts()[0],
        **{
            key: partial(_checked, data[key], kind, f"{where}: {key}")
            for key, kind in {**_SETTINGS, **_SCALARS}.items()
            if key in data
        },
        sampling=lambda: _sampling(
            {**_mapping(data, "sampling", where), **(sampling or {})}, where
        ),
        energy_where=lambda: _conditions(data, "energy", where),
        environments=lambda: {
            **_environments(data, where),
            **(environments or {}),
            **(against or {}),
        },
    )
    checked |= checked.pop("more")
    stated = ({"device", "threads"} | _SETTINGS.keys()) & checked.keys()
    settings = Settings(**{name: checked.pop(name) for name in stated})
    if settings.device == "cpu" and settings.inputs != "device":
        raise LstmBenchError(
            f"{where}: inputs: found {settings.inputs} and a run on the CPU, which copies nothing:"
            " x is in host memory already; type --inputs device, or --device cuda where a GPU is"
        )
    unlike = [f"{key}: {data[key]}" for key in ("state", "inputs") if key in data]
    unlike = [text for text in unlike if text not in ("state: fixed", "inputs: device")]
    if unlike and any(shape.training for shape in checked["shapes"]):
        raise LstmBenchError(
            f"{where}: found pass: training and {unlike[0]}; a training step starts from h0 and c0,"
            " with x on the device: leave one of the two out"
        )
    energy = data.get("energy", False) is not False
    threads_asked = data.get("threads", "all")
    every = "all" in (threads_asked if isinstance(threads_asked, list) else [threads_asked])
    result = Plan(
        settings=settings,
        energy=energy,
        all_threads=every,
        controls_shuffled=True,
        bases=registry.bases(row.name for row in checked["implementations"]),
        **checked,
    )
    result.check_size(where)
    return result


def _all(**checks: Callable[[], Any]) -> dict[str, Any]:
    """The result of each check, or one error with the messages of all that fail."""
    results, mistakes = {}, []
    for name, check in checks.items():
        try:
            results[name] = check()
        except LstmBenchError as error:
            mistakes.append(str(error))
    if mistakes:
        raise LstmBenchError("\n".join(dict.fromkeys(mistakes)))  # some lean on others
    return results


def _fakes(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    fakes = _mapping(data, "fake", where)
    for name, script in fakes.items():
        if name != "fake" and name in registry.IMPLEMENTATIONS:
            raise LstmBenchError(f"{where}: fake.{name}: is a real implementation's name")
        check_script(script, f"{where}: fake.{name}")
    return fakes


def check_script(script: Any, where: str) -> None:
    """Refuse a script that no fake can play."""
    for key, value in _mapping({"script": script}, "script", where).items():
        if key not in _SCRIPT:
            raise LstmBenchError(f"{where}: unknown key {key!r}{nearest(key, _SCRIPT)}")
        if value is not None or fake_script.SCRIPT[key] is not None:
            _checked(value, _SCRIPT[key], f"{where}.{key}")


def _rows(
    names: Sequence[str], threads: Sequence[int], origin: str, fakes: Mapping[str, Any]
) -> tuple[Implementation, ...]:
    """The rows that were named, each also with so many CPU threads where that can be."""
    rows = {}
    for name in names:
        row = registry.find(name, origin, fakes)
        name, rows[row.name] = row.name, row
        if row.threads and "cpu" not in row.devices:
            plain = name.rpartition("@")[0]
            raise LstmBenchError(
                f"{origin}: {name}: {plain} does not run on a CPU, and @{row.threads} is a number"
                f" of CPU threads; name it {plain}"
            )
        if not row.threads and "cpu" in row.devices:
            rows |= {f"{name}@{n}": registry.find(f"{name}@{n}", origin, fakes) for n in threads}
    return tuple(rows.values())


def _doubled(
    rows: Sequence[Implementation],
    against: Mapping[str, str] | None,
    fakes: Mapping[str, Any],
) -> tuple[Implementation, ...]:
    """The rows, each followed by itself in the other versions of its framework."""
    result = {}
    used = set()
    for row in rows:
        result[row.name] = row
        for other in against or {}:
            framework, _, version = other.partition("~")
            kind = "fake" if row.framework.startswith("fake-") else row.framework
            if framework == kind and not row.version:
                name = registry.in_version(row, version)
                result[name] = registry.find(name, "--against", fakes)
                used.add(other)
    if idle := [other.partition("~")[0] for other in against or {} if other not in used]:
        here = ", ".join(dict.fromkeys(row.framework for row in rows))
        raise LstmBenchError(
            f"--against {idle[0]}: the grid has no row of it, expected one of {here}; name rows of"
            " it with --implementations"
        )
    return tuple(result.values())


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


def _checked(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        expected = kind.__metadata__[0].description
        raise LstmBenchError(f"{where}: found {value!r}, expected {expected}") from None


def _conditions(data: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    """Shapes that a key is limited to: true, false, or conditions such as timesteps=100."""
    value = data.get(key, False)
    if isinstance(value, bool):
        return ()
    expected = _list("true, false, or conditions such as [timesteps=100]")
    conditions = [value] if isinstance(value, str) else _checked(value, expected, f"{where}: {key}")
    for condition in conditions:
        holds(str(condition), Shape(1, 1, 1, 1), f"{where}: {key}")  # says what is wrong with it
    return tuple(map(str, conditions))


def _threads(data: Mapping[str, Any], where: str, all_threads: int, on: str) -> list[int]:
    """The thread counts, the largest first: that is the plain row's, the others get `@N`.

    On a GPU the plain row runs there, and every count of a list is a row on the CPU.
    """
    value = data.get("threads", "all")
    values = value if isinstance(value, list) else [value]
    at, count = f"{where}: threads", _whole(1, 4096, "all, or ")
    _checked(values, _list("all, or [1, all]"), at)
    counts = {all_threads if v == "all" else _checked(v, count, at) for v in values}
    ordered = sorted(counts, reverse=True)
    beside = isinstance(value, list) and on == "cuda"
    return [ordered[0], *(ordered if beside else ordered[1:])]


def _mapping(data: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = data.get(key) or {}
    if not isinstance(value, dict):
        raise LstmBenchError(f"{where}: {key}: found {_kind(value)}, expected a mapping")
    return {str(k): v for k, v in value.items()}


def _names(data: Mapping[str, Any], where: str, on: str, fakes: Mapping[str, Any]) -> list[str]:
    """The rows of the file; an entry such as `cpu: [openvino]` is for that kind of device."""
    given = data.get("implementations", list(registry.PAPER))
    entries = [given] if isinstance(given, str) else given
    at = f"{where}: implementations"
    kind = _list("a list such as [pytorch]")
    names = []
    for entry in _checked(entries, kind, at):
        if not isinstance(entry, dict):
            names.append(str(entry))
            continue
        for device, rows in entry.items():
            _checked(device, _one_of("cpu", "cuda"), at)
            rows = [str(row) for row in _checked(rows, kind, f"{at}: {device}")]
            _rows(rows, [], f"{at}: {device}", fakes)  # also those that are not for this device
            names += rows if device == on else []
    if not names:
        raise LstmBenchError(
            f"{at}: found no row for {on}, expected one, such as - {on}: [pytorch]"
        )
    return names


def _environments(data: Mapping[str, Any], where: str) -> dict[str, str]:
    pythons = _mapping(data, "environments", where)
    for name, python in pythons.items():
        check_environment(name, python, f"{where}: environments")
    return {name: os.path.expanduser(python) for name, python in pythons.items()}


def check_environment(framework: str, python: Any, where: str) -> None:
    """Refuse a framework that does not exist, or an interpreter that is no path."""
    name, mark, version = framework.partition("~")
    if name not in registry.FRAMEWORKS:
        near = nearest(name, registry.FRAMEWORKS)
        raise LstmBenchError(f"{where}: no framework is called {name!r}{near}")
    if mark and not re.fullmatch(registry.VERSION, version):
        raise LstmBenchError(
            f"{where}: found {version!r} behind {name}~, expected a name such as old or 2.12.0: up"
            " to 40 letters, digits, '.', '_', '+' and '-', a letter or digit first"
        )
    _checked(python, _PYTHON, f"{where}: {framework}")


def _workloads(data: Mapping[str, Any], where: str, on: str) -> dict[str, Any]:
    """The real layers that the file names which run on this kind of device, and the others."""
    there, left_out = [], []
    for name, given in _mapping(data, "workloads", where).items():
        at = f"{where}: workloads.{name}"
        if not isinstance(given, dict) or (wrong := sorted({*given} - {*_WORKLOAD})):
            words = f"unknown key {wrong[0]!r}" if isinstance(given, dict) else repr(given)
            raise LstmBenchError(f"{at}: found {words}, expected {', '.join(_WORKLOAD)}")
        named = {key: _checked(given.get(key, ""), kind, f"{at}.{key}") for key, kind in _TEXTS}
        step_s = _checked(given["step_s"], _POSITIVE, f"{at}.step_s") if "step_s" in given else 0.0
        if shape := named[on]:
            there.append(Workload(name, typed(shape, at), named["source"], step_s))
        else:
            left_out.append(name)
    return {"workloads": tuple(there), "left_out": tuple(left_out)}


def _shapes(data: Mapping[str, Any], where: str, named: Sequence[Shape]) -> tuple[Shape, ...]:
    """The shapes that the file lists or names, or the product of its axes."""
    axes = [key for key in _SIZES if key in data]
    if "workloads" in data:
        if also := [*axes, *(key for key in ("shapes", "pass") if key in data)]:
            raise LstmBenchError(f"{where}: found workloads and {also[0]}, expected one of the two")
        return tuple(dict.fromkeys(named))
    if "shapes" in data:
        if axes:
            raise LstmBenchError(f"{where}: found shapes and {axes[0]}, expected one of the two")
        rows_of = _list("a list such as [[512, 16, 25]]")
        row = _list("[hidden, batch, timesteps], or a fourth, the input, or a name", 3, 4)
        entries = enumerate(_checked(data["shapes"], rows_of, f"{where}: shapes"), 1)
        places = [(f"{where}: shapes, entry {number}", entry) for number, entry in entries]
        each = [
            typed(entry, at)
            if isinstance(entry, str)
            else sized(Shape(*[*_checked(entry, row, at), entry[0]][:4]), at)
            for at, entry in places
        ]
        return tuple(dict.fromkeys(each))  # the input defaults to the hidden size
    for key in ("hidden", "batch", "timesteps"):
        if key not in data:
            raise LstmBenchError(f"{where}: {key} is missing, expected a list such as {key}: [128]")
    values = {}
    for key in axes:
        given = [data[key]] if isinstance(data[key], int) else data[key]
        values[key] = _checked(given, _list("a list such as [128, 256]"), f"{where}: {key}")
    if math.prod(map(len, values.values())) > MAX_CELLS:
        raise LstmBenchError(f"{where}: over {MAX_CELLS:,} shapes, expected fewer")
    product = (
        dict(zip(values, sizes, strict=True)) for sizes in itertools.product(*values.values())
    )
    lengths = data.get("lengths", FULL)
    return tuple(dict.fromkeys(sized(_of_axes(sizes, lengths), where) for sizes in product))


def _passes(data: Mapping[str, Any], where: str) -> list[str]:
    """The passes that the file names; none: each shape as its own name says."""
    if "pass" not in data:
        return []
    given, at = data["pass"], f"{where}: pass"
    names = [given] if isinstance(given, str) else _checked(given, _list("a list of passes"), at)
    return [_checked(name, _one_of(*PASSES), at) for name in names]


def _of_axes(sizes: dict[str, Any], lengths: Any) -> Shape:
    return Shape(input_size=sizes.pop("input", sizes["hidden"]), lengths=lengths, **sizes)


def named(name: str, where: str, on: str = "cuda") -> Shape:
    """The shape of a workload by its name, or a shape by its own."""
    given = read(shipped()["workloads"])["workloads"]
    if name not in given:
        if re.fullmatch(r"[a-z][a-z0-9-]*", name):
            near = nearest(name, given)
            raise LstmBenchError(
                f"{where}: no workload is called {name!r}{near}; there are: {', '.join(given)}"
            )
        return typed(name, where)
    own = given[name]
    return typed(own.get(on) or own["cuda"], where)


def typed(text: str, where: str) -> Shape:
    """The shape such as H,B,T that `where` names, if it can be measured."""
    return sized(parsed(text, where), f"{where} {text}")


def sized(shape: Shape, where: str) -> Shape:
    """Return the shape if it can be measured."""
    for key, kind in _SIZES.items():
        _checked(getattr(shape, "input_size" if key == "input" else key), kind, f"{where}: {key}")
    at = f"{where}: lengths"
    shape = replace(shape, lengths=lengths_of(shape.lengths, (shape.batch, shape.timesteps), at))
    widest = max(*shape.widths, shape.directions * shape.hidden)
    largest = max(shape.timesteps * shape.batch * widest, 4 * shape.hidden * widest)
    if largest > MAX_ELEMENTS:
        raise LstmBenchError(
            f"{where}: the shape {shape.label} has an array of {largest:,} elements,"
            f" expected at most {MAX_ELEMENTS:,}"
        )
    return shape


def _sampling(data: Mapping[str, Any], where: str) -> Sampling:
    for key, value in data.items():
        at = f"{where}: sampling.{key}"
        if key not in _SAMPLING:
            raise LstmBenchError(f"{at}: unknown key{_instead(key, sorted(_SAMPLING))}")
        if value is not None or key != "queued_calls":
            _checked(value, _SAMPLING[key], at)
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
