"""Ray, and all that knows of it: nodes, agents on them, shapes there and cells back.

An agent is an actor that holds a whole node of CPUs, or one GPU and its share of the cores, for as
long as the run goes: Ray gives these to nobody else. It belongs to this process: when that ends,
however it does, Ray ends its agents, and with them the workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lstm_bench.driver import machine
from lstm_bench.features.cluster import node
from lstm_bench.features.cluster.cluster import Job, Place
from lstm_bench.features.cluster.node import Examined, ShapeResult
from lstm_bench.features.cluster.roster import ClusterNode
from lstm_bench.model.errors import LstmBenchError
from lstm_bench.model.units import clipped
from lstm_bench.runs.plan import Plan

LABEL = ("lstm-bench", "exclusive")  # nodes that the user keeps for us; if any has it, only these
EXAMINE_S = 180.0  # until a node that does not answer is a fault
NOTICED_S = 15.0  # until a node that is gone is known to be
CLOSE_S = 10.0
_PR_SET_PDEATHSIG = 1
STORE_BYTES = 256 << 20  # of a Ray that we start: cells are small


@contextlib.contextmanager
def connected(address: str, runtime_env: Mapping[str, Any] | None) -> Iterator[RayEngine]:
    """The cluster at an address; without one, Ray is started on this machine, and ended."""
    ray = _ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # of a Ray that we start
    local: dict[str, Any] = {}
    if not address:
        local = {"num_cpus": machine.threads(), "include_dashboard": False}
        local["object_store_memory"] = STORE_BYTES
    try:
        ray.init(
            address=address or "local",
            runtime_env=dict(runtime_env or {}),
            log_to_driver=False,
            logging_level="ERROR",
            **local,
        )
    except Exception as error:  # Ray raises many kinds
        raise LstmBenchError(
            f"--ray {address}: no Ray answers ({_gist(error)}); expected the address of a cluster,"
            " such as auto or 10.0.0.1:6379; `ray start --head` starts one"
        ) from None
    engine = RayEngine(ray)
    try:
        yield engine
    finally:
        engine.close()
        ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise LstmBenchError(
            "--ray: this Python has no Ray; expected the extra: pip install 'lstm-bench[ray]'"
        ) from None
    return ray


class RayAgent(node.Agent):
    """An agent that ends with the node's Ray process, its parent: Ray may leave it behind."""

    def __init__(self, *arguments: Any):
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        super().__init__(*arguments)


class RayEngine:
    """Carries shapes to agents and their cells back."""

    def __init__(self, ray: Any):
        self.ray = ray
        self.nodes = self._nodes()
        self._places: list[Place] = []
        self._missing: Mapping[str, str] = {}
        self._agents: dict[Place, Any] = {}
        self._flying: dict[Any, Place] = {}

    def _nodes(self) -> list[ClusterNode]:
        alive = [info for info in self.ray.nodes() if info["Alive"]]
        kept = [info for info in alive if (info.get("Labels") or {}).get(LABEL[0]) == LABEL[1]]
        hosts = Counter(info["NodeManagerHostname"] for info in kept or alive)
        nodes = []
        for info in kept or alive:
            host, has = info["NodeManagerHostname"], info["Resources"]
            name = host if hosts[host] == 1 else f"{host}-{info['NodeID'][:6]}"
            node = ClusterNode(info["NodeID"], name, has.get("CPU", 0.0), int(has.get("GPU", 0)))
            if node.cpus >= 1:  # a head that only leads has none
                nodes.append(node)
        return sorted(nodes, key=lambda info: info.name)

    def examined(self, plan: Plan) -> dict[str, Examined | str]:
        """The state of each node by name: what it lacks, or why nobody can tell; all at once."""

        def examine(plan: Any) -> Any:  # by value: a node may not have us
            from lstm_bench.features.cluster import node

            return node.examine(plan)

        task = self.ray.remote(num_cpus=0, max_retries=0)(examine)
        plan = replace(plan, shapes=())
        asked = {
            node.name: task.options(scheduling_strategy=self._on(node.id)).remote(plan)
            for node in self.nodes
        }
        if asked:
            self.ray.wait(list(asked.values()), num_returns=len(asked), timeout=EXAMINE_S)
        answers = {name: self._answer(ref) for name, ref in asked.items()}
        self._forget({name for name, answer in answers.items() if isinstance(answer, str)})
        return answers

    def _forget(self, silent: Collection[str]) -> None:
        """The silent nodes that are gone: Ray notices some seconds late."""
        deadline = time.monotonic() + NOTICED_S
        while True:
            alive = self._alive()
            self.nodes = [node for node in self.nodes if node.id in alive]
            left = [node for node in self.nodes if node.name in silent]
            if not left or time.monotonic() > deadline:
                return
            time.sleep(0.5)

    def _answer(self, ref: Any) -> Examined | str:
        try:
            examined: Examined = self.ray.get(ref, timeout=0)
        except self.ray.exceptions.GetTimeoutError:
            return f"does not answer within {EXAMINE_S:.0f} s"
        except Exception as error:  # whatever went wrong there
            cause = getattr(error, "cause", None) or error
            if "No module named" in f"{cause} {error}":
                return f"{cause}; install lstm-bench there, or name it in --runtime-env"
            return _gist(cause)
        return examined

    def use(self, places: Sequence[Place], missing: Mapping[str, str]) -> None:
        """Measure at these; frameworks that are `missing` are left out everywhere."""
        self._places, self._missing = list(places), missing

    def around_run(
        self, places: Sequence[tuple[Place, Plan]]
    ) -> list[tuple[dict[str, Any], list[str]]]:
        """Let features measure each of these before a run; the facts, and what they could not."""
        refs = [self._agent(place, plan).around_run.remote() for place, plan in places]
        answers = []
        for (place, _), ref in zip(places, refs, strict=True):
            try:
                answers.append(self.ray.get(ref))
            except self.ray.exceptions.RayError as error:
                self._drop(place)
                answers.append(({}, [_gist(error)]))
        return answers

    def there(self) -> Collection[Place]:
        alive = self._alive()
        return [place for place in self._places if place.node_id in alive]

    def _alive(self) -> set[str]:
        return {node["NodeID"] for node in self.ray.nodes() if node["Alive"]}

    def send(self, place: Place, plan: Plan, job: Job, budget_s: float | None) -> None:
        agent = self._agent(place, plan)
        self._flying[agent.measure.remote(job.cells, job.finished, budget_s)] = place

    def came(self, timeout_s: float) -> list[tuple[Place, ShapeResult | str]]:
        if not self._flying:
            return []
        refs = list(self._flying)
        ready, _ = self.ray.wait(refs, num_returns=1, timeout=timeout_s)
        if ready:
            ready, _ = self.ray.wait(refs, num_returns=len(refs), timeout=0)
        return [self._came(ref) for ref in ready]

    def _came(self, ref: Any) -> tuple[Place, ShapeResult | str]:
        place = self._flying.pop(ref)
        try:
            measured: ShapeResult = self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            self._drop(place)
            return place, _why(self.ray, error)
        return place, measured

    def _agent(self, place: Place, plan: Plan) -> Any:
        """The agent of a place, started if there is none."""
        if place not in self._agents:
            made = self.ray.remote(
                num_cpus=place.cpus,
                num_gpus=1 if place.kind.device == "cuda" else 0,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=self._on(place.node_id),
            )(RayAgent)
            self._agents[place] = made.remote(plan, place.share, dict(self._missing))
        return self._agents[place]

    def _on(self, node_id: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node_id, soft=False)

    def _drop(self, place: Place) -> None:
        agent = self._agents.pop(place, None)
        if agent is not None:
            with contextlib.suppress(Exception):  # it is gone, or will be
                self.ray.kill(agent, no_restart=True)

    def close(self) -> None:
        """Let agents that are idle tidy up; end the others, and with them their workers."""
        busy = set(self._flying.values())
        idle = [agent for place, agent in self._agents.items() if place not in busy]
        with contextlib.suppress(Exception):  # the cluster may be gone
            refs = [agent.close.remote() for agent in idle]
            if refs:
                self.ray.wait(refs, num_returns=len(refs), timeout=CLOSE_S)
        for place in list(self._agents):
            self._drop(place)


def _why(ray: Any, error: Exception) -> str:
    """Say in a line what became of an agent."""
    if isinstance(error, ray.exceptions.RayTaskError):
        return _gist(getattr(error, "cause", None) or error)
    if "node" in str(error).lower() and "died" in str(error).lower():
        return f"its node was lost ({_gist(error)})"
    return f"its agent ended ({_gist(error)})"


def _gist(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return clipped(" ".join([type(error).__name__ + ":", *lines[-1:]]), 200)
