"""Are our kernels on a CPU faster than every rival, and how far are they from what cores can do?

    lstm-bench grid experiments/cpu_baseline.yaml --run RUN      called from C++
    lstm-bench grid experiments/cpu_layer.yaml --run RUN         as nn.LSTM, from Python
    python experiments/cpu_baseline.py results/RUN [--shapes]

Prints, for each row of the baseline and for all of its cells in fp32, the geometric mean of the
best rival's latency over ours at each shape, and the shapes where a rival is faster beyond the
noise floor. Rivals compute in the same precision; for bfloat16 and int8 add their rows to the grid:

    -i deepbench-bf16,pytorch-bf16,deepbench-int8,onnxruntime-int8

Then, for fp32 with all threads, the distance to the limit of the machine
(docs/explanation/limits.md): the share of its multiply-adds at large batch, the bytes of weights
per second at batch 1. --shapes adds a line for every shape.

Without AVX-512, for all of them (experiments/without_avx512.c says how to make the library):

    LD_PRELOAD=$PWD/without_avx512.so lstm-bench grid experiments/cpu_baseline.yaml --run RUN
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lstm_bench.analysis import results
from lstm_bench.analysis.comparison import compare
from lstm_bench.features.limits import distance as limits
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import Shape
from lstm_bench.model.units import WIDTH, seconds, times
from lstm_bench.report.document import Table, number, text
from lstm_bench.report.run_report import shape_label

OWN = "deepbench"
RIVALS = {
    OWN: ("pytorch", "onnxruntime", "openvino"),
    "deepbench-bf16": ("pytorch-bf16",),
    "deepbench-int8": ("onnxruntime-int8", "pytorch-int8"),
    "lstm-kernels": ("pytorch", "onnxruntime", "openvino"),
    "lstm-kernels-bf16": ("pytorch-bf16",),
    "lstm-kernels-int8": ("onnxruntime-int8", "pytorch-int8"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="results/RUN")
    parser.add_argument("--shapes", action="store_true", help="a line for every shape")
    asked = parser.parse_args()
    run = results.load(asked.run)
    own = [name for name in run.implementations if name.partition("@")[0] in RIVALS]
    if not own:
        names = " or ".join(RIVALS)
        sys.exit(f"{asked.run}: expected rows of {names}, found {', '.join(run.implementations)}")
    result = {name: cells for name in own if not (cells := against_rivals(run, name)).empty}
    if not result:
        sys.exit(f"{asked.run}: expected a rival too: {', '.join(sum(RIVALS.values(), ()))}")
    summary = [in_short(cells, name) for name, cells in result.items()]
    fp32 = [cells for name, cells in result.items() if name.partition("@")[0] == OWN]
    if len(fp32) > 1:
        summary.append(in_short(pd.concat(fp32), f"{OWN}, any threads"))
    columns = (
        text("ours", "ours"),
        number("shapes", "shapes"),
        number("best rival over ours", "mean", times),
        number("least", "least", times),
        text("ours slower beyond noise at", "slower"),
    )
    print(Table("speed", summary, columns).drawn(width=WIDTH))
    if asked.shapes:
        print()
        print(by_shape(pd.concat(result.values()).to_dict("records")).drawn())
    if run.limits and OWN in own:
        print()
        print(by_limit(run).drawn(width=WIDTH))


def in_short(result: pd.DataFrame, ours: str) -> dict[str, Any]:
    slower = result[result["slower"] != ""].to_dict("records")
    return {
        "ours": ours,
        "shapes": len(result),
        "mean": float(np.exp(np.log(result["over"]).mean())),
        "least": result["over"].min(),
        "slower": "; ".join(f"{r['shape']} than {r['slower']}" for r in slower) or "none",
    }


def against_rivals(run: results.Run, ours: str) -> pd.DataFrame:
    """The fastest rival of each shape, how much slower it is, and who beats us beyond the noise."""
    rows: dict[str, dict[str, Any]] = {}
    name, at, threads = ours.partition("@")
    for rival in (f"{rival}{at}{threads}" for rival in RIVALS[name]):
        if rival not in run.implementations:
            continue
        for each in compare(run.cells, rival, ours).shapes.to_dict("records"):
            label, over = shape_label(each), 1 / each["ratio"]
            fresh = {"ours": ours, "shape": label, "over": np.inf, "slower": ""}
            best = rows.setdefault(label, fresh)
            if each["verdict"] == "slower":
                best["slower"] = ", ".join(filter(None, [best["slower"], rival]))
            if over < best["over"]:
                best |= {"over": over, "rival": rival}
    return pd.DataFrame(rows.values())


def by_shape(shapes: list[Any]) -> Table:
    columns = (
        text("ours", "ours"),
        text("shape", "shape"),
        text("best rival", "rival"),
        number("over ours", "over", times),
        text("slower than", "slower"),
    )
    return Table("shapes", shapes, columns)


def by_limit(run: results.Run) -> Table:
    """The distance of the baseline to what the machine can do, by batch.

    What it can do is the best of many trials, so shares of that are taken of the fastest round.
    """
    assert run.limits
    result = limits.distances(run.cells, run.limits)
    result = result[result["implementation"] == OWN].copy()
    shapes = [Shape.from_row(key) for key in result[SHAPE].itertuples(index=False, name=None)]
    own = run.cells[run.cells["implementation"] == OWN]
    rounds = own.assign(best=own["round_latency_s"].map(min)).groupby(SHAPE)["best"].min()
    result["best"] = [rounds[key] for key in result[SHAPE].itertuples(index=False, name=None)]
    result["share"] = [s.flops for s in shapes] / result["best"] / run.limits.vector_flops
    read = np.array([4 * 4 * s.hidden**2 * s.timesteps for s in shapes])  # W_hh in every timestep
    result["read"] = read / result["best"]
    rows = []
    for batch, group in result.groupby("batch"):
        best = group.loc[group["share"].idxmax()]
        rows.append(
            {
                "batch": batch,
                "over": float(np.exp(np.log(group["over"]).mean())),
                "share": best["share"],
                "at": shape_label(best),
                "best": best["best"],
                "read": group["read"].max(),
                "binds": ", ".join(dict.fromkeys(group["binds"])),
            }
        )
    columns = (
        number("batch", "batch"),
        number("over limit", "over", times),
        number("most of the multiply-adds", "share", lambda value: f"{value:.0%}"),
        text("at", "at"),
        number("fastest round", "best", seconds),
        number("most bytes of weights", "read", lambda value: f"{value / 1e9:.3g} GB/s"),
        text("what binds", "binds"),
    )
    return Table("limit", rows, columns)


if __name__ == "__main__":
    main()
