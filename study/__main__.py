"""Fill the study's numbers, tables and figures into its pages: `python -m study`, at the checkout.

Writes docs/study.md, docs/figures/study-*.svg, study/numbers.json and README.md; what
pages say in place of the shipped runs, such as results/README.md and docs/explanation/gpu-or-cpu.md
with docs/figures/devices.svg; and all shipped cells as one table, results/cells.csv.gz, with
results/cells.md.
"""

from __future__ import annotations

import sys

from study import page, runs

if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)
    for path in page.write():
        print(path.relative_to(runs.ROOT))
