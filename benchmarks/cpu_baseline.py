"""Is the CPU baseline faster than every rival, and how far is it from what the cores can do?

    lstm-bench grid benchmarks/cpu_baseline.yaml --run RUN
    python benchmarks/cpu_baseline.py results/RUN [--shapes]

Prints, for each number of threads and for all cells of the run, the geometric mean of the best
rival's latency over the baseline's at each shape, and the shapes where a rival is faster beyond the
noise floor. Then, for the rows with all threads, the distance to the limit of the machine
(docs/explanation/limits.md): the share of its multiply-adds at large batch, the bytes of weights
per second at batch 1. --shapes adds a line for every shape.

Without AVX-512, for all of them (benchmarks/without_avx512.c says how to make the library):

    LD_PRELOAD=$PWD/without_avx512.so lstm-bench grid benchmarks/cpu_baseline.yaml --run RUN
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench.analysis import limits, results
from lstm_bench.analysis.comparison import compare
from lstm_bench.analysis.noise import SHAPE
from lstm_bench.model.types import Shape
from lstm_bench.model.units import WIDTH, seconds, times
from lstm_bench.report.document import Table, number, text
from lstm_bench.report.run_report import shape_label

OWN = "deepbench"
RIVALS = ("pytorch", "onnxruntime", "openvino")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="results/RUN")
    parser.add_argument("--shapes", action="store_true", help="a line for every shape")
    asked = parser.parse_args()
    run = results.load(asked.run)
    suffixes = [n.removeprefix(OWN) for n in run.implementations if n.partition("@")[0] == OWN]
    if not suffixes:
        sys.exit(f"{asked.run}: expected rows of {OWN}, found {', '.join(run.implementations)}")
    found = [own for own in (against_rivals(run, suffix) for suffix in suffixes) if not own.empty]
    if not found:
        sys.exit(f"{asked.run}: expected a rival too: {', '.join(RIVALS)}")
    whole = pd.concat(found)
    summary = [in_short(own, own["threads"].iloc[0]) for own in found]
    if len(found) > 1:
        summary.append(in_short(whole, "any"))
    columns = (
        text("threads", "threads"),
        number("shapes", "shapes"),
        number("best rival over ours", "mean", times),
        number("least", "least", times),
        text("ours slower beyond noise at", "slower"),
    )
    print(Table("speed", summary, columns).drawn(width=WIDTH))
    if asked.shapes:
        print()
        print(by_shape(whole.to_dict("records")).drawn())
    if run.limits:
        print()
        print(by_limit(run).drawn(width=WIDTH))


def in_short(found: pd.DataFrame, threads: str) -> dict[str, Any]:
    slower = found[found["slower"] != ""].to_dict("records")
    return {
        "threads": threads,
        "shapes": len(found),
        "mean": float(np.exp(np.log(found["over"]).mean())),
        "least": found["over"].min(),
        "slower": "; ".join(f"{r['shape']} than {r['slower']}" for r in slower) or "none",
    }


def against_rivals(run: results.Run, suffix: str) -> pd.DataFrame:
    """Of each shape the fastest rival, how much slower it is, and who beats us beyond the noise."""
    rows: dict[str, dict[str, Any]] = {}
    for rival in (f"{name}{suffix}" for name in RIVALS):
        if rival not in run.implementations:
            continue
        for one in compare(run.cells, rival, OWN + suffix).shapes.to_dict("records"):
            label, over = shape_label(one), 1 / one["ratio"]
            best = rows.setdefault(label, {"shape": label, "over": np.inf, "slower": ""})
            best["threads"] = suffix.removeprefix("@") or "all"
            if one["verdict"] == "slower":
                best["slower"] = ", ".join(filter(None, [best["slower"], rival]))
            if over < best["over"]:
                best |= {"over": over, "rival": rival}
    return pd.DataFrame(rows.values())


def by_shape(shapes: list[Any]) -> Table:
    columns = (
        text("threads", "threads"),
        text("shape", "shape"),
        text("best rival", "rival"),
        number("over ours", "over", times),
        text("slower than", "slower"),
    )
    return Table("shapes", shapes, columns)


def by_limit(run: results.Run) -> Table:
    """By batch, the distance of the baseline to what the machine can do."""
    assert run.limits
    found = limits.distances(run.cells, run.limits)
    found = found[found["implementation"] == OWN].copy()
    shapes = [Shape(*key) for key in found[SHAPE].itertuples(index=False, name=None)]
    found["share"] = [s.flops for s in shapes] / found["latency_s"] / run.limits.vector_flops
    read = np.array([4 * 4 * s.hidden**2 * s.timesteps for s in shapes])  # W_hh in every timestep
    found["read"] = read / found["latency_s"]
    rows = []
    for batch, group in found.groupby("batch"):
        best = group.loc[group["share"].idxmax()]
        rows.append(
            {
                "batch": batch,
                "over": float(np.exp(np.log(group["over"]).mean())),
                "share": best["share"],
                "at": shape_label(best),
                "latency": best["latency_s"],
                "read": group["read"].max(),
                "binds": ", ".join(dict.fromkeys(group["binds"])),
            }
        )
    columns = (
        number("batch", "batch"),
        number("over limit", "over", times),
        number("most of the multiply-adds", "share", lambda value: f"{value:.0%}"),
        text("at", "at"),
        number("latency", "latency", seconds),
        number("most bytes of weights", "read", lambda value: f"{value / 1e9:.3g} GB/s"),
        text("what binds", "binds"),
    )
    return Table("limit", rows, columns)


if __name__ == "__main__":
    main()
