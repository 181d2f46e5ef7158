"""Measure a cluster: how busy its workers are, and the cost of 1,000,000 cells for the driver.

python experiments/cluster_scale.py [--workers 16] [--cells 1000000] [--nodes 1000] [--skip PART]

Needs the extra `ray`. The first part has real agents with `fake` cells that sleep for a second; the
second has as many nodes as you like, played by a few processes that make their cells up.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CELLS_EACH = 4  # of a shape in the first part
SHAPES_EACH = 25  # for every worker
ACTORS = 2
NAMES = [f"fake-{n}" for n in range(10)]
KEY = ("cpu", "", "", "made up", 1)


class Quiet:
    def started(self, cells: Any, seconds: float) -> None: ...
    def doing(self, text: str) -> None: ...
    def expect(self, seconds: float) -> None: ...

    def finished(self, record: Any) -> None: ...
    def warn(self, text: str) -> None:
        print("!", text)


def plan_of(shapes: int, names: list[str], **script: Any) -> Any:
    from lstm_bench.runs import grid

    sizes = [[1 + n % 100, 1 + n // 100 % 1000, 1 + n // 100_000] for n in range(shapes)]
    data = {
        **{"shapes": sizes, "implementations": names, "device": "cpu", "controls": 0},
        **{"threads": 1, "fake": dict.fromkeys(names, script)},
        "sampling": {"rounds": 3, "max_rounds": 3, "warmup_s": 0.01},
    }
    return grid.plan(data, Path("scale.yaml"), device="cpu", threads=1)


def places(engine: Any, names: list[str], cpus: float) -> list[Any]:
    from lstm_bench.features.cluster.cluster import Place
    from lstm_bench.features.cluster.node import NodeShare
    from lstm_bench.runs.nodes import Kind

    node = engine.ray.nodes()[0]["NodeID"]
    return [Place(node, NodeShare(name), Kind(*KEY), 1, cpus) for name in names]


def measure(engine: Any, plan: Any, folder: Path) -> float:
    """Seconds from the first shape given out to the last on disk."""
    from lstm_bench.features.cluster import cluster
    from lstm_bench.runs import store

    manifest = {"plan": plan.to_json(), "machine": {"cpu": "made up"}, "started_at": "2026"}
    with store.Store.create(folder, manifest) as sink:
        work = cluster.jobs(cluster.Target(plan, sink), plan.all_cells())
        start = time.perf_counter()
        outcome = cluster.Dispatch(engine, work, Quiet()).run()
        took = time.perf_counter() - start
    assert not outcome.left, f"{outcome.left} cells are lost"
    return took


def efficiency(ray: Any, workers: int) -> None:
    from lstm_bench.features.cluster.ray_cluster import RayEngine

    ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
    plan = plan_of(workers * SHAPES_EACH, NAMES[:CELLS_EACH], build_s=1.0)
    engine = RayEngine(ray)
    engine.use(places(engine, [f"worker-{n}" for n in range(workers)], 1.0), {})
    with tempfile.TemporaryDirectory() as folder:
        took = measure(engine, plan, Path(folder) / "run")
    engine.close()
    ray.shutdown()
    asleep = plan.size / workers
    print(
        f"{workers} workers, {plan.size} cells of 1 s: {took:.1f} s, {asleep:.1f} s of them asleep:"
        f" efficiency {asleep / took:.1%}"
    )


class MadeUp:
    """Answers as an agent does, with cells that nobody measured."""

    def __init__(self) -> None:
        self.rng = random.Random(1)

    def measure(self, cells: list[Any], finished: Any, budget_s: float | None) -> Any:
        from lstm_bench.features.cluster.node import ShapeResult
        from lstm_bench.model.types import Block, Check, Record

        done: list[Any] = []
        base = [self.rng.gauss(1, 0.01) for _ in range(10)]
        for number, cell in enumerate(cells):
            times = [1e-3 * (1 + 0.1 * number) * each for each in base]
            record = Record(cell.implementation, cell.shape, cell.pass_number, cell.copy, "ok")
            record.framework, record.precision, record.device = "fake", "fp32", "cpu"
            record.threads, record.path, record.node, record.rounds = 1, "made up", "made up", 10
            record.latency_s, record.throughput_s = sorted(times)[5], sorted(times)[4]
            record.round_latency_s, record.round_throughput_s = times, times[::-1]
            record.check, record.group = Check(1e-7, 1e-7, 5e-5, True), cell.shape.label
            blocks = [Block(n, [10**6] * 10, 10**7, 10, 0.01, 0.01, 0) for n in range(2)]
            done.append((record, blocks, None))
        return ShapeResult(done, 0.0, 0.0, {})

    def close(self) -> None: ...


def driver(ray: Any, cells: int, nodes: int) -> None:
    from lstm_bench.features.cluster.ray_cluster import RayEngine

    class Simulated(RayEngine):
        """Many places, few processes."""

        def _agent(self, place: Any, plan: Any) -> Any:
            number = int(place.share.node.split("-")[1]) % ACTORS
            return actors[number]

    ray.init(address="local", num_cpus=ACTORS, include_dashboard=False, log_to_driver=False)
    actors = [ray.remote(num_cpus=1)(MadeUp).remote() for _ in range(ACTORS)]
    shapes = cells // len(NAMES)
    start = time.perf_counter()
    plan = plan_of(shapes, NAMES)
    cells_made = time.perf_counter() - start
    engine = Simulated(ray)
    engine.use(places(engine, [f"node-{n}" for n in range(nodes)], 1.0), {})
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        took = measure(engine, plan, run)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        sizes = {path.name: path.stat().st_size / 2**30 for path in run.glob("*.jsonl")}
        words = ", ".join(f"{name} {size:.2f} GiB" for name, size in sizes.items())
        print(
            f"{plan.size} cells in {shapes} shapes, from {nodes} nodes (plan: {cells_made:.1f} s)"
        )
        print(f"  driver: {took:.0f} s, {plan.size / took:.0f} cells a second, {most:.2f} GiB")
        print(f"  {words}")
        engine.close()
        ray.shutdown()
        report(run)


def report(run: Path) -> None:
    start = time.perf_counter()
    line = [sys.executable, "-m", "lstm_bench", "report", "--run", str(run)]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    took = time.perf_counter() - start
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"  report: {took:.1f} s, at most {most:.2f} GiB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--skip", choices=["efficiency", "driver"])
    chosen = parser.parse_args()
    import ray

    if chosen.skip != "efficiency":
        efficiency(ray, chosen.workers)
    if chosen.skip != "driver":
        driver(ray, chosen.cells, chosen.nodes)


if __name__ == "__main__":
    main()
