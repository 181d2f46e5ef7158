"""Measures what this machine can do at best: the micro-kernels, their rounds, and the constants."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

from lstm_bench.frameworks.deepbench import libraries
from lstm_bench.model.limits import Level, Limits
from lstm_bench.model.types import Unsupported
from lstm_bench.worker import native
from lstm_kernels.layer import toolbox

CLUSTERS = (2, 4, 8, 16)
FEW, MANY = 200, 2200  # rounds: what a launch costs falls out of the difference
CALLS = 10  # the best one counts
PRODUCT = 8192  # the size of a matrix that keeps all tensor cores busy
FAR = 1 << 31  # bytes that no cache holds
CPU_FAR = (1 << 27, 1 << 30)  # the least and the most of them on a CPU
CPU_NEAR = 1 << 14  # bytes that the nearest cache of any core holds
CPUS = Path("/sys/devices/system/cpu")
CACHE_FILES = ("level", "type", "size", "shared_cpu_list")
# As in limits.cu, of a block:
FMA_FLOPS, MMA_FLOPS = 2 * 64 * 256, 2 * 16**2 * 8 * 16 * 8  # and round
EXCHANGE_BYTES = 1 << 20  # of all blocks
READ_BYTES, MULTICAST_BYTES = 512 * 4 * 16, 49152


def measure(device: str, threads: int) -> Limits:
    """The constants of the device, in some seconds."""
    with libraries.kernel_refusals():
        return _gpu() if device == "cuda" else _cpu(threads)


def _cpu(threads: int) -> Limits:
    module = libraries.extension("lstm_bench._limits")
    sizes = sorted({2**n for n in range(threads.bit_length())} | {threads})
    caches = _caches(threads)
    if caches:
        far = min(max(4 * max(caches.values()), CPU_FAR[0]), CPU_FAR[1])
        levels = [Level("memory", 0, module.read_rate(threads, far // threads))]
    else:  # who knows what is read from where: all of it as fast as can be
        levels = [Level("caches", 0, module.read_rate(threads, CPU_NEAR))]
    for name, size in reversed(caches.items()):
        # A virtual machine may hide that two of its cores share a cache: a quarter fits then too.
        rates = [module.read_rate(threads, size // threads // part) for part in (2, 4)]
        # None is slower than one behind it.
        levels.insert(0, Level(name, size, max(*rates, levels[0].bytes_per_s)))
    return Limits(
        device="cpu",
        cores=threads,
        call_s=0.0,
        queued_s=0.0,
        exchange_s={n: module.exchange_seconds(n) if n > 1 else 0.0 for n in sizes},
        cell_s={},
        taken_in=0.0,
        narrow_flops=0.0,
        vector_flops=module.multiply_rate(threads),
        levels=tuple(levels),
    )


def _caches(threads: int) -> dict[str, int]:
    """The levels of cache, and what each holds for so many threads, as far as Linux says."""
    by_level: dict[int, dict[str, int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        for folder in (CPUS / f"cpu{cpu}/cache").glob("index*"):
            try:
                about = {name: (folder / name).read_text().strip() for name in CACHE_FILES}
            except OSError:
                return {}
            if about["type"] != "Instruction" and about["size"].endswith("K"):
                level = by_level.setdefault(int(about["level"]), {})
                level[about["shared_cpu_list"]] = int(about["size"][:-1]) << 10
    return {
        f"L{level}": sum(sorted(caches.values())[-threads:])
        for level, caches in sorted(by_level.items())
    }


def _gpu() -> Limits:
    module = libraries.extension("lstm_bench._limits")
    paths, compiler, device = toolbox()
    code = compiler.cached(str(native.sources() / "limits.cu"), {})
    cores = device["multiprocessors"]

    def timed(
        name: str,
        rounds: int,
        blocks: int = 1,
        teams: int = 1,
        size: int = 0,
        shared: int = 0,
        grid: bool = False,
    ) -> dict[str, float]:
        threads = {"limit_grid": 256, "limit_grid_inbox": 256, "limit_read": 512}
        threads |= {"limit_fma": 256, "limit_mma": 256}
        seconds: dict[str, float] = module.time_limit(
            *(paths, code, name),
            cluster=not grid,
            blocks=blocks,
            threads=threads.get(name, 32),
            shared_bytes=shared,
            teams=teams,
            bytes=size,
            rounds=rounds,
            calls=CALLS,
        )
        return seconds

    def per_round(name: str, few: int = FEW, many: int = MANY, **how: Any) -> float:
        more, less = (timed(name, rounds, **how)["device"] for rounds in (many, few))
        if more <= less:
            raise Unsupported(f"{name}: {many} rounds took no longer than {few}: is the GPU busy?")
        return (more - less) / (many - few)

    def read(size: int, few: int, many: int) -> float:
        """Bytes per second of reading about so many over and over."""
        blocks = 2 * cores
        at_once = blocks * READ_BYTES
        size = max(1, size // at_once) * at_once
        return size / per_round("limit_read", few, many, teams=blocks, size=size)

    def product(precision: str) -> float:
        took = module.time_product(paths, precision, PRODUCT, CALLS)["device"]
        return float(2 * PRODUCT**3 / took)

    exchange = {1: per_round("limit_block")}
    for blocks in CLUSTERS if device["major"] >= 9 else ():
        kernels: tuple[str, ...] = ("limit_cluster", "limit_cluster_barrier")
        try:
            exchange[blocks] = min(per_round(kernel, blocks=blocks) for kernel in kernels)
        except module.Unsupported:
            break  # this GPU has no clusters of that size
    for blocks in sorted({n for n in (*CLUSTERS, 32, 64, 128) if n < cores} | {cores}):
        if blocks not in exchange:
            kernels = ("limit_grid", "limit_grid_inbox", "limit_grid_barrier")
            exchange[blocks] = min(
                per_round(kernel, blocks=blocks, size=EXCHANGE_BYTES, grid=True)
                for kernel in kernels
            )
    l2 = device["l2_bytes"]
    l2_rate = max(read(size, 10, 60) for size in (l2 // 8, l2 // 4, l2 // 2))

    def multicast(blocks: int) -> float:
        """Bytes per second into all cores, some of which hand each other what they read."""
        how = {"blocks": blocks, "teams": cores // blocks * 7 // 8, "size": l2 // 4}
        each_s = per_round("limit_multicast", shared=4 * MULTICAST_BYTES, **how)
        return cores * MULTICAST_BYTES / each_s

    call = timed("limit_launch", 1)
    blocks = 8 * cores  # as many as keep all units busy
    half = max(product("fp16"), product("bf16"))
    on_chip = cores * (4 * device["registers"] + device["shared_bytes"])
    limits = Limits(
        device="cuda",
        cores=cores,
        call_s=call["waited"],
        queued_s=call["queued"],
        exchange_s=exchange,
        cell_s={"fp32": per_round("limit_cell"), "half": per_round("limit_cell_fast")},
        taken_in=l2_rate,
        vector_flops=blocks * FMA_FLOPS / per_round("limit_fma", teams=blocks),
        narrow_flops=blocks * MMA_FLOPS / per_round("limit_mma", teams=blocks),
        matrix_flops={"tf32": product("tf32"), "half": half},
        levels=(
            Level("registers and shared memory", on_chip, 0, local=True),
            Level("L2", l2, l2_rate),
            Level("HBM", 0, read(FAR, 1, 3)),
        ),
    )
    if device["major"] < 9:
        return limits
    try:
        faster = max(map(multicast, (2, 4, 8)))
    except (module.Unsupported, module.LibraryError) as error:
        print(f"multicast: {error}", file=sys.stderr)  # then each core fetches for itself
        return limits
    return dataclasses.replace(limits, taken_in=max(l2_rate, faster))
