"""Bad input by the thousand, led by coverage: 0 tracebacks, 0 hangs, 0 files where none belong.

    python tests/fuzz.py [TARGET ...] [--seconds 60] [--seed 1]

Each target takes a document (a grid file, record lines, a manifest, a command line), which is
changed at random: values replaced by odd ones, keys added and taken away, bytes flipped. What
reaches code that nothing reached before is kept and changed further. A fault prints its input.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import made_up
import msgspec
import yaml

import lstm_bench
from lstm_bench.analysis import comparison, results
from lstm_bench.cli import main as command_line
from lstm_bench.driver import preflight, worker_pool
from lstm_bench.driver.cell import Measurement, blank_record, fill
from lstm_bench.driver.protocol import Hello, Measured, Prepared
from lstm_bench.model.types import LstmBenchError, dumps, to_json
from lstm_bench.report import page, pair_report, paper_table, run_report
from lstm_bench.report.document import FORMATS
from lstm_bench.runs import grid
from lstm_bench.runs.plan import Plan

HANG_S = 20
FEWEST = 10  # inputs, however slow the first, which imports what it needs
PACKAGE = str(Path(lstm_bench.__file__).parent)

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, -(2**70), 1.5, 1e308, -0.0, 5e-324),
    *(float("nan"), float("inf"), "", " ", "x" * 5000, "\x00", "\x1b[2J", "\u202e", "\U0001f600"),
    *("../../x", "/etc/passwd", "~", "=1+1", "<script>", "${x}", "%s%n", "nan", "cuda", "cpu"),
    *([], {}, [[]], [{}], {"": {}}, [None] * 50, {"a": [1, {"b": 2}]}, "fp16", "amp-fp16", "ok"),
    *(["pytorch"], "pytorch", "fake", "lstm-skip-input", [1, 2], [1e9], "1e9", [-1.0], 10**9),
)


DEEP = "@deep@"  # becomes lists in lists, deeper than Python could write them


# what is fed, and how it is judged: only LstmBenchError may come out


def feed_grid(text: bytes, folder: Path) -> None:
    path = folder / "grid.yaml"
    path.write_bytes(text)
    plan = grid.plan(grid.read(path), path, device="cpu", threads=2)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json())), "x") == plan


def feed_records(text: bytes, folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps(made_up.manifest(tuple(ROWS))))
    (folder / "records.jsonl").write_bytes(text)
    look_at(folder)


def feed_manifest(text: bytes, folder: Path) -> None:
    (folder / "manifest.json").write_bytes(text)
    (folder / "records.jsonl").write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in ROWS))
    look_at(folder)
    preflight.resumed(Plan.from_json(results.load(folder).manifest["plan"], "x"), {}, folder)


def feed_reply(text: bytes, folder: Path) -> None:
    """A worker's answers, one to a line, as the driver takes them, and what it makes of them."""
    verbs = ("hello", "prepare", "measure", "release")
    made = []
    for number, (verb, line) in enumerate(zip(verbs, text.split(b"\n"), strict=False)):
        try:
            made.append(worker_pool.parsed_reply(line, verb, number))
        except worker_pool.WorkerFailed as failed:
            made.append(str(failed.reason))
    if len(made) > 2 and isinstance(made[1], Prepared) and isinstance(made[2], Measured):
        plan = grid.plan(GRID, folder / "g.yaml", device="cpu", threads=2)
        cell = plan.all_cells()[0]
        one = Measurement(cell, made[1], None, blocks=[made[2].block])
        one.use(made[2].block)
        hello = made[0] if isinstance(made[0], Hello) else None
        dumps(to_json(fill(blank_record(plan, cell, hello, "ok", "", "g"), one)))


def look_at(folder: Path) -> None:
    """All that `report` and `compare` do with a run, but for the figures."""
    run = results.load(folder)
    for document in (run_report.document(run), paper_table.document(run)):
        for form in FORMATS:
            document.written(form)
    names = run.implementations[:2]
    if len(names) == 2:
        found = comparison.compare(run.cells, names[0], names[1], across=None)
        pair_report.document(found, [run]).written("json")
    if not len(run.cells) % 4:  # a page takes as long as all the rest
        page.html(run)


def feed_command(text: bytes, folder: Path) -> None:
    """A command line in a folder with one grid and one run; only what is named may be written."""
    words = text.decode(errors="replace").replace("\x00", "")  # no system passes that on
    arguments = [a for a in words.split("\n") if a]
    if "doctor" in arguments or "list" in arguments:
        return  # they look at the machine, not at their input
    if "grid" in arguments:
        arguments.append("--dry-run")
    home = folder / "home"
    if not home.exists():
        made_up.written(home / "results" / "run", *ROWS)
        (home / "grid.yaml").write_text(yaml.safe_dump(GRID))
    before = os.getcwd()
    os.chdir(home)
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    try:
        with quiet[0], quiet[1]:
            command_line(arguments)
    except SystemExit as end:
        if end.code not in (0, 1, 2):
            raise AssertionError(f"exit code {end.code}") from end
    finally:
        os.chdir(before)
    assert {p.name for p in folder.iterdir()} == {"home"}, "a file outside of its folder"


ROWS = [
    made_up.row(name, 0.001 * (n + 1), hidden=h, copy=c)
    for n, name in enumerate(("deepbench", "pytorch"))
    for h in (8, 16)
    for c in (1, 2)
] + [made_up.row("pytorch-amp", None, reason="why", precision="amp-fp16")]
GRID = {
    **{"hidden": [3, 5], "batch": 2, "timesteps": 4, "implementations": ["fake", "slow"]},
    **{"device": "cpu", "threads": "all", "controls": 1, "passes": 1, "seed": 3, "tf32": False},
    "sampling": {"rounds": 3, "max_rounds": 3, "warmup_s": 0.01},
    "fake": {"slow": {"call_s": 0.1, "noise": 0.1, "process": "p"}},
    "environments": {"fake": sys.executable},
}
WORDS = (
    *("grid", "report", "compare", "grid.yaml", "--run", "run", "--resume", "--mpe", "--pair"),
    *("pytorch,deepbench", "pytorch", "deepbench", "--format", *FORMATS, "--metric", "latency"),
    *("device", "--where", "hidden>=8", "batch=1", "--across", "precision", "--budget", "10m"),
    *("--fast", "--rigorous", "--deepbench", "--threads", "2", "-i", "fake", "--python"),
    *(
        "fake=/bin/true",
        "--skip-missing",
        "--retry-failed",
        "--help",
        "-h",
        "--version",
        "--results",
    ),
    *("results", "../x", "--device", "cpu", "", "\x00", "\u202e", "--run=../../x", "-", "--"),
)
SEEDS: dict[str, list[Any]] = {
    "grid": [GRID],
    "records": [[msgspec.to_builtins(r) for r in ROWS]],
    "manifest": [made_up.manifest(tuple(ROWS))],
    "command": [["report", "--mpe"], ["compare", "pytorch", "deepbench"], ["grid", "grid.yaml"]],
}
CHECK = {"max_abs_error": 1e-7, "max_rel_error": 1e-7, "tolerance": 1e-5, "passed": True}
BLOCK = {"round": 1, "latency_ns": [10, 11], "queued_ns": 20, "queued_calls": 2}
SEEDS["reply"] = [
    [
        {"id": 0, "python": "3", "versions": {"a": "1"}, "threads": 1, "tf32": False},
        {
            **{"id": 1, "build_s": 0.1, "first_call_s": 0.1, "check": CHECK, "path": "p"},
            **{"memory": {"weights": 1}, "precision": "fp32"},
            "warm_up": {"calls": 1, "seconds": 0.1, "settled": True, "call_s": 0.1},
        },
        {"id": 2, "block": {**BLOCK, "cpu_s": 0.1, "wall_s": 0.1, "switches": 0}},
        {"id": 3, "check": CHECK},
    ]
]
FEED: dict[str, Callable[[bytes, Path], None]] = {
    "grid": feed_grid,
    "records": feed_records,
    "manifest": feed_manifest,
    "command": feed_command,
    "reply": feed_reply,
}


def as_bytes(target: str, value: Any) -> bytes:
    levels = 100_000
    text = _as_bytes(target, value)
    return text.replace(f'"{DEEP}"'.encode(), b"[" * levels + b"]" * levels)


def _as_bytes(target: str, value: Any) -> bytes:
    if target == "grid":
        return (
            yaml.dump(value, default_style=None).replace(DEEP, f'"{DEEP}"').encode(errors="replace")
        )
    if target in ("records", "reply"):
        lines = value if isinstance(value, list) else [value]
        return b"".join(json.dumps(v).encode() + b"\n" for v in lines)
    if target == "command":
        return "\n".join(map(str, value)).encode(errors="replace")
    return json.dumps(value).encode()


# changing


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with a key into it."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in list(keys):
        yield value, key
        yield from places(value[key])


def changed(rng: random.Random, target: str, value: Any) -> Any:
    value = copy.deepcopy(value)
    if target == "command":
        for _ in range(rng.randint(1, 3)):
            place = rng.randint(0, len(value))
            word = rng.choice([*WORDS, *(str(o) for o in ODD)])
            value[place : place + rng.randint(0, 1)] = [word] * rng.randint(0, 2)
        return value
    for _ in range(rng.randint(1, 3)):
        found = list(places(value))
        if not found:
            return rng.choice(ODD)
        container, key = rng.choice(found)
        kind = rng.random()
        if kind < 0.6:
            container[key] = copy.deepcopy(rng.choice(ODD))
        elif kind < 0.7:
            container[key] = DEEP
        elif kind < 0.85:
            del container[key]
        elif isinstance(container, dict):
            container[str(rng.choice(ODD))] = copy.deepcopy(rng.choice(ODD))
        else:
            container.insert(key, copy.deepcopy(rng.choice(ODD)))
    return value


def corrupted(rng: random.Random, text: bytes) -> bytes:
    data = bytearray(text)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) + 1)
        kind = rng.random()
        if kind < 0.4 and data:
            data[place % len(data)] = rng.randrange(256)
        elif kind < 0.7:
            del data[place : place + rng.randint(1, 40)]
        else:
            data[place:place] = rng.choice((b"\x00", b"\n", b"{", b"*a", b"&a ", b"!!x ", b"\xff"))
    return bytes(data)


# running


class Hang(BaseException):
    pass


def lines_of(run: Callable[[], None]) -> set[tuple[str, int]]:
    """The lines of the package that a call runs through."""
    seen: set[tuple[str, int]] = set()

    def trace(frame: Any, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(PACKAGE):
            return None
        if event == "line":
            seen.add((name, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        run()
    except LstmBenchError:
        pass
    finally:
        sys.settrace(None)
    return seen


def fuzz(target: str, seconds: float, seed: int = 1) -> tuple[int, int, int]:
    """Feed for so long on a CPU; inputs, inputs kept and lines reached. Raises on a fault."""
    rng = random.Random(f"{target} {seed}")
    corpus = copy.deepcopy(SEEDS[target])
    reached: set[tuple[str, int]] = set()
    inputs, started = 0, time.process_time()

    def hang(*_: Any) -> None:
        raise Hang(f"longer than {HANG_S} s")

    before = signal.signal(signal.SIGALRM, hang)
    try:
        while inputs < FEWEST or time.process_time() - started < seconds:
            value = rng.choice(corpus) if inputs < len(corpus) else None
            value = changed(rng, target, rng.choice(corpus)) if value is None else value
            text = as_bytes(target, value)
            if target != "command" and rng.random() < 0.2:
                text = corrupted(rng, text)
            inputs += 1
            with tempfile.TemporaryDirectory() as folder:
                signal.alarm(HANG_S)
                try:
                    new = lines_of(lambda t=text, f=folder: FEED[target](t, Path(f))) - reached
                except BaseException as fault:
                    if isinstance(fault, KeyboardInterrupt):
                        raise
                    shown = text if len(text) < 4000 else text[:4000] + b"..."
                    raise AssertionError(
                        f"{target}: {type(fault).__name__}: {fault}\n{shown!r}\n"
                        + "".join(traceback.format_tb(fault.__traceback__)[-4:])
                    ) from fault
                finally:
                    signal.alarm(0)
            if new:
                reached |= new
                corpus.append(value)
    finally:
        signal.signal(signal.SIGALRM, before)
    return inputs, len(corpus), len(reached)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", default=list(FEED), metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    for target in options.targets:
        inputs, kept, lines = fuzz(target, options.seconds, options.seed)
        print(f"{target}: {inputs} inputs, {kept} kept, {lines} lines reached, seed {options.seed}")


if __name__ == "__main__":
    main()
