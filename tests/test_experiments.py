"""Every experiment and example says what it does; what it finds is no test's business."""

import ast
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted([*(ROOT / "experiments").glob("*.py"), *(ROOT / "examples").glob("*.py")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_says_what_it_measures_and_how_to_call_it(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    monkeypatch.syspath_prepend(script.parent)  # as Python does
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code in (0, None)
    shown = capsys.readouterr().out
    assert (ast.get_docstring(ast.parse(script.read_text())) or "nothing") in shown
    assert f"python {script.relative_to(ROOT)}" in shown
