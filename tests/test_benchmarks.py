"""Every benchmark and experiment says what it does; what it finds is no test's business."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = [
    *sorted((ROOT / "benchmarks").glob("*.py")),
    *sorted((ROOT / "study" / "experiments").glob("*.py")),
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_says_what_it_measures_and_how_to_call_it(script):
    done = subprocess.run(
        [sys.executable, script, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (ast.get_docstring(ast.parse(script.read_text())) or "nothing") in done.stdout
    assert f"python {script.relative_to(ROOT)}" in done.stdout
