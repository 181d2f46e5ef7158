"""Every experiment and example says what it does; what it finds is no test's business."""

import ast
import runpy
import subprocess
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


def ran(example, monkeypatch, capsys, *options):
    monkeypatch.setattr(sys, "argv", [example, *options])
    runpy.run_path(str(ROOT / "examples" / example), run_name="__main__")
    return capsys.readouterr().out


def test_the_segmenter_claims_a_gain_only_where_the_kernels_take_the_calls(monkeypatch, capsys):
    pytest.importorskip("torch")
    lstm = pytest.importorskip("lstm_kernels.lstm")
    small = ["--device", "cpu", "--batch", "1", "--seconds", "0.1"]
    assert "ms after" in ran("segmenter.py", monkeypatch, capsys, *small)
    monkeypatch.setattr(lstm.on_cpu, "missing", lambda: "no library")
    shown = ran("segmenter.py", monkeypatch, capsys, *small)
    assert "nn.LSTM: no library" in shown
    assert "after" not in shown


def test_the_voice_detector_says_the_same_by_all_three_ways(monkeypatch, capsys):
    for package in ("torch", "onnx", "onnxruntime"):
        pytest.importorskip(package)
    shown = ran("voice_activity.py", monkeypatch, capsys, "--chunks", "20").splitlines()
    rows = [line.split() for line in shown if line.split()[0] in ("1", "64")]
    assert [row[1] for row in rows] == ["PyTorch", "ONNX", "ours"] * 2
    assert all(float(row[-1]) <= 1e-5 for row in rows)
    assert shown[-1].startswith("ours: kernels: fp32")


def test_the_sweep_checks_each_configuration_once_and_goes_on_where_it_was_cut(tmp_path):
    pytest.importorskip("torch")
    log = tmp_path / "sweep.jsonl"
    log.write_text('{"number": 0, "ran": "kernels"}\n{"number": 3, "fau')
    words = [ROOT / "experiments" / "layer_sweep.py", "4", "--processes", "1", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, *map(str, words), "--shard", "1/3", "--log", str(log)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 of 2 configurations, 0 wrong\n2 of 2 calls that fit ran on")
