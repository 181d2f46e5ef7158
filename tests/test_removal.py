"""Each feature's folder is taken away in turn, and the core works on."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

import lstm_bench

PACKAGE = Path(lstm_bench.__file__).parent
FEATURES = sorted(folder.parent.name for folder in PACKAGE.glob("features/*/__init__.py"))

#: Commands, one after the other in one process; the first that fails ends it.
SCRIPT = """
import json, sys
from in_process import start_no_process
from lstm_bench.cli import main
start_no_process()
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as ended:
        if ended.code:
            sys.exit(f"{words}: exit code {ended.code}")
"""


@pytest.mark.parametrize("feature", FEATURES)
def test_without_a_feature_the_core_measures_reports_and_compares(tmp_path, write_grid, feature):
    copy = tmp_path / "copy"
    shutil.copytree(PACKAGE, copy / "lstm_bench")
    shutil.rmtree(copy / "lstm_bench" / "features" / feature)
    fakes = {"fake": {}, "slower": {"call_s": 0.002}}
    grid = write_grid(fake=fakes, implementations=list(fakes))
    commands = [
        ["grid", str(grid), "--run", "r"],
        ["report", "--format", "json", "--output", "report.json"],
        ["report", "--mpe", "--run", "h200-paper", "--results", str(REPOSITORY / "results")],
        ["compare", "fake", "slower", "--run", "r"],
        ["list"],
        ["doctor", "--no-noise"],
        ["--help"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(commands)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{copy}:{Path(__file__).parent}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "report.json").read_text())["implementations"]
    assert {row["implementation"] for row in rows} == set(fakes)
    assert feature not in done.stdout.rpartition("Commands:")[2].split()
