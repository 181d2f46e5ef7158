"""Is the C++ baseline the fastest thing in a run? Every framework row of its precision, by shape.

    python benchmarks/baseline_speed.py results/RUN

Prints, for each framework row, the geometric mean of its latency over the baseline's and the
shapes where the baseline is slower beyond the run's noise floor. On a GPU the baseline is
`deepbench-best`, in half precision `deepbench-fp16-best`; on a CPU it is `deepbench`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from lstm_bench import analysis, store
from lstm_bench.render import table


def baseline_for(precision: str, names: set[str]) -> str:
    best = "deepbench-best" if precision in ("fp32", "tf32") else "deepbench-fp16-best"
    return best if best in names else "deepbench"


def main() -> None:
    cells = analysis.frame(store.read_records(Path(sys.argv[1])).values())
    floors = analysis.noise(analysis.control_pairs(cells))
    ok = cells[(cells["status"] == "ok") & (cells["copy"] == 1)]
    by_name = {n: g.set_index(analysis.SHAPE) for n, g in ok.groupby("implementation")}
    by_shape = dict(iter(ok.groupby(analysis.SHAPE)))
    rows = []
    for name, theirs in by_name.items():
        if name.startswith("deepbench"):
            continue
        base = baseline_for(theirs["precision"].iloc[0], set(by_name))
        both = theirs.join(by_name[base], rsuffix="_base", how="inner")
        ratio = both["latency_s"] / both["latency_s_base"]
        slower = []
        for shape, row in both.iterrows():
            floor = analysis.floor_at(floors, row["latency_s"])
            word = analysis.verdict(*analysis.in_turns(by_shape[shape], name, base), floor)
            if word == "slower":
                slower.append(",".join(map(str, shape[:3])))
        rows.append(
            {
                "framework row": name,
                "baseline": base,
                "shapes": len(both),
                "geometric mean": f"{np.exp(np.log(ratio).mean()):.2f}x",
                "least": f"{ratio.min():.2f}x",
                "baseline slower at": " ".join(slower) or "none",
            }
        )
    print(table(rows))


if __name__ == "__main__":
    main()
