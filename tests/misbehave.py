"""Workers that die, or answer otherwise, at a chosen request."""

import itertools
import os
import signal
from dataclasses import replace

from in_process import InProcess

from lstm_bench.driver.worker_pool import WorkerFailed, Workers
from lstm_bench.model.types import Check


def asked_as(monkeypatch, answer):
    """Have `answer(go, worker, verb, fields)` answer all requests; `go` asks the worker."""
    ask = Workers.ask

    def asking(self, worker, verb, *limit, **fields):
        return answer(lambda: ask(self, worker, verb, *limit, **fields), worker, verb, fields)

    monkeypatch.setattr(Workers, "ask", asking)


def noted(monkeypatch, wanted):
    """The keys of the cells that workers are asked this for, or their names, as it happens."""
    asked = []

    def answer(go, worker, verb, fields):
        if verb == wanted:
            asked.append(fields.get("key", worker.name))
        return go()

    asked_as(monkeypatch, answer)
    return asked


def shoot(worker):
    """Kill it, as the system does when memory is short."""
    if isinstance(worker, InProcess):
        worker.kill()
    else:
        os.kill(worker.pid, signal.SIGKILL)


def kill_when(monkeypatch, fatal, *numbers):
    """Kill the worker when it is asked this for the first, the third, ... time."""
    requests = itertools.count(1)

    def answer(go, worker, verb, fields):
        if verb == fatal and next(requests) in numbers:
            shoot(worker)
        return go()

    asked_as(monkeypatch, answer)


def changed(monkeypatch, wanted, change):
    """Have this done to the replies to a verb."""

    def answer(go, worker, verb, fields):
        reply = go()
        if verb == wanted:
            change(reply)
        return reply

    asked_as(monkeypatch, answer)


def wrong(reply):
    reply.check = Check(0.0, 0.0, 1e-5, False, "output is off")


def cold(reply):
    reply.warm_up = replace(reply.warm_up, settled=False)


def elsewhere(reply):
    reply.path = "another"


def refused(reply):
    raise WorkerFailed("oom", "no room")
