"""Documents that are nearly right: refused in a few lines, or all that they are for works.

Seeds of five kinds are changed at random: values replaced by odd ones, keys added and removed,
bytes cut out and put in. No traceback, no hang, no file where none belongs.
"""

import contextlib
import copy
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec
import pytest
import yaml
from builders import manifest, row
from click.testing import CliRunner
from conftest import at_most
from hypothesis import example, given
from hypothesis import strategies as st

from lstm_bench.analysis import comparison, results
from lstm_bench.cli import main
from lstm_bench.driver.cell import Measurement, record_of
from lstm_bench.driver.protocol import Failure
from lstm_bench.driver.worker_pool import WorkerFailed, WorkerProcess, parsed_reply
from lstm_bench.features.page import page
from lstm_bench.model.types import LstmBenchError, Record, dumps, to_json
from lstm_bench.report import pair_report, paper_table, run_report
from lstm_bench.report.document import FORMATS
from lstm_bench.runs import choice, grid
from lstm_bench.runs.plan import Plan

HANG_S = 60
RUN = Path("results", "run")

GRID = {
    **{"hidden": [3, 5], "batch": 2, "timesteps": 4, "implementations": ["fake", "slow"]},
    **{"device": "cpu", "threads": "all", "controls": 1, "passes": 1, "seed": 3, "state": "fixed"},
    "sampling": {"rounds": 3, "max_rounds": 3, "warmup_s": 0.01},
    "fake": {"slow": {"call_s": 0.1, "noise": 0.1, "process": "p"}},
    "environments": {"fake": sys.executable},
}
ROWS = [row("pytorch-amp", None, reason="why", precision="amp-fp16")] + [
    row(name, 0.001 * hidden, hidden, copy=number)
    for name in ("deepbench", "pytorch")
    for hidden in (8, 16)
    for number in (1, 2)
]
RECORDS, MANIFEST = list(map(to_json, ROWS)), manifest(ROWS)
CHECK = {"max_abs_error": 1e-7, "max_rel_error": 1e-7, "tolerance": 1e-5, "passed": True}
TIMES = {"round": 1, "latency_ns": [10, 11], "queued_ns": 20, "queued_calls": 2}
WARM_UP = {"calls": 1, "seconds": 0.1, "settled": True, "call_s": 0.1}
BUILT = {"build_s": 0.1, "first_call_s": 0.1, "path": "p", "precision": "fp32", "memory": {"w": 1}}
VERBS = ("hello", "prepare", "measure", "load", "check")
REPLIES = [
    {"id": 0, "python": "3", "versions": {"a": "1"}, "threads": 1, "tf32": False},
    {"id": 1, **BUILT, "check": CHECK, "warm_up": WARM_UP},
    {"id": 2, "block": {**TIMES, "cpu_s": 0.1, "wall_s": 0.1, "switches": 0}},
    {"id": 3, "calls": 9, "seconds": 0.7},
    {"id": 4, "check": CHECK},
]
COMMANDS = (  # an option with its value is one thing to change, and so is each word of it
    "report, --run run, --mpe, --pair pytorch,deepbench, --format csv, --metric throughput",
    "report, --results results, --format latex, --where hidden>=8, --shape 8,1,1",
    "compare, pytorch, deepbench, --run run, --format json, --metric latency, --where batch=1",
    "grid, grid.yaml, --budget 10m, --threads 2, -i fake, --fast, --deepbench, --device cpu",
    "grid, grid.yaml, --shape 8,1,2, --rigorous, --skip-missing, --resume",
)
LINES = [[part.split() for part in line.split(", ")] for line in COMMANDS]
ODD = (  # "deep" becomes lists in lists where it is written as JSON
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, -(2**70), 1.5, 1e308, -0.0, 5e-324),
    *(math.nan, math.inf, "", " ", "x" * 5000, "\x00", "\x1b[2J", "\u202e", "\U0001f600", "-"),
    *("../../x", "/etc/passwd", "~", "--", "-h", "=1+1", "<script>", "${x}", "%s%n", "nan"),
    *([], {}, [[]], [{}], {"": {}}, [None] * 50, {"a": [1, {"b": 2}]}, "fp16", "amp-fp16", "ok"),
    *(["pytorch"], "pytorch", "fake", "lstm-skip-input", [1, 2], [1e9], "1e9", [-1.0], 10**9),
    *("cuda", "cpu", "deep"),
)
BYTES = (b"", b"\n", b"\x00", b"\xff", b"0", b"-", b"{", b'"', b": ", b"*a", b"&a ", b"!!x ")
words = st.text(max_size=8)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


class Target(NamedTuple):
    seeds: list[Any]
    write: Callable[[Any], bytes]
    read: Callable[[], Any]  # the document in the working folder; may refuse it
    use: Callable[[Any], None]  # what was not refused
    examples: int  # about 3 s of them
    lines: int = 2  # of a refusal, at most


def as_yaml(value: Any) -> bytes:
    return str(yaml.dump(value)).encode()


def as_lines(value: Any) -> bytes:
    lines = value if isinstance(value, list) else [value]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def as_words(value: Any) -> bytes:
    parts = (part if isinstance(part, list) else [part] for part in value)
    return "".join(f"{word}\n" for part in parts for word in part).encode()


def read_grid() -> Plan:
    return grid.plan(grid.read(Path("grid.yaml")), Path("grid.yaml"), device="cpu", threads=2)


def use_plan(plan: Plan) -> None:
    assert Plan.from_json(json.loads(json.dumps(plan.to_json())), "x") == plan
    assert plan.all_cells()


def read_run() -> results.Run:
    run = results.load(RUN)
    choice.resumed(run.plan, {}, RUN)
    return run


def use_run(run: results.Run) -> None:
    """All that `report` and `compare` do with it, but for the figures."""
    for document in (run_report.document(run), paper_table.document(run)):
        for form in FORMATS:
            document.written(form)
    if len(run.implementations) > 1:
        compared = comparison.compare(run.cells, *run.implementations[:2], across=None)
        pair_report.document(compared, [run]).written("json")
    if not run.damaged:  # a page takes as long as all the rest
        page.html(run)


def read_replies() -> list[Any]:
    lines = zip(VERBS, Path("replies").read_bytes().split(b"\n"), strict=False)
    return [parsed_reply(line, verb, number) for number, (verb, line) in enumerate(lines)]


def use_replies(replies: list[Any]) -> None:
    """Records as the driver makes them: their times are possible."""
    if any(isinstance(reply, Failure) for reply in replies) or len(replies) < len(VERBS):
        return
    hello, prepared, measured, *_ = replies
    plan = grid.plan(GRID, Path("g.yaml"), device="cpu", threads=2)
    cell = plan.all_cells()[0]
    worker = cast(WorkerProcess, SimpleNamespace(number=1))
    measurement = Measurement(cell, prepared, worker, blocks=[measured.block])
    measurement.use(measured.block)
    record = record_of(plan, cell, hello, "ok", "", "g", measurement)
    parsed = msgspec.json.decode(dumps(to_json(record)), type=Record)
    assert 0 < parsed.latency_s < math.inf
    assert 0 < parsed.throughput_s < math.inf


def run_command() -> str:
    """A command line, less what no system passes on; no grid is measured."""
    words = Path("words").read_bytes().decode(errors="replace").replace("\x00", "").split("\n")[:-1]
    words = [w for word in words for w in ([word, "--dry-run"] if word == "grid" else [word])]
    done = CliRunner().invoke(main, words)
    assert isinstance(done.exception, (SystemExit, type(None))), repr(done.exception)
    assert done.exit_code in (0, 1, 2)
    if done.exit_code == 2:  # without any words the help comes first
        raise LstmBenchError("lstm-bench: " + done.stderr.rpartition("lstm-bench: ")[2])
    return done.stdout


TARGETS = {
    "grid.yaml": Target([GRID], as_yaml, read_grid, use_plan, 200, 6),
    "results/run/records.jsonl": Target([RECORDS], as_lines, read_run, use_run, 8),
    "results/run/manifest.json": Target([MANIFEST], as_lines, read_run, use_run, 15),
    "replies": Target([REPLIES], as_lines, read_replies, use_replies, 300),
    "words": Target(LINES, as_words, run_command, str, 120),
}
HOME = {name: target.write(target.seeds[0]) for name, target in TARGETS.items()}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with a key into it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


@st.composite
def changed(draw: Any, target: Target) -> bytes:
    """A seed after one to three changes anywhere in it, or to its bytes."""
    value = copy.deepcopy(draw(st.sampled_from(target.seeds)))
    times, of_bytes = draw(st.sampled_from((1, 1, 1, 2, 3))), draw(st.integers(0, 5)) == 5
    for _ in range(0 if of_bytes else times):
        inside = list(places(value))[::-1]  # Hypothesis prefers the first; commands begin there
        container, key = draw(st.sampled_from(inside))
        how = draw(st.sampled_from(("alike", "alike", "alike", "odd", "any", "remove", "add")))
        known = [*ODD, *(c[k] for c, k in inside)]
        alike = [other for other in known if type(other) is type(container[key])]
        some = st.sampled_from(alike if how == "alike" else known)
        put = copy.deepcopy(draw(any_json if how == "any" else some))
        if how == "remove" and len(inside) > 1:
            del container[key]
        elif how == "add" and isinstance(container, list):
            container.insert(key, put)
        else:
            container[str(put) if how == "add" else key] = put
    text = target.write(value)
    for _ in range(times if of_bytes else 0):
        place, cut = draw(st.integers(0, len(text))), draw(st.sampled_from((0, 1, 1, 8, 40)))
        text = text[:place] + draw(st.sampled_from(BYTES)) + text[place + cut :]
    return text


@contextlib.contextmanager
def folder(file: str, text: bytes) -> Iterator[None]:
    """Work where every document is right but this one; nothing may hang, nothing be written."""
    text = text.replace(b'"deep"', b"[" * 100_000 + b"]" * 100_000)
    with CliRunner().isolated_filesystem() as top:
        for name, content in {**HOME, file: text}.items():
            path = Path("home", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        os.chdir("home")
        before = sorted(Path(top).rglob("*"))
        usual = signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"longer than {HANG_S} s"))
        signal.alarm(HANG_S)
        try:
            yield
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, usual)
        assert sorted(Path(top).rglob("*")) == before


@pytest.mark.parametrize("file", TARGETS)
def test_the_seeds_are_accepted(file):
    target = TARGETS[file]
    for seed in target.seeds:
        with folder(file, target.write(seed)):
            parsed = target.read()
            target.use(parsed)
            assert not getattr(parsed, "damaged", 0)


@pytest.mark.parametrize("file", TARGETS)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_changed_document_is_refused_in_a_few_lines_or_works(file):
    target = TARGETS[file]

    @at_most(target.examples)
    @given(changed(target))
    @example(b"")
    @example(b"null\n")
    @example(b"[]\n")
    def holds(text):
        with folder(file, text):
            try:
                parsed = target.read()
            except (LstmBenchError, WorkerFailed) as refusal:
                parsed, lines = None, len(str(refusal).splitlines())
            if parsed is None:
                assert 1 <= lines <= target.lines
            else:
                target.use(parsed)

    holds()
