"""Compare the time that each shipped run took with the estimate for its plan.

python experiments/estimates.py            of all runs in results/
python experiments/estimates.py RUN ...    of these folders
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lstm_bench.model.units import span  # noqa: E402
from lstm_bench.runs import store  # noqa: E402
from lstm_bench.runs.estimate import Estimate  # noqa: E402
from lstm_bench.runs.plan import Plan  # noqa: E402

LINE = "{:20} {:>13} {:>13} {:>9}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="RUN")
    folders = parser.parse_args().folders
    folders = folders or sorted(path.parent for path in ROOT.glob("results/*/manifest.json"))
    print(LINE.format("run", "took", "estimate", "ratio"))
    for folder in folders:
        plan = Plan.from_json(store.read_manifest(folder)["plan"], folder.name)
        took_s = sum(leg.wall_s for leg in store.read_legs(folder))
        if not took_s:
            continue
        estimate_s = Estimate(plan).run_s(plan.all_cells())
        ratio = f"{estimate_s / took_s:.2f}"
        print(LINE.format(folder.name, span(took_s), span(estimate_s), ratio))


if __name__ == "__main__":
    main()
