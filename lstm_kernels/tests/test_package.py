"""What the package needs: NumPy, and PyTorch where a layer is made."""

import ast
import subprocess
import sys
from pathlib import Path

import lstm_kernels

PACKAGE = Path(lstm_kernels.__file__).parent


def test_it_imports_numpy_and_where_a_layer_is_made_torch_and_nothing_else():
    for path in PACKAGE.rglob("*.py"):
        known = {*sys.stdlib_module_names, "lstm_kernels", "numpy"}
        if path.name in ("lstm.py", "stack.py", "operator.py"):
            known.add("torch")
        assert not {module.split(".")[0] for module in imported_by(path)} - known, path


def imported_by(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports by a relative name"
            yield node.module


def test_without_torch_all_but_the_drop_in_is_there():
    code = """
import sys
sys.modules["torch"] = None  # as where it is not installed
import lstm_kernels
assert not {"numpy", "ctypes"} & {*sys.modules}, "the import is not light"
import lstm_kernels.cache, lstm_kernels.compiler, lstm_kernels.layer, lstm_kernels.plans
try:
    lstm_kernels.LSTM
except ModuleNotFoundError as error:
    print(error.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("torch", "")


def test_a_name_that_is_not_there_is_an_attribute_error():
    assert not hasattr(lstm_kernels, "Lstm")


def test_the_sources_that_are_compiled_at_first_use_are_installed():
    found = {path.relative_to(PACKAGE / "gpu").as_posix() for path in PACKAGE.rglob("*.cu*")}
    families = ("vector", "cluster", "whole_gpu", "warpgroup", "input_tiles", "input_vectors")
    headers = ("call", "halves", "step", "wgmma")
    assert found == {f"{n}.cu" for n in families} | {f"include/{n}.cuh" for n in headers}
