"""Write the study: `python -m lstm_bench.study [RESULTS] [DOCS]`."""

from __future__ import annotations

import sys
from pathlib import Path

from lstm_bench.study import page


def main(results: str = "results", docs: str = "docs") -> None:
    for path in page.write(Path(results), Path(docs)):
        print(path)


if __name__ == "__main__":
    main(*sys.argv[1:3])
