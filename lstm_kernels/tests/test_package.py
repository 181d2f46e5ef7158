"""What the package needs: NumPy, and PyTorch where a layer is made; once built, no compiler."""

import ast
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cases import SOURCES, built_native

import lstm_kernels

PACKAGE = Path(lstm_kernels.__file__).parent
PIPES = {"capture_output": True, "text": True}


def test_it_imports_numpy_and_where_a_layer_is_made_torch_and_nothing_else():
    for path in PACKAGE.rglob("*.py"):
        known = {*sys.stdlib_module_names, "lstm_kernels", "numpy"}
        if path.name in ("lstm.py", "stack.py", "on_cpu.py", "operator.py", "routes.py"):
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
    headers = ("numbers", "call", "halves", "step", "wgmma")
    assert found == {f"{n}.cu" for n in families} | {f"include/{n}.cuh" for n in headers}


def built_wheel(folder, compiler):
    """A wheel of the sources, whose library this compiler builds, and what that printed."""
    pytest.importorskip("setuptools", minversion="77")
    source, ignored = folder / "source", ("build", "*.so", "*.egg-info", "tests", ".*")
    shutil.copytree(SOURCES.parents[1], source, ignore=shutil.ignore_patterns(*ignored))
    words = ["wheel", "-v", "--no-build-isolation", "--no-deps", source]
    environment = {**os.environ, "CXX": str(compiler)}
    pip = [sys.executable, "-m", "pip", *words]
    done = subprocess.run(pip, cwd=folder, env=environment, check=True, **PIPES)
    (wheel,) = folder.glob("*.whl")
    return wheel, done.stdout + done.stderr


def installed(folder, wheel):
    """run(code): what Python prints with the wheel installed, and no command on the PATH."""
    clean = folder / "clean"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", clean], check=True)
    python = clean / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--quiet",
        wheel,
    ]
    subprocess.run(pip, check=True)
    (packages,) = clean.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(str(Path(np.__file__).parents[1]))  # NumPy, PyTorch

    def run(code):
        done = subprocess.run([python, "-c", code], cwd=folder, env={"PATH": ""}, **PIPES)
        assert not done.returncode, done.stderr
        return done.stdout

    return run


TORCH = """
import torch
plain = torch.nn.LSTM(5, 8)
ours, x = lstm_kernels.LSTM.like(plain), torch.randn(3, 2, 5)
assert torch.equal(ours(x)[0], plain(x)[0])
print(lstm_kernels.__file__)
"""


def test_a_wheel_is_for_every_python_and_needs_no_compiler(tmp_path):
    compiler = tmp_path / "compiler"  # as what is built already is known to build
    copy = f'cp {built_native().PATH} "$2"'
    compiler.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n{copy}\n')
    compiler.chmod(0o755)
    wheel, printed = built_wheel(tmp_path, compiler)
    assert "not compiled" not in printed
    assert "lstm_kernels/py.typed" in zipfile.ZipFile(wheel).namelist()
    assert "-py3-none-linux_" in wheel.name
    run = installed(tmp_path, wheel)
    printed = run("""
import sys, lstm_kernels
assert not {"numpy", "torch"} & {*sys.modules}
import numpy as np
from lstm_kernels import native
layer = native.CpuLstm(1, 1, 1, 2)
layer.load(*map(np.ones, [(2, 1, 1), (1, 1), (1, 1), (4, 1), (4, 1), 4, 4]))
layer.forward()
print(layer.outputs()[0].ravel().tolist())
""")
    assert np.allclose(json.loads(printed), [0.944055, 0.975151], atol=1e-5)
    pytest.importorskip("torch")
    assert str(tmp_path) in run(f"import lstm_kernels{TORCH}")


def test_without_a_compiler_it_installs_and_the_first_use_says_what_is_missing(tmp_path):
    wheel, printed = built_wheel(tmp_path, "/no/such/compiler")
    (line,) = (line for line in printed.splitlines() if "not compiled" in line)
    assert "install a C++20 compiler" in line
    assert "nn.LSTM itself computes all calls" in line
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    run = installed(tmp_path, wheel)
    message = run("""
from lstm_kernels import Unsupported, layer
try:
    layer.toolbox()
except Unsupported as error:
    print(error)
""")
    assert len(message.splitlines()) == 1
    assert "was not built: reinstall lstm-kernels with a C++20 compiler" in message
    assert "nn.LSTM itself computes all calls meanwhile" in message
    pytest.importorskip("torch")
    warned = run("""
import warnings
with warnings.catch_warnings(record=True) as caught:
    import lstm_kernels
    lstm_kernels.LSTM(1, 1)
print(*{str(warning.message) for warning in caught})
""")
    assert warned == message
