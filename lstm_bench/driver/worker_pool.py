"""The worker processes of a run: started when needed, asked within a time limit, ended."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import lstm_kernels
from lstm_bench.driver import protocol
from lstm_bench.driver.protocol import Failure, Hello
from lstm_bench.frameworks import FRAMEWORKS, framework_of, known
from lstm_bench.model.framework import Framework
from lstm_bench.model.types import LstmBenchError, Settings, Shape, dumps, to_json
from lstm_bench.runs.plan import TWIN, Plan

#: What a worker loads: the very copies of our kernels and of this package.
_PLACES = (Path(lstm_kernels.__path__[0]), Path(__file__).parent.parent)
_PACKAGES = [str(place.resolve()) for place in _PLACES]
_MAX_REPLY = 64 << 20  # bytes; a longer reply means that the worker is broken
_TAIL, _TAIL_LINES = 64 << 10, 3  # bytes of a log that are searched, and lines that are shown
_CRASH = "Fatal Python error: "  # by Python's faulthandler; then the calls, the innermost first
_FRAME = re.compile(r'File "([^"]*)", line \d+ in (\S+)')
_MAX_LOG = 16 << 20  # bytes; a framework that warns at every call would fill the disk
_POLL_S = 0.2

#: Before all else: `python -c` would take modules from the current folder.
NOT_HERE = "import sys; sys.path[:] = [p for p in sys.path if p]"

#: Loads these very copies and nothing beside them, so that both sides are of one version and the
#: driver's own packages stay out of the other interpreter.
_BOOTSTRAP = f"""{NOT_HERE}
import importlib.util
for name in ("lstm_kernels", "lstm_bench"):
    package = sys.argv.pop(1)
    spec = importlib.util.spec_from_file_location(
        name, package + "/__init__.py", submodule_search_locations=[package])
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
"""

_WORKER = """
from lstm_bench.worker.worker import main
main()
"""

_PROBE = """
import contextlib, importlib.metadata, json
modules, names, versions = sys.argv[1].split(","), sys.argv[2].split(","), {}
def there(module):
    try:
        return importlib.util.find_spec(module) is not None
    except Exception:  # the first part of a dotted name is imported, which may do anything
        return False
for name in names:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions[name] = importlib.metadata.version(name)
print(json.dumps({"python": sys.version.split()[0],
                  "missing": [m for m in modules if not there(m)], "versions": versions}))
"""


def with_package(python: str, code: str, *arguments: str) -> list[str]:
    """The command that runs `code` under an interpreter with these copies of the packages."""
    return [python, "-c", _BOOTSTRAP + code, *_PACKAGES, *arguments]


class WorkerFailed(Exception):
    """The worker did not answer as it should; `status` is what this makes of the cell."""

    def __init__(self, status: str, reason: str):
        super().__init__(reason)
        self.status, self.reason = status, reason


def environment(settings: Settings) -> dict[str, str]:
    """The worker's environment: thread counts, short waits, visible devices.

    What the user has set stays, but for the thread counts. All workers of a shape are alive at
    once, and one that spins takes a core from the one that is being timed. GNU's OpenMP spins
    briefly, which the untimed calls before a block cover; LLVM's and Intel's spin for 200 ms
    unless set otherwise. No spinning at all would make PyTorch slower than its users see it.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    env = {"KMP_BLOCKTIME": "1", "PYTHONUNBUFFERED": "1"}
    for framework in FRAMEWORKS.values():
        env |= framework.environment
    env |= os.environ
    env |= dict.fromkeys(names, str(settings.threads))  # the grid's, so that the record is true
    if settings.device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = "-1"
    return env


@functools.lru_cache
def probe(python: str, framework: Framework) -> dict[str, Any]:
    """Ask an interpreter what it has of a framework, without importing that."""
    modules, names = ",".join(framework.requires), ",".join(framework.distributions)
    try:
        done = subprocess.run(
            with_package(python, _PROBE, modules, names),
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        answer = type(error).__name__
    if not isinstance(answer, dict):
        raise LstmBenchError(
            f"{framework.name}={python} (--python, --against, or environments in the grid): no"
            f" Python interpreter that runs here ({answer}); expected a path such as"
            " .venv/bin/python"
        )
    return answer


class WorkerProcess:
    """One child process and the two pipes to it."""

    hello: Hello | None = None  # once it has greeted
    number = 0  # by the order in which a session started its workers

    def __init__(
        self,
        name: str,
        module: str,
        python: str,
        settings: Settings,
        log: Path,
        shared: Sequence[int] = (),  # file descriptors that it may use too
    ):
        self.name, self.settings, self.log = name, settings, log
        self._asked, self._pending = 0, bytearray()
        command = with_package(python, _WORKER, module, dumps(to_json(settings)))
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        try:
            self._log = open(log, "a+b", buffering=0, opener=_open_at_once)  # noqa: SIM115
            self._log_start = self._log.seek(0, os.SEEK_END)
            self._child = subprocess.Popen(
                [*command, str(requests), str(replies)],
                pass_fds=(requests, replies, *shared),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=environment(settings),
                start_new_session=True,  # Ctrl-C is for the driver, which ends the block first
            )
        except OSError as error:
            self._close_pipes()
            raise WorkerFailed("crashed", f"{python}: {error.strerror or error}") from None
        finally:
            os.close(requests)
            os.close(replies)

    @property
    def pid(self) -> int:
        return self._child.pid

    def ask(
        self, verb: str, timeout_s: float, give_up: Callable[[], bool], **arguments: Any
    ) -> Any:
        """One request and its reply (see `protocol`); a worker that fails to give one is ended.

        So is one whose answer nobody wants any more: `give_up` is asked a few times a second.
        """
        self._asked += 1
        request = dumps({"id": self._asked, "do": verb, **arguments}) + "\n"
        try:
            try:
                os.write(self._requests, request.encode())
            except BrokenPipeError:
                raise self._died() from None
            reply = parsed_reply(self._read_line(verb, timeout_s, give_up), verb, self._asked)
        except WorkerFailed:
            self.kill()
            raise
        if os.fstat(self._log.fileno()).st_size > _MAX_LOG:
            self._log.truncate(0)  # the worker appends, so it goes on from there
            self._log_start = 0
        return reply

    def _read_line(self, verb: str, timeout_s: float, give_up: Callable[[], bool]) -> bytes:
        deadline = time.monotonic() + timeout_s
        whole = b"\n" in self._pending
        while not whole:
            left = deadline - time.monotonic()
            if left <= 0:
                raise WorkerFailed("timeout", f"{verb} took longer than {timeout_s:g} s")
            if not select.select([self._replies], [], [], min(left, _POLL_S))[0]:
                if give_up():
                    raise WorkerFailed("interrupted", f"stopped during {verb}")
                continue
            data = os.read(self._replies, 1 << 16)
            if not data:
                raise self._died()
            self._pending += data
            whole = b"\n" in data
            if len(self._pending) > _MAX_REPLY:
                raise WorkerFailed("crashed", f"reply longer than {_MAX_REPLY >> 20} MiB")
        line, _, self._pending = self._pending.partition(b"\n")
        return bytes(line)

    def _died(self) -> WorkerFailed:
        """Say why a worker is gone, by its exit status and the end of its log."""
        try:
            code = self._child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.kill()
            return WorkerFailed("crashed", "worker closed its pipe and went on")
        how = f"worker ended with exit code {code}"
        if code < 0:
            names = {number.value: number.name for number in signal.Signals}
            how = f"worker killed by {names.get(-code, f'signal {-code}')}"
        if code == -signal.SIGKILL:
            how += " (out of memory?)"
        tail = self.log_tail()
        return WorkerFailed("crashed", f"{how}; its log ends: {tail}" if tail else how)

    def log_tail(self) -> str:
        """The last lines that this worker wrote, on one line; of a crash, what it was in."""
        size = os.fstat(self._log.fileno()).st_size
        self._log.seek(max(self._log_start, size - _TAIL))
        text = self._log.read(_TAIL).decode(errors="replace")
        before, crash, stack = text.rpartition(_CRASH)
        lines = [line.strip() for line in text.splitlines()[-_TAIL_LINES:]]
        if crash:
            current = stack.partition("Current thread")[2].partition("\n\n")[0]
            called = [f"{Path(file).name} {name}" for file, name in _FRAME.findall(current)]
            lines = [*before.splitlines()[-1:], crash + stack.partition("\n")[0]]
            lines.append(" < ".join(called[:_TAIL_LINES]))
        return " | ".join(filter(None, lines))[-300:]

    def close(self, grace_s: float = 2.0) -> None:
        """Close the pipes; a worker that does not leave on its own is killed."""
        self._close_pipes()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=grace_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)  # and whatever it started
        self._child.wait()
        self._log.close()

    def _close_pipes(self) -> None:
        for pipe in (self._requests, self._replies):
            if pipe >= 0:
                os.close(pipe)
        self._requests = self._replies = -1

    def kill(self) -> None:
        """End the worker and whatever it started, now."""
        self.close(grace_s=0)


def _open_at_once(path: str, flags: int) -> int:
    """Open a log; what is a link or a pipe instead is not followed or waited for."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)


def parsed_reply(line: bytes, verb: str, number: int) -> Any:
    """Read a line as the reply to request `number`; anything else ends the worker."""
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        raise WorkerFailed("crashed", f"reply is not JSON: {line[:60]!r}") from None
    if not isinstance(reply, dict) or reply.get("id") != number:
        raise WorkerFailed("crashed", f"reply out of order: {line[:60]!r}")
    try:
        return protocol.parsed(verb, reply)
    except (ValueError, RecursionError) as error:
        raise WorkerFailed("crashed", f"no proper reply to {verb}: {error}") from None


def interpreter(framework: str, chosen: Mapping[str, str]) -> str:
    """The interpreter for a framework: this one unless another is chosen.

    Another version of it, such as pytorch~old, has no other interpreter than its own.
    """
    name, mark, version = framework.partition("~")
    its = known(name)
    family = its.on_top_of or its.name
    python = chosen.get(framework) or chosen.get(f"{family}{mark}{version}")
    if mark and not python:
        raise LstmBenchError(
            f"{framework}: no interpreter is named for it; add --python {framework}=PATH"
        )
    return python or sys.executable


START_TIMEOUT_S = 180.0  # importing a framework from a cold disk
MAX_STARTS = 2  # of a worker that dies before it can say hello


class References:
    """Memory files for the references of one shape at a time, one for each kind of work.

    The first worker that is asked fills its file; see `worker.reference_cache`.
    """

    def __init__(self, kinds: set[str]):
        self.files = {kind: os.memfd_create("lstm-bench-reference") for kind in sorted(kinds)}
        self._shape: Shape | None = None

    def file(self, kind: str, shape: Shape) -> int:
        """The file of a kind of work; a new shape empties them all."""
        if shape != self._shape:
            for file in self.files.values():
                os.ftruncate(file, 0)
            self._shape = shape
        return self.files[kind]

    def close(self) -> None:
        for file in self.files.values():
            os.close(file)
        self.files = {}


class Workers:
    """At most one process of each name; see `Plan.worker`.

    `refused` and failed starts are of both processes of a name: what one cannot, its twin cannot.
    """

    start: ClassVar[type[WorkerProcess]] = WorkerProcess  # tests have one without a process

    def __init__(self, plan: Plan, logs: Path, stop: Callable[[], bool]):
        self.plan, self.logs, self.stop = plan, logs, stop
        self.references = References({row.computes for row in plan.implementations})
        self.hellos: dict[str, Hello] = {}  # the last of each name
        self.refused: dict[str, tuple[str, str]] = {}  # those that cannot run here, and why
        self._alive: dict[str, WorkerProcess] = {}
        self._failed_starts: Counter[str] = Counter()
        self._started = 0

    def begin(self, names: Iterable[str]) -> None:
        """Start these without waiting for them: they import their frameworks side by side."""
        for name in names:
            if name not in self._alive and name.removesuffix(TWIN) not in self.refused:
                with contextlib.suppress(WorkerFailed):  # raised again when it is wanted
                    self._start(name)

    def get(self, name: str) -> WorkerProcess:
        """The worker of this name, started and greeted if it is not there."""
        plain = name.removesuffix(TWIN)
        if plain in self.refused:
            raise WorkerFailed(*self.refused[plain])
        worker = self._alive.get(name)
        if worker and worker.hello:
            return worker
        try:
            worker = worker or self._start(name)
            worker.hello = self.hellos[name] = self.ask(worker, "hello", START_TIMEOUT_S)
        except WorkerFailed as failed:
            if worker:
                self.drop(worker)
            if failed.status != "interrupted":
                self._failed_starts[plain] += 1
                if failed.status == "unsupported" or self._failed_starts[plain] >= MAX_STARTS:
                    self.refused[plain] = (failed.status, failed.reason)
            raise
        self._failed_starts[plain] = 0
        return worker

    def _start(self, name: str) -> WorkerProcess:
        row = next(r for r in self.plan.implementations if r.worker == name.removesuffix(TWIN))
        settings = row.settings_in(self.plan.settings)
        python = interpreter(row.home, self.plan.environments)
        self._started += 1
        log = self.logs / f"{framework_of(row).name}-{self._started}.log"
        worker = self.start(
            name, row.module, python, settings, log, list(self.references.files.values())
        )
        worker.number = self._started
        self._alive[name] = worker
        return worker

    def alive(self, worker: WorkerProcess) -> bool:
        """Return whether this very process is still there, and not a new one of its name."""
        return self._alive.get(worker.name) is worker

    def ask(self, worker: WorkerProcess, verb: str, timeout_s: float, **arguments: Any) -> Any:
        """Ask; a worker that dies is forgotten, and the next cell starts a new one."""
        # a block is waited for even when stopping: it is short, and it counts
        give_up = (lambda: False) if verb == "measure" else self.stop
        try:
            reply = worker.ask(verb, timeout_s, give_up, **arguments)
        except WorkerFailed:
            self.drop(worker)
            raise
        if isinstance(reply, Failure):
            if reply.status == "crashed" and worker.settings.device == "cuda":
                self.drop(worker)  # an error may have taken the CUDA context with it
            raise WorkerFailed(reply.status, reply.reason)
        return reply

    def drop(self, worker: WorkerProcess) -> None:
        """End one now."""
        worker.kill()
        if self.alive(worker):
            del self._alive[worker.name]

    def end(self) -> None:
        """Let all of them go; the next `get` starts a fresh one."""
        for worker in self._alive.values():
            worker.close()
        self._alive.clear()

    def close(self) -> None:
        self.end()
        self.references.close()
