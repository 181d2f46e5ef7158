"""Has workers build cells, call them once, check and warm them; and let them go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from lstm_bench.measurement import Measurement
from lstm_bench.model.types import Cell, Record, to_json
from lstm_bench.replies import Prepared
from lstm_bench.runs.plan import Plan
from lstm_bench.supervisor import WorkerFailed, WorkerProcess
from lstm_bench.workers import Workers

REFERENCE_RATE = 2e9  # operations a second: a slow machine's, to say how long is too long


class Builder:
    """What a plan's cells need before they can be timed."""

    def __init__(
        self,
        plan: Plan,
        workers: Workers,
        doing: Callable[[str, Measurement | Cell, str], AbstractContextManager[None]],
    ):
        """`doing` tells the observer what is done to which cell, and counts the time."""
        self.plan, self.workers, self.doing = plan, workers, doing

    def build(self, cell: Cell) -> Measurement:
        """The first build of a cell; its check tells whether it may be timed."""
        worker = self._worker(cell)
        one = Measurement(cell, self._ask(worker, cell, cell.key), worker)
        _note(one, cell.key, one.reply)
        return one

    def build_another(self, one: Measurement) -> None:
        """One more build beside those that there are, which will do where memory is short."""
        if not self.workers.alive(one.worker):
            self.build_anew(one)
        one.builds += 1
        which = f"build {one.builds} of {self.plan.sampling.builds}"
        try:
            self._hold(one, one.keys[-1])
        except WorkerFailed as failed:
            if failed.status != "oom":
                raise WorkerFailed(failed.status, f"{which}: {failed.reason}") from None
            one.builds -= 1
            one.warn(f"fewer builds: {which} failed: {failed.reason}")

    def build_anew(self, one: Measurement) -> None:
        """The worker is gone, by a neighbour perhaps; this cell goes on in a new one."""
        one.worker = self._worker(one.cell)
        for key in one.keys:
            self._hold(one, key)

    def build_alike(self, one: Measurement) -> None:
        """A cell that has its times, as it was, in a new worker; nothing but the worker changes."""
        one.worker = self._worker(one.cell)
        for key in one.keys:
            _see_alike(self._ask(one.worker, one.cell, key), one.paths[key])

    def build_as_recorded(self, record: Record) -> Measurement:
        """The cell of a record as it was timed, to be looked at."""
        one = self.build(record.cell)
        _see_alike(one.reply, record.path)
        while one.builds < record.builds:
            before = one.builds
            self.build_another(one)
            if one.builds == before:  # there is no room for more
                break
        one.warnings.clear()  # they would be of its times
        return one

    def let_go(self, one: Measurement) -> str:
        """All builds of a cell; returns what went wrong, if anything did."""
        problem = ""
        for key in one.keys:
            if self.workers.alive(one.worker):
                try:
                    limit = self.plan.sampling.timeout_s
                    self.workers.ask(one.worker, "release", limit, key=key)
                except WorkerFailed as failed:
                    problem = problem or failed.reason
        return problem

    def _worker(self, cell: Cell) -> WorkerProcess:
        """The worker of a cell, started if it is not there."""
        with self.doing("starting", cell, ""):
            return self.workers.get(self.plan.row(cell.implementation).worker)

    def _hold(self, one: Measurement, key: str) -> None:
        """Have a cell that is known to be right built under this name."""
        reply = self._ask(one.worker, one.cell, key)
        if not reply.check.passed:
            one.reply.check = reply.check
            raise WorkerFailed("wrong", reply.check.reason)
        _note(one, key, reply)

    def _ask(self, worker: WorkerProcess, cell: Cell, key: str) -> Prepared:
        """The problem first: its reference may take longer than any call is allowed to."""
        row, limit = self.plan.row(cell.implementation), self.plan.sampling.timeout_s
        shape = to_json(cell.shape)
        patience = limit + cell.shape.flops / REFERENCE_RATE
        place = self.workers.shelf.place(row.computes, cell.shape)
        with self.doing("posing", cell, ""):
            self.workers.ask(worker, "pose", patience, shape=shape, computes=row.computes, **place)
            self.workers.shelf.filled(row.computes, cell.shape)
        build = key.partition("~")[2]
        with self.doing("preparing", cell, f"build {build} of" if build else ""):
            reply: Prepared = self.workers.ask(
                worker,
                "prepare",
                limit,
                key=key,
                implementation=to_json(row),
                shape=shape,
                sampling=to_json(self.plan.sampling),
            )
        return reply


def _see_alike(reply: Prepared, path: str) -> None:
    """Fail if what was built again is not what was timed."""
    if not reply.check.passed:
        raise WorkerFailed("wrong", f"built again: {reply.check.reason}")
    if reply.path != path:
        raise WorkerFailed("unsupported", f"built again, it took another way: {reply.path}")


def _note(one: Measurement, key: str, reply: Prepared) -> None:
    """Which way a build took, and whether it was warm in the end."""
    one.paths[key] = reply.path
    if reply.check.passed and not (reply.warm_up and reply.warm_up.settled):
        one.warn("not warm: the time per call was still moving at the end of the warm-up")
