"""Write the study: `python -m lstm_bench.study [RESULTS] [DOCS]`."""

from __future__ import annotations

import sys
from pathlib import Path

from lstm_bench.study import page


def main(results: str = "results", docs: str = "docs") -> None:
    if not Path(results).is_dir():  # a page without runs would take the place of the one there
        sys.exit(f"{results}: no such folder. {__doc__}")
    for path in page.write(Path(results), Path(docs)):
        print(path)


if __name__ == "__main__":
    main(*sys.argv[1:3])
